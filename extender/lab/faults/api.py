"""``FaultyApi``: the ``Api`` of one process, with faults on the way to the server and back."""

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
"""The name of the ``FaultyApi`` whose call is being served, for subscribers of the store."""
OldLists = Callable[[Resource, ListOptions], Coroutine[Any, Any, ListPage | None]]
"""Returns a kind as it was some seconds ago, in one page; None if that is not kept."""
HUNG_S: Final = 3600.0
"""Longer than anybody waits for a watch."""
BOOKMARKS: Final = 4


class Crashed(BaseException):
    """The process is dead. Nothing that it still does reaches the outside."""


class FaultyApi(ForwardingApi):
    """The ``Api`` of one process. ``actor`` names the process. ``record`` gets one line for each
    call, for the trace.
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
        """The calls so far, without watches."""
        self.crashed = False
        self.crash_at_call: int | None = None
        """Crash at the call of this number; the first is 1."""
        self.crash_after_effect = False
        """Crash after that call was served, not before."""
        self.on_crash: Callable[[], None] = lambda: None
        self.listed_at_s: dict[str, float] = {}
        """Plural -> loop time when this process last got the first page of a list."""
        self.failed_at_s: dict[tuple[str, str], float] = {}
        """(plural, name) -> loop time when a patch of the object last failed, as far as this
        process knows. For events: (plural, namespace), for any write in the namespace.
        """

    def crash(self) -> None:
        """Kill the process (SIGKILL)."""
        if not self.crashed:
            self.crashed = True
            self._record(f"{self._actor} crashed")
            self.on_crash()

    def lose_under_way(self) -> None:
        """Let calls under way never arrive, unless they were served already."""
        for way in list(self._under_way):
            way.cancel()

    def _alive(self) -> None:
        if self.crashed:
            raise Crashed(self._actor)

    def _crash_if_due(self, number: int, *, after_effect: bool) -> None:
        """Crash if this is the call at which the process should crash. A call that is under way
        when its process crashes otherwise still arrives.
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
        """Await ``served``, with faults on the way to the server and back. ``lost`` is the kind of
        fault that loses its answer.

        ``events_in``: the namespace of the event that is written; None if the call writes no event.

        A call under way does not belong to the process. It arrives even if the process is paused or
        no longer waits.
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
            # It was perhaps lost before it began.
            served.close()
        else:
            # The waiting caller got the error. If there is no caller any more, this marks it as
            # seen.
            way.exception()

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
        """Send the call. Return its number once it has arrived. Raises Crashed, or the ApiError of
        a call that is not served.
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
        """Return an old list for the first list of a kind, which the cache of any API server may
        answer. Later lists are current.
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
        """Wait before an event, perhaps. Return whether bookmarks come meanwhile."""
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
        # The call was refused, or its caller no longer waits.
        try:
            yield
        except (ApiError, asyncio.CancelledError):
            if call.verb == "patch" or call.resource == EVENTS:
                about = call.namespace if call.resource == EVENTS else call.name
                self.failed_at_s[call.resource.plural, about] = asyncio.get_running_loop().time()
            raise


def _bookmark(resource: Resource, reached: str) -> WatchEvent:
    """Return a bookmark with the version that the watch has reached."""
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
    """Return the kind of fault that loses the answer to such a call."""
    if call.verb in {"update", "patch"}:
        if call.resource == LEASES:
            return "lease_reply_lost"
        if call.subresource:
            return {"status": "status_reply_lost", "scale": "scale_reply_lost"}[call.subresource]
    return {"patch": "patch_reply_lost", "bind": "bind_reply_lost"}.get(call.verb, "reply_lost")
