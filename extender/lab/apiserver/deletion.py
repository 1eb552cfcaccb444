"""How objects are deleted: at once, after a grace period (bound pods), or when the last finalizer
is removed.

The first delete only marks a bound pod: ``deletionTimestamp`` is the end of its grace period. Its
kubelet then removes it by a second delete with grace 0. A pod that has no node or has finished is
removed at once. Another delete can shorten the grace period, never lengthen it.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from extender.kube.api import NAMESPACES, PODS, Obj, Preconditions
from extender.lab.apiserver.registry import Kind
from extender.lab.apiserver.requests import Target
from extender.lab.apiserver.statuses import conflict, not_the_one_to_delete
from extender.lab.apiserver.store import Entry
from extender.lab.apiserver.strategy import rfc3339

FINISHED: Final = frozenset({"Succeeded", "Failed"})


def check_preconditions(target: Target, entry: Entry, preconditions: Preconditions | None) -> None:
    """Check the preconditions of a delete. Raises Conflict."""
    if preconditions is None:
        return
    for what, wanted, found in (
        ("UID", preconditions.uid, entry.uid),
        ("ResourceVersion", preconditions.resource_version, str(entry.version)),
    ):
        if not wanted or wanted == found:
            continue
        # Namespaces have their own registry, with another message.
        if target.kind.resource == NAMESPACES:
            failed = (
                f"Precondition failed: {what} in precondition: {wanted}, {what} in object meta: "
                f"{found}"
            )
            raise conflict(NAMESPACES, entry.key[1], failed)
        raise not_the_one_to_delete(target.kind.resource, entry.key[1], what, wanted, found)


def pod_grace_s(pod: Mapping[str, Any], asked_s: int | None) -> int:
    """Return the grace period of a pod's first delete: the requested one, else the pod's own. It is
    0 if no kubelet would end the pod.
    """
    grace_s = (
        asked_s
        if asked_s is not None
        else int(pod["spec"].get("terminationGracePeriodSeconds") or 0)
    )
    if not pod["spec"].get("nodeName") or (pod.get("status") or {}).get("phase") in FINISHED:
        return 0
    return grace_s if grace_s >= 0 else 1


def marked(kind: Kind, entry: Entry, grace_period_s: int | None, now_s: float) -> tuple[Obj, bool]:
    """Return the object with its deletion marked, and whether to remove it at once. A negative
    grace period counts as 1 s.

    Even a pod that is removed at once is marked first: watches see it MODIFIED with its
    deletionTimestamp, then DELETED.
    """
    obj = entry.copy()
    asked_s = 1 if grace_period_s is not None and grace_period_s < 0 else grace_period_s
    waits, graceful = _waits_for_finalizers(kind, obj), kind.resource == PODS
    metadata = obj["metadata"]
    if metadata.get("deletionTimestamp"):
        left_s = int(metadata.get("deletionGracePeriodSeconds") or 0)
        if left_s == 0:
            return obj, not waits
        if asked_s is None or asked_s >= left_s:
            return obj, False
        began_s = datetime.fromisoformat(metadata["deletionTimestamp"]).timestamp() - left_s
        metadata["deletionTimestamp"] = rfc3339(began_s + asked_s)
        metadata["deletionGracePeriodSeconds"] = asked_s
        return obj, asked_s == 0 and not waits
    grace_s = pod_grace_s(obj, asked_s) if graceful else 0
    if not waits and not graceful:
        return obj, True
    metadata["deletionTimestamp"] = rfc3339(now_s + grace_s)
    if metadata.get("generation"):
        metadata["generation"] += 1
    if kind.resource == NAMESPACES:
        obj.setdefault("status", {})["phase"] = "Terminating"
    else:
        metadata["deletionGracePeriodSeconds"] = grace_s
    return obj, grace_s == 0 and not waits


def _waits_for_finalizers(kind: Kind, obj: Obj) -> bool:
    if kind.resource == NAMESPACES and (obj.get("spec") or {}).get("finalizers"):
        return True
    return bool(obj["metadata"].get("finalizers"))


def is_released(obj: Obj) -> bool:
    """Return whether an updated object waited only for finalizers, and the last one is gone."""
    metadata = obj["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("deletionGracePeriodSeconds"):
        return False
    if obj.get("kind") == NAMESPACES.kind and (obj.get("spec") or {}).get("finalizers"):
        return False
    return not metadata.get("finalizers")
