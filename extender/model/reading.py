"""Readers of JSON fields, for ``decode`` and the sources.

The readers are lenient: a field that is absent or of another type reads as empty. The checks are
strict and raise InvalidObject, which names the object, the field and the problem.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeGuard

import orjson

from extender.model.errors import InvalidObject
from extender.model.objects import LabelSelector, SelectorRequirement, object_key, placement_order
from extender.model.safe_repr import safe_repr

Json = Mapping[str, object]
_PLAIN: Final = (dict, MappingProxyType)
"""The types of decoded JSON and of our own values. They are checked first, since a check against an
abstract class takes many times as long.
"""
EMPTY: Final[Json] = MappingProxyType({})
COUNT_MAX: Final = 2**31 - 1
DEPTH_MAX: Final = 100
"""Levels of nesting in a file. An object of the API has about twenty."""
CONTAINERS_MAX: Final = 20_000
"""Objects and lists of a document. Each ``BYTES_PER_CONTAINER`` of it allow one more: a node has
one in 80 bytes.
"""
BYTES_PER_CONTAINER: Final = 64
SEPARATORS_MAX: Final = 30_000
"""Commas, likewise. A request about nodes has up to 20,000 short names."""
BYTES_PER_SEPARATOR: Final = 32
COUNTED_BYTES: Final = 256 * 1024
TEXT_CHARS_MAX: Final = 253
"""Length of an item that should be a text and is not. No label is longer."""


def decode_json(body: bytes) -> object:
    """Decode the JSON of a request. Raises ValueError if it is no JSON, or has too much structure
    to be decoded.
    """
    if problem := structure_problem(body):
        raise ValueError(problem)
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error}") from error


def structure_problem(text: bytes) -> str:
    """Why JSON must not be decoded, "" if it may be.

    An object of a few bytes takes 200 once it is decoded, so a limit for bytes alone does not bound
    memory. Braces and commas in strings count too: API objects have few of them.
    """
    containers_max = CONTAINERS_MAX + len(text) // BYTES_PER_CONTAINER
    separators_max = SEPARATORS_MAX + len(text) // BYTES_PER_SEPARATOR
    containers = separators = 0
    # Count in slices: a document that is all structure takes long to count, but soon exceeds the
    # limit.
    for start in range(0, len(text), COUNTED_BYTES):
        end = start + COUNTED_BYTES
        containers += text.count(b"{", start, end) + text.count(b"[", start, end)
        separators += text.count(b",", start, end)
        if containers > containers_max:
            return f"has over {containers_max} objects and lists in {len(text)} bytes"
        if separators > separators_max:
            return f"has over {separators_max} values in {len(text)} bytes"
    return ""


def mapping(obj: Json, *path: str) -> Json:
    """The mapping at ``path``, or an empty one."""
    value: object = obj
    for step in path:
        if type(value) is not dict:
            value = value_at(obj, path)
            break
        value = value.get(step)
    return value if type(value) is dict or _is_mapping(value) else EMPTY


def _is_mapping(value: object) -> TypeGuard[Json]:
    return isinstance(value, _PLAIN) or (value is not None and isinstance(value, Mapping))


def value_at(obj: Json, path: Sequence[str]) -> object:
    """The value at ``path``; None if there is none."""
    value: object = obj
    for step in path:
        if isinstance(value, dict):
            value = value.get(step)
        elif value is None:
            return None
        else:
            value = value.get(step) if _is_mapping(value) else None
    return value


def sequence(obj: Json, *path: str) -> Sequence[object]:
    """The list at ``path``, or an empty one."""
    value: object = obj
    for step in path:
        if type(value) is not dict:
            value = value_at(obj, path)
            break
        value = value.get(step)
    return value if isinstance(value, list) else ()


def text(obj: Json, *path: str) -> str:
    """The string at ``path``, or ""."""
    value: object = obj
    for step in path:
        # The loop of ``value_at`` for plain JSON, in place: it runs for every field of every event.
        if type(value) is not dict:
            value = value_at(obj, path)
            break
        value = value.get(step)
    return value if isinstance(value, str) else ""


def mappings(obj: Json, *path: str) -> list[Json]:
    """The mappings in the list at ``path``."""
    return [item for item in sequence(obj, *path) if type(item) is dict or _is_mapping(item)]


def texts(obj: Json, *path: str) -> tuple[str, ...]:
    """The items of the list at ``path`` as texts. An item that is none, such as a number, becomes
    its ``repr``.
    """
    return tuple(
        value if isinstance(value, str) else safe_repr(value, TEXT_CHARS_MAX)
        for value in sequence(obj, *path)
    )


def condition_in(obj: Json, kind: str) -> Json:
    """The condition of that type in ``status.conditions``, an empty mapping if there is none."""
    conditions = mappings(obj, "status", "conditions")
    return next((one for one in conditions if one.get("type") == kind), {})


def labels_of(raw: Json) -> Mapping[str, str]:
    """The labels: entries whose value is a string."""
    return MappingProxyType({key: value for key, value in raw.items() if isinstance(value, str)})


def key_of(obj: Json) -> str:
    """``namespace/name`` of an object, or its name if it has no namespace."""
    metadata = mapping(obj, "metadata")
    return object_key(text(metadata, "namespace"), text(metadata, "name"))


def selector_from(raw: Json) -> LabelSelector:
    """Read a metav1.LabelSelector."""
    return LabelSelector(
        match_labels=labels_of(mapping(raw, "matchLabels")),
        match_expressions=tuple(
            SelectorRequirement(
                key=text(item, "key"),
                operator=text(item, "operator"),
                values=texts(item, "values"),
            )
            for item in mappings(raw, "matchExpressions")
        ),
    )


def count(
    value: object, subject: str, field: str, *, default: int | None = None, minimum: int = 0
) -> int:
    """Read an int32 count; ``default`` for None. Raises InvalidObject, also for None without a
    default.
    """
    if value is None and default is not None:
        return default
    if value is None:
        raise InvalidObject(subject, field, "is required")
    if type(value) is not int or not minimum <= value <= COUNT_MAX:
        raise InvalidObject(
            subject,
            field,
            f"must be an integer from {minimum} to {COUNT_MAX}, not {safe_repr(value)}",
        )
    return value


def placements_from(
    listed: object,
    subject: str,
    field: str,
    *,
    pod_name: str = "podName",
    vreplicas: str = "vreplicas",
) -> Mapping[str, int]:
    """Read published placements: pod name -> vreplicas, by ordinal, including entries of 0. Several
    entries of one pod are summed.

    ``pod_name``, ``vreplicas``: the keys in one entry. Raises InvalidObject for an entry that
    cannot be read. If it were skipped, its vreplicas would seem to have no place, and would move.
    """
    if listed is not None and not isinstance(listed, list):
        raise InvalidObject(subject, field, "must be a list")
    placements: dict[str, int] = {}
    for index, item in enumerate(listed or ()):
        if type(item) is not dict and not _is_mapping(item):
            raise InvalidObject(subject, f"{field}[{index}]", "must be a mapping")
        amount, pod = item.get(vreplicas), item.get(pod_name)
        if type(amount) is not int or not 0 <= amount <= COUNT_MAX:
            raise InvalidObject(subject, f"{field}[{index}].{vreplicas}", "must be a count")
        if not isinstance(pod, str) or not pod:
            raise InvalidObject(subject, f"{field}[{index}].{pod_name}", "is required")
        placements[pod] = placements.get(pod, 0) + amount
    return MappingProxyType(
        {name: placements[name] for name in sorted(placements, key=placement_order)}
    )


def refuse_strange(document: object, subject: str) -> None:
    """Refuse values that a file can have and no configuration or manifest needs. Raises
    InvalidObject with the place.

    They are keys that are no strings, halves of a surrogate pair, numbers of more than 64 bits, and
    more than ``DEPTH_MAX`` levels. They break sorting, printing and writing. Readers of the
    document need not handle them after this check. A value that aliases repeat is checked once.
    """
    pending: list[tuple[str, object, int]] = [("", document, 0)]
    seen: set[int] = set()
    while pending:
        place, value, depth = pending.pop()
        problem = _strange(value, depth)
        if problem:
            raise InvalidObject(subject, place, problem)
        if not isinstance(value, Mapping | list) or id(value) in seen:
            continue
        seen.add(id(value))
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, inner in items:
            if isinstance(value, list):
                pending.append((f"{place}[{key}]", inner, depth + 1))
            elif not isinstance(key, str) or _strange(key, depth):
                raise InvalidObject(
                    subject, place, f"{safe_repr(key)} as a key: must be a string, in quotes"
                )
            else:
                pending.append((f"{place}.{key}" if place else key, inner, depth + 1))


def _strange(value: object, depth: int) -> str:
    match value:
        case str() if any("\ud800" <= character <= "\udfff" for character in value):
            return "is not Unicode: half of a surrogate pair"
        case int() if value.bit_length() > 64:
            return "is a number of more than 64 bits"
        case Mapping() | list() if depth > DEPTH_MAX:
            return f"is nested deeper than {DEPTH_MAX} levels"
        case _:
            return ""
