"""Request bodies on their way into memory: how many at once, how fast each, how many bytes one and
all together.

Bytes are counted as they arrive, not as they are announced, so that a client which announces much
and sends nothing takes nothing from the others; and nobody waits for room, since two that wait for
each other's room would both be late. Where there is none, of the bodies that are not whole yet the
one furthest behind is given up for the new bytes; whoever is that itself is refused. A body is
whole or there is none.

What is not whole yet must keep coming: a sender may fall behind ``rate_min_bytes_s`` by
``lag_max_s``, and a burst earns no more than that. Only ``arriving_max`` bodies are waited for;
over it the one furthest behind is given up for the new one, so that clients which begin bodies and
stop keep nobody out, however many they are. kube-scheduler and the API server send a body at once;
one that is there before anybody waits for it takes no place.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, Protocol

from extender.model.errors import VReplicaError

JOINED_APART_BYTES: Final = 4 * 1024 * 1024
"""A millisecond each, for which nobody else would be served."""
_DUE: Final = attrgetter("due")
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
    """What the bodies of one server's requests may take: bytes in memory, and places while they
    arrive.
    """

    def __init__(self, bytes_max: int, limits: ArrivalLimits | None = None) -> None:
        self.bytes_max = bytes_max
        self.bytes_used = 0
        self._limits = limits or ArrivalLimits()
        self._arrivals: dict[_Arrival, None] = {}
        """In the order in which they began: a loop's clock has steps, and of equals the oldest must
        be the one to go.
        """

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

    def take(self, share: "BodyShare", size_bytes: int) -> None:
        """So many more of a share are in memory. Raises BodiesTooLarge: then they must not
        be kept.
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
        """A place for one body while it arrives, which whoever is furthest behind leaves if there
        is no other.

        Its timer runs from the moment that it is entered, which must be before anything is awaited.
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
    """One body that is waited for. ``due``: when it is given up if nothing more comes, in seconds
    of the loop's clock.
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
        if self._gives_way:  # it is over, unless the end of the body is there already
            return
        earned_s = size_bytes / self._limits.rate_min_bytes_s
        self.due = min(self.due + earned_s, self._time() + self._limits.lag_max_s)
        self.timer.reschedule(self.due)

    def excused(self) -> bool:
        """Whether the timer rang so late that this process must have been busy; then it runs anew,
        for more may be there to be read.
        """
        now = self._time()
        if self._gives_way or now - self.due < STALL_S:
            return False
        self.due = now + self._limits.lag_max_s
        self.timer = asyncio.timeout_at(self.due)
        return True

    def give_way(self, reason: str) -> None:
        """Another takes its place."""
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
            )  # it lets others run from a megabyte on
        finally:
            # What was not kept goes now, and not with the last frame of an error's traceback.
            self._parts.clear()

    def give_up(self) -> None:
        """Nothing of it is kept from now on; whoever reads it gets BodyTooSlow."""
        self._given_up = True
        self._parts.clear()
        self._budget.bytes_used -= self.bytes_used
        self.bytes_used = 0

    async def _wait(self, body: BodyStream, bytes_max: int) -> None:
        """Collects until the body is whole, here or in the stream."""
        with self._budget.place(self) as arrival:
            collected = False
            while not collected:
                try:
                    async with arrival.timer:
                        await self._collect(body, bytes_max, arrival.note)
                except TimeoutError as error:
                    if not arrival.timer.expired():
                        raise
                    # Where its end is in the stream, it came while this process was too busy to
                    # look.
                    if self._given_up or not (body.is_eof() or arrival.excused()):
                        raise BodyTooSlow(arrival.reason) from error
                    collected = body.is_eof()
                else:
                    collected = True
            if self._given_up:  # in the moment in which its end came
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
    """For a body that nothing is awaited of."""
