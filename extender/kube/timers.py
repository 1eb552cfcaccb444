"""How exactly a timer wakes us, for code that waits until a time and then checks whether it has
come.
"""

from typing import Final

TIMER_RESOLUTION_S: Final = 0.001
"""A timer may wake us this much too soon. What it was set for is due then, and nothing sleeps for
less than this.
"""
