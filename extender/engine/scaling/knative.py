"""Knative's own formulas for the size of a pool, for profiles that follow its rules. Pure.

*Without plugins* (today's Knative): ceil(sum of vreplicas / capacity), at least minReplicas.
Nothing else counts: no pending pods, no pods that cannot take work, no raised targets.

*With plugins* (up to 1.16): one pod more than the highest ordinal that is schedulable or has a
placement. While vreplicas are pending, also as many pods as they fill, rounded up to a multiple of
the factor. The factor is the number of zones if AvailabilityZonePriority scores, and of nodes if
AvailabilityNodePriority does. With the filter EvenPodSpread, a new pod counts as no larger than the
least room left on another. Free room is not subtracted, and such a pool never shrinks below its
highest schedulable pod.

There are two deliberate differences. If no node takes work, Knative's factor is 0, its division
gives no number, and pods are removed; here the factor is 1. Knative removes pods that still hold
placements; here the autoscaler empties them first, whatever the formula.
"""

from collections.abc import Callable, Collection

from extender.engine.state.collector import collect
from extender.engine.state.pool_state import PoolState
from extender.model.objects import AdapterPool, VPod


def knative_pods(state: PoolState, allows: Callable[[VPod], bool]) -> int:
    """The number of pods by the formula for the pool's profile, without maxPods."""
    pool = state.adapter_pool
    if pool is None:
        return 0
    vpods = [vpod for vpod in state.vpods.values() if pool.could_hold(vpod) and allows(vpod)]
    profile = state.profile
    if not profile.has_plugins:
        return pods_by_sum(pool, vpods)
    filters = {plugin.name for plugin in profile.filters}
    scores = {scored.plugin.name for scored in profile.scores}
    return max(pool.min_pods, pods_by_policy(state, pool, vpods, filters=filters, scores=scores))


def pods_by_sum(pool: AdapterPool, vpods: Collection[VPod]) -> int:
    """The formula of today's Knative."""
    slots = sum(vpod.sized_for * vpod.weight for vpod in vpods)
    return max(-(-slots // pool.slots_per_pod), pool.min_pods)


def pods_by_policy(
    state: PoolState,
    pool: AdapterPool,
    vpods: Collection[VPod],
    *,
    filters: Collection[str],
    scores: Collection[str],
) -> int:
    """The formula up to Knative 1.16. ``filters``, ``scores``: names of the plugins in use."""
    found = collect(state)
    start = state.stateful_set.ordinals_start if state.stateful_set is not None else 0
    pods = max(0, found.last_ordinal + 1 - start)  # Knative's first ordinal is 0
    pending = sum(
        max(0, vpod.sized_for - state.decided_vreplicas(vpod.key)) * vpod.weight for vpod in vpods
    )
    if not pending:
        return pods
    divisor = pool.slots_per_pod
    if "EvenPodSpread" in filters:
        divisor = min((free for free in found.free_list() if 0 < free < divisor), default=divisor)
    factor = scale_factor(state, scores)
    return pods + -(-pending // divisor // factor) * factor


def scale_factor(state: PoolState, scores: Collection[str]) -> int:
    """Pods are added in multiples of this: the number of nodes or else of zones, if a score uses
    them; at least 1.
    """
    topology = state.topology
    if "AvailabilityNodePriority" in scores:
        return max(1, len(topology.zone_of))
    if "AvailabilityZonePriority" in scores:
        return max(1, len(topology.nodes_in))
    return 1
