"""How long a share is without work: once the adapter says that it serves it, and after news.

Without a work log nobody sees it. A busy machine holds up any adapter now and then. So what is late
is played again, and the rule is broken if it is late each time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from typing import Final, TypeAlias

from extender.lab.adapter_kit.judging import RuleBroken
from extender.lab.adapter_kit.pools import DRAIN_S
from extender.lab.adapter_kit.stage import Stage

Told: TypeAlias = Callable[[int], Awaitable[None]]
MORE_S: Final = 0.5
"""How much longer than between two lines a share may be without one."""
TRIES: Final = 3
WATCH_S: Final = 1.0
"""How long lines are watched."""


async def begins_when_it_says_so(stage: Stage, key: str, epoch: int, told: Told) -> None:
    """A share comes, with this epoch at first: ``told`` tells the adapter to serve it with an
    epoch. Raises RuleBroken if work begins later than the adapter says, each time.
    """
    clock = asyncio.get_running_loop().time
    late_s = usual_s = 0.0
    for each in range(epoch, epoch + TRIES):
        if each > epoch:
            await _leaves(stage, key)
        await told(each)
        await stage.serving(key)
        said_at = clock()
        await stage.works(key, each)
        times = stage.log.times(key, stage.epoch(each))
        if not times or (late_s := times[0] - said_at) <= MORE_S:
            return
        watched_from = clock()
        await stage.meanwhile(WATCH_S, f"work on {key}")
        usual_s = _longest(stage.log.times(key), watched_from, clock())
        if late_s <= usual_s + MORE_S:
            return
    raise RuleBroken(
        f"work on {key} when the adapter says that it serves it",
        f"work {late_s:.1f} s after it was acknowledged as served, though its lines are "
        f"{usual_s:.1f} s apart at most, {TRIES} times of {TRIES}",
    )


async def _leaves(stage: Stage, key: str) -> None:
    stage.drain(key, DRAIN_S)
    await stage.drained(key, DRAIN_S)
    stage.tell(key, None)
    await stage.until(stage.has_said, f"generation {stage.generation} acknowledged")


async def works_through(stage: Stage, key: str, news: Told) -> None:
    """``news`` tells the adapter something new while it serves a share. Its argument is the number
    of the try. Raises RuleBroken if work on the share rests each time.
    """
    clock = asyncio.get_running_loop().time
    rest_s = usual_s = 0.0
    for number in range(TRIES):
        watched_from = clock()
        await stage.meanwhile(WATCH_S, f"work on {key}")
        told_at = clock()
        await news(number)
        await stage.meanwhile(WATCH_S, f"work on {key}")
        times = stage.log.times(key)
        usual_s = _longest(times, watched_from, told_at)
        rest_s = _longest(times, told_at, clock())
        if not times or rest_s <= usual_s + MORE_S:
            return
    raise RuleBroken(
        f"work on {key} without a pause",
        f"no work for {rest_s:.1f} s after news, and for {usual_s:.1f} s at most before it, "
        f"{TRIES} times of {TRIES}",
    )


def _longest(times: Sequence[float], begin: float, end: float) -> float:
    """The longest time without work between two moments, from the work before the first one on."""
    begun = max((each for each in times if each <= begin), default=begin)
    within = [begun, *(each for each in times if begin < each < end), end]
    return max(later - earlier for earlier, later in pairwise(within))
