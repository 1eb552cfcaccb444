"""The scale subresource: an autoscaling/v1 Scale over whatever fields a kind keeps its replicas in."""

from typing import Any, Final

from extender.kube.api import Obj, Resource
from extender.sim.apiserver.registry import Kind, ScalePaths
from extender.sim.apiserver.selectors import selector_text
from extender.sim.apiserver.statuses import (
    bad_request,
    invalid,
    modified,
    no_such_resource,
    precondition_failed,
)
from extender.sim.apiserver.store import Entry

SCALE_KIND: Final = ("autoscaling", "v1", "Scale")
_SCALE: Final = Resource("autoscaling", "v1", "scales", "Scale")


def _paths(kind: Kind) -> ScalePaths:
    if kind.scale is None:
        raise no_such_resource()
    return kind.scale


def _at(obj: Obj, path: tuple[str, ...]) -> Any:
    value: Any = obj
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def scale_of(kind: Kind, obj: Obj) -> Obj:
    """The Scale of an object. Shares nothing with it."""
    paths, metadata = _paths(kind), obj["metadata"]
    fields = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Obj = {"replicas": _at(obj, paths.status_replicas) or 0}
    selector = _at(obj, paths.selector) if paths.selector else None
    if selector:
        status["selector"] = selector if isinstance(selector, str) else selector_text(selector)
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {field: metadata[field] for field in fields if field in metadata},
        "spec": {"replicas": _at(obj, paths.spec_replicas) or 0},
        "status": status,
    }


def check_scale(kind: Kind, entry: Entry, scale: Obj) -> None:
    """Preconditions and values of a Scale to be written. Raises Conflict, Invalid, or ApiError 400."""
    metadata, spec = scale.get("metadata") or {}, scale.get("spec")
    if not isinstance(spec, dict) or not isinstance(metadata, dict):
        raise bad_request(f"expected input object type to be Scale, but {scale.get('kind')}")
    uid, version = str(metadata.get("uid") or ""), str(metadata.get("resourceVersion") or "")
    if uid and uid != entry.uid:
        raise precondition_failed(kind.resource, entry.key, "UID", uid, entry.uid)
    if version and version != str(entry.version):
        raise modified(kind.resource, entry.key[1])
    replicas = spec.get("replicas", 0)
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise bad_request(f"spec.replicas must be an integer, not {replicas!r}")
    if replicas < 0:
        words = f"spec.replicas: Invalid value: {replicas}: must be greater than or equal to 0"
        raise invalid(_SCALE, entry.key[1], [words])


def set_replicas(kind: Kind, obj: Obj, replicas: int) -> None:
    """Write the replicas into an object. In place."""
    *parents, field = _paths(kind).spec_replicas
    place = obj
    for step in parents:
        place = place.setdefault(step, {})
    place[field] = replicas
