"""Foreign kinds and callers: vpods that are no VPods (DESIGN 5.6)."""
