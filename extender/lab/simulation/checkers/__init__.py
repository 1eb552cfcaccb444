"""Checkers of the invariants. They look at what the API server stores, not at the service's
memory.
"""
