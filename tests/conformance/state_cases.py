"""state_v_new.json, state_v_old.json: what Knative's state builder derives from vpods, pods, nodes
and the scale.

``World`` is the part that the schedule cases share: a case's StatefulSet, pods, nodes, vpods and
reservations, as the API objects that we would read, taken through our own decoders into a
``ClusterState``. A placement is the vpod's status. A reservation of the newer version, which is the
whole last answer, is a pod's ledger (only a bound pod has one); one of the older version, which is
what has been decided and not been committed yet, is what our placer reserves.

What we derive is what the state collector says, all fields that upstream has, entries of 0
vreplicas with them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from extender.engine.state.cluster_state import ClusterState
from extender.engine.state.collector import collect, collect_vpod, reserved_of
from extender.engine.state.pool_state import PoolState
from extender.model.decode import node_from, pod_from, stateful_set_from, vpod_from
from extender.model.ledger import Share, encode_ledger
from extender.model.names import (
    KNATIVE_UNSCHEDULABLE_ANNOTATION,
    NOT_READY_TAINT,
    PLACEMENTS_ANNOTATION,
    POOL_LABEL,
    UNREACHABLE_TAINT,
)
from extender.model.objects import AdapterPool
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
    """In ledgers."""
    decided: Placements = field(default_factory=dict)
    """Reserved and not yet seen committed; also for vpods that do not exist."""
    policy_type: str = ""
    nodes_are_listed: bool = False
    """Whether there are no nodes but ``nodes``: the newer version does not look at nodes, so its
    cases leave them out.
    """

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
        state = ClusterState()
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
        for key, shares in self.decided.items():
            given = {name: Share(count) for name, count in shares.items()}
            state.reserve("case", pool.key, key, given, expires_at=30.0)
        return state.pool(pool.key)

    def _nodes(self) -> list[dict[str, Any]]:
        given = {node["name"]: node for node in self.nodes}
        named = [pod["node"] for pod in self.pods if pod["node"] and not self.nodes_are_listed]
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
            key: Share(counts[raw["name"]])
            for key, counts in self.reserved.items()
            if raw["name"] in counts
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
                # The cases' pods have no owner: Knative goes by their names.
                "ownerReferences": [
                    {"kind": "StatefulSet", "name": self.stateful_set, "controller": True}
                ],
            },
            "spec": {"nodeName": raw["node"]},
        }

    def _vpod(self, key: str) -> dict[str, Any]:
        namespace, _, name = key.partition("/")
        placements = [
            {"podName": pod, "vreplicas": count} for pod, count in self.status[key].items()
        ]
        return {
            "metadata": {"namespace": namespace, "name": name},
            "spec": {
                "poolRef": {"namespace": self.namespace, "name": self.stateful_set},
                "vreplicas": self.vreplicas[key],
            },
            "status": {"placements": placements},
        }


def derived(world: World) -> dict[str, Any]:
    """What our state collector says of ``world``, in the terms of Knative's State."""
    pool = world.build()
    found = collect(pool)
    vpods = {key: collect_vpod(pool, key) for key in pool.vpods}
    reserved = {key: reserved_of(pool, key) for key in pool.claims_by_vpod}
    return {
        "freeCap": found.free_list(),
        "schedulablePods": list(found.schedulable_pods),
        "lastOrdinal": found.last_ordinal,
        "capacity": found.capacity,
        "replicas": found.replicas,
        "numZones": len(set(found.zone_of.values())),
        "numNodes": len(found.zone_of),
        "nodeToZoneMap": dict(found.zone_of),
        "statefulSetName": found.stateful_set,
        "schedulerPolicy": world.policy_type,
        "podSpread": {key: dict(vpod.pod_spread) for key, vpod in vpods.items()},
        "nodeSpread": {key: dict(vpod.node_spread) for key, vpod in vpods.items()},
        "zoneSpread": {key: dict(vpod.zone_spread) for key, vpod in vpods.items()},
        "pending": {key: vpod.pending for key, vpod in vpods.items()},
        "expectedVReplicaByVPod": {key: vpod.expected for key, vpod in vpods.items()},
        "freeCapacity": found.free_capacity,
        "reserved_after": {key: counts for key, counts in reserved.items() if counts},
    }


def visible(state: Mapping[str, Any]) -> dict[str, Any]:
    """A state as far as placing can see it: without entries of no vreplicas, and without whole
    ordinals at the end.
    """
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
    expected: Mapping[str, Any],
    *,
    only_visible: bool = False,
) -> str | Difference | None:
    """Whether our state agrees with ``expected`` (Knative's State; ``freeCapacity`` where it is
    given).
    """
    wanted, found = dict(expected), derived(world)
    if only_visible:
        wanted, found = visible(wanted), visible(found)
    if "expectedVReplicas" in wanted:
        wanted["expectedVReplicaByVPod"] = wanted.pop("expectedVReplicas")
    unequal = [name for name in wanted if wanted[name] != found.get(name, f"no such field {name}")]
    if not unequal:
        return None
    holding = [(fields, rule) for fields, holds, rule in STATE_RULES if holds(world)]
    if set(unequal) <= {name for fields, _ in holding for name in fields}:
        return next(rule for fields, rule in holding if fields & set(unequal))
    return "; ".join(
        f"{name}: expected {wanted[name]}, found {found.get(name)}" for name in unequal
    )


def check(case: Case) -> str | Difference | None:
    """One case of state_v_new.json. Its ``reserved`` plays no part in Knative's state, and none in
    ours here.
    """
    if "kind" in case:
        return f"unknown kind {case['kind']!r}"
    return check_state(_with_zeros(World.of(case, case["vpods"]), case), case["expected"])


def check_old(case: Case) -> str | Difference | None:
    """One case of state_v_old.json: with nodes, and with reservations that the building of the
    state may end.
    """
    if "kind" in case:
        return f"unknown kind {case['kind']!r}"
    world = replace(
        _with_zeros(World.of(case, case["vpods"]), case),
        decided=case["reserved"] or {},
        policy_type=case["scheduler_policy_type"],
        nodes_are_listed=True,
    )
    expected = case["expected"]
    if "state_error" in expected or "error" in expected:
        return UNKNOWN_NODE if has_unknown_node(world) else f"expected the error {expected}"
    return check_state(world, expected)


def _with_zeros(world: World, case: Case) -> World:
    return replace(
        world, status={vpod_key(raw): summed(raw, keep_zeros=True) for raw in case["vpods"]}
    )


# -- where we differ on purpose --------------------------------------------------------------------


def has_bad_node(world: World) -> bool:
    """Whether an adapter pod stands on a node that is cordoned, not ready or unreachable."""
    bad = {node["name"] for node in world.nodes if node.get("unschedulable") or node.get("taints")}
    return any(pod["node"] in bad for pod in world.pods)


def has_unready_node(world: World) -> bool:
    """Whether a node is tainted as not Ready, or as unreachable in a way that Knative does not look
    at.
    """
    return any(
        taint["key"] == NOT_READY_TAINT
        or (
            taint["key"] == UNREACHABLE_TAINT
            and taint.get("effect") not in {"NoExecute", "NoSchedule"}
        )
        for node in world.nodes
        for taint in node.get("taints") or []
    )


def has_unknown_node(world: World) -> bool:
    """Whether a bound pod stands on a node that is not listed."""
    known = {node["name"] for node in world.nodes}
    return any(pod["node"] and pod["node"] not in known for pod in world.pods)


def shrinks(world: World) -> bool:
    """Whether less is reserved on a pod than is published there."""
    return any(
        count < world.status.get(key, {}).get(name, 0)
        for key, counts in world.decided.items()
        for name, count in counts.items()
    )


def reserves_nothing(world: World) -> bool:
    """Whether a reservation is of no vreplicas, or of no pods."""
    return any(not counts or 0 in counts.values() for counts in world.decided.values())


UNKNOWN_NODE = Difference(
    "an unknown node stops only its own pod",
    "Knative cannot build any state, and so schedules and scales nothing, while one pod's node is "
    "not listed",
)
STATE_RULES: tuple[tuple[set[str], Callable[[World], bool], Difference], ...] = (
    # The fields in which the difference shows, the condition on the input, the rule.
    (
        {"schedulablePods", "podSpread", "freeCap", "freeCapacity"},
        lambda world: not world.nodes_are_listed and has_bad_node(world),
        Difference(
            "a bad node takes no new work",
            "Knative's state does not look at nodes, so it fills pods that are lost",
        ),
    ),
    (
        {
            *("schedulablePods", "lastOrdinal", "freeCap", "freeCapacity"),
            *("podSpread", "nodeSpread", "zoneSpread", "numNodes", "numZones", "nodeToZoneMap"),
        },
        lambda world: world.nodes_are_listed and has_unready_node(world),
        Difference(
            "a node that is not Ready takes no new work",
            "Knative 1.16 looks at the taint of unreachable nodes only, and of its effects not at "
            "PreferNoSchedule",
        ),
    ),
    (
        {"freeCap", "freeCapacity"},
        shrinks,
        Difference(
            "room is promised once a shrink is written",
            "Knative gives away what a decision takes from a pod before the status says so",
        ),
    ),
    (
        {"reserved_after"},
        reserves_nothing,
        Difference(
            "a reservation of no vreplicas ends once nothing is published",
            "Knative keeps an entry of 0, and an empty list of entries, until the vpod is "
            "scheduled again",
        ),
    ),
)

FILES: dict[str, Check] = {"state_v_new.json": check, "state_v_old.json": check_old}
