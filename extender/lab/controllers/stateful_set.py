"""The StatefulSet controller, as in kube-controller-manager.

``sync`` takes one set and its pods, and does what is due. Every change of the set or its pods
queues the set again.

Ordinals begin at ``spec.ordinals.start``. OrderedReady creates and removes one pod at a time, and
waits until each is Ready. Parallel does all at once. A failed pod is deleted and created again. Two
pods never share a name, so the controller waits for the end of a pod that is being deleted.

A changed template rolls out from the highest ordinal down to ``partition``, one pod at a time,
under both policies. With OnDelete it reaches only pods that somebody else deletes. Revisions are
ControllerRevision objects, so pods below the partition are created from the old template. A pod's
claims are made from the volume claim templates before the pod, and outlive it. maxUnavailable and
the retention policy of claims are not implemented.

The set determines the names of its pods. So an action on a stale cache does no harm: it ends in
AlreadyExists or NotFound.
"""

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import orjson

from extender.kube.api import (
    PODS,
    STATEFULSETS,
    AlreadyExists,
    Api,
    Conflict,
    NotFound,
    Obj,
    Preconditions,
)
from extender.lab.apiserver.registry import CONTROLLERREVISIONS, PERSISTENTVOLUMECLAIMS
from extender.lab.apiserver.strategy import SUFFIX_ALPHABET
from extender.lab.controllers.controller import Controller
from extender.lab.informer import Informer, ObjectKey, key_of
from extender.model.reading import condition_in, mapping

REVISION_LABEL: Final = "controller-revision-hash"
POD_NAME_LABEL: Final = "statefulset.kubernetes.io/pod-name"
POD_INDEX_LABEL: Final = "apps.kubernetes.io/pod-index"
_REVISION_LENGTH: Final = 10


def controller_uid(obj: Obj) -> str:
    """Return the uid of the controlling owner, "" if there is none."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return str(reference["uid"])
    return ""


def is_running_and_ready(pod: Obj) -> bool:
    """Return whether the pod is Running with condition Ready."""
    running = (pod.get("status") or {}).get("phase") == "Running"
    return running and condition_in(pod, "Ready").get("status") == "True"


def is_terminating(obj: Obj) -> bool:
    """Return whether the object is being deleted."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def is_healthy(pod: Obj | None) -> bool:
    """Return whether the pod is Ready and not being deleted."""
    return pod is not None and is_running_and_ready(pod) and not is_terminating(pod)


def has_failed(pod: Obj) -> bool:
    """Return whether the pod has finished, which a StatefulSet's pod should never do."""
    return (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")


def revision_name(stateful_set: Obj) -> str:
    """Return NAME-HASH, where HASH is that of the set's template."""
    template = orjson.dumps(stateful_set["spec"]["template"], option=orjson.OPT_SORT_KEYS)
    digest = hashlib.sha256(template).digest()[:_REVISION_LENGTH]
    suffix = "".join(SUFFIX_ALPHABET[byte % len(SUFFIX_ALPHABET)] for byte in digest)
    return f"{stateful_set['metadata']['name']}-{suffix}"


def pod_of(stateful_set: Obj, ordinal: int, template: Obj, revision: str) -> Obj:
    """Return the pod of one ordinal, made from a template."""
    metadata, spec = stateful_set["metadata"], template.get("spec") or {}
    name = f"{metadata['name']}-{ordinal}"
    given = template.get("metadata") or {}
    labels = {
        **(given.get("labels") or {}),
        POD_INDEX_LABEL: str(ordinal),
        REVISION_LABEL: revision,
        POD_NAME_LABEL: name,
    }
    owner = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    pod_metadata: Obj = {
        "name": name,
        "generateName": f"{metadata['name']}-",
        "namespace": metadata["namespace"],
        "labels": labels,
        "ownerReferences": [owner],
    }
    if given.get("annotations"):
        pod_metadata["annotations"] = given["annotations"]
    pod_spec = {**spec, "hostname": name}
    if claims := claims_of(stateful_set, ordinal):
        own = [_volume(claim, name) for claim in claims]
        names = {volume["name"] for volume in own}
        pod_spec["volumes"] = [v for v in spec.get("volumes") or () if v["name"] not in names] + own
    if subdomain := stateful_set["spec"].get("serviceName"):
        pod_spec["subdomain"] = subdomain
    return {"kind": "Pod", "apiVersion": "v1", "metadata": pod_metadata, "spec": pod_spec}


def _volume(claim: Obj, pod_name: str) -> Obj:
    """Return the entry of spec.volumes for a pod's own claim."""
    name = claim["metadata"]["name"]
    return {
        "name": name.removesuffix(f"-{pod_name}"),
        "persistentVolumeClaim": {"claimName": name},
    }


def claims_of(stateful_set: Obj, ordinal: int) -> list[Obj]:
    """Return the claims of one ordinal's pod, named TEMPLATE-POD (getPersistentVolumeClaims)."""
    metadata = stateful_set["metadata"]
    labels = mapping(stateful_set, "spec", "selector", "matchLabels")
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                **{key: value for key, value in template["metadata"].items() if key != "name"},
                "name": f"{template['metadata']['name']}-{metadata['name']}-{ordinal}",
                "namespace": metadata["namespace"],
                "labels": {**(template["metadata"].get("labels") or {}), **labels},
            },
            "spec": template["spec"],
        }
        for template in stateful_set["spec"].get("volumeClaimTemplates") or ()
    ]


@dataclass(frozen=True, slots=True)
class _Set:
    """One set with its pods by ordinal, as one sync sees them."""

    obj: Obj
    pods: dict[int, Obj]
    revision: str
    wanted: range
    condemned: list[int]
    """Ordinals to remove, highest first."""

    @property
    def spec(self) -> Obj:
        spec: Obj = self.obj["spec"]
        return spec

    @property
    def one_at_a_time(self) -> bool:
        return self.spec.get("podManagementPolicy") != "Parallel"

    @property
    def partition(self) -> int:
        """The number of ordinals, from the lowest, that keep the old template."""
        rolling = (self.spec.get("updateStrategy") or {}).get("rollingUpdate") or {}
        return int(rolling.get("partition") or 0)

    @property
    def current_revision(self) -> str:
        return str((self.obj.get("status") or {}).get("currentRevision") or self.revision)

    def revision_for(self, ordinal: int) -> str:
        below = ordinal < self.wanted.start + self.partition
        return self.current_revision if below else self.revision


def _wanted(stateful_set: Obj) -> range:
    """Return the ordinals that the set should have."""
    spec = stateful_set["spec"]
    start = int((spec.get("ordinals") or {}).get("start") or 0)
    return range(start, start + int(spec["replicas"]))


class StatefulSetController(Controller[ObjectKey]):
    """Creates and removes the pods of every StatefulSet."""

    def __init__(self, api: Api, stateful_sets: Informer, pods: Informer) -> None:
        super().__init__(api)
        self._sets = stateful_sets
        self._pods_by_owner: dict[str, dict[str, Obj]] = {}
        self._key_by_uid: dict[str, ObjectKey] = {}
        self._revisions: dict[str, tuple[Obj, str]] = {}
        """UID of a set -> its template when last seen, and the name of its revision."""
        stateful_sets.on_change(self._set_changed)
        pods.on_change(self._pod_changed)

    def _set_changed(self, before: Obj | None, after: Obj | None) -> None:
        if before is not None:
            self._key_by_uid.pop(before["metadata"]["uid"], None)
            if after is None:
                self._revisions.pop(before["metadata"]["uid"], None)
        if after is not None:
            self._key_by_uid[after["metadata"]["uid"]] = key_of(after)
            self.add(key_of(after))

    def _pod_changed(self, before: Obj | None, after: Obj | None) -> None:
        if (
            before is not None
            and (owned := self._pods_by_owner.get(controller_uid(before))) is not None
        ):
            owned.pop(before["metadata"]["name"], None)
            if not owned:
                del self._pods_by_owner[controller_uid(before)]
        if after is not None and (owner := controller_uid(after)):
            self._pods_by_owner.setdefault(owner, {})[after["metadata"]["name"]] = after
        changed = after or before
        key = self._key_by_uid.get(controller_uid(changed)) if changed else None
        if key is not None:
            self.add(key)

    async def sync(self, key: ObjectKey) -> None:
        """Bring one set nearer to its spec. Raises ApiError if a write failed."""
        obj = self._sets.objects.get(key)
        if obj is None or is_terminating(obj):
            return
        prefix = f"{key[1]}-"
        owned = self._pods_by_owner.get(obj["metadata"]["uid"], {})
        pods = {
            int(name.removeprefix(prefix)): pod
            for name, pod in owned.items()
            if name.startswith(prefix) and name.removeprefix(prefix).isdigit()
        }
        wanted = _wanted(obj)
        condemned = sorted((ordinal for ordinal in pods if ordinal not in wanted), reverse=True)
        state = _Set(obj, pods, self._revision_of(obj), wanted, condemned)
        await self._ensure_revision(state)
        await self._write_status(state)
        if await self._make(state) and await self._remove(state):
            await self._roll(state)

    def _revision_of(self, stateful_set: Obj) -> str:
        """Return the name of the set's revision. The hash is computed once for each template."""
        template = stateful_set["spec"]["template"]
        known = self._revisions.get(stateful_set["metadata"]["uid"])
        if known is None or known[0] != template:
            known = self._revisions[stateful_set["metadata"]["uid"]] = (
                template,
                revision_name(stateful_set),
            )
        return known[1]

    async def _ensure_revision(self, state: _Set) -> None:
        status = state.obj.get("status") or {}
        if status.get("updateRevision") == state.revision:
            return
        metadata = state.obj["metadata"]
        revision: Obj = {
            "metadata": {
                "name": state.revision,
                "namespace": metadata["namespace"],
                "ownerReferences": pod_of(state.obj, 0, {}, "")["metadata"]["ownerReferences"],
            },
            "data": {"spec": {"template": state.spec["template"]}},
            "revision": int(metadata.get("generation") or 1),
        }
        with suppress(AlreadyExists):
            await self._api.create(CONTROLLERREVISIONS, metadata["namespace"], revision)

    async def _template(self, state: _Set, revision: str) -> Obj:
        if revision == state.revision:
            template: Obj = state.spec["template"]
            return template
        try:
            stored = await self._api.get(
                CONTROLLERREVISIONS, state.obj["metadata"]["namespace"], revision
            )
        except NotFound:
            return await self._template(state, state.revision)
        old: Obj = stored["data"]["spec"]["template"]
        return old

    async def _make(self, state: _Set) -> bool:
        """Create missing pods and delete failed ones. With OrderedReady, return False until every
        pod is Ready.
        """
        for ordinal in state.wanted:
            pod = state.pods.get(ordinal)
            if pod is None:
                await self._create_pod(state, ordinal)
            elif has_failed(pod) and not is_terminating(pod):
                await self._delete_pod(pod)
            elif is_healthy(pod):
                continue
            if state.one_at_a_time:
                return False
        return True

    async def _create_pod(self, state: _Set, ordinal: int) -> None:
        revision = state.revision_for(ordinal)
        pod = pod_of(state.obj, ordinal, await self._template(state, revision), revision)
        namespace = pod["metadata"]["namespace"]
        # They may have been created before, and the cache has not seen them yet.
        for claim in claims_of(state.obj, ordinal):
            with suppress(AlreadyExists):
                await self._api.create(PERSISTENTVOLUMECLAIMS, namespace, claim)
        with suppress(AlreadyExists):
            await self._api.create(PODS, namespace, pod)

    async def _delete_pod(self, pod: Obj) -> None:
        uid = Preconditions(pod["metadata"]["uid"])
        # It may be gone, or another pod may have the name.
        with suppress(NotFound, Conflict):
            await self._api.delete(PODS, *key_of(pod), preconditions=uid)

    async def _remove(self, state: _Set) -> bool:
        """Delete pods beyond the wanted ordinals, highest first. Return True when none is left."""
        for ordinal in state.condemned:
            pod = state.pods[ordinal]
            if not is_terminating(pod):
                await self._delete_pod(pod)
            if state.one_at_a_time:
                return False
        return not state.condemned

    async def _roll(self, state: _Set) -> None:
        """Replace one pod of an old template, highest ordinal first. Wait for unhealthy pods."""
        if (state.spec.get("updateStrategy") or {}).get("type") == "OnDelete":
            return
        for ordinal in reversed(state.wanted[state.partition :]):
            pod = state.pods.get(ordinal)
            if pod is None or is_terminating(pod):
                return
            if pod["metadata"].get("labels", {}).get(REVISION_LABEL) != state.revision:
                await self._delete_pod(pod)
                return
            if not is_healthy(pod):
                return

    async def _write_status(self, state: _Set) -> None:
        wanted = _status_of(state)
        stored = state.obj.get("status") or {}
        if all(stored.get(field) == value for field, value in wanted.items()):
            return
        with suppress(NotFound):
            await self._merge(STATEFULSETS, key_of(state.obj), {"status": wanted}, "status")


def _status_of(state: _Set) -> dict[str, Any]:
    pods = [pod for pod in state.pods.values() if not has_failed(pod)]
    staying = [pod for pod in pods if not is_terminating(pod)]
    ready = len([pod for pod in staying if is_running_and_ready(pod)])
    revisions = [pod["metadata"].get("labels", {}).get(REVISION_LABEL) for pod in staying]
    updated = revisions.count(state.revision)
    current = state.current_revision
    replicas = int(state.spec["replicas"])
    if updated == replicas and ready == replicas and not state.condemned:
        # The rollout is complete.
        current = state.revision
    revisions += [
        pod["metadata"].get("labels", {}).get(REVISION_LABEL) for pod in pods if is_terminating(pod)
    ]
    return {
        "observedGeneration": state.obj["metadata"].get("generation", 1),
        "replicas": len(pods),
        "readyReplicas": ready,
        "availableReplicas": ready,
        "currentReplicas": revisions.count(current),
        "updatedReplicas": updated,
        "currentRevision": current,
        "updateRevision": state.revision,
        "collisionCount": 0,
    }
