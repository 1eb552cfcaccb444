"""Recordings: what a service has seen and decided, as lines of JSON, and what becomes of it when it
is played again.
"""
