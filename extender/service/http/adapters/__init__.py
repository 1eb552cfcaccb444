"""The listener for adapters, and what it answers."""
