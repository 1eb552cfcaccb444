"""Python's cyclic garbage collector, and what a service that starts fills its memory with.

The collector looks at every container that there is, again each time that their number has grown by
a quarter: with 10,000 adapter pods it took a third of a start's time, and stops of 0.2 s. All of
that stays, and none of it refers to itself.
"""

import gc
from collections.abc import Awaitable
from typing import Final

LOADING: Final = (100_000, 1_000, 1_000)
"""Thresholds as gc.set_threshold takes them: looked at once, some 10 ms for each 100,000
containers, and not again.
"""


async def spare_what_stays(loaded: Awaitable[object]) -> None:
    """Collect seldom until ``loaded``, then as before, but never again what there is by then
    (gc.freeze).
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(*LOADING)
    try:
        await loaded
        gc.freeze()
    finally:
        gc.set_threshold(*thresholds)
