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
    LEASES,
    Api,
    ApiError,
    Binding,
    Expired,
    ListOptions,
    ListPage,
    Obj,
    OutcomeUnknown,
    Resource,
    WatchEvent,
    WatchEventType,
)
from extender.kube.forwarding import ApiCall, ForwardingApi
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


class FaultyApi(ForwardingApi):
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
        super().__init__(api)
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

    async def _forward(self, call: ApiCall, send: Callable[[], Coroutine[Any, Any, T]]) -> T:
        with self._failures_noted(call):
            return await self._call(
                _what(call),
                send(),
                write=call.verb != "get",
                lost=_lost(call),
                events_in=call.namespace if call.resource == EVENTS else None,
            )

    @contextmanager
    def _failures_noted(self, call: ApiCall) -> Iterator[None]:
        try:
            yield
        except (ApiError, asyncio.CancelledError):  # refused, or given up by who waited
            if call.verb == "patch" or call.resource == EVENTS:
                about = call.namespace if call.resource == EVENTS else call.name
                self.failed_at_s[call.resource.plural, about] = asyncio.get_running_loop().time()
            raise


def _bookmark(resource: Resource, reached: str) -> WatchEvent:
    """How far a watch had got."""
    metadata: Obj = {"resourceVersion": reached, "creationTimestamp": None}
    held = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
    return WatchEvent(WatchEventType.BOOKMARK, held)


def _what(call: ApiCall) -> str:
    if isinstance(call.body, Binding):
        return f"bind {call.name} to {call.body.node}"
    if call.verb == "create":
        return f"create {call.resource.plural}"
    subresource = f"/{call.subresource}" if call.subresource else ""
    return f"{call.verb} {call.resource.plural}/{call.name}{subresource}"


def _lost(call: ApiCall) -> str:
    """How losing the answer to such a call is called."""
    if call.verb in {"update", "patch"}:
        if call.resource == LEASES:
            return "lease_reply_lost"
        if call.subresource:
            return {"status": "status_reply_lost", "scale": "scale_reply_lost"}[call.subresource]
    return {"patch": "patch_reply_lost", "bind": "bind_reply_lost"}.get(call.verb, "reply_lost")
