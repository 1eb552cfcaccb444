"""The fields that the API server itself sets before a create, an update or a status write.

Each kind's strategy in kube-apiserver decides what an object's endpoint and its status endpoint may
write. A write to the object keeps the stored status. A write to the status keeps the stored spec.
Of metadata it keeps everything (custom kinds), the owner references (pods) or nothing (other
built-in kinds: their labels and annotations can be written through the status endpoint).
"""

import math
from collections.abc import Callable
from functools import lru_cache
from random import Random
from typing import Any, Final
from uuid import UUID

from extender.kube.api import CRDS, NAMESPACES, NODES, PODS, STATEFULSETS, Obj, Resource
from extender.lab.apiserver import schema
from extender.lab.apiserver.registry import Kind
from extender.model.timestamps import timestamp

SUFFIX_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
"""The alphabet of k8s.io/apimachinery util/rand: no vowels, no characters that look alike."""
_GENERATED_SUFFIX_LENGTH: Final = 5
_NAME_BASE_LENGTH_MAX: Final = 58
_timestamp: Final = lru_cache(maxsize=64)(timestamp)
"""Cached, because all writes of one second need the same text."""


def rfc3339(epoch_s: float) -> str:
    """Format a metav1.Time: whole seconds, UTC."""
    return _timestamp(math.floor(round(epoch_s, 6)))


def new_uid(rng: Random) -> str:
    """Return a version 4 UUID from the injected randomness."""
    return str(UUID(int=rng.getrandbits(128), version=4))


def generated_name(base: str, rng: Random) -> str:
    """Return a generateName with its random suffix."""
    suffix = "".join(rng.choice(SUFFIX_ALPHABET) for _ in range(_GENERATED_SUFFIX_LENGTH))
    return base[:_NAME_BASE_LENGTH_MAX] + suffix


def default_custom(kind: Kind, obj: Obj) -> None:
    """Prune and then default a custom object, in place."""
    if kind.schema is not None:
        schema.prune(obj, kind.schema)
        schema.apply_defaults(obj, kind.schema)


def before_create(kind: Kind, obj: Obj, *, now_s: float, rng: Random) -> None:
    """Set a new object's system fields. Reset a status that only its endpoint may set."""
    metadata = obj["metadata"]
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = generated_name(metadata["generateName"], rng)
    for field in (
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "resourceVersion",
        "selfLink",
        "managedFields",
    ):
        metadata.pop(field, None)
    metadata["uid"] = new_uid(rng)
    metadata["creationTimestamp"] = rfc3339(now_s)
    if kind.counts_generation:
        metadata["generation"] = 1
    # Kinds that do not count generations keep any non-zero generation that was sent.
    elif not metadata.get("generation"):
        metadata.pop("generation", None)
    for field in ("labels", "annotations", "ownerReferences", "finalizers"):
        if field in metadata and not metadata[field]:
            del metadata[field]
    if (initial := _INITIAL_STATUS.get(kind.resource)) is not None:
        obj["status"] = initial(obj)
    elif kind.status and kind.resource != NODES:
        obj.pop("status", None)


def _pod_status(pod: Obj) -> Obj:
    status = {"phase": "Pending", "qosClass": qos_class(pod)}
    if not pod["spec"].get("schedulingGates"):
        return status
    gated: Obj = {
        "type": "PodScheduled",
        "status": "False",
        "lastProbeTime": None,
        "lastTransitionTime": pod["metadata"]["creationTimestamp"],
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
    }
    return {**status, "conditions": [gated]}


def qos_class(pod: Obj) -> str:
    """Return Guaranteed, Burstable or BestEffort, by cpu and memory of all containers."""
    resources = [
        container.get("resources") or {} for container in pod["spec"].get("containers") or ()
    ]
    named = [
        {
            name: amount
            for name, amount in (part.get(which) or {}).items()
            if name in ("cpu", "memory")
        }
        for part in resources
        for which in ("requests", "limits")
    ]
    if not any(named):
        return "BestEffort"
    complete = all(set(part.get("limits") or {}) >= {"cpu", "memory"} for part in resources)
    equal = all(
        (part.get("requests") or {}).get(name) == (part.get("limits") or {}).get(name)
        for part in resources
        for name in ("cpu", "memory")
    )
    return "Guaranteed" if complete and equal else "Burstable"


def _definition_status(definition: Obj) -> Obj:
    names = definition["spec"]["names"]
    when = definition["metadata"]["creationTimestamp"]
    conditions = [
        ("NamesAccepted", "NoConflicts", "no conflicts found"),
        ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    ]
    return {
        "conditions": [
            {
                "type": kind,
                "status": "True",
                "lastTransitionTime": when,
                "reason": reason,
                "message": message,
            }
            for kind, reason, message in conditions
        ],
        "acceptedNames": dict(names),
        "storedVersions": [
            item["name"] for item in definition["spec"].get("versions") or () if item.get("storage")
        ],
    }


_INITIAL_STATUS: Final[dict[Resource, Callable[[Obj], Obj]]] = {
    PODS: _pod_status,
    STATEFULSETS: lambda _: {"replicas": 0, "availableReplicas": 0},
    NAMESPACES: lambda _: {"phase": "Active"},
    CRDS: _definition_status,
}

_SYSTEM_METADATA: Final = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "namespace",
    "name",
    "generateName",
    "selfLink",
    "resourceVersion",
)


def keep_system_metadata(old: Obj, new: Obj) -> None:
    """Put back the metadata that the API server sets, in place. Changes to it are ignored."""
    before, after = old["metadata"], new["metadata"]
    after.pop("managedFields", None)
    for field in _SYSTEM_METADATA:
        if field in before:
            after[field] = before[field]
        else:
            after.pop(field, None)
    for field in ("labels", "annotations", "ownerReferences", "finalizers"):
        if field in after and not after[field]:
            del after[field]


def before_update(kind: Kind, old: Obj, new: Obj) -> None:
    """Apply the strategy for a write to the object: keep the status, and count a change of spec in
    metadata.generation. In place.
    """
    keep_system_metadata(old, new)
    if kind.status:
        _keep(old, new, "status")
    if kind.counts_generation and _counted(kind, old) != _counted(kind, new):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _counted(kind: Kind, obj: Obj) -> Any:
    """Return the part of an object whose changes count: the spec; for custom kinds and kinds
    without spec, all but metadata and (if it is a subresource) status.
    """
    if kind.custom or "spec" not in obj:
        left_out = ("metadata", "status") if kind.status else ("metadata",)
        return {key: value for key, value in obj.items() if key not in left_out}
    return obj["spec"]


def before_status_update(kind: Kind, old: Obj, new: Obj) -> None:
    """Apply the strategy for a write to the status endpoint, in place."""
    if kind.custom or kind.resource == CRDS:
        status = new.get("status", _ABSENT)
        new.clear()
        new.update(old)
        # A copy, because the store sets its version.
        new["metadata"] = dict(old["metadata"])
        if status is _ABSENT:
            new.pop("status", None)
        else:
            new["status"] = status
        return
    keep_system_metadata(old, new)
    for field in old.keys() | new.keys():
        if field not in ("metadata", "status", "kind", "apiVersion"):
            _keep(old, new, field)
    if kind.resource == PODS:
        _keep(old["metadata"], new["metadata"], "ownerReferences")
        if qos := (old.get("status") or {}).get("qosClass"):
            new.setdefault("status", {})["qosClass"] = qos


def _keep(old: Obj, new: Obj, field: str) -> None:
    if field in old:
        new[field] = old[field]
    else:
        new.pop(field, None)


_ABSENT: Final = object()
