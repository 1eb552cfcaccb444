"""Strategic-merge patches between two renderings: what a kustomize component says of an object that
the base has.

Theory of operation. ``patch_of(before, after)`` is the smallest document that makes kustomize turn
one into the other: fields that differ, ``null`` for those that go, and in the lists that Kubernetes
merges by a key (``MERGE_KEYS``) the items that differ, with ``$patch: delete`` for those that go.
Other lists are replaced whole, as kustomize does. A merged list may end up in another order:
``canonical`` brings both sides of a comparison into one.
"""

from collections.abc import Mapping
from typing import Any, Final

Obj = dict[str, Any]

MERGE_KEYS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("Deployment", "containers"): ("name",),
    ("Deployment", "initContainers"): ("name",),
    ("Deployment", "volumes"): ("name",),
    ("Deployment", "volumeMounts"): ("mountPath",),
    ("Deployment", "ports"): ("containerPort", "protocol"),
    ("Deployment", "env"): ("name",),
    ("Service", "ports"): ("port", "protocol"),
    ("MutatingWebhookConfiguration", "webhooks"): ("name",),
    ("ValidatingWebhookConfiguration", "webhooks"): ("name",),
}
"""Kind and field to the fields that tell items apart, as in Kubernetes' own schema."""
DELETE: Final = {"$patch": "delete"}


def identity(obj: Mapping[str, Any]) -> tuple[str, str, str]:
    """Kind, namespace, name."""
    metadata = obj["metadata"]
    return str(obj["kind"]), str(metadata.get("namespace", "")), str(metadata["name"])


def header(obj: Mapping[str, Any]) -> Obj:
    """What names an object in a patch."""
    kind, namespace, name = identity(obj)
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"apiVersion": obj["apiVersion"], "kind": kind, "metadata": metadata}


def removal_of(obj: Mapping[str, Any]) -> Obj:
    """The patch that takes the whole object away."""
    return header(obj) | DELETE


def is_removal(patch: Mapping[str, Any]) -> bool:
    """Whether it takes the whole object away."""
    return bool(patch.get("$patch") == "delete")


def patch_of(before: Mapping[str, Any], after: Mapping[str, Any]) -> Obj | None:
    """The patch from one to the other, which are of the same kind and name; None where they are
    equal.
    """
    changes = _map_changes(str(before["kind"]), before, after)
    if not changes:
        return None
    patch = header(before)
    patch["metadata"] |= changes.pop("metadata", {})
    return patch | changes


def canonical(obj: Any, kind: str, field: str = "") -> Any:
    """The same with merged lists in the order of their keys, and without what is empty."""
    if isinstance(obj, Mapping):
        below = {name: canonical(value, kind, name) for name, value in obj.items()}
        return {name: value for name, value in below.items() if value not in ({}, None)}
    if isinstance(obj, list):
        items = [canonical(item, kind) for item in obj]
        keys = MERGE_KEYS.get((kind, field))
        return (
            sorted(items, key=lambda item: [str(item.get(key)) for key in keys]) if keys else items
        )
    return obj


def _map_changes(kind: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Obj:
    changes: Obj = {name: None for name in before if name not in after}
    for name, value in after.items():
        if name not in before:
            changes[name] = value
        elif before[name] != value:
            changes[name] = _value_changes(kind, name, before[name], value)
    return changes


def _value_changes(kind: str, field: str, before: Any, after: Any) -> Any:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return _map_changes(kind, before, after)
    keys = MERGE_KEYS.get((kind, field))
    if keys and isinstance(before, list) and isinstance(after, list):
        return _list_changes(kind, keys, before, after)
    return after


def _list_changes(
    kind: str, keys: tuple[str, ...], before: list[Obj], after: list[Obj]
) -> list[Obj]:
    def key(item: Obj) -> Obj:
        return {name: item[name] for name in keys if name in item}

    had = {tuple(key(item).items()): item for item in before}
    has = {tuple(key(item).items()) for item in after}
    changes: list[Obj] = []
    for item in after:
        old = had.get(tuple(key(item).items()))
        if old is None:
            changes.append(item)
        elif old != item:
            changes.append(key(item) | _map_changes(kind, old, item))
    return changes + [key(item) | DELETE for entry, item in had.items() if entry not in has]
