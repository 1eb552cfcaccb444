"""Questions about the state: why is it there, why is it not placed, what if. Answered on a copy, by
the engine itself.
"""
