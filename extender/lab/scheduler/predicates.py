"""The filter plugins that look at one node only, in kube-scheduler's default order and with its
texts.

Topology spread, inter-pod affinity and volumes have their own modules. Dynamic resources and
declared node features are not simulated, because the pods here do not use them.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from extender.config.kube_scheduler import is_native_resource
from extender.lab.scheduler.cache import Snapshot
from extender.lab.scheduler.framework import (
    PROCEED,
    SKIP,
    CycleState,
    NodeLocalFilter,
    PreFilterResult,
)
from extender.lab.scheduler.taints import Taint, untolerated_taint
from extender.lab.scheduler.types import (
    ALL_ADDRESSES,
    Code,
    NodeInfo,
    PodInfo,
    Status,
    unresolvable,
)

_UNSCHEDULABLE_TAINT: Final = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")


class NodeUnschedulable(NodeLocalFilter):
    """Cordoned nodes take only pods that tolerate the unschedulable taint."""

    name = "NodeUnschedulable"
    _REFUSED: Final = unresolvable("node(s) were unschedulable")

    def filter(self, _state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Return a refusal if the node is cordoned."""
        if not node.view.unschedulable or _UNSCHEDULABLE_TAINT.tolerated_by(pod.tolerations):
            return None
        return self._REFUSED


class NodeName(NodeLocalFilter):
    """The node that spec.nodeName requests."""

    name = "NodeName"
    _REFUSED: Final = unresolvable("node(s) didn't match the requested node name")

    def filter(self, _state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Return a refusal if the pod requests another node."""
        return None if not pod.node_name or pod.node_name == node.name else self._REFUSED


class TaintToleration(NodeLocalFilter):
    """NoSchedule and NoExecute taints."""

    name = "TaintToleration"
    _REFUSED: Final = unresolvable("node(s) had untolerated taint(s)")

    def filter(self, _state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Return a refusal if the pod does not tolerate a taint."""
        taints = node.view.taints
        return self._REFUSED if taints and untolerated_taint(taints, pod.tolerations) else None


class NodeAffinity(NodeLocalFilter):
    """nodeSelector and required node affinity."""

    name = "NodeAffinity"
    _REFUSED: Final = unresolvable("node(s) didn't match Pod's node affinity/selector")

    def pre_filter(self, _state: CycleState, pod: PodInfo, _snapshot: Snapshot) -> PreFilterResult:
        """Skip pods without affinity. If every term names nodes, narrow the search to those."""
        if pod.node_affinity.empty:
            return SKIP
        named = pod.node_affinity.named_nodes
        if named is None:
            return PROCEED
        if not named:
            return PreFilterResult(status=unresolvable("pod affinity terms conflict"))
        return PreFilterResult(nodes=named)

    def filter(self, _state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Return a refusal if the node does not match."""
        return None if pod.node_affinity.matches(node.name, node.view.labels) else self._REFUSED


class NodePorts(NodeLocalFilter):
    """Host ports."""

    name = "NodePorts"
    _REFUSED: Final = Status(
        Code.UNSCHEDULABLE, ("node(s) didn't have free ports for the requested pod ports",)
    )

    def pre_filter(self, _state: CycleState, pod: PodInfo, _snapshot: Snapshot) -> PreFilterResult:
        """Skip pods without host ports."""
        return PROCEED if pod.host_ports else SKIP

    def filter(self, _state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Return a refusal if a port is taken, on the same address or on all addresses."""
        for wanted in pod.host_ports:
            for held in node.ports:
                if (wanted.protocol, wanted.port) == (held.protocol, held.port) and (
                    wanted.ip == held.ip or ALL_ADDRESSES in {wanted.ip, held.ip}
                ):
                    return self._REFUSED
        return None


@dataclass(frozen=True, slots=True)
class InsufficientResource:
    """One resource that a node lacks, with amounts in the resource's own unit (CPU: milli)."""

    resource: str
    requested: int
    used: int
    capacity: int

    @property
    def reason(self) -> str:
        """kube-scheduler's text."""
        return "Too many pods" if self.resource == "pods" else f"Insufficient {self.resource}"

    @property
    def unresolvable(self) -> bool:
        """Whether even the empty node would lack it. kube-scheduler never says so of pods."""
        return self.resource != "pods" and self.requested > self.capacity


def insufficient_resources(
    pod: PodInfo, node: NodeInfo, ignored: Collection[str] = ()
) -> list[InsufficientResource]:
    """Return everything that a node lacks for a pod (fitsRequest). ``ignored`` are extended
    resources that only an extender counts.
    """
    allocatable, requests = node.view.allocatable, pod.requests
    lacking = []
    if len(node.pods) + 1 > allocatable.pods:
        lacking.append(InsufficientResource("pods", 1, len(node.pods), allocatable.pods))
    if requests.empty:
        return lacking
    amounts = [
        ("cpu", requests.milli_cpu, node.milli_cpu, allocatable.milli_cpu),
        ("memory", requests.memory, node.memory, allocatable.memory),
        (
            "ephemeral-storage",
            requests.ephemeral_storage,
            node.ephemeral_storage,
            allocatable.ephemeral_storage,
        ),
    ]
    amounts += [
        (name, wanted, node.scalar.get(name, 0), allocatable.scalar.get(name, 0))
        for name, wanted in requests.scalar.items()
        if name not in ignored or is_native_resource(name)
    ]
    lacking += [
        InsufficientResource(name, wanted, used, capacity)
        for name, wanted, used, capacity in amounts
        if wanted > 0 and wanted > capacity - used
    ]
    return lacking


class NodeResourcesFit(NodeLocalFilter):
    """CPU, memory, ephemeral storage, extended resources, number of pods (PodFitsResources)."""

    name = "NodeResourcesFit"

    def __init__(self, ignored_resources: Collection[str] = ()) -> None:
        self._ignored = frozenset(ignored_resources)

    def filter(self, _state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Return a refusal with one reason for each resource that the node lacks."""
        lacking = insufficient_resources(pod, node, self._ignored)
        if not lacking:
            return None
        hopeless = any(resource.unresolvable for resource in lacking)
        return Status(
            Code.UNSCHEDULABLE_AND_UNRESOLVABLE if hopeless else Code.UNSCHEDULABLE,
            tuple(resource.reason for resource in lacking),
        )
