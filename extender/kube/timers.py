"""How exactly a timer wakes us, for everything that waits until a time and then asks whether it has
come.
"""

from typing import Final

TIMER_RESOLUTION_S: Final = 0.001
"""A timer may wake us this much too soon; then what it was for is due all the same, and less than
this is not slept for.
"""
