"""Carries out planned moves of one vpod: a decision that takes vreplicas from one pod to another.
Pure.

A plan was made on an older state. A move that is no longer possible is left out: its source has
less, or its target is full, closed, not schedulable, or no longer serves. Nothing else of the vpod
changes.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from extender.engine.placing.explain import Explanation, Reasoning, Step
from extender.engine.placing.grow import free_beside
from extender.engine.placing.plan import Decision
from extender.engine.placing.refused import reason_for, why_refused
from extender.engine.policy.guard import PluginFailed
from extender.engine.state.pool_state import PoolState
from extender.model.moves import Move, MoveReason, by_vpod
from extender.model.objects import VPod, placement_order
from extender.model.reasons import ConflictReason

UNASKED: Final = frozenset(
    {MoveReason.COMPACTION, MoveReason.MAKE_ROOM, MoveReason.LOAD, MoveReason.POLICY}
)
"""Reasons of moves that can wait: nobody has ordered them, and nothing is wrong with the pod that
they leave.
"""


def relocations(pool: PoolState, moves: Iterable[Move]) -> Iterator[Decision]:
    """Yield a decision for each vpod of which something can be moved. Before the next one is asked
    for, the caller reserves or publishes it.
    """
    for key, group in by_vpod(moves).items():
        if (decision := relocate(pool, pool.vpods[key], group)) is not None:
            yield decision


def relocate(pool: PoolState, vpod: VPod, moves: Iterable[Move]) -> Decision | None:
    """The decision that carries out what is still possible of ``moves``; None if nothing is."""
    target = pool.decided_of(vpod.key)
    if not is_movable(pool, vpod) or not is_published(pool, vpod.key):
        return None
    before = dict(target)
    steps: list[Reasoning] = []
    for move in _direct(moves):
        count = min(
            move.vreplicas, target.get(move.from_pod, 0), _fitting(pool, vpod, move, target, before)
        )
        if count > 0:
            target[move.from_pod] -= count
            target[move.to_pod] = target.get(move.to_pod, 0) + count
            steps.append(
                Reasoning(Step.MOVED_AWAY, move.from_pod, count, str(move.reason), move.reason)
            )
            steps.append(Reasoning(Step.ADDED, move.to_pod, count))
    if not steps:
        return None
    placed = sum(target.values())
    left = max(0, vpod.vreplicas - placed)
    reason = _reason_of_left(pool, vpod, target) if left else None
    return Decision(
        vpod.key,
        pool.key,
        {name: target[name] for name in sorted(target, key=placement_order) if target[name]},
        vpod.weight,
        left,
        Explanation(placed + left, tuple(steps), left, reason, not_admitted=vpod.not_admitted),
        (vpod.uid, vpod.generation),
        amounts=vpod.per_vreplica,
    )


def _direct(moves: Iterable[Move]) -> list[Move]:
    """The moves of one vpod, without pods that one vreplica leaves and another one comes to: the
    vpod's vreplicas are all alike (seed 590001071).
    """
    direct: list[Move] = []
    for new in moves:
        left = new.vreplicas
        for index, old in enumerate(direct):
            if old.from_pod != new.to_pod and old.to_pod != new.from_pod:
                continue
            count = min(left, old.vreplicas)
            left -= count
            direct[index] = replace(old, vreplicas=old.vreplicas - count)
            first, last = (new, old) if old.from_pod == new.to_pod else (old, new)
            if first.from_pod != last.to_pod:
                direct.append(replace(first, to_pod=last.to_pod, vreplicas=count))
        direct.append(replace(new, vreplicas=left))
    return [move for move in direct if move.vreplicas]


def _reason_of_left(pool: PoolState, vpod: VPod, target: Mapping[str, int]) -> ConflictReason:
    """The reason that placing would give, so that a move of other vreplicas does not change the
    vpod's condition.
    """
    if not pool.tenant_room.crowded:
        return ConflictReason.INSUFFICIENT_SLOTS
    try:
        free = free_beside(pool, vpod, target)
        return reason_for(why_refused(pool, vpod, target, free))
    except PluginFailed:
        return ConflictReason.INSUFFICIENT_SLOTS


def is_movable(pool: PoolState, vpod: VPod) -> bool:
    """Whether a vpod may be moved before placing has decided it again: it is not in quarantine,
    what one vreplica takes has not changed, and it does not have too much.
    """
    shares = [
        claim.decided for claim in pool.claims_of(vpod.key).values() if claim.decided.vreplicas
    ]
    size = (vpod.weight, vpod.per_vreplica)
    if (
        vpod.deleting
        or vpod.quarantined
        or any((share.weight, share.amounts) != size for share in shares)
    ):
        return False
    minimum = (
        pool.adapter_pool.min_pods_per_vpod
        if pool.adapter_pool is not None and vpod.vreplicas
        else 0
    )
    return sum(share.vreplicas for share in shares) <= max(vpod.vreplicas, minimum)


def is_published(pool: PoolState, vpod_key: str) -> bool:
    """Whether everything that is placed of a vpod is published. What is not may not be wanted at
    all.
    """
    return all(
        claim.decided.vreplicas == claim.published for claim in pool.claims_of(vpod_key).values()
    )


def _fitting(
    pool: PoolState, vpod: VPod, move: Move, target: dict[str, int], before: dict[str, int]
) -> int:
    """vreplicas that the move's target can still take, in slots, in the pool's dimensions and in
    bytes of its ledger.
    """
    to = pool.pods.get(move.to_pod)
    if (
        to is None
        or to.ordinal is None
        or not to.schedulable
        or not pool.room_for(vpod.key) >> to.ordinal & 1
    ):
        return 0
    if move.reason in UNASKED and pool.pods[move.from_pod].serving and not to.serving:
        # Excuses do not count: recordings do not have them, and a replay must decide the same.
        return 0
    new = target.get(move.to_pod, 0) - before.get(move.to_pod, 0)
    free = pool.free_for(vpod)(to.ordinal) - new * vpod.weight
    return vpod.slots_beside(target.get(move.to_pod, 0), free) // vpod.weight
