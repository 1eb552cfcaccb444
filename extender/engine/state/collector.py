"""The state collector: a summary of one pool, or of one vpod in it, for people and policies
(Knative's State).

The collector reads ``PoolState`` when somebody asks, and keeps nothing. ``collect`` takes time in
proportion to the pool's pods and vpods, ``collect_vpod`` to the vpod's placements. Placing calls
neither. Knative's fields, and where they are here:

- freeCap: ``CollectedPool.free_slots`` by ordinal. An ordinal that it lacks has all of
  ``capacity``.
- schedulablePods: ``schedulable_pods``, ascending ordinals.
- lastOrdinal: ``last_ordinal``, the highest that is schedulable or named by a placement; -1 for
  none.
- capacity, replicas: the same; replicas of the StatefulSet's spec.
- numZones, numNodes, nodeToZoneMap: ``zone_of``, the nodes that take work, with their zones.
- podSpread, nodeSpread, zoneSpread: ``CollectedVPod.pod_spread`` and so on, vreplicas on
  schedulable pods. A placement of 0 in a status or a reservation is an entry of 0.
- pending: ``CollectedVPod.pending``, wanted and not published yet.
- expectedVReplicaByVPod: ``CollectedVPod.expected``.
- reserved: ``CollectedVPod.reserved``, decided and not yet seen committed.

Two fields have no counterpart in Knative. ``unschedulable`` says why each pod that takes no new
work does not (annotated with our or Knative's annotation, pending, on a node that is cordoned, not
Ready or unreachable, and so on). ``CollectedVPod.elsewhere`` is what a vpod still has on such pods.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from extender.engine.pods.bits import bits
from extender.engine.pods.claims import PodClaims
from extender.engine.state.pool_state import PoolState
from extender.model.objects import ordinal_of, placement_order

ABANDONED = "not Ready for too long"
"""Why a pod is not schedulable if it was not Ready for rescheduleAfterSeconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedPool:
    """A pool at one moment. ``free_slots`` and ``capacity`` are in slots."""

    key: str
    stateful_set: str
    """Name, "" while the pool is not known."""
    replicas: int
    capacity: int
    """Slots of a pod with nothing on it."""
    free_slots: Mapping[int, int]
    """Ordinal -> free slots, negative if overcommitted. Ordinals that are gone and still named are
    included.
    """
    schedulable_pods: tuple[int, ...]
    last_ordinal: int
    unschedulable: Mapping[str, str]
    """Pod name -> why it takes no new vreplicas, by ordinal, for pods that exist or have
    placements.
    """
    missing_pods: int
    """Ordinals of the StatefulSet that have no pod."""
    zone_of: Mapping[str, str]
    """Node -> zone, for all nodes of the cluster that take work."""

    @property
    def free_capacity(self) -> int:
        """Free slots over the schedulable pods. Overcommitted pods are subtracted, as
        in Knative.
        """
        return sum(self.free_slots.get(ordinal, self.capacity) for ordinal in self.schedulable_pods)

    def free_list(self) -> list[int]:
        """Knative's freeCap: free slots by ordinal, 0 to ``last_ordinal``."""
        return [
            self.free_slots.get(ordinal, self.capacity) for ordinal in range(self.last_ordinal + 1)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedVPod:
    """One vpod of a pool; all counts are vreplicas."""

    key: str
    expected: int
    pending: int
    pod_spread: Mapping[str, int]
    node_spread: Mapping[str, int]
    zone_spread: Mapping[str, int]
    elsewhere: Mapping[str, int]
    """Pod name -> vreplicas on pods that take no new ones."""
    reserved: Mapping[str, int]
    """Pod name -> decided vreplicas, if the status does not say so yet."""


def why_unschedulable(pool: PoolState, pod: PodClaims) -> str:
    """Why a pod of the pool takes no new vreplicas, in a few words; "" if it does."""
    why = pod.why_unschedulable()
    if not why and not pool.is_member(pod):
        why = why_no_member(pool)
    return why or (ABANDONED if pod.name in pool.abandoned else "")


def why_no_member(pool: PoolState) -> str:
    """Why a pod that is no member of the pool takes nothing."""
    if pool.adapter_pool is None:
        return "its AdapterPool does not exist"
    return "ordinal is gone" if pool.stateful_set is not None else "its StatefulSet does not exist"


def collect(pool: PoolState) -> CollectedPool:
    """Summarise one pool."""
    stateful_set = pool.stateful_set
    named = [pod for pod in pool.by_ordinal.values() if pod.pod is not None or pod.claims]
    ordinals = stateful_set.ordinals if stateful_set is not None else range(0)
    there = sum(1 for pod in named if pod.pod is not None and pod.ordinal in ordinals)
    return CollectedPool(
        key=pool.key,
        stateful_set=pool.adapter_pool.stateful_set if pool.adapter_pool is not None else "",
        replicas=len(ordinals),
        capacity=pool.adapter_pool.slots_per_pod if pool.adapter_pool is not None else 0,
        free_slots={pod.ordinal: pod.free for pod in named if pod.ordinal is not None},
        schedulable_pods=tuple(bits(pool.schedulable)),
        last_ordinal=max(pool.schedulable.bit_length() - 1, _highest_named(pool)),
        unschedulable={
            pod.name: why
            for pod in sorted(pool.pods.values(), key=lambda pod: placement_order(pod.name))
            if (pod.pod is not None or pod.claims) and (why := why_unschedulable(pool, pod))
        },
        missing_pods=len(ordinals) - there,
        zone_of=dict(pool.topology.zone_of),
    )


def collect_vpod(pool: PoolState, key: str) -> CollectedVPod:
    """Summarise one vpod of a pool. Raises KeyError where the pool has no such vpod."""
    vpod, claims = pool.vpods[key], pool.claims_of(key)
    pods: dict[str, int] = {}
    nodes: Counter[str] = Counter()
    zones: Counter[str] = Counter()
    elsewhere: dict[str, int] = {}
    for name in sorted({*claims, *vpod.placements}, key=placement_order):
        count = claims[name].decided.vreplicas if name in claims else 0
        pod = pool.pods.get(name)
        if pod is None or not pod.schedulable:
            if count:
                elsewhere[name] = count
            continue
        pods[name] = count
        if pod.node is not None:
            nodes[pod.node.name] += count
            zones[pod.node.zone] += count
    return CollectedVPod(
        key=key,
        expected=vpod.vreplicas,
        pending=max(0, vpod.vreplicas - sum(vpod.placements.values())),
        pod_spread=pods,
        node_spread=dict(sorted(nodes.items())),
        zone_spread=dict(sorted(zones.items())),
        elsewhere=elsewhere,
        reserved=reserved_of(pool, key),
    )


def reserved_of(pool: PoolState, key: str) -> dict[str, int]:
    """Pod name -> vreplicas reserved for a vpod if its status does not say so yet, by ordinal."""
    claims = pool.claims_of(key)
    return {
        name: claim.reserved.vreplicas
        for name in sorted(claims, key=placement_order)
        if (claim := claims[name]).reserved is not None
        and claim.reserved.vreplicas != claim.published
    }


def _highest_named(pool: PoolState) -> int:
    """The highest ordinal that has a placement or a reservation, or that a status names, even with
    0; -1 for none.
    """
    claimed = [ordinal for ordinal, pod in pool.by_ordinal.items() if pod.claims]
    stateful_set = pool.stateful_set
    zeros = {
        name for vpod in pool.vpods.values() for name, count in vpod.placements.items() if not count
    }
    named = [
        ordinal
        for name in zeros
        if (ordinal := ordinal_of(name)) is not None
        and stateful_set is not None
        and name == f"{stateful_set.name}-{ordinal}"
    ]
    return max([*claimed, *named], default=-1)
