"""The filter plugins for bound claims: VolumeRestrictions, VolumeBinding and VolumeZone, with
kube-scheduler's texts.

A pod names claims, and a bound claim names its volume. The volume says where it can be used: by
node affinity (VolumeBinding) or, in older clusters, by zone labels (VolumeZone). A claim with
access mode ReadWriteOncePod serves one pod at a time (VolumeRestrictions).

Nothing here binds or provisions volumes. So a claim that waits for its first consumer finds no
volume on any node. A real kube-scheduler would choose a node, and the volume would be provisioned
there. Volumes named in the pod itself (disks by id, generic ephemeral ones) and the limits of CSI
drivers are ignored.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from extender.kube.api import Obj
from extender.lab.scheduler.cache import Snapshot
from extender.lab.scheduler.framework import (
    PROCEED,
    SKIP,
    CycleState,
    FixedState,
    NodeLocalFilter,
    PreFilterResult,
)
from extender.lab.scheduler.listers import Listers
from extender.lab.scheduler.node_affinity import node_selector_term
from extender.lab.scheduler.types import Code, NodeInfo, PodInfo, Status, labels_of
from extender.model.reading import Json, mapping, mappings, sequence, text

BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
WAIT_FOR_FIRST_CONSUMER: Final = "WaitForFirstConsumer"
_READ_WRITE_ONCE_POD: Final = "ReadWriteOncePod"
_CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"
_MULTI_ZONE_DELIMITER: Final = "__"
_GA_LABELS: Final = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
_TOPOLOGY_LABELS: Final = (*_GA_LABELS, *_GA_LABELS.values())


def _refused(reason: str) -> PreFilterResult:
    return PreFilterResult(status=_unresolvable(reason))


def _unresolvable(*reasons: str) -> Status:
    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reasons)


def _claim_not_found(name: str) -> PreFilterResult:
    return _refused(f'persistentvolumeclaim "{name}" not found')


def class_of(claim: Json) -> str:
    """Return the storage class of a claim, "" for none (GetPersistentVolumeClaimClass)."""
    annotated = mapping(claim, "metadata", "annotations").get(_CLASS_ANNOTATION)
    return annotated if isinstance(annotated, str) else text(claim, "spec", "storageClassName")


def fully_bound(claim: Json) -> bool:
    """Return whether a claim has a volume, confirmed by the controller (isPVCFullyBound)."""
    return bool(text(claim, "spec", "volumeName")) and BIND_COMPLETED in mapping(
        claim, "metadata", "annotations"
    )


class VolumeRestrictions:
    """Allows one pod at a time for a ReadWriteOncePod claim."""

    name = "VolumeRestrictions"
    _REFUSED: Final = Status(
        Code.UNSCHEDULABLE,
        (
            "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
            "already in-use by another pod",
        ),
    )

    def __init__(self, listers: Listers) -> None:
        self._listers = listers

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> PreFilterResult:
        """Count the pod's ReadWriteOncePod claims that are in use. Skip if there are none."""
        exclusive = set()
        for name in pod.claims:
            claim = self._listers.claim(pod.namespace, name)
            if claim is None:
                return _claim_not_found(name)
            if _READ_WRITE_ONCE_POD in sequence(claim, "spec", "accessModes"):
                exclusive.add(name)
        used = {
            name
            for node in (snapshot.nodes if exclusive else ())
            for other in node.pods.values()
            if other.namespace == pod.namespace
            for name in exclusive.intersection(other.claims)
        }
        if not used:
            return SKIP
        state.write(ExclusiveClaims(frozenset(exclusive), len(used)))
        return PROCEED

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Return a refusal if any of these claims is in use, on any node."""
        del pod, node
        found = state.read(ExclusiveClaims)
        return self._REFUSED if found is not None and found.users > 0 else None

    def add_pod(self, state: CycleState, pod: PodInfo, other: PodInfo, node: NodeInfo) -> None:
        """Add the claims of another pod."""
        del pod, node
        self._count(state, other, 1)

    def remove_pod(self, state: CycleState, pod: PodInfo, other: PodInfo, node: NodeInfo) -> None:
        """Remove the claims of another pod."""
        del pod, node
        self._count(state, other, -1)

    @staticmethod
    def _count(state: CycleState, other: PodInfo, change: int) -> None:
        found = state.read(ExclusiveClaims)
        if found is not None:
            # As in kube-scheduler, claims are compared only by name, even across namespaces.
            found.users += change * sum(name in found.names for name in other.claims)


@dataclass(slots=True)
class ExclusiveClaims:
    """The pod's ReadWriteOncePod claims, and how often running pods use them."""

    names: frozenset[str]
    users: int

    def clone(self) -> "ExclusiveClaims":
        """Return a copy whose count may change."""
        return ExclusiveClaims(self.names, self.users)


@dataclass(frozen=True, slots=True)
class PodClaims(FixedState):
    """A pod's bound claims. ``waiting``: another claim waits for its first consumer."""

    bound: tuple[Obj, ...]
    waiting: bool


class VolumeBinding(NodeLocalFilter):
    """The node affinity of the volumes to which a pod's claims are bound."""

    name = "VolumeBinding"

    def __init__(self, listers: Listers) -> None:
        self._listers = listers

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> PreFilterResult:
        """Skip pods without claims. Refuse if a claim is missing, lost or being deleted, or is
        unbound and does not wait for its first consumer.
        """
        del snapshot
        if not pod.claims:
            return SKIP
        claims = []
        for name in pod.claims:
            claim = self._listers.claim(pod.namespace, name)
            if claim is None:
                return _claim_not_found(name)
            if text(claim, "status", "phase") == "Lost":
                volume = text(claim, "spec", "volumeName")
                return _refused(
                    f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume '
                    f'"{volume}"'
                )
            if text(claim, "metadata", "deletionTimestamp"):
                return _refused(f'persistentvolumeclaim "{name}" is being deleted')
            claims.append(claim)
        unbound = [claim for claim in claims if not fully_bound(claim)]
        if not all(self._waits(claim) for claim in unbound):
            return _refused("pod has unbound immediate PersistentVolumeClaims")
        state.write(PodClaims(tuple(filter(fully_bound, claims)), waiting=bool(unbound)))
        return PROCEED

    def _waits(self, claim: Obj) -> bool:
        """Return whether a claim waits for its first consumer, and so names no volume."""
        storage_class = self._listers.storage_class(class_of(claim))
        return (
            not text(claim, "spec", "volumeName")
            and storage_class is not None
            and text(storage_class, "volumeBindingMode") == WAIT_FOR_FIRST_CONSUMER
        )

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Return a refusal unless all volumes can be used on the node. The first one that cannot
        decides (checkBoundClaims).
        """
        del pod
        found = state.read(PodClaims)
        if found is None:
            return None
        reasons = []
        for claim in found.bound:
            volume = self._listers.volume(text(claim, "spec", "volumeName"))
            if volume is None:
                reasons.append(
                    "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
                )
                break
            if not volume_reaches(volume, node.view.labels):
                reasons.append("node(s) didn't match PersistentVolume's node affinity")
                break
        if found.waiting:
            reasons.append("node(s) didn't find available persistent volumes to bind")
        return _unresolvable(*reasons) if reasons else None


def volume_reaches(volume: Json, node_labels: Mapping[str, str]) -> bool:
    """Return whether a volume's node affinity matches a node's labels (CheckNodeAffinity)."""
    required = mapping(volume, "spec", "nodeAffinity").get("required")
    if not isinstance(required, Mapping):
        return True
    terms = (node_selector_term(term) for term in mappings(required, "nodeSelectorTerms"))
    return any(term.matches("", node_labels) for term in terms)


VolumeTopology = tuple[tuple[str, frozenset[str]], ...]
"""Topology label -> the values where a volume can be used; ``a__b`` are two values."""


@dataclass(frozen=True, slots=True)
class VolumeTopologies(FixedState):
    """The topologies of all volumes of a pod."""

    labels: VolumeTopology


def volume_topology(volume: Json) -> VolumeTopology:
    """Return a volume's topology labels. A label with an empty value between delimiters is ignored
    (getPVTopologies).
    """
    labels = labels_of(volume)
    found = []
    for key in _TOPOLOGY_LABELS:
        values = (
            [value.strip() for value in labels[key].split(_MULTI_ZONE_DELIMITER)]
            if key in labels
            else [""]
        )
        if all(values):
            found.append((key, frozenset(values)))
    return tuple(found)


class VolumeZone(NodeLocalFilter):
    """Zone and region labels of the volumes to which a pod's claims are bound."""

    name = "VolumeZone"
    _REFUSED: Final = _unresolvable("node(s) had no available volume zone")

    def __init__(self, listers: Listers) -> None:
        self._listers = listers

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> PreFilterResult:
        """Skip if no volume has topology labels."""
        del snapshot
        topologies: list[tuple[str, frozenset[str]]] = []
        for name in pod.claims:
            claim = self._listers.claim(pod.namespace, name)
            if claim is None:
                return _claim_not_found(name)
            volume_name = text(claim, "spec", "volumeName")
            if not volume_name:
                if refusal := self._why_unbound(claim):
                    return _refused(refusal)
                continue
            volume = self._listers.volume(volume_name)
            if volume is None:
                return _refused(f'persistentvolume "{volume_name}" not found')
            topologies += volume_topology(volume)
        if not topologies:
            return SKIP
        state.write(VolumeTopologies(tuple(topologies)))
        return PROCEED

    def _why_unbound(self, claim: Obj) -> str:
        """Return why an unbound claim refuses the pod; "" if it waits for its first consumer."""
        name = class_of(claim)
        if not name:
            return "PersistentVolumeClaim had no pv name and storageClass name"
        storage_class = self._listers.storage_class(name)
        if storage_class is None:
            return f'storageclass.storage.k8s.io "{name}" not found'
        waits = text(storage_class, "volumeBindingMode") == WAIT_FOR_FIRST_CONSUMER
        return "" if waits else "PersistentVolume had no name"

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Return a refusal unless all volumes can be used in the node's zone and region. A node
        without any topology label takes all.
        """
        del pod
        found, labels = state.read(VolumeTopologies), node.view.labels
        if found is None or not any(key in labels for key in _TOPOLOGY_LABELS):
            return None
        for key, values in found.labels:
            if labels.get(key, labels.get(_GA_LABELS.get(key, key))) not in values:
                return self._REFUSED
        return None
