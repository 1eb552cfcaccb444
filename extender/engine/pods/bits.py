"""Bit sets over ordinals: a Python int of which bit o says whether the pod with ordinal o is in it
(DESIGN 5.3).
"""

from collections.abc import Iterator
from typing import Final

WORD_BITS: Final = 60
"""Two digits of a Python int: what is taken from a bit set at a time, as each operation on all of
it costs its length.
"""
_WORD: Final = (1 << WORD_BITS) - 1


def bits(bit_set: int) -> Iterator[int]:
    """The members of a bit set, ascending."""
    first = 0
    while bit_set:
        empty = (bit_set & -bit_set).bit_length() - 1
        first += empty
        bit_set >>= empty
        word = bit_set & _WORD
        while word:
            lowest = word & -word
            yield first + lowest.bit_length() - 1
            word ^= lowest
        first += WORD_BITS
        bit_set >>= WORD_BITS
