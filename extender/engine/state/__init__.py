"""The state that decisions look at: pools, their pods, vpods and nodes, updated by differences."""
