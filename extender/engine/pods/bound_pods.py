"""``BoundPods``: on which nodes a pool's pods stand, counted, so that prioritize needs no look at
each of them.
"""

from collections.abc import Iterator
from typing import TypeVar

T = TypeVar("T")

Place = tuple[str, str]
"""Node and zone."""
NOWHERE: Place = ("", "")


class BoundPods:
    """Changed by ``PoolState`` only, with every pod that comes, goes or moves, and every node that
    changes its zone.
    """

    def __init__(self) -> None:
        self._place: dict[str, Place] = {}
        """Pod name -> where it stands."""
        self._at: dict[Place, int] = {}
        self._alike: dict[tuple[str, int], set[str]] = {}
        """(Zone, pods) -> its nodes that have so many; never empty."""
        self.on_node: dict[str, int] = {}
        """Node -> pods; never 0."""
        self.in_zone: dict[str, int] = {}
        """Zone -> pods; never 0."""

    def note(self, pod_name: str, place: Place | None) -> None:
        """A pod stands there now; None: nowhere."""
        old = self._place.get(pod_name)
        if old == place:
            return
        if old is not None:
            del self._place[pod_name]
            self._count(old, -1)
        if place is not None:
            self._place[pod_name] = place
            self._count(place, 1)

    def place_of(self, pod_name: str) -> Place:
        """Where it stands; ``NOWHERE``."""
        return self._place.get(pod_name, NOWHERE)

    def alike(self) -> Iterator[tuple[str, int, set[str]]]:
        """(Zone, pods on each of them, nodes), for all nodes that have any."""
        for (zone, count), nodes in self._alike.items():
            yield zone, count, nodes

    def _count(self, place: Place, change: int) -> None:
        node, zone = place
        before = self._at.get(place, 0)
        if before:
            nodes = self._alike[zone, before]
            nodes.discard(node)
            if not nodes:
                del self._alike[zone, before]
        if before + change:
            self._alike.setdefault((zone, before + change), set()).add(node)
        _add(self._at, place, change)
        _add(self.on_node, node, change)
        _add(self.in_zone, zone, change)


def _add(counts: dict[T, int], key: T, change: int) -> None:
    if count := counts.get(key, 0) + change:
        counts[key] = count
    else:
        del counts[key]
