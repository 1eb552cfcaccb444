"""Deterministic simulation: the shipped service under seeded faults, in virtual time (``vreplica
simulate``).
"""
