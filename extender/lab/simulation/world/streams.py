"""Streams: a foreign kind from which pools take vpods (docs/sources.md). A Stream's label names its
pool.

The checkers read Streams here, as JSON. The service reads them by the paths of ``source``.
"""

from typing import Final

from extender.kube.api import Obj, Resource
from extender.lab.simulation.world.facts import VPod

STREAMS: Final = Resource("example.dev", "v1", "streams", "Stream")
LABEL: Final = "example.dev/pool"


def definition() -> Obj:
    """Return the CustomResourceDefinition of Streams."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version: Obj = {
        "name": STREAMS.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
    }
    return {
        "metadata": {"name": f"{STREAMS.plural}.{STREAMS.group}"},
        "spec": {
            "group": STREAMS.group,
            "scope": "Namespaced",
            "names": {
                "kind": STREAMS.kind,
                "listKind": f"{STREAMS.kind}List",
                "plural": STREAMS.plural,
                "singular": STREAMS.kind.lower(),
            },
            "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
        },
    }


def source(pool: str) -> Obj:
    """Return the entry for Streams in ``spec.sources`` of a pool."""
    return {
        "group": STREAMS.group,
        "version": STREAMS.version,
        "resource": STREAMS.plural,
        "kind": STREAMS.kind,
        "paths": {
            "vreplicas": "spec.parallelism",
            "slotsPerVReplica": "spec.weight",
            "placements": "status.assigned",
            "podName": "pod",
            "count": "share",
            "scheduledVReplicas": "status.scheduled",
        },
        "labelSelector": {"matchLabels": {LABEL: pool}},
    }


def stream_object(name: str, parallelism: int, weight: int, pool: str) -> Obj:
    """Return a Stream of one of the pools."""
    return {
        "metadata": {"name": name, "labels": {LABEL: pool}},
        "spec": {"parallelism": parallelism, "weight": weight},
    }


def read_stream(obj: Obj) -> VPod:
    """Read a Stream. It has no conditions: it counts as scheduled if enough is placed."""
    metadata, spec, status = obj["metadata"], obj["spec"], obj.get("status") or {}
    placements: dict[str, int] = {}
    for item in status.get("assigned") or ():
        placements[item["pod"]] = placements.get(item["pod"], 0) + item["share"]
    placed = sum(placements.values())
    return VPod(
        key=f"{metadata['namespace']}/{metadata['name']}@{STREAMS.kind}.{STREAMS.group}".lower(),
        uid=metadata["uid"],
        pool=(metadata.get("labels") or {}).get(LABEL, ""),
        generation=metadata.get("generation", 0),
        wanted=spec["parallelism"],
        weight=spec.get("weight", 1),
        observed=metadata.get("generation", 0),
        placements=placements,
        scheduled=status.get("scheduled", placed),
        condition=("True" if placed >= spec["parallelism"] else "False", ""),
        moved=("", "", ""),
        foreign=True,
    )
