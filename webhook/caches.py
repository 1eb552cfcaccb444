"""What the webhook knows: pools, quotas, vpods, namespaces and priority classes. A reflector feeds
each cache, and reads do not wait.

A review must be answered within 3 s while a user waits. So it is answered from memory, which is as
old as the watches (milliseconds), and does not ask the API server. (Only an eviction does, see
``webhook.evictions``.) Before the first lists arrive, no object is known.

An object that cannot be decoded is logged and keeps its last good form. Other objects are not
affected.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from extender.kube.api import (
    ADAPTERPOOLS,
    NAMESPACES,
    PRIORITYCLASSES,
    VPODS,
    VREPLICAQUOTAS,
    Obj,
    Resource,
    WatchEvent,
    WatchEventType,
)
from extender.kube.sink import DecodedListing
from extender.model.decode import namespace_from, pool_from, priority_class_from, vpod_from
from extender.model.decode_tenancy import quota_from
from extender.model.errors import InvalidObject
from extender.model.objects import AdapterPool, Namespace, PriorityClass, VPod
from extender.model.reading import key_of
from extender.model.tenancy import VReplicaQuota

_log: Final = logging.getLogger(__name__)


class Keyed(Protocol):
    """What a cache holds."""

    @property
    def key(self) -> str:
        """``namespace/name``, or ``name``."""
        ...


T = TypeVar("T", bound=Keyed)


class ObjectStore(Generic[T]):
    """The objects of one kind by key. It is the ``Sink`` of its reflector."""

    def __init__(self, kind: str, decode: Callable[[Mapping[str, Any]], T]) -> None:
        self._kind = kind
        self._decode = decode
        self._objects: dict[str, T] = {}
        self.synced = False
        self._undecodable: set[str] = set()

    @property
    def objects(self) -> Mapping[str, T]:
        """The objects by key."""
        return self._objects

    @property
    def undecodable(self) -> int:
        """How many objects have a newest version that cannot be decoded, for the metric."""
        return len(self._undecodable)

    def get(self, key: str) -> T | None:
        """The object of that key."""
        return self._objects.get(key)

    def listing(self) -> DecodedListing[T]:
        """See sink.Sink."""
        return DecodedListing(self._decode, self._replace)

    def _replace(self, decoded: list[T], unread: list[str], version: str) -> Iterator[None]:
        kept = {key: self._objects[key] for key in unread if key in self._objects}
        self._objects = kept | {obj.key: obj for obj in decoded}
        self._undecodable = set(unread)
        _log.info("%s: %d objects at version %s", self._kind, len(self._objects), version)
        self.synced = True
        return iter(())

    def apply(self, event: WatchEvent) -> None:
        """Take one event. Bookmarks are ignored."""
        match event.type:
            case WatchEventType.ADDED | WatchEventType.MODIFIED:
                self._take(event.object)
            case WatchEventType.DELETED:
                self._objects.pop(key_of(event.object), None)
                self._undecodable.discard(key_of(event.object))
            case WatchEventType.BOOKMARK:
                pass

    def _take(self, obj: Obj) -> None:
        try:
            decoded = self._decode(obj)
        except InvalidObject as error:
            self._undecodable.add(key_of(obj))
            _log.warning("keeping the last good form, if any, of an unreadable object: %s", error)
            return
        self._objects[decoded.key] = decoded
        self._undecodable.discard(decoded.key)


AnyStore: TypeAlias = (
    ObjectStore[AdapterPool]
    | ObjectStore[VPod]
    | ObjectStore[Namespace]
    | ObjectStore[VReplicaQuota]
    | ObjectStore[PriorityClass]
)


class WebhookCaches:
    """All caches: the ``View`` that stamping and validation read."""

    def __init__(self) -> None:
        self.pools = ObjectStore("AdapterPool", pool_from)
        self.vpods = ObjectStore("VPod", vpod_from)
        self.namespaces = ObjectStore("Namespace", namespace_from)
        self.quotas = ObjectStore("VReplicaQuota", quota_from)
        self.priority_classes = ObjectStore("PriorityClass", priority_class_from)

    @property
    def sinks(self) -> Mapping[Resource, AnyStore]:
        """The resources to reflect -> their caches."""
        return {
            ADAPTERPOOLS: self.pools,
            VPODS: self.vpods,
            NAMESPACES: self.namespaces,
            VREPLICAQUOTAS: self.quotas,
            PRIORITYCLASSES: self.priority_classes,
        }

    @property
    def synced(self) -> bool:
        """Whether every cache has had its first list."""
        return all(sink.synced for sink in self.sinks.values())

    def pool(self, key: str) -> AdapterPool | None:
        """The pool of that key."""
        return self.pools.get(key)

    def pools_of(self, stateful_set_key: str) -> Sequence[AdapterPool]:
        """The pools that name this StatefulSet, by key. One pass over all pools, which are few."""
        found = [
            pool
            for pool in self.pools.objects.values()
            if pool.stateful_set_key == stateful_set_key
        ]
        return sorted(found, key=lambda pool: pool.key)

    def namespace(self, name: str) -> Namespace | None:
        """The namespace of that name."""
        return self.namespaces.get(name)

    def priority_class(self, name: str) -> PriorityClass | None:
        """The PriorityClass of that name."""
        return self.priority_classes.get(name)

    def vpods_of(self, pool_key: str) -> int:
        """How many VPods name this pool and are not being deleted. One pass, made when a pool is
        deleted.
        """
        return sum(
            vpod.pool == pool_key and not vpod.deleting for vpod in self.vpods.objects.values()
        )

    def heavier_vpods(self, pool_key: str, slots: int) -> int:
        """How many vpods of that pool have a vreplica that takes more than ``slots``. One pass,
        made when a pool is written.
        """
        return sum(
            vpod.pool == pool_key and vpod.weight > slots for vpod in self.vpods.objects.values()
        )

    def misfits(self, pool: AdapterPool) -> int:
        """How many vpods of that pool have a vreplica that no pod can hold because of a dimension.
        One pass.
        """
        return sum(
            vpod.pool == pool.key
            and bool(vpod.per_vreplica)
            and vpod.weight <= pool.slots_per_pod
            and not pool.could_hold(vpod)
            for vpod in self.vpods.objects.values()
        )
