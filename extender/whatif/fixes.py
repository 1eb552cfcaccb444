"""The smallest changes with which a vpod that waits would not: each is tried on a copy, by the
engine, before it is named.

What is looked for, in the order in which it is offered: what comes by itself; marks and cordons to
be lifted; a pod more (by the autoscaler, where maxPods holds it back); the namespace; the profile's
rules; larger pods; less asked for. A change that leaves nothing over is listed with the least
number that is enough; where there is none, those that place some.
"""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final

from extender.engine.state.pool_state import PoolState
from extender.engine.state.state import State
from extender.whatif import lift, loosen
from extender.whatif.bench import Bench
from extender.whatif.fix import Fix
from extender.whatif.trial import OutOfTime, never

FIXES_MAX: Final = 16

Lever = Callable[[Bench], Iterator[Fix]]
WAYS_IN: Final[tuple[Lever, ...]] = (lift.namespace_label, lift.other_pool)
"""Where it is not room that is missing."""
AT_REST: Final[frozenset[Lever]] = frozenset(
    {
        lift.marked_pods,
        lift.bad_nodes,
        loosen.larger_skew,
        loosen.other_profile,
        loosen.more_slots,
        loosen.lighter_vreplicas,
        loosen.fewer_vreplicas,
    }
)
"""What a person changes, and the cluster follows. The others are about pods that come: what each of
them brings by itself.
"""
ROOM: Final[tuple[Lever, ...]] = (
    lift.pods_that_come,
    lift.closed_pods,
    lift.marked_pods,
    lift.bad_nodes,
    loosen.pods_more,
    loosen.larger_skew,
    loosen.other_profile,
    loosen.more_slots,
    loosen.lighter_vreplicas,
    loosen.fewer_vreplicas,
)


@dataclass(frozen=True, slots=True)
class Fixes:
    """What was found. ``cut_short``: time was up before all was tried; ``tried``: runs of the
    engine.
    """

    found: tuple[Fix, ...]
    cut_short: bool
    tried: int


def find_fixes(
    state: State, pool: PoolState, key: str, *, expired: Callable[[], bool] = never
) -> Fixes:
    """What would place the vpod ``key`` of ``pool``, all of it if anything does. ``state`` is as
    before afterwards.

    ``expired``: whether the time for it is up; what is found by then is the answer.
    """
    if expired():
        return Fixes((), cut_short=True, tried=0)
    bench = Bench(state, pool, key)
    bench.expired = expired
    found: list[Fix] = []
    try:
        levers = ROOM if bench.lacks_room else WAYS_IN
        short = [lever for lever in levers if not _pull(bench, lever, found)]
        if bench.rivals:
            bench.go_alone()
            for lever in short:
                _pull(bench, lever, found)
    except OutOfTime:
        return Fixes(_ranked(found), cut_short=True, tried=bench.tried)
    return Fixes(_ranked(found), cut_short=False, tried=bench.tried)


def _pull(bench: Bench, lever: Lever, found: list[Fix]) -> bool:
    """Whether one of the lever's changes leaves nothing over."""
    enough = False
    with bench.at_rest() if lever in AT_REST and not bench.helps_itself else nullcontext():
        for fix in lever(bench):
            found.append(fix)
            enough = enough or not fix.left
    return enough


def _ranked(found: list[Fix]) -> tuple[Fix, ...]:
    """Those that leave nothing over, in the order in which they were tried; then those that leave
    least. Each change once.
    """
    first: dict[str, Fix] = {}
    for fix in sorted(found, key=lambda fix: (fix.left, fix.alone)):
        first.setdefault(fix.change, fix)
    return tuple(list(first.values())[:FIXES_MAX])
