"""Answers questions about the state: why is a vpod or pod where it is, why does it wait, and what
would a change do. The engine itself decides, on a copy of the state.
"""
