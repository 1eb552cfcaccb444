"""Finds the smallest changes that would place a waiting vpod. The engine tries each on a copy
first.

If the vpod lacks room, these are tried in turn: what comes by itself (pods, and moves that make
room); lifting drain annotations and cordons; more pods (from the autoscaler, or with a greater
maxPods); the profile's rules; larger pods, in slots and in other dimensions; asking for less.
Otherwise a label of the namespace and another pool are tried. A number is the least that is enough.
If no number places everything, changes that place some are listed.
"""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Final

from extender.engine.state.cluster_state import ClusterState
from extender.engine.state.pool_state import PoolState
from extender.whatif import lift, loosen
from extender.whatif.bench import Bench
from extender.whatif.fix import Fix, Fixes
from extender.whatif.trial import OutOfTime, never

FIXES_MAX: Final = 16

Strategy = Callable[[Bench], Iterator[Fix]]
"""Tries changes of one kind, and yields those that help."""
WAYS_IN: Final[tuple[Strategy, ...]] = (lift.namespace_label, lift.other_pool)
"""Tried if the vpod does not lack room (``Bench.lacks_room``)."""
AT_REST: Final[frozenset[Strategy]] = frozenset(
    {
        lift.marked_pods,
        lift.bad_nodes,
        loosen.larger_skew,
        loosen.other_profile,
        loosen.more_slots,
        loosen.more_capacity,
        loosen.greater_max_per_pod,
        loosen.lighter_vreplicas,
        loosen.fewer_vreplicas,
    }
)
"""Changes that a person makes, judged at rest (``bench``). The others are about pods that come:
they show what each of these brings by itself.
"""
ROOM: Final[tuple[Strategy, ...]] = (
    lift.pods_that_come,
    lift.moves_that_make_room,
    lift.closed_pods,
    lift.marked_pods,
    lift.bad_nodes,
    loosen.pods_more,
    loosen.larger_skew,
    loosen.other_profile,
    loosen.more_slots,
    loosen.more_capacity,
    loosen.greater_max_per_pod,
    loosen.lighter_vreplicas,
    loosen.fewer_vreplicas,
)


def find_fixes(
    state: ClusterState, pool: PoolState, key: str, *, expired: Callable[[], bool] = never
) -> Fixes:
    """Find what would place the vpod ``key`` of ``pool``, all of it if possible. ``state`` is the
    same afterwards.

    ``expired``: whether the time is up. The answer is then what was found so far.
    """
    if expired():
        return Fixes(cut_short=True)
    bench = Bench(state, pool, key)
    bench.expired = expired
    found: list[Fix] = []
    cut_short = False
    try:
        strategies = ROOM if bench.lacks_room else WAYS_IN
        short = [strategy for strategy in strategies if not _try(bench, strategy, found)]
        if bench.rivals:
            bench.go_alone()
            for strategy in short:
                _try(bench, strategy, found)
    except OutOfTime:
        cut_short = True
    return Fixes(_ranked(found), cut_short, bench.tried)


def _try(bench: Bench, strategy: Strategy, found: list[Fix]) -> bool:
    """Try a strategy; return whether one of its changes leaves nothing without a place."""
    enough = False
    with bench.at_rest() if strategy in AT_REST and not bench.helps_itself else nullcontext():
        for fix in strategy(bench):
            found.append(fix)
            enough = enough or not fix.left
    return enough


def _ranked(found: list[Fix]) -> tuple[Fix, ...]:
    """Each change once: those that leave nothing without a place first, in the order in which they
    were tried, then by how much they leave.
    """
    first: dict[str, Fix] = {}
    for fix in sorted(found, key=lambda fix: (fix.left, fix.alone)):
        first.setdefault(fix.change, fix)
    return tuple(list(first.values())[:FIXES_MAX])
