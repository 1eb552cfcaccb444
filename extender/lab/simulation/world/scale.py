"""``Scale``: how large a simulated world is at its beginning; and the names of what is in every
one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from extender.model.bucket import Bucket

LEASE: Final = "vreplica-scheduler"
NS: Final = "adapters"
NAME: Final = "dispatcher"
NAMES: Final = (NAME, "receiver", "poller")
"""Pools, with a StatefulSet of the same name each; a world has at least the first."""
SECOND: Final = "-too"
"""Behind a pool's name: another pool that names the same StatefulSet."""
TENANTS: Final = ("tenant-a", "tenant-b")
ZONES: Final = 3
CROWD: Final = "crowd"
"""Names of vpods that come by the hundreds begin so."""
NAME_CHARS_MAX: Final = 253
SLOTS_FACTOR: Final = 60
"""By which pods are larger where names are long: bytes are to be gone before slots are."""


def second_name(pool: str) -> str:
    """Of the pool that names the StatefulSet of ``pool``, too."""
    return f"{pool}{SECOND}"


def pool_of(pod_name: str) -> str:
    """The StatefulSet, and so the pool, that a pod is of by its name."""
    return pod_name.rpartition("-")[0]


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How large the world is at its beginning. ``pools``: more of the spec of each pool, of which
    there are so many.
    """

    nodes: int = 4
    slots_per_pod: int = 8
    min_pods: int = 0
    max_pods: int | None = None
    replicas: int = 2
    node_slots: int | None = None
    """That every node declares."""
    pools: tuple[Mapping[str, Any], ...] = ({},)
    buckets: int = 1
    """In how many the replicas lead the pools."""
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Of namespaces."""
    narrow_to: int = 0
    """Nodes that the replicas' filter passes at the most; 0: all."""
    sources: bool = False
    """Whether the pools take Streams, too."""
    long_names: bool = False
    """Whether vpods have names as long as they may be."""
    counts_otherwise: float = 0.0
    """Share of the replicas that lead in another number of buckets, as while that is rolled out."""

    @property
    def pool_names(self) -> tuple[str, ...]:
        """Of the pools that there are."""
        return NAMES[: len(self.pools)]

    def vpod_name(self, name: str) -> str:
        """As vpods are named here."""
        return f"{name}-".ljust(NAME_CHARS_MAX, "x") if self.long_names else name

    @property
    def lease_names(self) -> tuple[str, ...]:
        """Of the Leases by which the pools are led."""
        return tuple(Bucket(index, self.buckets).lease_name(LEASE) for index in range(self.buckets))
