"""``ForeignSources``: keeps objects of foreign kinds in the caches as vpods, while a pool declares
their kind.

::

    pools, namespaces --declare, select--> ForeignSources --start, stop--> KindWatch (one a kind)
                                               |                               | raw objects
                                               v                               v
                      VPodAssumeCache <-- ForeignKind: translated, given to the pool that they
                                                       belong to

Pools and namespaces also decide which pool an object belongs to. So each object is kept translated,
and is assigned again when they change. A kind has one watch, however many pools declare it. When
the watch starts, the first of these pools by key decides the version; a pool that comes before it
later does not change that.

**An object that is merely not seen is not taken for gone.** While a kind cannot be listed, its
vpods stay as they are known. A key that only ledgers know is released only while
``PoolState.watched_sources`` has its source, that is, while the kind's list is complete. When a
pool ceases to declare a kind, its vpods leave the pool but their shares stay. Their statuses still
publish them, and whoever places these vpods next decides when that ends (``is_caller_kept``).
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from extender.kube.api import Api, Invalid, Obj, Resource
from extender.kube.events import ObjectReference
from extender.kube.sources import NOT_LISTED, KindWatch, Problem
from extender.model.foreign_kinds import Claimant
from extender.model.objects import AdapterPool, Namespace, Source, VPod
from extender.model.resource_versions import parse_version
from extender.service.watching.caches import Caches
from extender.service.watching.foreign_kind import ForeignKind

KINDS_MAX: Final = 64
"""Foreign kinds watched at once, over all pools."""
CATCH_UP_TIMEOUT_S: Final = 5.0
"""How long a new leader waits for a foreign kind. A kind that is not served must not keep the
others from being placed.
"""
PERIOD_S: Final = 1.0
"""How often to check whether lists are complete."""
SOURCE_UNAVAILABLE: Final = "SourceUnavailable"
SOURCE_CONFLICT: Final = "SourceConflict"
PoolCondition = tuple[str, bool, str, str]
"""(type, whether it holds, reason, message) of an AdapterPool's condition."""


@dataclass(frozen=True, slots=True)
class StatusWrite:
    """A merge patch of ``resource``'s status, and a decoder for its reply. ``refused`` is called if
    the API server refuses it as invalid.
    """

    resource: Resource
    patch: Obj
    decode: Callable[[Obj], VPod]
    refused: Callable[[Invalid], None] = lambda _error: None


@dataclass(frozen=True, slots=True)
class StatusPlace:
    """Where the status of an object is written: its resource, how its pool declares the kind, and a
    decoder for the reply.
    """

    resource: Resource
    source: Source
    decode: Callable[[Obj], VPod]


@dataclass(slots=True)
class _Running:
    kind: ForeignKind
    watch: KindWatch
    task: "asyncio.Task[None]"
    first: tuple[str, Source]
    """The pool that decides the version, and its source."""


class ForeignSources:
    """All foreign kinds. ``run`` it in one task, once pools and namespaces are listed."""

    def __init__(self, api: Api, caches: Caches, *, rng: random.Random) -> None:
        self._api = api
        self._caches = caches
        self._rng = rng
        self._running: dict[str, _Running] = {}
        self._declared: dict[str, list[tuple[AdapterPool, Source]]] = {}
        """Source -> the pools that declare it, by key, with each of a pool's declarations in
        order.
        """
        self._with_sources: set[str] = set()
        """Pools with conditions about sources. These must be kept up to date even if the sources
        go.
        """
        self._claimed: dict[tuple[str, str], Sequence[Claimant]] = {}
        """(source, namespace) -> who declares the kind. Computed once until pools or namespaces
        change.
        """
        self._changed = asyncio.Event()
        self._selectors_changed = False
        self._namespaces_changed: set[str] = set()
        self._assigning = False
        self.settled = asyncio.Event()
        """Set once each kind that was declared at the start has been listed, or cannot be."""
        self.on_complete: Callable[[str], None] = lambda _pool: None
        """Called for each pool with a source that has just been listed: keys of it that only
        ledgers know are gone.
        """
        caches.pools.add_event_handler(self._pool_changed)
        caches.namespaces.add_event_handler(self._namespace_changed)

    # -- what pools declare ------------------------------------------------------------------------

    def _pool_changed(self, old: AdapterPool | None, new: AdapterPool | None) -> None:
        if new is None and old is not None:
            self._with_sources.discard(old.key)
        if old is None or new is None or _claims(old) != _claims(new):
            self._changed.set()
            self._declare()

    def _declare(self) -> None:
        declared: dict[str, list[tuple[AdapterPool, Source]]] = {}
        for pool in sorted(self._caches.pools.list(), key=lambda pool: pool.key):
            for source in pool.sources:
                declared.setdefault(source.key, []).append((pool, source))
        self._declared = declared
        self._claimed.clear()
        self._selectors_changed = True
        self._set_watched_sources()

    def _namespace_changed(self, old: Namespace | None, new: Namespace | None) -> None:
        changed = new or old
        if changed is not None and (old is None or new is None or old.labels != new.labels):
            self._namespaces_changed.add(changed.name)
            self._claimed.clear()
            self._changed.set()

    def _claimants(self, source: str, namespace: str) -> Sequence[Claimant]:
        known = self._claimed.get((source, namespace))
        if known is None:
            state = self._caches.state
            known = self._claimed[source, namespace] = [
                Claimant(pool, declared, state.allows(pool, namespace))
                for pool, declared in self._accepted(source)
            ]
        return known

    def _accepted(self, source: str) -> list[tuple[AdapterPool, Source]]:
        """The declarations of a kind that agree with the watched API version, as long as one does;
        otherwise with the first declaration.
        """
        declared = self._declared.get(source, [])
        running = self._running.get(source)
        watched = _place(running.first[1]) if running is not None else None
        places = {_place(item): None for _, item in declared}
        place = watched if watched in places else next(iter(places), None)
        return [(pool, item) for pool, item in declared if _place(item) == place]

    # -- the watches -------------------------------------------------------------------------------

    async def run(self) -> None:
        """Watch the kinds that pools declare, until cancelled."""
        self._declare()
        self._changed.set()
        try:
            async with asyncio.TaskGroup() as tasks:
                await self._follow(tasks)
                for running in list(self._running.values()):
                    await running.watch.settled.wait()
                self._set_watched_sources()
                self.settled.set()
                while True:
                    await self._wait()
                    if self._changed.is_set():
                        await self._follow(tasks)
                    self._set_watched_sources()
        finally:
            self._running.clear()
            self._set_watched_sources()

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(PERIOD_S):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _follow(self, tasks: asyncio.TaskGroup) -> None:
        """Stop and start watches, and assign objects to their pools again."""
        self._changed.clear()
        self._assigning = True
        for source, running in list(self._running.items()):
            accepted = self._accepted(source)
            if accepted and _place(accepted[0][1]) == _place(running.first[1]):
                continue
            await self._stop(source)
            self._set_watched_sources()
            if self._accepted(source):  # asked again: pools may have changed meanwhile
                # Another version: known objects stay until it is listed.
                self._start(source, tasks, running.kind)
            else:
                running.kind.forget_all()
        for source in sorted(self._declared):
            self._start(source, tasks)
        everything, self._selectors_changed = self._selectors_changed, False
        namespaces, self._namespaces_changed = self._namespaces_changed, set()
        if everything or namespaces:
            for running in list(self._running.values()):
                for _ in running.kind.assign_again(None if everything else namespaces):
                    await asyncio.sleep(0)
        self._assigning = False

    def _start(
        self, source: str, tasks: asyncio.TaskGroup, kind: ForeignKind | None = None
    ) -> None:
        accepted = self._accepted(source)
        running = self._running.get(source)
        if running is not None:
            if running.kind.read_by(item for _, item in accepted):
                running.watch.read_again()
            return
        if len(self._running) >= KINDS_MAX or not accepted:
            return
        pool, first = accepted[0]
        kind = kind if kind is not None else ForeignKind(source, self._claimants, self._caches)
        kind.read_by(item for _, item in accepted)
        versions = [Resource(first.group, v, first.resource, first.kind) for v in first.versions]
        watch = KindWatch(self._api, versions, kind, rng=self._rng)
        task = tasks.create_task(watch.run(), name=f"source {source}")
        self._running[source] = _Running(kind, watch, task, (pool.key, first))

    async def _stop(self, source: str) -> None:
        task = self._running.pop(source).task
        task.cancel()
        await asyncio.wait({task})

    async def catch_up(self) -> None:
        """List all kinds again, as far as the API server answers in time. The others stay
        incomplete until it does.
        """
        watches = [running.watch for running in self._running.values()]
        async with asyncio.TaskGroup() as tasks:
            for watch in watches:
                tasks.create_task(watch.relist(CATCH_UP_TIMEOUT_S))
        self._set_watched_sources()

    def seen_version(self, source: str) -> int:
        """The newest resourceVersion of a kind that was seen; 0 while it is not watched."""
        running = self._running.get(source)
        version = running.watch.last_sync_version if running is not None else ""
        return parse_version(version) or 0

    async def list_again(self, source: str) -> bool:
        """List one source again. Return whether that succeeded in time."""
        running = self._running.get(source)
        listed = running is not None and await running.watch.relist(CATCH_UP_TIMEOUT_S)
        self._set_watched_sources()
        return listed

    def _set_watched_sources(self) -> None:
        """Set in each pool's state which of its sources are complete."""
        complete = {source for source, running in self._running.items() if running.watch.complete}
        for pool in self._caches.pools.list():
            state = self._caches.state.pool(pool.key)
            watched = frozenset(
                s.key for s in pool.sources if s.key in complete and self._accepts(pool, s)
            )
            if self._assigning or self._changed.is_set():
                # The pool may not have received all its objects yet.
                watched &= state.watched_sources
            if watched != state.watched_sources:
                news = watched - state.watched_sources
                state.watched_sources = watched
                if news:
                    self.on_complete(pool.key)

    def _accepts(self, pool: AdapterPool, source: Source) -> bool:
        return any(
            other.key == pool.key and item == source for other, item in self._accepted(source.key)
        )

    # -- queries -----------------------------------------------------------------------------------

    def writes_status_of(self, vpod: VPod) -> bool:
        """Whether the vpod's pool has this service place its kind and write its status."""
        pool = self._caches.pools.get(vpod.pool)
        running = self._running.get(vpod.source)
        known = running.kind.declared(vpod) if running is not None else None
        declared = [known] if known is not None else list(pool.sources) if pool is not None else []
        return any(source.key == vpod.source and source.write_status for source in declared)

    def status_place(self, vpod: VPod) -> StatusPlace | None:
        """Where this service writes the vpod's status. None if it does not."""
        running = self._running.get(vpod.source)
        source = running.kind.declared(vpod) if running is not None else None
        if running is None or source is None or not source.write_status:
            return None
        kind = running.kind
        return StatusPlace(running.watch.resource, source, lambda reply: kind.written(reply, vpod))

    def reference(self, vpod: VPod) -> ObjectReference | None:
        """The object that is the vpod, for events. None if it is not watched: a caller of
        ``POST /v1/schedule`` may keep its vpod anywhere.
        """
        running = self._running.get(vpod.source)
        known = self._caches.vpods.latest(vpod.key)
        if running is None or known is None:
            return None
        resource = running.watch.resource
        return ObjectReference(
            resource.api_version, resource.kind, known.namespace, known.name, known.uid
        )

    @property
    def pools_with_conditions(self) -> int:
        """The number of pools with conditions about sources."""
        return len(self._with_sources)

    def objects(self) -> dict[str, float]:
        """Number of known objects, by source."""
        return {source: float(len(running.kind)) for source, running in self._running.items()}

    def unavailable(self) -> dict[str, float]:
        """1 for a source that cannot be listed, 0 for one that is watched."""
        return {
            source: float(running.watch.problem is not None)
            for source, running in self._running.items()
        }

    def conditions(self, pool: AdapterPool) -> list[PoolCondition]:
        """The conditions about sources of a pool that has or had some."""
        if pool.sources or pool.source_problems:
            self._with_sources.add(pool.key)
        elif pool.key not in self._with_sources:
            return []
        return [self._unavailable(pool), self._conflict(pool)]

    def _unavailable(self, pool: AdapterPool) -> PoolCondition:
        found = [Problem("InvalidSource", problem) for problem in pool.source_problems]
        for source in dict.fromkeys(item.key for item in pool.sources):
            running = self._running.get(source)
            if running is not None and running.watch.problem is not None:
                found.append(running.watch.problem)
            elif running is None and len(self._running) >= KINDS_MAX:
                found.append(
                    Problem("TooManyKinds", f"{KINDS_MAX} foreign kinds are watched already")
                )
            elif running is None:
                found.append(Problem(NOT_LISTED, f"{source} is not watched yet"))
        if not found:
            return SOURCE_UNAVAILABLE, False, "AllWatched", ""
        message = "; ".join(problem.message for problem in found)
        return SOURCE_UNAVAILABLE, True, found[0].reason, message[:1024]

    def _conflict(self, pool: AdapterPool) -> PoolCondition:
        found = []
        for source in pool.sources:
            running = self._running.get(source.key)
            if running is None:
                continue
            if not self._accepts(pool, source):
                found.append(
                    f"{source.key} is read in version {running.first[1].versions[0]}, as "
                    f"{running.first[0]} says"
                )
            found += [
                f"{count} objects of {source.key} belong to {winner}"
                for (loser, winner), count in sorted(running.kind.conflicts.items())
                if loser == pool.key
            ]
        if not found:
            return SOURCE_CONFLICT, False, "NoConflict", ""
        return SOURCE_CONFLICT, True, "TakenByAnotherPool", "; ".join(dict.fromkeys(found))[:1024]


def _claims(pool: AdapterPool) -> tuple[object, ...]:
    """The fields of a pool that decide which objects belong to it."""
    return (
        pool.sources,
        pool.source_problems,
        pool.namespace_selector,
        pool.stateful_set,
        pool.deleting,
    )


def _place(source: Source) -> tuple[object, ...]:
    return (source.group, source.versions, source.resource, source.kind)
