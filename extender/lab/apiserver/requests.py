"""The input of a request: copied, decoded, checked against the URL, and turned into a change of an
object.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from extender.kube.api import Obj, PatchType
from extender.lab.apiserver import field_types, statuses, validation
from extender.lab.apiserver.admission import ADMIN, Attributes, User
from extender.lab.apiserver.patch import json_patch, merge_patch, strategic_merge_patch
from extender.lab.apiserver.registry import Kind
from extender.lab.apiserver.store import Collection, Entry, Key

OBJECT_BYTES_MAX: Final = 1_572_864
"""etcd's limit for a request."""
STRATEGIC_MERGE: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
Change = Callable[[Obj], Obj]
"""Stored object (a copy, to change or not) -> the wanted object. May raise ApiError."""


@dataclass(frozen=True, slots=True)
class Request:
    """The user of a request, and whether it is a dry run."""

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
        """Return the stored entry. Raises NotFound."""
        entry = self.collection.entries.get(self.key)
        if entry is None:
            raise statuses.not_found(self.kind.resource, self.key[1])
        return entry


def admission_of(
    request: Request, operation: str, target: Target, obj: Obj | None, old: Obj | None = None
) -> Attributes:
    """Return what admission sees of a request for ``target``."""
    return Attributes(
        operation=operation,
        kind=target.kind,
        namespace=target.key[0],
        name=target.key[1],
        user=request.user,
        object=obj,
        old=old,
        subresource=target.subresource,
        dry_run=request.dry_run,
    )


def received(kind: Kind, namespace: str, obj: Obj) -> Obj:
    """Return a copy of the request's object, with apiVersion, kind and namespace filled in and
    checked. Raises ApiError 400.
    """
    new = own_request(obj)
    resource = kind.resource
    if not isinstance(new, dict) or not isinstance(new.setdefault("metadata", {}), dict):
        raise statuses.bad_request("the object provided is unrecognized: it has no metadata")
    if new.setdefault("apiVersion", resource.api_version) != resource.api_version:
        if not kind.custom:
            words = f"cannot be handled as a {resource.kind}: no such kind is registered"
            raise statuses.bad_request(f'{resource.kind} in version "{new["apiVersion"]}" {words}')
        words = f"does not match the expected API version ({resource.api_version})"
        raise statuses.bad_request(f"the API version in the data ({new['apiVersion']}) {words}")
    if new.setdefault("kind", resource.kind) != resource.kind:
        if kind.custom:
            found = f'kind: Invalid value: "{new["kind"]}": must be {resource.kind}'
            other = replace(resource, kind=str(new["kind"]))
            raise statuses.invalid(other, str(new["metadata"].get("name") or ""), [found])
        words = (
            f'{new["kind"]} in version "{resource.version}" cannot be handled as a {resource.kind}'
        )
        raise statuses.bad_request(words)
    if b"null" in orjson.dumps(new):
        without_nulls(new["metadata"] if kind.custom else new)
    if problem := field_types.problem(kind, new):
        words = (
            f'{resource.kind} in version "{resource.version}" cannot be handled as a '
            f"{resource.kind}"
        )
        raise statuses.bad_request(f"{words}: {problem}")
    metadata = new["metadata"]
    if not resource.namespaced:
        metadata.pop("namespace", None)
        return new
    if metadata.setdefault("namespace", namespace) != namespace or not namespace:
        raise statuses.other_namespace()
    return new


def check_wanted(target: Target, before: Entry, new: Obj, *, patched: bool) -> list[str]:
    """Check the preconditions in the wanted object. Return the other problems of its metadata, for
    validation.

    In a PUT, the uid is a precondition. In a patch it is only a field that may not change. Raises
    Conflict, Invalid if the result is no object of the kind or lacks a required version, ApiError
    400 for another name, and 500 for a version that is no number.
    """
    resource, (namespace, name) = target.kind.resource, target.key
    if patched:
        if target.kind.custom and not (
            isinstance(new.get("metadata"), dict) and new["metadata"].get("name")
        ):
            why = (
                f"the name of the object ({name} based on URL) was undeterminable: name must be "
                f"provided"
            )
            raise statuses.bad_request(why)
        _check_patched(target, before, new)
    metadata = new["metadata"]
    uid, version = str(metadata.get("uid") or ""), str(metadata.get("resourceVersion") or "")
    if uid and uid != before.uid and not patched:
        raise statuses.precondition_failed(resource, target.key, "UID", uid, before.uid)
    if metadata.get("name") != name:
        raise statuses.other_name(metadata.get("name"), name)
    if target.kind.resource.namespaced and metadata.get("namespace", namespace) != namespace:
        raise statuses.other_namespace()
    if version not in ("", "0"):
        if not version.isascii() or not version.isdigit():
            raise statuses.unparsable_version(version)
        if version != str(before.version):
            raise statuses.modified(resource, name)
    elif not target.kind.unconditional_update:
        raise statuses.unnamed_version(resource, name)
    keeps_metadata = target.kind.custom and target.subresource == "status"
    return (
        []
        if keeps_metadata
        else list(validation.fixed_metadata_problems(before.obj["metadata"], metadata))
    )


def _check_patched(target: Target, before: Entry, new: Obj) -> None:
    """Check that the patched object still is an object of the kind. Raises Invalid."""
    resource = target.kind.resource
    for field, wanted in (("kind", resource.kind), ("apiVersion", resource.api_version)):
        if new.get(field) != wanted and target.kind.custom:
            found = f'{field}: Invalid value: "{new.get(field)}": must be {wanted}'
            other = replace(resource, kind=str(new.get("kind")))
            raise statuses.invalid(other, target.key[1], [found])
        if new.get(field) != wanted:
            raise statuses.undecodable_patch(
                f"no kind {new.get('kind')!r} is registered for {wanted!r}"
            )
    if not isinstance(new.get("metadata"), dict):
        raise statuses.undecodable_patch("metadata must be an object")
    if problem := field_types.problem(target.kind, new, before.obj):
        raise statuses.undecodable_patch(problem)


def own_request(value: Any) -> Any:
    """Return a copy of a request's body. Raises ApiError 400 (not JSON), 413 (too large)."""
    try:
        raw = orjson.dumps(value)
    except TypeError as problem:
        raise statuses.bad_request(f"the object provided is not JSON: {problem}") from problem
    if len(raw) > OBJECT_BYTES_MAX:
        raise statuses.too_large(f"limit is {OBJECT_BYTES_MAX}")
    return orjson.loads(raw)


def patch_change(kind: Kind, patch: Any, patch_type: PatchType | str) -> Change:
    """Return a patch as a change, which copies ``patch`` each time. Raises ApiError 400, 415."""
    apply = _PATCHES.get(patch_type)
    if apply is None or (patch_type == STRATEGIC_MERGE and kind.custom):
        raise statuses.unsupported_media_type(f"{PatchType.JSON}, {PatchType.MERGE}, {APPLY_PATCH}")
    if patch_type == PatchType.JSON:
        if not isinstance(patch, list) or not all(
            isinstance(operation, dict) for operation in patch
        ):
            raise statuses.bad_request("error decoding patch: a JSON patch is a list of operations")
    elif not isinstance(patch, dict):
        raise statuses.bad_request("error decoding patch: a merge patch is an object")
    raw = orjson.dumps(patch)
    # An operation of a JSON patch that has no value adds null.
    nulls = b"null" in raw or patch_type == PatchType.JSON

    def change(obj: Obj) -> Obj:
        changed = apply(obj, orjson.loads(raw))
        # To search the bytes is faster than to look at every field, and a null is rare.
        if nulls and b"null" in orjson.dumps(changed):
            without_nulls(changed.get("metadata") if kind.custom else changed)
        return changed

    return change


def without_nulls(value: Any) -> Any:
    """Drop null fields at any depth, in place. As in Go, null means absent in built-in kinds."""
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
