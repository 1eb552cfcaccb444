"""What ``vreplica top`` shows: all pools in numbers, and of pods and vpods those that want to be looked at. Pure.

.. code-block:: text

    pools[]     name, profile, pods, schedulablePods, slots, usedSlots, freeSlots, closedSlots, pendingVReplicas,
                unservedVReplicas, vpods, closedPods, drainingPods, overcommittedPods
    pods[]      name, pool, node, zone, slots, usedSlots, freeSlots, vpods, unserved, state
    waiting[]   vpod, pool, vreplicas, pending, since (RFC 3339, "" if not known), reason, message

Pools with what nobody serves come first, then those with what is pending. Of the pods come first those that do not serve what
is placed on them (``unserved`` vreplicas), then those that are overcommitted, then drained, then the fullest; of vpods those that have waited
for longest. Of each so many are listed, and ``poolsNotListed``, ``podsNotListed`` and ``waitingNotListed`` say how many are
not. With 10,000 pods it takes tens of milliseconds, so it is made in steps, between which others may run.
"""

import heapq
from collections.abc import Generator, Iterator
from typing import Final

from extender.core.availability import unserved_on
from extender.core.claims import PodState
from extender.core.model import VPod, placement_order
from extender.core.pool_state import PoolState
from extender.core.state import State

POOLS_LISTED_MAX: Final = 100
PODS_LISTED_MAX: Final = 100
WAITING_LISTED_MAX: Final = 100
STEP_OBJECTS: Final = 500
"""Looked at between two steps."""
_SCHEDULED: Final = "Scheduled"
_NEVER: Final = "9999"
"""Sorts behind every time."""


class Overview:
    """Made by running through ``steps``; then ``to_json``."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._pools: list[dict[str, object]] = []
        self._pods: list[tuple[tuple[int, float, tuple[int, str]], PoolState, PodState, str]] = []
        self._waiting: list[tuple[str, VPod, int]] = []
        self._pods_seen = 0
        self._waiting_seen = 0

    def steps(self) -> Iterator[None]:
        """Look at everything, some objects a step. What changes meanwhile is seen or not."""
        for pool in list(self._state.pools.values()):
            if pool.pool is not None:
                yield from self._pool(pool)
            else:
                # Nobody has made it: it is no pool, and vpods that ask for it wait all the same.
                yield from self._pending(pool)

    def _pool(self, pool: PoolState) -> Iterator[None]:
        counts = dict.fromkeys(("pods", "draining", "overcommitted", "closed"), 0)
        pods = list(pool.pods.values())
        for start in range(0, len(pods), STEP_OBJECTS):
            for pod in pods[start : start + STEP_OBJECTS]:
                if pod.pod is not None:
                    self._count(pool, pod, counts)
            self._pods = heapq.nsmallest(PODS_LISTED_MAX, self._pods, key=lambda item: item[0])
            yield
        pending = yield from self._pending(pool)
        slots = pool.slot_counts()
        self._pools.append(
            {
                "name": pool.key,
                "profile": pool.pool.profile if pool.pool is not None else "",
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
        """Look at the vpods that wait; their vreplicas."""
        pending = 0
        waiting = list(pool.unplaced)
        for start in range(0, len(waiting), STEP_OBJECTS):
            for key in waiting[start : start + STEP_OBJECTS]:
                pending += self._wait(pool, key)
            self._waiting = heapq.nsmallest(
                WAITING_LISTED_MAX, self._waiting, key=lambda item: (item[0] or _NEVER, item[1].key)
            )
            yield
        return pending

    def _count(self, pool: PoolState, pod: PodState, counts: dict[str, int]) -> None:
        state = _state_of(pool, pod)
        counts["pods"] += 1
        counts["draining"] += pod.leaving
        counts["overcommitted"] += pod.held > pod.capacity
        counts["closed"] += pool.is_closed(pod)
        self._pods_seen += 1
        unserved = _unserved(pod)
        urgency = 0 if unserved else 1 if pod.held > pod.capacity else 2 if pod.leaving else 3
        fullness = pod.held / pod.capacity if pod.capacity else 0.0
        order = (urgency, -float(unserved) if unserved else -fullness, placement_order(pod.name))
        self._pods.append((order, pool, pod, state))

    def _wait(self, pool: PoolState, key: str) -> int:
        vpod = pool.vpods.get(key)
        pending = max(0, vpod.vreplicas - pool.placed_vreplicas(key)) if vpod is not None else 0
        if vpod is not None and pending:
            condition = next((c for c in vpod.conditions if c.type == _SCHEDULED), None)
            since = condition.last_transition_time if condition and condition.status == "False" else ""
            self._waiting_seen += 1
            self._waiting.append((since, vpod, pending))
        return pending

    def to_json(self) -> dict[str, object]:
        """As described above."""
        pools = sorted(self._pools, key=_pool_order)
        return {
            "pools": pools[:POOLS_LISTED_MAX],
            "poolsNotListed": max(0, len(pools) - POOLS_LISTED_MAX),
            "pods": [_pod_row(pool, pod, state) for _, pool, pod, state in self._pods],
            "podsNotListed": self._pods_seen - len(self._pods),
            "waiting": [_waiting_row(since, vpod, pending) for since, vpod, pending in self._waiting],
            "waitingNotListed": self._waiting_seen - len(self._waiting),
        }


def overview(state: State) -> dict[str, object]:
    """All of it at once."""
    made = Overview(state)
    for _ in made.steps():
        pass
    return made.to_json()


def _unserved(pod: PodState) -> int:
    """vreplicas that are published on the pod and that nobody serves."""
    return sum(claim.published for claim in pod.claims.values()) if pod.down else 0


def _pool_order(row: dict[str, object]) -> tuple[int, int, int, str]:
    pending, used, unserved = row["pendingVReplicas"], row["usedSlots"], row["unservedVReplicas"]
    return (
        -unserved if isinstance(unserved, int) else 0,
        -pending if isinstance(pending, int) else 0,
        -used if isinstance(used, int) else 0,
        str(row["name"]),
    )


def _state_of(pool: PoolState, pod: PodState) -> str:
    """In a word or two, what is special about a pod; "" for nothing."""
    if published := _unserved(pod):
        return unserved_on(pod, pod.name, published).why
    if pod.held > pod.capacity:
        return "overcommitted"
    if pod.draining:
        return "draining"
    if pod.abandoned:
        return "given up"
    if not pod.schedulable:
        return pod.why_unschedulable() or "not of its StatefulSet"
    full = "ledger full" if pod.out_of_bytes else ""
    return "closed" if pool.is_closed(pod) else full


def _pod_row(pool: PoolState, pod: PodState, state: str) -> dict[str, object]:
    node, zone = pod.where
    return {
        "name": pod.name,
        "pool": pool.key,
        "node": node,
        "zone": zone,
        "slots": pod.capacity,
        "usedSlots": pod.held,
        "freeSlots": pod.free,
        "vpods": len(pod.claims),
        "unserved": _unserved(pod),
        "state": state,
    }


def _waiting_row(since: str, vpod: VPod, pending: int) -> dict[str, object]:
    condition = next((c for c in vpod.conditions if c.type == _SCHEDULED), None)
    told = condition is not None and condition.status == "False"
    return {
        "vpod": vpod.key,
        "pool": vpod.pool,
        "vreplicas": vpod.vreplicas,
        "pending": pending,
        "since": since,
        "reason": condition.reason if condition is not None and told else "",
        "message": condition.message[:300] if condition is not None and told else "",
    }
