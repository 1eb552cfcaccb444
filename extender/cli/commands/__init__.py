"""The commands of ``vreplica``: a module each, with its options and what it runs, and nothing else.

``add`` puts the command on the command line; what it needs is imported when it is called, so that
``--help`` and the small commands start fast.
"""
