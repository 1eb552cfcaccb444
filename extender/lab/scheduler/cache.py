"""kube-scheduler's cache: the pods on each node, including *assumed* pods. Their node is decided,
but they have not been seen bound yet.

            assume              pod seen with spec.nodeName
    (none) -------> assumed --------------------------------> added --> (none, pod deleted)
                     |  ^ finish_binding starts its expiry
                     +--> (none)   forget, or expired

A cycle works on a ``Snapshot``, which clones a NodeInfo only when it changed. So a cycle can await
an extender while events change the cache, and still decides on one consistent state. The snapshot
lists nodes by taking one of each zone in turn (kube-scheduler's nodeTree). So a search that stops
early has seen all zones.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from extender.lab.scheduler.types import NodeInfo, NodeView, PodInfo
from extender.model.errors import VReplicaError

ASSUMED_POD_EXPIRY_S: Final = 30.0


class CacheError(VReplicaError):
    """A pod is not in the state that an operation needs."""


class NodeNotFound(VReplicaError):
    """The snapshot has no such node. The text is kube-scheduler's."""

    def __init__(self, name: str) -> None:
        super().__init__(f'nodeinfo not found for node name "{name}"')


@dataclass(slots=True)
class _PodState:
    pod: PodInfo
    assumed: bool = False
    expires_at: float | None = None


@dataclass(slots=True)
class Snapshot:
    """The cluster as one cycle sees it."""

    by_name: dict[str, NodeInfo] = field(default_factory=dict)
    nodes: list[NodeInfo] = field(default_factory=list)
    with_affinity: list[NodeInfo] = field(default_factory=list)
    with_required_anti_affinity: list[NodeInfo] = field(default_factory=list)
    images: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Image name -> its size in bytes, and the number of nodes that have it."""

    def get(self, name: str) -> NodeInfo:
        """Return a node by name. Raises NodeNotFound."""
        node = self.by_name.get(name)
        if node is None:
            raise NodeNotFound(name)
        return node


class _NodeTree:
    """Node names by zone, in the order in which they were added."""

    def __init__(self) -> None:
        self._zones: dict[str, dict[str, None]] = {}
        self._zone_of: dict[str, str] = {}

    def put(self, view: NodeView) -> bool:
        """Add or move a node. Return whether anything changed."""
        zone = view.zone_key
        if self._zone_of.get(view.name) == zone:
            return False
        self.remove(view.name)
        self._zones.setdefault(zone, {})[view.name] = None
        self._zone_of[view.name] = zone
        return True

    def remove(self, name: str) -> None:
        zone = self._zone_of.pop(name, None)
        if zone is not None:
            del self._zones[zone][name]
            if not self._zones[zone]:
                del self._zones[zone]

    def names(self) -> list[str]:
        zones = [list(members) for members in self._zones.values()]
        longest = max(map(len, zones), default=0)
        return [
            members[turn] for turn in range(longest) for members in zones if turn < len(members)
        ]


class SchedulerCache:
    """Nodes and the pods on them, in memory. No method awaits."""

    def __init__(self, *, assumed_pod_expiry_s: float | None = ASSUMED_POD_EXPIRY_S) -> None:
        self._expiry_s = assumed_pod_expiry_s
        self._nodes: dict[str, NodeInfo] = {}
        self._pods: dict[str, _PodState] = {}
        self._assumed: set[str] = set()
        self._tree = _NodeTree()
        self._order_changed = True
        self._images: dict[str, tuple[int, set[str]]] = {}
        self._image_summary: dict[str, tuple[int, int]] = {}
        self._snapshot = Snapshot()

    # Pods, keyed by UID, because a recreated pod of the same name is another pod

    def assume(self, pod: PodInfo, node: str) -> None:
        """Count a pod on ``node`` before it is bound. Raises CacheError if it is known."""
        if pod.uid in self._pods:
            raise CacheError(f"pod {pod.uid}({pod.key}) is in the cache, so can't be assumed")
        self._pods[pod.uid] = _PodState(pod_on_node(pod, node), assumed=True)
        self._assumed.add(pod.uid)
        self._node(node).add_pod(self._pods[pod.uid].pod)

    def finish_binding(self, uid: str, now_s: float) -> None:
        """Let the assumption expire, counted from now (monotonic seconds)."""
        state = self._pods.get(uid)
        if state is not None and state.assumed and self._expiry_s is not None:
            state.expires_at = now_s + self._expiry_s

    def forget(self, uid: str) -> PodInfo | None:
        """Revert and return an assumption, or None. Raises CacheError if the pod is bound."""
        state = self._pods.get(uid)
        if state is None:
            return None
        if not state.assumed:
            raise CacheError(f"pod {uid}({state.pod.key}) wasn't assumed so cannot be forgotten")
        self._drop(state.pod)
        return state.pod

    def expire(self, now_s: float) -> list[PodInfo]:
        """Drop the expired assumptions and return them."""
        expired = [
            state.pod
            for uid in self._assumed
            if (state := self._pods[uid]).expires_at is not None and state.expires_at <= now_s
        ]
        for pod in expired:
            self._drop(pod)
        return expired

    def is_assumed(self, uid: str) -> bool:
        """Return whether the pod is assumed."""
        return uid in self._assumed

    def put_pod(self, pod: PodInfo) -> None:
        """Record a bound pod that is new or changed. This confirms its assumption."""
        known = self._pods.get(pod.uid)
        if known is not None:
            self._drop(known.pod)
        self._pods[pod.uid] = _PodState(pod)
        self._node(pod.node_name).add_pod(pod)

    def remove_pod(self, uid: str) -> None:
        """Remove a bound pod."""
        known = self._pods.get(uid)
        if known is not None:
            self._drop(known.pod)

    def _drop(self, pod: PodInfo) -> None:
        del self._pods[pod.uid]
        self._assumed.discard(pod.uid)
        node = self._nodes[pod.node_name]
        node.remove_pod(pod)
        if not node.present and not node.pods:
            del self._nodes[pod.node_name]

    # Nodes

    def put_node(self, view: NodeView) -> None:
        """Record a node that is new or changed."""
        node = self._node(view.name)
        self._forget_images(node)
        node.set_view(view)
        for image, size in view.images.items():
            self._images.setdefault(image, (size, set()))[1].add(view.name)
        self._order_changed |= self._tree.put(view)
        self._summarise_images(view.images)

    def remove_node(self, name: str) -> None:
        """Remove a node. Its pods stay until they are deleted themselves."""
        node = self._nodes.get(name)
        if node is None:
            return
        self._forget_images(node)
        self._tree.remove(name)
        self._order_changed = True
        node.set_view(None)
        if not node.pods:
            del self._nodes[name]

    def _node(self, name: str) -> NodeInfo:
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = NodeInfo()
        return node

    def _forget_images(self, node: NodeInfo) -> None:
        for image in node.view.images:
            if (state := self._images.get(image)) is not None:
                state[1].discard(node.name)
                if not state[1]:
                    del self._images[image]
        self._summarise_images(node.view.images)

    def _summarise_images(self, changed: Mapping[str, int]) -> None:
        for image in changed:
            state = self._images.get(image)
            if state is None:
                self._image_summary.pop(image, None)
            else:
                self._image_summary[image] = (state[0], len(state[1]))

    def snapshot(self) -> Snapshot:
        """Return the snapshot for the next cycle: always the same object, brought up to date."""
        snapshot = self._snapshot
        known = snapshot.by_name
        changed = self._order_changed
        for name in [
            name for name in known if name not in self._nodes or not self._nodes[name].present
        ]:
            del known[name]
            changed = True
        for name, node in self._nodes.items():
            if node.present and (name not in known or known[name].generation != node.generation):
                known[name] = node.clone()
                changed = True
        if changed:
            snapshot.nodes = [known[name] for name in self._tree.names() if name in known]
            snapshot.with_affinity = [node for node in snapshot.nodes if node.pods_with_affinity]
            snapshot.with_required_anti_affinity = [
                node for node in snapshot.nodes if node.pods_with_required_anti_affinity
            ]
            self._order_changed = False
        snapshot.images = self._image_summary
        return snapshot


def pod_on_node(pod: PodInfo, node: str) -> PodInfo:
    """Return the pod as it will be when bound. Parsed parts are shared."""
    obj = {**pod.obj, "spec": {**pod.obj.get("spec", {}), "nodeName": node}}
    return replace(pod, obj=obj, node_name=node)
