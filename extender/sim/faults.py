"""Faults: what networks, API servers and machines do to a process, decided by a seeded ``random.Random``.

``FaultyApi`` stands between one process and the API server, ``FaultyTransport`` between kube-scheduler and an extender::

    request --delay--> refused (409, 422, 429, 500)      nothing happened
                       lost on its way                   nothing happened, the caller learns OutcomeUnknown
                       served --> answer lost            it happened,      the caller learns OutcomeUnknown
                                  answer --delay-->      it happened, and is known to have
    watch   --lag----> events late, doubled, cut off, or ended by 410

Rates are probabilities of one call or one event; ``Faults.rates`` may be replaced at any time, ``CALM`` ends all faults
but leaves a small delay, so that things still overlap.

A *crash* is a SIGKILL: from that moment every call, also one under way, raises ``Crashed``. It is no Exception, so no
handler of the code under test mistakes it for an answer; what clean-up runs all the same cannot reach the API server any more.
A write that was under way has happened or not, depending on where it was.
"""

import random
from asyncio import sleep
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from extender.kube.api import (
    EVERYWHERE,
    Api,
    ApiError,
    Binding,
    Conflict,
    Expired,
    Invalid,
    ListOptions,
    ListPage,
    Obj,
    OutcomeUnknown,
    PatchType,
    Preconditions,
    Resource,
    TooManyRequests,
    WatchEvent,
)
from extender.sim.scheduler.extender_transport import TIMED_OUT, Transport, TransportError

T = TypeVar("T")

ACTOR: Final[ContextVar[str]] = ContextVar("ACTOR", default="")
"""Who is writing, for subscribers of the store: the name of the ``FaultyApi`` whose call is being served."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRates:
    """Probabilities, 0 to 1, and delays, seconds."""

    refused: float = 0.0
    """A call is answered 409, 422 (writes), 429 or 500 and has no effect."""
    lost_before: float = 0.0
    lost_after: float = 0.0
    slow: float = 0.0
    """A call or an event takes up to ``slow_max_s``, both ways."""
    watch_cut: float = 0.0
    """A watch ends instead of an event, which is not lost but told by the next watch."""
    watch_expired: float = 0.0
    event_doubled: float = 0.0
    repeated: float = 0.0
    """An extender call is sent twice, and the second answer counts."""
    delay_mean_s: float = 0.002
    slow_max_s: float = 3.0


CALM: Final = FaultRates()


class Crashed(BaseException):
    """The process is dead: nothing that it still does reaches the outside."""


class Faults:
    """The dice. ``counts`` says how often each fault fell."""

    def __init__(self, rng: random.Random, rates: FaultRates = CALM) -> None:
        self.rng = rng
        self.rates = rates
        self.counts: Counter[str] = Counter()

    def hits(self, what: str, probability: float) -> bool:
        """Whether the fault ``what`` happens now."""
        if probability <= 0.0 or self.rng.random() >= probability:
            return False
        self.counts[what] += 1
        return True

    async def delay(self) -> None:
        """One way through the network."""
        await sleep(self._delay_s())

    def _delay_s(self) -> float:
        if self.hits("slow", self.rates.slow):
            return self.rng.uniform(0.0, self.rates.slow_max_s)
        return self.rng.expovariate(1.0 / self.rates.delay_mean_s)

    def refusal(self, *, write: bool) -> ApiError | None:
        """The error that a call gets instead of being served, if any."""
        if self.hits("refused", self.rates.refused):
            kinds: list[ApiError] = [
                TooManyRequests(429, "TooManyRequests", "injected: too many requests", retry_after_s=1.0),
                ApiError(500, "InternalError", "injected: internal error"),
                ApiError(503, "ServiceUnavailable", "injected: etcd has no leader"),
            ]
            if write:
                kinds += [
                    Conflict(409, "Conflict", "injected: the object has been modified"),
                    Invalid(422, "Invalid", "injected: the server rejected our request"),
                ]
            return self.rng.choice(kinds)
        if self.hits("lost before", self.rates.lost_before):
            return OutcomeUnknown(0, "Timeout", "injected: the request was lost")
        return None


class FaultyApi:
    """``Api`` as one process sees it. ``actor`` names the process; ``record`` gets one line a call for the trace."""

    def __init__(
        self, api: Api, faults: Faults, *, actor: str, record: Callable[[str], None] = lambda _line: None
    ) -> None:
        self._api = api
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

    def crash(self) -> None:
        """SIGKILL, now."""
        if not self.crashed:
            self.crashed = True
            self._record(f"{self._actor} crashed")
            self.on_crash()

    def _alive(self) -> None:
        if self.crashed:
            raise Crashed(self._actor)

    def _crash_if_due(self, number: int, *, after_effect: bool) -> None:
        if number == self.crash_at_call and after_effect is self.crash_after_effect:
            self.crash()
        self._alive()

    async def _call(self, what: str, served: Coroutine[Any, Any, T], *, write: bool = True) -> T:
        """``served``, with whatever happens to it on the way there and back."""
        try:
            number = await self._send(what, write=write)
        except BaseException:
            served.close()
            raise
        try:
            reply = await self._serve(what, served)
        finally:
            self._crash_if_due(number, after_effect=True)
        await self._faults.delay()
        self._alive()
        if self._faults.hits("lost after", self._faults.rates.lost_after):
            raise OutcomeUnknown(0, "Timeout", "injected: the answer was lost")
        return reply

    async def _send(self, what: str, *, write: bool) -> int:
        """The way there: the call's number, once it has arrived. Raises Crashed, and ApiError where it is not served."""
        self._alive()
        self.calls += 1
        number = self.calls
        await self._faults.delay()
        self._crash_if_due(number, after_effect=False)
        refusal = self._faults.refusal(write=write)
        if refusal is not None:
            self._record(f"{self._actor} {what} {refusal.reason}, injected")
            raise refusal
        return number

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
        page = self._api.list_page(
            resource, options, limit=limit, continue_token=continue_token, resource_version=resource_version
        )
        return await self._call(f"list {resource.plural}", page, write=False)

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
        stream = self._api.watch(resource, options, resource_version=resource_version, timeout_s=timeout_s)
        try:
            async for event in stream:
                await self._faults.delay()
                self._alive()
                self._interrupt()
                yield event
                if self._faults.hits("event doubled", self._faults.rates.event_doubled):
                    yield event
        finally:
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()

    def _interrupt(self) -> None:
        """End a watch, perhaps."""
        rates = self._faults.rates
        if self._faults.hits("watch expired", rates.watch_expired):
            raise Expired(410, "Expired", "injected: too old resource version")
        if self._faults.hits("watch cut", rates.watch_cut):
            raise OutcomeUnknown(0, "ConnectionReset", "injected: the watch was cut off")

    async def get(self, resource: Resource, namespace: str, name: str, *, subresource: str = "") -> Obj:
        """``Api.get``."""
        served = self._api.get(resource, namespace, name, subresource=subresource)
        return await self._call(_what("get", resource, name, subresource), served, write=False)

    async def create(self, resource: Resource, namespace: str, obj: Obj) -> Obj:
        """``Api.create``."""
        return await self._call(f"create {resource.plural}", self._api.create(resource, namespace, obj))

    async def update(
        self, resource: Resource, namespace: str, name: str, obj: Obj, *, subresource: str = ""
    ) -> Obj:
        """``Api.update``."""
        served = self._api.update(resource, namespace, name, obj, subresource=subresource)
        return await self._call(_what("update", resource, name, subresource), served)

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
        return await self._call(_what("patch", resource, name, subresource), served)

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
        await self._call(f"bind {binding.name} to {binding.node}", self._api.bind(binding))


def _what(verb: str, resource: Resource, name: str, subresource: str) -> str:
    return f"{verb} {resource.plural}/{name}" + (f"/{subresource}" if subresource else "")


Answer = tuple[int, bytes]
OnRepeated = Callable[[str, bytes, Answer, Answer], None]


class FaultyTransport:
    """A ``Transport`` whose calls are lost on their way, lose their answers, or are sent twice.

    ``on_repeated(url, body, first, second)`` is told both answers of a call that was sent twice.
    """

    def __init__(self, transport: Transport, faults: Faults, *, on_repeated: OnRepeated) -> None:
        self._transport = transport
        self._faults = faults
        self._on_repeated = on_repeated

    async def __call__(self, url: str, body: bytes, timeout_s: float) -> Answer:
        """POST, perhaps. Raises TransportError."""
        rates = self._faults.rates
        if self._faults.hits("extender call lost", rates.lost_before):
            await sleep(timeout_s)
            raise TransportError(TIMED_OUT)
        await self._faults.delay()
        answer = await self._transport(url, body, timeout_s)
        if self._faults.hits("extender call repeated", rates.repeated):
            again = await self._transport(url, body, timeout_s)
            self._on_repeated(url, body, answer, again)
            answer = again
        if self._faults.hits("extender answer lost", rates.lost_after):
            await sleep(timeout_s)
            raise TransportError(TIMED_OUT)
        return answer
