"""Prioritize: which node exposes the pod's vpods least (DESIGN 5.7). Pure.

What is minimised, each only where all before it are equal:

1. the largest share of any vpod of the pod that a loss of the zone would take down, then of the node;
2. the same over those vpods only that stand there already: a vpod that is on this pod alone loses all wherever the
   pod goes, and must not hide what can be chosen for the others;
3. not being the ordinal's previous node, then not its previous zone;
4. adapter pods of the pool in the zone, then on the node: pods that carry nothing yet spread.

A share is vreplicas of all that the vpod has or wants, whichever is more: what the pod carries and will carry, and what
other pods have, those that are away where they last stood.

Scores keep the order, not the distances. Up to eleven classes of equal nodes are spread over 0 to 10. Of more, the ten best
have scores of their own and the rest has 0: it is among the best that kube-scheduler, which adds other plugins'
scores, makes its choice.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from extender.core.ledger import Ledger
from extender.core.model import AdapterPod, Node
from extender.core.node_level.zone_rule import elsewhere
from extender.core.pool_state import PoolState
from extender.core.state import State
from extender.core.wire import SCORE_MAX

NodeLookup = Callable[[str], Node | None]


class _Cost(NamedTuple):
    """What is minimised, in this order. Shares are from 0 to 1."""

    zone_share: float
    node_share: float
    zone_met: float
    node_met: float
    moved: int
    """0 on the previous node, 1 in its zone, 2 elsewhere."""
    zone_pods: int
    node_pods: int


def prioritize_nodes(
    state: State, pod: AdapterPod, ledger: Ledger, names: Sequence[str], lookup: NodeLookup
) -> dict[str, int]:
    """Score 0 to 10 a node. ``ledger``: what the pod carries and will carry. A node that is not known has 0.

    Costs as much as the vpods of ``ledger`` have placements, the pool has pods, and a look-up a candidate.
    """
    pool = state.pools.get(pod.pool)
    if pool is None:
        return dict.fromkeys(names, 0)
    cost_of = _Exposure(pool, pod, ledger).cost
    costs = {name: cost_of(node) for name in names if (node := lookup(name)) is not None}
    scores = _scores(set(costs.values()))
    return {name: scores[costs[name]] if name in costs else 0 for name in names}


def _scores(classes: set[_Cost]) -> dict[_Cost, int]:
    ordered = sorted(classes)
    steps = len(ordered) - 1
    if steps > SCORE_MAX:
        return {cost: max(0, SCORE_MAX - rank) for rank, cost in enumerate(ordered)}
    return {cost: SCORE_MAX - rank * SCORE_MAX // max(1, steps) for rank, cost in enumerate(ordered)}


class _Exposure:
    """How much of each vpod of a pod each zone and each node would have if the pod went there."""

    def __init__(self, pool: PoolState, pod: AdapterPod, ledger: Ledger) -> None:
        self._alone = 0.0
        """The largest share that is on the pod itself."""
        self._zone_met: dict[str, float] = {}
        self._node_met: dict[str, float] = {}
        self._zone_pods: dict[str, int] = {}
        self._node_pods: dict[str, int] = {}
        self._of_plain_nodes: dict[str, _Cost] = {}
        """Zone -> cost of those of its nodes of which nothing is known."""
        known = pool.pods.get(pod.name)
        self._last_node, self._last_zone = known.last_place if known is not None else ("", "")
        for other in pool.pods.values():
            if other.bound and other.name != pod.name:
                self._count(*other.where)
        for key, share in ledger.items():
            self._meet(pool, pod.name, key, share.vreplicas)
        self._plain_but = {*self._node_met, *self._node_pods, self._last_node}

    def _count(self, node: str, zone: str) -> None:
        self._node_pods[node] = self._node_pods.get(node, 0) + 1
        self._zone_pods[zone] = self._zone_pods.get(zone, 0) + 1

    def _meet(self, pool: PoolState, pod_name: str, key: str, here: int) -> None:
        others = elsewhere(pool, key, pod_name)
        vpod = pool.vpods.get(key)
        total = max(others.total + here, vpod.vreplicas if vpod is not None else 0)
        self._alone = max(self._alone, here / total)
        for met, counts in ((self._zone_met, others.zones), (self._node_met, others.nodes)):
            for place, count in counts.items():
                met[place] = max(met.get(place, 0.0), (count + here) / total)

    def cost(self, node: Node) -> _Cost:
        """The larger, the worse the node. Nodes of a zone of which nothing is known share one value."""
        if node.name in self._plain_but:
            return self._cost(node)
        cost = self._of_plain_nodes.get(node.zone)
        if cost is None:
            cost = self._of_plain_nodes[node.zone] = self._cost(node)
        return cost

    def _cost(self, node: Node) -> _Cost:
        zone_met, node_met = self._zone_met.get(node.zone, 0.0), self._node_met.get(node.name, 0.0)
        return _Cost(
            max(self._alone, zone_met),
            max(self._alone, node_met),
            zone_met,
            node_met,
            0 if node.name == self._last_node else 1 if node.zone == self._last_zone else 2,
            self._zone_pods.get(node.zone, 0),
            self._node_pods.get(node.name, 0),
        )
