"""What the webhook knows: pools, vpods and namespaces, each fed by a reflector, read without
waiting.

A review has 3 s and stands in the way of the user, so it never asks the API server: it is answered
from memory, as old as the watches are (milliseconds). Before the first lists are in, everything is
simply not known yet.

One object that cannot be decoded keeps its last good form, is logged, and disturbs no other.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from extender.kube.api import (
    ADAPTERPOOLS,
    NAMESPACES,
    VPODS,
    Obj,
    Resource,
    WatchEvent,
    WatchEventType,
)
from extender.model.decode import namespace_from, pool_from, vpod_from
from extender.model.errors import InvalidObject
from extender.model.objects import AdapterPool, Namespace, VPod
from extender.model.reading import key_of

_log: Final = logging.getLogger(__name__)


class Keyed(Protocol):
    """What a cache holds."""

    @property
    def key(self) -> str:
        """``namespace/name``, or ``name``."""
        ...


T = TypeVar("T", bound=Keyed)


class ObjectStore(Generic[T]):
    """The objects of one kind by key; a ``Sink`` of its reflector."""

    def __init__(self, kind: str, decode: Callable[[Mapping[str, Any]], T]) -> None:
        self._kind = kind
        self._decode = decode
        self._objects: dict[str, T] = {}
        self.synced = False
        self.undecodable = 0
        """Objects that could not be decoded so far, for the metric."""

    @property
    def objects(self) -> Mapping[str, T]:
        """Key to object."""
        return self._objects

    def get(self, key: str) -> T | None:
        """The object of that key."""
        return self._objects.get(key)

    def replace(self, objects: list[Obj], resource_version: str) -> None:
        """Take a whole list: what is not in it is gone."""
        listed = {key_of(obj) for obj in objects}
        for key in [key for key in self._objects if key not in listed]:
            del self._objects[key]
        for obj in objects:
            self._take(obj)
        _log.info("%s: %d objects at version %s", self._kind, len(self._objects), resource_version)
        self.synced = True

    def apply(self, event: WatchEvent) -> None:
        """Take one event; bookmarks say nothing here."""
        match event.type:
            case WatchEventType.ADDED | WatchEventType.MODIFIED:
                self._take(event.object)
            case WatchEventType.DELETED:
                self._objects.pop(key_of(event.object), None)
            case WatchEventType.BOOKMARK:
                pass

    def _take(self, obj: Obj) -> None:
        try:
            decoded = self._decode(obj)
        except InvalidObject as error:
            self.undecodable += 1
            _log.warning("keeping the last good form, if any, of an unreadable object: %s", error)
            return
        self._objects[decoded.key] = decoded


class WebhookCaches:
    """All caches: the ``View`` that stamping and validation read."""

    def __init__(self) -> None:
        self.pools = ObjectStore("AdapterPool", pool_from)
        self.vpods = ObjectStore("VPod", vpod_from)
        self.namespaces = ObjectStore("Namespace", namespace_from)

    @property
    def sinks(
        self,
    ) -> Mapping[Resource, ObjectStore[AdapterPool] | ObjectStore[VPod] | ObjectStore[Namespace]]:
        """What to reflect, and where to."""
        return {ADAPTERPOOLS: self.pools, VPODS: self.vpods, NAMESPACES: self.namespaces}

    @property
    def synced(self) -> bool:
        """Whether every cache has had its first list."""
        return all(sink.synced for sink in self.sinks.values())

    def pool(self, key: str) -> AdapterPool | None:
        """The pool of that key."""
        return self.pools.get(key)

    def pools_of(self, stateful_set_key: str) -> Sequence[AdapterPool]:
        """The pools that name this StatefulSet, by key. Pools are few; this is asked when one is
        written.
        """
        found = [
            pool
            for pool in self.pools.objects.values()
            if pool.stateful_set_key == stateful_set_key
        ]
        return sorted(found, key=lambda pool: pool.key)

    def namespace(self, name: str) -> Namespace | None:
        """The namespace of that name."""
        return self.namespaces.get(name)

    def vpods_of(self, pool_key: str) -> int:
        """How many VPods name this pool and are not being deleted; one pass, asked when a pool is
        deleted.
        """
        return sum(
            vpod.pool == pool_key and not vpod.deleting for vpod in self.vpods.objects.values()
        )

    def heavier_vpods(self, pool_key: str, slots: int) -> int:
        """How many vpods of that pool have a vreplica that takes more than ``slots``; one pass,
        asked when a pool is written.
        """
        return sum(
            vpod.pool == pool_key and vpod.weight > slots for vpod in self.vpods.objects.values()
        )
