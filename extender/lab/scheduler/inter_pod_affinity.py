"""InterPodAffinity: required terms filter, preferred terms score. Both the pod's terms and those of
running pods count.

For each topology pair (key, value), the filter counts the pods that match all of this pod's
affinity terms, the pods that match its anti-affinity terms, and the running pods whose
anti-affinity terms match this pod.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from extender.lab.scheduler.cache import Snapshot
from extender.lab.scheduler.framework import (
    PROCEED,
    SKIP,
    CountingFilter,
    CycleState,
    FixedState,
    PreFilterResult,
)
from extender.lab.scheduler.listers import Listers
from extender.lab.scheduler.types import (
    MAX_NODE_SCORE,
    AffinityTerm,
    Code,
    NodeInfo,
    PodInfo,
    Status,
    unresolvable,
)

HARD_POD_AFFINITY_WEIGHT: Final = 1
"""The weight in the score of a running pod's required affinity to this pod."""

Pairs = dict[tuple[str, str], int]


def _update(pairs: Pairs, node: NodeInfo, key: str, change: int) -> None:
    value = node.view.labels.get(key)
    if value is None:
        return
    pair = (key, value)
    pairs[pair] = pairs.get(pair, 0) + change
    if pairs[pair] == 0:
        del pairs[pair]


@dataclass(slots=True)
class AffinityFilterState:
    """The filter's three counts."""

    existing_anti_affinity: Pairs
    affinity: Pairs
    anti_affinity: Pairs

    def clone(self) -> "AffinityFilterState":
        """Return a copy whose counts may change."""
        return AffinityFilterState(
            dict(self.existing_anti_affinity), dict(self.affinity), dict(self.anti_affinity)
        )


@dataclass(slots=True)
class AffinityScoreState(FixedState):
    """Topology key -> value -> sum of weights."""

    weights: dict[str, dict[str, int]]


class InterPodAffinity(CountingFilter):
    """The plugin, for filter and score."""

    name = "InterPodAffinity"
    _AFFINITY: Final = unresolvable("node(s) didn't match pod affinity rules")
    _ANTI_AFFINITY: Final = Status(
        Code.UNSCHEDULABLE, ("node(s) didn't match pod anti-affinity rules",)
    )
    _EXISTING: Final = Status(
        Code.UNSCHEDULABLE, ("node(s) didn't satisfy existing pods anti-affinity rules",)
    )

    def __init__(self, listers: Listers, *, hard_weight: int = HARD_POD_AFFINITY_WEIGHT) -> None:
        """``hard_weight``: hardPodAffinityWeight, 0 to 100."""
        self._listers = listers
        self._hard_weight = hard_weight

    def _matches(self, term: AffinityTerm, pod: PodInfo) -> bool:
        return term.matches(pod, self._listers.namespace_labels(pod.namespace))

    def _matches_all(self, terms: Sequence[AffinityTerm], pod: PodInfo) -> bool:
        return bool(terms) and all(self._matches(term, pod) for term in terms)

    # Filter

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> PreFilterResult:
        """Count. Skip if neither this pod nor a running pod has terms that apply."""
        found = AffinityFilterState({}, {}, {})
        for node in snapshot.with_required_anti_affinity:
            for other in node.pods_with_required_anti_affinity.values():
                self._count_existing(found, pod, other, node, 1)
        if pod.required_affinity or pod.required_anti_affinity:
            for node in snapshot.nodes:
                for other in node.pods.values():
                    self._count_own(found, pod, other, node, 1)
        elif not found.existing_anti_affinity:
            return SKIP
        state.write(found)
        return PROCEED

    def _count_existing(
        self, found: AffinityFilterState, pod: PodInfo, other: PodInfo, node: NodeInfo, change: int
    ) -> None:
        for term in other.required_anti_affinity:
            if self._matches(term, pod):
                _update(found.existing_anti_affinity, node, term.topology_key, change)

    def _count_own(
        self, found: AffinityFilterState, pod: PodInfo, other: PodInfo, node: NodeInfo, change: int
    ) -> None:
        if self._matches_all(pod.required_affinity, other):
            for term in pod.required_affinity:
                _update(found.affinity, node, term.topology_key, change)
        for term in pod.required_anti_affinity:
            if self._matches(term, other):
                _update(found.anti_affinity, node, term.topology_key, change)

    def count(
        self, state: CycleState, pod: PodInfo, other: PodInfo, node: NodeInfo, change: int
    ) -> None:
        """See CountingFilter."""
        found = state.read(AffinityFilterState)
        self._count_existing(found, pod, other, node, change)
        self._count_own(found, pod, other, node, change)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Check the pod's affinity, its anti-affinity, then the anti-affinity of running pods."""
        found = state.read(AffinityFilterState)
        labels = node.view.labels
        if not self._affinity_met(found, pod, labels):
            return self._AFFINITY
        if any(
            found.anti_affinity.get((term.topology_key, labels[term.topology_key]), 0) > 0
            for term in pod.required_anti_affinity
            if term.topology_key in labels
        ):
            return self._ANTI_AFFINITY
        if any(pair in found.existing_anti_affinity for pair in labels.items()):
            return self._EXISTING
        return None

    def _affinity_met(
        self, found: AffinityFilterState, pod: PodInfo, labels: Mapping[str, str]
    ) -> bool:
        terms = pod.required_affinity
        if any(term.topology_key not in labels for term in terms):
            return False
        if all(
            found.affinity.get((term.topology_key, labels[term.topology_key]), 0) > 0
            for term in terms
        ):
            return True
        # The first pod of a group whose affinity terms match the pod itself may go anywhere.
        return not found.affinity and self._matches_all(terms, pod)

    # Score

    def pre_score(
        self, state: CycleState, pod: PodInfo, _nodes: Sequence[NodeInfo], snapshot: Snapshot
    ) -> bool:
        """Sum the weights of all relevant pods for each topology pair."""
        own = bool(pod.preferred_affinity or pod.preferred_anti_affinity)
        weights: dict[str, dict[str, int]] = {}
        touched = False
        for node in snapshot.nodes if own else snapshot.with_affinity:
            if not node.view.labels:
                continue
            for other in (node.pods if own else node.pods_with_affinity).values():
                touched |= self._weigh(weights, pod, other, node)
        if not touched:
            return False
        state.write(AffinityScoreState(weights))
        return True

    def _weigh(
        self, weights: dict[str, dict[str, int]], pod: PodInfo, other: PodInfo, node: NodeInfo
    ) -> bool:
        pulls = [
            *((term, term.weight, other) for term in pod.preferred_affinity),
            *((term, -term.weight, other) for term in pod.preferred_anti_affinity),
            *((term, self._hard_weight, pod) for term in other.required_affinity),
            *((term, term.weight, pod) for term in other.preferred_affinity),
            *((term, -term.weight, pod) for term in other.preferred_anti_affinity),
        ]
        touched = False
        for term, weight, meant in pulls:
            value = node.view.labels.get(term.topology_key)
            if value is not None and self._matches(term, meant):
                domains = weights.setdefault(term.topology_key, {})
                domains[value] = domains.get(value, 0) + weight
                touched = True
        return touched

    def score(self, state: CycleState, _pod: PodInfo, node: NodeInfo) -> int:
        """Return the sum of the weights of this node's domains."""
        found = state.read(AffinityScoreState)
        labels = node.view.labels
        return sum(
            domains.get(labels[key], 0) for key, domains in found.weights.items() if key in labels
        )

    def normalize(
        self, _state: CycleState, scores: list[int], _nodes: Sequence[NodeInfo]
    ) -> list[int]:
        """Scale the lowest score to 0 and the highest to 100, in float64 as kube-scheduler does."""
        if not scores:
            return scores
        lowest, highest = min(scores), max(scores)
        spread = highest - lowest
        if spread <= 0:
            return [0] * len(scores)
        return [
            int(float(MAX_NODE_SCORE) * (float(score - lowest) / float(spread))) for score in scores
        ]
