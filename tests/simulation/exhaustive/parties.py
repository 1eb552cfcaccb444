"""Replicas of the service whose API calls and watch events happen when the director says so."""

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextvars import copy_context
from functools import partial
from typing import Any, Final, TypeVar

import orjson

from extender.app import Service
from extender.core import decode
from extender.kube.api import (
    ADAPTERPOOLS,
    NAMESPACES,
    NODES,
    PODS,
    STATEFULSETS,
    VPODS,
    ApiError,
    Binding,
    Obj,
    OutcomeUnknown,
    Resource,
    WatchEvent,
    WatchEventType,
)
from extender.kube.reflector import Sink
from extender.service.config import Config, LeaderElectionConfig
from extender.service.informers import CacheSink
from extender.sim.apiserver.store import Change
from extender.sim.clock import wall_clock
from extender.sim.cluster import Cluster
from extender.sim.faults import ACTOR
from extender.sim.schedule_explorer import THREAD, Director, Step

T = TypeVar("T")

WATCHED: Final = (PODS, VPODS)
"""Kinds whose events come in any order; the others do not change."""
LEASELESS: Final = Config(leader_election=LeaderElectionConfig(leader_elect=False))


class Fingerprints:
    """What is stored, by what it says: versions are counted for each object, since no order of different objects matters."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, tuple[str, str]], int] = {}
        self._versions: dict[str, str] = {}
        self.stored: dict[tuple[str, tuple[str, str]], int] = {}

    def changed(self, kind: tuple[str, str], change: Change) -> None:
        """A subscriber of the store."""
        entry = change.after or change.before
        if entry is None or kind[1] == "events":
            return
        key = (kind[1], entry.key)
        self._counts[key] = self._counts.get(key, 0) + 1
        self._versions[str(change.version)] = f"{key} {self._counts[key]}"
        if change.after is None:
            self.stored.pop(key, None)
        else:
            self.stored[key] = self.of(change.after.obj)

    def of(self, obj: Obj) -> int:
        """An object in any of its versions."""
        metadata = obj.get("metadata") or {}
        version = self._versions.get(metadata.get("resourceVersion", ""), "")
        plain = {**obj, "metadata": {**metadata, "resourceVersion": version}}
        return hash(orjson.dumps(plain, option=orjson.OPT_SORT_KEYS))

    def world(self) -> Hashable:
        """All that is stored."""
        return frozenset(self.stored.items())


class SteppedApi:
    """``Api`` of one process: each call is two steps, of being served and of being answered; the second may be lost."""

    def __init__(self, cluster: Cluster, name: str, fingerprints: Fingerprints) -> None:
        self.name = name
        self.director: Director | None = None
        """None: calls are served at once."""
        self.may_lose: Callable[[], bool] = lambda: False
        self.on_lost: Callable[[], None] = lambda: None
        self._cluster = cluster
        self._fingerprints = fingerprints

    def __getattr__(self, verb: str) -> Callable[..., Awaitable[Any]]:
        """``Api``'s methods, all alike."""

        async def call(*args: Any, **more: Any) -> Any:
            return await self._call(
                _what(verb, *args, **more), lambda: getattr(self._cluster, verb)(*args, **more)
            )

        return call

    async def _call(self, what: str, serve: Callable[[], Awaitable[T]]) -> T:
        if self.director is not None:
            await self.director.step("", f"{what} of {self.name} is served")
        token = ACTOR.set(self.name)
        error: ApiError | None = None
        reply: Any = None
        try:
            reply = await serve()
        except ApiError as refused:
            error = refused
        finally:
            ACTOR.reset(token)
        if self.director is not None:
            told = self._fingerprints.of(reply) if isinstance(reply, dict) else str(error)
            lose = f"the answer to {what} is lost" if self.may_lose() else ""
            ok = error.reason if error is not None else "ok"
            if not await self.director.step(self.name, f"{what} is answered {ok}", told, or_else=lose):
                self.on_lost()
                raise OutcomeUnknown(0, "Timeout", "the answer was lost")
        if error is not None:
            raise error
        return reply  # type: ignore[no-any-return]


def _what(verb: str, *args: Any, **more: Any) -> str:
    if args and isinstance(args[0], Binding):
        return f"bind of {args[0].name}"
    resource = args[0].plural if args and isinstance(args[0], Resource) else ""
    subresource = more.get("subresource", "")
    name = args[2] if len(args) > 2 and isinstance(args[2], str) else ""
    return f"{verb} of {resource}{'/' + subresource if subresource else ''} {name}".rstrip()


class Party:
    """One replica: the shipped ``Service``, without its reflectors, loops and election."""

    def __init__(self, cluster: Cluster, name: str, fingerprints: Fingerprints, *, leads: bool) -> None:
        self.name = name
        self.api = SteppedApi(cluster, name, fingerprints)
        self.service = Service(self.api, LEASELESS, now=wall_clock, rng=random.Random(name), serve=False)  # type: ignore[arg-type]
        self.service._always_leads = leads
        self._cluster = cluster
        self._fingerprints = fingerprints
        caches = self.service.caches
        self._sinks: dict[str, Sink] = {
            NODES.plural: CacheSink(decode.node_from, caches.nodes),
            NAMESPACES.plural: CacheSink(decode.namespace_from, caches.namespaces),
            STATEFULSETS.plural: CacheSink(decode.stateful_set_from, caches.stateful_sets),
            ADAPTERPOOLS.plural: CacheSink(decode.pool_from, caches.pools),
            PODS.plural: CacheSink(decode.pod_from, caches.pods),
            VPODS.plural: CacheSink(decode.vpod_from, caches.vpods),
        }
        self._events: dict[str, deque[tuple[str, WatchEvent]]] = {kind.plural: deque() for kind in WATCHED}
        self.operations: list[asyncio.Task[None]] = []

    @property
    def streams(self) -> list[str]:
        """Threads of its watches."""
        return [f"{self.name} {plural}" for plural in self._events]

    async def list(self, *kinds: Resource) -> None:
        """Know all that is stored now, at once; of some kinds only: a relist."""
        for kind in kinds or (NODES, NAMESPACES, STATEFULSETS, ADAPTERPOOLS, PODS, VPODS):
            page = await self._cluster.list_page(kind, limit=1000)
            if kind.plural in self._events:
                self._events[kind.plural].clear()
            self._sinks[kind.plural].replace(page.items, page.resource_version)

    # -- watches ----------------------------------------------------------------------------------------------------

    def changed(self, kind: tuple[str, str], change: Change) -> None:
        """A subscriber of the store."""
        if kind[1] not in self._sinks:
            return
        entry = change.after or change.before
        if entry is None:
            return
        sort = (
            WatchEventType.DELETED
            if change.after is None
            else WatchEventType.ADDED
            if change.before is None
            else WatchEventType.MODIFIED
        )
        obj = entry.copy()
        if change.after is None:
            obj["metadata"]["resourceVersion"] = str(change.version)
        event = WatchEvent(sort, obj)
        if self.api.director is None or kind[1] not in self._events:
            asyncio.get_running_loop().call_soon(self._sinks[kind[1]].apply, event)
        else:
            self._events[kind[1]].append((f"{sort} {kind[1]} {entry.key[1]}", event))

    def events(self) -> Iterator[Step]:
        """The next of each watch."""
        for plural, waiting in self._events.items():
            if waiting:
                what, event = waiting[0]
                told = self._fingerprints.of(event.object)
                yield Step(f"{self.name} {plural}", self.name, what, partial(self._tell, plural), told)

    def _tell(self, plural: str) -> None:
        _, event = self._events[plural].popleft()
        self._sinks[plural].apply(event)

    def undelivered(self) -> Hashable:
        """For comparing states: how far its watches are behind."""
        return tuple(
            tuple(self._fingerprints.of(event.object) for _, event in waiting)
            for waiting in self._events.values()
        )

    # -- operations -------------------------------------------------------------------------------------------------

    def start(self, name: str, work: Callable[["Party"], Awaitable[object]]) -> None:
        """An operation, begun by a step of its own."""
        context = copy_context()
        context.run(THREAD.set, name)
        loop = asyncio.get_running_loop()
        self.operations.append(loop.create_task(self._operate(name, work), name=name, context=context))

    async def _operate(self, name: str, work: Callable[["Party"], Awaitable[object]]) -> None:
        if self.api.director is not None:
            await self.api.director.step(self.name, name)
        await work(self)

    def end_exploring(self) -> None:
        """From now on calls are served, and events delivered, at once."""
        self.api.director = None
        for plural in self._events:
            while self._events[plural]:
                self._tell(plural)
