"""Placing policies: plugins, and the profiles that combine them (DESIGN 5.2)."""
