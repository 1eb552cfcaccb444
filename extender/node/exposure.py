"""Prioritize: which node exposes the pod's vpods least (DESIGN 5.7). Pure.

A node is better if it has the lower cost in this list. A line counts only if all lines before it
are equal:

1. the largest part of any vpod on the pod that the loss of the zone would take down, then the same
   for the node;
2. the same, but only for vpods that have other vreplicas in that zone or node. A vpod that is on
   this pod alone loses everything wherever the pod goes. It must not hide the choice for the other
   vpods;
3. whether it is the ordinal's previous node, then its previous zone;
4. the number of the pool's adapter pods in the zone, then on the node, so that empty pods spread.

A part is a number of vreplicas divided by what the vpod has or wants, whichever is more. What the
vpod has is what this pod carries and will carry, and what other pods carry. Pods that are away
count in their last place.

Scores keep the order, not the distances. Up to eleven classes of equal nodes are spread over 0 to
10. If there are more, the ten best have scores of their own and the rest has 0: kube-scheduler adds
other plugins' scores, and chooses among the best.
"""

from collections.abc import Collection, Set as AbstractSet
from typing import NamedTuple

from extender.engine.pods.bound_pods import NOWHERE
from extender.engine.state.cluster_state import ClusterState
from extender.engine.state.pool_state import PoolState
from extender.model.ledger import Ledger
from extender.model.objects import AdapterPod, Node
from extender.node.candidates import Candidates
from extender.node.verbs import NodeLookup
from extender.node.wire import SCORE_MAX
from extender.node.zone_rule import elsewhere


class _Cost(NamedTuple):
    """A node's cost: earlier fields count first. Shares are from 0 to 1."""

    zone_share: float
    node_share: float
    zone_met: float
    node_met: float
    moved: int
    """0 on the previous node, 1 in its zone, 2 elsewhere."""
    zone_pods: int
    node_pods: int


def prioritize_nodes(
    state: ClusterState, pod: AdapterPod, ledger: Ledger, names: Collection[str], lookup: NodeLookup
) -> dict[str, int]:
    """Return each node's score, 0 to 10. ``ledger``: what the pod carries and will carry. An
    unknown node has 0.

    The time is linear in the placements of the ledger's vpods and in the number of nodes.
    """
    pool = state.pools.get(pod.pool)
    if pool is None:
        return dict.fromkeys(names, 0)
    cost_of = _Exposure(pool, pod, ledger).cost
    costs = {name: cost_of(node) for name in names if (node := lookup(name)) is not None}
    scores = _scores(set(costs.values()))
    return {name: scores[costs[name]] if name in costs else 0 for name in names}


class Alike(NamedTuple):
    """Nodes of a zone that have one score. ``names`` None: all nodes of the zone that no other
    group names.
    """

    zone: str
    score: int
    names: AbstractSet[str] | None


def prioritize_known_nodes(
    state: ClusterState, pod: AdapterPod, ledger: Ledger, candidates: Candidates
) -> list[Alike]:
    """Like ``prioritize_nodes``, by groups, for nodes that are all known. A group without names may
    have nodes that were not asked about.

    The time is linear in the placements of the ledger's vpods: nodes with the same facts form one
    group.
    """
    pool, index, asked = state.pools.get(pod.pool), state.node_index, candidates.asked
    if pool is None:
        return [Alike(zone, 0, None) for zone in index.in_zone]
    exposure = _Exposure(pool, pod, ledger)
    groups: list[tuple[str, _Cost, AbstractSet[str] | None]] = []
    for name in exposure.singled & asked:
        node = state.nodes[name]
        groups.append((node.zone, exposure.cost(node), frozenset((name,))))
    for zone, pods, nodes in pool.bound_pods.alike():
        there = (nodes & asked) - exposure.singled
        # While a bind waits (``PoolPods.expecting``), its node may get another zone.
        for name in there - index.in_zone.get(zone, frozenset()):
            there.discard(name)
            node = state.nodes[name]
            groups.append((node.zone, exposure.cost(node), frozenset((name,))))
        if there:
            groups.append((zone, exposure.cost_of(zone, pods), there))
    groups += [
        (zone, exposure.cost_of(zone), None)
        for zone, names in index.in_zone.items()
        if exposure.has_plain(names, asked)
    ]
    scores = _scores({cost for _, cost, _ in groups})
    return [Alike(zone, scores[cost], names) for zone, cost, names in groups]


def _scores(classes: set[_Cost]) -> dict[_Cost, int]:
    ordered = sorted(classes)
    steps = len(ordered) - 1
    if steps > SCORE_MAX:
        return {cost: max(0, SCORE_MAX - rank) for rank, cost in enumerate(ordered)}
    return {
        cost: SCORE_MAX - rank * SCORE_MAX // max(1, steps) for rank, cost in enumerate(ordered)
    }


class _Exposure:
    """The share of each of the pod's vpods that each zone and node would have if the pod went
    there.
    """

    def __init__(self, pool: PoolState, pod: AdapterPod, ledger: Ledger) -> None:
        self._alone = 0.0
        """The largest share of a vpod that is on the pod itself."""
        self._zone_met: dict[str, float] = {}
        self._node_met: dict[str, float] = {}
        self._others = pool.bound_pods
        self._own_node, self._own_zone = pool.bound_pods.location_of(pod.name)
        """Where ``bound_pods`` counts the pod itself."""
        known = pool.pods.get(pod.name)
        self._last_node, self._last_zone = known.last_location if known is not None else NOWHERE
        self._costs: dict[tuple[str, int], _Cost] = {}
        for key, share in ledger.items():
            self._meet(pool, pod.name, key, share.vreplicas)
        self.singled = {*self._node_met, self._last_node, self._own_node}
        """Nodes with facts of their own, beside their zone and their number of pods."""

    def _meet(self, pool: PoolState, pod_name: str, key: str, here: int) -> None:
        others = elsewhere(pool, key, pod_name)
        vpod = pool.vpods.get(key)
        total = max(others.total + here, vpod.vreplicas if vpod is not None else 0)
        self._alone = max(self._alone, here / total)
        for met, counts in ((self._zone_met, others.zones), (self._node_met, others.nodes)):
            for place, count in counts.items():
                met[place] = max(met.get(place, 0.0), (count + here) / total)

    def cost(self, node: Node) -> _Cost:
        """The larger, the worse the node."""
        pods = self._others.on_node.get(node.name, 0)
        if node.name not in self.singled:
            return self.cost_of(node.zone, pods)
        moved = 0 if node.name == self._last_node else self._moved_to(node.zone)
        pods -= node.name == self._own_node
        return self._cost(node.zone, self._node_met.get(node.name, 0.0), moved, pods)

    def cost_of(self, zone: str, pods: int = 0) -> _Cost:
        """The cost that nodes of a zone share if they have ``pods`` pods and are not
        ``singled``.
        """
        cost = self._costs.get((zone, pods))
        if cost is None:
            cost = self._costs[zone, pods] = self._cost(zone, 0.0, self._moved_to(zone), pods)
        return cost

    def has_plain(self, names: AbstractSet[str], asked: AbstractSet[str]) -> bool:
        """Whether one of ``names`` was asked about, has no pods and is not ``singled``. Mostly one
        of the first is such a node.
        """
        fewer, more = (names, asked) if len(names) < len(asked) else (asked, names)
        pods, singled = self._others.on_node, self.singled
        return any(name in more and name not in pods and name not in singled for name in fewer)

    def _moved_to(self, zone: str) -> int:
        return 1 if zone == self._last_zone else 2

    def _cost(self, zone: str, node_met: float, moved: int, node_pods: int) -> _Cost:
        zone_met = self._zone_met.get(zone, 0.0)
        return _Cost(
            max(self._alone, zone_met),
            max(self._alone, node_met),
            zone_met,
            node_met,
            moved,
            self._others.in_zone.get(zone, 0) - (zone == self._own_zone),
            node_pods,
        )
