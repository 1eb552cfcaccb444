"""Streams: a foreign kind from which pools take vpods (docs/sources.md). A Stream's label names its
pool.

The checkers read Streams here, as JSON. The service reads them by the paths of ``source``.
"""

from typing import Final

from extender.kube.api import Obj, Resource
from extender.lab.simulation.world.facts import VPod
from extender.lab.simulation.world.objects import amounts_of

STREAMS: Final = Resource("example.dev", "v1", "streams", "Stream")
LABEL: Final = "example.dev/pool"
OURS: Final = "vreplica.dev/"
"""Before the types of the conditions that the service writes."""


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
            "perVReplica": "spec.takes",
            "placements": "status.assigned",
            "podName": "pod",
            "count": "share",
            "scheduledVReplicas": "status.scheduled",
            "conditions": "status.conditions",
        },
        "labelSelector": {"matchLabels": {LABEL: pool}},
    }


def stream_object(
    name: str, parallelism: int, weight: int, pool: str, *, dimensions: bool = False
) -> Obj:
    """Return a Stream of one of the pools. ``dimensions``: whether it has ``amounts_of`` its
    name.
    """
    takes = {"takes": amounts_of(name)} if dimensions else {}
    return {
        "metadata": {"name": name, "labels": {LABEL: pool}},
        "spec": {"parallelism": parallelism, "weight": weight, **takes},
    }


def with_own_condition(stream: Obj) -> Obj:
    """Return the merge patch by which the kind's own controller sets its condition. It leaves the
    others as they are, and fails if the Stream has changed since.
    """
    metadata = stream["metadata"]
    generation = metadata.get("generation", 0)
    others = [
        item
        for item in (stream.get("status") or {}).get("conditions") or ()
        if item["type"] != "Ready"
    ]
    own = {"type": "Ready", "status": "Unknown", "detail": {"generation": generation}}
    return {
        "metadata": {"resourceVersion": metadata["resourceVersion"]},
        "status": {"conditions": [*others, own]},
    }


def read_stream(obj: Obj) -> VPod:
    """Read a Stream. Of its conditions, the service's own have a prefix."""
    metadata, spec, status = obj["metadata"], obj["spec"], obj.get("status") or {}
    conditions = {item["type"]: item for item in status.get("conditions") or ()}
    scheduled, moved = conditions.get(f"{OURS}Scheduled"), conditions.get(f"{OURS}Moved")
    available = conditions.get(f"{OURS}Available")
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
        amounts=spec.get("takes") or {},
        observed=metadata.get("generation", 0),
        placements=placements,
        scheduled=status.get("scheduled", placed),
        condition=(scheduled["status"], scheduled["reason"]) if scheduled else ("", ""),
        available=(None, available["status"], available["reason"]) if available else None,
        moved=(moved["reason"], moved["message"], moved["lastTransitionTime"])
        if moved
        else ("", "", ""),
        foreign=True,
        others=tuple(repr(c) for kind, c in conditions.items() if not kind.startswith(OURS)),
    )
