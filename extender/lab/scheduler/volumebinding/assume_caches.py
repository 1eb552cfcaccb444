"""The assume caches of PersistentVolumes and claims: what the informers have seen, with what the
binder is about to write on top.

They are the engine's ``PassiveAssumeCache``, which mirrors this very system. An assumption holds
until the object changes: the watch wins.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from extender.engine.cache.assume import EventHandler
from extender.engine.cache.passive_assume import PassiveAssumeCache
from extender.kube.api import Obj
from extender.model.errors import NotFound
from extender.model.reading import key_of, mapping, text


@dataclass(frozen=True, slots=True)
class _Versioned:
    """One version of an object, as the caches need it."""

    obj: Obj
    key: str
    resource_version: str
    uid: str


def _versioned(obj: Obj) -> _Versioned:
    metadata = mapping(obj, "metadata")
    return _Versioned(obj, key_of(obj), text(metadata, "resourceVersion"), text(metadata, "uid"))


class _Seen:
    """The informer's objects as the store under a passive assume cache."""

    def __init__(self, objects: Mapping[str, Obj]) -> None:
        self._objects = objects
        self._handlers: list[EventHandler[_Versioned]] = []

    def get(self, key: str) -> _Versioned:
        """Return the newest version. Raises NotFound."""
        if key not in self._objects:
            raise NotFound(key)
        return _versioned(self._objects[key])

    def list(self, _index: str = "", _value: str = "") -> list[_Versioned]:
        """Return all objects. There is no index."""
        return [_versioned(obj) for obj in self._objects.values()]

    def add_event_handler(self, handler: EventHandler[_Versioned]) -> None:
        """Tell ``handler`` of changes from now on."""
        self._handlers.append(handler)

    def changed(self, obj: Obj) -> None:
        """The informer has seen the object change or go."""
        for handler in self._handlers:
            handler.on_delete(_versioned(obj))


class ObjectAssumeCache:
    """Objects of one kind by key: ``name``, or ``namespace/name``. ``seen``: as the informer keeps
    them.
    """

    def __init__(self, seen: Mapping[str, Obj]) -> None:
        self._seen = _Seen(seen)
        self._assumed: PassiveAssumeCache[_Versioned] = PassiveAssumeCache(self._seen)

    def changed(self, obj: Obj) -> None:
        """The informer has seen another version, or that the object is gone: what was assumed of it
        ends.
        """
        self._seen.changed(obj)

    def assume(self, obj: Obj) -> None:
        """Assume an object that was made from the newest version. Raises NotFound,
        VersionConflict.
        """
        self._assumed.assume(_versioned(obj))

    def restore(self, obj: Obj) -> None:
        """Give up the assumption that was made at the object's version, if it holds."""
        self._assumed.restore(_versioned(obj))

    def get(self, key: str) -> Obj | None:
        """Return the assumed object, else the newest one."""
        try:
            return self._assumed.get(key).obj
        except NotFound:
            return None

    def get_api(self, key: str) -> Obj | None:
        """Return the newest object that the API server has sent."""
        try:
            return self._assumed.get_api(key).obj
        except NotFound:
            return None

    def list(self) -> list[Obj]:
        """Return all objects, assumed ones as they are assumed."""
        return [one.obj for one in self._assumed.list()]
