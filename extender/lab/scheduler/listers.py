"""Objects that plugins look up, besides pods and nodes: labels of namespaces, the owners that
default spreading needs, disruption budgets, and volumes.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from extender.kube.api import NAMESPACES, STATEFULSETS, Obj, Resource
from extender.lab.apiserver.registry import (
    CSIDRIVERS,
    CSINODES,
    CSISTORAGECAPACITIES,
    PERSISTENTVOLUMECLAIMS,
    PERSISTENTVOLUMES,
    PODDISRUPTIONBUDGETS,
    SERVICES,
    STORAGECLASSES,
    VOLUMEATTACHMENTS,
)
from extender.lab.scheduler.types import PodInfo, labels_of
from extender.lab.scheduler.volumebinding.assume_caches import ObjectAssumeCache
from extender.model.objects import LabelSelector, SelectorRequirement, object_key
from extender.model.reading import mapping, mappings, selector_from, text

REPLICASETS: Final = Resource("apps", "v1", "replicasets", "ReplicaSet")
CSI_KINDS: Final = (CSINODES, CSIDRIVERS, CSISTORAGECAPACITIES, VOLUMEATTACHMENTS)
LOOKED_UP: Final = (
    NAMESPACES,
    STATEFULSETS,
    SERVICES,
    REPLICASETS,
    PODDISRUPTIONBUDGETS,
    PERSISTENTVOLUMES,
    PERSISTENTVOLUMECLAIMS,
    STORAGECLASSES,
    *CSI_KINDS,
)
"""Kinds that are only looked up. If a server lacks a kind, there are no such objects."""

_NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})
_OWNERS: Final = {
    ("apps", "StatefulSet"): STATEFULSETS,
    ("apps", "ReplicaSet"): REPLICASETS,
}


@dataclass(slots=True)
class Listers:
    """Objects by kind and key, as the informers keep them."""

    stores: dict[Resource, dict[str, Obj]] = field(
        default_factory=lambda: {resource: {} for resource in LOOKED_UP}
    )
    assumed_volumes: ObjectAssumeCache = field(init=False)
    assumed_claims: ObjectAssumeCache = field(init=False)

    def __post_init__(self) -> None:
        self.assumed_volumes = ObjectAssumeCache(self.stores[PERSISTENTVOLUMES])
        self.assumed_claims = ObjectAssumeCache(self.stores[PERSISTENTVOLUMECLAIMS])

    def changed(self, resource: Resource, obj: Obj) -> None:
        """Another version of an object has been stored, or it is gone."""
        if resource == PERSISTENTVOLUMES:
            self.assumed_volumes.changed(obj)
        elif resource == PERSISTENTVOLUMECLAIMS:
            self.assumed_claims.changed(obj)

    def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        """Return a namespace's labels; none for an unknown namespace."""
        obj = self.stores[NAMESPACES].get(namespace)
        return labels_of(obj) if obj is not None else _NO_LABELS

    def disruption_budgets(self, namespace: str) -> list[Obj]:
        """Return the PodDisruptionBudgets of a namespace."""
        return [
            obj
            for obj in self.stores[PODDISRUPTIONBUDGETS].values()
            if text(obj, "metadata", "namespace") == namespace
        ]

    def claim(self, namespace: str, name: str) -> Obj | None:
        """Return a PersistentVolumeClaim."""
        return self.stores[PERSISTENTVOLUMECLAIMS].get(object_key(namespace, name))

    def volume(self, name: str) -> Obj | None:
        """Return a PersistentVolume."""
        return self.stores[PERSISTENTVOLUMES].get(name)

    def storage_class(self, name: str) -> Obj | None:
        """Return a StorageClass."""
        return self.stores[STORAGECLASSES].get(name)

    def csi_node(self, name: str) -> Obj | None:
        """Return the CSINode of a node."""
        return self.stores[CSINODES].get(name)

    def csi_driver(self, name: str) -> Obj | None:
        """Return a CSIDriver."""
        return self.stores[CSIDRIVERS].get(name)

    def storage_capacities(self) -> Collection[Obj]:
        """Return the CSIStorageCapacities of all namespaces."""
        return self.stores[CSISTORAGECAPACITIES].values()

    def volume_attachments(self) -> Collection[Obj]:
        """Return the VolumeAttachments."""
        return self.stores[VOLUMEATTACHMENTS].values()

    def services_of(self, pod: PodInfo) -> list[Obj]:
        """Return the Services that select a pod (GetPodServices)."""
        return [
            service
            for service in self.stores[SERVICES].values()
            if (selector := mapping(service, "spec", "selector"))
            and text(service, "metadata", "namespace") == pod.namespace
            and all(pod.labels.get(key) == value for key, value in selector.items())
        ]

    def default_selector(self, pod: PodInfo) -> LabelSelector | None:
        """Return the combined selector of the pod's Services and controller
        (helper.DefaultSelector); None if it would be empty.
        """
        labels: dict[str, str] = {}
        for service in self.services_of(pod):
            labels.update({k: str(v) for k, v in mapping(service, "spec", "selector").items()})
        requirements: tuple[SelectorRequirement, ...] = ()
        for owner in mappings(pod.obj, "metadata", "ownerReferences"):
            group = text(owner, "apiVersion").rpartition("/")[0]
            resource = _OWNERS.get((group, text(owner, "kind")))
            if owner.get("controller") is True and resource is not None:
                controller = self.stores[resource].get(
                    object_key(pod.namespace, text(owner, "name"))
                )
                if controller is not None:
                    requirements = _requirements(
                        selector_from(mapping(controller, "spec", "selector"))
                    )
        if not labels and not requirements:
            return None
        return LabelSelector(match_labels=labels, match_expressions=requirements)


def _requirements(selector: LabelSelector) -> tuple[SelectorRequirement, ...]:
    exact = (
        SelectorRequirement(key=key, operator="In", values=(value,))
        for key, value in selector.match_labels.items()
    )
    return (*exact, *selector.match_expressions)
