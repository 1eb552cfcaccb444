"""``FaultyApi``: an ``Api`` as one process sees it, with everything that may go wrong on the way
there and back.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from functools import partial
from typing import Any, Final, TypeVar

from extender.kube.api import (
    EVENTS,
    EVERYWHERE,
    Api,
    ApiError,
    Binding,
    Expired,
    ListOptions,
    ListPage,
    Obj,
    OutcomeUnknown,
    PatchType,
    Preconditions,
    Resource,
    WatchEvent,
    WatchEventType,
)
from extender.lab.faults.dice import HELD_MAX_S, Faults

T = TypeVar("T")

ACTOR: Final[ContextVar[str]] = ContextVar("ACTOR", default="")
"""Who is writing, for subscribers of the store: the name of the ``FaultyApi`` whose call is being
served.
"""
OldLists = Callable[[Resource, ListOptions], Coroutine[Any, Any, ListPage | None]]
"""A kind as it was some seconds ago, in one page; None where nobody remembers."""
HUNG_S: Final = 3600.0
"""Longer than any watch is waited for."""
BOOKMARKS: Final = 4


class Crashed(BaseException):
    """The process is dead: nothing that it still does reaches the outside."""


class FaultyApi:
    """``Api`` as one process sees it. ``actor`` names the process; ``record`` gets one line a call
    for the trace.
    """

    def __init__(
        self,
        api: Api,
        faults: Faults,
        *,
        actor: str,
        record: Callable[[str], None] = lambda _line: None,
        old_lists: OldLists | None = None,
    ) -> None:
        self._api = api
        self._old_lists = old_lists
        self._listed: set[str] = set()
        self._under_way: set[asyncio.Task[Any]] = set()
        self._faults = faults
        self._actor = actor
        self._record = record
        self.calls = 0
        """Calls so far, watches left out."""
        self.crashed = False
        self.crash_at_call: int | None = None
        """Crash at the call of this number (the first is 1)."""
        self.crash_after_effect = False
        """... once it has been served, not before."""
        self.on_crash: Callable[[], None] = lambda: None
        self.listed_at_s: dict[str, float] = {}
        """Plural -> the loop's time at which this process was last told the first page of a list.
        """
        self.failed_at_s: dict[tuple[str, str], float] = {}
        """(Plural, name) -> the loop's time at which a patch of it last failed, as far as this
        process was told.

        Of events (plural, namespace): of any write there.
        """

    def crash(self) -> None:
        """SIGKILL, now."""
        if not self.crashed:
            self.crashed = True
            self._record(f"{self._actor} crashed")
            self.on_crash()

    def lose_under_way(self) -> None:
        """What is on its way now does not arrive; nothing where it has been served already."""
        for way in list(self._under_way):
            way.cancel()

    def _alive(self) -> None:
        if self.crashed:
            raise Crashed(self._actor)

    def _crash_if_due(self, number: int, *, after_effect: bool) -> None:
        """Crash at the call it was told to. One that was under way when its process crashed
        otherwise still arrives.
        """
        if number == self.crash_at_call and after_effect is self.crash_after_effect:
            self.crash()
            raise Crashed(self._actor)

    async def _call(
        self,
        what: str,
        served: Coroutine[Any, Any, T],
        *,
        write: bool = True,
        lost: str = "reply_lost",
        events_in: str | None = None,
    ) -> T:
        """``served``, with whatever happens to it on the way there and back; ``lost``: how losing
        its answer is called.

        ``events_in``: the namespace of the event that is written; None where it is none.

        What is on its way is no part of the process: it arrives also where that is stopped, or has
        given up waiting.
        """
        if self.crashed:
            served.close()
            raise Crashed(self._actor)
        way = asyncio.get_running_loop().create_task(
            self._there_and_back(what, served, write=write, lost=lost, events_in=events_in),
            name=what,
            context=Context(),
        )
        self._under_way.add(way)
        way.add_done_callback(partial(self._arrived, served))
        reply = await asyncio.shield(way)
        self._alive()
        return reply

    def _arrived(self, served: Coroutine[Any, Any, Any], way: "asyncio.Task[Any]") -> None:
        self._under_way.discard(way)
        if way.cancelled():
            served.close()  # lost before it began, perhaps
        else:
            way.exception()  # whoever waited for it has been told; nobody may be left

    async def _there_and_back(
        self,
        what: str,
        served: Coroutine[Any, Any, T],
        *,
        write: bool,
        lost: str,
        events_in: str | None,
    ) -> T:
        try:
            number = await self._send(what, write=write, events_in=events_in)
        except BaseException:
            served.close()
            raise
        if write and self._faults.hits("write_late"):
            self._serve_later(what, served)
            raise OutcomeUnknown(0, "Timeout", "injected: given up, and still under way")
        try:
            reply = await self._serve(what, served)
        finally:
            self._crash_if_due(number, after_effect=True)
        await self._faults.delay()
        if self._faults.hits(lost):
            raise OutcomeUnknown(0, "Timeout", "injected: the answer was lost")
        return reply

    async def _send(self, what: str, *, write: bool, events_in: str | None) -> int:
        """The way there: the call's number, once it has arrived. Raises Crashed, and ApiError where
        it is not served.
        """
        self.calls += 1
        number = self.calls
        await self._faults.delay()
        self._crash_if_due(number, after_effect=False)
        refusal = self._faults.refusal(self._actor, write=write)
        if refusal is None and events_in is not None:
            refusal = self._faults.events_refusal(events_in)
        if refusal is not None:
            self._record(f"{self._actor} {what} {refusal.reason}, injected")
            raise refusal
        return number

    def _serve_later(self, what: str, served: Coroutine[Any, Any, T]) -> None:
        async def arrive() -> None:
            try:
                await asyncio.sleep(self._faults.seconds())
                await self._serve(what, served)
            except ApiError:
                return
            finally:
                served.close()

        task = asyncio.create_task(arrive(), name="late write")
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _serve(self, what: str, served: Coroutine[Any, Any, T]) -> T:
        token = ACTOR.set(self._actor)
        try:
            reply = await served
        except ApiError as error:
            self._record(f"{self._actor} {what} {error.reason}")
            raise
        finally:
            ACTOR.reset(token)
        self._record(f"{self._actor} {what} ok")
        return reply

    async def list_page(
        self,
        resource: Resource,
        options: ListOptions = EVERYWHERE,
        *,
        limit: int = 500,
        continue_token: str = "",
        resource_version: str = "",
    ) -> ListPage:
        """``Api.list_page``."""
        listed = None if continue_token else await self._old_list(resource, options)
        if listed is None:
            page = self._api.list_page(
                resource,
                options,
                limit=limit,
                continue_token=continue_token,
                resource_version=resource_version,
            )
            listed = await self._call(f"list {resource.plural}", page, write=False)
        if not continue_token:
            self.listed_at_s[resource.plural] = asyncio.get_running_loop().time()
        return listed

    async def _old_list(self, resource: Resource, options: ListOptions) -> ListPage | None:
        """The first list of a kind may be old: any API server's cache answers it. Later ones ask
        for what is there now.
        """
        first = resource.plural not in self._listed
        self._listed.add(resource.plural)
        if not first or self._old_lists is None or not self._faults.hits("stale_list"):
            return None
        old = self._old_lists(resource, options)
        return await self._call(f"list {resource.plural} from an old cache", old, write=False)

    async def watch(
        self,
        resource: Resource,
        options: ListOptions = EVERYWHERE,
        *,
        resource_version: str,
        timeout_s: float = 300.0,
    ) -> AsyncIterator[WatchEvent]:
        """``Api.watch``."""
        self._alive()
        await self._faults.delay()
        if self._faults.is_cut_off(self._actor):
            raise OutcomeUnknown(0, "Timeout", "injected: no route to host")
        stream = self._api.watch(
            resource, options, resource_version=resource_version, timeout_s=timeout_s
        )
        reached = resource_version
        try:
            async for event in stream:
                await self._faults.delay()
                self._alive()
                self._interrupt()
                if await self._held_back():
                    for _ in range(BOOKMARKS):
                        await asyncio.sleep(self._faults.rng.uniform(0.0, HELD_MAX_S / BOOKMARKS))
                        yield _bookmark(resource, reached)
                self._alive()
                reached = event.object["metadata"]["resourceVersion"]
                yield event
                if self._faults.hits("event_doubled"):
                    yield event
        finally:
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()

    def _interrupt(self) -> None:
        """End a watch, perhaps."""
        if self._faults.hits("watch_expired"):
            raise Expired(410, "Expired", "injected: too old resource version")
        if self._faults.hits("watch_dropped"):
            raise OutcomeUnknown(0, "ConnectionReset", "injected: the watch was cut off")

    async def _held_back(self) -> bool:
        """Wait before an event, perhaps; the reply is whether bookmarks come meanwhile."""
        if self._faults.hits("watch_hung"):
            await asyncio.sleep(HUNG_S)
        if self._faults.hits("event_delayed"):
            await asyncio.sleep(self._faults.seconds())
        return self._faults.hits("bookmarks_only")

    async def get(
        self, resource: Resource, namespace: str, name: str, *, subresource: str = ""
    ) -> Obj:
        """``Api.get``."""
        served = self._api.get(resource, namespace, name, subresource=subresource)
        return await self._call(_what("get", resource, name, subresource), served, write=False)

    async def create(self, resource: Resource, namespace: str, obj: Obj) -> Obj:
        """``Api.create``."""
        served = self._api.create(resource, namespace, obj)
        with self._failures_noted(resource, namespace, ""):
            return await self._call(
                f"create {resource.plural}", served, events_in=_events_in(resource, namespace)
            )

    async def update(
        self, resource: Resource, namespace: str, name: str, obj: Obj, *, subresource: str = ""
    ) -> Obj:
        """``Api.update``."""
        served = self._api.update(resource, namespace, name, obj, subresource=subresource)
        what = _what("update", resource, name, subresource)
        return await self._call(what, served, lost=_lost(resource, subresource, "reply_lost"))

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: list[Obj] | Obj,
        *,
        patch_type: PatchType,
        subresource: str = "",
    ) -> Obj:
        """``Api.patch``."""
        served = self._api.patch(
            resource, namespace, name, patch, patch_type=patch_type, subresource=subresource
        )
        what, lost = (
            _what("patch", resource, name, subresource),
            _lost(resource, subresource, "patch_reply_lost"),
        )
        with self._failures_noted(resource, namespace, name):
            return await self._call(
                what, served, lost=lost, events_in=_events_in(resource, namespace)
            )

    @contextmanager
    def _failures_noted(self, resource: Resource, namespace: str, name: str) -> Iterator[None]:
        try:
            yield
        except (ApiError, asyncio.CancelledError):  # refused, or given up by who waited
            about = namespace if resource == EVENTS else name
            self.failed_at_s[resource.plural, about] = asyncio.get_running_loop().time()
            raise

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        preconditions: Preconditions | None = None,
        grace_period_s: int | None = None,
    ) -> None:
        """``Api.delete``."""
        served = self._api.delete(
            resource, namespace, name, preconditions=preconditions, grace_period_s=grace_period_s
        )
        await self._call(_what("delete", resource, name, ""), served)

    async def bind(self, binding: Binding) -> None:
        """``Api.bind``."""
        await self._call(
            f"bind {binding.name} to {binding.node}",
            self._api.bind(binding),
            lost="bind_reply_lost",
        )


def _bookmark(resource: Resource, reached: str) -> WatchEvent:
    """How far a watch had got."""
    metadata: Obj = {"resourceVersion": reached, "creationTimestamp": None}
    held = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
    return WatchEvent(WatchEventType.BOOKMARK, held)


def _what(verb: str, resource: Resource, name: str, subresource: str) -> str:
    return f"{verb} {resource.plural}/{name}" + (f"/{subresource}" if subresource else "")


def _events_in(resource: Resource, namespace: str) -> str | None:
    """The namespace of an event that is written, None of anything else."""
    return namespace if resource == EVENTS else None


def _lost(resource: Resource, subresource: str, otherwise: str) -> str:
    """How losing the answer to such a write is called."""
    if resource.plural == "leases":
        return "lease_reply_lost"
    return {"status": "status_reply_lost", "scale": "scale_reply_lost"}.get(subresource, otherwise)
