"""What ``vreplica top`` shows: numbers for all pools, and the pods and vpods that need attention.
Pure.

.. code-block:: text

    pools[]     name, found (whether the AdapterPool exists), profile, pods, schedulablePods, slots,
                usedSlots, freeSlots, closedSlots, pendingVReplicas, unservedVReplicas, vpods,
                closedPods, drainingPods, overcommittedPods
    pods[]      name, pool, node, zone, slots, usedSlots, freeSlots, vpods, unserved, state,
                handOver (what its adapter has still to do, if there is something)
    waiting[]   vpod, pool, vreplicas, pending, since (RFC 3339, "" if not known), reason, message

A pool that does not exist is listed as long as vpods name it. All of its vpods are listed as
waiting, even if their vreplicas are placed (``pending`` 0), because nobody looks after them. A pod
that does not exist is listed as long as something is published on it. No pool counts it.

Order:

- pools: most unserved vreplicas first, then existing ones, then most pending vreplicas
- pods: those with ``unserved`` vreplicas, then overcommitted, then drained, then the fullest
- vpods: those with pending vreplicas, then the longest wait

``poolsNotListed``, ``podsNotListed`` and ``waitingNotListed`` count what is left out. 10,000 pods
take tens of milliseconds, so the overview is made in steps, and other tasks may run between them.
"""

import heapq
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Final

from extender.engine.pods.claims import PodClaims
from extender.engine.state.availability import unserved_on
from extender.engine.state.cluster_state import ClusterState
from extender.engine.state.pool_state import PoolState
from extender.engine.state.tenancy import TenantUse
from extender.model.assignment import left_to_do
from extender.model.objects import Condition, VPod, placement_order
from extender.model.reasons import ConflictReason
from extender.whatif.tenants import TENANTS_LISTED_MAX, tenant_row, tenants_of

POOLS_LISTED_MAX: Final = 100
PODS_LISTED_MAX: Final = 100
WAITING_LISTED_MAX: Final = 100
STEP_OBJECTS: Final = 500
"""Objects to look at between two steps."""
_SCHEDULED: Final = "Scheduled"
_NEVER: Final = "9999"
"""Sorts after every time."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A vpod, and how many of its vreplicas have no place. ``found``: whether its pool exists."""

    vpod: VPod
    pending: int
    found: bool

    @property
    def condition(self) -> Condition | None:
        """The condition that says that the vpod is not placed, and since when; None until it is
        written.
        """
        scheduled = next((c for c in self.vpod.conditions if c.type == _SCHEDULED), None)
        return scheduled if scheduled is not None and scheduled.status == "False" else None


class Overview:
    """Run through ``steps``, then call ``to_json``."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._pools: list[dict[str, object]] = []
        self._pods: list[tuple[tuple[int, float, tuple[int, str]], PoolState, PodClaims, str]] = []
        self._waiting: list[_Waiting] = []
        self._tenants: list[tuple[str, TenantUse]] = []
        self._tenants_seen = 0
        self._pods_seen = 0
        self._waiting_seen = 0

    def steps(self) -> Iterator[None]:
        """Look at everything, some objects a step. Changes in between may be seen or missed."""
        for pool in list(self._state.pools.values()):
            if pool.adapter_pool is not None or pool.vpods:
                yield from self._pool(pool)

    def _pool(self, pool: PoolState) -> Iterator[None]:
        counts = dict.fromkeys(("pods", "draining", "overcommitted", "closed"), 0)
        pods = list(pool.pods.values())
        for start in range(0, len(pods), STEP_OBJECTS):
            for pod in pods[start : start + STEP_OBJECTS]:
                if pod.pod is not None or _unserved(pod):
                    self._count(pool, pod, counts)
            self._pods = heapq.nsmallest(PODS_LISTED_MAX, self._pods, key=lambda item: item[0])
            yield
        pending = yield from self._pending(pool)
        uses = tenants_of(pool)
        self._tenants_seen += len(uses)
        self._tenants += [(pool.key, use) for use in uses[:TENANTS_LISTED_MAX]]
        slots = pool.slot_counts()
        self._pools.append(
            {
                "name": pool.key,
                "found": pool.adapter_pool is not None,
                "profile": pool.adapter_pool.profile if pool.adapter_pool is not None else "",
                "pods": counts["pods"],
                "schedulablePods": pool.schedulable_count(),
                "slots": slots.total,
                "usedSlots": slots.used,
                "freeSlots": slots.free,
                "closedSlots": slots.closed,
                "pendingVReplicas": pending,
                "unservedVReplicas": sum(pool.unserved.values()),
                "vpods": len(pool.vpods),
                "closedPods": counts["closed"],
                "drainingPods": counts["draining"],
                "overcommittedPods": counts["overcommitted"],
            }
        )
        yield

    def _pending(self, pool: PoolState) -> Generator[None, None, int]:
        """Look at the waiting vpods; return their pending vreplicas. Without an AdapterPool, all
        vpods wait.
        """
        pending = 0
        waiting = list(
            {**pool.vpods_with_pending, **dict.fromkeys(pool.waiting_for_quota())}
            if pool.adapter_pool is not None
            else pool.vpods
        )
        for start in range(0, len(waiting), STEP_OBJECTS):
            for key in waiting[start : start + STEP_OBJECTS]:
                pending += self._wait(pool, key)
            self._waiting = heapq.nsmallest(WAITING_LISTED_MAX, self._waiting, key=_waiting_order)
            yield
        return pending

    def _count(self, pool: PoolState, pod: PodClaims, counts: dict[str, int]) -> None:
        state = _state_of(pool, pod)
        if pod.pod is not None:
            counts["pods"] += 1
            counts["draining"] += pod.leaving
            counts["overcommitted"] += _is_over(pool, pod)
            counts["closed"] += pool.is_closed(pod)
        self._pods_seen += 1
        unserved = _unserved(pod)
        urgency = 0 if unserved else 1 if _is_over(pool, pod) else 2 if pod.leaving else 3
        fullness = pod.held / pod.capacity if pod.capacity else 0.0
        order = (urgency, -float(unserved) if unserved else -fullness, placement_order(pod.name))
        self._pods.append((order, pool, pod, state))

    def _wait(self, pool: PoolState, key: str) -> int:
        vpod = pool.vpods.get(key)
        pending = max(0, vpod.asked - pool.decided_vreplicas(key)) if vpod is not None else 0
        if vpod is not None and (pending or pool.adapter_pool is None):
            self._waiting_seen += 1
            self._waiting.append(_Waiting(vpod, pending, found=pool.adapter_pool is not None))
        return pending

    def to_json(self) -> dict[str, object]:
        """The overview, as the module describes it."""
        pools = sorted(self._pools, key=_pool_order)
        return {
            "pools": pools[:POOLS_LISTED_MAX],
            "poolsNotListed": max(0, len(pools) - POOLS_LISTED_MAX),
            "pods": [_pod_row(pool, pod, state) for _, pool, pod, state in self._pods],
            "podsNotListed": self._pods_seen - len(self._pods),
            "tenants": [tenant_row(pool, use) for pool, use in self._tenants],
            "tenantsNotListed": self._tenants_seen - len(self._tenants),
            "waiting": [_waiting_row(waiting) for waiting in self._waiting],
            "waitingNotListed": self._waiting_seen - len(self._waiting),
        }


def _unserved(pod: PodClaims) -> int:
    """Vreplicas that are published on the pod and that nobody serves."""
    return sum(pod.unserved().values())


def _is_over(pool: PoolState, pod: PodClaims) -> bool:
    """Whether the pod holds more than it has. Only its AdapterPool says how much that is."""
    return pool.adapter_pool is not None and pod.overcommitted


def _waiting_order(waiting: _Waiting) -> tuple[bool, str, str]:
    since = waiting.condition.last_transition_time if waiting.condition is not None else ""
    return not waiting.pending, since or _NEVER, waiting.vpod.key


def _pool_order(row: dict[str, object]) -> tuple[int, bool, int, int, str]:
    pending, used, unserved = row["pendingVReplicas"], row["usedSlots"], row["unservedVReplicas"]
    return (
        -unserved if isinstance(unserved, int) else 0,
        not row["found"],
        -pending if isinstance(pending, int) else 0,
        -used if isinstance(used, int) else 0,
        str(row["name"]),
    )


def _state_of(pool: PoolState, pod: PodClaims) -> str:
    """What is special about a pod, in a word or two; "" if nothing is."""
    if published := _unserved(pod):
        return unserved_on(pod, pod.name, published, pod.unserved().keys()).why
    if pool.adapter_pool is None:
        return "its AdapterPool does not exist"
    if pod.overcommitted:
        return "overcommitted"
    if pod.leaving and not pod.condemned:
        return "draining" if pod.draining else "given up"
    if not pod.schedulable:
        return pod.why_unschedulable() or "not of its StatefulSet"
    full = "ledger full" if pod.out_of_bytes else ""
    return "closed" if pool.is_closed(pod) else full


def hand_over_of(pod: PodClaims) -> str:
    """What the pod's adapter has still to do, in words; "" for nothing."""
    found = pod.pod
    return left_to_do(found.assignment_text, found.acknowledged_text) if found is not None else ""


def _pod_row(pool: PoolState, pod: PodClaims, state: str) -> dict[str, object]:
    node, zone = pod.where
    return {
        "name": pod.name,
        "pool": pool.key,
        "node": node,
        "zone": zone,
        "slots": pod.capacity,
        "usedSlots": pod.held,
        "freeSlots": pod.free,
        **({"dimensions": pod.dimensions()} if pod.capacities else {}),
        "vpods": len(pod.claims),
        "unserved": _unserved(pod),
        "state": state,
        **({"handOver": left} if (left := hand_over_of(pod)) else {}),
    }


def _waiting_row(waiting: _Waiting) -> dict[str, object]:
    vpod, condition = waiting.vpod, waiting.condition
    reason, message = (
        (condition.reason, condition.message[:300]) if condition is not None else ("", "")
    )
    if not waiting.found and reason != ConflictReason.POOL_NOT_FOUND:
        reason, message = (
            str(ConflictReason.POOL_NOT_FOUND),
            f"AdapterPool {vpod.pool} does not exist",
        )
    return {
        "vpod": vpod.key,
        "pool": vpod.pool,
        "vreplicas": vpod.asked,
        "pending": waiting.pending,
        "since": condition.last_transition_time if condition is not None else "",
        "reason": reason,
        "message": message,
    }
