"""Reads durations and sizes of options: ``90s``, ``10m``, ``2h``; ``64Mi``."""

import argparse
import re
from typing import Final

_SECONDS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES: Final = {"": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
SECONDS_MAX: Final = 366 * 86400.0


def seconds(value: str) -> float:
    """Read a duration; return seconds, more than 0."""
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)([smhd]?)", value)
    amount = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    if not 0 < amount <= SECONDS_MAX:
        raise argparse.ArgumentTypeError(
            f"{value!r} is not a length of time, such as 90s, 10m or 2h"
        )
    return amount


def size_bytes(value: str) -> int:
    """Read a size; return bytes, more than 0."""
    found = re.fullmatch(r"([0-9]{1,12})(|Ki|Mi|Gi)", value)
    amount = int(found[1]) * _BYTES[found[2]] if found else 0
    if not amount:
        raise argparse.ArgumentTypeError(f"{value!r} is not a size, such as 64Mi or 1Gi")
    return amount
