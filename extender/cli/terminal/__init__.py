"""Shared by the commands: common options, output, progress, exit statuses."""
