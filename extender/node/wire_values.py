"""Values of a JSON document that somebody else has sent: each is what was expected, or WireError
names the field.

Keys are read in any letter case, as Go does, and a key that is there twice is refused: two readers
could see two requests.
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
"""How a key's letters can hide behind escapes. Go never writes them, so only foreign bodies pay for
a second look.
"""


def document(body: bytes, what: str, keys: tuple[str, ...]) -> dict[str, object]:
    """The known keys of a body that is to be a ``what``. Raises WireError."""
    try:
        raw = decode_json(body)
    except ValueError as problem:
        raise WireError(f"body: expected the JSON of {what}, and it {problem}") from problem
    if not isinstance(raw, dict):
        raise WireError(f"body: expected an object ({what}), found {kind_of(raw)}")
    _refuse_doubled(body, [key for key in raw if key.lower() in {known.lower() for known in keys}])
    return fields_of(raw, keys, what)


def _refuse_doubled(body: bytes, found: list[str]) -> None:
    """Refuse a key given twice: orjson and Go both take the last one, so two readers could see two
    requests.

    The exact look costs a slow parse, so it is only taken where a key's text occurs more than once
    or is escaped.
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
    """The known keys of an object, whatever their letter case."""
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
    """Raises WireError for anything but an object."""
    return value if isinstance(value, dict) else _wrong(value, where, "an object")


def list_at(value: object, where: str) -> list[object]:
    """null is an empty list. Raises WireError for anything but a list."""
    if value is None:
        return []
    return value if isinstance(value, list) else _wrong(value, where, "a list")


def string_at(value: object, where: str, chars_max: int) -> str:
    """Raises WireError for what is no string, empty, or too long."""
    if not isinstance(value, str) or not value:
        _wrong(value, where, "a non-empty string")
    if len(value) > chars_max:
        raise WireError(f"{where}: expected at most {chars_max} characters, found {len(value)}")
    return value


def api_name_at(value: object, where: str, chars_max: int) -> str:
    """A name that may become part of a URL. Raises WireError for any other."""
    name = string_at(value, where, chars_max)
    if _SUBDOMAIN.fullmatch(name) is None:
        raise WireError(f"{where}: expected a Kubernetes name, found {name!r}")
    return name


def limit(found: int, most: int, where: str, unit: str) -> None:
    """Raises WireError, status 413, for more than ``most``."""
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
