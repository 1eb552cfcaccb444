"""Which vreplicas should move: drains, lost pods, compaction, policies (DESIGN 5.5)."""
