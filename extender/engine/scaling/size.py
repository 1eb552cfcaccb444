"""How many pods a pool needs (DESIGN 5.4). Pure; the autoscaler acts on it.

The slots needed are what all vpods expect (with targets that minPodsPerVPod raises, and within
their tenants' limits), plus the
unusable slots of bound pods that cannot take work. If a pod's load needs another place
(``to_replace``: drained, condemned and most abandoned ones), all its slots are unusable. Of an
abandoned pod that is not replaced, none are. If a pod's node is cordoned or failing, or its ledger
is full, its free slots are; what it holds stays there and needs no second place. A rollout that
hands shares over needs the slots of its surge pods, for the pod that it replaces next. More pods
are added for vreplicas that have no place even on pods that are not bound yet, because heavy
vreplicas do not fill a pod to the last slot. A pool with further dimensions needs the pods of the
dimension that needs most.

Under a hard zone rule, free slots cannot be used in a zone that already has its share. Then pods
are added for the zone that lacks them. Often fewer are enough if they spread evenly over the zones,
as kube-scheduler and our prioritize spread them: then as many as that. (Knative rounds up to a
multiple of the zones, which costs one pod more in the mean.)

This growth must end, even if a zone has no machine left and every new pod lands in another zone.
So a pod that is still pending counts in the zone that lacks it. And there is a ceiling. A zone must
hold its part of every vpod, rounded up: 3 of 8 vreplicas in 3 zones, since ties may all have fallen
on the same zone. The rule asks for at most one pod in each zone beyond the pods that hold this.
What has no place then waits, with its reason.

A *gang* is a vpod that needs several vreplicas together (``minAvailable``). A pool that may not
have all pods that it needs gets none for a gang that would have no room even with all pods that it
may have: they would stay empty.

A pool whose profile follows Knative's rules is sized by Knative's formulas (``scaling.knative``).

A pool with ``scaling.mode: External`` has the pods that others give it, whatever it needs. If they
have announced that it will have fewer (``announcedReplicas``), it wants no more than these.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from extender.engine.pods.claims import TENANT_ROOM_BYTES_MAX, PodClaims
from extender.engine.scaling.knative import knative_pods
from extender.engine.scaling.packing import (
    Packing,
    ZonePacking,
    ZoneRule,
    to_replace,
    will_be_bound,
    zone_rule,
)
from extender.engine.scaling.rollout import is_under_way, replaced_next, surge_slots
from extender.engine.state.pool_state import PoolState
from extender.model.amounts import Amounts
from extender.model.counted import counted_are
from extender.model.objects import AdapterPool, VPod

GANGS_TRIED_MAX: Final = 16
"""A pool that may not have all pods that it needs looks at so many waiting gangs at a time."""
POOL_PODS_MAX: Final = 10_000
"""Pods of a pool without maxPods: a typing error in one vpod must not ask a cluster for
millions.
"""


@dataclass(frozen=True, slots=True)
class ScalePlan:
    """The pool needs ``wanted`` pods, and without a limit ``unlimited``. All vpods expect
    ``expected_slots``. ``needed``: as ``unlimited``, and for the gangs that ``most`` pods could not
    hold. The pool gets no pods for these.

    ``unschedulable``: some vreplicas have no place even once all coming pods are there.
    ``external``: others decide how many pods there are. ``most``: the pods that it may have.
    """

    wanted: int
    unlimited: int
    needed: int
    expected_slots: int
    unschedulable: bool = False
    external: bool = False
    most: int = POOL_PODS_MAX

    @property
    def limited(self) -> bool:
        """Whether maxPods, or the limit of any pool, keeps the pool smaller than it needs."""
        return self.wanted < self.unlimited

    @property
    def cannot_grow(self) -> bool:
        """Whether no pods come for what waits."""
        return self.limited or self.external

    @property
    def falls_short(self) -> bool:
        """Whether the pool is limited, or some gangs have no room even with all pods that it may
        have.
        """
        return self.wanted < self.needed

    @property
    def limit_text(self) -> str:
        """What keeps a pool that falls short from the pods that it needs."""
        if self.external:
            return (
                f"{counted_are(self.unlimited, 'pod')} needed, and others leave it {self.wanted} "
                f"(spec.scaling.mode is External)"
            )
        limit = "no pool may have more than" if self.most == POOL_PODS_MAX else "maxPods allows"
        return f"{counted_are(self.needed, 'pod')} needed, and {limit} {self.most}"


def anyone(_vpod: VPod) -> bool:
    """Every vpod may use the pool."""
    return True


def plan_scale(
    state: PoolState, allows: Callable[[VPod], bool] = anyone, *, replicas: int | None = None
) -> ScalePlan | None:
    """The number of pods that the pool needs; None while the pool or its StatefulSet is unknown.

    ``allows``: whether the pool selects a vpod's namespace. A pool does not grow for tenants that
    may not use it. ``replicas``: plan as if the StatefulSet had only that many pods, and those
    above were empty; None: as it is.
    """
    pool, stateful_set = state.adapter_pool, state.stateful_set
    if pool is None or stateful_set is None:
        return None
    expected = expected_slots(state, allows)
    count = stateful_set.replicas if replicas is None else replicas
    most = POOL_PODS_MAX if pool.max_pods is None else pool.max_pods
    if state.profile.rules.scale_by_need:
        needed, unschedulable = _pods_by_need(state, pool, count, expected, allows)
        unlimited = needed
        gangs = most < unlimited and not pool.is_sized_by_others
        if gangs and (hopeless := _gangs_without_room(state, pool, most, allows)):
            unlimited, unschedulable = _pods_without(hopeless, state, pool, count, allows)
    else:
        needed = knative_pods(state, allows)
        if state.tenant_room.crowded:
            # Knative keeps no ledgers. Its formulas do not know that a pod can be full before its
            # slots are taken.
            needed = max(needed, _pods_by_need(state, pool, count, expected, allows)[0])
        unlimited = needed
        unschedulable = any(True for _ in missing_vreplicas(state, pool, allows))
    if pool.is_sized_by_others:
        announced = pool.scaling.announced_replicas
        limit = count if announced is None else min(count, announced)
        return ScalePlan(limit, unlimited, needed, expected, unschedulable, external=True)
    wanted = min(unlimited, most)
    return ScalePlan(wanted, unlimited, needed, expected, unschedulable, most=most)


def _pods_by_need(
    state: PoolState,
    pool: AdapterPool,
    replicas: int,
    expected: int,
    allows: Callable[[VPod], bool],
) -> tuple[int, bool]:
    """As ``_by_need``, within what can be needed (``_most_needed``)."""
    needed, unschedulable = _by_need(state, pool, replicas, expected, allows)
    if needed <= replicas:
        return needed, unschedulable
    return min(needed, max(_most_needed(state, pool, expected, allows), replicas)), unschedulable


def _pods_without(
    left_out: frozenset[str],
    state: PoolState,
    pool: AdapterPool,
    replicas: int,
    allows: Callable[[VPod], bool],
) -> tuple[int, bool]:
    """As ``_pods_by_need``, with no pods for some vpods."""

    def others(vpod: VPod) -> bool:
        return vpod.key not in left_out and allows(vpod)

    return _pods_by_need(state, pool, replicas, expected_slots(state, others), others)


def _gangs_without_room(
    state: PoolState, pool: AdapterPool, pods: int, allows: Callable[[VPod], bool]
) -> frozenset[str]:
    """Keys of the *gangs* (vpods that need several vreplicas together, ``VPod.least``) that wait
    and would find no room for these on ``pods`` pods, beside what is placed and smaller gangs.
    """
    together = {
        vpod.key: vpod.least
        for vpod, _ in missing_vreplicas(state, pool, allows)
        if state.comes_as_a_whole(vpod)
    }
    ordinals, rule = range(_start(state), _start(state) + pods), zone_rule(state)

    def fit(keys: Iterable[str]) -> bool:
        packing = (
            _evenly(state, pool, ordinals, rule)
            if rule is not None
            else Packing(state, pool, ordinals, added_max=0)
        )
        vpods = state.vpods
        return not any(_add(packing, vpods[key], together[key]) for key in keys)

    fitting: list[str] = []
    smallest = sorted(together, key=lambda key: (together[key] * state.vpods[key].weight, key))
    for key in smallest[:GANGS_TRIED_MAX]:
        if fit([*fitting, key]):
            fitting.append(key)
    return frozenset(together.keys() - set(fitting))


def _most_needed(
    state: PoolState, pool: AdapterPool, expected: int, allows: Callable[[VPod], bool]
) -> int:
    """An upper limit of the pods that can be needed, however many seem to have failed.

    First fit fills all pods but one at least by half, if slots and dimensions count together: what
    opens a new pod fits into no other, because of one of them. A zone rule may want one more in
    each zone, and a vpod with ``maxPerPod`` as many as it needs for itself. Each of these may be
    unusable, and need one replacement. So may each pod that is draining, abandoned or condemned,
    has fewer slots than a new one (slotsPerPod was raised), or has no bytes left in its ledger for
    a tenant. The last kind does not grow with the pods that seem to fail, since what fills a ledger
    is placed.

    The limit is for the case that our view of the nodes is behind. Then healthy pods seem to fail,
    and so would those that replace them. A pool without maxPods would grow without end, ten times a
    second.
    """
    zones = len(state.hosting.known_in)
    useless = sum(
        1
        for pod in state.members()
        if pod.leaving
        or (pod.bound and pod.capacity < pool.slots_per_pod)
        or pod.ledger_bytes > TENANT_ROOM_BYTES_MAX
    )
    full = -(-expected // pool.slots_per_pod) + sum(
        -(-total // most) for most, total in _expected_amounts(state, pool, allows)
    )
    apart = max(
        (
            -(-count // vpod.max_per_pod)
            for vpod, count in _expected_vreplicas(state, pool, allows)
            if vpod.max_per_pod
        ),
        default=0,
    )
    return 2 * (2 * full + 1 + zones + apart) + useless + pool.min_pods


def expected_slots(state: PoolState, allows: Callable[[VPod], bool] = anyone) -> int:
    """Slots that all vpods of the pool want together.

    Vpods that no pod could ever hold count nothing. Vpods that may not use the pool, or are being
    deleted, count what they have.
    """
    pool = state.adapter_pool
    if pool is None:
        return 0
    return sum(count * vpod.weight for vpod, count in _expected_vreplicas(state, pool, allows))


def _expected_vreplicas(
    state: PoolState, pool: AdapterPool, allows: Callable[[VPod], bool]
) -> Iterator[tuple[VPod, int]]:
    for vpod in state.vpods.values():
        if pool.could_hold(vpod):
            yield (
                vpod,
                _wanted(pool, vpod)
                if allows(vpod) and not vpod.deleting
                else min(vpod.vreplicas, state.decided_vreplicas(vpod.key)),
            )


def _expected_amounts(
    state: PoolState, pool: AdapterPool, allows: Callable[[VPod], bool]
) -> list[tuple[int, int]]:
    """For each dimension of the pool: what a pod has, and what all vpods want together."""
    if not pool.capacities:
        return []
    totals: Counter[str] = Counter()
    for vpod, count in _expected_vreplicas(state, pool, allows):
        for name, amount in vpod.per_vreplica:
            totals[name] += amount * count
    return [(most, totals[name]) for name, most in pool.capacities]


def missing_vreplicas(
    state: PoolState,
    pool: AdapterPool,
    allows: Callable[[VPod], bool],
    going: frozenset[str] = frozenset(),
    above: frozenset[str] = frozenset(),
) -> Iterator[tuple[VPod, int]]:
    """(vpod, vreplicas that need a place), for vpods that can have one. Vreplicas on a pod that
    they must leave need one too, and those on pods of ``going``.

    ``above``: pods without which the pool is planned. A vpod with ``maxPerPod`` also needs a place
    for what it has there: the slots that are free below do not tell whether it fits (seed
    600000376).

    Every vpod is looked at, not only ``vpods_with_pending``: a raised target may be missing
    although all of spec.vreplicas is placed.
    """
    left = to_replace(state) | going
    left_or_above = left | above
    for key, vpod in state.vpods.items():
        gone = left_or_above if vpod.max_per_pod else left
        if (
            not gone
            and key not in state.vpods_with_pending
            and pool.min_pods_per_vpod <= vpod.vreplicas
            and vpod.not_admitted is None
        ):
            continue  # as for almost every vpod
        missing = _wanted(pool, vpod) - _placed_to_stay(state, key, gone)
        if missing > 0 and not vpod.deleting and pool.could_hold(vpod) and allows(vpod):
            yield vpod, missing


def waiting_without_growth(
    state: PoolState, allows: Callable[[VPod], bool], plan: ScalePlan
) -> list[str]:
    """Keys of the vpods without a place for which the evictor may make room, the heaviest first.
    Empty while the pool grows for them, unless its owner wants room to be made first
    (rebalance.makeRoomBeforeGrowing).
    """
    pool, stateful_set = state.adapter_pool, state.stateful_set
    if pool is None or stateful_set is None:
        return []
    if plan.wanted > stateful_set.replicas and not pool.make_room_before_growing:
        return []
    waiting = [
        vpod for key in state.vpods_with_pending if (vpod := state.vpods.get(key)) and allows(vpod)
    ]
    return [vpod.key for vpod in sorted(waiting, key=lambda vpod: -vpod.weight)]


def awaits_pods(state: PoolState, plan: ScalePlan) -> bool:
    """Whether pods of the pool are on their way, and with them the pool has all that it needs."""
    stateful_set = state.stateful_set
    if stateful_set is None or plan.unlimited > stateful_set.replicas:
        return False
    known = (state.by_ordinal.get(ordinal) for ordinal in stateful_set.ordinals)
    return any(pod is None or will_be_bound(pod) for pod in known)


def _wanted(pool: AdapterPool, vpod: VPod) -> int:
    if vpod.not_admitted is not None:
        return vpod.sized_for
    return max(vpod.vreplicas, pool.min_pods_per_vpod) if vpod.vreplicas else 0


def _placed_to_stay(state: PoolState, vpod_key: str, left: frozenset[str]) -> int:
    return sum(
        claim.decided.vreplicas
        for name, claim in state.claims_of(vpod_key).items()
        if name not in left
    )


def _unusable_slots(pod: PodClaims, left: frozenset[str]) -> int:
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
    """Pods needed without maxPods, and whether something has no place on the present and coming
    pods.
    """
    leaving = to_replace(state)
    ordinals = range(_start(state), _start(state) + replicas)
    unusable = sum(
        _unusable_slots(pod, leaving)
        for pod in state.members()
        if pod.bound
        and not will_be_bound(pod)
        and (not pod.schedulable or pod.ledger_full)
        and pod.ordinal in ordinals
    )
    if is_under_way(state):
        unusable += surge_slots(state, pool)
    floor = max(-(-(expected + unusable) // pool.slots_per_pod), pool.min_pods)
    # Of the dimensions, nothing is counted as unusable here: the packing below sees it.
    for most, total in _expected_amounts(state, pool, allows):
        floor = max(floor, -(-total // most))
    allowed = POOL_PODS_MAX if pool.max_pods is None else max(0, pool.max_pods - replicas)
    most = min(POOL_PODS_MAX, allowed) + 1  # a pool that needs more is sized again with these
    going = replaced_next(state)
    packing = Packing(state, pool, ordinals, added_max=most, going=going)
    extra, left = _appended(state, pool, packing, allows)
    needed = max(floor, replicas + extra if extra else 0)
    rule = zone_rule(state)
    if rule is None or left:
        return needed, bool(extra or left)
    zones = len(rule.zones)
    ceiling = _zone_ceiling(state, pool, zones, needed, allows)
    most = min(most, max(0, ceiling - replicas))
    packing = ZonePacking(state, pool, ordinals, added_max=most, rule=rule, going=going)
    extra, left = _appended(state, pool, packing, allows)
    if not extra:
        return needed, bool(left)
    enough = min(ceiling, replicas + extra)
    if left:
        return max(needed, enough), True
    return _fewest_in_zones(state, pool, rule, range(max(needed, replicas), enough), allows), True


def _fewest_in_zones(
    state: PoolState,
    pool: AdapterPool,
    rule: ZoneRule,
    counts: range,
    allows: Callable[[VPod], bool],
) -> int:
    """The lowest of ``counts`` at which all finds a place if the pods to come spread evenly over
    the zones; ``counts.stop``, which is enough, if none is.

    ``ZonePacking`` adds pods as each vpod in turn needs them. Often fewer would do for all.
    """

    def fits(count: int) -> bool:
        ordinals = range(_start(state), _start(state) + count)
        packing = _evenly(state, pool, ordinals, rule, replaced_next(state))
        return not _appended(state, pool, packing, allows)[1]

    return fewest(counts, fits)


def _evenly(
    state: PoolState,
    pool: AdapterPool,
    ordinals: range,
    rule: ZoneRule,
    going: frozenset[str] = frozenset(),
) -> ZonePacking:
    """Room on these ordinals alone. Pods that have no zone yet spread evenly over the zones."""
    packing = ZonePacking(state, pool, ordinals, added_max=0, rule=rule, going=going)
    packing.stand_evenly()
    return packing


def fewest(counts: range, is_enough: Callable[[int], bool]) -> int:
    """The lowest of ``counts`` that is enough, by bisection; ``counts.stop``, which is known to be
    enough, if none is.
    """
    low, high = counts.start - 1, counts.stop  # low is too few, high is enough
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def _zone_ceiling(
    state: PoolState, pool: AdapterPool, zones: int, needed: int, allows: Callable[[VPod], bool]
) -> int:
    """The number of pods at which a hard zone rule asks for no more: in each zone, one more than
    hold its part of every vpod, rounded up. Vreplicas of one size share pods there, since heavy
    ones do not fill a pod to its last slot.
    """
    parts: Counter[tuple[int, Amounts]] = Counter()
    apart = 0  # pods that a vpod needs because of its maxPerPod
    for vpod in state.vpods.values():
        if pool.could_hold(vpod) and allows(vpod) and not vpod.deleting:
            part = -(-_wanted(pool, vpod) // zones)
            parts[vpod.weight, vpod.per_vreplica] += part
            if vpod.max_per_pod:
                apart = max(apart, -(-part // vpod.max_per_pod))
    capacities = dict(pool.capacities)
    share = 0
    for (weight, amounts), count in parts.items():
        on_a_pod = [capacities[name] // amount for name, amount in amounts]
        share += -(-count // min([pool.slots_per_pod // weight, *on_a_pod]))
    return zones * (max(share + apart, -(-needed // zones)) + 1)


def _start(state: PoolState) -> int:
    return state.stateful_set.ordinals_start if state.stateful_set is not None else 0


def _appended(
    state: PoolState, pool: AdapterPool, packing: Packing, allows: Callable[[VPod], bool]
) -> tuple[int, bool]:
    """Pods to add for what no bound or coming pod has room for, and whether something is left even
    then.
    """
    # The heaviest first, as placing takes them: light ones fit into what is left.
    waiting = sorted(
        missing_vreplicas(state, pool, allows, packing.going, packing.above),
        key=lambda item: (-item[0].weight, -item[1]),
    )
    for vpod, missing in waiting:
        if _add(packing, vpod, missing):
            return packing.added, True
    return packing.added, False


def _add(packing: Packing, vpod: VPod, vreplicas: int) -> int:
    """Pack so many of a vpod's vreplicas. Return how many found no place."""
    return packing.add(vpod.key, vreplicas, vpod.weight, vpod.per_vreplica, vpod.max_per_pod)
