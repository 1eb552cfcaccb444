"""Numbers with their nouns, and lists that are cut short, for messages that people read."""

from collections.abc import Mapping, Sequence
from typing import Final

EXACT_MAX: Final = 2**53 - 1
"""The largest integer that every reader of JSON has exactly. Sums of tenants' numbers are told as
at most this: two valid VPods may ask for more slots than 64 bits hold.
"""


def counted(number: int, noun: str) -> str:
    """``1 pod``, ``2 pods``, ``0 pods``. Each noun used here takes an s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def counted_are(number: int, noun: str) -> str:
    """``1 pod is``, ``2 pods are``."""
    return f"{counted(number, noun)} {'is' if number == 1 else 'are'}"


def first_of(names: Sequence[str], most: int) -> str:
    """``a, b, ...``: the first ``most`` names, and whether there are more."""
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def taken_of(amounts: Mapping[str, tuple[int, int]]) -> str:
    """``25 of 20 slots, 9 of 4 cpu``: by name, what is taken and what there is."""
    return ", ".join(f"{taken} of {there} {name}" for name, (taken, there) in amounts.items())
