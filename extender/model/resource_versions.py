"""Resource versions: which of two objects is the newer one. Since Kubernetes 1.35 they are integers
that may be compared.
"""

from typing import Final

_DIGITS_MAX: Final = len(str(2**63))
"""A number of fewer digits is below it."""


def parse_version(text: str) -> int | None:
    """A resourceVersion as Go's ParseInt(text, 10, 64) reads it; None where it is not one."""
    if len(text) < _DIGITS_MAX and text.isascii() and text.isdigit():
        return int(text)  # all that an API server sends
    digits = text[1:] if text[:1] in {"+", "-"} else text
    if not digits or len(digits) > 40 or not (digits.isascii() and digits.isdigit()):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None
