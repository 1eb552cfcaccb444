"""How objects go: at once, after a grace period (bound pods), or when their last finalizer is removed.

A bound pod is only marked: ``deletionTimestamp`` is when its grace ends, and its kubelet removes it by a second
delete with grace 0. A pod that no node has, or that has finished, goes at once. Grace can be shortened by another
delete, never lengthened.
"""

from collections.abc import Mapping
from typing import Any, Final

from extender.kube.api import NAMESPACES, PODS, Obj, Preconditions, Resource
from extender.sim.apiserver.registry import Kind
from extender.sim.apiserver.statuses import not_the_one_to_delete
from extender.sim.apiserver.store import Entry
from extender.sim.apiserver.strategy import rfc3339

FINISHED: Final = frozenset({"Succeeded", "Failed"})


def check_preconditions(resource: Resource, entry: Entry, preconditions: Preconditions | None) -> None:
    """Raises Conflict where the stored object is not the one meant."""
    if preconditions is None:
        return
    if preconditions.uid and preconditions.uid != entry.uid:
        raise not_the_one_to_delete(resource, entry.key[1], "UID", preconditions.uid, entry.uid)
    wanted, found = preconditions.resource_version, str(entry.version)
    if wanted and wanted != found:
        raise not_the_one_to_delete(resource, entry.key[1], "ResourceVersion", wanted, found)


def pod_grace_s(pod: Mapping[str, Any], asked_s: int | None) -> int:
    """Grace of a pod's delete: what was asked, else the pod's own; none where no kubelet would end it."""
    grace_s = asked_s if asked_s is not None else int(pod["spec"].get("terminationGracePeriodSeconds") or 0)
    if not pod["spec"].get("nodeName") or (pod.get("status") or {}).get("phase") in FINISHED:
        return 0
    return max(grace_s, 0)


def marked(kind: Kind, entry: Entry, grace_period_s: int | None, now_s: float) -> Obj | None:
    """The object with its deletion marked, or None when it goes at once."""
    obj = entry.copy()
    metadata = obj["metadata"]
    grace_s = pod_grace_s(obj, grace_period_s) if kind.resource == PODS else 0
    waits = _waits_for_finalizers(kind, obj)
    if metadata.get("deletionTimestamp"):
        left_s = int(metadata.get("deletionGracePeriodSeconds") or 0)
        if grace_s >= left_s and (grace_s > 0 or waits):
            return obj
        if grace_s == 0 and not waits:
            return None
    elif grace_s == 0 and not waits:
        return None
    metadata["deletionTimestamp"] = rfc3339(now_s + grace_s)
    metadata["deletionGracePeriodSeconds"] = grace_s
    if "generation" in metadata:
        metadata["generation"] += 1
    if kind.resource == NAMESPACES:
        obj.setdefault("status", {})["phase"] = "Terminating"
    return obj


def _waits_for_finalizers(kind: Kind, obj: Obj) -> bool:
    if kind.resource == NAMESPACES and (obj.get("spec") or {}).get("finalizers"):
        return True
    return bool(obj["metadata"].get("finalizers"))


def is_released(obj: Obj) -> bool:
    """An updated object that was only waiting for its finalizers, and no longer is."""
    metadata = obj["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("deletionGracePeriodSeconds"):
        return False
    if obj.get("kind") == NAMESPACES.kind and (obj.get("spec") or {}).get("finalizers"):
        return False
    return not metadata.get("finalizers")
