"""Deterministic simulation: the shipped service in virtual time, with seeded faults (``vreplica
simulate``).
"""
