"""How many pods a pool needs (DESIGN 5.4). Pure; the autoscaler acts on it.

The slots needed are what all vpods expect (raised targets counted) plus the slots that are lost on
pods that cannot take work: all of a pod being drained or taken for lost, and what is free on a pod
whose node is cordoned or failing (what it holds stays there and needs no second place). To that
come pods for vreplicas that still have no place once all pending pods are counted: heavy vreplicas
do not fill a pod to the last slot.

Under a hard zone rule slots may be free, and still not usable: in a zone that already has its
share. Then pods are added for the zone that lacks them, and rounded up to a multiple of the zones
(Knative's factor), because a rule that spreads every vpod evenly uses zones of equal size best. It
must end, also where a zone has no machine left and every new pod lands in another one: pods still
pending count as the missing ones, and the rule never asks for more than one pod a zone above what a
zone has to hold at the most: its part of every vpod, rounded up (8 vreplicas in 3 zones: 3 in each,
since ties may all have fallen on the same one). What has no place then waits, with its reason.

A pool whose profile follows Knative's rules is sized by Knative's formulas instead
(``scaling_knative``).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from extender.engine.pods.claims import TENANT_ROOM_BYTES_MAX, PodClaims
from extender.engine.scaling.knative import knative_pods
from extender.engine.scaling.packing import Packing, ZonePacking, to_replace, zone_rule
from extender.engine.state.pool_state import PoolState
from extender.model.objects import AdapterPool, VPod

POOL_PODS_MAX: Final = 10_000
"""Pods of a pool without maxPods: a typing error in one vpod must not ask a cluster for millions.
"""


@dataclass(frozen=True, slots=True)
class ScalePlan:
    """``wanted`` pods; ``unlimited``: what it would be without maxPods; ``expected_slots`` behind
    it.

    ``homeless``: some vreplicas have no place even once all pods that are to come are there.
    """

    wanted: int
    unlimited: int
    expected_slots: int
    homeless: bool = False

    @property
    def limited(self) -> bool:
        """Whether maxPods holds the pool below what it needs."""
        return self.wanted < self.unlimited


def anyone(_vpod: VPod) -> bool:
    """Every vpod may use the pool."""
    return True


def plan_scale(
    state: PoolState, allows: Callable[[VPod], bool] = anyone, *, replicas: int | None = None
) -> ScalePlan | None:
    """The number of pods the pool needs, up or down; None while pool or StatefulSet is unknown.

    ``allows``: whether the pool selects a vpod's namespace; a pool does not grow for tenants that
    may not use it. ``replicas``: as if the StatefulSet had so many, fewer than it has and the ones
    above empty; None for as it is.
    """
    pool, stateful_set = state.adapter_pool, state.stateful_set
    if pool is None or stateful_set is None:
        return None
    expected = expected_slots(state, allows)
    homeless = False
    if state.profile.rules.scale_by_need:
        count = stateful_set.replicas if replicas is None else replicas
        unlimited, homeless = _by_need(state, pool, count, expected, allows)
        unlimited = min(unlimited, max(_sane(state, pool, expected), count))
    else:
        unlimited = knative_pods(state, allows)
        if state.shares.crowded:
            # Knative keeps no ledgers: its formulas know no pod that is full before its slots are
            # taken.
            count = stateful_set.replicas if replicas is None else replicas
            by_need, _ = _by_need(state, pool, count, expected, allows)
            unlimited = max(unlimited, min(by_need, max(_sane(state, pool, expected), count)))
        homeless = any(True for _ in missing_vreplicas(state, pool, allows))
    limit = min(unlimited, POOL_PODS_MAX if pool.max_pods is None else pool.max_pods)
    return ScalePlan(limit, unlimited, expected, homeless)


def _sane(state: PoolState, pool: AdapterPool, expected: int) -> int:
    """More pods than that are never needed, however many seem to be lost.

    First fit fills all pods but one by half, a zone rule may want one more in each zone, and each
    of them may have to be made up for once; so may each that has fewer slots than a new one would,
    from before slotsPerPod was raised, and each whose ledger has no bytes for a tenant that has
    filled it (what fills it is placed: lost pods do not add up to that). Where we take pods for
    lost that are not (our view of the nodes is behind), so would be those that replace them: a pool
    without maxPods would grow without end, ten times a second.
    """
    zones = len(state.hosting.known_in)
    useless = sum(
        1
        for pod in state.members()
        if pod.leaving
        or (pod.bound and pod.capacity < pool.slots_per_pod)
        or pod.ledger_bytes > TENANT_ROOM_BYTES_MAX
    )
    return 2 * (2 * -(-expected // pool.slots_per_pod) + 1 + zones) + useless + pool.min_pods


def expected_slots(state: PoolState, allows: Callable[[VPod], bool] = anyone) -> int:
    """Slots that all vpods of the pool want together.

    Of those that no pod could ever hold, nothing; of those that may not use the pool, what they
    have.
    """
    pool = state.adapter_pool
    if pool is None:
        return 0
    return sum(
        (
            _wanted(pool, vpod)
            if allows(vpod)
            else min(vpod.vreplicas, state.placed_vreplicas(vpod.key))
        )
        * vpod.weight
        for vpod in state.vpods.values()
        if vpod.weight <= pool.slots_per_pod
    )


def missing_vreplicas(
    state: PoolState, pool: AdapterPool, allows: Callable[[VPod], bool]
) -> Iterator[tuple[VPod, int]]:
    """(vpod, vreplicas that need a place), of those that can have one. What waits on a pod that it
    is to leave needs one, too.

    Every vpod is looked at, not only the unplaced: a raised target may be missing where all of
    spec.vreplicas is placed.
    """
    left = to_replace(state)
    for key, vpod in state.vpods.items():
        if not left and key not in state.unplaced and pool.min_pods_per_vpod <= vpod.vreplicas:
            continue  # nearly all of them, nearly always
        missing = _wanted(pool, vpod) - _placed_to_stay(state, key, left)
        if missing > 0 and not vpod.deleting and vpod.weight <= pool.slots_per_pod and allows(vpod):
            yield vpod, missing


def _wanted(pool: AdapterPool, vpod: VPod) -> int:
    return max(vpod.vreplicas, pool.min_pods_per_vpod) if vpod.vreplicas else 0


def _placed_to_stay(state: PoolState, vpod_key: str, left: frozenset[str]) -> int:
    return sum(
        claim.placed.vreplicas
        for name, claim in state.claims_of(vpod_key).items()
        if name not in left
    )


def _lost_slots(pod: PodClaims, left: frozenset[str]) -> int:
    if pod.name in left:
        return pod.capacity
    return 0 if pod.abandoned else max(0, pod.free)


def _by_need(
    state: PoolState,
    pool: AdapterPool,
    replicas: int,
    expected: int,
    allows: Callable[[VPod], bool],
) -> tuple[int, bool]:
    """Pods needed without maxPods, and whether something is without a place in those that are to
    come.
    """
    leaving = to_replace(state)
    ordinals = range(_start(state), _start(state) + replicas)
    lost = sum(
        _lost_slots(pod, leaving)
        for pod in state.members()
        if pod.bound and (not pod.schedulable or pod.ledger_full) and pod.ordinal in ordinals
    )
    floor = max(-(-(expected + lost) // pool.slots_per_pod), pool.min_pods)
    allowed = POOL_PODS_MAX if pool.max_pods is None else max(0, pool.max_pods - replicas)
    most = min(POOL_PODS_MAX, allowed) + 1  # at once: a pool that needs more is looked at again
    extra, left = _appended(state, pool, Packing(state, pool, ordinals, added_max=most), allows)
    needed = max(floor, replicas + extra if extra else 0)
    rule = zone_rule(state)
    if rule is None or left:
        return needed, bool(extra or left)
    zones = len(rule.zones)
    ceiling = _zone_ceiling(state, pool, zones, needed, allows)
    most = min(most, max(0, ceiling - replicas))
    packing = ZonePacking(state, pool, ordinals, added_max=most, rule=rule)
    extra, left = _appended(state, pool, packing, allows)
    if not extra:
        return needed, bool(left)
    return max(needed, min(ceiling, -(-(replicas + extra) // zones) * zones)), True


def _zone_ceiling(
    state: PoolState, pool: AdapterPool, zones: int, needed: int, allows: Callable[[VPod], bool]
) -> int:
    """Where a hard zone rule stops to ask for pods: one a zone more than its part of every vpod,
    rounded up, fills.
    """
    share = sum(
        -(-_wanted(pool, vpod) // zones) * vpod.weight
        for vpod in state.vpods.values()
        if vpod.weight <= pool.slots_per_pod and allows(vpod)
    )
    return zones * (max(-(-share // pool.slots_per_pod), -(-needed // zones)) + 1)


def _start(state: PoolState) -> int:
    return state.stateful_set.ordinals_start if state.stateful_set is not None else 0


def _appended(
    state: PoolState, pool: AdapterPool, packing: Packing, allows: Callable[[VPod], bool]
) -> tuple[int, bool]:
    """Pods to add for what no pod, bound or still to come, has room for; whether something is left
    all the same.
    """
    for vpod, missing in missing_vreplicas(state, pool, allows):
        if packing.add(vpod.key, missing, vpod.weight):
            return packing.added, True
    return packing.added, False
