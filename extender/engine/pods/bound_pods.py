"""``BoundPods``: counts of a pool's pods by node and zone, so that prioritize need not look at
each.
"""

from collections.abc import Iterator
from typing import TypeVar

T = TypeVar("T")

Location = tuple[str, str]
"""Node and zone."""
NOWHERE: Location = ("", "")


class BoundPods:
    """Only ``PoolState`` changes it, with every pod that comes, goes or moves, and every node that
    changes its zone.
    """

    def __init__(self) -> None:
        self._location: dict[str, Location] = {}
        """Pod name -> its node and zone."""
        self._at: dict[Location, int] = {}
        self._alike: dict[tuple[str, int], set[str]] = {}
        """(Zone, number of pods) -> the zone's nodes that have this number; never empty."""
        self.on_node: dict[str, int] = {}
        """Node -> pods; never 0."""
        self.in_zone: dict[str, int] = {}
        """Zone -> pods; never 0."""

    def note(self, pod_name: str, location: Location | None) -> None:
        """Put a pod there; None: nowhere."""
        old = self._location.get(pod_name)
        if old == location:
            return
        if old is not None:
            del self._location[pod_name]
            self._count(old, -1)
        if location is not None:
            self._location[pod_name] = location
            self._count(location, 1)

    def location_of(self, pod_name: str) -> Location:
        """Where the pod is, or ``NOWHERE``."""
        return self._location.get(pod_name, NOWHERE)

    def alike(self) -> Iterator[tuple[str, int, set[str]]]:
        """(Zone, pods on each node, nodes), for all nodes that have any."""
        for (zone, count), nodes in self._alike.items():
            yield zone, count, nodes

    def _count(self, location: Location, change: int) -> None:
        node, zone = location
        before = self._at.get(location, 0)
        if before:
            nodes = self._alike[zone, before]
            nodes.discard(node)
            if not nodes:
                del self._alike[zone, before]
        if before + change:
            self._alike.setdefault((zone, before + change), set()).add(node)
        _add(self._at, location, change)
        _add(self.on_node, node, change)
        _add(self.in_zone, zone, change)


def _add(counts: dict[T, int], key: T, change: int) -> None:
    if count := counts.get(key, 0) + change:
        counts[key] = count
    else:
        del counts[key]
