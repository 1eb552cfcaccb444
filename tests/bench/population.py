"""Clusters to measure on, as objects: nodes, pools with their pods and ledgers, vpods with their
placements.

Theory of operation. Everything is settled: each vpod's vreplicas are placed, statuses and ledgers
agree, so a service that reads it has nothing to write. ``pending`` ordinals have a pod that is not
bound yet: it comes back, and vpods publish placements on it, so filter, prioritize and bind have
all their work with it. Pods and nodes have the shape of those that a real kube-scheduler sent
(``tests/contract/recordings``), managedFields included where an API server would send them.

    vpod v, its vreplica j -> ordinal (8 v + j) mod ordinals -> node (ordinal mod nodes)
                           -> zone (node mod 3)
"""

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from extender.model.names import (
    API_VERSION,
    PLACEMENTS_ANNOTATION,
    POOL_LABEL,
    SCHEDULER_NAME,
    SLOTS_ANNOTATION,
    SLOTS_RESOURCE,
    ZONE_LABEL,
)

Obj = dict[str, Any]

RECORDINGS: Final = Path(__file__).parents[1] / "contract" / "recordings"
NAMESPACE: Final = "knative-eventing"
TENANTS: Final = 20
VREPLICAS: Final = 8
"""Of each vpod."""
SLOTS_PER_POD: Final = 20
NODE_SLOTS: Final = 400
"""Nodes declare vreplica.dev/slots, so that filter adds up what is on each."""
ZONES: Final = 3


@dataclass(frozen=True)
class Pool:
    """``bound`` adapter pods, then ``pending`` ones, and ``vpods`` that have vreplicas on all of
    them (counts).
    """

    name: str
    bound: int
    pending: int
    vpods: int
    profile: str = "default"

    @property
    def ordinals(self) -> int:
        """Pods of its StatefulSet."""
        return self.bound + self.pending


@dataclass(frozen=True)
class Population:
    """A cluster of ``nodes`` nodes with these pools."""

    nodes: int
    pools: tuple[Pool, ...]
    full: int = 0
    """Nodes after these that have no slots: no adapter pod may go there."""

    def objects(self) -> dict[str, list[Obj]]:
        """By plural, as an API server lists them, with ascending versions."""
        lists: dict[str, list[Obj]] = {
            "namespaces": [_namespace(name) for name in (NAMESPACE, *map(_tenant, range(TENANTS)))],
            "nodes": [
                *(node(number) for number in range(self.nodes)),
                *(node(number, slots=0) for number in range(self.nodes, self.nodes + self.full)),
            ],
            "adapterpools": [_adapter_pool(pool) for pool in self.pools],
            "statefulsets": [_stateful_set(pool) for pool in self.pools],
            "pods": [],
            "vpods": [],
        }
        for pool in self.pools:
            ledgers: list[dict[str, int]] = [{} for _ in range(pool.ordinals)]
            for number in range(pool.vpods):
                vpod = _vpod(pool, number)
                lists["vpods"].append(vpod)
                key = f"{vpod['metadata']['namespace']}/{vpod['metadata']['name']}"
                for ordinal, count in _placements(pool, number).items():
                    ledgers[ordinal][key] = count
            lists["pods"] += [
                bound_pod(pool, ordinal, node_name(ordinal % self.nodes), ledgers[ordinal])
                if ordinal < pool.bound
                else pending_pod(pool, ordinal)
                for ordinal in range(pool.ordinals)
            ]
        version = 1000
        for objects in lists.values():
            for obj in objects:
                version += 1
                obj["metadata"]["resourceVersion"] = str(version)
        return lists


def node_name(number: int) -> str:
    """Of the node with that number."""
    return f"node-{number:04d}"


def pod_uid(pool: Pool, ordinal: int) -> str:
    """Of the pod at that ordinal."""
    return f"{sum(pool.name.encode()):08x}-0000-4000-8000-{ordinal:012x}"


def node(number: int, slots: int = NODE_SLOTS) -> Obj:
    """A node in the recorded shape, Ready, in zone z0 to z2."""
    obj: Obj = orjson.loads(_recorded_node())
    name = node_name(number)
    obj["metadata"] |= {"name": name, "uid": f"00000001-0000-4000-8000-{number:012x}"}
    obj["metadata"]["labels"] = {"kubernetes.io/hostname": name, ZONE_LABEL: f"z{number % ZONES}"}
    room = {"cpu": "64", "memory": "256Gi", "pods": "110", SLOTS_RESOURCE: str(slots)}
    obj["status"] |= {"capacity": room, "allocatable": dict(room)}
    return obj


def pending_pod(pool: Pool, ordinal: int) -> Obj:
    """An adapter pod that the webhook has stamped and nobody has bound, as kube-scheduler
    sends it.
    """
    obj: Obj = orjson.loads(_recorded_pod())
    name = f"{pool.name}-{ordinal}"
    obj["metadata"] |= {"name": name, "generateName": f"{pool.name}-", "namespace": NAMESPACE}
    obj["metadata"]["uid"] = pod_uid(pool, ordinal)
    obj["metadata"]["labels"] = {
        "app": pool.name,
        "apps.kubernetes.io/pod-index": str(ordinal),
        "controller-revision-hash": f"{pool.name}-7cf854f4bd",
        "statefulset.kubernetes.io/pod-name": name,
        POOL_LABEL: pool.name,
    }
    obj["metadata"]["annotations"] = {SLOTS_ANNOTATION: str(SLOTS_PER_POD)}
    obj["metadata"]["ownerReferences"][0] |= {"name": pool.name, "uid": f"uid-set-{pool.name}"}
    obj["spec"]["containers"][0]["resources"] = {}
    obj["spec"] |= {"hostname": name, "subdomain": pool.name, "schedulerName": SCHEDULER_NAME}
    return obj


def plain_pod() -> Obj:
    """A pending pod that names the scheduler and is no adapter."""
    obj: Obj = orjson.loads(_recorded_pod())
    obj["metadata"] |= {
        "name": "web-0",
        "namespace": NAMESPACE,
        "uid": "11111111-1111-1111-1111-111111111111",
    }
    obj["metadata"]["labels"] = {"app": "web"}
    obj["metadata"].pop("annotations", None)
    obj["spec"]["schedulerName"] = SCHEDULER_NAME
    return obj


def bound_pod(pool: Pool, ordinal: int, node: str, ledger: dict[str, int]) -> Obj:
    """An adapter pod that runs on ``node`` and carries ``ledger`` (vpod key -> vreplicas)."""
    obj = pending_pod(pool, ordinal)
    text = json.dumps(ledger, sort_keys=True, separators=(",", ":"))
    obj["metadata"]["annotations"][PLACEMENTS_ANNOTATION] = text
    obj["metadata"]["managedFields"] = orjson.loads(_recorded_managed_fields())
    obj["spec"]["nodeName"] = node
    since = {"lastProbeTime": None, "lastTransitionTime": "2026-11-20T12:06:12Z"}
    obj["status"] |= {
        "phase": "Running",
        "conditions": [
            {"type": kind, "status": "True", **since}
            for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
        ],
        "podIP": "10.0.0.2",
        "hostIP": "10.0.0.1",
        "startTime": "2026-11-20T12:06:12Z",
    }
    return obj


def _placements(pool: Pool, number: int) -> dict[int, int]:
    """Ordinal -> vreplicas of the vpod with that number."""
    counts: dict[int, int] = {}
    for share in range(VREPLICAS):
        ordinal = (number * VREPLICAS + share) % pool.ordinals
        counts[ordinal] = counts.get(ordinal, 0) + 1
    return dict(sorted(counts.items()))


def _vpod(pool: Pool, number: int) -> Obj:
    placements = [
        {"podName": f"{pool.name}-{ordinal}", "vreplicas": count}
        for ordinal, count in _placements(pool, number).items()
    ]
    placed = {"type": "Scheduled", "status": "True", "reason": "AllPlaced", "message": ""}
    return {
        "apiVersion": API_VERSION,
        "kind": "VPod",
        "metadata": {
            "name": f"{pool.name}-source-{number}",
            "namespace": _tenant(number % TENANTS),
            "uid": f"{sum(pool.name.encode()):08x}-0001-4000-8000-{number:012x}",
            "generation": 1,
            "creationTimestamp": "2026-11-20T12:06:10Z",
        },
        "spec": {"poolRef": {"namespace": NAMESPACE, "name": pool.name}, "vreplicas": VREPLICAS},
        "status": {
            "observedGeneration": 1,
            "placements": placements,
            "scheduledVReplicas": VREPLICAS,
            "conditions": [{**placed, "lastTransitionTime": "2026-11-20T12:06:12Z"}],
        },
    }


def _adapter_pool(pool: Pool) -> Obj:
    spec: Obj = {"statefulSet": pool.name, "slotsPerPod": SLOTS_PER_POD, "minPods": pool.ordinals}
    return {
        "apiVersion": API_VERSION,
        "kind": "AdapterPool",
        "metadata": {
            "name": pool.name,
            "namespace": NAMESPACE,
            "uid": f"uid-{pool.name}",
            "generation": 1,
        },
        "spec": {**spec, "maxPods": pool.ordinals, "profile": pool.profile},
    }


def _stateful_set(pool: Pool) -> Obj:
    labels = {"app": pool.name, POOL_LABEL: pool.name}
    container = {"name": "c", "image": "registry.example/adapter:1"}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": pool.name,
            "namespace": NAMESPACE,
            "uid": f"uid-set-{pool.name}",
            "generation": 1,
        },
        "spec": {
            "replicas": pool.ordinals,
            "serviceName": pool.name,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": pool.name}},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
        "status": {"observedGeneration": 1, "replicas": pool.ordinals, "readyReplicas": pool.bound},
    }


def _namespace(name: str) -> Obj:
    labels = {"kubernetes.io/metadata.name": name}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels},
    }


def _tenant(number: int) -> str:
    return f"tenant-{number:02d}"


@functools.cache
def _recorded_pod() -> bytes:
    return orjson.dumps(_request("filter-1")["Pod"])


@functools.cache
def _recorded_node() -> bytes:
    return orjson.dumps(_request("filter-full-1")["Nodes"]["items"][0])


@functools.cache
def _recorded_managed_fields() -> bytes:
    review = _request("mutate-1")["request"]
    return orjson.dumps(review["object"]["metadata"]["managedFields"])


def _request(recording: str) -> Obj:
    """Kept as bytes, for reading those again is the quickest way to a copy."""
    request: Obj = orjson.loads((RECORDINGS / f"{recording}.json").read_bytes())["request"]
    return request
