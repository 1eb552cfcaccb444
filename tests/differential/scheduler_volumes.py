"""Draws of volumes: persistent volumes bound to zones or nodes, their claims, claims that something
is wrong with, and claims that wait for their first consumer, with volumes that are free for them.
"""

import random
from collections.abc import Sequence
from typing import Any, Final

from extender.kube.api import Obj
from extender.lab.scheduler.types import HOSTNAME_LABEL
from extender.model.names import ZONE_LABEL
from tests.differential.scheduler_csi import CsiDraw

_NAMESPACES: Final = ("default", "team-a", "team-b")
_BOUND: Final = {"pv.kubernetes.io/bind-completed": "yes"}
IMMEDIATE: Final = "immediate"
WAITING: Final = "waiting"
LOCAL: Final = "local"
"""Names of the storage classes: volumes made at once, made on the node of their first consumer, or
made by nobody and found there.
"""
MISSING: Final = "missing"
"""A claim that pods name and that does not exist."""


class VolumeDraw:
    """The volumes of one case."""

    def __init__(self, rng: random.Random, local: random.Random, csi: random.Random) -> None:
        """``local``: the dice of the free volumes and their claims; ``csi``: those of what CSI
        drivers serve. Neither changes another draw.
        """
        self._rng = rng
        self._local = local
        self._csi = CsiDraw(csi)
        self._volumes: list[Obj] = []
        self._claims: dict[str, list[Obj]] = {namespace: [] for namespace in _NAMESPACES}
        self._local_claims: dict[str, list[Obj]] = {namespace: [] for namespace in _NAMESPACES}

    def draw(self, nodes: Sequence[str]) -> None:
        """Some volumes with a bound claim each, and some claims that are not bound."""
        for index in range(self._rng.randint(0, 5)):
            namespace = self._rng.choice(_NAMESPACES)
            volume, claim = f"volume-{index}", f"claim-{index}"
            broken = self._rng.random()
            if broken > 0.06:
                self._volumes.append(self._volume(volume, namespace, claim, nodes))
            self._claims[namespace].append(self._claim(namespace, claim, volume))
        if self._rng.random() < 0.3:
            namespace = self._rng.choice(_NAMESPACES)
            unbound = self._claim(namespace, "claim-unbound", "")
            unbound["spec"]["storageClassName"] = self._rng.choice(
                (IMMEDIATE, WAITING, "class-gone", "")
            )
            self._claims[namespace].append(unbound)
        self._draw_local(nodes)
        self._csi.draw(nodes)

    def _draw_local(self, nodes: Sequence[str]) -> None:
        rng = self._local
        if rng.random() < 0.5:
            return
        for index in range(rng.randint(1, 4)):
            self._volumes.append(self._free_volume(f"free-{index}", nodes))
        for index in range(rng.randint(1, 2)):
            namespace = rng.choice(_NAMESPACES)
            claim = self._claim(namespace, f"local-{index}", "", once=False)
            claim["spec"]["storageClassName"] = LOCAL
            claim["spec"]["resources"]["requests"]["storage"] = rng.choice(("1Gi", "2Gi", "9Gi"))
            if rng.random() < 0.2:
                claim["spec"]["selector"] = {"matchLabels": {"disk": "ssd"}}
            self._local_claims[namespace].append(claim)

    def _free_volume(self, name: str, nodes: Sequence[str]) -> Obj:
        rng = self._local
        requirement = {"key": ZONE_LABEL, "operator": "In", "values": [rng.choice(("z0", "z1"))]}
        if rng.random() < 0.5:
            hosts = rng.sample(list(nodes), rng.randint(1, 2))
            requirement = {"key": HOSTNAME_LABEL, "operator": "In", "values": hosts}
        spec: dict[str, Any] = {
            "capacity": {"storage": rng.choice(("1Gi", "2Gi", "2Gi", "5Gi"))},
            "accessModes": [rng.choice(("ReadWriteOnce", "ReadWriteOnce", "ReadOnlyMany"))],
            "storageClassName": rng.choice((LOCAL, LOCAL, LOCAL, IMMEDIATE)),
            "nfs": {"server": "nfs.invalid", "path": "/"},
        }
        if rng.random() < 0.8:
            terms = [{"matchExpressions": [requirement]}]
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name, "labels": {"disk": rng.choice(("ssd", "hdd"))}},
            "spec": spec,
            "status": {"phase": "Released" if rng.random() < 0.1 else "Available"},
        }

    def objects(self) -> list[Obj]:
        """Class, volumes and claims."""
        classes = [
            _storage_class(IMMEDIATE, "Immediate"),
            _storage_class(WAITING, "WaitForFirstConsumer"),
            _storage_class(LOCAL, "WaitForFirstConsumer", "kubernetes.io/no-provisioner"),
        ]
        both = (*self._claims.values(), *self._local_claims.values())
        claims = [claim for claims in both for claim in claims]
        return [*classes, *self._volumes, *claims, *self._csi.objects()]

    def of_pod(self, namespace: str) -> list[Obj]:
        """spec.volumes of a pod there."""
        names = [claim["metadata"]["name"] for claim in self._claims[namespace]]
        if self._rng.random() < 0.05:
            names.append(MISSING)
        chosen: list[str] = []
        if names:
            chosen = self._rng.sample(names, min(len(names), self._rng.choice((1, 1, 2))))
        return self._of_claims([*chosen, *self._some_local(namespace)])

    def disk(self) -> list[Obj]:
        """spec.volumes of a pod that names a disk itself, as few do."""
        rng = self._local
        if rng.random() > 0.12:
            return []
        name, read_only = rng.choice(("one", "two")), rng.random() < 0.4
        disk: Obj = rng.choice(
            (
                {"gcePersistentDisk": {"pdName": name, "readOnly": read_only}},
                {"awsElasticBlockStore": {"volumeID": name}},
                {
                    "iscsi": {
                        "targetPortal": "192.0.2.1",
                        "iqn": f"iqn.2001-04.com.example:{name}",
                        "lun": 0,
                        "readOnly": read_only,
                    }
                },
                {
                    "rbd": {
                        "monitors": rng.sample(("m0", "m1", "m2"), 2),
                        "image": name,
                        "readOnly": read_only,
                    }
                },
            )
        )
        return [{"name": "disk", **disk}]

    def of_pod_without(self, namespace: str) -> list[Obj]:
        """spec.volumes of a pod there that has no other claims."""
        return self._of_claims(self._some_local(namespace))

    def of_csi(self, namespace: str, *, running: bool) -> list[Obj]:
        """spec.volumes of a pod there that CSI drivers serve, as few have."""
        return self._csi.of_pod(namespace, running=running)

    def node_labels(self) -> dict[str, str]:
        """Labels that CSI drivers have put on a node."""
        return self._csi.node_labels()

    def _some_local(self, namespace: str) -> list[str]:
        names = [claim["metadata"]["name"] for claim in self._local_claims[namespace]]
        return self._local.sample(names, min(len(names), self._local.choice((0, 1, 1, 2))))

    @staticmethod
    def _of_claims(names: Sequence[str]) -> list[Obj]:
        return [
            {"name": f"v{index}", "persistentVolumeClaim": {"claimName": name}}
            for index, name in enumerate(names)
        ]

    def _volume(self, name: str, namespace: str, claim: str, nodes: Sequence[str]) -> Obj:
        rng = self._rng
        labels: dict[str, str] = {}
        if rng.random() < 0.4:
            key = rng.choice((ZONE_LABEL, ZONE_LABEL, "failure-domain.beta.kubernetes.io/zone"))
            labels[key] = rng.choice(("z0", "z1", "z2", "z0__z1"))
        if rng.random() < 0.1:
            labels["topology.kubernetes.io/region"] = rng.choice(("r0", "r1"))
        spec: dict[str, Any] = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": IMMEDIATE,
            "nfs": {"server": "nfs.invalid", "path": "/"},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": namespace,
                "name": claim,
            },
        }
        if rng.random() < 0.6:
            zones = rng.sample(("z0", "z1", "z2"), rng.randint(1, 2))
            requirement = {"key": ZONE_LABEL, "operator": "In", "values": zones}
            if rng.random() < 0.3:
                hosts = rng.sample(list(nodes), rng.randint(1, 2))
                requirement = {"key": HOSTNAME_LABEL, "operator": "In", "values": hosts}
            terms = [{"matchExpressions": [requirement]}]
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name, "labels": labels},
            "spec": spec,
        }

    def _claim(self, namespace: str, name: str, volume: str, *, once: bool | None = None) -> Obj:
        once = self._rng.random() < 0.15 if once is None else once
        spec: dict[str, Any] = {
            "accessModes": ["ReadWriteOncePod" if once else "ReadWriteOnce"],
            "storageClassName": IMMEDIATE,
            "resources": {"requests": {"storage": "1Gi"}},
        }
        if volume:
            spec["volumeName"] = volume
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "annotations": _BOUND if volume else {},
            },
            "spec": spec,
        }


def _storage_class(name: str, mode: str, provisioner: str = "example.com/none") -> Obj:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": mode,
    }
