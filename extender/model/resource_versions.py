"""Resource versions: which of two objects is newer.

Since Kubernetes 1.35 they are integers that clients may compare.
"""

from typing import Final

_DIGITS_MAX: Final = len(str(2**63))
"""A number with fewer digits is below 2**63."""


def parse_version(text: str) -> int | None:
    """A resourceVersion as Go's ParseInt(text, 10, 64) reads it; None if it is not a number."""
    if len(text) < _DIGITS_MAX and text.isascii() and text.isdigit():
        return int(text)  # every version that API servers send
    digits = text[1:] if text[:1] in {"+", "-"} else text
    if not digits or len(digits) > 40 or not (digits.isascii() and digits.isdigit()):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None
