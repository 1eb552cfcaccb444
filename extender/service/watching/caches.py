"""``Caches``: what the service knows of the cluster, and the state derived from it.

Two assume caches (adapter pods, vpods) hold objects that the service also writes. Nodes,
namespaces, StatefulSets, pools and quotas are only read. ``external_vpods`` are those that callers
have asked for. Each change goes first to ``ClusterState`` and then to the other handlers, in one
synchronous step, so no task sees a cache and the state disagree.
The other handlers must not rely on each other's order.
"""

from collections.abc import Callable, Iterator, Mapping, Set as AbstractSet
from typing import Generic, TypeVar

from extender.engine.cache.caches import AdapterPodAssumeCache, VPodAssumeCache
from extender.engine.policy.profile import Profile
from extender.engine.policy.profiles import BUILT_IN_PROFILES
from extender.engine.state.cluster_state import ClusterState
from extender.model.decode import SLICE_OBJECTS
from extender.model.objects import AdapterPool, Namespace, Node, StatefulSet
from extender.model.tenancy import VReplicaQuota
from extender.service.watching.external_vpods import ExternalVPods

T = TypeVar("T", Node, Namespace, StatefulSet, AdapterPool, VReplicaQuota)
OnChange = Callable[[T | None, T | None], None]


class ReadCache(Generic[T]):
    """The last known objects of a kind that the service only reads, by key."""

    def __init__(self, on_change: OnChange[T]) -> None:
        self._objects: dict[str, T] = {}
        self._handlers: list[OnChange[T]] = [on_change]

    def __len__(self) -> int:
        return len(self._objects)

    def add_event_handler(self, on_change: OnChange[T]) -> None:
        """Call ``on_change(old, new)`` after every change, in the order in which handlers were
        added.
        """
        self._handlers.append(on_change)

    def get(self, key: str) -> T | None:
        """The object, None if unknown."""
        return self._objects.get(key)

    def confirm(self, key: str, uid: str, resource_version: str) -> bool:  # noqa: ARG002 - as the assume caches have it
        """Always False, so every event is applied. An assume cache returns True for its own
        writes.
        """
        return False

    def update(self, obj: T) -> None:
        """An object came or changed."""
        old = self._objects.get(obj.key)
        self._objects[obj.key] = obj
        self._notify(old, obj)

    def delete(self, obj: T) -> None:
        """An object went."""
        old = self._objects.pop(obj.key, None)
        if old is not None:
            self._notify(old, None)

    def replace(self, objects: list[T], resource_version: str) -> None:
        """Replace all objects after a list."""
        for _ in self.replacing(objects, resource_version):
            pass

    def replacing(self, objects: list[T], resource_version: str) -> Iterator[None]:  # noqa: ARG002 - same signature as the assume caches
        """As ``replace``, in slices of ``SLICE_OBJECTS``, between which other tasks may run."""
        listed = {obj.key for obj in objects}
        for key in [key for key in self._objects if key not in listed]:
            self.delete(self._objects[key])
        for count, obj in enumerate(objects, 1):
            self.update(obj)
            if count % SLICE_OBJECTS == 0:
                yield

    def list(self) -> list[T]:
        """All objects."""
        return list(self._objects.values())

    def _notify(self, old: T | None, new: T | None) -> None:
        for handler in self._handlers:
            handler(old, new)


class Caches:
    """All caches, and the ``ClusterState`` that they feed. ``profiles``: those that pools may name,
    by name. ``pool_namespaces``: whose pools are kept, with their StatefulSets, adapter pods and
    vpods; empty: those of all namespaces. What fills the caches asks ``serves``.
    """

    def __init__(
        self,
        profiles: Mapping[str, Profile] = BUILT_IN_PROFILES,
        pool_namespaces: AbstractSet[str] = frozenset(),
    ) -> None:
        self.state = ClusterState(profiles)
        self._pool_namespaces = pool_namespaces
        self.pods = AdapterPodAssumeCache()
        self.vpods = VPodAssumeCache()
        self.pods.add_event_handler(self.state.pod_changed)
        self.external_vpods = ExternalVPods(self.state, self.vpods)
        self.nodes: ReadCache[Node] = ReadCache(self.state.node_changed)
        self.namespaces: ReadCache[Namespace] = ReadCache(self.state.namespace_changed)
        self.stateful_sets: ReadCache[StatefulSet] = ReadCache(self.state.stateful_set_changed)
        self.pools: ReadCache[AdapterPool] = ReadCache(self.state.adapter_pool_changed)
        self.quotas: ReadCache[VReplicaQuota] = ReadCache(self.state.quota_changed)

    def serves(self, namespace: str) -> bool:
        """Whether this installation serves the pools of a namespace (``pools.namespaces``). It
        leaves those of the others to another installation.
        """
        return not self._pool_namespaces or namespace in self._pool_namespaces
