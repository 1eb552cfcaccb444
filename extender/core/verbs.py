"""The node level: what filter, prioritize and preempt answer for one adapter pod (DESIGN 5.7). Pure.

Filter decides, prioritize advises. A problem of the pod itself (no pool, slots that do not match) refuses every node
with the same reason, so that kube-scheduler's FailedScheduling event stays one short line.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from extender.core.ledger import Ledger, ledger_slots
from extender.core.model import AdapterPod, Node
from extender.core.pool_state import PoolState
from extender.core.reasons import UNRESOLVABLE, ConflictReason
from extender.core.state import State

SCORE_MAX: Final = 10
"""kube-scheduler's MaxExtenderPriority."""

NodeLookup = Callable[[str], Node | None]


@dataclass(slots=True)
class NodeVerdicts:
    """Filter's answer: nodes that pass, in the order asked, and why the others do not."""

    passed: list[str] = field(default_factory=list)
    failed: dict[str, ConflictReason] = field(default_factory=dict)
    unresolvable: dict[str, ConflictReason] = field(default_factory=dict)

    def refuse(self, node: str, reason: ConflictReason) -> None:
        """Put a node among those that do not pass; ``reason`` says whether preemption could help."""
        (self.unresolvable if reason in UNRESOLVABLE else self.failed)[node] = reason


def slots_of(state: State, pod: AdapterPod) -> int:
    """Slots of an adapter pod: what it is stamped with, at most what its pool says; 0 without a pool."""
    pool = state.pools.get(pod.pool)
    if pool is None or pool.pool is None:
        return 0
    return pool.pool.slots_per_pod if pod.slots is None else min(pod.slots, pool.pool.slots_per_pod)


def pod_problem(state: State, pod: AdapterPod) -> ConflictReason | None:
    """What makes a pod unfit for any node, None if nothing does."""
    pool = state.pools.get(pod.pool)
    if pool is None or pool.pool is None:
        return ConflictReason.POOL_NOT_FOUND
    if pool.stateful_set is None or pod.owner != pool.stateful_set.name:
        return ConflictReason.STATEFULSET_NOT_FOUND
    if pod.slots is not None and pod.slots_request is not None and pod.slots != pod.slots_request:
        return ConflictReason.SLOTS_MISMATCH
    return None


def node_problem(
    state: State, pod: AdapterPod, node: Node | None, *, without: frozenset[str] = frozenset()
) -> ConflictReason | None:
    """What makes a pod unfit for one node, given the pods assumed there except the UIDs ``without``."""
    if node is None:
        return ConflictReason.NODE_UNKNOWN
    if node.slots is None:
        return None
    others = state.pods_on_node.get(node.name, {}).values()
    taken = sum(
        _declared(state, other)
        for other in others
        # A pod that has ended has given its resources back; it stays listed until it is deleted.
        if not other.finished and other.uid != pod.uid and other.uid not in without
    )
    return ConflictReason.NODE_SLOTS_EXCEEDED if taken + _declared(state, pod) > node.slots else None


def _declared(state: State, pod: AdapterPod) -> int:
    # A pod stamped before its pool was known requests 0: it will get its pool's slots all the same.
    return pod.slots_request or slots_of(state, pod)


def filter_nodes(state: State, pod: AdapterPod, names: Sequence[str], lookup: NodeLookup) -> NodeVerdicts:
    """Which of the nodes ``names`` the pod may go to."""
    verdicts = NodeVerdicts()
    problem = pod_problem(state, pod)
    for name in names:
        reason = problem or node_problem(state, pod, lookup(name))
        if reason is None:
            verdicts.passed.append(name)
        else:
            verdicts.refuse(name, reason)
    return verdicts


def prioritize_nodes(
    state: State, pod: AdapterPod, ledger: Ledger, names: Sequence[str], lookup: NodeLookup
) -> dict[str, int]:
    """Score 0 to 10 a node: the less of any vpod its zone, then the node itself, could take down, the higher.

    Scores use the whole range between the best and the worst candidate; all equal scores ``SCORE_MAX``.
    """
    pool = state.pools.get(pod.pool)
    if pool is None or not names:
        return dict.fromkeys(names, 0)
    exposure = _Exposure(state, pool, pod, ledger)
    costs = {name: exposure.cost(node) if (node := lookup(name)) is not None else None for name in names}
    known = [cost for cost in costs.values() if cost is not None]
    if not known:
        return dict.fromkeys(names, 0)
    best, worst = min(known), max(known)
    return {
        name: 0
        if cost is None
        else SCORE_MAX
        if worst == best
        else int(SCORE_MAX * (worst - cost) / (worst - best))
        for name, cost in costs.items()
    }


class _Exposure:
    """How much of each vpod on a pod stands in each zone and on each node already, the pod itself left out."""

    _ZONE_WEIGHT: Final = 100
    _NODE_WEIGHT: Final = 10
    _CROWD_WEIGHT: Final = 1

    def __init__(self, state: State, pool: PoolState, pod: AdapterPod, ledger: Ledger) -> None:
        self._zones: dict[str, Fraction] = {}
        self._nodes: dict[str, Fraction] = {}
        self._crowd: dict[str, int] = {}
        self._base = Fraction(0)
        self._pods = 1
        for other in pool.pods.values():
            if other.pod is not None and other.pod.node and other.name != pod.name:
                self._pods += 1
                self._crowd[other.pod.node] = self._crowd.get(other.pod.node, 0) + 1
        for key, share in ledger.items():
            self._add(state, pool, pod.name, key, share.vreplicas)

    def _add(self, state: State, pool: PoolState, pod_name: str, key: str, here: int) -> None:
        zones: dict[str, int] = {}
        nodes: dict[str, int] = {}
        total = here
        for name, claim in pool.claims_of(key).items():
            if name == pod_name:
                continue
            count = claim.placed.vreplicas
            total += count
            other = pool.pods[name].pod
            if other is not None and other.node:
                nodes[other.node] = nodes.get(other.node, 0) + count
                node = state.nodes.get(other.node)
                if node is not None:
                    zones[node.zone] = zones.get(node.zone, 0) + count
        if not total:
            return
        self._base = max(self._base, Fraction(here, total))
        _raise(self._zones, zones, here, total)
        _raise(self._nodes, nodes, here, total)

    def cost(self, node: Node) -> Fraction:
        """The larger, the more a loss of this node's zone, then of the node, would take down."""
        zone_share = max(self._base, self._zones.get(node.zone, Fraction(0)))
        node_share = max(self._base, self._nodes.get(node.name, Fraction(0)))
        crowd = Fraction(self._crowd.get(node.name, 0), self._pods)
        return zone_share * self._ZONE_WEIGHT + node_share * self._NODE_WEIGHT + crowd * self._CROWD_WEIGHT


def _raise(worst: dict[str, Fraction], counts: Mapping[str, int], here: int, total: int) -> None:
    for place, count in counts.items():
        worst[place] = max(worst.get(place, Fraction(0)), Fraction(count + here, total))


def preempt_nodes(
    state: State, pod: AdapterPod, victims: Mapping[str, Sequence[str]], lookup: NodeLookup
) -> dict[str, tuple[str, ...]]:
    """Node -> victims' UIDs for the nodes where evicting them would help and costs the fewest vreplicas.

    ``victims`` is kube-scheduler's proposal. Never answers a node without victims: that is an error to it.
    """
    if pod_problem(state, pod) is not None:
        return {}
    helped = {
        name: tuple(uids)
        for name, uids in victims.items()
        if uids and node_problem(state, pod, lookup(name), without=frozenset(uids)) is None
    }
    carried = {name: _carried_slots(state, name, uids) for name, uids in helped.items()}
    least = min(carried.values(), default=0)
    return {name: uids for name, uids in helped.items() if carried[name] == least}


def _carried_slots(state: State, node: str, uids: Iterable[str]) -> int:
    wanted = set(uids)
    return sum(
        ledger_slots(other.ledger)
        for other in state.pods_on_node.get(node, {}).values()
        if other.uid in wanted
    )
