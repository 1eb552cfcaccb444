"""Objects by version. This module takes the place of etcd and the API server's watch cache.

Every stored object is an ``Entry``, which holds the object's bytes and the decoded object. Each
reply to a request is decoded anew from the bytes, so its reader may change it. The server and all
watches share the decoded object. Nobody may change that one, as no reader of an informer may
(``changed_by_readers`` finds violations).

A write replaces the entry and appends a ``Change`` to the collection's history, a ring of
``history_events_max`` changes. Each watch reads the ring with its own cursor. A slow reader costs
nothing; once it is overtaken, its watch ends (410 Expired), as with the real watch cache.

One version counter serves all collections. A past version is rebuilt by undoing later changes, each
of which holds the entry before and after. So the pages of one list are consistent although writes
go on between them.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import orjson

from extender.kube.api import Obj

Key = tuple[str, str]
"""Namespace ("" for cluster-scoped objects) and name."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One object at one version. The server and all watches share ``obj``: never change it."""

    key: Key
    version: int
    raw: bytes
    obj: Obj

    def copy(self) -> Obj:
        """Return the object decoded anew, which the caller may change."""
        decoded: Obj = orjson.loads(self.raw)
        return decoded

    @property
    def uid(self) -> str:
        """metadata.uid."""
        return str(self.obj["metadata"]["uid"])


@dataclass(frozen=True, slots=True)
class Change:
    """One write: ``before`` is None for a create, ``after`` for a delete."""

    version: int
    before: Entry | None
    after: Entry | None


def own(obj: Obj) -> Obj:
    """Return a deep copy. Raises TypeError if JSON cannot represent the object."""
    decoded: Obj = orjson.loads(orjson.dumps(obj))
    return decoded


def identical(left: object, right: object) -> bool:
    """Return whether two values are equal as JSON text, so that ``true`` is not 1. A write of an
    identical object is a no-op.
    """
    return left == right and orjson.dumps(left, option=orjson.OPT_SORT_KEYS) == orjson.dumps(
        right, option=orjson.OPT_SORT_KEYS
    )


class Collection:
    """All objects of one kind and their recent history."""

    def __init__(self, kind: tuple[str, str], history_events_max: int) -> None:
        self.kind = kind
        self.entries: dict[Key, Entry] = {}
        self.horizon = 0
        """A watch from before this version would miss changes that are dropped."""
        self.withdrawals = 0
        """How often the kind ceased to be served. Each time all its watches end."""
        self._ring: list[Change | None] = [None] * history_events_max
        self._first = 0
        self._next = 0
        self._ordered: list[Key] | None = None
        self._waiters: list[asyncio.Future[None]] = []

    def ordered(self) -> list[Key]:
        """Return the keys in the order of lists, which is etcd's: by namespace and name."""
        if self._ordered is None:
            self._ordered = sorted(self.entries)
        return self._ordered

    def record(self, change: Change) -> None:
        """Apply one change and wake the watches."""
        if change.after is not None:
            if change.before is None:
                self._ordered = None
            self.entries[change.after.key] = change.after
        elif change.before is not None:
            self._ordered = None
            del self.entries[change.before.key]
        slot = self._next % len(self._ring)
        if self._next - self._first == len(self._ring):
            overwritten = self._ring[slot]
            self._first += 1
            self.horizon = overwritten.version if overwritten else self.horizon
        self._ring[slot] = change
        self._next += 1
        self.wake()

    def wake(self) -> None:
        """Let every waiting watch look again."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def waiter(self) -> asyncio.Future[None]:
        """Return a future that is done at the next change."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        return waiter

    def forget(self, waiter: asyncio.Future[None]) -> None:
        """Drop the future of a watch that ended while waiting."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)

    def compact(self, version: int) -> None:
        """Drop all history, as etcd's compaction does. ``version`` is the store's."""
        self._first = self._next
        self.horizon = version
        self.wake()

    def restore(self, entries: dict[Key, Entry], version: int) -> None:
        """Replace all entries and drop the history. All watches end."""
        self.entries, self._ordered = entries, None
        self.compact(version)
        self.withdraw()

    def withdraw(self) -> None:
        """End all watches once they have reported everything: the kind is no longer served."""
        self.withdrawals += 1
        self.wake()

    def cursor_after(self, version: int) -> int | None:
        """Return the position of the first change after ``version``; None if it is dropped."""
        if version < self.horizon:
            return None
        low, high = self._first, self._next
        while low < high:
            middle = (low + high) // 2
            if self._at(middle).version <= version:
                low = middle + 1
            else:
                high = middle
        return low

    def change_at(self, cursor: int) -> Change | None:
        """Return the change at a cursor, None if none yet. Raises LookupError if overwritten."""
        if cursor < self._first:
            raise LookupError(cursor)
        return self._at(cursor) if cursor < self._next else None

    def _at(self, cursor: int) -> Change:
        change = self._ring[cursor % len(self._ring)]
        # Every index between first and next has been written.
        if change is None:
            raise LookupError(cursor)
        return change

    def entries_at(self, version: int) -> dict[Key, Entry] | None:
        """Return the collection at ``version``; None if the history is too short."""
        start = self.cursor_after(version)
        if start is None:
            return None
        if start == self._next:
            return self.entries
        past = dict(self.entries)
        for cursor in range(self._next - 1, start - 1, -1):
            change = self._at(cursor)
            if change.before is not None:
                past[change.before.key] = change.before
            elif change.after is not None:
                past.pop(change.after.key, None)
        return past


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that is stored at a version, as in ``etcdctl snapshot save``."""

    version: int
    entries: Mapping[tuple[str, str], Mapping[Key, Entry]]


class Store:
    """All collections, under one version counter."""

    def __init__(self, history_events_max: int) -> None:
        self.version = 1
        self._history_events_max = history_events_max
        self._collections: dict[tuple[str, str], Collection] = {}
        self.subscribers: list[Callable[[tuple[str, str], Change], None]] = []
        """Called with (group, plural) and change inside each write. They may only record it."""

    def collection(self, group: str, plural: str) -> Collection:
        """Return the collection of a resource, made on first use."""
        key = (group, plural)
        found = self._collections.get(key)
        if found is None:
            found = self._collections[key] = Collection(key, self._history_events_max)
        return found

    def collections(self) -> Iterator[tuple[tuple[str, str], Collection]]:
        """Iterate over the collections with their (group, plural), in a fixed order."""
        yield from sorted(self._collections.items(), key=lambda item: item[0])

    def put(self, collection: Collection, key: Key, obj: Obj, before: Entry | None) -> Entry:
        """Store ``obj`` as the next version. It then belongs to the store."""
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        entry = Entry(key, self.version, orjson.dumps(obj), obj)
        self._record(collection, Change(self.version, before, entry))
        return entry

    def remove(self, collection: Collection, before: Entry) -> Entry:
        """Remove an entry. Return its last state at the version of the removal."""
        self.version += 1
        self._record(collection, Change(self.version, before, None))
        obj = at_version(before, self.version)
        return Entry(before.key, self.version, orjson.dumps(obj), obj)

    def _record(self, collection: Collection, change: Change) -> None:
        collection.record(change)
        for subscriber in self.subscribers:
            subscriber(collection.kind, change)

    def changed_by_readers(self) -> list[Key]:
        """Return the keys of objects that differ from their stored bytes: a reader of a watch has
        changed its event.
        """
        return [
            key
            for _, collection in self.collections()
            for key, entry in collection.entries.items()
            if orjson.dumps(entry.obj) != entry.raw
        ]

    def snapshot(self) -> Snapshot:
        """Return a backup."""
        return Snapshot(
            self.version, {kind: dict(c.entries) for kind, c in self._collections.items()}
        )

    def restore(self, snapshot: Snapshot, *, bump: int = 0) -> None:
        """Restore a backup, as ``etcdutl snapshot restore`` and a restart of all API servers do.

        Versions continue ``bump`` above the backup's (``--bump-revision --mark-compacted``). With 0
        they are given out a second time, for other changes. Subscribers are not called.
        """
        self.version = snapshot.version + bump
        for kind, collection in self._collections.items():
            collection.restore(dict(snapshot.entries.get(kind, {})), self.version)

    def compact(self) -> None:
        """Drop all history: every older watch and continue token gets 410."""
        for _, collection in self.collections():
            collection.compact(self.version)


def at_version(entry: Entry, version: int) -> Obj:
    """Return the entry's object with another resourceVersion, as DELETED events carry it."""
    return {**entry.obj, "metadata": {**entry.obj["metadata"], "resourceVersion": str(version)}}
