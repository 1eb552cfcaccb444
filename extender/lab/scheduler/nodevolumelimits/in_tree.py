"""The plugins EBSLimits, GCEPDLimits, AzureDiskLimits and CinderLimits of kube-scheduler 1.22
(``non_csi.go``): one class and a table.

A node takes as many volumes as its allocatable ``attachable-volumes-KIND`` says. Else the
environment variable KUBE_MAX_PD_VOLS decides, and else a constant. In 1.22, only Cinder has
migrated to CSI by default.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from extender.kube.api import Obj
from extender.lab.scheduler.cache import Snapshot
from extender.lab.scheduler.csi_translation import (
    AZURE_DISK,
    CINDER,
    EBS,
    GCE_PD,
    IN_TREE_PLUGINS,
    migrated_on,
)
from extender.lab.scheduler.framework import (
    PROCEED,
    SKIP,
    CycleState,
    NodeLocalFilter,
    PreFilterResult,
)
from extender.lab.scheduler.listers import Listers
from extender.lab.scheduler.nodevolumelimits.csi import MAX_VOLUME_COUNT_EXCEEDED
from extender.lab.scheduler.types import NodeInfo, PodInfo, Status
from extender.model.objects import object_key
from extender.model.reading import mapping, mappings, text

MAX_VOLUMES_VARIABLE: Final = "KUBE_MAX_PD_VOLS"
_EBS_NITRO: Final = re.compile(r"^[cmr]5.*|t3|z1d")
_EBS_NITRO_MAX: Final = 25
_INSTANCE_TYPES: Final = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")


@dataclass(frozen=True, slots=True)
class InTreeLimit:
    """One row. ``plugin``: the in-tree plugin's name; ``volume_id``: the field of a source that
    tells volumes apart; ``resource``: the limit in a node's allocatable; ``default``: the limit
    without that.
    """

    name: str
    plugin: str
    volume_id: str
    resource: str
    default: int


_LIMITS: Final = (
    InTreeLimit("EBSLimits", EBS, "volumeID", "attachable-volumes-aws-ebs", 39),
    InTreeLimit("GCEPDLimits", GCE_PD, "pdName", "attachable-volumes-gce-pd", 16),
    InTreeLimit("AzureDiskLimits", AZURE_DISK, "diskName", "attachable-volumes-azure-disk", 16),
    InTreeLimit("CinderLimits", CINDER, "volumeID", "attachable-volumes-cinder", 256),
)
IN_TREE_LIMITS: Final[Mapping[str, InTreeLimit]] = {limit.name: limit for limit in _LIMITS}


def migrated_in_1_22(csi_node: Obj | None, plugin: str) -> bool:
    """Return whether kube-scheduler 1.22 treats a plugin as migrated: Cinder is the only one whose
    feature gate is on by default, and the CSINode must name it.
    """
    return plugin == CINDER and migrated_on(csi_node, plugin)


def max_volumes_of(environment: Mapping[str, str]) -> int | None:
    """Return the limit in KUBE_MAX_PD_VOLS; None if there is none, or no positive number."""
    given = environment.get(MAX_VOLUMES_VARIABLE, "")
    return int(given) if re.fullmatch(r"\+?[0-9]{1,18}", given) and int(given) > 0 else None


class InTreeVolumeLimits(NodeLocalFilter):
    """Refuses nodes that cannot attach the pod's volumes of one in-tree plugin."""

    def __init__(self, limit: InTreeLimit, listers: Listers, max_volumes: int | None) -> None:
        """``max_volumes``: see ``max_volumes_of``."""
        self.name = limit.name
        self._limit = limit
        self._source = IN_TREE_PLUGINS[limit.plugin].source
        self._listers = listers
        self._max_volumes = max_volumes

    def pre_filter(self, _state: CycleState, pod: PodInfo, _snapshot: Snapshot) -> PreFilterResult:
        """Skip pods that have no such volume."""
        return PROCEED if self._volumes_of(pod) else SKIP

    def filter(self, _state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Return a refusal if the node's volumes and the pod's new ones are too many."""
        if migrated_in_1_22(self._listers.csi_node(node.name), self._limit.plugin):
            return None
        there: set[str] = set()
        for other in node.pods.values():
            there |= self._volumes_of(other)
        return (
            MAX_VOLUME_COUNT_EXCEEDED
            if len(there | self._volumes_of(pod)) > self._max_of(node)
            else None
        )

    def _max_of(self, node: NodeInfo) -> int:
        allocatable = node.view.allocatable.scalar
        if self._limit.resource in allocatable:
            return allocatable[self._limit.resource]
        if self._max_volumes is not None:
            return self._max_volumes
        labels = node.view.labels
        instance = next((labels[key] for key in _INSTANCE_TYPES if key in labels), "")
        if self._limit.plugin == EBS and _EBS_NITRO.search(instance):
            return _EBS_NITRO_MAX
        return self._limit.default

    def _volumes_of(self, pod: PodInfo) -> set[str]:
        """The ids of a pod's volumes of this plugin (filterVolumes)."""
        found = set()
        for inline in mappings(pod.obj, "spec", "volumes"):
            if inline.get(self._source) is not None:
                found.add(text(inline, self._source, self._limit.volume_id))
        for name in pod.claims:
            claim = self._listers.claim(pod.namespace, name)
            if claim is None:
                continue
            volume = self._listers.volume(text(claim, "spec", "volumeName"))
            if volume is None:
                name_of_class = text(claim, "spec", "storageClassName")
                storage_class = self._listers.storage_class(name_of_class) or {}
                if text(storage_class, "provisioner") == self._limit.plugin:
                    found.add(f"\0{object_key(pod.namespace, name)}")
            elif mapping(volume, "spec").get(self._source) is not None:
                found.add(text(volume, "spec", self._source, self._limit.volume_id))
        return found
