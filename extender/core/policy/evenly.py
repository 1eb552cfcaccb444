"""Growing by a profile that spreads and does nothing else (``spread``, ``ha``): the same answer as ``pick``, by counting.

``ZoneSpread``, ``NodeSpread`` and ``PodSpread`` score MAX_SCORE less what a place holds. So the best pod is the one with the
smallest *cost*: what its zone, its node and it hold of the vpod, each times its weight. A vreplica more changes that in one
zone alone. So the best pod of each zone is remembered, and looked for again only where the last vreplica has gone: the first pod
with room on a node that has none of them, or else the cheapest on those that have some.
"""

from collections.abc import Callable, Iterator

from extender.core.bits import bits
from extender.core.policy.profile import Costs
from extender.core.policy.spread import Spread


def grow_evenly(
    spread: Spread, costs: Costs, missing: int, free: Callable[[int], int]
) -> tuple[dict[int, int], int]:
    """Give ``missing`` vreplicas: (ordinal -> vreplicas added, what is left).

    ``spread``: what is kept; it is read, and stays as it is. ``free``: an ordinal's free slots beside that.
    """
    return _Growing(spread, costs, free).give(missing)


class _Zone:
    """One zone as it fills.

    ``load``: vreplicas in it. ``unused``: pods on nodes that have none; ``used``: node -> its pods, of the others.
    ``cost``, ``ordinal``: of its best pod, on node and pod; ordinal -1 where no pod has room.
    """

    __slots__ = ("cost", "load", "ordinal", "unused", "used")

    def __init__(self, load: int, members: int) -> None:
        self.load = load
        self.unused = members
        self.used: dict[str, int] = {}
        self.cost, self.ordinal = 0, -1


class _Growing:
    """The working values of one ``grow_evenly``."""

    def __init__(self, spread: Spread, costs: Costs, free: Callable[[int], int]) -> None:
        self._costs = costs
        self._free = free
        self._weight = spread.weight
        self._by_ordinal = spread.by_ordinal
        self._node_bits = spread.node_bits
        self._fitting = spread.room
        self._added: dict[int, int] = {}
        self._own = spread.own
        self._pods = dict(spread.pods)
        self._nodes = {node: spread.node_load(node) for node in (*spread.nodes, *spread.away_nodes)}
        load = spread.zone_load
        self._zones = {zone: _Zone(load(zone), members) for zone, members in spread.zone_bits.items()}
        for node in self._nodes:
            self._use(node, spread.topology.zone_of.get(node, ""))
        for zone in self._zones.values():
            self._find_best(zone)
        self._least_elsewhere = self._least_without_pods(spread)

    def _least_without_pods(self, spread: Spread) -> int | None:
        """The least load of zones that count although the pool has no pod there: it stays what it is. None: there are none."""
        if self._costs.rule is None or not self._costs.rule.count_empty:
            return None
        empty = [zone for zone in spread.able_zones if zone not in self._zones]
        return min(map(spread.zone_load, empty)) if empty else None

    def _use(self, node: str, zone: str) -> None:
        """A node has some of the vreplicas."""
        if (view := self._zones.get(zone)) is not None and (pods := self._node_bits.get(node)):
            view.used[node] = pods
            view.unused &= ~pods

    def give(self, missing: int) -> tuple[dict[int, int], int]:
        by_ordinal, added, nodes = self._by_ordinal, self._added, self._nodes
        while missing > 0 and (zone := self._cheapest()) is not None:
            ordinal = zone.ordinal
            missing -= 1
            added[ordinal] = added.get(ordinal, 0) + 1
            self._pods[ordinal] = self._pods.get(ordinal, 0) + 1
            self._own |= 1 << ordinal
            zone.load += 1
            node, name = by_ordinal[ordinal].place
            if node in zone.used:
                nodes[node] += 1
            else:
                nodes[node] = 1
                self._use(node, name)
            self._find_best(zone)
        return added, missing

    def _cheapest(self) -> _Zone | None:
        """The zone whose best pod is the best of all; its load is below what the rule allows."""
        weight, rule = self._costs.zone, self._costs.rule
        least = -1 if rule is None else self._least()
        cheapest, lowest = None, 0
        for zone in self._zones.values():
            if zone.ordinal < 0 or (rule is not None and zone.load - least >= rule.max_skew):
                continue
            cost = zone.cost + weight * zone.load
            if cheapest is None or cost < lowest or (cost == lowest and zone.ordinal < cheapest.ordinal):
                cheapest, lowest = zone, cost
        return cheapest

    def _least(self) -> int:
        """The load of the least loaded zone."""
        least = self._least_elsewhere
        for zone in self._zones.values():
            if least is None or zone.load < least:
                least = zone.load
        return least or 0

    def _find_best(self, zone: _Zone) -> None:
        # Nothing is cheaper than a node that has none: on every other one there are some.
        zone.cost, zone.ordinal = 0, self._first(zone.unused)
        if zone.ordinal < 0:
            zone.cost, zone.ordinal = min(self._on_used(zone), default=(0, -1))

    def _on_used(self, zone: _Zone) -> Iterator[tuple[int, int]]:
        """(cost, ordinal) of the pods that may be the best on nodes that have some."""
        per_node, per_pod = self._costs.node, self._costs.pod
        for node, pods in zone.used.items():
            cost = self._nodes[node] * per_node
            if (first := self._first(pods & ~self._own)) >= 0:
                yield cost, first
            for ordinal in bits(pods & self._own & self._fitting):
                if self._fits(ordinal):
                    yield cost + self._pods[ordinal] * per_pod, ordinal

    def _first(self, pods: int) -> int:
        """The lowest pod that one more vreplica fits on, -1 for none; those that it does not fit on are forgotten."""
        while pods := pods & self._fitting:
            lowest = pods & -pods
            ordinal = lowest.bit_length() - 1
            if self._fits(ordinal):
                return ordinal
            self._fitting ^= lowest
        return -1

    def _fits(self, ordinal: int) -> bool:
        return self._free(ordinal) - self._added.get(ordinal, 0) * self._weight >= self._weight
