"""The moves of one plan for a pool: which vreplicas should leave their pod, and where they go
(DESIGN 5.5). Pure.

These are the sources, in order, each with its ``MoveReason``. The budget (vreplicas) is spent from
the top:

1. Pods marked unschedulable or evicted, even in the middle of the range. A person has ordered it,
   so there is no cool-down.
2. Ordinals that the StatefulSet no longer has.
3. Abandoned pods: not Ready for longer than rescheduleAfterSeconds.
4. Pods that hold more than their slots: as few vreplicas as bring them back under.
5. Make room: vpods that wait for slots, although a few moves would give them a place
   (``rebalance.make_room``). The caller says which.
6. Compaction: ordinals that are being *emptied*, from the highest down
   (``rebalance.compaction``). The autoscaler closes those that it wants to remove.
7. Load: pods whose reported load is far above the mean (``rebalance.balance``).
8. Policy: vpods whose profile strictly prefers another pod, one vreplica at a time.

Placing does most of 1 to 4 by itself, as soon as it looks at a vpod. What is found here has waited
for room. In 1 to 3 the pods with the fewest slots in use come first, and on each pod the smallest
shares. In this way, the most pods are empty soonest.

Every move has a destination with room: a schedulable pod that is neither closed nor being emptied.
It is chosen as placing would choose, with the profile's hard filters. (Moves that make room choose
by slots instead.) Room that the sources will free does not count, because the destination's ledger
is written first. Moves for the last four reasons can wait, so they take nothing from a pod that
serves to one that is down (``availability.would_end_service``).

Policy moves end if ``better`` always improves strictly. If plugins do not, ``returns`` breaks the
circle (``extender.engine.rebalance.repetition``). It also ends moves that make room: a vpod does
not go back to placements that it has left for this.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from extender.engine.placing.select import better_place
from extender.engine.pods.claims import PodClaims
from extender.engine.policy.guard import PluginFailed
from extender.engine.rebalance.balance import Balancing, LoadGoal
from extender.engine.rebalance.compaction import compact
from extender.engine.rebalance.draft import Placements, after
from extender.engine.rebalance.move_plan import Limits, MovePlan, never_before
from extender.engine.rebalance.swaps import find_swap, then
from extender.engine.state.availability import would_end_service
from extender.engine.state.pool_state import PoolState
from extender.model.amounts import SLOTS
from extender.model.moves import Move, MoveReason
from extender.model.objects import VPod, placement_order

Better = Callable[[PoolState, VPod, Placements], tuple[str, str] | None]
"""(pool, vpod, its placements) -> the pods to take one vreplica from and to give it to; None if it
is well placed.
"""
SWAPS_TRIED_MAX: Final = 4
"""Vpods for which one plan tries a swap."""


def by_profile(pool: PoolState, vpod: VPod, placements: Placements) -> tuple[str, str] | None:
    """The move that the pool's profile prefers; None if there is none or a plugin fails."""
    try:
        return better_place(pool, vpod, placements, pool.profile)
    except PluginFailed:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What policy and making room may do. ``vpods``: keys of those that policy looks at now.
    ``better``: what the profile would change. ``waiting``: keys of the vpods for which room may be
    made, the first ones first. A plan takes from it only those that it tries.

    ``returns``: whether a vpod has left these placements before, since the last change that was not
    our own. ``load``: what is known of the pods' load; None if it is not balanced.
    """

    better: Better = by_profile
    returns: Callable[[str, Placements], bool] = never_before
    vpods: Sequence[str] = ()
    waiting: Iterable[str] = ()
    load: LoadGoal | None = None


NO_ADVICE = Advice()


def plan_moves(pool: PoolState, limits: Limits, advice: Advice = NO_ADVICE) -> list[Move]:
    """The moves of one plan, in the order in which to make them; at most one for each vpod, pair of
    pods and reason.
    """
    plan = MovePlan(pool, limits, advice.returns)
    for pod, reason in _urgent(pool):
        _lighten(plan, pod, reason, pod.decided)
    for pod, slots in _overcommitted(pool):
        _lighten(plan, pod, MoveReason.OVERCOMMIT, slots)
    for key in advice.waiting:
        if not plan.may_search:
            break
        plan.rooms_for(key)
    compact(plan)
    if advice.load is not None:
        _balance(plan, advice.load)
    policy = _Policy(plan, advice)
    for key in advice.vpods:
        if plan.budget <= 0:
            break
        policy.improve(key)
    return plan.moves


def _urgent(pool: PoolState) -> Iterator[tuple[PodClaims, MoveReason]]:
    loaded = sorted(
        (pod for pod in pool.pods.values() if pod.decided),
        key=lambda pod: (pod.decided, placement_order(pod.name)),
    )
    for pod in loaded:
        if pod.draining and pool.is_member(pod):
            yield pod, pod.evicted or MoveReason.DRAIN
    yield from ((pod, MoveReason.ORDINAL_GONE) for pod in loaded if not pool.is_member(pod))
    for pod in loaded:
        if pod.abandoned and not pod.draining and pool.is_member(pod):
            yield pod, MoveReason.RESCHEDULE


def _overcommitted(pool: PoolState) -> Iterator[tuple[PodClaims, int]]:
    """The pods on which more is written than fits, each with its slots that are too many. What is
    only reserved pushes nobody out (I4).
    """
    for pod in pool.members():
        if pod.decided > pod.capacity and not pod.leaving:
            slots = pod.written_beside().get(SLOTS, 0) - pod.capacity
            if slots > 0:
                yield pod, slots


def _lighten(plan: MovePlan, pod: PodClaims, reason: MoveReason, slots: int) -> None:
    """Move up to ``slots`` off a pod, and beyond that at most the rest of one vreplica."""
    everything = slots >= pod.decided
    for vpod, count in _shares_on(plan, pod, slots, cheapest_first=everything):
        wanted = min(count, plan.budget, -(-slots // vpod.weight))
        if wanted <= 0:
            continue
        given, _ = plan.draft.place(vpod, pod, wanted)
        for ordinal, moved in given.items():
            slots -= moved * vpod.weight
            plan.record(vpod.key, pod, ordinal, moved, reason)


def _shares_on(
    plan: MovePlan, pod: PodClaims, slots: int, *, cheapest_first: bool
) -> list[tuple[VPod, int]]:
    """Movable vpods and their vreplicas there: the smallest shares first, or else those that
    free most slots with a move.
    """
    found = [
        (vpod, claim.decided.vreplicas)
        for key, claim in pod.claims.items()
        if claim.decided.vreplicas and (vpod := plan.movable(key)) is not None
    ]
    if cheapest_first:
        return sorted(found, key=lambda share: (share[1] * share[0].weight, share[0].key))
    # A vreplica heavier than ``slots`` frees more than is needed: such vpods come last, the
    # lightest first.
    return sorted(
        found,
        key=lambda share: (
            share[0].weight > slots,
            share[0].weight if share[0].weight > slots else -share[0].weight,
            share[0].key,
        ),
    )


def _balance(plan: MovePlan, goal: LoadGoal) -> None:
    balancing = Balancing(
        plan.pool,
        plan.draft,
        goal,
        emptying=plan.emptying,
        movable=plan.may_make_way,
    )
    for vpod, pod, ordinal in balancing.moves(plan.budget):
        plan.record(vpod.key, pod, ordinal, 1, MoveReason.LOAD)


class _Policy:
    """Moves to pods that the profile prefers, one vreplica at a time."""

    def __init__(self, plan: MovePlan, advice: Advice) -> None:
        self._plan = plan
        self._advice = advice
        self._swaps_left = SWAPS_TRIED_MAX

    def improve(self, key: str) -> None:
        """Plan what the profile prefers for one vpod."""
        plan, pool = self._plan, self._plan.pool
        vpod = plan.movable(key)
        if vpod is None or plan.limits.cooling(key):
            return
        if sum(plan.draft.placed(key).values()) > pool.decided_vreplicas(key):
            return  # it is given vreplicas: what suits it then may not suit it now (seed 260869562)
        made = [(move.from_pod, move.to_pod) for move in plan.moves if move.vpod == key]
        while plan.budget > 0:
            placed = plan.draft.placed(key)
            found = self._advice.better(pool, vpod, placed)
            if (
                found is None
                and not made
                and self._swaps_left > 0
                and not pool.profile.compares_pods
            ):
                self._swap(vpod)
            if (
                found is None
                or not self._may_go(placed, *found)
                or any(self._follows(found, earlier) for earlier in made)
            ):
                return
            source, target = found
            then = after(placed, source, target)
            ordinal = pool.pods[target].ordinal
            if self._advice.returns(key, then) or ordinal is None:
                return
            if pool.profile.compares_pods and {source, target} & self._changed():
                return  # what the profile has compared is about to change
            if not plan.draft.take(vpod, source, ordinal):
                return
            made.append(found)
            plan.record(key, pool.pods[source], ordinal, 1, MoveReason.POLICY)

    def _swap(self, vpod: VPod) -> None:
        """Plan the first move of a swap after which policy can move a vreplica of the vpod."""
        self._swaps_left -= 1
        plan, pool, draft = self._plan, self._plan.pool, self._plan.draft
        swap = find_swap(pool, draft, vpod, plan.open_pods(), plan.may_make_way)
        placed = draft.placed(vpod.key)
        if (
            swap is None
            or plan.budget < 2
            or not self._may_go(placed, swap.instead_of, swap.source.name)
            or self._advice.returns(swap.vpod.key, then(draft, swap, pool))
            or not draft.take(swap.vpod, swap.source.name, swap.to)
        ):
            return
        if swap.source.ordinal is not None:
            draft.promise(vpod, swap.source.ordinal, source=swap.instead_of)
        plan.record(swap.vpod.key, swap.source, swap.to, 1, MoveReason.MAKE_ROOM)

    def _may_go(self, placed: Placements, source: str, target: str) -> bool:
        """Whether there is such a share, no other reason moves it anyway, and the move ends no
        service.
        """
        pool = self._plan.pool
        pod = pool.pods.get(source)
        if pod is None or target not in pool.pods or source == target or not placed.get(source):
            return False
        emptying = pod.ordinal is not None and self._plan.is_emptied(pod.ordinal)
        return not emptying and not pod.leaving and not would_end_service(pod, pool.pods[target])

    def _follows(self, move: tuple[str, str], earlier: tuple[str, str]) -> bool:
        """Whether one move of a vpod needs an earlier one: it leaves a pod, node or zone that the
        earlier one reaches, or reaches one that it leaves. If the earlier one is not made, nothing
        says that this one is an improvement.
        """
        source, target = map(self._places, move)
        left, reached = map(self._places, earlier)
        return bool((source - target) & (reached - left) or (target - source) & (left - reached))

    def _places(self, pod: str) -> set[tuple[str, str]]:
        """The pod, its node and its zone."""
        node, zone = self._plan.pool.pods[pod].where
        return {("pod", pod), ("node", node), ("zone", zone)}

    def _changed(self) -> set[str]:
        """Names of the pods that moves of this plan leave or reach."""
        return {name for move in self._plan.moves for name in (move.from_pod, move.to_pod)}
