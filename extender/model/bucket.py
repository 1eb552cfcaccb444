"""``Bucket``: a part of all pools that one replica leads, and how replicas share the parts. Pure.

Knative's controllers split what they reconcile in the same way and by the same name (``buckets`` of
``config-leader-election``): a pool belongs to one bucket for ever, by a hash of its key, whether
the pool exists or not; each bucket has a Lease, and who holds it runs the loops of its pools. So at
any time a pool has one leader at the most, as with a single Lease.

Sharing: a replica asks one that carries more for a bucket, and gets it where that makes the larger
of the two loads smaller. Every such step makes the loads more even, so it ends.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32


@dataclass(frozen=True, slots=True)
class Bucket:
    """The ``index``-th of ``total``."""

    index: int = 0
    total: int = 1

    def has(self, pool: str) -> bool:
        """Whether a pool, by its key ``namespace/name``, is in it."""
        return self.total == 1 or bucket_of(pool, self.total) == self.index

    def lease_name(self, name: str) -> str:
        """Of its Lease. The first one's is ``name`` itself, whatever the number: all replicas meet
        there.
        """
        return name if not self.index else f"{name}.{self.index:02d}-of-{self.total:02d}"


WHOLE = Bucket()
"""All pools."""


def bucket_of(pool: str, total: int) -> int:
    """The index of the bucket that a pool is in. Not ``hash``, which differs from process to
    process.
    """
    return crc32(pool.encode()) % total


def weights_of(pools: Sequence[str], total: int) -> list[int]:
    """What each bucket counts: its pools, and where those are equal, itself."""
    weights = [1] * total
    for pool in pools:
        weights[bucket_of(pool, total)] += total + 1
    return weights


def bucket_to_ask_for(holders: Sequence[str], weights: Sequence[int], me: str) -> int | None:
    """The largest bucket that its holder may give me, of whoever carries most; None where there is
    none.

    ``holders``: identity by bucket, "" for nobody.
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
    """Whether the holder of a bucket carries so much more than ``to`` that giving it away makes
    both more even.
    """
    loads = _loads(holders, weights)
    return weights[index] < loads[holders[index]] - loads[to]


def _loads(holders: Sequence[str], weights: Sequence[int]) -> Counter[str]:
    loads: Counter[str] = Counter()
    for holder, weight in zip(holders, weights, strict=True):
        if holder:
            loads[holder] += weight
    return loads
