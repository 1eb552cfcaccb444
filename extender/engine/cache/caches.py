"""The assume caches of adapter pods and vpods: both rules of ``assume``, one over the other.

::

    watch ----add, update, delete, replace----> AssumeCache (after a write)
    reply of a successful write ----written---> AssumeCache
                                                   | is the store of
    decision, before its write ----assume-----> PassiveAssumeCache (before a write)
                                                   | on_change(old, new)
                                                   v
                                                 state

The *effective* object is what ``get``, ``list`` and handlers give: the assumed one while it was
made from the version that is stored, else the newest that the API server has said, be it by the
watch or by the reply to our write. So a write goes ``assume`` -> ``written`` (the reply's higher
version voids the assumption and takes its place) or ``assume`` -> ``restore``; and the watch echo
of a written object changes nothing.
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
    """What both caches share."""

    def __init__(self) -> None:
        self._stored: AssumeCache[T] = AssumeCache()
        self._effective: PassiveAssumeCache[T] = PassiveAssumeCache(self._stored)

    def __len__(self) -> int:
        return len(self._stored)

    def __contains__(self, key: object) -> bool:
        return key in self._stored

    # -- the watch ---------------------------------------------------------------------------------

    def add(self, obj: T) -> None:
        """ADDED; older than what is known, it changes nothing."""
        self._stored.add(obj)

    def update(self, obj: T) -> None:
        """MODIFIED; older than what is known, it changes nothing."""
        self._stored.update(obj)

    def confirm(self, key: str, uid: str, resource_version: str) -> bool:
        """ADDED or MODIFIED, as told apart by its version alone: whether it is the newest that is
        known, to the letter.

        Most events are: of each write of ours the answer has come before. Such an event confirms
        it, and is not to be decoded; nothing is done about any other.
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

    def delete(self, obj: T) -> None:
        """DELETED; the late one of a previous incarnation changes nothing."""
        self._stored.delete(obj)

    def replace(self, objects: Iterable[T], resource_version: str) -> None:
        """A new list, as of ``resource_version``: take its objects, and forget those that it does
        not have.

        What is missing in the list but stored at a newer version was written after the list was
        taken: it stays. Raises HistoryReplaced where the list has an older version of an object
        although it was taken after the newer one.
        """
        for _ in self.replacing(objects, resource_version):
            pass

    def replacing(self, objects: Iterable[T], resource_version: str) -> Iterator[None]:
        """``replace`` in slices of ``SLICE_OBJECTS``, between which others may run and our own
        writes may be taken.
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
        """etcd's ``--bump-revision`` makes a restored history begin above all versions of the old
        one: lists do not go back then.
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
        """Believe ``obj``, which we are about to write, made from the stored version.

        Raises NotFound, VersionConflict (the decision was made from an object that has changed
        since).
        """
        self._effective.assume(obj)

    def written(self, obj: T) -> bool:
        """Take the reply of a write, or a read; False where the watch is ahead of it or the object
        is gone by now.

        Another incarnation is left to the watch: it shows first what the last one was at its end,
        which that reply skips.
        """
        known = self.latest(obj.key)
        if known is not None and known.uid != obj.uid:
            return False
        try:
            self._stored.assume(obj)
        except (NotFound, VersionConflict):
            return False
        # A write that changed nothing has left the version as it was, and with it the assumption.
        self.restore(obj.key)
        return True

    def restore(self, key: str) -> None:
        """Give up what was assumed and not written. What ``written`` took is true, and stays."""
        assumed = self._effective.assumed(key)
        if assumed is not None:
            self._effective.restore(assumed)

    # -- reading -----------------------------------------------------------------------------------

    def get(self, key: str) -> T | None:
        """The effective object, None where there is none."""
        try:
            return self._effective.get(key)
        except NotFound:
            return None

    def latest(self, key: str) -> T | None:
        """The newest that the API server has said, by the watch or in reply to our write; no
        assumption.
        """
        try:
            return self._stored.get(key)
        except NotFound:
            return None

    def list(self) -> list[T]:
        """All effective objects, in no order."""
        return self._effective.list()

    def add_event_handler(self, on_change: Callable[[T | None, T | None], None]) -> None:
        """Call ``on_change(old, new)`` with effective objects, None for not there; at once for all
        there are.
        """
        self._effective.add_event_handler(_OnChange(on_change))


class AdapterPodAssumeCache(ObjectCache[AdapterPod]):
    """Adapter pods. A pod's slots are what the volume binder's PersistentVolume is."""


class VPodAssumeCache(ObjectCache[VPod]):
    """Vpods. A vpod is what the volume binder's PersistentVolumeClaim is."""


class _OnChange(Generic[T]):
    """One callable in the form of an event handler."""

    def __init__(self, on_change: Callable[[T | None, T | None], None]) -> None:
        self._on_change = on_change

    def on_add(self, obj: T, _initial_list: bool, /) -> None:
        self._on_change(None, obj)

    def on_update(self, old: T, new: T, /) -> None:
        self._on_change(old, new)

    def on_delete(self, obj: T, /) -> None:
        self._on_change(obj, None)
