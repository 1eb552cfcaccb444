"""The plugins that only kube-scheduler 1.22 has, which a legacy Policy names: NodeLabel,
ServiceAffinity, NodeResourcesMostAllocated, RequestedToCapacityRatio and NodePreferAvoidPods.

Where a pod belongs to several Services, ServiceAffinity's score takes the first one that the
informer has seen; kube-scheduler takes any.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from extender.config.kube_scheduler import CapacityRatio, Policy
from extender.lab.scheduler.cache import Snapshot
from extender.lab.scheduler.framework import (
    PROCEED,
    SKIP,
    CycleState,
    NodeLocalFilter,
    PlainScore,
    PreFilterResult,
    truncated,
)
from extender.lab.scheduler.listers import Listers
from extender.lab.scheduler.quantities import is_scalar_resource
from extender.lab.scheduler.types import (
    MAX_NODE_SCORE,
    Code,
    NodeInfo,
    PodInfo,
    Status,
    unresolvable,
)
from extender.model.reading import mapping

_POLICY_SCORE_MAX: Final = 10
"""MaxCustomPriorityScore: the highest score in a Policy's shape."""


def _holds(wanted: Mapping[str, object], labels: Mapping[str, str]) -> bool:
    """Whether all these labels have these values; true for none."""
    return all(labels.get(key) == value for key, value in wanted.items())


class NodeLabel(NodeLocalFilter, PlainScore):
    """Nodes that have some labels and lack others: as a filter, all; as a score, the share of
    ``preferred`` (label, whether it should be there) that holds.
    """

    name = "NodeLabel"
    _REFUSED: Final = unresolvable("node(s) didn't have the requested labels")

    def __init__(self, policy: Policy) -> None:
        self._present, self._absent = policy.present_labels, policy.absent_labels
        self._preferred = policy.preferred_labels

    def filter(self, _state: CycleState, _pod: PodInfo, node: NodeInfo) -> Status | None:
        """Return a refusal if a label is missing, or is there and should not be."""
        labels = node.view.labels
        lacks = any(label not in labels for label in self._present)
        return self._REFUSED if lacks or any(label in labels for label in self._absent) else None

    def score(self, _state: CycleState, _pod: PodInfo, node: NodeInfo) -> int:
        """Return the mean over the preferences, in whole points."""
        held = sum((label in node.view.labels) == there for label, there in self._preferred)
        return held * MAX_NODE_SCORE // len(self._preferred)


class NodeResourcesMostAllocated(PlainScore):
    """MostRequestedPriority: fuller nodes score higher, by CPU and memory."""

    name = "NodeResourcesMostAllocated"

    def score(self, _state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Return the mean of the used shares with the pod, in whole points."""
        allocatable = node.view.allocatable
        asked = (
            (node.non_zero_milli_cpu + pod.scored.milli_cpu, allocatable.milli_cpu),
            (node.non_zero_memory + pod.scored.memory, allocatable.memory),
        )
        shares = [min(used, most) * MAX_NODE_SCORE // most if most else 0 for used, most in asked]
        return sum(shares) // len(shares)


class NodePreferAvoidPods(PlainScore):
    """All nodes alike: no node of the embedded cluster has the annotation that it reads."""

    name = "NodePreferAvoidPods"

    def score(self, _state: CycleState, _pod: PodInfo, _node: NodeInfo) -> int:
        """Return the highest score."""
        return MAX_NODE_SCORE


@dataclass(slots=True)
class ServicePods:
    """The running pods of the namespace that have all labels of the pod, and the nodes that they
    run on. ``has_service``: a Service selects the pod.
    """

    snapshot: Snapshot
    pods: tuple[PodInfo, ...]
    has_service: bool

    def clone(self) -> "ServicePods":
        """Return a copy whose pods may change."""
        return ServicePods(self.snapshot, self.pods, self.has_service)


class ServiceAffinity:
    """As a filter: the pods of a Service go to nodes with the same values of some labels. As a
    score: they spread over the values of other labels.
    """

    name = "ServiceAffinity"
    _REFUSED: Final = Status(Code.UNSCHEDULABLE, ("node(s) didn't match service affinity",))

    def __init__(self, policy: Policy, listers: Listers) -> None:
        self._affinity, self._anti_affinity = policy.affinity_labels, policy.anti_affinity_labels
        self._listers = listers

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> PreFilterResult:
        """Look for the pods that decide. Skip without labels for the filter."""
        if not self._affinity:
            return SKIP
        pods = tuple(
            other for node in snapshot.nodes for other in node.pods.values() if _belongs(pod, other)
        )
        state.write(ServicePods(snapshot, pods, bool(self._listers.services_of(pod))))
        return PROCEED

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Return a refusal unless the node has the values that the pod's nodeSelector names, and
        those of the node of the Service's first pod.
        """
        found = state.read(ServicePods)
        wanted = {
            key: value
            for key, value in mapping(pod.obj, "spec", "nodeSelector").items()
            if key in self._affinity
        }
        if found.has_service and len(wanted) < len(self._affinity):
            # A trial of preemption takes pods away from the node.
            others = [
                other
                for other in found.pods
                if other.node_name != node.name or other.uid in node.pods
            ]
            if others:
                first = found.snapshot.by_name.get(others[0].node_name)
                if first is None:
                    return Status(Code.ERROR, ("node not found",))
                labels = first.view.labels
                there = {key: labels[key] for key in self._affinity if key in labels}
                wanted = {**there, **wanted}
        return None if _holds(wanted, node.view.labels) else self._REFUSED

    def add_pod(self, state: CycleState, pod: PodInfo, other: PodInfo, _node: NodeInfo) -> None:
        """Add another pod, if it belongs to the pod's."""
        if _belongs(pod, other):
            found = state.read(ServicePods)
            found.pods = (*found.pods, other)

    def remove_pod(self, state: CycleState, _pod: PodInfo, other: PodInfo, _node: NodeInfo) -> None:
        """Remove another pod."""
        found = state.read(ServicePods)
        found.pods = tuple(one for one in found.pods if one.key != other.key)

    def pre_score(
        self, _state: CycleState, _pod: PodInfo, _nodes: Sequence[NodeInfo], _snapshot: Snapshot
    ) -> bool:
        """Score every pod."""
        return True

    def score(self, _state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Return the number of the Service's pods on the node."""
        services = self._listers.services_of(pod)
        if not services:
            return 0
        selector = mapping(services[0], "spec", "selector")
        return sum(
            other.namespace == pod.namespace
            and not other.deleting
            and _holds(selector, other.labels)
            for other in node.pods.values()
        )

    def normalize(
        self, _state: CycleState, scores: list[int], nodes: Sequence[NodeInfo]
    ) -> list[int]:
        """Scale to 0..100, the mean over the labels: 100 where a node's value has none of the
        pods, 0 for a node without the label.
        """
        total = sum(scores)
        means = [0.0] * len(scores)
        for label in self._anti_affinity:
            values = [node.view.labels.get(label) for node in nodes]
            counts: dict[str | None, int] = {}
            for value, score in zip(values, scores, strict=True):
                counts[value] = counts.get(value, 0) + score
            for index, value in enumerate(values):
                if value is not None:
                    share = (total - counts[value]) / total if total > 0 else 1.0
                    means[index] += float(MAX_NODE_SCORE) * share / len(self._anti_affinity)
        return [int(mean) for mean in means]


def _belongs(pod: PodInfo, other: PodInfo) -> bool:
    return other.namespace == pod.namespace and _holds(pod.labels, other.labels)


class RequestedToCapacityRatio(PlainScore):
    """Scores the used share of each resource by a shape, and weighs the resources."""

    name = "RequestedToCapacityRatio"

    def __init__(self, ratio: CapacityRatio) -> None:
        scale = MAX_NODE_SCORE // _POLICY_SCORE_MAX
        self._shape = [(utilization, score * scale) for utilization, score in ratio.shape]
        self._resources = ratio.resources

    def score(self, _state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Return the weighted mean over the resources that score more than 0."""
        points = weights = 0
        for resource, weight in self._resources.items():
            requested, capacity = _use(resource, pod, node)
            if capacity == 0:
                continue
            over = requested > capacity
            score = self._at(MAX_NODE_SCORE if over else requested * MAX_NODE_SCORE // capacity)
            if score > 0:
                points += score * weight
                weights += weight
        return (2 * points + weights) // (2 * weights) if weights else 0

    def _at(self, utilization: int) -> int:
        """The shape's value: linear between two points, and flat outside of them."""
        before = self._shape[0]
        for point in self._shape:
            if utilization <= point[0]:
                if point is before:
                    return point[1]
                rise, run = point[1] - before[1], point[0] - before[0]
                return before[1] + truncated(rise * (utilization - before[0]), run)
            before = point
        return before[1]


def _use(resource: str, pod: PodInfo, node: NodeInfo) -> tuple[int, int]:
    """(requested with the pod, allocatable). (0, 0) for an extended resource that the pod does not
    request.
    """
    allocatable = node.view.allocatable
    if resource == "cpu":
        return node.non_zero_milli_cpu + pod.scored.milli_cpu, allocatable.milli_cpu
    if resource == "memory":
        return node.non_zero_memory + pod.scored.memory, allocatable.memory
    if resource == "ephemeral-storage":
        requested = node.ephemeral_storage + pod.requests.ephemeral_storage
        return requested, allocatable.ephemeral_storage
    asked = pod.requests.scalar.get(resource, 0)
    if not asked and is_scalar_resource(resource):
        return 0, 0
    return node.scalar.get(resource, 0) + asked, allocatable.scalar.get(resource, 0)
