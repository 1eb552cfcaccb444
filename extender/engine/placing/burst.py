"""A burst of vpods that do not all find room is decided in other orders too, and the best order
counts. Pure.

The order matters in a pool that is nearly full. Heavy vreplicas come first (``service.placing
.queue``), which is best in most cases and not in all of them. An order is better if it leaves fewer
slots of vreplicas waiting. Among equal orders, the one whose free slots lie closer together
is better (the greatest sum of their squares over the pods): then it takes fewer moves to make room
for the rest.

Only vpods of one *age* change places: those that came within the same 30 s. The older ones are
always decided first, and what waits is compared from the oldest on. So no vpod waits in favour of
one that came later, and a light one does not wait for ever while heavy ones come and go.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from zlib import crc32

from extender.engine.placing.explain import Step
from extender.engine.placing.plan import Decision
from extender.engine.pods.bits import bits
from extender.engine.policy.profile import Ties
from extender.engine.state.pool_state import PoolState
from extender.model.reasons import ConflictReason

ORDERS: Final = 8
"""Orders that are tried besides the first one, at most."""
WORK_MAX: Final = 25_600
"""Of all tries together, some microseconds each: vpods times pods, and ``VREPLICA_WORK``. A large
burst is decided in fewer orders: in a large pool, the order matters less and each try takes longer.
"""
VREPLICA_WORK: Final = 10
"""Of each vreplica that gets a place."""


class Result(NamedTuple):
    """What an order leads to; the least is the best.

    ``left``: slots of vreplicas that wait, by age, the oldest first. ``scattered``: minus the sum
    of squares of the pods' free slots.
    """

    left: tuple[int, ...]
    scattered: int


def result_of(pool: PoolState, decisions: Sequence[Decision], ages: Mapping[str, int]) -> Result:
    """Judge decisions that are reserved. ``ages``: as in ``best_of``."""
    left = dict.fromkeys(sorted({ages[decision.vpod] for decision in decisions}), 0)
    for decision in decisions:
        left[ages[decision.vpod]] += decision.pending * decision.weight
    return Result(tuple(left.values()), -sum(free * free for free in _free(pool)))


def may_fit_better(pool: PoolState, decisions: Sequence[Decision]) -> bool:
    """Whether another order could place more: some decisions leave vreplicas for which the pool has
    enough free slots, others of them have taken slots, and there are few enough of them.
    """
    left = [
        decision.weight * max(1, pool.vpods[decision.vpod].least - decision.scheduled)
        for decision in decisions
        if decision.vpod in pool.vpods
        and decision.pending
        and decision.explanation.reason is ConflictReason.INSUFFICIENT_SLOTS
    ]
    return (
        bool(left)
        and len(decisions) > 1
        and _tries(pool, decisions) > 0
        and pool.profile.ties is not Ties.ROUND_ROBIN  # ``release`` does not take turns back
        and any(map(_added, decisions))
        and sum(_free(pool)) >= min(left)
    )


def best_of(
    pool: PoolState,
    first: list[Decision],
    reserve: Callable[[Sequence[str]], list[Decision]],
    release: Callable[[Sequence[str]], None],
    *,
    ages: Mapping[str, int],
) -> list[Decision]:
    """Return the decisions of the best order; ``first`` itself if no other one is better. On
    return, none of them is reserved.

    ``first``: reserved decisions. ``reserve``: decides vpods (keys) in this order, and reserves
    each decision before the next one is made. ``release``: takes these reservations back.
    ``ages``: vpod key -> when it came; less is older, and equal ones came in one burst.
    """
    best, found, tried = result_of(pool, first, ages), first, first
    for order in _orders(pool, first, ages, _tries(pool, first)):
        release([decision.vpod for decision in tried])
        tried = reserve(order)
        if (result := result_of(pool, tried, ages)) < best:
            best, found = result, tried
        if not any(best.left):
            break
    release([decision.vpod for decision in tried])
    return found


def _tries(pool: PoolState, decisions: Sequence[Decision]) -> int:
    """How many orders there is time for."""
    work = len(decisions) * pool.schedulable_count() + VREPLICA_WORK * sum(map(_added, decisions))
    return min(ORDERS, WORK_MAX // max(1, work))


def _orders(
    pool: PoolState, first: Sequence[Decision], ages: Mapping[str, int], tries: int
) -> Iterator[list[str]]:
    """Other orders of the vpods, the oldest first. The same vpods have the same orders each time.
    Orders in which only vpods that are alike change places are one.
    """
    vpods = [decision.vpod for decision in first]
    shapes = {decision.vpod: _shape(pool, decision) for decision in first}
    seen = {tuple(shapes[key] for key in vpods)}
    for number in range(tries):
        order = sorted(vpods, key=lambda key: (ages[key], crc32(f"{number}/{key}".encode()), key))
        if (shape := tuple(shapes[key] for key in order)) not in seen:
            seen.add(shape)
            yield order


def _shape(pool: PoolState, decision: Decision) -> object:
    """What makes a vpod differ from another one: nothing but its size, unless it keeps a place."""
    if _added(decision) < decision.scheduled:
        return decision.vpod
    vpod = pool.vpods.get(decision.vpod)
    limits = (vpod.least, vpod.max_per_pod) if vpod is not None else ()
    return decision.weight, decision.amounts, decision.scheduled + decision.pending, limits


def _added(decision: Decision) -> int:
    """Vreplicas that get a place."""
    steps = decision.explanation.steps
    return sum(step.vreplicas for step in steps if step.step is Step.ADDED)


def _free(pool: PoolState) -> Iterator[int]:
    """The free slots of each pod that takes vreplicas."""
    return (max(0, pool.by_ordinal[ordinal].free) for ordinal in bits(pool.room))
