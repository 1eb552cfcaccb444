"""The assume caches of adapter pods and vpods: a ``PassiveAssumeCache`` over an ``AssumeCache``.

::

    watch ----add, update, delete, replace----> AssumeCache (what the API server has sent)
    reply of a successful write ----written---> AssumeCache
                                                   | is the store of
    pod before its Binding --------assume-----> PassiveAssumeCache (adapter pods only)
                                                   | on_change(old, new)
                                                   v
                                                 state

``get``, ``list`` and handlers give the *effective* object. It is the assumed one if that was made
from the stored version. Else it is the newest that the API server has sent, by the watch or in the
reply to our write.

After ``assume``, call ``restore`` if the write failed, or ``written`` with the reply if it
succeeded. The reply has a higher version, so it takes the place of the assumed object. When the
watch shows that version later, nothing changes.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from extender.engine.cache.assume import AssumeCache, Versioned
from extender.engine.cache.passive_assume import PassiveAssumeCache
from extender.model.decode import SLICE_OBJECTS
from extender.model.errors import HistoryReplaced, NotFound, VersionConflict
from extender.model.objects import AdapterPod, VPod
from extender.model.resource_versions import parse_version

T = TypeVar("T", bound=Versioned)


class ObjectCache(Generic[T]):
    """The effective objects of one kind."""

    def __init__(self) -> None:
        self._stored: AssumeCache[T] = AssumeCache()
        self._effective: PassiveAssumeCache[T] = PassiveAssumeCache(self._stored)

    def __len__(self) -> int:
        return len(self._stored)

    def __contains__(self, key: object) -> bool:
        return key in self._stored

    # -- the watch ---------------------------------------------------------------------------------

    def add(self, obj: T) -> None:
        """An ADDED event. An object older than the known one changes nothing."""
        self._stored.add(obj)

    def update(self, obj: T) -> None:
        """A MODIFIED event. An object older than the known one changes nothing."""
        self._stored.update(obj)

    def confirm(self, key: str, uid: str, resource_version: str) -> bool:
        """Take an ADDED or MODIFIED event by its version alone. False, and no change, unless that
        is exactly the newest known version.

        Most events are of this kind, because the reply to our own write comes first. The event
        confirms the write, and need not be decoded.
        """
        latest = self.latest(key)
        if (
            latest is None
            or not uid
            or (latest.uid, latest.resource_version) != (uid, resource_version)
        ):
            return False
        self._stored.add(latest)
        return True

    def reread(self, obj: T) -> None:
        """The newest known version, read in another way. Raises NotFound, or VersionConflict if it
        is of another version.
        """
        self._stored.reread(obj)

    def delete(self, obj: T) -> None:
        """A DELETED event. A late one of a previous incarnation changes nothing."""
        self._stored.delete(obj)

    def replace(self, objects: Iterable[T], resource_version: str) -> None:
        """Take the objects of a list made at ``resource_version``, and forget all others.

        An object that the list lacks stays if its stored version is newer than the list. Raises
        HistoryReplaced if the list is newer than an object's stored version and still has an older
        version of it.
        """
        for _ in self.replacing(objects, resource_version):
            pass

    def replacing(self, objects: Iterable[T], resource_version: str) -> Iterator[None]:
        """``replace`` in slices of ``SLICE_OBJECTS``. In between, other tasks run and may take our
        own writes.
        """
        listed: set[str] = set()
        taken_at = parse_version(resource_version)
        for count, obj in enumerate(objects, 1):
            listed.add(obj.key)
            self._check_history(obj, taken_at)
            self._stored.add(obj)
            if count % SLICE_OBJECTS == 0:
                yield
        for obj in [obj for obj in self._stored.list() if obj.key not in listed]:
            version = parse_version(obj.resource_version)
            newer = taken_at is not None and version is not None and version > taken_at
            if not newer:
                self._stored.delete(obj)

    def _check_history(self, listed: T, taken_at: int | None) -> None:
        """Raise HistoryReplaced if a newer list has an older version of a known object. This does
        not find a restore with etcd's ``--bump-revision``, whose history begins above all old
        versions.
        """
        known = self.latest(listed.key)
        if known is None or known is listed or taken_at is None:
            return
        here, there = parse_version(known.resource_version), parse_version(listed.resource_version)
        if here is not None and there is not None and there < here <= taken_at:
            raise HistoryReplaced(
                f"{listed.key} was seen at version {here}, and a list of version {taken_at} has it "
                f"at {there}"
            )

    # -- our own writes ----------------------------------------------------------------------------

    def assume(self, obj: T) -> None:
        """Assume ``obj``, made from the stored version, which we are about to write.

        Raises NotFound, or VersionConflict if the object has changed since the decision.
        """
        self._effective.assume(obj)

    def written(self, obj: T) -> bool:
        """Take the reply to a write or a read. False if the watch is ahead of it or the object is
        gone.

        A reply about another incarnation is left to the watch, which first shows how the previous
        one ended.
        """
        known = self.latest(obj.key)
        if known is not None and known.uid != obj.uid:
            return False
        try:
            self._stored.assume(obj)
        except (NotFound, VersionConflict):
            return False
        # A write that changed nothing leaves the version as it was, and so the assumption.
        self.restore(obj.key)
        return True

    def restore(self, key: str) -> None:
        """Give up an assumption that was not written. What ``written`` took stays."""
        assumed = self._effective.assumed(key)
        if assumed is not None:
            self._effective.restore(assumed)

    # -- reading -----------------------------------------------------------------------------------

    def get(self, key: str) -> T | None:
        """The effective object, None if there is none."""
        try:
            return self._effective.get(key)
        except NotFound:
            return None

    def latest(self, key: str) -> T | None:
        """The newest object that the API server has sent, by the watch or in the reply to our
        write.
        """
        try:
            return self._stored.get(key)
        except NotFound:
            return None

    def list(self) -> list[T]:
        """All effective objects, in no order."""
        return self._effective.list()

    def add_event_handler(self, on_change: Callable[[T | None, T | None], None]) -> None:
        """Call ``on_change(old, new)`` for each change of an effective object (None: no object),
        and at once for all existing ones.
        """
        self._effective.add_event_handler(_OnChange(on_change))


class AdapterPodAssumeCache(ObjectCache[AdapterPod]):
    """Adapter pods. Their slots correspond to the volume binder's PersistentVolumes."""


class VPodAssumeCache(ObjectCache[VPod]):
    """Vpods. They correspond to the volume binder's PersistentVolumeClaims."""


class _OnChange(Generic[T]):
    """Makes an event handler of a callable."""

    def __init__(self, on_change: Callable[[T | None, T | None], None]) -> None:
        self._on_change = on_change

    def on_add(self, obj: T, _initial_list: bool, /) -> None:
        self._on_change(None, obj)

    def on_update(self, old: T, new: T, /) -> None:
        self._on_change(old, new)

    def on_delete(self, obj: T, /) -> None:
        self._on_change(obj, None)
