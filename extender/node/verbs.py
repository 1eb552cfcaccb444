"""The node level: the answers to filter and preempt for one adapter pod (DESIGN 5.7). Pure.
Prioritize is in ``exposure``.

Filter decides, prioritize advises. A problem of the pod itself (no pool, slots that do not match)
refuses every node with the same reason, so that kube-scheduler's FailedScheduling event stays one
short line.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Final

from extender.engine.state.cluster_state import ClusterState
from extender.model.errors import LedgerTooLarge
from extender.model.ledger import ledger_slots
from extender.model.objects import AdapterPod, Node
from extender.model.reasons import UNRESOLVABLE, ConflictReason, ConflictReasons
from extender.node.bind_ledger import BindLedger, bind_ledger_of, ledger_of_ordinal
from extender.node.candidates import Candidates
from extender.node.wire import Victims
from extender.node.zone_rule import ZoneRule

NodeLookup = Callable[[str], Node | None]

_SKEW: Final = ConflictReason.ZONE_SKEW_EXCEEDED


@dataclass(slots=True)
class NodeVerdicts:
    """Filter's answer: the nodes that pass, in the request's order, and all reasons why each of the
    others does not.
    """

    passed: Candidates = field(default_factory=Candidates.none)
    failed: dict[str, ConflictReasons] = field(default_factory=dict)
    unresolvable: dict[str, ConflictReasons] = field(default_factory=dict)

    @classmethod
    def none_passes(cls, nodes: Iterable[str], reason: ConflictReason) -> "NodeVerdicts":
        """All nodes are refused for one reason, which is the pod's own."""
        verdicts = cls()
        for node in nodes:
            verdicts.refuse(node, (reason,))
        return verdicts

    def refuse(self, node: str, reasons: ConflictReasons) -> None:
        """Refuse a node. Evictions there may help only if they can cure every reason."""
        hopeless = not UNRESOLVABLE.isdisjoint(reasons)
        (self.unresolvable if hopeless else self.failed)[node] = reasons

    def reasons(self) -> Iterator[ConflictReason]:
        """The reasons of all refused nodes."""
        return chain.from_iterable(chain(self.failed.values(), self.unresolvable.values()))

    def refusal(self, node: str) -> ConflictReasons:
        """Why a node is refused; empty if it passes."""
        return self.failed.get(node) or self.unresolvable.get(node, ())


def slots_of(state: ClusterState, pod: AdapterPod) -> int:
    """The slots of an adapter pod: its own number, at most that of its pool; 0 without a pool."""
    pool = state.pools.get(pod.pool)
    if pool is None or pool.adapter_pool is None:
        return 0
    own = pod.own_slots
    return (
        pool.adapter_pool.slots_per_pod
        if own is None
        else min(own, pool.adapter_pool.slots_per_pod)
    )


def bind_ledger_in(state: ClusterState, pod: AdapterPod, *, with_added: bool) -> BindLedger:
    """The ledger that a bind of the pod writes now (``bind_ledger_of``). Raises LedgerTooLarge."""
    return bind_ledger_of(
        state.pool(pod.pool),
        pod,
        slots=slots_of(state, pod),
        with_added=with_added,
        allows=partial(state.selects, pod.pool),
        placements_from_former_pool=state.placements_from_former_pool(pod.pool, pod.name),
    )


def pod_problem(state: ClusterState, pod: AdapterPod) -> ConflictReason | None:
    """Why no node may have the pod; None if there is no such reason."""
    pool = state.pools.get(pod.pool)
    if pool is None or pool.adapter_pool is None:
        return ConflictReason.POOL_NOT_FOUND
    if pool.taken_by:
        return ConflictReason.STATEFULSET_TAKEN
    if pool.stateful_set is None or not pod.is_controlled_by(pool.stateful_set):
        return ConflictReason.STATEFULSET_NOT_FOUND
    if pod.slots is not None and pod.slots_request and pod.slots != pod.slots_request:
        return ConflictReason.SLOTS_MISMATCH
    return None


def node_problem(
    state: ClusterState,
    pod: AdapterPod,
    node: Node | None,
    *,
    without: frozenset[str] = frozenset(),
) -> ConflictReason | None:
    """Why one node may not have the pod; None if it may. Counts the adapter pods that are bound or
    assumed there, except the UIDs in ``without``.
    """
    if node is None:
        return ConflictReason.NODE_UNKNOWN
    if node.slots is None:
        return None
    others = state.pods_on_node.get(node.name, {}).values()
    taken = sum(
        _declared(state, other)
        for other in others
        # A finished pod has released its resources. It stays listed until it is deleted.
        if not other.finished and other.uid != pod.uid and other.uid not in without
    )
    return (
        ConflictReason.NODE_SLOTS_EXCEEDED if taken + _declared(state, pod) > node.slots else None
    )


def _declared(state: ClusterState, pod: AdapterPod) -> int:
    # A request of 0 only marks the pod for kube-scheduler; then the annotation has the number.
    return pod.slots_request or slots_of(state, pod)


def zone_rule(state: ClusterState, pod: AdapterPod) -> ZoneRule | None:
    """The zone rule of a pod's profile, which refuses nodes; None if the profile has none, or if no
    vreplicas return with the pod.
    """
    pool = state.pools.get(pod.pool)
    max_skew = pool.profile.hard_zone_skew if pool is not None else None
    if pool is None or max_skew is None:
        return None
    placements_from_former_pool = state.placements_from_former_pool(pod.pool, pod.name)
    known = pool.pods.get(pod.name)
    # Vreplicas that the last pod held, and that no status publishes, return (I2) but leave at once.
    # The pod need not wait for a zone because of them. Besides, a replica that missed an event
    # remembers an older ledger than others do, and all have to refuse the same nodes.
    ordinal_ledger = ledger_of_ordinal(
        pool,
        pod.name,
        slots_of(state, pod),
        placements_from_former_pool,
        with_last=known is None or not known.last_ledger_settled,
    )
    return ZoneRule(pool, pod.name, ordinal_ledger, max_skew) if ordinal_ledger else None


def filter_nodes(
    state: ClusterState, pod: AdapterPod, names: Sequence[str], lookup: NodeLookup
) -> NodeVerdicts:
    """Return which of the nodes ``names`` the pod may go to. With a single name: whether the pod
    may be bound there.
    """
    problem = pod_problem(state, pod)
    if problem is not None:
        return NodeVerdicts.none_passes(names, problem)
    reasons: dict[str, ConflictReason] = {}
    zones: dict[str, str] = {}
    for name in names:
        node = lookup(name)
        if (reason := node_problem(state, pod, node)) is not None:
            reasons[name] = reason
        if node is not None:
            zones[name] = node.zone
    skewed: AbstractSet[str] = frozenset()
    if (rule := zone_rule(state, pod)) is not None:
        offered = {zone for name, zone in zones.items() if name not in reasons}
        skewed = _skewed(rule, offered, frozenset(zones.values()))
    verdicts = NodeVerdicts()
    for name in names:
        skew = (_SKEW,) if zones.get(name) in skewed else ()
        if refused := ((reasons[name],) if name in reasons else ()) + skew:
            verdicts.refuse(name, refused)
    verdicts.passed = Candidates.of(name for name in names if not verdicts.refusal(name))
    return verdicts


def _skewed(rule: ZoneRule, offered: AbstractSet[str], zones: AbstractSet[str]) -> AbstractSet[str]:
    """Those of ``zones`` that the rule forbids. ``offered``: the zones with nodes that fit
    otherwise.

    In a zone outside ``offered`` no node fits. Such a zone is skewed if the rule would forbid it
    even with a free node: then evicting pods there cannot help.
    """
    skewed = {zone for zone in zones - offered if zone not in rule.allowed({*offered, zone})}
    return skewed | (offered - rule.allowed(offered))


def filter_known_nodes(
    state: ClusterState, pod: AdapterPod, candidates: Candidates
) -> NodeVerdicts:
    """Like ``filter_nodes``, on the nodes of ``state`` and by sets (``NodeIndex``). If all nodes
    pass, ``passed`` is ``candidates`` itself.
    """
    problem = pod_problem(state, pod)
    if problem is not None:
        return NodeVerdicts.none_passes(candidates, problem)
    reasons = _refused(state, pod, candidates.asked, known=candidates.known)
    if not reasons:
        return NodeVerdicts(candidates)
    verdicts = NodeVerdicts(candidates.without(reasons.keys()))
    for name in sorted(reasons):  # a set's order differs from process to process
        verdicts.refuse(name, reasons[name])
    return verdicts


def passes_one_of(state: ClusterState, pod: AdapterPod, nodes: frozenset[str]) -> bool:
    """Whether the pod may go to one of these nodes."""
    if pod_problem(state, pod) is not None:
        return False
    return len(_refused(state, pod, nodes, known=False)) < len(nodes)


def _refused(
    state: ClusterState, pod: AdapterPod, asked: frozenset[str], *, known: bool
) -> dict[str, ConflictReasons]:
    """Those of the nodes ``asked`` that the pod may not go to, and why. ``known``: all of them are
    nodes of ``state``.
    """
    index, reasons = state.node_index, dict[str, ConflictReasons]()
    if not known:
        reasons |= dict.fromkeys(asked - index.names.keys(), (ConflictReason.NODE_UNKNOWN,))
    full = index.full_for(_declared(state, pod), partial(_declared, state))
    if not full.isdisjoint(asked):
        reasons |= dict.fromkeys(full & asked, (ConflictReason.NODE_SLOTS_EXCEEDED,))
        # If the pod itself is counted on a node, assumed or bound, it may be what fills the node.
        own = _node_of(state, pod)
        if (
            own in reasons
            and (node := state.nodes.get(own))
            and node_problem(state, pod, node) is None
        ):
            del reasons[own]
    rule = zone_rule(state, pod)
    if rule is not None:
        left = asked.difference(reasons) if reasons else asked
        zones = {zone for zone, there in index.in_zone.items() if not there.isdisjoint(asked)}
        offered = {zone for zone in zones if not index.in_zone[zone].isdisjoint(left)}
        for zone in _skewed(rule, offered, zones):
            there = index.in_zone[zone] & asked
            reasons |= {name: (*reasons[name], _SKEW) for name in there - left}
            reasons |= dict.fromkeys(there & left, (_SKEW,))
    return reasons


def _node_of(state: ClusterState, pod: AdapterPod) -> str:
    """The node where this very pod is assumed or bound, "" for none."""
    pool = state.pools.get(pod.pool)
    known = pool.pods.get(pod.name) if pool is not None else None
    return (
        known.pod.node
        if known is not None and known.pod is not None and known.pod.uid == pod.uid
        else ""
    )


def preempt_nodes(
    state: ClusterState, pod: AdapterPod, victims: Mapping[str, Victims]
) -> dict[str, Victims]:
    """Return the nodes where evicting the victims would help and costs least, each with its victims
    as proposed.

    The cost is the slots of the vreplicas that the victims carry, then the disruption budgets
    violated. ``victims`` is kube-scheduler's proposal, which respects the pods' priorities.
    kube-scheduler chooses among equal nodes, by the victims' priorities and then by their number. A
    node without victims is never returned, because kube-scheduler takes it for an error.
    """
    if pod_problem(state, pod) is not None or _carries_too_much(state, pod):
        return {}
    zones: dict[str, str] = {}
    full = state.node_index.full_for(_declared(state, pod), partial(_declared, state))
    for name, those in victims.items():
        node = state.nodes.get(name) if those.uids else None
        if node is None:
            continue
        # A node that has room without evictions has room with them.
        if (
            name not in full
            or node_problem(state, pod, node, without=frozenset(those.uids)) is None
        ):
            zones[name] = node.zone
    rule = zone_rule(state, pod)
    # kube-scheduler also proposes nodes that it did not send to filter, because they do not fit the
    # pod's own requests.
    allowed = frozenset(zones.values()) if rule is None else rule.allowed(zones.values())
    least, chosen = None, dict[str, Victims]()
    for name, zone in zones.items():
        if zone not in allowed:
            continue
        those = victims[name]
        # Most nodes have no adapter pods at all.
        carried = (
            _carried_slots(there, those.uids) if (there := state.pods_on_node.get(name)) else 0
        )
        cost = carried, those.pdb_violations
        if least is None or cost < least:
            least, chosen = cost, {name: those}
        elif cost == least:
            chosen[name] = those
    return chosen


def _carries_too_much(state: ClusterState, pod: AdapterPod) -> bool:
    """Whether filter refuses the pod on every node, because of what it would bring back."""
    try:
        bind_ledger_in(state, pod, with_added=False)
    except LedgerTooLarge:
        return True
    return False


def _carried_slots(pods: Mapping[str, AdapterPod], uids: Sequence[str]) -> int:
    return sum(ledger_slots(pod.ledger) for pod in pods.values() if pod.uid in uids)
