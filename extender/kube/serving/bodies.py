"""Limits for request bodies on their way into memory: how many at once, how fast each, and how many
bytes, each and together.

Bytes count when they arrive, not when they are announced. So a client that announces much and sends
nothing takes nothing from the others. Nobody waits for room, because two that wait for each other's
room would both be late. If there is no room for new bytes, the unfinished body that is furthest
behind is given up for them; if they belong to that very body, it is refused. A body is delivered
whole or not at all.

An unfinished body must keep coming: a sender may fall behind ``rate_min_bytes_s`` by ``lag_max_s``,
and a burst earns no more than that. Only ``arriving_max`` bodies are awaited. Beyond that the one
furthest behind is given up for the new one, so that clients that begin bodies and stop keep nobody
out, however many they are. kube-scheduler and the API server send a body at once. A body that is
there before anybody waits for it takes no place.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, Protocol

from extender.model.errors import VReplicaError

JOINED_APART_BYTES: Final = 4 * 1024 * 1024
"""Bodies of this size are joined in a thread: it takes a millisecond, in which nobody else would be
served.
"""
_DUE: Final = attrgetter("due")
STALL_S: Final = 0.1
"""A timer that fires so late shows that nothing was read meanwhile."""


class BodyTooLarge(VReplicaError):
    """One body is over its limit (413): the same request will never pass."""


class BodiesTooLarge(VReplicaError):
    """All bodies together are over theirs (503): the same request may pass in a moment."""


class BodyTooSlow(VReplicaError):
    """The rest of a body is no longer awaited (408)."""


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
    """Limits for the unfinished bodies."""

    arriving_max: int = 400
    """At once. The API server's default for its own mutating requests is 200."""
    lag_max_s: float = 1.0
    """Two packets lost one after the other cost 0.6 s."""
    rate_min_bytes_s: int = 64 * 1024


class BodyBudget:
    """What the bodies of one server's requests may take: bytes in memory, and places while they
    arrive.
    """

    def __init__(self, bytes_max: int, limits: ArrivalLimits | None = None) -> None:
        self.bytes_max = bytes_max
        self.bytes_used = 0
        self._limits = limits or ArrivalLimits()
        self._arrivals: dict[_Arrival, None] = {}
        """In the order in which they began: a loop's clock has steps, and the oldest of equals must
        go first.
        """

    @property
    def arriving(self) -> int:
        """Bodies that are awaited now."""
        return len(self._arrivals)

    @contextmanager
    def share(self) -> Iterator["BodyShare"]:
        """One request's share, given back at the end of the context."""
        share = BodyShare(self)
        try:
            yield share
        finally:
            self.bytes_used -= share.bytes_used

    def take(self, share: "BodyShare", size_bytes: int) -> None:
        """Count so many more bytes of a share. Raises BodiesTooLarge: then they must not be
        kept.
        """
        while self.bytes_used + size_bytes > self.bytes_max:
            furthest_behind = min(self._arrivals, key=_DUE, default=None)
            if furthest_behind is None or furthest_behind.share is share:
                raise BodiesTooLarge(
                    f"{self.bytes_used} bytes of request bodies are in memory already"
                )
            del self._arrivals[furthest_behind]
            furthest_behind.share.give_up()
            furthest_behind.give_way(
                "its bytes were needed for other bodies, and this one was the slowest"
            )
        self.bytes_used += size_bytes

    @contextmanager
    def place(self, share: "BodyShare") -> Iterator["_Arrival"]:
        """A place for one body while it arrives. If there is none, the body that is furthest behind
        loses its own.

        The caller must enter the timer of what this yields before it awaits anything.
        """
        if len(self._arrivals) >= self._limits.arriving_max:
            furthest_behind = min(self._arrivals, key=_DUE)
            del self._arrivals[furthest_behind]
            furthest_behind.give_way(
                f"{self._limits.arriving_max} bodies are awaited already, and this one was the "
                f"slowest"
            )
        arrival = _Arrival(share, self._limits)
        self._arrivals[arrival] = None
        try:
            yield arrival
        finally:
            self._arrivals.pop(arrival, None)


class _Arrival:
    """One body that is awaited. ``due``: the loop's time, in seconds, at which it is given up if
    nothing more comes.
    """

    def __init__(self, share: "BodyShare", limits: ArrivalLimits) -> None:
        self.share = share
        self._limits = limits
        self._time = asyncio.get_running_loop().time
        self.due = self._time() + limits.lag_max_s
        self.timer = asyncio.timeout_at(self.due)
        self.reason = (
            f"the body came at less than {limits.rate_min_bytes_s} bytes a second, or not at all"
        )
        self._gives_way = False

    def note(self, size_bytes: int) -> None:
        """So many bytes have come."""
        if self._gives_way:  # it is over, unless the body's end is there already
            return
        earned_s = size_bytes / self._limits.rate_min_bytes_s
        self.due = min(self.due + earned_s, self._time() + self._limits.lag_max_s)
        self.timer.reschedule(self.due)

    def excused(self) -> bool:
        """Whether the timer fired so late that this process must have been busy. Then it starts
        anew, because more may be there to be read.
        """
        now = self._time()
        if self._gives_way or now - self.due < STALL_S:
            return False
        self.due = now + self._limits.lag_max_s
        self.timer = asyncio.timeout_at(self.due)
        return True

    def give_way(self, reason: str) -> None:
        """Give its place up for another body."""
        if self.timer.expired():  # its reader is about to leave by itself
            return
        self._gives_way = True
        self.reason = reason
        self.timer.reschedule(self._time())


class BodyShare:
    """One request's part of a ``BodyBudget``."""

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self._parts: list[bytes] = []
        self._given_up = False
        self.bytes_used = 0

    async def read(self, body: BodyStream, *, bytes_max: int, announced: int | None) -> bytes:
        """The whole body. ``announced``: its Content-Length, in bytes.

        Raises BodyTooLarge, BodiesTooLarge, BodyTooSlow, and what the stream raises.
        """
        if (announced or 0) > bytes_max:
            raise BodyTooLarge(f"the body is larger than {bytes_max} bytes")
        try:
            if not body.is_eof():
                await self._wait(body, bytes_max)
            await self._collect(body, bytes_max, _ignore)
            if self.bytes_used < JOINED_APART_BYTES:
                return b"".join(self._parts)
            return await asyncio.to_thread(
                b"".join, self._parts
            )  # above a megabyte, join releases the GIL
        finally:
            # Free the parts now: an error's traceback would keep them.
            self._parts.clear()

    def give_up(self) -> None:
        """Keep nothing of it from now on. Its reader gets BodyTooSlow."""
        self._given_up = True
        self._parts.clear()
        self._budget.bytes_used -= self.bytes_used
        self.bytes_used = 0

    async def _wait(self, body: BodyStream, bytes_max: int) -> None:
        """Collect until the body is whole, here or in the stream."""
        with self._budget.place(self) as arrival:
            collected = False
            while not collected:
                try:
                    async with arrival.timer:
                        await self._collect(body, bytes_max, arrival.note)
                except TimeoutError as error:
                    if not arrival.timer.expired():
                        raise
                    # If its end is in the stream, it came while this process was too busy to look.
                    if self._given_up or not (body.is_eof() or arrival.excused()):
                        raise BodyTooSlow(arrival.reason) from error
                    collected = body.is_eof()
                else:
                    collected = True
            if self._given_up:  # given up just as its end came
                raise BodyTooSlow(arrival.reason)

    async def _collect(self, body: BodyStream, bytes_max: int, note: Callable[[int], None]) -> None:
        while part := await body.readany():
            if self._given_up:
                continue
            if self.bytes_used + len(part) > bytes_max:
                raise BodyTooLarge(f"the body is larger than {bytes_max} bytes")
            self._budget.take(self, len(part))
            self.bytes_used += len(part)
            self._parts.append(part)
            note(len(part))


def _ignore(_size_bytes: int) -> None:
    """The ``note`` for a body that is whole already."""
