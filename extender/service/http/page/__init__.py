"""The page at ``/ui``: its files, its stream of facts, and its history of the last hour."""
