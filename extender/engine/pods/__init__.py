"""Counts of what one adapter pod or node holds. Policies and the state build on them."""
