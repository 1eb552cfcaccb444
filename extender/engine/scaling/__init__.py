"""How many pods a pool needs, and which it can do without (DESIGN 5.4)."""
