"""The state that decisions look at: pools, their pods, vpods and nodes, kept up to date by
differences.
"""
