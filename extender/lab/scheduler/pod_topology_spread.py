"""PodTopologySpread: hard constraints filter, soft ones (or kube-scheduler's system defaults)
score.

The filter counts the matching pods in each domain. A node fits if, with the pod, its domain has at
most maxSkew more matching pods than the emptiest domain. A domain exists only if it has an eligible
node. With fewer domains than minDomains, the emptiest domain counts as 0. For each constraint, the
score adds the matching pods of the node's domain, weighted by ln(domains + 2).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from extender.lab.scheduler.cache import Snapshot
from extender.lab.scheduler.framework import (
    PROCEED,
    SKIP,
    CountingFilter,
    CycleState,
    FixedState,
    PreFilterResult,
    truncated,
)
from extender.lab.scheduler.listers import Listers
from extender.lab.scheduler.taints import untolerated_taint
from extender.lab.scheduler.types import (
    HOSTNAME_LABEL,
    MAX_NODE_SCORE,
    Code,
    NodeInfo,
    PodInfo,
    Status,
    optional_selector,
    unresolvable,
)
from extender.model.objects import LabelSelector, SelectorRequirement
from extender.model.reading import Json, mappings, sequence, text

_MISMATCH: Final = "node(s) didn't match pod topology spread constraints"
_NO_PODS: Final = 2**31 - 1
"""math.MaxInt32, kube-scheduler's count of the emptiest domain if there is no domain."""


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """One TopologySpreadConstraint. ``selector`` None matches no pod."""

    max_skew: int
    topology_key: str
    selector: LabelSelector | None
    min_domains: int = 1
    honor_affinity: bool = True
    honor_taints: bool = False

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether a pod with these labels counts."""
        return self.selector is not None and self.selector.matches(labels)

    def includes(self, pod: PodInfo, node: NodeInfo) -> bool:
        """Return whether the node's domain counts for the pod (the node inclusion policies)."""
        view = node.view
        if self.honor_affinity and not pod.node_affinity.matches(view.name, view.labels):
            return False
        return not (self.honor_taints and untolerated_taint(view.taints, pod.tolerations))

    def count(self, pods: Sequence[PodInfo], namespace: str) -> int:
        """Return the number of matching pods of a namespace that are not being deleted. An empty
        selector counts none.
        """
        selector = self.selector
        if selector is None or not (selector.match_labels or selector.match_expressions):
            return 0
        return sum(
            1
            for pod in pods
            if pod.namespace == namespace and not pod.deleting and selector.matches(pod.labels)
        )


SYSTEM_DEFAULTS: Final = (
    SpreadConstraint(3, HOSTNAME_LABEL, None),
    SpreadConstraint(5, "topology.kubernetes.io/zone", None),
)


def _integer(raw: Json, key: str, default: int) -> int:
    value = raw.get(key)
    return value if isinstance(value, int) else default


def constraints_of(pod: PodInfo, action: str) -> tuple[SpreadConstraint, ...]:
    """Return the pod's constraints with this whenUnsatisfiable."""
    found = []
    for raw in mappings(pod.obj, "spec", "topologySpreadConstraints"):
        if text(raw, "whenUnsatisfiable") != action:
            continue
        selector = optional_selector(raw.get("labelSelector"))
        same = tuple(
            SelectorRequirement(key=str(key), operator="In", values=(pod.labels[str(key)],))
            for key in sequence(raw, "matchLabelKeys")
            if str(key) in pod.labels
        )
        if selector is not None and same:
            selector = replace(selector, match_expressions=(*selector.match_expressions, *same))
        found.append(
            SpreadConstraint(
                max_skew=_integer(raw, "maxSkew", 1),
                topology_key=text(raw, "topologyKey"),
                selector=selector,
                min_domains=_integer(raw, "minDomains", 1),
                honor_affinity=text(raw, "nodeAffinityPolicy") != "Ignore",
                honor_taints=text(raw, "nodeTaintsPolicy") == "Honor",
            )
        )
    return tuple(found)


def _in_all_domains(node: NodeInfo, constraints: Sequence[SpreadConstraint]) -> bool:
    return all(constraint.topology_key in node.view.labels for constraint in constraints)


@dataclass(slots=True)
class SpreadFilterState:
    """Matching pods by domain, for each hard constraint."""

    constraints: tuple[SpreadConstraint, ...]
    counts: list[dict[str, int]]

    def clone(self) -> "SpreadFilterState":
        """Return a copy whose counts may change."""
        return SpreadFilterState(self.constraints, [dict(counts) for counts in self.counts])

    def fewest(self, index: int) -> int:
        """Return the count of the emptiest domain; 0 if there are fewer domains than minDomains."""
        counts = self.counts[index]
        if len(counts) < self.constraints[index].min_domains:
            return 0
        return min(counts.values(), default=_NO_PODS)


@dataclass(slots=True)
class SpreadScoreState(FixedState):
    """Matching pods by domain of the candidate nodes, for each soft constraint."""

    constraints: tuple[SpreadConstraint, ...]
    counts: list[dict[str, int]]
    weights: list[float]
    ignored: set[str] = field(default_factory=set)


class PodTopologySpread(CountingFilter):
    """The plugin, for filter and score."""

    name = "PodTopologySpread"

    def __init__(self, listers: Listers, *, system_defaults: bool = True) -> None:
        """``system_defaults``: whether pods without constraints get ``SYSTEM_DEFAULTS``
        (defaultingType System; else List, without any).
        """
        self._listers = listers
        self._system_defaults = system_defaults

    # Filter

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> PreFilterResult:
        """Count the matching pods in each domain."""
        constraints = constraints_of(pod, "DoNotSchedule")
        if not constraints:
            return SKIP
        found = SpreadFilterState(constraints, [{} for _ in constraints])
        for node in snapshot.nodes:
            if not _in_all_domains(node, constraints):
                continue
            for constraint, counts in zip(constraints, found.counts, strict=True):
                if constraint.includes(pod, node):
                    domain = node.view.labels[constraint.topology_key]
                    here = constraint.count(list(node.pods.values()), pod.namespace)
                    counts[domain] = counts.get(domain, 0) + here
        state.write(found)
        return PROCEED

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Return whether the pod would exceed maxSkew in the node's domain."""
        found = state.read(SpreadFilterState)
        for index, constraint in enumerate(found.constraints):
            domain = node.view.labels.get(constraint.topology_key)
            if domain is None:
                return unresolvable(f"{_MISMATCH} (missing required label)")
            itself = 1 if constraint.matches(pod.labels) else 0
            skew = found.counts[index].get(domain, 0) + itself - found.fewest(index)
            if skew > constraint.max_skew:
                return Status(Code.UNSCHEDULABLE, (_MISMATCH,))
        return None

    def count(
        self, state: CycleState, pod: PodInfo, other: PodInfo, node: NodeInfo, change: int
    ) -> None:
        """See CountingFilter."""
        found = state.read(SpreadFilterState)
        if other.namespace != pod.namespace or not _in_all_domains(node, found.constraints):
            return
        for constraint, counts in zip(found.constraints, found.counts, strict=True):
            if constraint.matches(other.labels) and constraint.includes(pod, node):
                domain = node.view.labels[constraint.topology_key]
                counts[domain] = counts.get(domain, 0) + change

    # Score

    def pre_score(
        self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo], snapshot: Snapshot
    ) -> bool:
        """Count the matching pods of all nodes in the domains of the candidates."""
        own = bool(mappings(pod.obj, "spec", "topologySpreadConstraints"))
        constraints = constraints_of(pod, "ScheduleAnyway") if own else self._defaults(pod)
        if not constraints:
            return False
        found = self._domains(constraints, nodes, require_all=own)
        for node in snapshot.nodes:
            if own and not _in_all_domains(node, constraints):
                continue
            for constraint, counts in zip(constraints, found.counts, strict=True):
                domain = node.view.labels.get(constraint.topology_key, "")
                if domain in counts and constraint.includes(pod, node):
                    counts[domain] += constraint.count(list(node.pods.values()), pod.namespace)
        state.write(found)
        return True

    def _defaults(self, pod: PodInfo) -> tuple[SpreadConstraint, ...]:
        selector = self._listers.default_selector(pod) if self._system_defaults else None
        if selector is None:
            return ()
        return tuple(replace(constraint, selector=selector) for constraint in SYSTEM_DEFAULTS)

    @staticmethod
    def _domains(
        constraints: tuple[SpreadConstraint, ...],
        nodes: Sequence[NodeInfo],
        *,
        require_all: bool,
    ) -> SpreadScoreState:
        counts: list[dict[str, int]] = [{} for _ in constraints]
        ignored: set[str] = set()
        for node in nodes:
            if require_all and not _in_all_domains(node, constraints):
                ignored.add(node.name)
                continue
            for constraint, domains in zip(constraints, counts, strict=True):
                # Each host is its own domain. Its pods are counted when it is scored.
                if constraint.topology_key != HOSTNAME_LABEL:
                    domains.setdefault(node.view.labels.get(constraint.topology_key, ""), 0)
        weights = [
            math.log(
                (
                    len(nodes) - len(ignored)
                    if constraint.topology_key == HOSTNAME_LABEL
                    else len(domains)
                )
                + 2
            )
            for constraint, domains in zip(constraints, counts, strict=True)
        ]
        return SpreadScoreState(constraints, counts, weights, ignored)

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Return the weighted number of matching pods in the node's domains. Fewer is better:
        ``normalize`` reverses the order.
        """
        found = state.read(SpreadScoreState)
        if node.name in found.ignored:
            return 0
        total = 0.0
        for constraint, counts, weight in zip(
            found.constraints, found.counts, found.weights, strict=True
        ):
            domain = node.view.labels.get(constraint.topology_key)
            if domain is None:
                continue
            if constraint.topology_key == HOSTNAME_LABEL:
                matching = constraint.count(list(node.pods.values()), pod.namespace)
            else:
                matching = counts.get(domain, 0)
            total += float(matching) * weight + float(constraint.max_skew - 1)
        whole = int(total)
        # Go's math.Round; the total is never negative.
        return whole + 1 if total - whole >= 0.5 else whole

    def normalize(
        self, state: CycleState, scores: list[int], nodes: Sequence[NodeInfo]
    ) -> list[int]:
        """Scale the scores so that the fewest pods give the highest score. Ignored nodes get 0."""
        ignored = state.read(SpreadScoreState).ignored
        counted = [
            score for score, node in zip(scores, nodes, strict=True) if node.name not in ignored
        ]
        highest, lowest = max(counted, default=0), min(counted, default=0)
        return [
            0
            if node.name in ignored
            else MAX_NODE_SCORE
            if highest == 0
            else truncated(MAX_NODE_SCORE * (highest + lowest - score), highest)
            for score, node in zip(scores, nodes, strict=True)
        ]
