"""The filter plugins VolumeRestrictions and VolumeZone, with kube-scheduler's texts.

A claim with access mode ReadWriteOncePod serves one pod at a time, and so does a disk that a pod
names itself (VolumeRestrictions). In older clusters, zone labels of a volume say where it can be
used (VolumeZone); newer ones have node affinity for that (``volumebinding``).

Both look at claims that the pod names, and not at those of its ephemeral volumes, as kube-scheduler
1.37 does.
"""

from dataclasses import dataclass
from typing import Final

from extender.kube.api import Obj
from extender.lab.scheduler.cache import Snapshot
from extender.lab.scheduler.framework import (
    PROCEED,
    SKIP,
    CountingFilter,
    CycleState,
    FixedState,
    NodeLocalFilter,
    PreFilterResult,
)
from extender.lab.scheduler.listers import Listers
from extender.lab.scheduler.types import Code, NodeInfo, PodInfo, Status, labels_of, unresolvable
from extender.lab.scheduler.volumebinding.matching import class_of, waits_for_consumer
from extender.model.reading import Json, mapping, mappings, sequence, text

_READ_WRITE_ONCE_POD: Final = "ReadWriteOncePod"
_MULTI_ZONE_DELIMITER: Final = "__"
_GA_LABELS: Final = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
_TOPOLOGY_LABELS: Final = (*_GA_LABELS, *_GA_LABELS.values())


def _refused(reason: str) -> PreFilterResult:
    return PreFilterResult(status=unresolvable(reason))


def _claim_not_found(name: str) -> PreFilterResult:
    return _refused(f'persistentvolumeclaim "{name}" not found')


_DISKS: Final = ("gcePersistentDisk", "awsElasticBlockStore", "iscsi", "rbd")
_NO_DISK: Final = Status(Code.UNSCHEDULABLE, ("node(s) had no available disk",))


def _disks(pod: PodInfo) -> list[tuple[str, Json]]:
    """Return the disks that a pod names itself: (kind, the disk)."""
    return [
        (kind, mapping(volume, kind))
        for volume in mappings(pod.obj, "spec", "volumes")
        for kind in _DISKS
        if volume.get(kind) is not None
    ]


def _conflicts(kind: str, disk: Json, other: Json) -> bool:
    """Return whether two pods on a node cannot both mount these (isVolumeConflict)."""
    if kind == "awsElasticBlockStore":
        return disk.get("volumeID") == other.get("volumeID")
    if disk.get("readOnly") is True and other.get("readOnly") is True:
        return False
    if kind == "rbd":
        monitors = set(sequence(disk, "monitors")) & set(sequence(other, "monitors"))
        return bool(monitors) and all(disk.get(key) == other.get(key) for key in ("pool", "image"))
    key = "pdName" if kind == "gcePersistentDisk" else "iqn"
    return disk.get(key) == other.get(key)


class VolumeRestrictions(CountingFilter):
    """NoDiskConflict: one pod of a node at a time for a disk that pods name themselves. And one pod
    at a time for a ReadWriteOncePod claim.
    """

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
        """Count the pod's ReadWriteOncePod claims that are in use. Skip if there are none, and no
        disks.
        """
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
        if not used and not _disks(pod):
            return SKIP
        state.write(ExclusiveClaims(frozenset(exclusive), len(used)))
        return PROCEED

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Return a refusal if a pod of the node has one of the disks, or if any of these claims is
        in use on any node.
        """
        disks = _disks(pod)
        for other in node.pods.values() if disks else ():
            for kind, theirs in _disks(other):
                if any(mine == kind and _conflicts(kind, disk, theirs) for mine, disk in disks):
                    return _NO_DISK
        return self._REFUSED if state.read(ExclusiveClaims).users > 0 else None

    def count(
        self, state: CycleState, _pod: PodInfo, other: PodInfo, _node: NodeInfo, change: int
    ) -> None:
        """See CountingFilter."""
        found = state.read(ExclusiveClaims)
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
    _REFUSED: Final = unresolvable("node(s) had no available volume zone")

    def __init__(self, listers: Listers) -> None:
        self._listers = listers

    def pre_filter(self, state: CycleState, pod: PodInfo, _snapshot: Snapshot) -> PreFilterResult:
        """Skip if no volume has topology labels."""
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
        return "" if waits_for_consumer(storage_class) else "PersistentVolume had no name"

    def filter(self, state: CycleState, _pod: PodInfo, node: NodeInfo) -> Status | None:
        """Return a refusal unless all volumes can be used in the node's zone and region. A node
        without any topology label takes all.
        """
        found, labels = state.read(VolumeTopologies), node.view.labels
        if not any(key in labels for key in _TOPOLOGY_LABELS):
            return None
        for key, values in found.labels:
            if labels.get(key, labels.get(_GA_LABELS.get(key, key))) not in values:
                return self._REFUSED
        return None
