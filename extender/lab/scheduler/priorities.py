"""The score plugins of kube-scheduler's default profile, with its int64 and float64 arithmetic, and
the profile itself.

Weights: TaintToleration 3, NodeAffinity 2, PodTopologySpread 2, InterPodAffinity 2, the others 1.
"""

import math
from collections.abc import Collection, Sequence
from typing import Final

from extender.lab.scheduler.cache import Snapshot
from extender.lab.scheduler.framework import (
    CycleState,
    FilterPlugin,
    PlainScore,
    Profile,
    ScorePlugin,
    truncated,
)
from extender.lab.scheduler.inter_pod_affinity import InterPodAffinity
from extender.lab.scheduler.listers import Listers
from extender.lab.scheduler.nodevolumelimits.csi import NodeVolumeLimits
from extender.lab.scheduler.pod_topology_spread import PodTopologySpread
from extender.lab.scheduler.predicates import (
    NodeAffinity as NodeAffinityFilter,
    NodeName,
    NodePorts,
    NodeResourcesFit as NodeResourcesFitFilter,
    NodeUnschedulable,
    TaintToleration as TaintTolerationFilter,
)
from extender.lab.scheduler.types import MAX_NODE_SCORE, NodeInfo, PodInfo
from extender.lab.scheduler.volumebinding.binder import VolumeBinder
from extender.lab.scheduler.volumebinding.plugin import VolumeBinding
from extender.lab.scheduler.volumes import VolumeRestrictions, VolumeZone


def normalized(scores: list[int], *, reverse: bool = False) -> list[int]:
    """DefaultNormalizeScore: scale the highest score to 100. ``reverse`` reverses the order."""
    highest = max(scores, default=0)
    if highest <= 0:
        return [MAX_NODE_SCORE] * len(scores) if reverse else scores
    scaled = [truncated(MAX_NODE_SCORE * score, highest) for score in scores]
    return [MAX_NODE_SCORE - score for score in scaled] if reverse else scaled


class NodeResourcesFit(PlainScore):
    """LeastAllocated over CPU and memory: emptier nodes score higher."""

    name = "NodeResourcesFit"

    def score(self, _state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Return the mean of the free shares, in whole points."""
        allocatable = node.view.allocatable
        shares = [
            _free_share(node.non_zero_milli_cpu + pod.scored.milli_cpu, allocatable.milli_cpu),
            _free_share(node.non_zero_memory + pod.scored.memory, allocatable.memory),
        ]
        counted = [share for share in shares if share is not None]
        return sum(counted) // len(counted) if counted else 0


def _free_share(requested: int, capacity: int) -> int | None:
    """leastRequestedScore; None for a resource that the node does not have."""
    if capacity == 0:
        return None
    return 0 if requested > capacity else (capacity - requested) * MAX_NODE_SCORE // capacity


class NodeResourcesBalancedAllocation(PlainScore):
    """Scores how much more evenly CPU and memory are used with the pod (as in 1.37)."""

    name = "NodeResourcesBalancedAllocation"

    def pre_score(
        self, _state: CycleState, pod: PodInfo, _nodes: Sequence[NodeInfo], _snapshot: Snapshot
    ) -> bool:
        """Skip pods that request neither."""
        return bool(pod.requests.milli_cpu or pod.requests.memory)

    def score(self, _state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Return the score, from 50 to 100. It is 75 if the pod changes nothing."""
        allocatable = node.view.allocatable
        capacity = (allocatable.milli_cpu, allocatable.memory)
        without = _balance((node.milli_cpu, node.memory), capacity)
        with_pod = _balance(
            (node.milli_cpu + pod.requests.milli_cpu, node.memory + pod.requests.memory), capacity
        )
        half = MAX_NODE_SCORE // 2
        return half + truncated(half + with_pod - without, 2)


def _balance(used: tuple[int, int], capacity: tuple[int, int]) -> int:
    """Return 100 minus the standard deviation of the used fractions in percent, in float64."""
    fractions = [
        min(float(amount) / float(limit), 1.0)
        for amount, limit in zip(used, capacity, strict=True)
        if limit
    ]
    deviation = math.fabs((fractions[0] - fractions[1]) / 2) if len(fractions) == 2 else 0.0
    return int((1 - deviation) * float(MAX_NODE_SCORE))


class TaintToleration(PlainScore):
    """Prefers nodes with fewer PreferNoSchedule taints that the pod does not tolerate."""

    name = "TaintToleration"

    def score(self, _state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Return the number of such taints."""
        tolerations = [t for t in pod.tolerations if t.effect in {"", "PreferNoSchedule"}]
        return sum(
            1
            for taint in node.view.taints
            if taint.effect == "PreferNoSchedule" and not taint.tolerated_by(tolerations)
        )

    def normalize(
        self, _state: CycleState, scores: list[int], _nodes: Sequence[NodeInfo]
    ) -> list[int]:
        """Reverse the order: no such taint is 100."""
        return normalized(scores, reverse=True)


class NodeAffinity:
    """Adds the weights of the preferred node affinity terms that match."""

    name = "NodeAffinity"

    def pre_score(
        self, _state: CycleState, pod: PodInfo, _nodes: Sequence[NodeInfo], _snapshot: Snapshot
    ) -> bool:
        """Skip pods without preferences."""
        return bool(pod.node_affinity.preferred)

    def score(self, _state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Return the sum of the weights."""
        view = node.view
        return sum(
            t.weight for t in pod.node_affinity.preferred if t.matches(view.name, view.labels)
        )

    def normalize(
        self, _state: CycleState, scores: list[int], _nodes: Sequence[NodeInfo]
    ) -> list[int]:
        """Scale the highest score to 100."""
        return normalized(scores)


_MIB: Final = 1024 * 1024
_IMAGE_BYTES_MIN: Final = 23 * _MIB
_IMAGE_BYTES_MAX_PER_IMAGE: Final = 1000 * _MIB


class ImageLocality(PlainScore):
    """Prefers nodes that have the pod's images. An image counts less while few nodes have it."""

    name = "ImageLocality"

    def __init__(self) -> None:
        self._snapshot = Snapshot()

    def pre_score(
        self, _state: CycleState, _pod: PodInfo, _nodes: Sequence[NodeInfo], snapshot: Snapshot
    ) -> bool:
        """Score every pod."""
        self._snapshot = snapshot
        return True

    def score(self, _state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Score the bytes of the images that the node has, from 23 MiB up to 1000 MiB for each
        image. As in 1.37, the images of volumes count too.
        """
        spec = pod.obj.get("spec") or {}
        containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
        images = [str(container.get("image") or "") for container in containers]
        images += [
            str(volume["image"].get("reference") or "")
            for volume in spec.get("volumes") or ()
            if volume.get("image")
        ]
        there = sum(self._image_score(normalized_image(image), node) for image in images)
        most = _IMAGE_BYTES_MAX_PER_IMAGE * len(images)
        there = _IMAGE_BYTES_MIN if there < _IMAGE_BYTES_MIN else min(there, most)
        return truncated(MAX_NODE_SCORE * (there - _IMAGE_BYTES_MIN), most - _IMAGE_BYTES_MIN)

    def _image_score(self, image: str, node: NodeInfo) -> int:
        if image not in node.view.images:
            return 0
        size, nodes = self._snapshot.images.get(image, (0, 0))
        return int(float(size) * (float(nodes) / float(len(self._snapshot.nodes))))


def normalized_image(name: str) -> str:
    """Return an image name with a tag: ``:latest`` if it has none."""
    return f"{name}:latest" if name.rfind(":") <= name.rfind("/") else name


def default_profile(
    listers: Listers,
    *,
    binder: VolumeBinder | None = None,
    ignored_resources: Collection[str] = (),
    percentage_of_nodes_to_score: int | None = None,
) -> Profile:
    """Return kube-scheduler 1.37's default plugins, in its order, without those for dynamic
    resources. ``binder``: see ``VolumeBinding``.
    """
    volumes = VolumeBinding(listers, binder)
    spread, affinity = PodTopologySpread(listers), InterPodAffinity(listers)
    filters: list[FilterPlugin] = [
        NodeUnschedulable(),
        NodeName(),
        TaintTolerationFilter(),
        NodeAffinityFilter(),
        NodePorts(),
        NodeResourcesFitFilter(ignored_resources),
        VolumeRestrictions(listers),
        NodeVolumeLimits(listers),
        volumes,
        VolumeZone(listers),
        spread,
        affinity,
    ]
    scores: list[tuple[ScorePlugin, int]] = [
        (TaintToleration(), 3),
        (NodeAffinity(), 2),
        (NodeResourcesFit(), 1),
        (volumes, 1),
        (spread, 2),
        (affinity, 2),
        (NodeResourcesBalancedAllocation(), 1),
        (ImageLocality(), 1),
    ]
    return Profile(
        filters,
        scores,
        percentage_of_nodes_to_score,
        reserves=(volumes,),
    )
