"""Assume caches: what the API server has sent, and our assumptions. Imports only ``model``."""
