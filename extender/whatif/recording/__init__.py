"""Recordings: what a service has seen and decided, as lines of JSON. A recording can be played
again.
"""
