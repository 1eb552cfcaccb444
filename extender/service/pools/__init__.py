"""The leader's loops for whole pools: scaling, moving, repairing and reporting status. Imports
``placing`` and ``watching``.
"""
