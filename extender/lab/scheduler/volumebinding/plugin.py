"""The plugin VolumeBinding: filter, score, reserve and pre-bind by the binder."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from extender.kube.api import Obj
from extender.lab.scheduler.cache import Snapshot
from extender.lab.scheduler.framework import (
    PROCEED,
    SKIP,
    CycleState,
    FixedState,
    NodeLocalFilter,
    PlainScore,
    PreFilterResult,
)
from extender.lab.scheduler.listers import Listers
from extender.lab.scheduler.quantities import nanos, whole_value
from extender.lab.scheduler.types import (
    MAX_NODE_SCORE,
    Code,
    NodeInfo,
    PodClaim,
    PodInfo,
    Status,
    unresolvable,
)
from extender.lab.scheduler.volumebinding.binder import UNBOUND_IMMEDIATE, VolumeBinder
from extender.lab.scheduler.volumebinding.matching import (
    capacity_of,
    requested_storage,
    why_not_for_pod,
)
from extender.lab.scheduler.volumebinding.pod_volumes import (
    PodVolumeClaims,
    PodVolumes,
    VolumeBindingError,
)
from extender.model.reading import text


@dataclass(slots=True)
class VolumeBindingState(FixedState):
    """A pod's claims, and what it would bind on each node that passed. A trial of preemption
    shares it.
    """

    claims: PodVolumeClaims
    by_node: dict[str, PodVolumes] = field(default_factory=dict)
    all_bound: bool = True


class VolumeBinding(NodeLocalFilter, PlainScore):
    """Finds, reserves and binds the volumes of a pod's claims."""

    name = "VolumeBinding"

    def __init__(self, listers: Listers, binder: VolumeBinder | None = None) -> None:
        """``binder`` None: one that decides and binds nothing."""
        self._listers = listers
        self._binder = binder if binder is not None else VolumeBinder(listers)

    def pre_filter(self, state: CycleState, pod: PodInfo, _snapshot: Snapshot) -> PreFilterResult:
        """Skip pods without claims. Refuse if a claim is missing, lost or being deleted, or is
        unbound and does not wait for its first consumer.
        """
        if not pod.volume_claims:
            return SKIP
        for named in pod.volume_claims:
            claim = self._listers.claim(pod.namespace, named.name)
            if refusal := _why_unusable(pod, named, claim):
                return PreFilterResult(status=unresolvable(refusal))
        try:
            claims = self._binder.get_pod_volume_claims(pod)
        except VolumeBindingError as error:
            return PreFilterResult(status=Status(Code.ERROR, (str(error),)))
        if claims.immediate:
            return PreFilterResult(status=unresolvable(UNBOUND_IMMEDIATE))
        state.write(VolumeBindingState(claims))
        return PROCEED

    def filter(self, state: CycleState, _pod: PodInfo, node: NodeInfo) -> Status | None:
        """Return a refusal unless the bound volumes can be used on the node and each other claim
        finds a volume or room for one there.
        """
        found = state.read(VolumeBindingState)
        try:
            volumes, reasons = self._binder.find_pod_volumes(found.claims, node.view)
        except VolumeBindingError as error:
            return Status(Code.ERROR, (str(error),))
        if reasons:
            return unresolvable(*reasons)
        found.by_node[node.name] = volumes
        return None

    def pre_score(
        self, state: CycleState, _pod: PodInfo, _nodes: Sequence[NodeInfo], _snapshot: Snapshot
    ) -> bool:
        """Skip pods that have nothing to bind."""
        found = state.find(VolumeBindingState)
        return found is not None and bool(found.claims.delayed)

    def score(self, state: CycleState, _pod: PodInfo, node: NodeInfo) -> int:
        """Return the mean over storage classes of the share that stays free: of the volumes, or,
        if all are to be made, of the drivers' capacity (StorageCapacityScoring, on since 1.37).
        """
        volumes = state.read(VolumeBindingState).by_node.get(node.name)
        if volumes is None:
            return 0
        by_class = _static_storage(volumes) or _dynamic_storage(volumes)
        if not by_class:
            return 0
        scores = [_free_share(requested, capacity) for requested, capacity in by_class.values()]
        return math.floor(float(sum(scores)) / float(len(scores)) + 0.5)

    def reserve(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        """Assume the volumes on the chosen node. Return an error if that fails."""
        found = state.find(VolumeBindingState)
        volumes = found.by_node.get(node) if found is not None else None
        if found is None or volumes is None:
            return None
        try:
            found.all_bound = self._binder.assume_pod_volumes(pod, node, volumes)
        except VolumeBindingError as error:
            return Status(Code.ERROR, (str(error),))
        return None

    def unreserve(self, state: CycleState, _pod: PodInfo, node: str) -> None:
        """Give up what reserve has assumed."""
        found = state.find(VolumeBindingState)
        if found is not None and (volumes := found.by_node.get(node)) is not None:
            self._binder.revert_assumed_pod_volumes(volumes)

    async def pre_bind(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        """Bind the assumed volumes, and wait for them. Return an error if that fails."""
        found = state.find(VolumeBindingState)
        if found is None or found.all_bound:
            return None
        try:
            await self._binder.bind_pod_volumes(pod, node, found.by_node[node])
        except VolumeBindingError as error:
            return Status(Code.ERROR, (str(error),))
        return None


def _why_unusable(pod: PodInfo, named: PodClaim, claim: Obj | None) -> str:
    name = named.name
    if claim is None and named.ephemeral:
        return (
            f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
        )
    if claim is None:
        return f'persistentvolumeclaim "{name}" not found'
    if text(claim, "status", "phase") == "Lost":
        volume = text(claim, "spec", "volumeName")
        return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{volume}"'
    if text(claim, "metadata", "deletionTimestamp"):
        return f'persistentvolumeclaim "{name}" is being deleted'
    return why_not_for_pod(claim, pod) if named.ephemeral else ""


_ByClass = dict[str, tuple[int, int]]
"""Storage class -> bytes requested, and bytes that are there."""


def _static_storage(volumes: PodVolumes) -> _ByClass:
    found: _ByClass = {}
    for binding in volumes.static_bindings:
        name = text(binding.volume, "spec", "storageClassName")
        requested, capacity = found.get(name, (0, 0))
        found[name] = (
            requested + whole_value(requested_storage(binding.claim)),
            capacity + whole_value(capacity_of(binding.volume)),
        )
    return found


def _dynamic_storage(volumes: PodVolumes) -> _ByClass:
    found: _ByClass = {}
    for provision in volumes.dynamic_provisions:
        if provision.capacity is None:
            continue
        name = text(provision.claim, "spec", "storageClassName")
        requested, _ = found.get(name, (0, 0))
        # All of a class's claims take from the same capacity.
        found[name] = (
            requested + whole_value(requested_storage(provision.claim)),
            whole_value(nanos(provision.capacity.get("capacity", 0))),
        )
    return found


def _free_share(requested: int, capacity: int) -> int:
    """The default shape: from 100 at no use down to 0 at full use."""
    if capacity == 0 or requested > capacity:
        return 0
    return MAX_NODE_SCORE - requested * MAX_NODE_SCORE // capacity
