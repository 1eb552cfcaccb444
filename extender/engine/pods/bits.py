"""Bit sets over ordinals: bit o of a Python int says whether ordinal o is in the set
(DESIGN 5.3).
"""

from collections.abc import Iterator
from typing import Final

WORD_BITS: Final = 60
"""Bits taken from a set at a time: two digits of a Python int. An operation on a whole set takes
time in proportion to its length.
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
