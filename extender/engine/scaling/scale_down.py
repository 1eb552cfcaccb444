"""Which pods a pool may lose, and when (DESIGN 5.4). Pure; the autoscaler acts on it.

A StatefulSet loses its highest ordinals first. Knative lowers the count, and then evicts what was
placed there. Here the order is the opposite:

1. *Close* the ordinals above the count that is enough, so that nothing new is placed there. The sum
   of slots does not tell which count is enough. What is placed above must fit below, one vreplica
   at a time and under the profile's zone rule, and what is served must fit on pods that are not
   down. Otherwise the evictor could never empty those pods, and they would stay closed and half
   empty for ever. Pods that the evictor can empty in a few periods by making room below are closed
   too (``rebalance.make_room``). Ordinals above maxPods are closed whether or not their load fits,
   since that is a person's order. So are those above the count of Knative's formulas, and those
   that others have announced to remove.
2. The evictor moves what is still on closed pods. It may not succeed with heavy vreplicas or a zone
   rule, if it moves in another order than was assumed here. Then the pods stay closed, and are
   opened when they are needed.
3. *Remove* the highest closed ordinals that hold nothing for any pool: no ledger, no status, no
   reservation, nothing that the previous incarnation carried, and no ledger that cannot be read.

Between a look at the state and the write of the count, nothing can be placed there, since the
ordinals are closed. What was decided before they were closed is reserved in the state, so such
ordinals do not count as empty.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Final

from extender.engine.pods.bits import bits
from extender.engine.pods.claims import PodClaims
from extender.engine.rebalance.compaction import can_empty
from extender.engine.rebalance.move_plan import Limits
from extender.engine.rebalance.movers import MOVES_MAX
from extender.engine.scaling.packing import Packing, ZonePacking, zone_rule
from extender.engine.scaling.size import ScalePlan, anyone, fewest, missing_vreplicas, plan_scale
from extender.engine.state.cluster_state import ClusterState
from extender.engine.state.pool_state import PoolState
from extender.model.objects import AdapterPool, StatefulSet, VPod

PERIODS: Final = 10
"""Periods in which the evictor should have emptied the pods that are closed only because it can
make room for what is on them.
"""


def ordinals_to_close(
    state: PoolState, plan: ScalePlan, allows: Callable[[VPod], bool] = anyone
) -> int:
    """Bit set of the ordinals that the pool can do without."""
    pool, stateful_set = state.adapter_pool, state.stateful_set
    if pool is None or stateful_set is None or plan.wanted >= stateful_set.replicas:
        return 0
    count = plan.wanted
    by_need = state.profile.rules.scale_by_need or state.tenant_room.crowded
    if by_need and not plan.cannot_grow:
        count = _enough(state, pool, stateful_set, plan.wanted, allows)
        count = _enough_with_room(state, pool, stateful_set, plan.wanted, count)
        # A pod without which the pool would grow again at once is not removed, so closing it would
        # only keep vreplicas off (simulation seed 208158874).
        count = lasting_count(state, count, allows)
    start = stateful_set.ordinals_start
    return _below(start + stateful_set.replicas) ^ _below(start + count)


def advised_count(
    state: PoolState, plan: ScalePlan, allows: Callable[[VPod], bool] = anyone
) -> int:
    """The pods that others should give to a pool that they size. It is lower than now only if what
    is placed above finds room below. With Knative's formulas it is their number, whatever is placed
    above, unless a tenant's ledgers are full.
    """
    pool, stateful_set, count = state.adapter_pool, state.stateful_set, plan.unlimited
    if pool is None or stateful_set is None:
        return count
    by_need = state.profile.rules.scale_by_need or state.tenant_room.crowded
    if count < stateful_set.replicas and by_need:
        count = lasting_count(state, _enough(state, pool, stateful_set, count, allows), allows)
    return count if pool.max_pods is None else min(count, pool.max_pods)


def still_closed(state: PoolState, plan: ScalePlan) -> int:
    """Those of the closed ordinals that exist and are not needed again."""
    if state.stateful_set is None:
        return 0
    start, replicas = state.stateful_set.ordinals_start, state.stateful_set.replicas
    low, high = start + min(plan.wanted, replicas), start + replicas
    return state.closed & (_below(high) ^ _below(low))


def count_without_empty(state: PoolState, pools: ClusterState) -> int:
    """The lowest count of pods such that all removed ordinals are closed and hold nothing, for this
    pool and all others of ``pools``.

    Another pool may have had the StatefulSet before. Or a vpod has changed to another pool, and its
    status still names the pod.
    """
    stateful_set = state.stateful_set
    if stateful_set is None:
        return 0
    count = stateful_set.replicas
    while count:
        ordinal = stateful_set.ordinals_start + count - 1
        pod = state.by_ordinal.get(ordinal)
        if not state.closed & 1 << ordinal or not (pod is None or holds_nothing(pod)):
            break
        elsewhere = pools.elsewhere(state.key, f"{stateful_set.name}-{ordinal}")
        if not all(holds_nothing(entry) for _, entry in elsewhere):
            break
        count -= 1
    return count


def removable(state: PoolState) -> int:
    """Bit set of the highest ordinals that hold nothing, closed or not: those that the previous
    leader may have removed.
    """
    stateful_set = state.stateful_set
    found = 0
    for ordinal in reversed(stateful_set.ordinals if stateful_set is not None else range(0)):
        pod = state.by_ordinal.get(ordinal)
        if pod is not None and not holds_nothing(pod):
            break
        found |= 1 << ordinal
    return found


def lasting_count(state: PoolState, count: int, allows: Callable[[VPod], bool] = anyone) -> int:
    """The lowest count, from ``count`` up to the present one, from which the pool would not grow
    again at once.

    What a pool needs depends on what it has (which pod is pending, which zone has room). A count
    that is wanted now may be too low once it is reached. If others size the pool, it is what they
    are advised.
    """
    replicas = state.stateful_set.replicas if state.stateful_set is not None else 0
    while count < replicas and (plan := plan_scale(state, allows, replicas=count)) is not None:
        needed = plan.unlimited if plan.external else plan.wanted
        if needed <= count:
            break
        count = min(replicas, needed)
    return count


def holds_nothing(pod: PodClaims) -> bool:
    """Whether the pod can go without any loss."""
    unreadable = pod.pod is not None and bool(pod.pod.ledger_error)
    expected_back = pod.last_ledger and not pod.last_ledger_settled
    return not (pod.claims or pod.held or expected_back or unreadable)


def waits_for_closed(
    state: PoolState, allows: Callable[[VPod], bool] = anyone, *, in_doubt: int = 0
) -> tuple[str, bool] | None:
    """The vpod without a place that has waited longest and has room on a closed pod, and whether it
    is certain that it needs this pod; None if there is no such vpod.

    After these come vpods on a pod that they must leave: a closed pod is better for them. It is
    certain if the open pods have no room for the vpod. If not, the vpod may just not have been
    decided yet, or the profile may refuse the room.

    ``in_doubt``: bit set of closed pods that cannot be opened now, even if they are not needed.
    """
    there = state.closed & ~(state.in_doubt | in_doubt) & state.schedulable
    there &= ~state.tenant_room.full(state.by_ordinal)
    closed = _most_free(state, there)
    if not closed:
        return None
    for key in chain(state.vpods_with_pending, _to_leave(state)):
        vpod = state.vpods.get(key)
        if vpod is not None and vpod.weight <= closed and allows(vpod):
            mine = state.open_to(there, key)
            limited = mine != there or vpod.per_vreplica or vpod.max_per_pod
            if limited and _most_free(state, mine, vpod) < vpod.weight:
                continue
            return key, _most_free(state, state.room_for(key), vpod) < vpod.weight
    return None


def _to_leave(state: PoolState) -> Iterator[str]:
    """Keys of vpods on pods that are draining, abandoned or condemned; maybe more than once."""
    for pod in state.pods.values():
        if pod.leaving:
            yield from (key for key, claim in pod.claims.items() if claim.decided.vreplicas)


def _most_free(state: PoolState, ordinals: int, vpod: VPod | None = None) -> int:
    """The most free slots on one of the pods; with a vpod, as far as it can use them."""
    free = state.free_of if vpod is None else state.free_for(vpod)
    return max((free(ordinal) for ordinal in bits(ordinals)), default=0)


def _below(ordinal: int) -> int:
    """Bit set of all ordinals below. Two of them cut out a range."""
    return (1 << ordinal) - 1


def _enough(
    state: PoolState,
    pool: AdapterPool,
    stateful_set: StatefulSet,
    wanted: int,
    allows: Callable[[VPod], bool],
) -> int:
    """The lowest count, from ``wanted`` up, at which what is placed above fits below.

    Vreplicas that wait for a place now must fit too, as far as they fit in the whole pool.
    """
    replicas = stateful_set.replicas
    unschedulable = _left_with(state, pool, stateful_set, replicas, allows)

    def fits(count: int) -> bool:
        left = _left_with(state, pool, stateful_set, count, allows)
        return left is not None and unschedulable is not None and left <= unschedulable

    if fits(wanted):
        return wanted
    return fewest(range(wanted + 1, replicas), fits)


def _enough_with_room(
    state: PoolState, pool: AdapterPool, stateful_set: StatefulSet, wanted: int, count: int
) -> int:
    """The lowest count, from ``wanted`` up to ``count``, at which the evictor can empty the pods
    above if it also makes room below, with the moves of ``PERIODS`` periods.

    While a vreplica waits for a place, moves make room for that first.
    """
    if not pool.moves_to_shrink or state.vpods_with_pending:
        return count
    limits = Limits(
        budget=pool.moves_per_period * PERIODS, at_once=min(MOVES_MAX, pool.moves_per_period)
    )
    start = stateful_set.ordinals_start
    high_end = _below(start + stateful_set.replicas)
    return fewest(
        range(wanted, count),
        lambda left: can_empty(state, high_end ^ _below(start + left), limits),
    )


def _left_with(
    state: PoolState,
    pool: AdapterPool,
    stateful_set: StatefulSet,
    count: int,
    allows: Callable[[VPod], bool],
) -> int | None:
    """Slots of waiting vreplicas that find no place on the lowest ``count`` pods; None if what is
    placed above does not fit there.
    """
    start = stateful_set.ordinals_start
    packing = _packing(state, pool, range(start, start + count))
    above = [
        pod
        for ordinal in range(start + count, start + stateful_set.replicas)
        if (pod := state.by_ordinal.get(ordinal)) is not None and not pod.leaving
    ]
    down = _down(state, range(start, start + count))
    # What is served is placed first, on pods that serve or are still to come.
    for pod in sorted(above, key=lambda pod: pod.down):
        packing.barred = 0 if pod.down else down
        if not _leaves(packing, pod, state.vpods):
            return None
    packing.barred = 0
    return sum(
        packing.add(vpod.key, missing, vpod.weight, vpod.per_vreplica, vpod.max_per_pod)
        * vpod.weight
        for vpod, missing in missing_vreplicas(state, pool, allows)
    )


def _down(state: PoolState, ordinals: range) -> int:
    """Bit set of the pods that are bound and down. The evictor moves nothing there that
    is served.
    """
    members = ((ordinal, state.by_ordinal.get(ordinal)) for ordinal in ordinals)
    return sum(
        1 << ordinal for ordinal, pod in members if pod is not None and pod.bound and pod.down
    )


def _packing(state: PoolState, pool: AdapterPool, ordinals: range) -> Packing:
    rule = zone_rule(state)
    if rule is None:
        return Packing(state, pool, ordinals, added_max=0)
    return ZonePacking(state, pool, ordinals, added_max=0, rule=rule)


def _leaves(packing: Packing, pod: PodClaims, vpods: Mapping[str, VPod]) -> bool:
    """Whether everything that the pod holds fits onto the remaining pods."""
    for key, claim in sorted(pod.claims.items()):
        share = claim.decided
        most = vpods[key].max_per_pod if key in vpods else 0
        packing.leave(key, pod, share.vreplicas)
        if share.vreplicas and packing.add(key, share.vreplicas, share.weight, share.amounts, most):
            return False
    return True
