"""Structural schemas of custom resources: defaulting, pruning and validation.

These keywords of structural OpenAPI v3 schemas are supported: ``type, properties, required, enum,
minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf, minLength, maxLength, pattern,
items, minItems, maxItems, uniqueItems, minProperties, maxProperties, additionalProperties,
nullable, default, allOf, anyOf, oneOf, not, x-kubernetes-int-or-string,
x-kubernetes-preserve-unknown-fields, x-kubernetes-embedded-resource, x-kubernetes-list-type``
(``map`` and ``set``), and ``format`` with ``int32``, ``int64`` and ``date-time``.

``rules`` checks the CEL rules (``x-kubernetes-validations``).
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

import orjson

from extender.lab.apiserver.field_errors import duplicate, invalid, required, shown
from extender.lab.apiserver.store import identical

Schema = Mapping[str, Any]
_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_EMBEDDED: Final = "x-kubernetes-embedded-resource"
_COMBINED: Final = frozenset({"allOf", "anyOf", "oneOf", "not"})
_TYPES: Final[Mapping[type, str]] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}
_ANYTHING: Final[Mapping[str, Any]] = {_PRESERVE: True}
_METADATA_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata"})


def apply_defaults(value: Any, schema: Schema) -> None:
    """Set each ``default`` where the field is absent, or is null and not nullable. In place."""
    if isinstance(value, dict):
        for name, sub in (schema.get("properties") or {}).items():
            if name in value and value[name] is None and not sub.get("nullable"):
                del value[name]
            if name not in value and "default" in sub:
                value[name] = orjson.loads(orjson.dumps(sub["default"]))
            if name in value:
                apply_defaults(value[name], sub)
        additional = schema.get("additionalProperties")
        if isinstance(additional, dict):
            for name in value.keys() - (schema.get("properties") or {}).keys():
                apply_defaults(value[name], additional)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for item in value:
            apply_defaults(item, schema["items"])


def prune(value: Any, schema: Schema, *, is_root: bool = True) -> None:
    """Remove fields that the schema does not specify, in place. The object's own metadata stays."""
    if isinstance(value, dict):
        _prune_mapping(value, schema, is_root=is_root)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for item in value:
            prune(item, schema["items"], is_root=False)


def _prune_mapping(value: dict[str, Any], schema: Schema, *, is_root: bool) -> None:
    properties = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    keeps_unknown = bool(schema.get(_PRESERVE)) or additional is True
    for name in list(value):
        if (is_root or schema.get(_EMBEDDED)) and name in _METADATA_FIELDS:
            continue
        if name in properties:
            prune(value[name], properties[name], is_root=False)
        elif isinstance(additional, dict):
            prune(value[name], additional, is_root=False)
        elif not keeps_unknown:
            del value[name]


def new_problems(obj: dict[str, Any], old: dict[str, Any] | None, schema: Schema) -> Iterator[str]:
    """As ``problems`` for a whole object, except for top-level fields that equal those of ``old``.

    The API server does the same (CRDValidationRatcheting), so that an object that became invalid by
    a new schema can still be changed.
    """
    properties = schema.get("properties") or {}
    same = [
        name
        for name in properties
        if old is not None and name in obj and identical(obj[name], old.get(name))
    ]
    if same:
        schema = {**schema, "properties": {**properties, **dict.fromkeys(same, _ANYTHING)}}
    yield from problems(obj, schema)


def problems(value: Any, schema: Schema, path: str = "") -> Iterator[str]:
    """Yield all violations in Kubernetes' words: ``spec.vreplicas: Invalid value: -1: ...``."""
    if value is None:
        if not schema.get("nullable") and _type(schema) != "None":
            yield _of_wrong_type(path, "null", schema)
        return
    found = _TYPES[type(value)]
    if not _has_type(value, found, schema):
        yield _of_wrong_type(path, found, schema)
        return
    if (allowed := schema.get("enum")) is not None and value not in allowed:
        yield (
            f"{path}: Unsupported value: {shown(value)}: supported values: "
            f"{', '.join(map(shown, allowed))}"
        )
    if (check := _CHECKS.get(found)) is not None:
        yield from check(value, schema, path)
    if not _COMBINED.isdisjoint(schema):
        yield from _combinations(value, schema, path)


def _invalid(path: str, value: object, why: str) -> str:
    return invalid(path, value, f"{path} in body {why}")


def _of_wrong_type(path: str, found: str, schema: Schema) -> str:
    return _invalid(path, found, f'must be of type {_type(schema)}: "{found}"')


def _type(schema: Schema) -> str:
    return "integer,string" if schema.get(_INT_OR_STRING) else str(schema.get("type"))


def _has_type(value: Any, found: str, schema: Schema) -> bool:
    if schema.get(_INT_OR_STRING):
        return found in ("integer", "string")
    wanted = schema.get("type")
    if wanted is None or wanted == found:
        return True
    if wanted == "number":
        return found == "integer"
    return wanted == "integer" and found == "number" and float(value).is_integer()


def _number(value: float, schema: Schema, path: str) -> Iterator[str]:
    low, high, step = schema.get("minimum"), schema.get("maximum"), schema.get("multipleOf")
    if isinstance(value, int):  # the real server compares an integer with truncated limits
        low, high = (None if limit is None else int(limit) for limit in (low, high))
    if low is not None and (value < low or (schema.get("exclusiveMinimum") and value == low)):
        relation = "greater than" if schema.get("exclusiveMinimum") else "greater than or equal to"
        yield _invalid(path, value, f"should be {relation} {low}")
    if high is not None and (value > high or (schema.get("exclusiveMaximum") and value == high)):
        relation = "less than" if schema.get("exclusiveMaximum") else "less than or equal to"
        yield _invalid(path, value, f"should be {relation} {high}")
    if step is not None and not math.isclose(
        value / step, round(value / step), rel_tol=0, abs_tol=1e-9
    ):
        yield _invalid(path, value, f"should be a multiple of {step}")
    bits = {"int32": 31, "int64": 63}.get(str(schema.get("format")))
    if bits is not None and not -(2**bits) <= value < 2**bits:
        yield _invalid(path, value, f"must be of type {schema['format']}")


def _string(value: str, schema: Schema, path: str) -> Iterator[str]:
    shortest, longest = schema.get("minLength"), schema.get("maxLength")
    if shortest is not None and len(value) < shortest:
        yield _invalid(path, value, f"should be at least {shortest} chars long")
    if longest is not None and len(value) > longest:
        yield f"{path}: Too long: may not be more than {longest} bytes"
    if (pattern := schema.get("pattern")) is not None and not re.search(pattern, value):
        yield _invalid(path, value, f"should match '{pattern}'")
    if schema.get("format") == "date-time" and not _is_date_time(value):
        yield _invalid(path, value, f"must be of type date-time: {shown(value)}")


def _is_date_time(value: str) -> bool:
    """Return whether the text is a time with a time zone."""
    try:
        return datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def _array(value: list[Any], schema: Schema, path: str) -> Iterator[str]:
    fewest, most, items = schema.get("minItems"), schema.get("maxItems"), schema.get("items")
    if fewest is not None and len(value) < fewest:
        yield _invalid(path, len(value), f"should have at least {fewest} items")
    if most is not None and len(value) > most:
        yield f"{path}: Too many: {len(value)}: must have at most {most} items"
        return
    yield from _duplicates(value, schema, path)
    if isinstance(items, dict):
        for at, item in enumerate(value):
            yield from problems(item, items, f"{path}[{at}]")


def _duplicates(value: list[Any], schema: Schema, path: str) -> Iterator[str]:
    """Yield repeated elements of a ``set`` or ``map`` (by key) or with ``uniqueItems``."""
    kind = schema.get("x-kubernetes-list-type")
    if kind not in ("set", "map") and not schema.get("uniqueItems"):
        return
    seen = set()
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    for at, item in enumerate(value):
        identity = (
            {key: item.get(key) for key in keys}
            if kind == "map" and isinstance(item, dict)
            else item
        )
        text = orjson.dumps(identity, option=orjson.OPT_SORT_KEYS)
        if text in seen:
            yield duplicate(f"{path}[{at}]", orjson.loads(text))
        seen.add(text)


def _object(value: dict[str, Any], schema: Schema, path: str) -> Iterator[str]:
    prefix = f"{path}." if path else ""
    properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
    fewest, most = schema.get("minProperties"), schema.get("maxProperties")
    if fewest is not None and len(value) < fewest:
        yield _invalid(path, len(value), f"should have at least {fewest} properties")
    if most is not None and len(value) > most:
        yield f"{path}: Too many: {len(value)}: must have at most {most} items"
    for name in schema.get("required") or ():
        if name not in value:
            yield required(f"{prefix}{name}")
    for name, item in value.items():
        if name in properties:
            if path or name not in _METADATA_FIELDS:
                yield from problems(item, properties[name], f"{prefix}{name}")
            elif name == "metadata":
                yield from _names(item, properties[name])
        elif isinstance(additional, dict):
            yield from problems(item, additional, f"{prefix}{name}")


def _names(metadata: dict[str, Any], schema: Schema) -> Iterator[str]:
    """Check name and generateName, the only metadata that a schema may restrict."""
    for name in ("name", "generateName"):
        if metadata.get(name) and name in (schema.get("properties") or {}):
            yield from problems(metadata[name], schema["properties"][name], f"metadata.{name}")


def _combinations(value: Any, schema: Schema, path: str) -> Iterator[str]:
    for sub in schema.get("allOf") or ():
        yield from problems(value, sub, path)
    options = schema.get("anyOf")
    # A structural int-or-string has anyOf [integer, string] beside the flag. _has_type has checked
    # it.
    if (
        options
        and not schema.get(_INT_OR_STRING)
        and not any(_fits(value, sub, path) for sub in options)
    ):
        yield _invalid(path, value, "must validate at least one schema (anyOf)")
    options = schema.get("oneOf")
    if options and sum(_fits(value, sub, path) for sub in options) != 1:
        yield _invalid(path, value, "must validate one and only one schema (oneOf)")
    if schema.get("not") and _fits(value, schema["not"], path):
        yield _invalid(path, value, "must not validate the schema (not)")


def _fits(value: Any, schema: Schema, path: str) -> bool:
    return next(problems(value, schema, path), None) is None


_CHECKS: Final[Mapping[str, Callable[[Any, Schema, str], Iterator[str]]]] = {
    "integer": _number,
    "number": _number,
    "string": _string,
    "array": _array,
    "object": _object,
}
