"""The scale subresource: an autoscaling/v1 Scale over the fields in which a kind keeps its
replicas.
"""

from dataclasses import replace
from typing import Any, Final

from extender.kube.api import Obj, Resource
from extender.lab.apiserver.registry import Kind, ScalePaths
from extender.lab.apiserver.selectors import selector_text
from extender.lab.apiserver.statuses import (
    bad_request,
    conflict,
    invalid,
    modified,
    no_such_resource,
    other_name,
    undecodable_patch,
    unparsable_version,
)
from extender.lab.apiserver.store import Entry

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
    """Return the Scale of an object. It shares nothing with the object."""
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
        # Go leaves out a zero here, but not in the status.
        "spec": {"replicas": replicas} if (replicas := _at(obj, paths.spec_replicas)) else {},
        "status": status,
    }


def check_sent(scale: Obj, name: str) -> None:
    """Check a Scale that was sent. Raises ApiError 400 if it is no Scale or has another name."""
    if problem := _type_problem(scale):
        raise bad_request(f'Scale in version "v1" cannot be handled as a Scale: {problem}')
    if (found := (scale.get("metadata") or {}).get("name", name)) != name:
        raise other_name(found, name)


def _type_problem(scale: Obj) -> str:
    metadata, spec = scale.get("metadata") or {}, scale.get("spec") or {}
    if not isinstance(spec, dict) or not isinstance(metadata, dict):
        return "metadata and spec must be objects"
    replicas = spec.get("replicas")
    if replicas is not None and (not isinstance(replicas, int) or isinstance(replicas, bool)):
        return "spec.replicas must be an integer"
    return ""


def check_scale(kind: Kind, entry: Entry, scale: Obj) -> None:
    """Check the preconditions and values of a Scale to be written. Raises Conflict, Invalid."""
    if problem := _type_problem(scale):
        raise undecodable_patch(problem)
    metadata, spec = scale.get("metadata") or {}, scale.get("spec") or {}
    replicas = spec.get("replicas") or 0
    if replicas < 0:
        words = f"spec.replicas: Invalid value: {replicas}: must be greater than or equal to 0"
        raise invalid(_SCALE, entry.key[1], [words])
    uid, version = str(metadata.get("uid") or ""), str(metadata.get("resourceVersion") or "")
    if uid and uid != entry.uid:
        failed = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {entry.uid}"
        raise conflict(
            replace(kind.resource, plural=f"{kind.resource.plural}/scale"), entry.key[1], failed
        )
    if (name := metadata.get("name", entry.key[1])) != entry.key[1]:
        raise other_name(name, entry.key[1])
    if version not in ("", "0"):
        if not version.isascii() or not version.isdigit():
            raise unparsable_version(version)
        if version != str(entry.version):
            raise modified(kind.resource, entry.key[1])


def set_replicas(kind: Kind, obj: Obj, replicas: int) -> None:
    """Set an object's replicas, in place."""
    *parents, field = _paths(kind).spec_replicas
    place = obj
    for step in parents:
        place = place.setdefault(step, {})
    place[field] = replicas
