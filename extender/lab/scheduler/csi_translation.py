"""In-tree volume plugins and the CSI drivers to which they have migrated (``csi-translation-lib``).

kube-scheduler's volume plugins treat a volume of a migrated plugin as one of its CSI driver. They
need the driver, the volume's handle, and its node affinity with the driver's topology key.
``kubernetes.io/azure-file`` and ``kubernetes.io/vsphere-volume`` are not here, because
kube-scheduler 1.37 never treats them as migrated.
"""

import copy
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from extender.kube.api import Obj
from extender.lab.scheduler.types import labels_of
from extender.model.errors import VReplicaError
from extender.model.names import ZONE_LABEL
from extender.model.reading import Json, mapping, mappings, text, texts

EBS: Final = "kubernetes.io/aws-ebs"
GCE_PD: Final = "kubernetes.io/gce-pd"
AZURE_DISK: Final = "kubernetes.io/azure-disk"
CINDER: Final = "kubernetes.io/cinder"
MIGRATED_PLUGINS: Final = "storage.alpha.kubernetes.io/migrated-plugins"
"""The CSINode's annotation: names of in-tree plugins, with commas between them."""
_BETA_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
_BETA_REGION: Final = "failure-domain.beta.kubernetes.io/region"
_REGION: Final = "topology.kubernetes.io/region"
_MULTI_ZONE_DELIMITER: Final = "__"
_EBS_VOLUME: Final = re.compile(r"vol-[^/]*")


class TranslationError(VReplicaError):
    """A volume that its CSI driver does not know. The text is csi-translation-lib's."""


@dataclass(frozen=True, slots=True)
class InTreePlugin:
    """One in-tree plugin. ``source``: the field of a pod's volume and of a PersistentVolume's spec.
    ``handle`` returns the driver's id of a source, with the PersistentVolume's labels. It raises
    TranslationError. ``topology_key``: the driver's key for zones; "" if it has none.
    """

    name: str
    driver: str
    source: str
    handle: Callable[[Json, Mapping[str, str]], str]
    topology_key: str = ""


def _ebs_handle(source: Json, _labels: Mapping[str, str]) -> str:
    given = text(source, "volumeID")
    if not given.startswith("aws://"):
        return given
    volume = urlsplit(given).path.strip("/")
    if _EBS_VOLUME.fullmatch(volume) is None:
        raise TranslationError(
            f"failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume "
            f"({given})"
        )
    return volume


def _gce_handle(source: Json, labels: Mapping[str, str]) -> str:
    zones = (labels.get(_BETA_ZONE) or labels.get(ZONE_LABEL, "")).split(_MULTI_ZONE_DELIMITER)
    where = f"zones/{zones[0] or 'UNSPECIFIED'}"
    if len(zones) > 1:
        where = f"regions/{_gce_region(zones)}"
    return f"projects/UNSPECIFIED/{where}/disks/{text(source, 'pdName')}"


def _gce_region(zones: list[str]) -> str:
    problem = "failed to get region from zones: "
    for zone in zones:
        if zone.count("-") != 2:
            raise TranslationError(
                f"{problem}zone in unexpected format, expected: {{locale}}-{{region}}-{{zone}}, "
                f"got: {zone}"
            )
    regions = {zone.rpartition("-")[0] for zone in zones}
    if len(regions) != 1:
        found = " ".join(f"{region}:{{}}" for region in sorted(regions))
        raise TranslationError(
            f"{problem}multiple or no regions gotten from zones, got: map[{found}]"
        )
    return regions.pop()


def _azure_disk_handle(source: Json, _labels: Mapping[str, str]) -> str:
    kind = text(source, "kind")
    if kind.lower() not in {"", "managed"}:
        raise TranslationError(f"kind({kind}) is not supported in csi migration")
    return text(source, "diskURI")


def _volume_id(source: Json, _labels: Mapping[str, str]) -> str:
    return text(source, "volumeID")


_PLUGINS: Final = (
    InTreePlugin(
        EBS,
        "ebs.csi.aws.com",
        "awsElasticBlockStore",
        _ebs_handle,
        "topology.ebs.csi.aws.com/zone",
    ),
    InTreePlugin(
        GCE_PD, "pd.csi.storage.gke.io", "gcePersistentDisk", _gce_handle, "topology.gke.io/zone"
    ),
    InTreePlugin(AZURE_DISK, "disk.csi.azure.com", "azureDisk", _azure_disk_handle),
    InTreePlugin(
        CINDER,
        "cinder.csi.openstack.org",
        "cinder",
        _volume_id,
        "topology.cinder.csi.openstack.org/zone",
    ),
    InTreePlugin("kubernetes.io/portworx-volume", "pxd.portworx.com", "portworxVolume", _volume_id),
)
IN_TREE_PLUGINS: Final[Mapping[str, InTreePlugin]] = {plugin.name: plugin for plugin in _PLUGINS}
"""By name, which is also the provisioner's name in a StorageClass."""


def in_tree_plugin_of(volume: Json) -> InTreePlugin | None:
    """Return the plugin of a pod's volume or of a PersistentVolume's spec; None for others."""
    return next((one for one in _PLUGINS if volume.get(one.source) is not None), None)


def migrated_on(csi_node: Obj | None, plugin: str) -> bool:
    """Return whether a node's CSINode says that a plugin has migrated."""
    listed = text(csi_node or {}, "metadata", "annotations", MIGRATED_PLUGINS)
    return plugin in listed.split(",")


def translated_volume(volume: Obj) -> Obj:
    """Return a PersistentVolume with its CSI driver's source and topology
    (TranslateInTreePVToCSI); the volume itself if its plugin is not here. Raises TranslationError.
    """
    plugin = in_tree_plugin_of(mapping(volume, "spec"))
    if plugin is None:
        return volume
    changed = copy.deepcopy(volume)
    source = changed["spec"].pop(plugin.source)
    handle = plugin.handle(source, labels_of(volume))
    changed["spec"]["csi"] = {"driver": plugin.driver, "volumeHandle": handle}
    if plugin.topology_key:
        _translate_topology(changed, plugin.topology_key)
    return changed


def _translate_topology(volume: Obj, key: str) -> None:
    """Give the zones of the node affinity, or else of the labels, the driver's key, in place
    (translateTopologyFromInTreeToCSI).
    """
    labels, requirements = labels_of(volume), _requirements(volume)
    keys = {text(one, "key") for one in requirements}
    zone = next(
        (name for held in (keys, labels) for name in (ZONE_LABEL, _BETA_ZONE) if name in held),
        ZONE_LABEL,
    )
    given = labels.get(zone, "").split(_MULTI_ZONE_DELIMITER)
    if any(texts(one, "values") for one in requirements if text(one, "key") == zone):
        _rename(volume, zone, key)
    elif zones := sorted({name.strip() for name in given} - {""}):
        _require(volume, {"key": key, "operator": "In", "values": zones})
    if zone == _BETA_ZONE:
        _rename(volume, _BETA_REGION, _REGION)


def _requirements(volume: Obj) -> list[Any]:
    required = mapping(volume, "spec", "nodeAffinity", "required")
    return [
        one
        for term in mappings(required, "nodeSelectorTerms")
        for one in mappings(term, "matchExpressions")
    ]


def _rename(volume: Obj, key: str, new_key: str) -> None:
    for requirement in _requirements(volume):
        if text(requirement, "key") == key:
            requirement["key"] = new_key


def _require(volume: Obj, requirement: Obj) -> None:
    """Add a requirement to every term of the node affinity; the only one, if it has no term."""
    affinity = volume["spec"].setdefault("nodeAffinity", {})
    required = affinity.get("required") or {}
    terms = required.get("nodeSelectorTerms") or [{}]
    affinity["required"] = {
        "nodeSelectorTerms": [
            {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), requirement]}
            for term in terms
        ]
    }
