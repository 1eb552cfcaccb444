"""The world of a simulated run: its cluster, its objects, and the processes that run in it."""
