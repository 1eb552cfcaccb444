"""Reading the fields of a JSON object, each with its type and its limit."""

import json
import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final, NoReturn, TypeAlias

DOCUMENT_BYTES_MAX: Final = 1024 * 1024
"""Of one document. An object's annotations have 256 KiB together."""
MEMBERS_MAX: Final = 10_000
"""Shares of one assignment, and pods of one vpod."""
NUMBER_MAX: Final = 2**53
"""The largest integer that every reader of JSON agrees about."""
INTEGER_MAX: Final = 2**63 - 1
"""Epochs and generations follow resourceVersions, which may be above ``NUMBER_MAX``."""
INDEXES_MAX: Final = 100_000
"""Indexes of one share."""
TEXT_CHARS_MAX: Final = 512
"""Characters of a pod's name, or of any other text."""

_RANGE: Final = re.compile(r"(0|[1-9][0-9]{0,8})(?:-(0|[1-9][0-9]{0,8}))?")

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


class WireError(ValueError):
    """A document that cannot be read. The text names the field."""


def parsed(document: bytes) -> Json:
    """Parse a JSON document. Raises WireError."""
    if len(document) > DOCUMENT_BYTES_MAX:
        raise WireError(f"the document is longer than {DOCUMENT_BYTES_MAX} bytes")
    try:
        value: Json = json.loads(document, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        why = f"at character {error.pos}" if isinstance(error, json.JSONDecodeError) else "at all"
        raise WireError(f"the document is not JSON {why}") from None
    return value


def _no_constant(_: str) -> NoReturn:
    raise ValueError("NaN and Infinity are no JSON")


def read_indexes(text: str) -> tuple[int, ...]:
    """Read indexes such as ``0-1,5``: ascending, without overlap. Raises ValueError."""
    found: list[int] = []
    for part in text.split(",") if text else ():
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ValueError("must be like 0-1,5")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or (found and first <= found[-1]):
            raise ValueError("must ascend")
        if len(found) + last - first >= INDEXES_MAX:
            raise ValueError(f"must have at most {INDEXES_MAX} indexes")
        found.extend(range(first, last + 1))
    return tuple(found)


def write_indexes(indexes: Iterable[int]) -> str:
    """Write indexes as ``read_indexes`` reads them: ``0-1,5``."""
    ranges: list[list[int]] = []
    for index in sorted(set(indexes)):
        if ranges and ranges[-1][1] == index - 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)


def _instant_of(text: str) -> datetime | None:
    """None if the text is no time, or has no time zone."""
    try:
        instant = datetime.fromisoformat(text)
        return instant.astimezone(UTC) if instant.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


class Fields:
    """The fields of one object. ``at`` is where it stands in the document."""

    def __init__(self, value: Json, at: str = "") -> None:
        if not isinstance(value, dict):
            raise WireError(f"{at or 'the document'} must be an object")
        self._fields: Mapping[str, Json] = value
        self._at = at

    def has(self, name: str) -> bool:
        """Whether the field has a value. ``null`` is none."""
        return self._fields.get(name) is not None

    def fail(self, name: str, why: str) -> NoReturn:
        """Raises WireError."""
        raise WireError(f"{f'{self._at}.' if self._at else ''}{name} {why}")

    def integer(self, name: str, default: int | None = None) -> int:
        """From 0 on. Without a default the field must be there."""
        value = self._value(name, default)
        if not isinstance(value, int) or isinstance(value, bool):
            self.fail(name, "must be an integer")
        if not 0 <= value <= INTEGER_MAX:
            self.fail(name, f"must be from 0 to {INTEGER_MAX}")
        return value

    def number(self, name: str) -> float:
        """A finite number."""
        value = self._value(name, None)
        if not isinstance(value, int | float) or isinstance(value, bool):
            self.fail(name, "must be a number")
        if abs(value) > NUMBER_MAX or math.isnan(value):
            self.fail(name, "must be a finite number")
        return float(value)

    def text(self, name: str, default: str | None = None) -> str:
        """Text. Without a default the field must be there, and not be empty."""
        value = self._value(name, default)
        if not isinstance(value, str):
            self.fail(name, "must be a string")
        if len(value) > TEXT_CHARS_MAX:
            self.fail(name, f"must have at most {TEXT_CHARS_MAX} characters")
        if default is None and not value:
            self.fail(name, "must not be empty")
        return value

    def choice(self, name: str, among: Iterable[str]) -> str:
        """One of ``among``."""
        value, known = self.text(name), list(among)
        if value not in known:
            self.fail(name, f"must be one of {', '.join(known)}")
        return value

    def instant(self, name: str) -> datetime | None:
        """A time as RFC 3339 writes it, in UTC; None if the field is missing."""
        if not self.has(name):
            return None
        instant = _instant_of(self.text(name))
        if instant is None:
            self.fail(name, "must be a time such as 2026-12-01T10:00:30Z")
        return instant

    def indexes(self, name: str, vreplicas: int, of: int) -> tuple[int, ...] | None:
        """As many as ``vreplicas``, and less than ``of`` unless that is 0; None if missing."""
        if not self.has(name):
            return None
        value = self._fields[name]
        if not isinstance(value, str):
            self.fail(name, "must be a string")
        try:
            found = read_indexes(value)
        except ValueError as error:
            self.fail(name, str(error))
        if len(found) != vreplicas:
            self.fail(name, "must have as many indexes as vreplicas says")
        if of and found and found[-1] >= of:
            self.fail(name, "must be less than of")
        return found

    def mapping(self, name: str) -> Mapping[str, Json]:
        """An object with at most ``MEMBERS_MAX`` members."""
        value = self._value(name, None)
        if not isinstance(value, dict):
            self.fail(name, "must be an object")
        if len(value) > MEMBERS_MAX:
            self.fail(name, f"must have at most {MEMBERS_MAX} members")
        return value

    def sequence(self, name: str) -> list[Json]:
        """A list with at most ``MEMBERS_MAX`` members."""
        value = self._value(name, None)
        if not isinstance(value, list):
            self.fail(name, "must be a list")
        if len(value) > MEMBERS_MAX:
            self.fail(name, f"must have at most {MEMBERS_MAX} members")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings; empty if it is missing."""
        value = self.sequence(name) if self.has(name) else []
        texts = tuple(text for text in value if isinstance(text, str))
        if len(texts) != len(value):
            self.fail(name, "must have strings only")
        return texts

    def _value(self, name: str, default: int | str | None) -> Json:
        if not self.has(name):
            if default is None:
                self.fail(name, "is missing")
            return default
        return self._fields[name]
