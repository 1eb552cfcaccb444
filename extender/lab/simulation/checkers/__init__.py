"""Checkers of the invariants. Each looks at what the API server stores, never at the service's
memory.
"""
