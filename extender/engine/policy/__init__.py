"""Placing policies: plugins, and the profiles that put them together (DESIGN 5.2)."""
