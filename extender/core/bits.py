"""Bit sets over ordinals: a Python int of which bit o says whether the pod with ordinal o is in it (DESIGN 5.3)."""

from collections.abc import Iterator


def bits(bit_set: int) -> Iterator[int]:
    """The members of a bit set, ascending."""
    while bit_set:
        lowest = bit_set & -bit_set
        yield lowest.bit_length() - 1
        bit_set ^= lowest
