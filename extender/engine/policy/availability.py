"""Knative's priorities for high availability: even over the nodes, or zones, of the cluster.

All nodes that take work count, also those without an adapter pod: they pull towards the least
loaded place. The scores are sums of differences to all others, which does not always make the least
loaded place the best one (``spreading``).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from extender.engine.policy.framework import MAX_SCORE, PlaceUnknown, Scope
from extender.engine.policy.spread import Candidate, Spread


@dataclass(frozen=True, slots=True)
class AvailabilityNodePriority:
    """Even over nodes, after adding one."""

    name: ClassVar[str] = "AvailabilityNodePriority"
    scope: ClassVar[Scope] = Scope.NODE

    def score(self, candidate: Candidate, spread: Spread) -> int:
        """``MAX_SCORE`` less the differences to all other nodes; 0 without any pod."""
        if spread.replicas <= 0:
            return 0
        return MAX_SCORE - _difference(
            _node(candidate, spread), spread.nodes, spread.topology.zone_of
        )


@dataclass(frozen=True, slots=True)
class AvailabilityZonePriority:
    """Even over zones, after adding one."""

    name: ClassVar[str] = "AvailabilityZonePriority"
    scope: ClassVar[Scope] = Scope.ZONE

    def score(self, candidate: Candidate, spread: Spread) -> int:
        """``MAX_SCORE`` less the differences to all other zones; 0 without any pod."""
        if spread.replicas <= 0:
            return 0
        return MAX_SCORE - _difference(
            _zone(candidate, spread), spread.zones, spread.topology.nodes_in
        )


@dataclass(frozen=True, slots=True)
class RemoveWithAvailabilityNodePriority:
    """Even over the nodes that the vpod is on, after removing one."""

    name: ClassVar[str] = "RemoveWithAvailabilityNodePriority"
    scope: ClassVar[Scope] = Scope.NODE

    def deschedule(self, candidate: Candidate, spread: Spread) -> int:
        """``MAX_SCORE`` less the differences to its other nodes; 0 without any pod."""
        if spread.replicas <= 0:
            return 0
        return MAX_SCORE - _remaining(
            _node(candidate, spread), spread.nodes, spread.topology.zone_of
        )


@dataclass(frozen=True, slots=True)
class RemoveWithAvailabilityZonePriority:
    """Even over the zones that the vpod is in, after removing one."""

    name: ClassVar[str] = "RemoveWithAvailabilityZonePriority"
    scope: ClassVar[Scope] = Scope.ZONE

    def deschedule(self, candidate: Candidate, spread: Spread) -> int:
        """``MAX_SCORE`` less the differences to its other zones; 0 without any pod."""
        if spread.replicas <= 0:
            return 0
        return MAX_SCORE - _remaining(
            _zone(candidate, spread), spread.zones, spread.topology.nodes_in
        )


def _node(candidate: Candidate, spread: Spread) -> str:
    if candidate.node not in spread.topology.zone_of:
        raise PlaceUnknown("node does not exist")
    return candidate.node


def _zone(candidate: Candidate, spread: Spread) -> str:
    if candidate.node not in spread.topology.zone_of:
        raise PlaceUnknown("zone does not exist")
    return candidate.zone


def _difference(place: str, loads: Mapping[str, int], places: Mapping[str, object]) -> int:
    """Sum over all other places of the difference to this one, when it has one more. Empty places
    are all the same.
    """
    after = loads.get(place, 0) + 1
    others = [count for other, count in loads.items() if other != place and other in places]
    empty = len(places) - 1 - len(others)
    return empty * after + sum(abs(after - count) for count in others)


def _remaining(place: str, loads: Mapping[str, int], places: Mapping[str, object]) -> int:
    """Sum over the other places in use of the difference to this one, when it has one less."""
    after = loads.get(place, 0) - 1
    return sum(
        abs(after - count) for other, count in loads.items() if other != place and other in places
    )
