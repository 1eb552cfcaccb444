"""The PersistentVolume controller of kube-controller-manager (``pkg/controller/volume/
persistentvolume``), and a stand-in for the provisioners of all storage classes.

A claim is bound to the volume that names it, which may be the choice of kube-scheduler's volume
binder. A claim that does not wait for its first consumer gets the smallest free volume. If there is
none, and the class has a provisioner, a volume is made for the claim. A claim that waits for its
first consumer gets one once kube-scheduler has selected a node. The volume can then be used in that
node's zone only. The volume of an in-tree provisioner is one of the CSI driver to which it has
migrated.

A released volume is deleted or kept, as its ``persistentVolumeReclaimPolicy`` says. Protection of
claims in use, and resizing, are left out.
"""

from contextlib import suppress
from typing import Final

from extender.kube.api import AlreadyExists, Api, NotFound, Obj
from extender.lab.apiserver.registry import PERSISTENTVOLUMECLAIMS, PERSISTENTVOLUMES
from extender.lab.controllers.controller import Controller
from extender.lab.informer import Informer, ObjectKey, key_of
from extender.lab.scheduler.csi_translation import IN_TREE_PLUGINS
from extender.lab.scheduler.volumebinding.matching import (
    BIND_COMPLETED,
    NO_PROVISIONER,
    PROVISIONED_BY,
    SELECTED_NODE,
    annotations_of,
    bind_volume_to_claim,
    bound_to,
    class_of,
    find_matching_volume,
    fully_bound,
    volume_patch,
    waits_for_consumer,
)
from extender.model.names import ZONE_LABEL
from extender.model.reading import mapping, text

RETAIN: Final = "Retain"


class PersistentVolumeController(Controller[ObjectKey]):
    """Syncs claims by (namespace, name), and volumes by ("", name)."""

    def __init__(
        self, api: Api, volumes: Informer, claims: Informer, classes: Informer, nodes: Informer
    ) -> None:
        super().__init__(api)
        self._volumes = volumes
        self._claims = claims
        self._classes = classes
        self._nodes = nodes
        volumes.on_change(self._volume_changed)
        claims.on_change(self._claim_changed)
        classes.on_change(self._class_changed)

    def _volume_changed(self, before: Obj | None, after: Obj | None) -> None:
        volume = after or before or {}
        self.add(("", volume["metadata"]["name"]))
        reference = mapping(volume, "spec", "claimRef")
        if reference:
            self.add((text(reference, "namespace"), text(reference, "name")))
        else:
            self._add_unbound()

    def _claim_changed(self, before: Obj | None, after: Obj | None) -> None:
        claim = after or before or {}
        self.add(key_of(claim))
        if name := text(claim, "spec", "volumeName"):
            self.add(("", name))

    def _class_changed(self, _before: Obj | None, _after: Obj | None) -> None:
        self._add_unbound()

    def _add_unbound(self) -> None:
        for key, claim in self._claims.objects.items():
            if not fully_bound(claim):
                self.add(key)

    async def sync(self, key: ObjectKey) -> None:
        """Bind a claim, or set the phase of a volume."""
        if key[0]:
            if (claim := self._claims.objects.get(key)) is not None:
                await self._sync_claim(claim)
        elif (volume := self._volumes.objects.get(key)) is not None:
            await self._sync_volume(volume)

    # -- volumes -----------------------------------------------------------------------------------

    async def _sync_volume(self, volume: Obj) -> None:
        reference = mapping(volume, "spec", "claimRef")
        claim = self._claims.objects.get((text(reference, "namespace"), text(reference, "name")))
        if not reference:
            await self._set_phase(volume, "Available")
        elif claim is not None and fully_bound(claim) and bound_to(volume, claim):
            await self._set_phase(volume, "Bound")
        elif text(reference, "uid") and (
            claim is None or text(claim, "metadata", "uid") != text(reference, "uid")
        ):
            await self._release(volume)

    async def _release(self, volume: Obj) -> None:
        if text(volume, "spec", "persistentVolumeReclaimPolicy") in {"", RETAIN}:
            await self._set_phase(volume, "Released")
            return
        with suppress(NotFound):
            await self._api.delete(PERSISTENTVOLUMES, "", volume["metadata"]["name"])

    async def _set_phase(self, volume: Obj, phase: str) -> None:
        if text(volume, "status", "phase") != phase:
            key = ("", volume["metadata"]["name"])
            await self._merge(PERSISTENTVOLUMES, key, {"status": {"phase": phase}}, "status")

    # -- claims ------------------------------------------------------------------------------------

    async def _sync_claim(self, claim: Obj) -> None:
        if fully_bound(claim):
            await self._set_bound(claim)
            return
        if mapping(claim, "metadata").get("deletionTimestamp"):
            return
        volume = self._volume_of(claim)
        if volume is not None:
            await self._bind(claim, volume)
            return
        storage_class = self._classes.objects.get(("", class_of(claim)))
        selected = annotations_of(claim).get(SELECTED_NODE)
        if storage_class is not None and (selected or not waits_for_consumer(storage_class)):
            await self._provision(claim, storage_class, str(selected or ""))

    def _volume_of(self, claim: Obj) -> Obj | None:
        """The volume that is to be bound to a claim; None if there is none yet."""
        if name := text(claim, "spec", "volumeName"):
            return self._volumes.objects.get(("", name))
        waits = waits_for_consumer(self._classes.objects.get(("", class_of(claim))))
        volumes = [
            volume
            for volume in self._volumes.objects.values()
            if class_of(volume) == class_of(claim)
        ]
        return find_matching_volume(claim, volumes, delay_binding=waits)

    async def _bind(self, claim: Obj, volume: Obj) -> None:
        """Write both sides, the volume's first. Each write has the version that was read."""
        bound, dirty = bind_volume_to_claim(volume, claim)
        if dirty:
            await self._merge(PERSISTENTVOLUMES, key_of(volume), volume_patch(bound))
        patch = {
            "metadata": {
                "resourceVersion": claim["metadata"]["resourceVersion"],
                "annotations": {**annotations_of(claim), BIND_COMPLETED: "yes"},
            },
            "spec": {"volumeName": volume["metadata"]["name"]},
        }
        await self._merge(PERSISTENTVOLUMECLAIMS, key_of(claim), patch)

    async def _set_bound(self, claim: Obj) -> None:
        if text(claim, "status", "phase") == "Bound":
            return
        volume = self._volumes.objects.get(("", text(claim, "spec", "volumeName")), {})
        status = {"phase": "Bound", "capacity": dict(mapping(volume, "spec", "capacity"))}
        await self._merge(PERSISTENTVOLUMECLAIMS, key_of(claim), {"status": status}, "status")

    async def _provision(self, claim: Obj, storage_class: Obj, node_name: str) -> None:
        provisioner = text(storage_class, "provisioner")
        if provisioner in {"", NO_PROVISIONER}:
            return
        if (migrated := IN_TREE_PLUGINS.get(provisioner)) is not None:
            provisioner = migrated.driver
        metadata, spec = claim["metadata"], claim["spec"]
        node = self._nodes.objects.get(("", node_name), {})
        zone = text(node, "metadata", "labels", ZONE_LABEL)
        volume: Obj = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {
                "name": f"pvc-{metadata['uid']}",
                "annotations": {PROVISIONED_BY: provisioner},
            },
            "spec": {
                "capacity": dict(mapping(spec, "resources", "requests")),
                "accessModes": spec["accessModes"],
                "storageClassName": class_of(claim),
                "persistentVolumeReclaimPolicy": text(storage_class, "reclaimPolicy") or "Delete",
                "csi": {"driver": provisioner, "volumeHandle": metadata["uid"]},
                "claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "namespace": metadata["namespace"],
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                },
            },
        }
        if zone:
            there = {"key": ZONE_LABEL, "operator": "In", "values": [zone]}
            terms = [{"matchExpressions": [there]}]
            volume["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
        # It may have been made before, and the cache has not seen it yet.
        with suppress(AlreadyExists):
            await self._api.create(PERSISTENTVOLUMES, "", volume)
