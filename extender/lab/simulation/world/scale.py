"""``Scale``: the size of a simulated world at its beginning; and the names that every world has."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from extender.model.bucket import Bucket
from extender.model.names import NAME_CHARS_MAX

LEASE: Final = "vreplica-scheduler"
NS: Final = "adapters"
NAME: Final = "dispatcher"
NAMES: Final = (NAME, "receiver", "poller")
"""Pools, each with a StatefulSet of the same name. A world has at least the first."""
SECOND: Final = "-too"
"""The suffix for the name of a second pool that names the same StatefulSet."""
TENANTS: Final = ("tenant-a", "tenant-b")
ZONES: Final = 3
CROWD: Final = "crowd"
"""The names of vpods that come by the hundreds begin with this."""
SLOTS_FACTOR: Final = 60
"""With long names, pods have this many times the slots: bytes must run out first."""


def second_name(pool: str) -> str:
    """Return the name of the second pool of the StatefulSet ``pool``."""
    return f"{pool}{SECOND}"


def pool_of(pod_name: str) -> str:
    """Return the StatefulSet in a pod's name, which is also its pool."""
    return pod_name.rpartition("-")[0]


LOAD_METRIC: Final = "requests_per_second"
"""What adapters report."""
LOAD_SOURCE: Final = "adapter-requests"
"""The source of load that the configuration has."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The size of a world at its beginning. ``pools`` has further spec fields for each pool, and so
    gives their number.
    """

    nodes: int = 4
    slots_per_pod: int = 8
    min_pods: int = 0
    max_pods: int | None = None
    replicas: int = 2
    node_slots: int | None = None
    """The slots that every node declares; None: nodes declare none."""
    pools: tuple[Mapping[str, Any], ...] = ({},)
    buckets: int = 1
    """The number of buckets in which the replicas lead the pools."""
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Namespace -> its labels."""
    narrow_to: int = 0
    """The most nodes that the replicas' filter passes; 0: all."""
    sources: bool = False
    """Whether the pools also take Streams."""
    dimensions: bool = False
    """Whether pools have capacities beside slots, and vpods take some of them."""
    limits: bool = False
    """Whether vpods have a maxPerPod."""
    long_names: bool = False
    """Whether vpods have names of the maximum length."""
    load: bool = False
    """Whether adapters report their load."""
    own_profiles: bool = False
    """Whether pools may have the profiles of ``configuration``."""
    take_turns: bool = False
    """Whether kube-scheduler lets equal nodes take turns, instead of drawing one."""
    other_buckets_share: float = 0.0
    """The share of replicas with another number of buckets, as during a rollout of that setting."""

    @property
    def pool_names(self) -> tuple[str, ...]:
        """The names of the pools."""
        return NAMES[: len(self.pools)]

    def vpod_name(self, name: str) -> str:
        """Return the name of a vpod, perhaps a long one."""
        return f"{name}-".ljust(NAME_CHARS_MAX, "x") if self.long_names else name

    @property
    def lease_names(self) -> tuple[str, ...]:
        """The names of the Leases for leading pools."""
        return tuple(Bucket(index, self.buckets).lease_name(LEASE) for index in range(self.buckets))
