"""Reading JSON objects field by field: what ``decode`` and the sources have in common.

The readers are lenient (a field that is absent or of another type reads as empty); the checks beside them are strict
and raise InvalidObject, which names the object, the field and what is wrong.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from extender.core.errors import InvalidObject
from extender.core.model import LabelSelector, SelectorRequirement, placement_order

Json = Mapping[str, object]
EMPTY: Final[Json] = MappingProxyType({})
COUNT_MAX: Final = 2**31 - 1


def mapping(obj: Json, *path: str) -> Json:
    """The mapping at ``path``, or an empty one."""
    value = value_at(obj, path)
    return value if isinstance(value, Mapping) else EMPTY


def value_at(obj: Json, path: Sequence[str]) -> object:
    """Whatever stands at ``path``; None where there is nothing."""
    value: object = obj
    for step in path:
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def sequence(obj: Json, *path: str) -> Sequence[object]:
    """The list at ``path``, or an empty one."""
    value = mapping(obj, *path[:-1]).get(path[-1])
    return value if isinstance(value, list) else ()


def text(obj: Json, *path: str) -> str:
    """The string at ``path``, or ""."""
    value = mapping(obj, *path[:-1]).get(path[-1])
    return value if isinstance(value, str) else ""


def mappings(obj: Json, *path: str) -> list[Json]:
    """The mappings in the list at ``path``."""
    return [item for item in sequence(obj, *path) if isinstance(item, Mapping)]


def labels_of(raw: Json) -> Mapping[str, str]:
    """Labels: the entries whose value is a string."""
    return MappingProxyType({key: value for key, value in raw.items() if isinstance(value, str)})


def selector_from(raw: Json) -> LabelSelector:
    """A metav1.LabelSelector."""
    return LabelSelector(
        match_labels=labels_of(mapping(raw, "matchLabels")),
        match_expressions=tuple(
            SelectorRequirement(
                key=text(item, "key"),
                operator=text(item, "operator"),
                values=tuple(str(value) for value in sequence(item, "values")),
            )
            for item in mappings(raw, "matchExpressions")
        ),
    )


def count(value: object, subject: str, field: str, *, default: int | None = None, minimum: int = 0) -> int:
    """A count, int32. Raises InvalidObject; None is the default, and an error where there is none."""
    if value is None and default is not None:
        return default
    if value is None:
        raise InvalidObject(subject, field, "is required")
    if type(value) is not int or not minimum <= value <= COUNT_MAX:
        raise InvalidObject(
            subject, field, f"must be an integer from {minimum} to {COUNT_MAX}, not {value!r:.50}"
        )
    return value


def placements_from(
    listed: object, subject: str, field: str, *, pod_name: str = "podName", vreplicas: str = "vreplicas"
) -> Mapping[str, int]:
    """Published placements: pod name -> vreplicas, by ordinal, entries of 0 with them; double ones of a pod are summed.

    ``pod_name``, ``vreplicas``: the keys in one entry of the list. Raises InvalidObject: an entry that is not
    understood must not read as vreplicas without a place, or they would move.
    """
    if listed is not None and not isinstance(listed, list):
        raise InvalidObject(subject, field, "must be a list")
    placements: dict[str, int] = {}
    for index, item in enumerate(listed or ()):
        place = f"{field}[{index}]"
        if not isinstance(item, Mapping):
            raise InvalidObject(subject, place, "must be a mapping")
        amount, pod = item.get(vreplicas), text(item, pod_name)
        if type(amount) is not int or not 0 <= amount <= COUNT_MAX:
            raise InvalidObject(subject, f"{place}.{vreplicas}", "must be a count")
        if not pod:
            raise InvalidObject(subject, f"{place}.{pod_name}", "is required")
        placements[pod] = placements.get(pod, 0) + amount
    return MappingProxyType(dict(sorted(placements.items(), key=lambda entry: placement_order(entry[0]))))
