"""Records: what the page receives about one pool, pod, vpod or node, as plain data.

.. code-block:: text

    service   identity, leading, shadow, problems [why it is not ready], profiles [names]
    pools     by key: found, profile, slotsPerPod, replicas, the counts of AdapterPool.status,
              pendingSlots, unservedSlots, overcommittedPods, problem (why it is not Ready),
              leader, leads (whether this replica does); if this replica knows the pods' load,
              load {metric, maxToMean, hottestPod, target}
    pods      by name: node, zone, slots, used, free (slots), why (it takes no new work),
              unserved (why nobody serves what is published there, "" where somebody does),
              closed, placements; dimensions {name: {capacity, used}} if the pool has capacities,
              load {metric, load, toMean} if this replica knows it, handOver (what its adapter
              has still to do) if there is something
    vpods     by key: wanted (vreplicas), weight (slots of each), published (vreplicas),
              waits (why, where some wait, or all wait for their pool)
    nodes     by name: zone, ready, cordoned; those that the pool's pods stand on

Only of a pool with ``spec.tenancy``, in slots:

.. code-block:: text

    tenancy     tenants (how many), waitingTenants, waitingSlots, borrowers [{tenant,
                borrowedSlots}: those that have borrowed most]
    tenants     by name, those that wait for most: vpods, guarantee, limit and share (None: none),
                askedSlots, usedSlots, borrowedSlots, waitingSlots
    namespaces  by name: the tenant, where it is not the namespace itself

``placements`` of a pod maps vpod keys to vreplicas. If a vreplica takes more than one slot, or the
pod's ledger does not have all of them, the value is ``[vreplicas, slots, slots in the ledger]``.
Placed vreplicas that are not in the ledger are *reserved*: they were decided a moment ago, or are
published on an ordinal whose pod is to come back. If a pod's ``used`` and ``free`` are together
less than ``slots``, it holds the difference for vreplicas that are just leaving it.

A record is made again if its *sign* differs from the one of the last record. Vpods and nodes are
their own signs, because they are replaced and never changed in place.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from extender.engine.pods.claims import Claim, PodClaims
from extender.engine.state.availability import unserved_on
from extender.engine.state.collector import why_unschedulable
from extender.engine.state.pool_state import PoolState
from extender.engine.state.tenancy import PoolTenancy, TenantUse
from extender.model.counted import EXACT_MAX
from extender.model.objects import Node, VPod
from extender.model.reasons import ConflictReason
from extender.service.placing.vpod_status import SCHEDULED
from extender.service.pools.pool_status import pool_numbers, readiness
from extender.whatif.overview import hand_over_of
from extender.whatif.tenants import most_borrowed, tenant_row

Record = Mapping[str, Any]
TEXT_CHARS_MAX: Final = 400
"""Of the message shown for a vpod that waits."""


def pod_sign(pool: PoolState, pod: PodClaims) -> tuple[object, ...]:
    """Changes whenever ``pod_record`` does. It includes the unserved reason, because a status that
    agrees with the ledger changes that without a new revision. Loads have no revision either.
    """
    return (pod, pod.revision, _unserved(pod), _load_of(pool, pod))


def pod_record(pool: PoolState, pod: PodClaims) -> Record:
    """One ordinal of the pool: its pod, or what is kept for the pod to come."""
    return {
        "node": pod.pod.node if pod.pod is not None else "",
        "zone": pod.node.zone if pod.node is not None else "",
        "slots": pod.capacity,
        "used": pod.decided,
        "free": pod.free,
        **({"dimensions": pod.dimensions()} if pod.capacities else {}),
        **({"load": load} if (load := _load_of(pool, pod)) else {}),
        **({"handOver": left} if (left := hand_over_of(pod)) else {}),
        "why": why_unschedulable(pool, pod) or ("ledger full" if pod.out_of_bytes else ""),
        "unserved": _unserved(pod),
        "closed": pool.is_closed(pod),
        "placements": {
            key: _placement(claim)
            for key, claim in sorted(pod.claims.items())
            if claim.decided.vreplicas
        },
    }


def _load_of(pool: PoolState, pod: PodClaims) -> Record | None:
    """The pod's load as last looked at; None if it is not known."""
    target = pool.adapter_pool.load if pool.adapter_pool is not None else None
    load = pool.load.loads.get(pod.ordinal) if pod.ordinal is not None else None
    if target is None or load is None or not pool.load.mean:
        return None
    return {
        "metric": target.metric,
        "load": float(f"{load:.4g}"),
        "toMean": round(load / pool.load.mean, 2),
    }


def _load_record(pool: PoolState) -> Record | None:
    """The load of the hottest pod; None if no load is known."""
    target = pool.adapter_pool.load if pool.adapter_pool is not None else None
    loads = pool.load.loads
    if target is None or not loads or not pool.load.mean:
        return None
    hottest = max(sorted(loads), key=loads.__getitem__)
    pod = pool.by_ordinal.get(hottest)
    return {
        "metric": target.metric,
        "maxToMean": round(loads[hottest] / pool.load.mean, 2),
        "hottestPod": pod.name if pod is not None else "",
        "target": target.target,
    }


def _unserved(pod: PodClaims) -> str:
    unserved = pod.unserved()
    return unserved_on(pod, pod.name, 0, unserved.keys()).why if unserved else ""


def _placement(claim: Claim) -> int | list[int]:
    placed = claim.decided
    written = min(placed.slots, claim.ledger.slots)
    if placed.weight == 1 and written == placed.vreplicas:
        return placed.vreplicas
    return [placed.vreplicas, placed.slots, written]


def vpod_record(vpod: VPod) -> Record:
    """What a vpod wants and has published."""
    published = sum(vpod.placements.values())
    return {
        "wanted": vpod.asked,
        "weight": vpod.weight,
        "published": published,
        "waits": _why_it_waits(vpod, published),
    }


def _why_it_waits(vpod: VPod, published: int) -> str:
    for condition in vpod.conditions:
        if (
            condition.type == SCHEDULED
            and condition.status == "False"
            and (published < vpod.asked or condition.reason == ConflictReason.POOL_NOT_FOUND)
        ):
            return f"{condition.reason}: {condition.message}"[:TEXT_CHARS_MAX]
    return "not decided yet" if published < vpod.asked else ""


def node_record(node: Node) -> Record:
    """A node of some of the pool's pods."""
    return {"zone": node.zone, "ready": node.ready, "cordoned": node.cordoned}


def tenancy_record(uses: Sequence[TenantUse]) -> Record:
    """What is said of all tenants of a pool together."""
    return {
        "tenants": len(uses),
        "waitingTenants": sum([use.waiting > 0 for use in uses]),
        "waitingSlots": min(sum([use.waiting for use in uses]), EXACT_MAX),
        "borrowers": most_borrowed(uses),
    }


def tenant_record(use: TenantUse) -> Record:
    """What one tenant has of the pool."""
    row = tenant_row("", use)
    return {name: value for name, value in row.items() if name not in {"pool", "tenant"}}


def namespace_records(tenancy: PoolTenancy, namespaces: Iterable[str]) -> Mapping[str, str]:
    """Namespace -> its tenant, for those that are not tenants by themselves."""
    tenants = {name: tenancy.tenant_of(name) for name in namespaces}
    return {name: tenant for name, tenant in tenants.items() if tenant != name}


def pending_slots(pool: PoolState) -> int:
    """Slots that the vreplicas without a place would take, at most ``EXACT_MAX``."""
    vpods = pool.vpods
    slots = sum(
        (vpods[key].vreplicas - pool.decided_vreplicas(key)) * vpods[key].weight
        for key in pool.vpods_with_pending
    )
    return min(slots, EXACT_MAX)


def unserved_slots(pool: PoolState) -> int:
    """Slots of the vreplicas that are placed and not served, at most ``EXACT_MAX``."""
    slots = sum(count * pool.vpods[key].weight for key, count in pool.unserved.items())
    return min(slots, EXACT_MAX)


def pool_record(pool: PoolState) -> Record:
    """A pool's counts. Examines each of its pods."""
    ready, _, problem = readiness(pool)
    found = pool.adapter_pool is not None
    return {
        "found": found,
        "profile": pool.profile.name,
        "slotsPerPod": pool.adapter_pool.slots_per_pod if pool.adapter_pool is not None else 0,
        "replicas": pool.stateful_set.replicas if pool.stateful_set is not None else None,
        **pool_numbers(pool),
        "pendingSlots": pending_slots(pool),
        "unservedSlots": unserved_slots(pool),
        "overcommittedPods": len(pool.overcommitted()),
        "problem": ("" if ready else problem) if found else "the AdapterPool does not exist",
        **({"load": load} if (load := _load_record(pool)) else {}),
    }
