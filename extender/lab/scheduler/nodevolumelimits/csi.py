"""The plugin NodeVolumeLimits: volumes of CSI drivers (kube-scheduler 1.37's ``csi.go``).

A pod's volume counts if its claim has a CSI volume or the class of a driver, or if its in-tree
plugin has migrated to a driver. A node's CSINode says how many volumes of a driver it takes. A
volume that several pods of the node use counts once. Volumes that are attached to the node without
a pod there (VolumeAttachment) count too.

A driver whose CSIDriver says ``preventPodSchedulingIfMissing`` must be installed on the node.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from extender.kube.api import Obj
from extender.lab.scheduler.cache import Snapshot
from extender.lab.scheduler.csi_translation import (
    IN_TREE_PLUGINS,
    TranslationError,
    in_tree_plugin_of,
)
from extender.lab.scheduler.framework import (
    PROCEED,
    SKIP,
    CycleState,
    FixedState,
    NodeLocalFilter,
    PreFilterResult,
)
from extender.lab.scheduler.listers import Listers
from extender.lab.scheduler.types import Code, NodeInfo, PodInfo, Status, labels_of, unresolvable
from extender.lab.scheduler.volumebinding.matching import class_of, why_not_for_pod
from extender.model.errors import VReplicaError
from extender.model.objects import object_key
from extender.model.reading import mapping, mappings, text

MAX_VOLUME_COUNT_EXCEEDED: Final = Status(Code.UNSCHEDULABLE, ("node(s) exceed max volume count",))
AttachableVolumes = dict[str, str]
"""``driver/handle`` -> driver."""
IsMigrated = Callable[[Obj | None, str], bool]
"""Whether an in-tree plugin has migrated on the node of a CSINode (isCSIMigrationOn)."""


class VolumeCountError(VReplicaError):
    """The volumes of a pod cannot be counted."""


class ClaimNotFound(VReplicaError):
    """A claim of the new pod does not exist."""


@dataclass(frozen=True, slots=True)
class Attachments(FixedState):
    """The volumes that VolumeAttachments name, by node."""

    by_node: Mapping[str, AttachableVolumes]


def has_attachable_volumes(pod: PodInfo) -> bool:
    """Return whether a pod has a claim, or a volume of an in-tree plugin that can migrate."""
    return bool(pod.volume_claims) or any(
        in_tree_plugin_of(volume) for volume in mappings(pod.obj, "spec", "volumes")
    )


def limits_of(csi_node: Obj | None) -> dict[str, int]:
    """Return driver -> how many volumes the node takes. A driver without a limit is not there."""
    limits = {}
    for driver in mappings(csi_node or {}, "spec", "drivers"):
        count = mapping(driver, "allocatable").get("count")
        if isinstance(count, int):
            limits[text(driver, "name")] = count
    return limits


def _on_every_csi_node(csi_node: Obj | None, _plugin: str) -> bool:
    # Since 1.37 the plugin no longer reads the annotation.
    return csi_node is not None


class NodeVolumeLimits(NodeLocalFilter):
    """Refuses nodes that cannot attach the pod's volumes of CSI drivers."""

    name = "NodeVolumeLimits"

    def __init__(self, listers: Listers, is_migrated: IsMigrated = _on_every_csi_node) -> None:
        self._listers = listers
        self._is_migrated = is_migrated

    def pre_filter(self, state: CycleState, pod: PodInfo, _snapshot: Snapshot) -> PreFilterResult:
        """Skip pods that have nothing to attach."""
        if not has_attachable_volumes(pod):
            return SKIP
        state.write(Attachments(self._attachments()))
        return PROCEED

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Return a refusal if a driver is missing on the node, or has no room there for the pod's
        new volumes.
        """
        try:
            return self._refusal(state.read(Attachments), pod, node)
        except ClaimNotFound as error:
            return unresolvable(str(error))
        except VolumeCountError as error:
            return Status(Code.ERROR, (str(error),))

    def _refusal(self, attachments: Attachments, pod: PodInfo, node: NodeInfo) -> Status | None:
        csi_node = self._listers.csi_node(node.name)
        new = self._volumes_of(pod, csi_node, is_new=True)
        for driver in new.values():
            if self._is_missing(driver, csi_node):
                reason = f"{driver} CSI driver is not installed on the node"
                return Status(Code.UNSCHEDULABLE, (reason,))
        limits = limits_of(csi_node) if new else {}
        if not limits:
            return None
        used: AttachableVolumes = {}
        for other in node.pods.values():
            used |= self._volumes_of(other, csi_node, is_new=False)
        attached = attachments.by_node.get(node.name, {})
        there = Counter({**attached, **used}.values())
        # As in kube-scheduler, a new volume that is attached but that no pod uses counts twice.
        added = Counter(driver for key, driver in new.items() if key not in used)
        over = any(
            driver in limits and there[driver] + more > limits[driver]
            for driver, more in added.items()
        )
        return MAX_VOLUME_COUNT_EXCEEDED if over else None

    def _is_missing(self, driver: str, csi_node: Obj | None) -> bool:
        """Whether the driver must be on the node and is not (checkCSIDriverOnNode)."""
        found = self._listers.csi_driver(driver)
        if found is None or mapping(found, "spec").get("preventPodSchedulingIfMissing") is not True:
            return False
        installed = mappings(csi_node or {}, "spec", "drivers")
        return all(text(one, "name") != driver for one in installed)

    def _volumes_of(self, pod: PodInfo, csi_node: Obj | None, *, is_new: bool) -> AttachableVolumes:
        """Return a pod's volumes that the node would attach (filterAttachableVolumes). Raises
        ClaimNotFound of a new pod, VolumeCountError.
        """
        found: AttachableVolumes = {}
        for volume in mappings(pod.obj, "spec", "volumes"):
            if (plugin := in_tree_plugin_of(volume)) is None:
                continue
            if not self._is_migrated(csi_node, plugin.name):
                continue
            try:
                handle = plugin.handle(mapping(volume, plugin.source), {})
            except TranslationError as error:
                name = text(volume, "name")
                what = f"converting volume({name}) from inline to csi: {error}"
                raise VolumeCountError(what) from error
            found[f"{plugin.driver}/{handle}"] = plugin.driver
        for named in pod.volume_claims:
            claim = self._listers.claim(pod.namespace, named.name)
            if claim is None:
                if is_new:
                    raise ClaimNotFound(
                        f"looking up PVC {object_key(pod.namespace, named.name)}: "
                        f'persistentvolumeclaim "{named.name}" not found'
                    )
                continue
            if named.ephemeral and (problem := why_not_for_pod(claim, pod)):
                raise VolumeCountError(problem)
            driver, handle = self._driver_of(claim, csi_node)
            if driver and handle:
                found[f"{driver}/{handle}"] = driver
        return found

    def _driver_of(self, claim: Obj, csi_node: Obj | None) -> tuple[str, str]:
        """Return driver and volume handle of a claim; "" if there is none (getCSIDriverInfo)."""
        volume = self._listers.volume(text(claim, "spec", "volumeName"))
        if volume is None:
            return self._driver_of_class(claim, csi_node)
        spec = mapping(volume, "spec")
        if source := mapping(spec, "csi"):
            return text(source, "driver"), text(source, "volumeHandle")
        plugin = in_tree_plugin_of(spec)
        if plugin is None or not self._is_migrated(csi_node, plugin.name):
            return "", ""
        try:
            handle = plugin.handle(mapping(spec, plugin.source), labels_of(volume))
        except TranslationError:
            # kube-scheduler logs it and does not count the volume.
            return "", ""
        return plugin.driver, handle

    def _driver_of_class(self, claim: Obj, csi_node: Obj | None) -> tuple[str, str]:
        """The same of a claim without a volume: its class's driver, and an id of its own."""
        storage_class = self._listers.storage_class(class_of(claim))
        if storage_class is None:
            return "", ""
        provisioner = text(storage_class, "provisioner")
        if (plugin := IN_TREE_PLUGINS.get(provisioner)) is not None:
            if not self._is_migrated(csi_node, provisioner):
                return "", ""
            provisioner = plugin.driver
        metadata = mapping(claim, "metadata")
        # No driver makes such a handle: kube-scheduler puts a random prefix before the claim's key.
        key = object_key(text(metadata, "namespace"), text(metadata, "name"))
        return provisioner, f"\0{key}"

    def _attachments(self) -> dict[str, AttachableVolumes]:
        """The attached volumes by node (getNodeVolumeAttachmentInfo)."""
        found: dict[str, AttachableVolumes] = {}
        for attachment in self._listers.volume_attachments():
            driver = text(attachment, "spec", "attacher")
            name = text(attachment, "spec", "source", "persistentVolumeName")
            source = mapping(self._listers.volume(name) or {}, "spec", "csi")
            if driver and source:
                key = f"{driver}/{text(source, 'volumeHandle')}"
                found.setdefault(text(attachment, "spec", "nodeName"), {})[key] = driver
        return found
