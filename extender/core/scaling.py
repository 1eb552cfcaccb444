"""How many pods a pool needs (DESIGN 5.4). Pure; the autoscaler acts on it.

The slots needed are what all vpods expect (raised targets counted) plus the slots that are lost on pods that cannot
take work: all of a pod being drained, and what is free on a pod whose node is cordoned or failing (what it holds
stays there and needs no second place). To that come pods for vreplicas that still have no place once all pending
pods are counted: heavy vreplicas do not fill a pod to the last slot.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from extender.core.claims import PodState
from extender.core.model import AdapterPool, VPod
from extender.core.plan import round_robin
from extender.core.pool_state import PoolState

POOL_PODS_MAX: Final = 10_000
"""Pods of a pool without maxPods: a typing error in one vpod must not ask a cluster for millions."""


@dataclass(frozen=True, slots=True)
class ScalePlan:
    """``wanted`` pods; ``unlimited``: what it would be without maxPods; ``expected_slots`` behind it."""

    wanted: int
    unlimited: int
    expected_slots: int

    @property
    def limited(self) -> bool:
        """Whether maxPods holds the pool below what it needs."""
        return self.wanted < self.unlimited


def anyone(_vpod: VPod) -> bool:
    """Every vpod may use the pool."""
    return True


def plan_scale(state: PoolState, allows: Callable[[VPod], bool] = anyone) -> ScalePlan | None:
    """The number of pods the pool needs, up or down; None while pool or StatefulSet is unknown.

    ``allows``: whether the pool selects a vpod's namespace; a pool does not grow for tenants that may not use it.
    """
    pool, stateful_set = state.pool, state.stateful_set
    if pool is None or stateful_set is None:
        return None
    expected = expected_slots(state, allows)
    lost = sum(_lost_slots(pod) for pod in state.members() if pod.bound and not pod.schedulable)
    by_sum = -(-(expected + lost) // pool.slots_per_pod)
    extra = _pods_for_the_rest(state, pool, stateful_set.replicas, allows)
    unlimited = max(by_sum, pool.min_pods, stateful_set.replicas + extra if extra else 0)
    limit = min(unlimited, POOL_PODS_MAX if pool.max_pods is None else pool.max_pods)
    return ScalePlan(limit, unlimited, expected)


def expected_slots(state: PoolState, allows: Callable[[VPod], bool] = anyone) -> int:
    """Slots that all vpods of the pool want together.

    Of those that no pod could ever hold, nothing; of those that may not use the pool, what they have.
    """
    pool = state.pool
    if pool is None:
        return 0
    return sum(
        (_wanted(pool, vpod) if allows(vpod) else min(vpod.vreplicas, state.placed_vreplicas(vpod.key)))
        * vpod.weight
        for vpod in state.vpods.values()
        if vpod.weight <= pool.slots_per_pod
    )


def _wanted(pool: AdapterPool, vpod: VPod) -> int:
    return max(vpod.vreplicas, pool.min_pods_per_vpod) if vpod.vreplicas else 0


def _lost_slots(pod: PodState) -> int:
    return pod.capacity if pod.draining else max(0, pod.free)


def _placed_to_stay(state: PoolState, vpod_key: str) -> int:
    return sum(
        claim.placed.vreplicas
        for name, claim in state.claims_of(vpod_key).items()
        if not state.pods[name].draining
    )


def _pods_for_the_rest(
    state: PoolState, pool: AdapterPool, replicas: int, allows: Callable[[VPod], bool]
) -> int:
    """Pods to add for what no pod, bound or still to come, has room for. What waits on a draining pod needs room, too."""
    packing = _Packing(state, pool, replicas)
    # Every vpod, not only the unplaced: a raised target may be missing where all of spec.vreplicas is placed.
    for key, vpod in state.vpods.items():
        missing = _wanted(pool, vpod) - _placed_to_stay(state, key)
        if missing <= 0 or vpod.deleting or vpod.weight > pool.slots_per_pod or not allows(vpod):
            continue
        if not packing.add(missing, vpod.weight):
            break
    return packing.added


class _Packing:
    """The pool as it will be once all pending pods are there, and empty pods appended while something is left."""

    def __init__(self, state: PoolState, pool: AdapterPool, replicas: int) -> None:
        start = state.stateful_set.ordinals_start if state.stateful_set is not None else 0
        self._next = start + replicas
        self._slots = pool.slots_per_pod
        self._added_max = POOL_PODS_MAX if pool.max_pods is None else max(0, pool.max_pods - replicas) + 1
        self.added = 0
        self._free: dict[int, int] = {}
        for ordinal in range(start, start + replicas):
            pod = state.by_ordinal.get(ordinal)
            if pod is None:
                self._free[ordinal] = self._slots
            elif pod.schedulable or not (pod.bound or pod.draining):
                # As decided, not as held: what another vpod is giving up right now needs no new pod.
                self._free[ordinal] = pod.capacity - pod.placed
        self._room = sum(1 << ordinal for ordinal, slots in self._free.items() if slots > 0)

    def add(self, missing: int, weight: int) -> bool:
        """Pack ``missing`` vreplicas; False once the pool may not grow any further."""
        while True:
            given, missing = round_robin(self._room, 0, self._free.__getitem__, missing, weight)
            for ordinal, count in given.items():
                self._free[ordinal] -= count * weight
                if self._free[ordinal] <= 0:
                    self._room &= ~(1 << ordinal)
            if not missing:
                return True
            if self.added >= self._added_max:
                return False
            self._free[self._next] = self._slots
            self._room |= 1 << self._next
            self._next += 1
            self.added += 1
