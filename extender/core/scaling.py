"""How many pods a pool needs (DESIGN 5.4). Pure; the autoscaler acts on it.

The slots needed are what all vpods expect (raised targets counted) plus the slots that are lost on pods that cannot
take work: all of a pod being drained, and what is free on a pod whose node is cordoned or failing (what it holds
stays there and needs no second place). To that come pods for vreplicas that still have no place once all pending
pods are counted: heavy vreplicas do not fill a pod to the last slot.
"""

from dataclasses import dataclass

from extender.core.claims import PodState
from extender.core.model import AdapterPool
from extender.core.plan import round_robin
from extender.core.pool_state import PoolState


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


def plan_scale(state: PoolState) -> ScalePlan | None:
    """The number of pods the pool needs, up or down; None while pool or StatefulSet is unknown."""
    pool, stateful_set = state.pool, state.stateful_set
    if pool is None or stateful_set is None:
        return None
    expected = expected_slots(state)
    lost = sum(_lost_slots(pod) for pod in state.members() if pod.bound and not pod.schedulable)
    by_sum = -(-(expected + lost) // pool.slots_per_pod)
    extra = _pods_for_the_rest(state, pool, stateful_set.replicas)
    unlimited = max(by_sum, pool.min_pods, stateful_set.replicas + extra if extra else 0)
    limit = unlimited if pool.max_pods is None else min(unlimited, pool.max_pods)
    return ScalePlan(limit, unlimited, expected)


def expected_slots(state: PoolState) -> int:
    """Slots that all vpods of the pool want together; those that no pod could ever hold are left out."""
    pool = state.pool
    if pool is None:
        return 0
    return sum(
        max(vpod.vreplicas, pool.min_pods_per_vpod) * vpod.weight
        for vpod in state.vpods.values()
        if vpod.vreplicas and vpod.weight <= pool.slots_per_pod
    )


def _lost_slots(pod: PodState) -> int:
    return pod.capacity if pod.draining else max(0, pod.free)


def _pods_for_the_rest(state: PoolState, pool: AdapterPool, replicas: int) -> int:
    """Pods to add for what no pod, bound or still to come, has room for."""
    packing = _Packing(state, pool, replicas)
    for key in state.unplaced:
        vpod = state.vpods[key]
        missing = vpod.vreplicas - state.placed_vreplicas(key)
        if vpod.weight <= pool.slots_per_pod and not packing.add(missing, vpod.weight):
            break
    return packing.added


class _Packing:
    """The pool as it will be once all pending pods are there, and empty pods appended while something is left."""

    def __init__(self, state: PoolState, pool: AdapterPool, replicas: int) -> None:
        start = state.stateful_set.ordinals_start if state.stateful_set is not None else 0
        self._next = start + replicas
        self._slots = pool.slots_per_pod
        self._added_max = 10_000 if pool.max_pods is None else max(0, pool.max_pods - replicas) + 1
        self.added = 0
        self._free: dict[int, int] = {}
        for ordinal in range(start, start + replicas):
            pod = state.by_ordinal.get(ordinal)
            if pod is None:
                self._free[ordinal] = self._slots
            elif pod.schedulable or not (pod.bound or pod.draining):
                self._free[ordinal] = pod.free
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
