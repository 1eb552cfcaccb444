"""What is decided: where vreplicas go, how large a pool is, what moves. Pure; knows
``model`` only.
"""
