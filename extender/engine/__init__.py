"""The decisions: where vreplicas go, how large a pool is, what moves. Pure; imports
only ``model``.
"""
