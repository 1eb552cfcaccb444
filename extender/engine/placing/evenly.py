"""Growing for a profile that only spreads (``spread``, ``ha``): the same answer as ``pick``, by
counting.

``ZoneSpread``, ``NodeSpread`` and ``PodSpread`` score ``MAX_SCORE`` minus what a place holds. So
the best pod has the smallest *cost*: the vpod's vreplicas in its zone, on its node and on itself,
each number times its weight. One more vreplica changes costs in one zone only. So the best pod of
each zone is remembered, and looked for again only in the zone of the last vreplica. It is the first
pod with room on a node that has no vreplicas; if there is none, it is the cheapest pod on the other
nodes.
"""

from collections.abc import Callable, Iterator

from extender.engine.pods.bits import bits
from extender.engine.policy.profile import Costs
from extender.engine.policy.spread import Spread


def grow_evenly(
    spread: Spread, costs: Costs, missing: int, free: Callable[[int], int]
) -> tuple[dict[int, int], int]:
    """Give ``missing`` vreplicas: (ordinal -> vreplicas added, vreplicas left).

    ``spread``: what is kept; it is not changed. ``free``: an ordinal's free slots beside that.
    """
    return _Growing(spread, costs, free).give(missing)


class _Zone:
    """One zone while it fills.

    ``load``: its vreplicas. ``free``: its free slots if ties go by them, else 0. ``unused``: pods
    with room on nodes that have no vreplicas. ``used``: for the other nodes, node -> pods with
    room. ``ordinal``: its best pod, -1 if no pod has room; ``cost``: that pod's cost. ``stale``:
    whether the best pod must be looked for.
    """

    __slots__ = ("cost", "free", "load", "ordinal", "stale", "unused", "used")

    def __init__(self, load: int, free: int, pods: int) -> None:
        self.load = load
        self.free = free
        self.unused = pods
        self.used: dict[str, int] = {}
        self.cost, self.ordinal = 0, -1
        self.stale = True

    def use(self, node: str, pods: int) -> None:
        """Note that a node, with these pods, has some of the vreplicas."""
        self.used[node] = pods
        self.unused &= ~pods


class _Growing:
    """The working values of one ``grow_evenly``."""

    def __init__(self, spread: Spread, costs: Costs, free: Callable[[int], int]) -> None:
        self._costs = costs
        self._free = free
        self._weight = spread.weight
        self._by_ordinal = spread.by_ordinal
        self._node_bits = spread.node_bits
        self._room = room = spread.room
        self._added: dict[int, int] = {}
        self._own = spread.own
        self._pods = dict(spread.pods)
        self._nodes = {node: spread.node_load(node) for node in (*spread.nodes, *spread.away_nodes)}
        load = spread.zone_load
        by_name = {
            zone: _Zone(
                load(zone), spread.free_in(zone) if costs.most_free_zone else 0, members & room
            )
            for zone, members in spread.zone_bits.items()
        }
        for node in self._nodes:
            zone = by_name.get(spread.topology.zone_of.get(node, ""))
            if zone is not None and (pods := self._node_bits.get(node)):
                zone.use(node, pods & room)
        self._zones = list(by_name.values())
        self._least_elsewhere = self._least_without_pods(spread)

    def _least_without_pods(self, spread: Spread) -> int | None:
        """The least load of zones that count without a pod of the pool. It does not change while
        growing. None: there are no such zones.
        """
        if self._costs.rule is None or not self._costs.rule.count_empty:
            return None
        empty = [zone for zone in spread.able_zones if zone not in spread.zone_bits]
        return min(map(spread.zone_load, empty)) if empty else None

    def give(self, missing: int) -> tuple[dict[int, int], int]:
        by_ordinal, added, pods, nodes = self._by_ordinal, self._added, self._pods, self._nodes
        while missing > 0 and (zone := self._cheapest()) is not None:
            ordinal = zone.ordinal
            missing -= 1
            added[ordinal] = added.get(ordinal, 0) + 1
            pods[ordinal] = pods.get(ordinal, 0) + 1
            self._own |= 1 << ordinal
            zone.load += 1
            if self._costs.most_free_zone:
                zone.free -= self._weight
            node = by_ordinal[ordinal].location[0]
            if node in zone.used:
                nodes[node] += 1
            else:
                nodes[node] = 1
                zone.use(node, self._node_bits[node] & self._room)
            zone.stale = True
        return added, missing

    def _cheapest(self) -> _Zone | None:
        """The zone whose best pod is the best of all. Zones that are full by the rule
        are left out.
        """
        zones, rule = self._zones, self._costs.rule
        cheapest: _Zone | None = None
        most = None if rule is None else self._least() + rule.max_skew
        for zone in zones:
            if most is not None and zone.load >= most:
                continue
            if zone.stale:
                self._find_best(zone)
            if zone.ordinal >= 0 and (
                cheapest is None
                or zone.cost < cheapest.cost
                or (
                    zone.cost == cheapest.cost
                    and (-zone.free, zone.ordinal) < (-cheapest.free, cheapest.ordinal)
                )
            ):
                cheapest = zone
        return cheapest

    def _least(self) -> int:
        """The load of the least loaded zone."""
        least = self._least_elsewhere
        for zone in self._zones:
            if least is None or zone.load < least:
                least = zone.load
        return least or 0

    def _find_best(self, zone: _Zone) -> None:
        zone.stale = False
        in_zone = self._costs.zone * zone.load
        # A node without vreplicas is cheaper than any other node.
        pods, weight, free = zone.unused, self._weight, self._free
        while pods:
            lowest = pods & -pods
            ordinal = lowest.bit_length() - 1
            if free(ordinal) >= weight:
                zone.unused, zone.cost, zone.ordinal = pods, in_zone, ordinal
                return
            pods ^= lowest
        zone.unused = 0
        cost, zone.ordinal = min(self._on_used(zone), default=(0, -1))
        zone.cost = in_zone + cost

    def _on_used(self, zone: _Zone) -> Iterator[tuple[int, int]]:
        """(cost, ordinal) of the pods that may be the best on nodes with vreplicas. Full pods are
        dropped from ``zone.used``.
        """
        per_node, per_pod = self._costs.node, self._costs.pod
        for node, pods in zone.used.items():
            cost = self._nodes[node] * per_node
            for ordinal in bits(pods & ~self._own):
                if self._fits(ordinal):
                    yield cost, ordinal
                    break
                zone.used[node] ^= 1 << ordinal
            for ordinal in bits(pods & self._own):
                if self._fits(ordinal):
                    yield cost + self._pods[ordinal] * per_pod, ordinal
                else:
                    zone.used[node] ^= 1 << ordinal

    def _fits(self, ordinal: int) -> bool:
        return self._free(ordinal) - self._added.get(ordinal, 0) * self._weight >= self._weight
