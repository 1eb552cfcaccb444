"""Finds the known name that somebody may have meant."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

ALIKE_MIN: Final = 0.6
"""The least ratio (difflib's) of two names that count as alike: one letter in three may be wrong.
"""
NAME_CHARS_MAX: Final = 80
"""Longer names are not compared: the comparison is quadratic."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name that is most like ``name``, ignoring case; "" if none is alike."""
    by_folded = {one.casefold(): one for one in known}
    if len(name) > NAME_CHARS_MAX:
        return ""
    found = get_close_matches(name.casefold(), by_folded, n=1, cutoff=ALIKE_MIN)
    return by_folded[found[0]] if found else ""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``did you mean NAME?`` with the nearest known name; "" if none is alike."""
    near = nearest(name, known)
    return f"did you mean {near}?" if near else ""


def with_hint(message: str, hint: str) -> str:
    """Return a message with a hint, which may be empty."""
    return f"{message}; {hint}" if hint else message
