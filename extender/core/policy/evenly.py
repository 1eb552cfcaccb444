"""Growing by a profile that spreads and does nothing else (``spread``, ``ha``): the same answer as ``pick``, by counting.

``ZoneSpread``, ``NodeSpread`` and ``PodSpread`` score MAX_SCORE less what a place holds. So the best pod is the one with the
smallest *cost*: what its zone, its node and it hold of the vpod, each times its weight. A vreplica more changes that in one
zone alone. So the best pod of each zone is remembered, and looked for again only where the last vreplica has gone: the first pod
with room on a node that has none of them, or else the cheapest on those that have some.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from extender.core.bits import bits
from extender.core.policy.framework import FilterPlugin, ScorePlugin, Weighted
from extender.core.policy.profile import Profile, Ties
from extender.core.policy.spread import Spread
from extender.core.policy.spreading import NodeSpread, PodSpread, ZoneSpread

Best = tuple[int, int]
"""(cost on node and pod, ordinal)."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What one vreplica on a zone, a node or a pod costs the next one there; ``rule``: the hard zone rule, if there is one."""

    zone: int
    node: int
    pod: int
    rule: ZoneSpread | None


def costs_of(profile: Profile) -> Costs | None:
    """The costs of a profile that only spreads; None for one that asks for anything else."""
    if profile.ties is not Ties.LOWEST_ORDINAL or len(profile.filters) > 1:
        return None
    rule = _zone_rule(profile.filters)
    weights = _weights(profile.choosing)
    if weights is None or (profile.filters and rule is None) or not weights[NodeSpread]:
        return None
    return Costs(weights[ZoneSpread], weights[NodeSpread], weights[PodSpread], rule)


def _zone_rule(filters: tuple[FilterPlugin, ...]) -> ZoneSpread | None:
    return next((one for one in filters if type(one) is ZoneSpread), None)


def _weights(scores: tuple[Weighted[ScorePlugin], ...]) -> dict[type, int] | None:
    weights: dict[type, int] = {ZoneSpread: 0, NodeSpread: 0, PodSpread: 0}
    for one in scores:
        kind = type(one.plugin)
        if kind not in weights:
            return None
        weights[kind] += one.weight
    return weights


def grow_evenly(spread: Spread, costs: Costs, missing: int) -> tuple[dict[int, int], int]:
    """Give ``missing`` vreplicas: (ordinal -> vreplicas added, what is left). ``spread`` is read, and stays as it is."""
    return _Growing(spread, costs).give(missing)


@dataclass(slots=True)
class _Zone:
    """``load``: vreplicas in it. ``unused``: pods on nodes that have none; ``used``: node -> its pods, of the others."""

    load: int
    unused: int
    used: dict[str, int] = field(default_factory=dict)
    best: Best | None = None


class _Growing:
    """The working values of one ``grow_evenly``."""

    def __init__(self, spread: Spread, costs: Costs) -> None:
        self._spread = spread
        self._costs = costs
        self._fitting = spread.room
        self._added: dict[int, int] = {}
        self._own = spread.own
        self._pods = dict(spread.pods)
        self._nodes = {
            name: spread.node_load(name) for nodes in (spread.nodes, spread.away_nodes) for name in nodes
        }
        load = spread.zone_load
        self._zones = {zone: _Zone(load(zone), members) for zone, members in spread.zone_bits.items()}
        for node in self._nodes:
            self._use(node, spread.topology.zone_of.get(node, ""))
        for zone in self._zones.values():
            zone.best = self._best_in(zone)
        self._least_elsewhere = self._least_without_pods()

    def _least_without_pods(self) -> int | None:
        """The least load of zones where the rule counts, and the pool has no pod: it stays what it is."""
        rule, spread = self._costs.rule, self._spread
        if rule is None or not rule.count_empty:
            return None
        return min((spread.zone_load(zone) for zone in spread.able_zones if zone not in self._zones), default=None)

    def _use(self, node: str, zone: str) -> None:
        """A node has some of the vreplicas."""
        if (view := self._zones.get(zone)) is not None and (pods := self._spread.node_bits.get(node)):
            view.used[node] = pods
            view.unused &= ~pods

    def give(self, missing: int) -> tuple[dict[int, int], int]:
        by_ordinal, added = self._spread.by_ordinal, self._added
        while missing > 0 and (zone := self._cheapest()) is not None and zone.best is not None:
            ordinal = zone.best[1]
            missing -= 1
            added[ordinal] = added.get(ordinal, 0) + 1
            node, name = by_ordinal[ordinal].place
            zone.load += 1
            if node in zone.used:
                self._nodes[node] += 1
            else:
                self._nodes[node] = 1
                self._use(node, name)
            self._pods[ordinal] = self._pods.get(ordinal, 0) + 1
            self._own |= 1 << ordinal
            zone.best = self._best_in(zone)
        return added, missing

    def _cheapest(self) -> _Zone | None:
        """The zone whose best pod is the best of all."""
        weight, most = self._costs.zone, self._most()
        best: Best | None = None
        cheapest = None
        for zone in self._zones.values():
            if zone.best is None or (most is not None and zone.load > most):
                continue
            cost = (zone.best[0] + weight * zone.load, zone.best[1])
            if best is None or cost < best:
                best, cheapest = cost, zone
        return cheapest

    def _most(self) -> int | None:
        """How many a zone may hold to get one more; None where nothing limits it."""
        rule = self._costs.rule
        if rule is None:
            return None
        least = min([zone.load for zone in self._zones.values()], default=0)
        if self._least_elsewhere is not None:
            least = min(least, self._least_elsewhere)
        return least + rule.max_skew - 1

    def _best_in(self, zone: _Zone) -> Best | None:
        first = self._first(zone.unused)
        if first is not None:
            return 0, first  # nothing is cheaper: on every other node there are some
        return min(self._on_used(zone), default=None)

    def _on_used(self, zone: _Zone) -> Iterator[Best]:
        per_node, per_pod = self._costs.node, self._costs.pod
        for node, pods in zone.used.items():
            cost = self._nodes[node] * per_node
            if (first := self._first(pods & ~self._own)) is not None:
                yield cost, first
            for ordinal in bits(pods & self._own & self._fitting):
                if self._fits(ordinal):
                    yield cost + self._pods[ordinal] * per_pod, ordinal

    def _first(self, pods: int) -> int | None:
        """The lowest pod that one more vreplica fits on; those that it does not fit on are forgotten."""
        while pods := pods & self._fitting:
            lowest = pods & -pods
            ordinal = lowest.bit_length() - 1
            if self._fits(ordinal):
                return ordinal
            self._fitting &= ~lowest
        return None

    def _fits(self, ordinal: int) -> bool:
        return self._spread.free_of(ordinal) - self._added.get(ordinal, 0) * self._spread.weight >= self._spread.weight
