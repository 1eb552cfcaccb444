"""Compaction: ordinals that are being emptied lose what they have to lower ones (DESIGN 5.5). Pure.

It ends, because each of its moves goes from an emptied ordinal to a lower one that is not, and
nothing comes back to a closed one. It empties a pod completely or not at all. If something on the
pod does not fit below, it makes room there. If that does not work either, compaction does not
begin with this pod, nor with any pod below it, since a StatefulSet only loses its highest pod. What
the budget or a cool-down leaves for later periods keeps its room.
"""

from dataclasses import replace

from extender.engine.pods.claims import PodClaims
from extender.engine.rebalance.draft import without_one
from extender.engine.rebalance.make_room import reserve
from extender.engine.rebalance.move_plan import Limits, MovePlan
from extender.engine.state.pool_state import PoolState
from extender.model.moves import MoveReason
from extender.model.objects import VPod


def can_empty(pool: PoolState, emptying: int, limits: Limits) -> bool:
    """Whether compaction can empty these pods (bit set of ordinals) with the moves of several
    periods: ``limits.budget`` is that of all together.
    """
    plan = MovePlan(pool, replace(limits, emptying=emptying))
    for pod in reversed([pod for pod in pool.members() if pod.decided]):
        ordinal = pod.ordinal
        if ordinal is None or not plan.is_emptied(ordinal):
            continue
        moved = sum(plan.draft.still_on(pod).values())
        if moved > plan.budget or not _empty(plan, pod, ordinal):
            return False
    return True


def compact(plan: MovePlan) -> None:
    """Plan to empty the pods that are being emptied, as far as the budget goes."""
    members = [pod for pod in plan.pool.members() if pod.decided]
    for pod in reversed(members):
        if plan.budget <= 0:
            return
        ordinal = pod.ordinal
        if ordinal is None or not plan.is_emptied(ordinal) or not plan.draft.still_on(pod):
            continue
        if not _empty(plan, pod, ordinal):
            return


def _empty(plan: MovePlan, pod: PodClaims, ordinal: int) -> bool:
    """Plan to empty a pod. False, and nothing is planned, if not all of its load fits below."""
    load = _load_of(plan, pod)
    if load is None:
        return False
    trial = plan.draft.copy()
    below = plan.open_pods() & (1 << ordinal) - 1
    if not pod.down:
        below &= ~plan.pool.down
    found: list[tuple[VPod, int, dict[int, int]]] = []
    unlocking: list[tuple[str, PodClaims, int]] = []
    # The heaviest find room first: light ones fit into what is left, but not the other way
    # round.
    for vpod, count in sorted(load, key=lambda share: (-share[0].weight, share[1], share[0].key)):
        given, left = trial.place(vpod, pod, count, among=below)
        for _ in range(left):
            kept = without_one(trial.placed(vpod.key), pod.name)
            room = plan.room_for(trial, vpod, kept, below)
            if room is None:
                return False
            unlocking += reserve(trial, room)
            trial.promise(vpod, room.ordinal, source=pod.name)
        found.append((vpod, count, given))
    plan.draft = trial
    for key, source, to in unlocking:
        plan.record(key, source, to, 1, MoveReason.MAKE_ROOM)
    for vpod, _, given in sorted(found, key=lambda item: (item[1] * item[0].weight, item[0].key)):
        if not plan.limits.cooling(vpod.key):
            for to, count in sorted(_part(given, plan.budget).items()):
                plan.record(vpod.key, pod, to, count, MoveReason.COMPACTION)
    return True


def _load_of(plan: MovePlan, pod: PodClaims) -> list[tuple[VPod, int]] | None:
    """What must leave the pod to empty it; None if something there may not be moved."""
    load: list[tuple[VPod, int]] = []
    for key, count in plan.draft.still_on(pod).items():
        vpod, known = plan.movable(key), plan.pool.vpods.get(key)
        if vpod is not None:
            load.append((vpod, count))
        elif known is None or not known.deleting:  # one being deleted goes by itself
            return None
    return load


def _part(given: dict[int, int], most: int) -> dict[int, int]:
    """As much of ``given`` (ordinal -> vreplicas) as the budget allows. The proportions stay, so
    what is spread stays spread.
    """
    total = sum(given.values())
    if total <= most:
        return given
    part = {ordinal: count * most // total for ordinal, count in given.items()}
    by_rest = sorted(given, key=lambda ordinal: (-(given[ordinal] * most % total), ordinal))
    for ordinal in by_rest[: most - sum(part.values())]:
        part[ordinal] += 1
    return part
