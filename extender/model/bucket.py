"""``Bucket``: a part of all pools, which one replica leads, and how replicas share the parts. Pure.

Knative's controllers divide their work in the same way, and call the parts by the same name
(``buckets`` of ``config-leader-election``). A hash of a pool's key assigns the pool to one bucket
for ever, whether or not the pool exists. Each bucket has a Lease, and the holder runs the loops of
the bucket's pools. So a pool has at most one leader at any time, as with a single Lease.

A replica asks a holder with a larger load for a bucket. The holder gives the bucket away if that
makes the larger of the two loads smaller. Every such step makes the loads more even, so the
exchange ends.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32


@dataclass(frozen=True, slots=True)
class Bucket:
    """Bucket number ``index`` of ``total``."""

    index: int = 0
    total: int = 1

    def has(self, pool: str) -> bool:
        """Whether the pool with the key ``namespace/name`` is in this bucket."""
        return self.total == 1 or bucket_of(pool, self.total) == self.index

    def lease_name(self, name: str) -> str:
        """The name of its Lease. Bucket 0 has ``name`` itself for every ``total``, so all replicas
        meet there.
        """
        return name if not self.index else f"{name}.{self.index:02d}-of-{self.total:02d}"


WHOLE = Bucket()
"""All pools."""


def bucket_of(pool: str, total: int) -> int:
    """The index of a pool's bucket. Python's ``hash`` would differ from process to process."""
    return crc32(pool.encode()) % total


def weights_of(pools: Sequence[str], total: int) -> list[int]:
    """The weight of each bucket: 1, and ``total + 1`` for each of its pools."""
    weights = [1] * total
    for pool in pools:
        weights[bucket_of(pool, total)] += total + 1
    return weights


def bucket_to_ask_for(holders: Sequence[str], weights: Sequence[int], me: str) -> int | None:
    """The largest bucket that its holder may give to ``me``; None if there is none. Of equal ones,
    the one whose holder has the largest load.

    ``holders``: the identity of each bucket's holder, "" if it has none.
    """
    loads = _loads(holders, weights)
    asked = [
        index
        for index, holder in enumerate(holders)
        if holder not in {"", me} and weights[index] < loads[holder] - loads[me]
    ]
    return max(
        asked, key=lambda index: (weights[index], loads[holders[index]], -index), default=None
    )


def may_give(holders: Sequence[str], weights: Sequence[int], index: int, to: str) -> bool:
    """Whether it makes both loads more even if the holder of a bucket gives it to ``to``."""
    loads = _loads(holders, weights)
    return weights[index] < loads[holders[index]] - loads[to]


def _loads(holders: Sequence[str], weights: Sequence[int]) -> Counter[str]:
    loads: Counter[str] = Counter()
    for holder, weight in zip(holders, weights, strict=True):
        if holder:
            loads[holder] += weight
    return loads
