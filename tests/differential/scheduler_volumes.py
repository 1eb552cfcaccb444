"""Draws of volumes: persistent volumes bound to zones or nodes, their claims, and claims that
something is wrong with.
"""

import random
from collections.abc import Sequence
from typing import Any, Final

from extender.kube.api import Obj
from extender.lab.scheduler.types import HOSTNAME_LABEL
from extender.model.names import ZONE_LABEL

_NAMESPACES: Final = ("default", "team-a", "team-b")
_BOUND: Final = {"pv.kubernetes.io/bind-completed": "yes"}
IMMEDIATE: Final = "immediate"
WAITING: Final = "waiting"
"""Names of the storage classes: volumes made at once, or on the node of their first consumer."""
MISSING: Final = "missing"
"""A claim that pods name and that does not exist."""


class VolumeDraw:
    """The volumes of one case."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._volumes: list[Obj] = []
        self._claims: dict[str, list[Obj]] = {namespace: [] for namespace in _NAMESPACES}

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

    def objects(self) -> list[Obj]:
        """Class, volumes and claims."""
        classes = [
            _storage_class(IMMEDIATE, "Immediate"),
            _storage_class(WAITING, "WaitForFirstConsumer"),
        ]
        claims = [claim for claims in self._claims.values() for claim in claims]
        return [*classes, *self._volumes, *claims]

    def of_pod(self, namespace: str) -> list[Obj]:
        """spec.volumes of a pod there."""
        names = [claim["metadata"]["name"] for claim in self._claims[namespace]]
        if self._rng.random() < 0.05:
            names.append(MISSING)
        if not names:
            return []
        chosen = self._rng.sample(names, min(len(names), self._rng.choice((1, 1, 2))))
        return [
            {"name": f"v{index}", "persistentVolumeClaim": {"claimName": name}}
            for index, name in enumerate(chosen)
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

    def _claim(self, namespace: str, name: str, volume: str) -> Obj:
        once = self._rng.random() < 0.15
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


def _storage_class(name: str, mode: str) -> Obj:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "example.com/none",
        "volumeBindingMode": mode,
    }
