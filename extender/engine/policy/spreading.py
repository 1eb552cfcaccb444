"""Our own spreading: ``ZoneSpread``, ``NodeSpread``, ``PodSpread``. The least loaded place is
always the best one.

Knative's priorities sum the differences to all other places. With three or more places, this does
not always choose the least loaded one. Knative's predicate refuses only by pod. These plugins count
what one place holds. Vreplicas on pods that are not schedulable count where the pod is or was last
bound: a zone that is down comes back with everything that it had.

As filters they are hard: a place may hold at most ``max_skew`` more than the least loaded one. As
scores they refuse nothing, but a fuller place is worse. As deschedulers they take from the fullest
place.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from extender.engine.policy.framework import MAX_SCORE, PlaceUnknown, Scope
from extender.engine.policy.spread import Candidate, Spread

ZONE_SKEW: Final = "zone would hold too many of its vreplicas"
NODE_SKEW: Final = "node would hold too many of its vreplicas"
POD_SKEW: Final = "pod would hold too many of its vreplicas"


@dataclass(frozen=True, slots=True)
class ZoneSpread:
    """Even over zones. ``count_empty``: zones where the pool's pods could run, but none does, count
    with 0.

    Such a zone makes the filter refuse more vreplicas elsewhere until the pool has a pod there. The
    autoscaler adds one for that reason. A single zone never refuses.
    """

    max_skew: int = 1
    count_empty: bool = True
    name: ClassVar[str] = "ZoneSpread"
    scope: ClassVar[Scope] = Scope.ZONE

    def filter(self, candidate: Candidate, spread: Spread) -> str:
        """A message if the zone would hold over ``max_skew`` more than the least loaded one."""
        least = spread.least_zone_load(count_empty=self.count_empty)
        return "" if spread.zone_load(candidate.zone) + 1 - least <= self.max_skew else ZONE_SKEW

    def score(self, candidate: Candidate, spread: Spread) -> int:
        """``MAX_SCORE`` minus the vreplicas in the zone."""
        return MAX_SCORE - spread.zone_load(candidate.zone)

    def deschedule(self, candidate: Candidate, spread: Spread) -> int:
        """The vreplicas in the zone. Raises PlaceUnknown."""
        if not candidate.zone:
            raise PlaceUnknown("zone is not known")
        return spread.zone_load(candidate.zone)


@dataclass(frozen=True, slots=True)
class NodeSpread:
    """Even over nodes. ``count_empty``: nodes where the pool's pods could run, but none does, count
    with 0.
    """

    max_skew: int = 1
    count_empty: bool = False
    name: ClassVar[str] = "NodeSpread"
    scope: ClassVar[Scope] = Scope.NODE

    def filter(self, candidate: Candidate, spread: Spread) -> str:
        """A message if the node would hold over ``max_skew`` more than the least loaded one."""
        places: Collection[str] = spread.able_nodes if self.count_empty else spread.node_bits
        least = _least(places, (spread.nodes, spread.away_nodes), spread)
        return "" if spread.node_load(candidate.node) + 1 - least <= self.max_skew else NODE_SKEW

    def score(self, candidate: Candidate, spread: Spread) -> int:
        """``MAX_SCORE`` minus the vreplicas on the node."""
        return MAX_SCORE - spread.node_load(candidate.node)

    def deschedule(self, candidate: Candidate, spread: Spread) -> int:
        """The vreplicas on the node. Raises PlaceUnknown."""
        if not candidate.node:
            raise PlaceUnknown("node is not known")
        return spread.node_load(candidate.node)


@dataclass(frozen=True, slots=True)
class PodSpread:
    """Even over pods. As a filter: no pod holds over ``max_skew`` more than the least loaded one
    with room.
    """

    max_skew: int = 1
    name: ClassVar[str] = "PodSpread"
    scope: ClassVar[Scope] = Scope.COUNT

    def filter(self, candidate: Candidate, spread: Spread) -> str:
        """A message if the pod would hold over ``max_skew`` more than the least loaded one with
        room.
        """
        after = candidate.on_pod + 1
        if after <= self.max_skew:
            return ""
        if spread.empty_with_room(candidate.ordinal):
            return POD_SKEW
        with_room = (count for ordinal, count in spread.pods.items() if spread.room >> ordinal & 1)
        return "" if after - min(with_room, default=candidate.on_pod) <= self.max_skew else POD_SKEW

    def score(self, candidate: Candidate, _spread: Spread) -> int:
        """``MAX_SCORE`` minus the vreplicas on the pod."""
        return MAX_SCORE - candidate.on_pod

    def deschedule(self, candidate: Candidate, _spread: Spread) -> int:
        """The vreplicas on the pod."""
        return candidate.on_pod


def _least(places: Collection[str], used: Iterable[Mapping[str, int]], spread: Spread) -> int:
    """The smallest load of a node; 0 as soon as one node has none. Comparing numbers finds that
    without a look at each node.
    """
    known = {node for nodes in used for node in nodes if node in places}
    if len(known) < len(places):
        return 0
    return min((spread.node_load(node) for node in known), default=0)
