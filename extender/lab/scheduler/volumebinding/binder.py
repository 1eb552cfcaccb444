"""``VolumeBinder``: finds volumes for a pod on a node, assumes them, binds them, and takes that
back (SchedulerVolumeBinder).

Who calls, and how often at once: one scheduling cycle calls ``get_pod_volume_claims``,
``find_pod_volumes`` for many nodes, and ``assume_pod_volumes`` for one. None of these awaits.
``bind_pod_volumes`` runs in the pod's own task, many at a time. After any failure the caller undoes
the assumption with ``revert_assumed_pod_volumes``; what is written stays written.
"""

import asyncio
import copy
from collections.abc import Callable, Mapping
from typing import Final

from extender.kube.api import Api, ApiError, Obj, PatchType
from extender.lab.apiserver.registry import PERSISTENTVOLUMECLAIMS, PERSISTENTVOLUMES
from extender.lab.scheduler.csi_translation import (
    TranslationError,
    in_tree_plugin_of,
    migrated_on,
    translated_volume,
)
from extender.lab.scheduler.listers import Listers
from extender.lab.scheduler.quantities import whole_value
from extender.lab.scheduler.types import NodeView, PodInfo, optional_selector
from extender.lab.scheduler.volumebinding.matching import (
    NO_PROVISIONER,
    SELECTED_NODE,
    annotate,
    annotations_of,
    bind_volume_to_claim,
    class_of,
    find_matching_volume,
    fully_bound,
    requested_storage,
    volume_limit,
    volume_patch,
    volume_reaches,
    waits_for_consumer,
    why_not_for_pod,
)
from extender.lab.scheduler.volumebinding.pod_volumes import (
    BindingInfo,
    DynamicProvision,
    PodVolumeClaims,
    PodVolumes,
    VolumeBindingError,
    not_found,
    why_not_assumed,
)
from extender.model.errors import AssumeError
from extender.model.objects import object_key
from extender.model.reading import Json, key_of, mapping, mappings, text, texts
from extender.model.resource_versions import parse_version

BIND_CONFLICT: Final = "node(s) didn't find available persistent volumes to bind"
NOT_ENOUGH_SPACE: Final = "node(s) did not have enough free storage"
NODE_CONFLICT: Final = "node(s) didn't match PersistentVolume's node affinity"
UNBOUND_IMMEDIATE: Final = "pod has unbound immediate PersistentVolumeClaims"
PV_NOT_EXIST: Final = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
BIND_TIMEOUT_S: Final = 600.0
POLL_S: Final = 1.0


class VolumeBinder:
    """The binder of one scheduler."""

    def __init__(
        self,
        listers: Listers,
        api: Api | None = None,
        *,
        node: Callable[[str], NodeView | None] = lambda _: None,
        pod_exists: Callable[[PodInfo], bool] = lambda _: True,
        timeout_s: float = BIND_TIMEOUT_S,
    ) -> None:
        """``api`` None: the binder decides only. ``node`` and ``pod_exists`` look at the
        informers' newest state.
        """
        self._listers = listers
        self._api = api
        self._node = node
        self._pod_exists = pod_exists
        self._timeout_s = timeout_s

    # Find

    def get_pod_volume_claims(self, pod: PodInfo) -> PodVolumeClaims:
        """Return the pod's claims by their state. Raises VolumeBindingError for a missing one."""
        found = PodVolumeClaims()
        for named in pod.volume_claims:
            key = object_key(pod.namespace, named.name)
            claim = self._listers.assumed_claims.get(key)
            if claim is None:
                missing = not_found(PERSISTENTVOLUMECLAIMS, key)
                raise VolumeBindingError(f'error getting PVC "{key}": {missing}')
            if named.ephemeral and (problem := why_not_for_pod(claim, pod)):
                raise VolumeBindingError(problem)
            if fully_bound(claim):
                found.bound.append(claim)
            elif not text(claim, "spec", "volumeName") and waits_for_consumer(
                self._listers.storage_class(class_of(claim))
            ):
                found.delayed.append(claim)
            else:
                found.immediate.append(claim)
        for claim in found.delayed:
            name = class_of(claim)
            found.volumes[name] = [
                volume
                for volume in self._listers.assumed_volumes.list()
                if class_of(volume) == name
            ]
        return found

    def find_pod_volumes(
        self, claims: PodVolumeClaims, node: NodeView
    ) -> tuple[PodVolumes, tuple[str, ...]]:
        """Return what the pod needs on a node, and why it cannot have it there. Raises
        VolumeBindingError.
        """
        volumes, reasons = PodVolumes(), []
        bound = self._check_bound_claims(claims.bound, node) if claims.bound else ""
        if bound == NODE_CONFLICT:
            reasons.append(NODE_CONFLICT)
        if claims.delayed and (refusal := self._find_delayed(volumes, claims, node)):
            reasons.append(refusal)
        if bound == PV_NOT_EXIST:
            reasons.append(PV_NOT_EXIST)
        return volumes, tuple(reasons)

    def _check_bound_claims(self, claims: list[Obj], node: NodeView) -> str:
        for claim in claims:
            volume = self._listers.assumed_volumes.get(text(claim, "spec", "volumeName"))
            if volume is None:
                return PV_NOT_EXIST
            if not volume_reaches(self._translated(volume, node), node.labels):
                return NODE_CONFLICT
        return ""

    def _translated(self, volume: Obj, node: NodeView) -> Obj:
        """The volume as its CSI driver's, if its in-tree plugin has migrated on the node
        (tryTranslatePVToCSI). Raises VolumeBindingError.
        """
        plugin = in_tree_plugin_of(mapping(volume, "spec"))
        if plugin is None or not migrated_on(self._listers.csi_node(node.name), plugin.name):
            return volume
        try:
            return translated_volume(volume)
        except TranslationError as error:
            raise VolumeBindingError(f"could not translate pv: {error}") from error

    def _find_delayed(self, volumes: PodVolumes, claims: PodVolumeClaims, node: NodeView) -> str:
        """Fill ``volumes``. Return a reason if a claim finds neither a volume nor room."""
        to_match, to_provision = [], []
        for claim in claims.delayed:
            selected = annotations_of(claim).get(SELECTED_NODE)
            if selected is None:
                to_match.append(claim)
            elif selected == node.name:
                to_provision.append(claim)
            else:
                return BIND_CONFLICT
        chosen: set[str] = set()
        for claim in sorted(to_match, key=requested_storage):
            volume = find_matching_volume(
                claim,
                claims.volumes[class_of(claim)],
                node_labels=node.labels,
                excluded=chosen,
                delay_binding=True,
            )
            if volume is None:
                to_provision.append(claim)
                continue
            chosen.add(volume["metadata"]["name"])
            volumes.static_bindings.append(BindingInfo(claim, volume))
        return self._find_room(volumes, to_provision, node)

    def _find_room(self, volumes: PodVolumes, claims: list[Obj], node: NodeView) -> str:
        for claim in claims:
            name = class_of(claim)
            storage_class = self._listers.storage_class(name)
            if storage_class is None:
                raise VolumeBindingError(f'failed to find storage class "{name}"')
            provisioner = text(storage_class, "provisioner")
            if provisioner in {"", NO_PROVISIONER} or not _topology_allowed(storage_class, node):
                volumes.dynamic_provisions.clear()
                return BIND_CONFLICT
            provision = DynamicProvision(claim)
            if self._tracks_capacity(provisioner, claim):
                provision.capacity = self._capacity_for(claim, name, node)
                if provision.capacity is None:
                    volumes.dynamic_provisions.clear()
                    return NOT_ENOUGH_SPACE
            volumes.dynamic_provisions.append(provision)
        return ""

    def _tracks_capacity(self, provisioner: str, claim: Obj) -> bool:
        driver = self._listers.csi_driver(provisioner)
        return (
            driver is not None
            and mapping(driver, "spec").get("storageCapacity") is True
            and "storage" in mapping(claim, "spec", "resources", "requests")
        )

    def _capacity_for(self, claim: Obj, class_name: str, node: NodeView) -> Obj | None:
        """The first CSIStorageCapacity of the class that the node reaches and that has room
        (hasEnoughCapacity).
        """
        wanted = whole_value(requested_storage(claim))
        for capacity in self._listers.storage_capacities():
            topology = optional_selector(capacity.get("nodeTopology"))
            limit = volume_limit(capacity)
            if (
                text(capacity, "storageClassName") == class_name
                and limit is not None
                and limit >= wanted
                and topology is not None
                and topology.matches(node.labels)
            ):
                return capacity
        return None

    # Assume

    def assume_pod_volumes(self, pod: PodInfo, node: str, volumes: PodVolumes) -> bool:
        """Assume the volumes and claims as they will be written, and put them into ``volumes``.
        Return True if there is nothing to bind. Raises VolumeBindingError; then nothing is assumed.
        """
        if self._all_bound(pod):
            return True
        assumed, kind = PodVolumes(), PERSISTENTVOLUMES
        try:
            for binding in volumes.static_bindings:
                volume, dirty = bind_volume_to_claim(binding.volume, binding.claim)
                if dirty:
                    self._listers.assumed_volumes.assume(volume)
                assumed.static_bindings.append(BindingInfo(binding.claim, volume))
            kind = PERSISTENTVOLUMECLAIMS
            for provision in volumes.dynamic_provisions:
                claim = copy.deepcopy(provision.claim)
                annotate(claim, SELECTED_NODE, node)
                self._listers.assumed_claims.assume(claim)
                assumed.dynamic_provisions.append(DynamicProvision(claim, provision.capacity))
        except AssumeError as error:
            self.revert_assumed_pod_volumes(assumed)
            raise VolumeBindingError(why_not_assumed(kind, error)) from error
        volumes.static_bindings = assumed.static_bindings
        volumes.dynamic_provisions = assumed.dynamic_provisions
        return False

    def _all_bound(self, pod: PodInfo) -> bool:
        claims = (
            self._listers.assumed_claims.get(object_key(pod.namespace, named.name))
            for named in pod.volume_claims
        )
        return all(claim is not None and fully_bound(claim) for claim in claims)

    def revert_assumed_pod_volumes(self, volumes: PodVolumes) -> None:
        """Give up the assumptions that still hold."""
        for binding in volumes.static_bindings:
            self._listers.assumed_volumes.restore(binding.volume)
        for provision in volumes.dynamic_provisions:
            self._listers.assumed_claims.restore(provision.claim)

    # Bind

    async def bind_pod_volumes(self, pod: PodInfo, node: str, volumes: PodVolumes) -> None:
        """Write the assumed volumes and claims, and wait until the controller has bound all of
        them. Raises VolumeBindingError; assumptions that were not written are reverted.
        """
        await self.bind_api_update(volumes)
        try:
            async with asyncio.timeout(self._timeout_s):
                while not self.check_bindings(pod, node, volumes):  # noqa: ASYNC110 - it polls
                    await asyncio.sleep(POLL_S)
        except TimeoutError as error:
            raise VolumeBindingError("binding volumes: context deadline exceeded") from error
        except VolumeBindingError as error:
            raise VolumeBindingError(f"binding volumes: {error}") from error

    async def bind_api_update(self, volumes: PodVolumes) -> None:
        """Write the assumed volumes and claims. Raises VolumeBindingError; what was not written is
        reverted.
        """
        if self._api is None:
            raise VolumeBindingError("this binder has no API server to write to")
        unwritten = PodVolumes(list(volumes.static_bindings), list(volumes.dynamic_provisions))
        try:
            for binding in volumes.static_bindings:
                binding.volume = await self._api.patch(
                    PERSISTENTVOLUMES,
                    "",
                    binding.volume["metadata"]["name"],
                    volume_patch(binding.volume),
                    patch_type=PatchType.MERGE,
                )
                unwritten.static_bindings.pop(0)
            for provision in volumes.dynamic_provisions:
                metadata = provision.claim["metadata"]
                annotations = dict(annotations_of(provision.claim))
                version = metadata["resourceVersion"]
                provision.claim = await self._api.patch(
                    PERSISTENTVOLUMECLAIMS,
                    metadata["namespace"],
                    metadata["name"],
                    {"metadata": {"resourceVersion": version, "annotations": annotations}},
                    patch_type=PatchType.MERGE,
                )
                unwritten.dynamic_provisions.pop(0)
        except ApiError as error:
            self.revert_assumed_pod_volumes(unwritten)
            raise VolumeBindingError(error.message) from error

    def check_bindings(self, pod: PodInfo, node_name: str, volumes: PodVolumes) -> bool:
        """Return whether the controller has bound all (checkBindings). Raises VolumeBindingError
        once it cannot any more.
        """
        node = self._node(node_name)
        if node is None:
            raise VolumeBindingError(
                f'failed to get node "{node_name}": node "{node_name}" not found'
            )
        if not self._pod_exists(pod):
            raise VolumeBindingError(f'pod does not exist any more: pod "{pod.name}" not found')
        return all(self._is_bound(one, node) for one in volumes.static_bindings) and all(
            self._is_provisioned(one, node) for one in volumes.dynamic_provisions
        )

    def _is_bound(self, binding: BindingInfo, node: NodeView) -> bool:
        name = binding.volume["metadata"]["name"]
        claim_key = key_of(binding.claim)
        volume = self._listers.assumed_volumes.get_api(name)
        if volume is None:
            missing = not_found(PERSISTENTVOLUMES, name)
            raise VolumeBindingError(f"failed to check binding: {missing}")
        claim = self._listers.assumed_claims.get_api(claim_key)
        if claim is None:
            missing = not_found(PERSISTENTVOLUMECLAIMS, claim_key)
            raise VolumeBindingError(f"failed to check binding: {missing}")
        if _is_newer(binding.volume, volume):
            return False
        self._check_reaches(volume, node)
        if not text(volume, "spec", "claimRef", "uid"):
            raise VolumeBindingError(f'ClaimRef got reset for pv "{name}"')
        return fully_bound(claim)

    def _is_provisioned(self, provision: DynamicProvision, node: NodeView) -> bool:
        key, name = key_of(provision.claim), provision.claim["metadata"]["name"]
        claim = self._listers.assumed_claims.get_api(key)
        if claim is None:
            missing = not_found(PERSISTENTVOLUMECLAIMS, key)
            raise VolumeBindingError(f"failed to check provisioning pvc: {missing}")
        if _is_newer(provision.claim, claim):
            return False
        if mapping(claim, "metadata").get("annotations") is None:
            raise VolumeBindingError(f'selectedNode annotation reset for PVC "{name}"')
        if annotations_of(claim).get(SELECTED_NODE) != node.name:
            # The provisioner gives up a node by removing the annotation.
            raise VolumeBindingError(f'provisioning failed for PVC "{name}"')
        if volume_name := text(claim, "spec", "volumeName"):
            volume = self._listers.assumed_volumes.get_api(volume_name)
            if volume is None:
                return False
            self._check_reaches(volume, node)
        return fully_bound(claim)

    def _check_reaches(self, volume: Obj, node: NodeView) -> None:
        if not volume_reaches(self._translated(volume, node), node.labels):
            name = volume["metadata"]["name"]
            raise VolumeBindingError(
                f'pv "{name}" node affinity doesn\'t match node "{node.name}": '
                "no matching NodeSelectorTerms"
            )


def _is_newer(written: Obj, seen: Obj) -> bool:
    """Return whether our write has not been seen yet."""
    one, other = (
        parse_version(text(obj, "metadata", "resourceVersion")) for obj in (written, seen)
    )
    return one is not None and other is not None and one > other


def _topology_allowed(storage_class: Json, node: NodeView) -> bool:
    """Return whether a node is in the class's allowedTopologies (MatchTopologySelectorTerms)."""
    terms = mappings(storage_class, "allowedTopologies")
    return not terms or any(_in_topology(term, node.labels) for term in terms)


def _in_topology(term: Json, labels: Mapping[str, str]) -> bool:
    expressions = mappings(term, "matchLabelExpressions")
    return bool(expressions) and all(
        labels.get(text(one, "key")) in texts(one, "values") for one in expressions
    )
