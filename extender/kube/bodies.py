"""Request bodies on their way into memory: how many at once, how fast each, how many bytes one and all together.

Bytes are counted as they arrive, not as they are announced, so that a client which announces much and sends nothing
takes nothing from the others; and nobody waits for room: who would go beyond it is refused, since two that wait for each
other's room would both be late. A body is whole or there is none.

What is not whole yet must keep coming: a sender may fall behind ``rate_min_bytes_s`` by ``lag_max_s``, and a burst earns no
more than that. Only ``arriving_max`` bodies are waited for; over it the one furthest behind is given up for the new
one, so that clients which begin bodies and stop keep nobody out, however many they are. kube-scheduler and the API server
send a body at once; one that is there before anybody waits for it takes no place.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, Protocol

from extender.core.errors import VReplicaError

STALL_S: Final = 0.1
"""A timer that rings so late says that nothing was read meanwhile."""


class BodyTooLarge(VReplicaError):
    """One body is over its limit (413): the same request will never pass."""


class BodiesTooLarge(VReplicaError):
    """All bodies together are over theirs (503): the same request may pass in a moment."""


class BodyTooSlow(VReplicaError):
    """The rest of a body is waited for no longer (408)."""


class BodyStream(Protocol):
    """A body as it arrives: aiohttp's ``StreamReader``."""

    def is_eof(self) -> bool:
        """Whether all of it has arrived, read or not."""
        ...

    async def readany(self) -> bytes:
        """What is there, at least a byte; empty at the end."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalLimits:
    """Bounds of the bodies that are not whole yet."""

    arriving_max: int = 400
    """At once. The API server's default for its own mutating requests is 200."""
    lag_max_s: float = 1.0
    """Two packets lost one after the other cost 0.6 s."""
    rate_min_bytes_s: int = 64 * 1024


class BodyBudget:
    """What the bodies of one server's requests may take: bytes in memory, and places while they arrive."""

    def __init__(self, bytes_max: int, limits: ArrivalLimits | None = None) -> None:
        self.bytes_max = bytes_max
        self.bytes_used = 0
        self._limits = limits or ArrivalLimits()
        self._arrivals: dict[_Arrival, None] = {}
        """In the order in which they began: a loop's clock has steps, and of equals the oldest must be the one to go."""

    @property
    def arriving(self) -> int:
        """Bodies that are waited for now."""
        return len(self._arrivals)

    @contextmanager
    def share(self) -> Iterator["BodyShare"]:
        """One request's share, which is given back at the end of the context."""
        share = BodyShare(self)
        try:
            yield share
        finally:
            self.bytes_used -= share.bytes_used

    def take(self, size_bytes: int) -> None:
        """So many more are in memory. Raises BodiesTooLarge: then they must not be kept."""
        if self.bytes_used + size_bytes > self.bytes_max:
            raise BodiesTooLarge(f"{self.bytes_used} bytes of request bodies are in memory already")
        self.bytes_used += size_bytes

    @contextmanager
    def place(self) -> Iterator["_Arrival"]:
        """A place for one body while it arrives, which whoever is furthest behind leaves if there is no other.

        Its timer runs from the moment that it is entered, which must be before anything is awaited.
        """
        if len(self._arrivals) >= self._limits.arriving_max:
            furthest_behind = min(self._arrivals, key=attrgetter("due"))
            del self._arrivals[furthest_behind]
            furthest_behind.give_way()
        arrival = _Arrival(self._limits)
        self._arrivals[arrival] = None
        try:
            yield arrival
        finally:
            self._arrivals.pop(arrival, None)


class _Arrival:
    """One body that is waited for. ``due``: when it is given up if nothing more comes, in seconds of the loop's clock."""

    def __init__(self, limits: ArrivalLimits) -> None:
        self._limits = limits
        self._time = asyncio.get_running_loop().time
        self.due = self._time() + limits.lag_max_s
        self.timer = asyncio.timeout_at(self.due)
        self.reason = f"the body came at less than {limits.rate_min_bytes_s} bytes a second, or not at all"
        self._gives_way = False

    def note(self, size_bytes: int) -> None:
        """So many bytes have come."""
        if self._gives_way:  # it is over, unless the end of the body is there already
            return
        earned_s = size_bytes / self._limits.rate_min_bytes_s
        self.due = min(self.due + earned_s, self._time() + self._limits.lag_max_s)
        self.timer.reschedule(self.due)

    def excused(self) -> bool:
        """Whether the timer rang so late that this process must have been busy; then it runs anew, for more may be there to be read."""
        now = self._time()
        if self._gives_way or now - self.due < STALL_S:
            return False
        self.due = now + self._limits.lag_max_s
        self.timer = asyncio.timeout_at(self.due)
        return True

    def give_way(self) -> None:
        """Another takes its place."""
        if self.timer.expired():  # its reader is about to leave by itself
            return
        self._gives_way = True
        self.reason = f"{self._limits.arriving_max} bodies are awaited already, and this one was the slowest"
        self.timer.reschedule(self._time())


class BodyShare:
    """One request's part of a ``BodyBudget``."""

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self.bytes_used = 0

    async def read(self, body: BodyStream, *, bytes_max: int, announced: int | None) -> bytes:
        """The whole body. ``announced``: its Content-Length, in bytes.

        Raises BodyTooLarge, BodiesTooLarge, BodyTooSlow, and what the stream raises.
        """
        if (announced or 0) > bytes_max:
            raise BodyTooLarge(f"the body is larger than {bytes_max} bytes")
        parts: list[bytes] = []
        try:
            if not body.is_eof():
                await self._wait(body, parts, bytes_max)
            await self._collect(body, parts, bytes_max, _ignore)
            return b"".join(parts)
        finally:
            parts.clear()  # what was not kept goes now, and not with the last frame of an error's traceback

    async def _wait(self, body: BodyStream, parts: list[bytes], bytes_max: int) -> None:
        """Collects until the body is whole, in ``parts`` or in the stream."""
        with self._budget.place() as arrival:
            collected = False
            while not collected:
                try:
                    async with arrival.timer:
                        await self._collect(body, parts, bytes_max, arrival.note)
                except TimeoutError as error:
                    if not arrival.timer.expired():
                        raise
                    # Where its end is in the stream, it came while this process was too busy to look.
                    if not (body.is_eof() or arrival.excused()):
                        raise BodyTooSlow(arrival.reason) from error
                    collected = body.is_eof()
                else:
                    collected = True

    async def _collect(
        self, body: BodyStream, parts: list[bytes], bytes_max: int, note: Callable[[int], None]
    ) -> None:
        while part := await body.readany():
            if self.bytes_used + len(part) > bytes_max:
                raise BodyTooLarge(f"the body is larger than {bytes_max} bytes")
            self._budget.take(len(part))
            self.bytes_used += len(part)
            parts.append(part)
            note(len(part))


def _ignore(_size_bytes: int) -> None:
    """For a body that nothing is awaited of."""
