"""The page at ``/ui``: its files, its stream of facts, and what it remembers of the last hour."""
