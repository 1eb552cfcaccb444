"""state_v_new.json: what Knative's state builder derives from vpods, pods and the scale; and the world that it is built from.

``World`` is the part that the schedule cases share: a case's StatefulSet, pods, nodes, vpods and reservations, as the
API objects that we would read, taken through our own decoders into a ``State``. A reservation is a pod's ledger (only
a bound pod has one), a placement is the vpod's status.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from extender.core.decode import node_from, pod_from, stateful_set_from, vpod_from
from extender.core.ledger import Share, encode_ledger
from extender.core.model import AdapterPool
from extender.core.names import (
    KNATIVE_UNSCHEDULABLE_ANNOTATION,
    PLACEMENTS_ANNOTATION,
    POOL_LABEL,
)
from extender.core.pool_state import PoolState, bits
from extender.core.state import State
from tests.conformance.result import Case, Check, Difference

Placements = dict[str, dict[str, int]]
"""vpod key -> pod name -> vreplicas."""


def vpod_key(raw: Mapping[str, Any]) -> str:
    """The key of a case's vpod."""
    return f"{raw['namespace']}/{raw['name']}"


def summed(raw: Mapping[str, Any], *, keep_zeros: bool = False) -> dict[str, int]:
    """A case's vpod's status: pod name -> vreplicas, double entries summed."""
    counts: dict[str, int] = {}
    for item in raw["placements"] or []:
        counts[item["podName"]] = counts.get(item["podName"], 0) + item["vreplicas"]
    return {name: count for name, count in counts.items() if count or keep_zeros}


@dataclass(frozen=True)
class World:
    """The input of one decision. ``status`` and ``reserved`` may name pods that do not exist."""

    namespace: str
    stateful_set: str
    replicas: int
    capacity: int
    min_replicas: int
    pods: list[Mapping[str, Any]]
    nodes: list[Mapping[str, Any]]
    vreplicas: Mapping[str, int]
    """vpod key -> wanted."""
    status: Placements
    reserved: Placements = field(default_factory=dict)

    @classmethod
    def of(cls, case: Case, vpods: list[Mapping[str, Any]]) -> "World":
        """The world of a case in which nothing is reserved."""
        return cls(
            namespace=case["statefulset"]["namespace"],
            stateful_set=case["statefulset"]["name"],
            replicas=case["replicas"],
            capacity=case["capacity"],
            min_replicas=case.get("min_replicas", 0),
            pods=case["pods"],
            nodes=case.get("nodes") or [],
            vreplicas={vpod_key(raw): raw["vreplicas"] for raw in vpods},
            status={vpod_key(raw): summed(raw) for raw in vpods},
        )

    def is_annotated(self, pod: Mapping[str, Any]) -> bool:
        """Whether a person has marked the pod as unschedulable."""
        return pod_from(self._pod(pod)).unschedulable

    def build(self) -> PoolState:
        """The state of the one pool, fed as it is in service."""
        state = State()
        pool = AdapterPool(
            namespace=self.namespace,
            name=self.stateful_set,
            stateful_set=self.stateful_set,
            slots_per_pod=self.capacity,
            min_pods_per_vpod=self.min_replicas,
        )
        metadata = {"namespace": self.namespace, "name": self.stateful_set}
        state.adapter_pool_changed(None, pool)
        state.stateful_set_changed(
            None, stateful_set_from({"metadata": metadata, "spec": {"replicas": self.replicas}})
        )
        for node in self._nodes():
            state.node_changed(None, node_from(node))
        for pod in self.pods:
            state.pod_changed(None, pod_from(self._pod(pod)))
        for key in self.vreplicas:
            state.vpod_changed(None, vpod_from(self._vpod(key)))
        return state.pool(pool.key)

    def _nodes(self) -> list[dict[str, Any]]:
        given = {node["name"]: node for node in self.nodes}
        named = [pod["node"] for pod in self.pods if pod["node"]]
        return [
            {
                "metadata": {"name": name, "labels": given.get(name, {}).get("labels") or {}},
                "spec": {
                    "unschedulable": given.get(name, {}).get("unschedulable", False),
                    "taints": given.get(name, {}).get("taints") or [],
                },
            }
            for name in dict.fromkeys([*given, *named])
        ]

    def _pod(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        annotations = dict(raw.get("annotations") or {})
        if raw.get("unschedulable"):
            annotations[KNATIVE_UNSCHEDULABLE_ANNOTATION] = "true"
        ledger = {
            key: Share(counts[raw["name"]]) for key, counts in self.reserved.items() if raw["name"] in counts
        }
        if ledger:
            annotations[PLACEMENTS_ANNOTATION] = encode_ledger(ledger)
        return {
            "metadata": {
                "namespace": self.namespace,
                "name": raw["name"],
                "uid": raw["name"],
                "labels": {POOL_LABEL: self.stateful_set},
                "annotations": annotations,
            },
            "spec": {"nodeName": raw["node"]},
        }

    def _vpod(self, key: str) -> dict[str, Any]:
        namespace, _, name = key.partition("/")
        placements = [{"podName": pod, "vreplicas": count} for pod, count in self.status[key].items()]
        return {
            "metadata": {"namespace": namespace, "name": name},
            "spec": {
                "poolRef": {"namespace": self.namespace, "name": self.stateful_set},
                "vreplicas": self.vreplicas[key],
            },
            "status": {"placements": placements},
        }


def derived(world: World) -> dict[str, Any]:
    """What our state derives from ``world``, in the terms of Knative's State."""
    pool = world.build()
    schedulable = list(bits(pool.schedulable))
    claimed = [pod for pod in pool.pods.values() if pod.ordinal is not None and pod.claims]
    ordinals = [*schedulable, *(pod.ordinal for pod in claimed if pod.ordinal is not None)]
    free = {pod.ordinal: world.capacity - pod.held for pod in claimed}
    names = {pool.by_ordinal[ordinal].name for ordinal in schedulable}
    return {
        "freeCap": [free.get(ordinal, world.capacity) for ordinal in range(max(ordinals, default=-1) + 1)],
        "schedulablePods": schedulable,
        "capacity": world.capacity,
        "replicas": len(pool.stateful_set.ordinals) if pool.stateful_set is not None else 0,
        "statefulSetName": world.stateful_set,
        "podSpread": {
            key: {name: count for name, count in pool.placed_of(key).items() if name in names}
            for key in pool.vpods
        },
        "pending": {
            key: max(0, vpod.vreplicas - pool.placed_vreplicas(key)) for key, vpod in pool.vpods.items()
        },
        "expectedVReplicaByVPod": {key: vpod.vreplicas for key, vpod in pool.vpods.items()},
        "freeCapacity": sum(pool.free_of(ordinal) for ordinal in schedulable),
    }


def visible(state: Mapping[str, Any]) -> dict[str, Any]:
    """A state as far as placing can see it: without entries of no vreplicas, and without whole ordinals at the end."""
    free = [*state["freeCap"]]
    while free and free[-1] == state["capacity"]:
        free.pop()
    spread = {
        key: {name: count for name, count in pods.items() if count}
        for key, pods in state["podSpread"].items()
    }
    return {**state, "freeCap": free, "podSpread": spread}


def check_state(
    world: World,
    vpods: list[Mapping[str, Any]],
    expected: Mapping[str, Any],
    *,
    only_visible: bool = False,
) -> str | Difference | None:
    """Whether our state agrees with ``expected`` (Knative's State; ``freeCapacity`` where it is given)."""
    wanted, found = dict(expected), derived(world)
    if only_visible:
        wanted, found = visible(wanted), visible(found)
    if "expectedVReplicas" in wanted:
        wanted["expectedVReplicaByVPod"] = wanted.pop("expectedVReplicas")
    unequal = [name for name in wanted if wanted[name] != found.get(name, f"no such field {name}")]
    if not unequal:
        return None
    for fields, holds, rule in STATE_RULES:
        if set(unequal) <= fields and holds(world, vpods):
            return rule
    return "; ".join(f"{name}: expected {wanted[name]}, found {found.get(name)}" for name in unequal)


def check(case: Case) -> str | Difference | None:
    """One case of state_v_new.json. Its ``reserved`` plays no part in Knative's state, and none in ours here."""
    if "kind" in case:
        return f"unknown kind {case['kind']!r}"
    return check_state(World.of(case, case["vpods"]), case["vpods"], case["expected"])


# -- where we differ on purpose -----------------------------------------------------------------------------------


def has_zero_placement(vpods: list[Mapping[str, Any]]) -> bool:
    """Whether a status has an entry of no vreplicas."""
    return any(item["vreplicas"] == 0 for raw in vpods for item in raw["placements"] or [])


def has_bad_node(world: World) -> bool:
    """Whether an adapter pod stands on a node that is cordoned, not ready or unreachable."""
    bad = {node["name"] for node in world.nodes if node.get("unschedulable") or node.get("taints")}
    return any(pod["node"] in bad for pod in world.pods)


STATE_RULES: tuple[tuple[set[str], Callable[[World, list[Mapping[str, Any]]], bool], Difference], ...] = (
    # The fields in which the difference shows, the condition on the input, the rule.
    (
        {"podSpread", "freeCap"},
        lambda _, vpods: has_zero_placement(vpods),
        Difference(
            "a placement of no vreplicas is no placement",
            "Knative keeps 0 entries in its spread and lengthens its free list for them",
        ),
    ),
    (
        {"schedulablePods", "podSpread", "freeCap", "freeCapacity"},
        lambda world, _: has_bad_node(world),
        Difference(
            "a bad node takes no new work",
            "Knative's state does not look at nodes, so it fills pods that are lost",
        ),
    ),
)

FILES: dict[str, Check] = {"state_v_new.json": check}
