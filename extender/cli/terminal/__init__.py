"""Between a command line and what a command does: options that several commands have, results,
progress, exit statuses.
"""
