"""JSON patch (RFC 6902), merge patch (RFC 7386) and kubectl's strategic merge patch.

All of them change ``document`` in place, and parts of the patch become parts of the document. So
the caller must own both. After a patch that fails half way, the caller must discard the document.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from extender.kube.api import Obj
from extender.lab.apiserver.statuses import too_large, unprocessable_patch
from extender.lab.apiserver.store import identical, own

OPERATIONS_MAX: Final = 10_000
"""The API server's limit for the operations of one JSON patch."""
_ABSENT: Final = object()


def json_patch(document: Obj, operations: Sequence[Mapping[str, Any]]) -> Obj:
    """Apply every operation in order. Raises Invalid (422) for a failed test or missing path."""
    if len(operations) > OPERATIONS_MAX:
        raise too_large(
            f"The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got "
            f"{len(operations)}"
        )
    root: Any = document
    for operation in operations:
        apply = _OPERATIONS.get(str(operation.get("op")))
        if apply is None:
            raise unprocessable_patch(f"Unexpected kind: {operation.get('op')}")
        root = apply(root, operation)
    if not isinstance(root, dict):
        raise unprocessable_patch("the document is no longer an object")
    return root


def _pointer(operation: Mapping[str, Any], member: str = "path") -> list[str]:
    text = operation.get(member)
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise unprocessable_patch(f"{member!r} of {operation.get('op')!r} is not a JSON pointer")
    return [step.replace("~1", "/").replace("~0", "~") for step in text.split("/")[1:]]


def _value(operation: Mapping[str, Any]) -> Any:
    """Return the operation's value; a missing one is null."""
    return operation.get("value")


def _index(container: list[Any], step: str, *, past_end: bool) -> int:
    """Return a step's array index. With ``past_end`` it may be one behind the last element."""
    if step == "-" and past_end:
        return len(container)
    if not step.isascii() or not step.isdigit() or (len(step) > 1 and step[0] == "0"):
        raise unprocessable_patch(f"invalid array index {step!r}")
    index = int(step)
    if index > len(container) - (0 if past_end else 1):
        raise unprocessable_patch(f"array index {index} is out of bounds")
    return index


def _look_up(root: Any, steps: Sequence[str]) -> Any:
    """Return the value at a pointer; ``_ABSENT`` if there is none."""
    value = root
    for step in steps:
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            return _ABSENT
    return value


def _must(root: Any, steps: Sequence[str]) -> Any:
    value = _look_up(root, steps)
    if value is _ABSENT:
        raise unprocessable_patch(f"missing path: /{'/'.join(steps)}")
    return value


def _add_at(root: Any, steps: list[str], value: Any) -> Any:
    if not steps:
        return value
    container = _must(root, steps[:-1])
    if isinstance(container, dict):
        container[steps[-1]] = value
    elif isinstance(container, list):
        container.insert(_index(container, steps[-1], past_end=True), value)
    else:
        raise unprocessable_patch(f"nothing can be added at /{'/'.join(steps)}")
    return root


def _add(root: Any, operation: Mapping[str, Any]) -> Any:
    return _add_at(root, _pointer(operation), _value(operation))


def _take(root: Any, steps: list[str]) -> Any:
    _must(root, steps)
    if not steps:
        raise unprocessable_patch("the whole document cannot be removed")
    container = _must(root, steps[:-1])
    key: Any = (
        steps[-1] if isinstance(container, dict) else _index(container, steps[-1], past_end=False)
    )
    return container.pop(key)


def _remove(root: Any, operation: Mapping[str, Any]) -> Any:
    _take(root, _pointer(operation))
    return root


def _replace(root: Any, operation: Mapping[str, Any]) -> Any:
    """A missing member is added, as by evanphx/json-patch v4, which the API server uses."""
    steps, value = _pointer(operation), _value(operation)
    if not steps:
        return value
    container = _must(root, steps[:-1])
    if isinstance(container, dict):
        container[steps[-1]] = value
    elif isinstance(container, list):
        container[_index(container, steps[-1], past_end=False)] = value
    else:
        raise unprocessable_patch(f"nothing can be replaced at /{'/'.join(steps)}")
    return root


def _move(root: Any, operation: Mapping[str, Any]) -> Any:
    source, target = _pointer(operation, "from"), _pointer(operation)
    if source == target:
        _must(root, source)
        return root
    if target[: len(source)] == source:
        raise unprocessable_patch("a value cannot be moved into itself")
    return _add_at(root, target, _take(root, source))


def _copy(root: Any, operation: Mapping[str, Any]) -> Any:
    return _add_at(root, _pointer(operation), own(_must(root, _pointer(operation, "from"))))


def _test(root: Any, operation: Mapping[str, Any]) -> Any:
    steps = _pointer(operation)
    if steps:
        _must(root, steps[:-1])
    found = _look_up(root, steps)
    wanted = operation.get("value")
    # As in evanphx/json-patch, an absent value equals null.
    if not identical(None if found is _ABSENT else found, wanted):
        raise unprocessable_patch(f"testing value /{'/'.join(steps)} failed")
    return root


_OPERATIONS: Final[Mapping[str, Callable[[Any, Mapping[str, Any]], Any]]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}


def merge_patch(document: Obj, patch: Mapping[str, Any]) -> Obj:
    """Apply a merge patch (RFC 7386): objects are merged, null removes, the rest replaces."""
    for key, value in patch.items():
        if value is None:
            document.pop(key, None)
        elif isinstance(value, dict):
            current = document.get(key)
            document[key] = merge_patch(current if isinstance(current, dict) else {}, value)
        else:
            document[key] = value
    return document


MERGE_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "conditions": ("type",),
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "env": ("name",),
    "ports": ("containerPort", "port"),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "volumes": ("name",),
    "imagePullSecrets": ("name",),
    "hostAliases": ("ip",),
    "topologySpreadConstraints": ("topologyKey",),
    "schedulingGates": ("name",),
    "ownerReferences": ("uid",),
    "addresses": ("type",),
    "webhooks": ("name",),
    "secrets": ("name",),
}
"""patchMergeKey of the lists of built-in kinds. Other lists of objects are replaced whole."""
_SET_LISTS: Final = frozenset({"finalizers", "podCIDRs"})


def strategic_merge_patch(document: Obj, patch: Mapping[str, Any]) -> Obj:
    """Apply kubectl's patch for built-in kinds: a merge patch, but lists with a merge key are
    merged by element.

    The directives ``$patch: delete|replace``, ``$deleteFromPrimitiveList/F``,
    ``$setElementOrder/F`` and ``$retainKeys`` are supported.
    """
    if patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if retained := patch.get("$retainKeys"):
        for key in [key for key in document if key not in retained]:
            del document[key]
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            field = key.partition("/")[2]
            document[field] = [item for item in document.get(field) or () if item not in value]
        elif key.startswith("$"):
            continue
        else:
            _merge_field(document, key, value)
    for key, order in patch.items():
        if key.startswith("$setElementOrder/"):
            _order(document, key.partition("/")[2], order)
    return document


def _merge_field(document: Obj, key: str, value: Any) -> None:
    current = document.get(key)
    if value is None:
        document.pop(key, None)
    elif isinstance(value, dict):
        if value.get("$patch") == "delete":
            document.pop(key, None)
        else:
            document[key] = strategic_merge_patch(
                current if isinstance(current, dict) else {}, value
            )
    elif isinstance(value, list) and key in _SET_LISTS:
        present = current or []
        kept = [item for item in present if item not in value]
        document[key] = _merge_sorted(kept, value, present)
    elif isinstance(value, list) and _merge_key(key, value) is not None:
        document[key] = _merge_list(key, current or [], value)
    else:
        document[key] = value


def _merge_key(field: str, items: Sequence[Any]) -> str | None:
    """Return the merge key that all these elements of ``field`` have, if any."""
    for key in MERGE_KEYS.get(field, ()):
        if items and all(
            isinstance(item, dict) and (key in item or "$patch" in item) for item in items
        ):
            return key
    return None


def _merge_list(field: str, current: list[Any], patch: list[Any]) -> list[Any]:
    key = _merge_key(field, patch)
    if key is None:
        return patch
    if any(item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if "$patch" not in item]
    merged = {item.get(key): item for item in current}
    for item in patch:
        if item.get("$patch") == "delete":
            merged.pop(item.get(key), None)
        else:
            merged[item.get(key)] = strategic_merge_patch(merged.get(item.get(key), {}), item)
    named = [item.get(key) for item in patch if item.get(key) in merged]
    kept = [
        item.get(key) for item in current if item.get(key) in merged and item.get(key) not in named
    ]
    before = [item.get(key) for item in current]
    return [merged[name] for name in _merge_sorted(kept, named, before)]


def _merge_sorted(kept: Sequence[Any], named: Sequence[Any], before: Sequence[Any]) -> list[Any]:
    """Merge the elements that the patch left alone (``kept``) with those that it names, as
    apimachinery's mergeSortedSlice does.

    Each sequence keeps its own order. Of the two heads, the kept one comes first only if both were
    in the list before and it was in front.
    """
    left, right, merged = list(kept), list(named), []
    while left and right:
        first = right[0] in before and before.index(left[0]) < before.index(right[0])
        merged.append((left if first else right).pop(0))
    return [*merged, *left, *right]


def _order(document: Obj, field: str, order: Sequence[Any]) -> None:
    """Put the named elements into the given order. The others follow, in their old order."""
    items = document.get(field)
    if not isinstance(items, list):
        return
    key = _merge_key(field, order)
    wanted = [item[key] if key is not None else item for item in order]

    def rank(item: Any) -> int:
        name = item.get(key) if key is not None and isinstance(item, dict) else item
        return wanted.index(name) if name in wanted else len(wanted)

    document[field] = sorted(items, key=rank)
