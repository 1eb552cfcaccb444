"""Mutation check: deliberate breaks of the code that keeps I1 to I5, each of which a test or a
seeded simulation must catch.
"""
