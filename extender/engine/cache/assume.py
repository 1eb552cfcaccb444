"""Assume caches: what the API server has sent, with our assumptions on top.

Kubernetes has two kinds with two rules. So has this package, and ``caches`` puts one on the other:

- ``AssumeCache`` (k8s.io/kubernetes/pkg/scheduler/util/assumecache) is for the time *after* a
  write. For each key it has the latest object and the one that the API server last sent. ``assume``
  takes an object that is not older than the latest. A watch event that is older than the latest
  does not change the latest. One of the same version confirms an assumed object, and takes its
  place.
- ``passive_assume.PassiveAssumeCache`` (from volumebinding) is for the time *before* a write. It
  lies over a store that something else feeds.

Handlers get events in the order of the changes, one at a time: a change reaches all handlers before
the next one. A call that changes the cache returns when its events are delivered. A call from
within a handler returns at once, and its events follow those that are queued already. If a handler
raises, that event is lost for it, and the caller gets the exception. The events behind it come with
the next change.

Not thread-safe: everything runs on the event loop, and nothing here awaits.

Deliberate differences from upstream:

- A delete of an unknown key tells nobody. Upstream sends add(nil).
- A handler always gets the initial list, even of an indexed cache.
- An event that is not newer than the assumed object still becomes what ``restore`` goes back to. An
  event of the same version confirms the assumption.
- A delete is ignored if its object is older than the stored one and has another UID. It is the late
  end of a previous incarnation.
"""

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, Generic, Protocol, TypeVar

from extender.model.errors import AssumeError, NotFound, VersionConflict, WrongType
from extender.model.resource_versions import parse_version

EVENTS_MAX: Final = 1_000_000
"""Events delivered within one call. Only handlers that cause events without end exceed it."""


class Versioned(Protocol):
    """What a cached object must have."""

    @property
    def key(self) -> str:
        """``namespace/name``."""
        ...

    @property
    def resource_version(self) -> str:
        """metadata.resourceVersion."""
        ...

    @property
    def uid(self) -> str:
        """metadata.uid, "" where unknown."""
        ...


T = TypeVar("T", bound=Versioned)
T_contra = TypeVar("T_contra", contravariant=True)

Indexes = Mapping[str, Callable[[T], str]]
"""Index name -> the value under which an object is listed in it."""


class EventHandler(Protocol[T_contra]):
    """A receiver of changes. Called synchronously; may read and change the cache."""

    def on_add(self, obj: T_contra, initial_list: bool, /) -> None:
        """An object exists. ``initial_list``: it was there before this handler was added."""
        ...

    def on_update(self, old: T_contra, new: T_contra, /) -> None:
        """An object has changed. ``old`` is what this handler was last told."""
        ...

    def on_delete(self, obj: T_contra, /) -> None:
        """An object is gone. ``obj`` is what this handler was last told."""
        ...


class Store(Protocol[T]):
    """The store under a passive assume cache: an informer's store, or an ``AssumeCache``."""

    def get(self, key: str) -> T:
        """The stored object. Raises NotFound."""
        ...

    def list(self, index: str = "", value: str = "") -> list[T]:
        """All stored objects, or those under ``value`` in the index."""
        ...

    def add_event_handler(self, handler: EventHandler[T]) -> None:
        """Tell ``handler`` of all objects, and of every change from now on."""
        ...


class Notifier(Generic[T]):
    """Delivers events in order, one at a time, even if calls are nested."""

    def __init__(self) -> None:
        self._handlers: list[EventHandler[T]] = []
        self._events: deque[Callable[[], None]] = deque()
        self._delivering = False

    def add_handler(self, handler: EventHandler[T], initial: list[T]) -> None:
        """Register ``handler``, and tell it of the existing objects."""
        self._handlers.append(handler)
        for obj in initial:
            self._events.append(partial(handler.on_add, obj, True))
        self.deliver()

    def changed(self, old: T | None, new: T | None) -> None:
        """Queue the change from ``old`` to ``new`` (None: no object) for all handlers, and deliver
        it.
        """
        for handler in self._handlers:
            if old is not None and new is not None:
                self._events.append(partial(handler.on_update, old, new))
            elif new is not None:
                self._events.append(partial(handler.on_add, new, False))
            elif old is not None:
                self._events.append(partial(handler.on_delete, old))
        self.deliver()

    def deliver(self) -> None:
        """Deliver the queued events, unless a call further up is doing so."""
        if self._delivering:
            return
        self._delivering = True
        delivered = 0
        try:
            while self._events:
                if delivered >= EVENTS_MAX:
                    raise AssumeError(
                        f"a handler causes events without end: {delivered} so far", ""
                    )
                delivered += 1
                self._events.popleft()()
        finally:
            self._delivering = False


class AssumeCache(Generic[T]):
    """Objects by key: the latest form, and what the API server last sent. ``indexes``: of latest
    forms.
    """

    def __init__(self, indexes: Indexes[T] = MappingProxyType({})) -> None:
        self._latest: dict[str, T] = {}
        self._api: dict[str, T] = {}
        self._indexes = {name: _Index(value_of) for name, value_of in indexes.items()}
        self._notifier: Notifier[T] = Notifier()

    def __len__(self) -> int:
        return len(self._latest)

    def __contains__(self, key: object) -> bool:
        return key in self._latest

    # -- what the watch says -----------------------------------------------------------------------

    def add(self, obj: T) -> None:
        """A watch event: the object is new or has changed. Anything that is no object
        is ignored.
        """
        if not is_object(obj):
            return
        key = obj.key
        latest = self._latest.get(key)
        if latest is None:
            self._set(key, obj, obj)
            return
        offered, stored = (
            parse_version(obj.resource_version),
            parse_version(latest.resource_version),
        )
        if offered is None or stored is None:
            return
        if offered > stored:
            self._set(key, obj, obj)
        elif self._is_newer_than_api(key, offered):
            # Our own write is ahead of the watch. An event of the same version confirms it.
            self._set(key, obj if offered == stored else latest, obj)

    def update(self, obj: T) -> None:
        """The same as ``add``: the cache looks at versions, not at the kind of event."""
        self.add(obj)

    def delete(self, obj: T) -> None:
        """A watch event: the object is gone. Its version does not matter, with one exception: the
        late end of a previous incarnation is ignored. Its object is older than the stored one, and
        both have UIDs, which differ.
        """
        if not is_object(obj):
            return
        latest = self._latest.get(obj.key)
        if latest is None or _is_previous_incarnation(obj, latest):
            return
        self._remove(obj.key)

    def _is_newer_than_api(self, key: str, offered: int) -> bool:
        known = parse_version(self._api[key].resource_version)
        return known is not None and offered > known

    # -- what we know ahead of the watch -----------------------------------------------------------

    def assume(self, obj: T) -> None:
        """Make ``obj`` the latest form. Raises WrongType, NotFound, or VersionConflict if its
        version is older or unreadable.
        """
        if not is_object(obj):
            raise WrongType(f"not an object with key and version but {type(obj).__name__}", "")
        key = obj.key
        latest = self.get(key)
        offered, stored = (
            parse_version(obj.resource_version),
            parse_version(latest.resource_version),
        )
        if offered is None or stored is None or offered < stored:
            raise VersionConflict(key, latest.resource_version, obj.resource_version)
        self._set(key, obj, self._api[key])

    def reread(self, obj: T) -> None:
        """The latest form, read in another way from what the API server has sent: one event.
        Raises NotFound, or VersionConflict if it is of another version.
        """
        latest = self.get(obj.key)
        if obj.resource_version != latest.resource_version:
            raise VersionConflict(obj.key, latest.resource_version, obj.resource_version)
        self._set(obj.key, obj, obj)

    def restore(self, key: str) -> None:
        """Go back to what the API server last sent. An unknown key changes nothing."""
        if key in self._latest:
            self._set(key, self._api[key], self._api[key])

    # -- reading -----------------------------------------------------------------------------------

    def get(self, key: str) -> T:
        """The latest form. Raises NotFound."""
        try:
            return self._latest[key]
        except KeyError:
            raise NotFound(key) from None

    def get_api(self, key: str) -> T:
        """What the API server last sent. Raises NotFound."""
        try:
            return self._api[key]
        except KeyError:
            raise NotFound(key) from None

    def list(self, index: str = "", value: str = "") -> list[T]:
        """The latest forms of all objects, or of those under ``value`` in ``index``, in
        no order.
        """
        if not index:
            return [*self._latest.values()]
        return [self._latest[key] for key in self._indexes[index].keys(value)]

    def add_event_handler(self, handler: EventHandler[T]) -> None:
        """Tell ``handler`` of all existing objects, and of every change of a latest form."""
        self._notifier.add_handler(handler, [*self._latest.values()])

    # -- the one place where pointers change -------------------------------------------------------

    def _set(self, key: str, latest: T, api: T) -> None:
        old = self._latest.get(key)
        self._latest[key] = latest
        self._api[key] = api
        if old is latest:
            return
        for index in self._indexes.values():
            index.put(key, latest)
        self._notifier.changed(old, latest)

    def _remove(self, key: str) -> None:
        latest = self._latest.pop(key)
        del self._api[key]
        for index in self._indexes.values():
            index.remove(key)
        self._notifier.changed(latest, None)


class _Index(Generic[T]):
    """Keys by the value that ``value_of`` gives for their object, in order of arrival."""

    def __init__(self, value_of: Callable[[T], str]) -> None:
        self._value_of = value_of
        self._value_by_key: dict[str, str] = {}
        self._keys_by_value: dict[str, dict[str, None]] = {}

    def keys(self, value: str) -> list[str]:
        return [*self._keys_by_value.get(value, ())]

    def put(self, key: str, obj: T) -> None:
        value = self._value_of(obj)
        if self._value_by_key.get(key) != value:
            self.remove(key)
            self._value_by_key[key] = value
            self._keys_by_value.setdefault(value, {})[key] = None

    def remove(self, key: str) -> None:
        value = self._value_by_key.pop(key, None)
        if value is None:
            return
        keys = self._keys_by_value[value]
        del keys[key]
        if not keys:
            del self._keys_by_value[value]


def is_object(obj: object) -> bool:
    """Whether ``obj`` has a key and a resource version, so that it can be cached."""
    return isinstance(getattr(obj, "key", None), str) and isinstance(
        getattr(obj, "resource_version", None), str
    )


def _is_previous_incarnation(gone: Versioned, stored: Versioned) -> bool:
    if not gone.uid or not stored.uid or gone.uid == stored.uid:
        return False
    version, stored_version = (
        parse_version(gone.resource_version),
        parse_version(stored.resource_version),
    )
    return version is not None and stored_version is not None and version < stored_version
