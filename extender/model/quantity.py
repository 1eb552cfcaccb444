"""``quantity``: Kubernetes quantities that are whole numbers, as extended resources must be.

The API server stores a quantity in canonical form, but keeps its format: 2500 is "2500", 1000 is
"1k", and "1Ki" and "1e3" stay as they are. A device plugin, a person's patch or a pod template may
use any format.
"""

import re
from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Final

QUANTITY_MAX: Final = 2**63 - 1
"""Greater values are capped to this, as in Kubernetes."""
_CHARS_MAX: Final = 64
_SUFFIXES: Final[Mapping[str, Fraction]] = MappingProxyType(
    {
        "": Fraction(1),
        **{suffix: Fraction(10) ** (3 * power) for power, suffix in enumerate("num", start=-3)},
        **{suffix: Fraction(10) ** (3 * power) for power, suffix in enumerate("kMGTPE", start=1)},
        **{f"{suffix}i": Fraction(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
    }
)
_QUANTITY: Final = re.compile(
    r"(?P<number>\+?(?:[0-9]+\.?[0-9]*|\.[0-9]+))"
    r"(?:[eE](?P<exponent>[+-]?[0-9]{1,3})|(?P<suffix>[A-Za-z]{0,2}))"
)


def quantity(value: object) -> int | None:
    """Read a quantity (text or JSON number) as a whole number from 0 up; None if it is anything
    else.

    "20", "2k" = 2000, "1Ki" = 1024, "1e3" = 1000, "2000m" = 2; not "1.5", "-1", "1kb" or "".
    """
    if type(value) is int:
        return min(value, QUANTITY_MAX) if value >= 0 else None
    if not isinstance(value, str) or len(value) > _CHARS_MAX:
        return None
    if value.isascii() and value.isdigit():
        return min(int(value), QUANTITY_MAX)
    found = _QUANTITY.fullmatch(value)
    scale = _scale(found) if found is not None else None
    if found is None or scale is None:
        return None
    exact = Fraction(found["number"]) * scale
    return min(exact.numerator, QUANTITY_MAX) if exact.denominator == 1 else None


def _scale(found: re.Match[str]) -> Fraction | None:
    if found["exponent"] is not None:
        return Fraction(10) ** int(found["exponent"])
    return _SUFFIXES.get(found["suffix"])
