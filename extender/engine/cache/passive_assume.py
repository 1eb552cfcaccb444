"""``PassiveAssumeCache``: assumptions that precede a write, over a store that something else feeds
(from kube-scheduler's volumebinding).

``assume`` takes an object only at exactly the stored version. The assumption is void once another
version is stored or the object is gone: the watch wins. Versions are compared for equality only.
The module ``assume`` says what holds for both kinds of assume cache.
"""

from collections.abc import Callable
from typing import Generic

from extender.engine.cache.assume import EventHandler, Notifier, Store, T, is_object
from extender.model.errors import NotFound, VersionConflict, WrongType


class PassiveAssumeCache(Generic[T]):
    """Assumptions over a ``Store``. An index lists an object by its stored form, whatever is
    assumed.
    """

    def __init__(self, store: Store[T]) -> None:
        self._store = store
        self._assumed: dict[str, T] = {}
        self._told: dict[str, T] = {}
        """Key -> what handlers were last told. So they see an unbroken chain of old and new, even
        if the store changes while they are being told of an earlier change.
        """
        self._notifier: Notifier[T] = Notifier()
        store.add_event_handler(_Reconcile(self._reconcile))

    def assume(self, obj: T) -> None:
        """Assume ``obj``, made from the stored version. Raises WrongType, NotFound,
        VersionConflict.
        """
        if not is_object(obj):
            raise WrongType(f"not an object with key and version but {type(obj).__name__}", "")
        stored = self._store.get(obj.key)
        if stored.resource_version != obj.resource_version:
            raise VersionConflict(obj.key, stored.resource_version, obj.resource_version)
        self._assumed[obj.key] = obj
        self._reconcile(obj.key)

    def restore(self, obj: T) -> None:
        """Give up the assumption made at ``obj``'s version. One made at another version stays."""
        assumed = self._assumed.get(obj.key)
        if assumed is not None and assumed.resource_version == obj.resource_version:
            del self._assumed[obj.key]
            self._reconcile(obj.key)

    def assumed(self, key: str) -> T | None:
        """The assumed object, while the assumption holds."""
        assumed = self._assumed.get(key)
        if assumed is None or self._effective(key) is not assumed:
            return None
        return assumed

    def get(self, key: str) -> T:
        """The assumed object if it is at the stored version, else the stored one.
        Raises NotFound.
        """
        return self._over(self._store.get(key))

    def get_api(self, key: str) -> T:
        """The stored object. Raises NotFound."""
        return self._store.get(key)

    def list(self, index: str = "", value: str = "") -> list[T]:
        """All objects as ``get`` gives them, or those whose stored form is under ``value`` in
        ``index``.
        """
        return [self._over(stored) for stored in self._store.list(index, value)]

    def add_event_handler(self, handler: EventHandler[T]) -> None:
        """Tell ``handler`` of all existing objects, and of every change of what ``get`` gives."""
        self._notifier.add_handler(handler, [*self._told.values()])

    def _over(self, stored: T) -> T:
        assumed = self._assumed.get(stored.key)
        if assumed is None or assumed.resource_version != stored.resource_version:
            return stored
        return assumed

    def _effective(self, key: str) -> T | None:
        try:
            return self.get(key)
        except NotFound:
            return None

    def _reconcile(self, key: str) -> None:
        """Drop the assumption for ``key`` if it is void. Tell handlers if ``get`` gives another
        object.
        """
        old, new = self._told.get(key), self._effective(key)
        if new is not self._assumed.get(key):
            self._assumed.pop(key, None)
        if old is new:
            return
        if new is None:
            del self._told[key]
        else:
            self._told[key] = new
        self._notifier.changed(old, new)


class _Reconcile(Generic[T]):
    """Passes on the keys of the store's events."""

    def __init__(self, reconcile: Callable[[str], None]) -> None:
        self._reconcile = reconcile

    def on_add(self, obj: T, _initial_list: bool, /) -> None:
        self._reconcile(obj.key)

    def on_update(self, _old: T, new: T, /) -> None:
        self._reconcile(new.key)

    def on_delete(self, obj: T, /) -> None:
        self._reconcile(obj.key)
