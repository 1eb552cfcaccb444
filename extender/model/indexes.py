"""Sets of indexes, in pools whose shares have them (``spec.handoff.identity: Indexed``).

A set is an int whose bit ``i`` says whether index ``i`` is in it: unions and differences of many
sets are fast. Its text is what an assignment says, such as ``0-1,5``.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

INDEX_MAX: Final = 10_000_000
"""No text has a greater index: it would make a set of megabytes."""
INDEXED_SLOTS_MAX: Final = 1_000
"""slotsPerPod of such a pool, so that the text of a pod's indexes stays short."""
_RANGE: Final = re.compile(r"(0|[1-9]\d{0,7})(?:-([1-9]\d{0,7}))?")


def lowest(indexes: int, count: int) -> int:
    """The ``count`` lowest of ``indexes``, or all of them if there are fewer."""
    taken = 0
    for _ in range(min(count, indexes.bit_count())):
        bit = indexes & -indexes
        taken |= bit
        indexes ^= bit
    return taken


def highest(indexes: int, count: int) -> int:
    """The ``count`` highest of ``indexes``, or all of them if there are fewer."""
    return indexes ^ lowest(indexes, indexes.bit_count() - count)


def up_to(count: int) -> int:
    """The indexes 0 to ``count`` - 1."""
    return (1 << count) - 1


def ranges(indexes: int) -> Iterator[tuple[int, int]]:
    """The runs of neighbours in a set, as (first, last), ascending."""
    at = 0
    while indexes:
        skip = (indexes & -indexes).bit_length() - 1
        indexes >>= skip
        run = (~indexes & (indexes + 1)).bit_length() - 1
        yield at + skip, at + skip + run - 1
        indexes >>= run
        at += skip + run


@lru_cache(maxsize=4096)
def indexes_text(indexes: int) -> str:
    """The text of a set; "" if it is empty."""
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges(indexes))


@lru_cache(maxsize=4096)
def indexes_from(text: str) -> int:
    """The set of a text. Raises ValueError if ``indexes_text`` would not have written it."""
    found = 0
    for part in text.split(",") if text else ():
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ValueError(f"must be like 0-1,5, not {part[:20]!r}")
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last <= INDEX_MAX or found >> first:
            raise ValueError(f"must ascend, and be at most {INDEX_MAX}")
        found |= up_to(last + 1) ^ up_to(first)
    return found
