"""Replicas of the service whose API calls and watch events happen when the director says so."""

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, Final, TypeVar

import orjson

from extender.config.model import Config, LeaderElectionConfig
from extender.kube.api import (
    PODS,
    VPODS,
    Api,
    ApiError,
    Binding,
    Obj,
    OutcomeUnknown,
    Resource,
    WatchEvent,
    WatchEventType,
)
from extender.kube.leader import LeaderElector
from extender.kube.lease import LeaseConfig
from extender.lab.apiserver.cluster import Cluster
from extender.lab.apiserver.store import Change
from extender.lab.clock import wall_clock
from extender.lab.faults import ACTOR
from extender.model.bucket import Bucket
from extender.service.app import Service
from extender.service.pools.assignments import _Due as PodsDue
from extender.service.pools.leadership import Leadership
from tests.kube.fakes import give_list
from tests.simulation.exhaustive.adapters import SteppedAdapters
from tests.simulation.exhaustive.explorer import THREAD, Director, Step
from tests.support.builders import NS

T = TypeVar("T")

WATCHED: Final = (PODS, VPODS)
"""Kinds whose events come in any order; the others do not change."""
UNDER_WAY: Final = "under way"
"""Thread of calls that were given up."""


class Fingerprints:
    """What is stored, by what it says: versions are counted for each object, since no order of
    different objects matters.
    """

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


class Appointed(LeaderElector):
    """Who leads, and since when, is said from outside (``is_leader``, ``leading_since``), and no
    lease is written.
    """

    def still_leading(self) -> bool:
        """Also where another one leads at once: a lease that ran out, or was taken away, is noticed
        late.
        """
        return self.is_leader

    def appoint(self, *, since: float) -> None:
        """Lead from now on, or as if since an earlier time of the loop."""
        self.is_leader, self.leading_since = True, since
        self.acts_since = since

    def depose(self) -> None:
        """Lead no more; what was sent is under way all the same."""
        self.is_leader, self.leading_since = False, float("inf")
        self.acts_since = float("inf")


class AppointedLeadership(Leadership):
    """By one Lease that is never asked for."""

    def elector(
        self,
        api: Api,
        config: LeaderElectionConfig,
        bucket: Bucket,
        *,
        now: Callable[[], float],
        rng: random.Random,
    ) -> LeaderElector:
        lease = LeaseConfig(namespace=config.resource_namespace)
        return Appointed(api, lease, identity=self.identity, now=now, rng=rng)


class AppointedService(Service):
    """The shipped service, which leads when it is told to."""

    def _leadership(
        self, api: Api, config: Config, now: Callable[[], float], rng: random.Random
    ) -> Leadership:
        return AppointedLeadership(
            api,
            self.caches,
            config,
            identity=self.identity,
            first_version=lambda: self.informers.first_version,
            now=now,
            rng=rng,
        )


class SteppedApi:
    """``Api`` of one process: each call is two steps, of being served and of being answered.

    The second may be lost, and the caller may give up before the first: the call is served later,
    and nobody hears of it.
    """

    def __init__(self, cluster: Cluster, name: str, fingerprints: Fingerprints) -> None:
        self.name = name
        self.director: Director | None = None
        """None: calls are served at once."""
        self.may_lose: Callable[[], bool] = lambda: False
        self.on_lost: Callable[[], None] = lambda: None
        self.may_give_up: Callable[[str], bool] = lambda _call: False
        self.under_way: set[asyncio.Task[None]] = set()
        """Calls that their sender has given up."""
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
            give_up = f"{what} is given up, under way" if self.may_give_up(what) else ""
            served = f"{what} of {self.name} is served"
            if not await self.director.step("", served, or_else=give_up, of=self.name):
                self.on_lost()
                self._leave_under_way(served, serve)
                raise OutcomeUnknown(0, "Timeout", "given up before it was answered")
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
            if not await self.director.step(
                self.name, f"{what} is answered {ok}", told, or_else=lose
            ):
                self.on_lost()
                raise OutcomeUnknown(0, "Timeout", "the answer was lost")
        if error is not None:
            raise error
        return reply  # type: ignore[no-any-return]

    def _leave_under_way(self, what: str, serve: Callable[[], Awaitable[object]]) -> None:
        """Let it be served at any later moment, by default after everything else."""

        async def arrive() -> None:
            if self.director is not None:
                await self.director.step("", f"late, {what}")
            ACTOR.set(self.name)
            with suppress(ApiError):
                await serve()

        context = copy_context()
        context.run(THREAD.set, UNDER_WAY)
        self.under_way.add(asyncio.get_running_loop().create_task(arrive(), context=context))


def _what(verb: str, *args: Any, **more: Any) -> str:
    if args and isinstance(args[0], Binding):
        return f"bind of {args[0].name}"
    resource = args[0].plural if args and isinstance(args[0], Resource) else ""
    subresource = more.get("subresource", "")
    name = args[2] if len(args) > 2 and isinstance(args[2], str) else ""
    return f"{verb} of {resource}{'/' + subresource if subresource else ''} {name}".rstrip()


class Party:
    """One replica: the shipped ``Service`` with the sinks of its reflectors, but without their
    tasks, loops and election.
    """

    def __init__(self, cluster: Cluster, name: str, fingerprints: Fingerprints) -> None:
        self.name = name
        self.api = SteppedApi(cluster, name, fingerprints)
        self.service = AppointedService(
            self.api,  # type: ignore[arg-type]
            Config(),
            now=wall_clock,
            rng=random.Random(name),
            serve=False,
        )
        self._cluster = cluster
        self._fingerprints = fingerprints
        self._reflectors = {r.resource.plural: r for r in self.service.informers.reflectors}
        self._sinks = {plural: reflector._sink for plural, reflector in self._reflectors.items()}
        # A consistent read of vpods, which it asks for before it binds after a relist.
        self._reflectors[VPODS.plural].relist = partial(self.list, VPODS)  # type: ignore[method-assign]
        self._lists: list[Hashable] = []
        self._events: dict[str, deque[tuple[str, WatchEvent]]] = {
            kind.plural: deque() for kind in WATCHED
        }
        self.operations: list[asyncio.Task[None]] = []
        self._acknowledge = self.service.acknowledge_verb(self.service.load_verb())
        self._told = PodsDue(random.Random(name))

    async def tell(self, ordinal: int) -> None:
        """Tell a pod's adapter what it carries, as the loop does for a pod that is due."""
        await self.service.assignments._tell(self._told, f"{NS}/dispatcher-{ordinal}")

    async def hear(self, adapters: SteppedAdapters, ordinal: int) -> None:
        """An adapter looks at its assignment, and acknowledges it here."""
        await adapters.look(ordinal, self._acknowledge, asyncio.get_running_loop().time())

    @property
    def elector(self) -> Appointed:
        """By which it leads or does not."""
        elector = self.service.leadership.electors[0]
        assert isinstance(elector, Appointed)
        return elector

    @property
    def streams(self) -> list[str]:
        """Threads of its watches."""
        return [f"{self.name} {plural}" for plural in self._events]

    async def list(self, *kinds: Resource) -> None:
        """Know all that is stored now, at once; of some kinds only: a relist."""
        if self.api.director is not None:
            self._lists.append((kinds, self._fingerprints.world()))
        for kind in kinds or [reflector.resource for reflector in self._reflectors.values()]:
            page = await self._cluster.list_page(kind, limit=1000)
            if kind.plural in self._events:
                self._events[kind.plural].clear()
            give_list(self._sinks[kind.plural], page.items, page.resource_version)

    async def close_the_past(self) -> None:
        """Know what all ordinals held: nothing that was sent before its first list is under way any
        more.
        """
        for pod in self.service.caches.pods.list():
            await self.service.verbs._pod_binder._knows_past(pod)

    # -- watches -----------------------------------------------------------------------------------

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
                yield Step(
                    f"{self.name} {plural}", self.name, what, partial(self._tell, plural), told
                )

    def _tell(self, plural: str) -> None:
        _, event = self._events[plural].popleft()
        self._sinks[plural].apply(event)

    def undelivered(self) -> Hashable:
        """For comparing states: how far its watches are behind, and what it has listed."""
        behind = (
            tuple(self._fingerprints.of(event.object) for _, event in waiting)
            for waiting in self._events.values()
        )
        return (*behind, tuple(self._lists))

    # -- operations --------------------------------------------------------------------------------

    def start(self, name: str, work: Callable[["Party"], Awaitable[object]]) -> None:
        """An operation, begun by a step of its own."""
        context = copy_context()
        context.run(THREAD.set, name)
        loop = asyncio.get_running_loop()
        self.operations.append(
            loop.create_task(self._operate(name, work), name=name, context=context)
        )

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
