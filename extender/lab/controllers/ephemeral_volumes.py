"""The ephemeral volume controller of kube-controller-manager (``pkg/controller/volume/ephemeral``):
it makes the claims of pods' generic ephemeral volumes.

A claim has the name POD-VOLUME and the pod as its owner, so the garbage collector deletes it after
the pod. A claim of that name that is not the pod's is left alone. The pod then waits until that
claim is gone; the event FailedBinding that kube-controller-manager writes meanwhile is left out.
"""

from contextlib import suppress

from extender.kube.api import AlreadyExists, Api, Obj
from extender.lab.apiserver.registry import PERSISTENTVOLUMECLAIMS
from extender.lab.controllers.controller import Controller
from extender.lab.informer import Informer, ObjectKey, key_of
from extender.lab.scheduler.types import ephemeral_claim_name
from extender.model.reading import Json, mapping, mappings, text


class EphemeralVolumeController(Controller[ObjectKey]):
    """Syncs pods by (namespace, name)."""

    def __init__(self, api: Api, pods: Informer, claims: Informer) -> None:
        super().__init__(api)
        self._pods = pods
        self._claims = claims
        pods.on_change(self._pod_changed)
        claims.on_change(self._claim_changed)

    def _pod_changed(self, before: Obj | None, after: Obj | None) -> None:
        if before is None and after is not None and _ephemeral_claims(after):
            self.add(key_of(after))

    def _claim_changed(self, before: Obj | None, after: Obj | None) -> None:
        if before is None or after is not None:
            return
        namespace, name = key_of(before)
        for key, pod in self._pods.objects.items():
            if key[0] == namespace and name in _ephemeral_claims(pod):
                self.add(key)

    async def sync(self, key: ObjectKey) -> None:
        """Make the claims that a pod lacks. Raises ApiError."""
        pod = self._pods.objects.get(key)
        if pod is None or mapping(pod, "metadata").get("deletionTimestamp"):
            return
        for name, volume in _ephemeral_claims(pod).items():
            if (key[0], name) not in self._claims.objects:
                # It may have been made before, and the cache has not seen it yet.
                with suppress(AlreadyExists):
                    claim = _claim(pod, name, volume)
                    await self._api.create(PERSISTENTVOLUMECLAIMS, key[0], claim)


def _ephemeral_claims(pod: Obj) -> dict[str, Json]:
    """Claim name -> the volume that it is for."""
    return {
        ephemeral_claim_name(pod, volume): volume
        for volume in mappings(pod, "spec", "volumes")
        if volume.get("ephemeral") is not None
    }


def _claim(pod: Obj, name: str, volume: Json) -> Obj:
    template = mapping(volume, "ephemeral", "volumeClaimTemplate")
    metadata = mapping(template, "metadata")
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": text(pod, "metadata", "name"),
        "uid": text(pod, "metadata", "uid"),
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "labels": dict(mapping(metadata, "labels")),
            "annotations": dict(mapping(metadata, "annotations")),
            "ownerReferences": [owner],
        },
        "spec": dict(mapping(template, "spec")),
    }
