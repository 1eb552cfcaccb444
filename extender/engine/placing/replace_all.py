"""Placing a whole vpod afresh, as Knative's policies did up to 1.16 whenever more vreplicas were
wanted.

The vpod's placements are forgotten, and the profile's filters and scores place each vreplica again.
The result is what the policies would have chosen from the start, but any vreplica may move. For the
filters, pods that the vpod leaves still count as in use, since the source's partitions are on them
until the vpod has left. Every pod with room is scored for every vreplica, as in Knative: a pod that
is left is not equal to an empty one.

Ties go to the lowest ordinal, even if the profile lets pods take turns: each decision would move
vreplicas.
"""

from collections.abc import Callable, Collection, Iterator, Mapping

from extender.engine.placing.explain import Reasoning, Step
from extender.engine.placing.pick import best_of_all
from extender.engine.policy.spread import Spread
from extender.engine.state.pool_state import PoolState
from extender.model.moves import MoveReason
from extender.model.objects import VPod, placement_order


def replace_all(
    pool: PoolState,
    vpod: VPod,
    current_pods: Collection[str],
    wanted: int,
    free: Callable[[int], int],
) -> tuple[dict[str, int], int]:
    """Place ``wanted`` vreplicas: (pod name -> vreplicas, how many found no place).

    ``current_pods``: names of the pods that the vpod is on, or has 0 vreplicas on. ``free``: an
    ordinal's free slots without the vpod.
    """
    room = room_once_left(pool, vpod, free)
    spread = Spread(pool, free, vpod.weight, room, key=vpod.key, amounts=vpod.per_vreplica)
    for name in current_pods:
        spread.hold(pool.pods[name], 0)
    profile = pool.profile
    placed: dict[str, int] = {}
    while wanted > 0 and (ordinal := best_of_all(spread, profile)) is not None:
        spread.add(ordinal)
        name = pool.by_ordinal[ordinal].name
        placed[name] = placed.get(name, 0) + 1
        wanted -= 1
    return placed, wanted


def steps_between(before: Mapping[str, int], after: Mapping[str, int]) -> Iterator[Reasoning]:
    """The steps from ``before`` to ``after``, pod by pod."""
    for name in sorted({**before, **after}, key=placement_order):
        change = after.get(name, 0) - before.get(name, 0)
        if change < 0:
            yield Reasoning(
                Step.MOVED_AWAY, name, -change, "all are placed afresh", MoveReason.POLICY
            )
        elif change > 0:
            yield Reasoning(Step.ADDED, name, change)


def room_once_left(pool: PoolState, vpod: VPod, free: Callable[[int], int]) -> int:
    """Bit set of the pods with room once the vpod has left all its pods."""
    room = pool.room_for(vpod.key)
    for name in pool.claims_of(vpod.key):
        pod = pool.pods[name]
        if pod.schedulable and pod.ordinal is not None and not pool.is_closed(pod):
            room |= 1 << pod.ordinal if free(pod.ordinal) > 0 else 0
    return room
