"""What should leave where it is: drains, lost pods, compaction, policies (DESIGN 5.5)."""
