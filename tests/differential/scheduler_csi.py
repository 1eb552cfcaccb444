"""Draws of what CSI drivers serve: their limits on nodes, their free storage, volumes that are
theirs, volumes of in-tree plugins that have migrated to them, and claims of their classes.
"""

import random
from collections.abc import Sequence
from typing import Any, Final

from extender.kube.api import Obj
from extender.model.names import ZONE_LABEL

_DRIVER: Final = "csi.example.com"
_MUST_BE_THERE: Final = "careful.example.com"
"""A driver whose pods go only where it is installed."""
_EBS: Final = "ebs.csi.aws.com"
_EBS_ZONE: Final = "topology.ebs.csi.aws.com/zone"
_BETA_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
CSI_CLASSES: Final = {
    "csi": _DRIVER,
    "csi-careful": _MUST_BE_THERE,
    "in-tree": "kubernetes.io/aws-ebs",
}
"""Storage class -> provisioner. Their claims wait for their first consumer."""
_NAMESPACES: Final = ("default", "team-a", "team-b")
_ZONES: Final = ("z0", "z1", "z2")
_MADE_BY: Final = "made-by"
MADE_BY_POD: Final = "pod"
MADE_BY_OTHER: Final = "other"
"""Whose the claim of an ephemeral volume is, as a label of its template; without it, nobody has
made the claim.
"""
_SHARED: Final = ("ReadWriteMany",)


class CsiDraw:
    """What CSI drivers serve in one case; nothing in half of the cases."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._there = rng.random() < 0.5
        self._objects: list[Obj] = []
        self._claims: dict[str, list[str]] = {namespace: [] for namespace in _NAMESPACES}

    def draw(self, nodes: Sequence[str]) -> None:
        """Draw all but the pods."""
        if not self._there:
            return
        rng = self._rng
        capacity = rng.random() < 0.7
        self._objects += [
            _of_storage("CSIDriver", _DRIVER, spec={"storageCapacity": capacity}),
            _of_storage("CSIDriver", _MUST_BE_THERE, spec={"preventPodSchedulingIfMissing": True}),
            *(
                _of_storage(
                    "StorageClass",
                    name,
                    provisioner=provisioner,
                    volumeBindingMode="WaitForFirstConsumer",
                )
                for name, provisioner in CSI_CLASSES.items()
            ),
            *(self._csi_node(node) for node in nodes if rng.random() < 0.85),
        ]
        # One for each zone: which of two is found first is up to kube-scheduler's cache.
        for zone in rng.sample(_ZONES, rng.randint(1, 3)):
            self._objects.append(self._capacity(zone))
        for index in range(rng.randint(2, 5)):
            self._bound(index, nodes)
        for index in range(rng.randint(1, 4)):
            self._unbound(index)

    def objects(self) -> list[Obj]:
        """All but the pods."""
        return self._objects

    def node_labels(self) -> dict[str, str]:
        """Labels that a driver has put on a node."""
        rng = self._rng
        if not self._there or rng.random() < 0.4:
            return {}
        return {_EBS_ZONE: rng.choice(_ZONES)}

    def of_pod(self, namespace: str, *, running: bool) -> list[Obj]:
        """spec.volumes of a pod there."""
        rng = self._rng
        if not self._there or rng.random() < 0.4:
            return []
        names = self._claims[namespace]
        chosen = rng.sample(names, min(len(names), rng.choice((1, 1, 2))))
        volumes: list[Obj] = [
            {"name": f"csi{index}", "persistentVolumeClaim": {"claimName": name}}
            for index, name in enumerate(chosen)
        ]
        if rng.random() < 0.2:
            volumes.append({"name": "inline", **self._inline()})
        if rng.random() < 0.2:
            # kube-scheduler cannot count the volumes of a running pod whose claim is another's.
            made_by = MADE_BY_POD if running else rng.choice((MADE_BY_POD, MADE_BY_OTHER, ""))
            volumes.append(_ephemeral(made_by))
        return volumes

    def _inline(self) -> Obj:
        rng = self._rng
        return rng.choice(
            (
                {"awsElasticBlockStore": {"volumeID": rng.choice(("vol-0", "vol-1", "vol-2"))}},
                {"awsElasticBlockStore": {"volumeID": "aws://z0/vol-1"}},
                {"gcePersistentDisk": {"pdName": rng.choice(("pd-0", "pd-1")), "readOnly": True}},
                {
                    "azureDisk": {
                        "diskName": "disk",
                        "diskURI": "/subscriptions/s/resourceGroups/g/providers"
                        "/Microsoft.Compute/disks/disk",
                        "kind": "Managed",
                    }
                },
                {"cinder": {"volumeID": rng.choice(("c0", "c1"))}},
            )
        )

    def _csi_node(self, node: str) -> Obj:
        rng = self._rng
        drivers: list[Obj] = []
        for name in (_DRIVER, _MUST_BE_THERE, _EBS, "pd.csi.storage.gke.io"):
            if rng.random() < 0.3:
                continue
            driver: Obj = {"name": name, "nodeID": node}
            if rng.random() < 0.8:
                driver["allocatable"] = {"count": rng.choice((1, 1, 2, 3))}
            drivers.append(driver)
        obj = _of_storage("CSINode", node, spec={"drivers": drivers})
        plugins = ["kubernetes.io/aws-ebs", "kubernetes.io/gce-pd", "kubernetes.io/cinder"]
        migrated = ",".join(rng.sample(plugins, rng.randint(0, 3)))
        obj["metadata"]["annotations"] = {"storage.alpha.kubernetes.io/migrated-plugins": migrated}
        return obj

    def _capacity(self, zone: str) -> Obj:
        rng = self._rng
        obj = _of_storage(
            "CSIStorageCapacity",
            f"capacity-{zone}",
            storageClassName="csi",
            nodeTopology={"matchLabels": {ZONE_LABEL: zone}},
            capacity=rng.choice(("1Gi", "2Gi", "10Gi")),
        )
        obj["metadata"]["namespace"] = rng.choice(_NAMESPACES)
        if rng.random() < 0.3:
            obj["maximumVolumeSize"] = rng.choice(("1Gi", "5Gi"))
        return obj

    def _bound(self, index: int, nodes: Sequence[str]) -> None:
        """A volume with its claim; perhaps it is attached somewhere."""
        rng, name = self._rng, f"csi-{index}"
        namespace = rng.choice(_NAMESPACES)
        claim = _claim(namespace, name, rng.choice(tuple(CSI_CLASSES)))
        claim["spec"]["volumeName"] = name
        claim["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
        labels: dict[str, str] = {}
        spec: dict[str, Any] = {
            "capacity": {"storage": "1Gi"},
            "accessModes": _SHARED,
            "storageClassName": claim["spec"]["storageClassName"],
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": namespace,
                "name": name,
            },
            **self._source(f"handle-{index}"),
        }
        if "csi" not in spec and rng.random() < 0.7:
            labels[rng.choice((ZONE_LABEL, _BETA_ZONE))] = rng.choice((*_ZONES, "z0__z1"))
        if rng.random() < 0.4:
            key = rng.choice((ZONE_LABEL, _BETA_ZONE))
            requirement = {"key": key, "operator": "In", "values": rng.sample(_ZONES, 2)}
            terms = [{"matchExpressions": [requirement]}]
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
        if rng.random() > 0.06:
            metadata = {"name": name, "labels": labels}
            volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata}
            self._objects.append({**volume, "spec": spec})
        self._objects.append(claim)
        self._claims[namespace].append(name)
        driver = spec["csi"]["driver"] if "csi" in spec else _EBS
        for node in rng.sample(list(nodes), rng.randint(0, 3)):
            attachment = {
                "attacher": driver,
                "nodeName": node,
                "source": {"persistentVolumeName": name},
            }
            named = f"attached-{index}-{node}"
            self._objects.append(_of_storage("VolumeAttachment", named, spec=attachment))

    def _source(self, handle: str) -> Obj:
        rng = self._rng
        return rng.choice(
            (
                {"csi": {"driver": _DRIVER, "volumeHandle": handle}},
                {"csi": {"driver": _DRIVER, "volumeHandle": "the-same"}},
                {"csi": {"driver": _MUST_BE_THERE, "volumeHandle": handle}},
                {"awsElasticBlockStore": {"volumeID": rng.choice(("vol-0", "vol-1"))}},
                {"gcePersistentDisk": {"pdName": rng.choice(("pd-0", "pd-1"))}},
            )
        )

    def _unbound(self, index: int) -> None:
        rng, name = self._rng, f"csi-unbound-{index}"
        namespace = rng.choice(_NAMESPACES)
        claim = _claim(namespace, name, rng.choice(("csi", "csi", *CSI_CLASSES)))
        claim["spec"]["resources"]["requests"]["storage"] = rng.choice(("1Gi", "1Gi", "2Gi", "9Gi"))
        self._objects.append(claim)
        self._claims[namespace].append(name)


def _ephemeral(made_by: str) -> Obj:
    template = _claim("", "", "csi")
    labels = {_MADE_BY: made_by} if made_by else {}
    template = {"metadata": {"labels": labels}, "spec": template["spec"]}
    return {"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}


def ephemeral_claims(pod: Obj) -> list[Obj]:
    """The claims that there are for the ephemeral volumes of a pod, which is stored."""
    metadata, found = pod["metadata"], []
    for volume in pod["spec"].get("volumes", ()):
        template = volume.get("ephemeral", {}).get("volumeClaimTemplate", {})
        made_by = template.get("metadata", {}).get("labels", {}).get(_MADE_BY)
        if made_by is None:
            continue
        claim = _claim(metadata["namespace"], f"{metadata['name']}-{volume['name']}", "csi")
        if made_by == MADE_BY_POD:
            owner = {"apiVersion": "v1", "kind": "Pod", "controller": True}
            owner |= {"name": metadata["name"], "uid": metadata["uid"]}
            claim["metadata"]["ownerReferences"] = [owner]
        found.append(claim)
    return found


def _claim(namespace: str, name: str, storage_class: str) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "accessModes": _SHARED,
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def _of_storage(kind: str, name: str, **fields: Any) -> Obj:
    metadata = {"name": name}
    return {"apiVersion": "storage.k8s.io/v1", "kind": kind, "metadata": metadata, **fields}
