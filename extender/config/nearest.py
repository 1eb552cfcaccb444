"""``nearest``: which of the known names somebody may have meant."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

ALIKE_MIN: Final = 0.6
"""difflib's ratio, from which on two names are alike: one letter in three may be wrong."""
NAME_CHARS_MAX: Final = 80
"""Longer ones are compared with nothing: the comparison is quadratic."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that is most like ``name``, whatever its letter case; "" where none is."""
    by_folded = {one.casefold(): one for one in known}
    if len(name) > NAME_CHARS_MAX:
        return ""
    found = get_close_matches(name.casefold(), by_folded, n=1, cutoff=ALIKE_MIN)
    return by_folded[found[0]] if found else ""
