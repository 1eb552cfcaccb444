"""A validator for the part of JSON schema (2020-12) that our published schema uses; any other
keyword is an error.

Small on purpose: it is the other side of a comparison, and shares no code with what makes the
schema.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_SAYS_NOTHING = frozenset(
    {"$schema", "$id", "title", "description", "default", "examples", "x-reload"}
)
_TYPES = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.floor(value) == value
    ),
}


def valid(value: Any, schema: Mapping[str, Any] | bool) -> bool:
    """Whether ``value`` conforms."""
    return next(problems(value, schema), None) is None


def problems(value: Any, schema: Mapping[str, Any] | bool, path: str = "$") -> Iterator[str]:
    """What does not conform, with where it stands."""
    if isinstance(schema, bool):
        if not schema:
            yield f"{path}: nothing may stand here"
        return
    for keyword, wanted in schema.items():
        if keyword in _SAYS_NOTHING or keyword in {"then", "additionalProperties"}:
            continue
        yield from _CHECKS[keyword](value, wanted, schema, path)
    if isinstance(value, dict) and "additionalProperties" in schema:
        assert schema["additionalProperties"] is False
        for name in value.keys() - schema["properties"].keys():
            yield f"{path}.{name}: unknown"


def _same(one: Any, other: Any) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _type(value, wanted, schema, path):
    names = [wanted] if isinstance(wanted, str) else wanted
    if not any(_TYPES[name](value) for name in names):
        yield f"{path}: not {wanted}"


def _const(value, wanted, schema, path):
    if not _same(value, wanted):
        yield f"{path}: not {wanted!r}"


def _enum(value, wanted, schema, path):
    if not any(_same(value, one) for one in wanted):
        yield f"{path}: not one of {wanted}"


def _minimum(value, wanted, schema, path):
    if _TYPES["number"](value) and value < wanted:
        yield f"{path}: below {wanted}"


def _maximum(value, wanted, schema, path):
    if _TYPES["number"](value) and value > wanted:
        yield f"{path}: above {wanted}"


def _min_length(value, wanted, schema, path):
    if isinstance(value, str) and len(value) < wanted:
        yield f"{path}: shorter than {wanted}"


def _max_length(value, wanted, schema, path):
    if isinstance(value, str) and len(value) > wanted:
        yield f"{path}: longer than {wanted}"


def _pattern(value, wanted, schema, path):
    # Of JSON schema, $ is the very end.
    if isinstance(value, str) and re.search(wanted.replace("$", r"\Z"), value) is None:
        yield f"{path}: does not match {wanted}"


def _min_items(value, wanted, schema, path):
    if isinstance(value, list) and len(value) < wanted:
        yield f"{path}: fewer than {wanted}"


def _max_items(value, wanted, schema, path):
    if isinstance(value, list) and len(value) > wanted:
        yield f"{path}: more than {wanted}"


def _items(value, wanted, schema, path):
    for index, item in enumerate(value if isinstance(value, list) else ()):
        yield from problems(item, wanted, f"{path}[{index}]")


def _properties(value, wanted, schema, path):
    for name, sub in wanted.items():
        if isinstance(value, dict) and name in value:
            yield from problems(value[name], sub, f"{path}.{name}")


def _required(value, wanted, schema, path):
    for name in wanted:
        if isinstance(value, dict) and name not in value:
            yield f"{path}.{name}: is required"


def _not(value, wanted, schema, path):
    if valid(value, wanted):
        yield f"{path}: conforms to what it must not"


def _all_of(value, wanted, schema, path):
    for sub in wanted:
        yield from problems(value, sub, path)


def _if(value, wanted, schema, path):
    if valid(value, wanted):
        yield from problems(value, schema["then"], path)


_CHECKS: dict[str, Callable[[Any, Any, Any, str], Iterator[str]]] = {
    "type": _type,
    "const": _const,
    "enum": _enum,
    "minimum": _minimum,
    "maximum": _maximum,
    "minLength": _min_length,
    "maxLength": _max_length,
    "pattern": _pattern,
    "minItems": _min_items,
    "maxItems": _max_items,
    "items": _items,
    "properties": _properties,
    "required": _required,
    "not": _not,
    "allOf": _all_of,
    "if": _if,
}
