"""Assume caches: what the API server says, with what we assume on top of it. Knows
``model`` only.
"""
