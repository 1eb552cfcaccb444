"""A fast check whether a value conforms to a structural schema. Nearly every write passes it.

``schema.problems`` words every violation, so it builds paths and generators even for a valid value.
This check handles only the plain cases. True means that ``problems`` would find nothing. False
means only that ``problems`` must look.
"""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

Schema = Mapping[str, Any]

_RARE: Final = frozenset(
    {
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "multipleOf",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "minProperties",
        "maxProperties",
        "uniqueItems",
    }
)
_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_BITS: Final = {"int32": 31, "int64": 63}
_WORD_OF: Final[Mapping[type, str]] = {str: "string", int: "integer"}
_NAMES: Final = ("name", "generateName")
_ROOT_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata"})


def conforms(value: Any, schema: Schema, *, is_root: bool = False) -> bool:
    """Return whether the value surely conforms. ``is_root``: the value is a whole object."""
    if value is None:
        return bool(schema.get("nullable"))
    allowed = schema.get("enum")
    if not _RARE.isdisjoint(schema) or (allowed is not None and value not in allowed):
        return False
    kind = type(value)
    wanted = _WORD_OF.get(kind, "") if schema.get(_INT_OR_STRING) else schema.get("type")
    if kind is dict:
        return wanted in ("object", None) and _is_object(value, schema, is_root=is_root)
    check = _CHECKS.get(wanted)
    return check is not None and check[0] is kind and check[1](value, schema)


def _is_string(value: str, schema: Schema) -> bool:
    if len(value) < schema.get("minLength", 0):
        return False
    if schema.get("format") == "date-time" and not is_date_time(value):
        return False
    longest, pattern = schema.get("maxLength"), schema.get("pattern")
    if longest is not None and len(value) > longest:
        return False
    return pattern is None or re.search(pattern, value) is not None


def is_date_time(value: str) -> bool:
    """Return whether the text is a time with a time zone."""
    try:
        return datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def _is_integer(value: int, schema: Schema) -> bool:
    low, high = schema.get("minimum"), schema.get("maximum")
    if (low is not None and value < low) or (high is not None and value > high):
        return False
    bits = _BITS.get(schema.get("format", ""))
    return bits is None or -(2**bits) <= value < 2**bits


def _is_array(value: list[Any], schema: Schema) -> bool:
    most, items = schema.get("maxItems"), schema.get("items")
    if len(value) < schema.get("minItems", 0) or (most is not None and len(value) > most):
        return False
    if schema.get("x-kubernetes-list-type") in ("set", "map") and not _are_distinct(value, schema):
        return False
    return not isinstance(items, dict) or all(conforms(item, items) for item in value)


def _are_distinct(value: list[Any], schema: Schema) -> bool:
    """Return whether the elements of a ``map`` list have distinct keys. Only string keys are
    compared here: for any other list of two or more elements, return False, so that ``problems``
    looks.
    """
    if len(value) < 2:
        return True
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    if schema.get("x-kubernetes-list-type") != "map" or not all(
        type(item) is dict for item in value
    ):
        return False
    named = [tuple(item.get(key) for key in keys) for item in value]
    return all(type(part) is str for name in named for part in name) and len(set(named)) == len(
        value
    )


def _is_object(value: dict[str, Any], schema: Schema, *, is_root: bool) -> bool:
    properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
    for name in schema.get("required") or ():
        if name not in value:
            return False
    for name, item in value.items():
        sub = properties.get(name)
        if sub is None:
            if isinstance(additional, dict) and not conforms(item, additional):
                return False
        elif not is_root or name not in _ROOT_FIELDS:
            if not conforms(item, sub):
                return False
        elif name == "metadata" and not _are_names(item, sub):
            return False
    return True


def _are_names(metadata: dict[str, Any], schema: Schema) -> bool:
    properties = schema.get("properties") or {}
    return all(
        conforms(metadata[name], properties[name])
        for name in _NAMES
        if metadata.get(name) and name in properties
    )


_CHECKS: Final[Mapping[str | None, tuple[type, Callable[[Any, Schema], bool]]]] = {
    "string": (str, _is_string),
    "integer": (int, _is_integer),
    "array": (list, _is_array),
    "boolean": (bool, lambda _value, _schema: True),
}
