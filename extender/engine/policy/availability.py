"""Knative's priorities for high availability: an even spread over the nodes, or zones, of the
cluster.

All nodes that take work count, even those without an adapter pod, so the least loaded place is
favoured. But the scores are sums of differences to all other places, and so the least loaded place
does not always win (unlike in ``spreading``).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from extender.engine.policy.framework import MAX_SCORE, PlaceUnknown, Scope
from extender.engine.policy.spread import Candidate, Spread


@dataclass(frozen=True, slots=True)
class AvailabilityNodePriority:
    """Even over nodes, after one vreplica is added."""

    name: ClassVar[str] = "AvailabilityNodePriority"
    scope: ClassVar[Scope] = Scope.NODE

    def score(self, candidate: Candidate, spread: Spread) -> int:
        """``MAX_SCORE`` minus the differences to all other nodes; 0 if the StatefulSet wants no
        pods.
        """
        return MAX_SCORE - _difference(*_nodes(candidate, spread)) if spread.replicas > 0 else 0


@dataclass(frozen=True, slots=True)
class AvailabilityZonePriority:
    """Even over zones, after one vreplica is added."""

    name: ClassVar[str] = "AvailabilityZonePriority"
    scope: ClassVar[Scope] = Scope.ZONE

    def score(self, candidate: Candidate, spread: Spread) -> int:
        """``MAX_SCORE`` minus the differences to all other zones; 0 if the StatefulSet wants no
        pods.
        """
        return MAX_SCORE - _difference(*_zones(candidate, spread)) if spread.replicas > 0 else 0


@dataclass(frozen=True, slots=True)
class RemoveWithAvailabilityNodePriority:
    """Even over the nodes that the vpod is on, after one vreplica is removed."""

    name: ClassVar[str] = "RemoveWithAvailabilityNodePriority"
    scope: ClassVar[Scope] = Scope.NODE

    def deschedule(self, candidate: Candidate, spread: Spread) -> int:
        """``MAX_SCORE`` minus the differences to its other nodes; 0 if the StatefulSet wants no
        pods.
        """
        return MAX_SCORE - _remaining(*_nodes(candidate, spread)) if spread.replicas > 0 else 0


@dataclass(frozen=True, slots=True)
class RemoveWithAvailabilityZonePriority:
    """Even over the zones that the vpod is in, after one vreplica is removed."""

    name: ClassVar[str] = "RemoveWithAvailabilityZonePriority"
    scope: ClassVar[Scope] = Scope.ZONE

    def deschedule(self, candidate: Candidate, spread: Spread) -> int:
        """``MAX_SCORE`` minus the differences to its other zones; 0 if the StatefulSet wants no
        pods.
        """
        return MAX_SCORE - _remaining(*_zones(candidate, spread)) if spread.replicas > 0 else 0


_Places = tuple[str, Mapping[str, int], Mapping[str, object]]
"""The candidate's node or zone, the vreplicas by node or zone, and the places that take work."""


def _nodes(candidate: Candidate, spread: Spread) -> _Places:
    if candidate.node not in spread.topology.zone_of:
        raise PlaceUnknown("node does not exist")
    return candidate.node, spread.nodes, spread.topology.zone_of


def _zones(candidate: Candidate, spread: Spread) -> _Places:
    if candidate.node not in spread.topology.zone_of:
        raise PlaceUnknown("zone does not exist")
    return candidate.zone, spread.zones, spread.topology.nodes_in


def _difference(place: str, loads: Mapping[str, int], places: Mapping[str, object]) -> int:
    """The sum of the differences between this place with one more and all other places. Empty
    places are counted together.
    """
    after = loads.get(place, 0) + 1
    others = [count for other, count in loads.items() if other != place and other in places]
    empty = len(places) - 1 - len(others)
    return empty * after + sum(abs(after - count) for count in others)


def _remaining(place: str, loads: Mapping[str, int], places: Mapping[str, object]) -> int:
    """The sum of the differences between this place with one less and the other places in use."""
    after = loads.get(place, 0) - 1
    return sum(
        abs(after - count) for other, count in loads.items() if other != place and other in places
    )
