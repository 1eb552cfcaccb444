"""A plugin's arguments, from a mapping (our configuration) or from JSON text (Knative's
ConfigMaps).

In both, names match in any letter case, and unknown names are refused. JSON text is read as by Go's
decoder, which Knative uses: a missing field or ``null`` is 0, text after the first value is
ignored, and a wrong type is an error.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from extender.model.amounts import SLOTS, amounts_problem
from extender.model.errors import InvalidObject
from extender.model.safe_repr import safe_repr

Arguments = Mapping[str, int | bool | str]
"""Argument name -> value, for each argument that the plugin takes."""
_INT32_MIN: Final = -(2**31)
_INT32_MAX: Final = 2**31 - 1
_GO_SPACE: Final = " \t\r\n"


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument, of type ``kind``. ``default``: None if it must be given. ``least``: for a
    number. A text is the name of a dimension, or ``slots``.
    """

    kind: type[int] | type[bool] | type[str]
    default: int | bool | str | None = None
    least: int = _INT32_MIN


Signature = Mapping[str, Argument]
NO_ARGUMENTS: Final[Signature] = MappingProxyType({})


def arguments_from(raw: object, signature: Signature, subject: str, field: str) -> Arguments:
    """Read a plugin's arguments. Raises InvalidObject, which names ``field`` of ``subject`` and the
    known names.
    """
    if isinstance(raw, str):
        given = _from_json(raw, subject, field)
        zero = True
    elif raw is None or isinstance(raw, Mapping):
        given = raw or {}
        zero = False
    else:
        raise InvalidObject(
            subject, field, f"must be an object or a text with JSON, not {safe_repr(raw)}"
        )
    names = {name.lower(): name for name in signature}
    found: dict[str, object] = {}
    for key, value in given.items():
        name = names.get(str(key).lower())
        if name is None:
            known = ", ".join(signature) or "none"
            raise InvalidObject(subject, f"{field}.{key}", f"is not known (known: {known})")
        if value is not None:
            found[name] = value
    return {
        name: _value(found.get(name), argument, zero, subject, f"{field}.{name}")
        for name, argument in signature.items()
    }


def first_json_value(text: str, subject: str, field: str) -> object:
    """The first JSON value of a text, as Go's decoder reads it. Raises InvalidObject."""
    try:
        value, _ = json.JSONDecoder().raw_decode(text.lstrip(_GO_SPACE))
    except (ValueError, RecursionError):
        raise InvalidObject(subject, field, f"is not JSON: {safe_repr(text)}") from None
    return value


def _from_json(text: str, subject: str, field: str) -> Mapping[str, object]:
    value = first_json_value(text, subject, field)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidObject(subject, field, f"must hold a JSON object, not {safe_repr(text)}")
    return value


def _value(
    value: object, argument: Argument, zero: bool, subject: str, field: str
) -> int | bool | str:
    if value is None:
        if argument.default is not None:
            return argument.default
        if not zero:
            raise InvalidObject(subject, field, "is required")
        value = argument.kind(0)
    if argument.kind is str:
        return _dimension(value, subject, field)
    if type(value) is not argument.kind or (
        argument.kind is int and not _in_range(value, argument.least)
    ):
        wanted = "true or false" if argument.kind is bool else _range(argument.least)
        raise InvalidObject(subject, field, f"must be {wanted}, not {safe_repr(value)}")
    return value


def _dimension(value: object, subject: str, field: str) -> str:
    if isinstance(value, str) and (value == SLOTS or not amounts_problem({value: 1})):
        return value
    raise InvalidObject(
        subject,
        field,
        f"must be {SLOTS} or the name of a dimension (spec.capacities of an AdapterPool), not "
        f"{safe_repr(value)}",
    )


def _in_range(value: object, least: int) -> bool:
    return isinstance(value, int) and least <= value <= _INT32_MAX


def _range(least: int) -> str:
    return f"an integer from {least} to {_INT32_MAX}"
