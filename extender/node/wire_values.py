"""Readers for a JSON document that somebody else sent: each returns the expected value, or raises
WireError, which names the field.

Keys are read in any letter case, as Go does. A key that is there twice is refused, because two
readers could see two different requests.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Final, NoReturn

from extender.model.errors import WireError
from extender.model.reading import decode_json

_SUBDOMAIN: Final = re.compile(
    r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
)
_LETTER_ESCAPES: Final = (b"u004", b"u005", b"u006", b"u007")
"""Escapes that could hide letters of a key. Go never writes them, so only other bodies need the
exact check.
"""


def document(body: bytes, what: str, keys: tuple[str, ...]) -> dict[str, object]:
    """Return the known keys of a body that should be a ``what``. Raises WireError."""
    try:
        raw = decode_json(body)
    except ValueError as problem:
        raise WireError(f"body: expected the JSON of {what}, and it {problem}") from problem
    if not isinstance(raw, dict):
        raise WireError(f"body: expected an object ({what}), found {kind_of(raw)}")
    _refuse_doubled(body, [key for key in raw if key.lower() in {known.lower() for known in keys}])
    return fields_of(raw, keys, what)


def _refuse_doubled(body: bytes, found: list[str]) -> None:
    """Refuse a key that is given twice: orjson and Go take the last one, but another reader may
    not.

    The exact check is a slow parse. It runs only if a key's text occurs more than once, or if
    letters are escaped.
    """
    texts = [b'"%b"' % key.encode() for key in found]
    suspicious = any(part.startswith(_LETTER_ESCAPES) for part in body.split(b"\\")[1:]) or any(
        body.find(text) != body.rfind(text)
        and len(re.findall(rb"%b\s*:" % re.escape(text), body)) > 1
        for text in texts
    )
    if suspicious:
        try:
            json.loads(body, object_pairs_hook=_unique)
        except (ValueError, RecursionError) as problem:
            raise WireError(f"body: {problem}") from problem


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        doubled, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise WireError(f"{doubled[:60]}: expected once, found twice")
    return unique


def fields_of(raw: Mapping[str, object], keys: tuple[str, ...], where: str) -> dict[str, object]:
    """Return the known keys of an object, in any letter case. Raises WireError for a key in two
    cases.
    """
    canonical = {key.lower(): key for key in keys}
    fields: dict[str, object] = {}
    for key, value in raw.items():
        known = canonical.get(key.lower())
        if known is None:
            continue
        if known in fields:
            raise WireError(
                f"{where}: {known}: expected once, found twice in different letter case"
            )
        fields[known] = value
    return fields


def object_at(value: object, where: str) -> dict[str, object]:
    """Return ``value``. Raises WireError unless it is an object."""
    return value if isinstance(value, dict) else _wrong(value, where, "an object")


def list_at(value: object, where: str) -> list[object]:
    """Return ``value``, or an empty list for null. Raises WireError for anything else."""
    if value is None:
        return []
    return value if isinstance(value, list) else _wrong(value, where, "a list")


def string_at(value: object, where: str, chars_max: int) -> str:
    """Return ``value``. Raises WireError if it is no string, empty, or too long."""
    if not isinstance(value, str) or not value:
        _wrong(value, where, "a non-empty string")
    if len(value) > chars_max:
        raise WireError(f"{where}: expected at most {chars_max} characters, found {len(value)}")
    return value


def api_name_at(value: object, where: str, chars_max: int) -> str:
    """Return ``value``, a name that may become part of a URL. Raises WireError otherwise."""
    name = string_at(value, where, chars_max)
    if _SUBDOMAIN.fullmatch(name) is None:
        raise WireError(f"{where}: expected a Kubernetes name, found {name!r}")
    return name


def limit(found: int, most: int, where: str, unit: str) -> None:
    """Raise WireError, status 413, if ``found`` is more than ``most``."""
    if found > most:
        raise WireError(f"{where}: expected at most {most} {unit}, found {found}", 413)


def _wrong(value: object, where: str, expected: str) -> NoReturn:
    raise WireError(f"{where}: expected {expected}, found {kind_of(value)}")


def kind_of(value: object) -> str:
    """What a value is, in words."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string" if value else 'an empty string ("")'
        case list():
            return "a list"
        case _:
            return "an object"
