"""What the leader does for a pool as a whole: size, moves, repairs, status. Knows ``placing`` and
``watching``.
"""
