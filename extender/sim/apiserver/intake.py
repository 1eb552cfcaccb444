"""What a request brings, made ours: copied, decoded, checked against the URL, and turned into a change of an object."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from extender.kube.api import ApiError, Obj, PatchType
from extender.sim.apiserver import shapes, statuses
from extender.sim.apiserver.admission import ADMIN, User
from extender.sim.apiserver.patch import json_patch, merge_patch, strategic_merge_patch
from extender.sim.apiserver.registry import Kind
from extender.sim.apiserver.store import Collection, Entry, Key

OBJECT_BYTES_MAX: Final = 1_572_864
"""etcd's limit of a request."""
STRATEGIC_MERGE: Final = "application/strategic-merge-patch+json"
Change = Callable[[Obj], Obj]
"""Stored object (a copy, to be changed in place or not) -> the object wanted. May raise ApiError."""


@dataclass(frozen=True, slots=True)
class Request:
    """Who asks, and whether nothing is to be stored."""

    user: User = ADMIN
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    """The object that a request names. ``subresource`` is "", "status", "scale" or "binding"."""

    kind: Kind
    collection: Collection
    key: Key
    subresource: str = ""

    def entry(self) -> Entry:
        """What is stored. Raises NotFound."""
        entry = self.collection.entries.get(self.key)
        if entry is None:
            raise statuses.not_found(self.kind.resource, self.key[1])
        return entry


def received(kind: Kind, namespace: str, obj: Obj) -> Obj:
    """The request's object, our own copy, with its type and namespace settled. Raises ApiError 400."""
    new = own_request(obj)
    resource = kind.resource
    if not isinstance(new, dict) or not isinstance(new.setdefault("metadata", {}), dict):
        raise statuses.bad_request("the object provided is unrecognized: it has no metadata")
    for field, wanted in (("apiVersion", resource.api_version), ("kind", resource.kind)):
        if new.setdefault(field, wanted) != wanted:
            words = f"the object provided is unrecognized (must be of type {resource.kind})"
            raise statuses.bad_request(f"{words}: {field} is {new[field]!r}, wanted {wanted!r}")
    if not kind.custom:
        without_nulls(new)
    shapes.check(kind, new)
    metadata = new["metadata"]
    if not resource.namespaced:
        metadata.pop("namespace", None)
        return new
    if metadata.setdefault("namespace", namespace) != namespace or not namespace:
        raise statuses.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    return new


def check_wanted(target: Target, before: Entry, new: Obj) -> None:
    """Preconditions in the wanted object. Raises Conflict, or ApiError 400 for another name or kind."""
    resource, (_, name) = target.kind.resource, target.key
    metadata = new.get("metadata")
    if not isinstance(metadata, dict):
        raise statuses.bad_request("the object provided is unrecognized: it has no metadata")
    uid, version = str(metadata.get("uid") or ""), str(metadata.get("resourceVersion") or "")
    if uid and uid != before.uid:
        raise statuses.precondition_failed(resource, name, "UID", uid, before.uid)
    if version and version != str(before.version):
        raise statuses.modified(resource, name)
    if (new.get("apiVersion"), new.get("kind")) != (resource.api_version, resource.kind):
        raise statuses.bad_request("the apiVersion and kind of an object cannot be changed")
    if metadata.get("name", name) != name or metadata.get("namespace", target.key[0]) != target.key[0]:
        raise statuses.bad_request("the name of the object does not match the name on the URL")
    shapes.check(target.kind, new, before.obj)


def own_request(value: Any) -> Any:
    """Our own copy of what a request brought. Raises ApiError 400 for what is not JSON, 413 for too much."""
    try:
        raw = orjson.dumps(value)
    except TypeError as problem:
        raise statuses.bad_request(f"the object provided is not JSON: {problem}") from problem
    if len(raw) > OBJECT_BYTES_MAX:
        words = f"Request entity too large: limit is {OBJECT_BYTES_MAX}"
        raise ApiError(413, "RequestEntityTooLarge", words)
    return orjson.loads(raw)


def patch_change(kind: Kind, patch: Any, patch_type: PatchType | str) -> Change:
    """A patch as a change. ``patch`` is ours; each attempt applies a copy of it. Raises ApiError 400, 415."""
    apply = _PATCHES.get(patch_type)
    if apply is None or (patch_type == STRATEGIC_MERGE and kind.custom):
        raise statuses.unsupported_media_type(f"{PatchType.JSON}, {PatchType.MERGE}")
    if patch_type == PatchType.JSON:
        if not isinstance(patch, list) or not all(isinstance(operation, dict) for operation in patch):
            raise statuses.bad_request("error decoding patch: a JSON patch is a list of operations")
    elif not isinstance(patch, dict):
        raise statuses.bad_request("error decoding patch: a merge patch is an object")
    raw = orjson.dumps(patch)
    nulls = b"null" in raw and not kind.custom

    def change(obj: Obj) -> Obj:
        changed = apply(obj, orjson.loads(raw))
        return without_nulls(changed) if nulls else changed

    return change


def without_nulls(value: Any) -> Any:
    """Drop null fields, at any depth and in place: for a built-in kind null is absent, as Go decodes it."""
    if isinstance(value, dict):
        for name in [name for name, item in value.items() if item is None]:
            del value[name]
        for item in value.values():
            without_nulls(item)
    elif isinstance(value, list):
        for item in value:
            without_nulls(item)
    return value


_PATCHES: Final[Mapping[str, Callable[[Obj, Any], Obj]]] = {
    PatchType.JSON: json_patch,
    PatchType.MERGE: merge_patch,
    STRATEGIC_MERGE: strategic_merge_patch,
}
