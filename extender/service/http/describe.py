"""``/state.json``: what the service knows and why it decided so, as plain data for people and
tools.

.. code-block:: text

    pools[]            name, found, statefulSet, capacity (slots per pod), minPods,
                       minPodsPerVPod, profile, replicas, missingPods (ordinals without a pod),
                       lastOrdinal, closedOrdinals, the counts of AdapterPool.status,
                       expectedVReplicas, unschedulable {reason: pods}
      podList[]        name, node, zone, slots, usedSlots, freeSlots, schedulable,
                       why (it is not), placements {vpod: vreplicas}
      vpodList[]       name, vreplicas, slotsPerVReplica, published and placed {pod: vreplicas},
                       pending, reserved, podSpread, nodeSpread, zoneSpread (on schedulable pods),
                       elsewhere, explanation [sentence]
    nodes[]            name, zone, takesWork, slots

Counts are vreplicas, slots or pods, as their names say. ``slots`` of a node is null if it declares
none. The terms are those of Knative's State (``extender.engine.state.collector``).

The numbers of listed pools, pods, vpods and nodes are limited; ``poolsNotListed``,
``podsNotListed``, ``vpodsNotListed`` and ``nodesNotListed`` count the others.
``?pool=NAMESPACE/NAME`` narrows the answer to one pool. ``?vpod=NAMESPACE/NAME`` narrows it to one
vpod, with the pools and pods that know it. Unknown parameters are ignored.
"""

from collections import Counter
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from extender.engine.placing.explain import Explanation
from extender.engine.pods.bits import bits
from extender.engine.pods.claims import PodClaims
from extender.engine.state.cluster_state import ClusterState
from extender.engine.state.collector import collect, collect_vpod, why_unschedulable
from extender.engine.state.pool_state import PoolState
from extender.model.objects import placement_order
from extender.service.pools.pool_status import pool_numbers

POOLS_LISTED_MAX: Final = 1_000
PODS_LISTED_MAX: Final = 5_000
VPODS_LISTED_MAX: Final = 5_000
NODES_LISTED_MAX: Final = 5_000
KEY_CHARS_MAX: Final = 1024
"""``namespace/name@kind.group``."""
SLICE_OBJECTS: Final = 20
"""Pods, vpods or nodes examined in one step, in about a millisecond."""
SENTENCES_LISTED_MAX: Final = 100
"""Of one explanation."""


@dataclass(frozen=True, slots=True)
class StateQuery:
    """What to show. ``pool`` and ``vpod`` are keys; "" for all."""

    pool: str = ""
    vpod: str = ""

    @classmethod
    def of(cls, parameters: Mapping[str, str]) -> "StateQuery":
        """Decode a URL's parameters. Raises ValueError if one is longer than any key."""
        for name in ("pool", "vpod"):
            if len(parameters.get(name, "")) > KEY_CHARS_MAX:
                raise ValueError(f"{name}: expected a key of at most {KEY_CHARS_MAX} characters")
        return cls(pool=parameters.get("pool", ""), vpod=parameters.get("vpod", ""))

    def wants_pool(self, pool: PoolState) -> bool:
        """Whether to show the pool."""
        if self.vpod and self.vpod not in pool.vpods and not pool.claims_of(self.vpod):
            return False
        return self.pool in {"", pool.key}

    def wants_pod(self, pod: PodClaims) -> bool:
        """Whether to show the pod of a pool that is shown."""
        return not self.vpod or self.vpod in pod.claims


ExplanationOf = Callable[[str], Explanation | None]


def state_steps(
    state: ClusterState, explanation_of: ExplanationOf, query: StateQuery | None = None
) -> Generator[None, None, dict[str, object]]:
    """Pools with their pods and vpods, and nodes. ``explanation_of``: by vpod key, of its last
    decision.

    The state may change between two steps: each object is described as it is at its step.
    """
    query = query or StateQuery()
    pools = [pool for _, pool in sorted(state.pools.items()) if query.wants_pool(pool)]
    page = _Page(explanation_of, query)
    listed = []
    for pool in pools[:POOLS_LISTED_MAX]:
        listed.append((yield from page.pool(pool)))
        yield
    return {
        "pools": listed,
        "poolsNotListed": max(0, len(pools) - POOLS_LISTED_MAX),
        "nodes": [
            {
                "name": node.name,
                "zone": node.zone,
                "takesWork": node.takes_work,
                "slots": node.slots,
            }
            for _, node in islice(sorted(state.nodes.items()), NODES_LISTED_MAX)
        ],
        "nodesNotListed": max(0, len(state.nodes) - NODES_LISTED_MAX),
    }


class _Page:
    """One answer, and how much may still be listed in it."""

    def __init__(self, explanation_of: ExplanationOf, query: StateQuery) -> None:
        self._explanation_of = explanation_of
        self._query = query
        self._pods_left = PODS_LISTED_MAX
        self._vpods_left = VPODS_LISTED_MAX

    def pool(self, pool: PoolState) -> Generator[None, None, dict[str, object]]:
        """One pool with its listed pods and vpods."""
        found = collect(pool)
        yield
        wanted = {self._query.vpod} & pool.vpods.keys() if self._query.vpod else pool.vpods.keys()
        known = sorted(pool.pods.values(), key=lambda pod: placement_order(pod.name))
        pods = [
            pod
            for pod in known
            if (pod.pod is not None or pod.claims) and self._query.wants_pod(pod)
        ]
        listed_pods, listed_vpods = pods[: self._pods_left], sorted(wanted)[: self._vpods_left]
        self._pods_left -= len(listed_pods)
        self._vpods_left -= len(listed_vpods)
        pod_list = []
        for start in range(0, len(listed_pods), SLICE_OBJECTS):
            pod_list += [_pod(pool, pod) for pod in listed_pods[start : start + SLICE_OBJECTS]]
            yield
        vpod_list = []
        for start in range(0, len(listed_vpods), SLICE_OBJECTS):
            # Skip vpods that have gone since the first step.
            keys = [key for key in listed_vpods[start : start + SLICE_OBJECTS] if key in pool.vpods]
            vpod_list += [self._vpod(pool, key) for key in keys]
            yield
        return {
            "name": pool.key,
            "found": pool.adapter_pool is not None,
            "statefulSet": found.stateful_set,
            "capacity": found.capacity,
            "minPods": pool.adapter_pool.min_pods if pool.adapter_pool is not None else 0,
            "minPodsPerVPod": (
                pool.adapter_pool.min_pods_per_vpod if pool.adapter_pool is not None else 0
            ),
            "profile": pool.profile.name,
            "replicas": found.replicas if pool.stateful_set is not None else None,
            "missingPods": found.missing_pods,
            "lastOrdinal": found.last_ordinal,
            "closedOrdinals": list(islice(bits(pool.closed), PODS_LISTED_MAX)),
            **pool_numbers(pool),
            "expectedVReplicas": sum(vpod.asked for vpod in pool.vpods.values()),
            "unschedulable": dict(sorted(Counter(found.unschedulable.values()).items())),
            "podList": pod_list,
            "podsNotListed": len(pods) - len(listed_pods),
            "vpodList": vpod_list,
            "vpodsNotListed": len(wanted) - len(listed_vpods),
        }

    def _vpod(self, pool: PoolState, key: str) -> dict[str, object]:
        vpod, found = pool.vpods[key], collect_vpod(pool, key)
        explanation = self._explanation_of(key)
        return {
            "name": key,
            "vreplicas": vpod.asked,
            "slotsPerVReplica": vpod.weight,
            **({"perVReplica": dict(vpod.per_vreplica)} if vpod.per_vreplica else {}),
            **({"minAvailable": vpod.min_available} if vpod.min_available else {}),
            **({"maxPerPod": vpod.max_per_pod} if vpod.max_per_pod else {}),
            "published": dict(vpod.placements),
            "placed": pool.decided_of(key),
            "pending": found.pending,
            "reserved": dict(found.reserved),
            "podSpread": dict(found.pod_spread),
            "nodeSpread": dict(found.node_spread),
            "zoneSpread": dict(found.zone_spread),
            "elsewhere": dict(found.elsewhere),
            "explanation": listed_sentences(explanation) if explanation is not None else [],
        }


def listed_sentences(explanation: Explanation) -> list[str]:
    """An explanation's sentences. If they are too many, the first ones and the outcome."""
    listed = list(islice(explanation.sentences(), SENTENCES_LISTED_MAX + 1))
    if len(listed) <= SENTENCES_LISTED_MAX:
        return listed
    return [*listed[: SENTENCES_LISTED_MAX - 1], explanation.outcome()]


def _pod(pool: PoolState, pod: PodClaims) -> dict[str, object]:
    return {
        "name": pod.name,
        "node": pod.pod.node if pod.pod is not None else "",
        "zone": pod.node.zone if pod.node is not None else "",
        "slots": pod.capacity,
        "usedSlots": pod.decided,
        "freeSlots": pod.free,
        **({"dimensions": pod.dimensions()} if pod.capacities else {}),
        "schedulable": pod.schedulable,
        "why": why_unschedulable(pool, pod),
        "placements": {
            key: claim.decided.vreplicas
            for key, claim in sorted(pod.claims.items())
            if claim.decided.vreplicas
        },
    }
