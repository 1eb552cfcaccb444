"""Objects by version: what etcd and the watch cache are to the API server.

Every stored object is an ``Entry``: its bytes, decoded anew for each answer to a request, whose
reader may do with it what it likes; and the same decoded once, which the server reads and all
watches are told. Nobody may change that one, as no reader of an informer may
(``changed_by_readers`` finds who does). A write replaces the entry and appends a ``Change`` to the
collection's history, a ring of ``history_events_max`` changes. Watches read that ring with a cursor
of their own, so a slow reader costs nothing but, once overtaken, its watch (410 Expired), as with
the real watch cache.

One version counter serves all collections. A version in the past is rebuilt by undoing the changes
since (each holds the entry before and after), which is how the pages of one list agree although
writes go on between them.
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
    """One object at one version. ``obj`` is shared by the server and all watches: read it, never
    change it.
    """

    key: Key
    version: int
    raw: bytes
    obj: Obj

    def copy(self) -> Obj:
        """The object, decoded anew: the caller's own."""
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
    """A deep copy that shares nothing with the caller and holds only what JSON can. Raises
    TypeError otherwise.
    """
    decoded: Obj = orjson.loads(orjson.dumps(obj))
    return decoded


def identical(left: object, right: object) -> bool:
    """Equal as JSON text, so that ``true`` is not 1: what makes a write a no-op."""
    return left == right and orjson.dumps(left, option=orjson.OPT_SORT_KEYS) == orjson.dumps(
        right, option=orjson.OPT_SORT_KEYS
    )


class Collection:
    """All objects of one kind and their recent history."""

    def __init__(self, kind: tuple[str, str], history_events_max: int) -> None:
        self.kind = kind
        self.entries: dict[Key, Entry] = {}
        self.horizon = 0
        """A watch from before this version has missed changes that are gone."""
        self.withdrawals = 0
        """How often the kind ceased to be served; each ends the watches of that time."""
        self._ring: list[Change | None] = [None] * history_events_max
        self._first = 0
        self._next = 0
        self._ordered: list[Key] | None = None
        self._waiters: list[asyncio.Future[None]] = []

    def ordered(self) -> list[Key]:
        """Keys in the order of lists, that of etcd: by namespace and name."""
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
        """A future that is done at the next change."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        return waiter

    def forget(self, waiter: asyncio.Future[None]) -> None:
        """A watch ended while waiting."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)

    def compact(self, version: int) -> None:
        """Forget all history up to now, as etcd's compaction; ``version`` is the store's."""
        self._first = self._next
        self.horizon = version
        self.wake()

    def restore(self, entries: dict[Key, Entry], version: int) -> None:
        """Have these, without a history; watches end."""
        self.entries, self._ordered = entries, None
        self.compact(version)
        self.withdraw()

    def withdraw(self) -> None:
        """The kind is served no longer: watches tell what they have, and end."""
        self.withdrawals += 1
        self.wake()

    def cursor_after(self, version: int) -> int | None:
        """Position of the first change later than ``version``; None when such changes are gone."""
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
        """The change at a cursor; None when there is none yet. Raises LookupError when it was
        overwritten.
        """
        if cursor < self._first:
            raise LookupError(cursor)
        return self._at(cursor) if cursor < self._next else None

    def _at(self, cursor: int) -> Change:
        change = self._ring[cursor % len(self._ring)]
        if change is None:  # an index between first and next was always written
            raise LookupError(cursor)
        return change

    def entries_at(self, version: int) -> dict[Key, Entry] | None:
        """The collection as it was at ``version``; None when the history no longer reaches back so
        far.
        """
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
    """All that is stored at a version, as ``etcdctl snapshot save`` has it."""

    version: int
    entries: Mapping[tuple[str, str], Mapping[Key, Entry]]


class Store:
    """Every collection, under one version counter."""

    def __init__(self, history_events_max: int) -> None:
        self.version = 1
        self._history_events_max = history_events_max
        self._collections: dict[tuple[str, str], Collection] = {}
        self.subscribers: list[Callable[[tuple[str, str], Change], None]] = []
        """Called with (group, plural) and each change, in the very write: they may only take note.
        """

    def collection(self, group: str, plural: str) -> Collection:
        """The collection of a resource, made on first use. A new one has no history before now."""
        key = (group, plural)
        found = self._collections.get(key)
        if found is None:
            found = self._collections[key] = Collection(key, self._history_events_max)
        return found

    def collections(self) -> Iterator[tuple[tuple[str, str], Collection]]:
        """Every collection with its (group, plural), in a fixed order."""
        yield from sorted(self._collections.items(), key=lambda item: item[0])

    def put(self, collection: Collection, key: Key, obj: Obj, before: Entry | None) -> Entry:
        """Store ``obj``, which from now on belongs to the store, as the next version."""
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        entry = Entry(key, self.version, orjson.dumps(obj), obj)
        self._record(collection, Change(self.version, before, entry))
        return entry

    def remove(self, collection: Collection, before: Entry) -> Entry:
        """Remove an entry; the reply is its last state at the version of the removal, as watches
        report it.
        """
        self.version += 1
        self._record(collection, Change(self.version, before, None))
        obj = at_version(before, self.version)
        return Entry(before.key, self.version, orjson.dumps(obj), obj)

    def _record(self, collection: Collection, change: Change) -> None:
        collection.record(change)
        for subscriber in self.subscribers:
            subscriber(collection.kind, change)

    def changed_by_readers(self) -> list[Key]:
        """Keys of the objects that are not what was stored any more: a reader of a watch has
        changed its event.
        """
        return [
            key
            for _, collection in self.collections()
            for key, entry in collection.entries.items()
            if orjson.dumps(entry.obj) != entry.raw
        ]

    def snapshot(self) -> Snapshot:
        """A backup of now."""
        return Snapshot(
            self.version, {kind: dict(c.entries) for kind, c in self._collections.items()}
        )

    def restore(self, snapshot: Snapshot, *, bump: int = 0) -> None:
        """Go back to a backup, as ``etcdutl snapshot restore`` and a restart of all API servers do.

        ``bump``: by how much versions go on above the backup's (``--bump-revision
        --mark-compacted``). With 0 they are given out a second time, for other changes. Subscribers
        are told nothing.
        """
        self.version = snapshot.version + bump
        for kind, collection in self._collections.items():
            collection.restore(dict(snapshot.entries.get(kind, {})), self.version)

    def compact(self) -> None:
        """Forget all history: every watch and continue token from before now gets 410."""
        for _, collection in self.collections():
            collection.compact(self.version)


def at_version(entry: Entry, version: int) -> Obj:
    """The entry's object with another resourceVersion: what DELETED events carry."""
    return {**entry.obj, "metadata": {**entry.obj["metadata"], "resourceVersion": str(version)}}
