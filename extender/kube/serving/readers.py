"""Answers for people and tools: made beside the main work, shared by all who ask at the time, and
sent within limits.

``SharedAnswers`` makes one answer at a time, in steps between which verbs are answered. A caller
gets the next answer that begins after its call. So an answer is never older than its question, and
many callers at once cost as much as one. After each answer there is a rest, so that repeated
questions take at most ``1 / (1 + REST)`` of the time. The number of waiting questions is limited.

``Sending`` limits what waits for readers. It sends a body in pieces, so that a connection holds one
piece and not a copy of the whole. The bodies under way are at most ``BODIES_BYTES_MAX`` together,
each counted once however many read it, and have at most ``SENDING_MAX`` readers. Beyond that the
reader that began first is cut for the new one. If that one, too, has just begun, the new one is
refused.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from aiohttp import web

from extender.model.errors import VReplicaError

log: Final = logging.getLogger(__name__)

Key = TypeVar("Key")
Result = TypeVar("Result")

WAITING_MAX: Final = 16
"""Answers that may wait to begin. The ``general`` question is never refused for it."""
ASKED_MAX: Final = 256
"""Callers that wait for any answer. A client that leaves goes on waiting: aiohttp lets a handler
end.
"""
REST: Final = 3.0
"""The pause after an answer, as a multiple of the time that it took to make."""
SENDING_MAX: Final = 64
BODIES_BYTES_MAX: Final = 32 * 1024 * 1024
PIECE_BYTES: Final = 64 * 1024
"""What aiohttp writes before it waits for the client."""
PATIENCE_S: Final = 1.0
"""How long a reader has before it may be cut."""
RETRY_AFTER_S: Final = 1


async def in_steps(steps: Generator[None, None, Result]) -> Result:
    """Run ``steps`` and return its result. Other tasks run between the steps."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: Result = done.value
            return result
        await asyncio.sleep(0)


def ask_again(text: str, retry_after_s: int = RETRY_AFTER_S) -> web.Response:
    """503: ``text`` says why not now, Retry-After when to come back."""
    headers = {"Retry-After": str(retry_after_s)}
    return web.Response(status=503, text=text + "\n", headers=headers)


class TooManyAsk(VReplicaError):
    """So many wait for answers that this question is refused (503). It may be asked again in a
    moment.
    """


class SharedAnswers(Generic[Key]):
    """Answers by what is asked for. ``make`` runs once at a time; if it raises, all who wait for
    that answer get the error.

    ``general``: the question that finds a place however many others wait.
    """

    def __init__(self, make: Callable[[Key], Awaitable[bytes]], *, general: Key) -> None:
        self._make = make
        self._general = general
        self._next: dict[Key, asyncio.Task[bytes]] = {}
        """Answers that have not begun."""
        self._asked = 0
        """Callers that wait."""
        self._turn = asyncio.Lock()
        self._rested_at = 0.0

    async def get(self, key: Key) -> bytes:
        """Return an answer that begins after this call. Raises TooManyAsk."""
        made = self._next.get(key)
        is_one_too_many = made is None and key != self._general and len(self._next) >= WAITING_MAX
        if is_one_too_many or self._asked >= ASKED_MAX:
            raise TooManyAsk("too many ask at once; ask again in a moment")
        if made is None:
            made = self._next[key] = asyncio.create_task(self._make_next(key), name="shared answer")
            made.add_done_callback(_note_end)
        self._asked += 1
        try:
            # A cancelled caller does not cancel it for the others.
            return await asyncio.shield(made)
        finally:
            self._asked -= 1

    @property
    def waiting(self) -> int:
        """Answers that have not begun."""
        return len(self._next)

    async def _make_next(self, key: Key) -> bytes:
        clock = asyncio.get_running_loop().time
        async with self._turn:
            await asyncio.sleep(max(0.0, self._rested_at - clock()))
            del self._next[key]
            began = clock()
            try:
                return await self._make(key)
            finally:
                self._rested_at = clock() + REST * (clock() - began)


def _note_end(made: "asyncio.Task[bytes]") -> None:
    if not made.cancelled():
        made.exception()  # retrieved, so that asyncio does not log it


@dataclass(frozen=True, slots=True, eq=False)
class _Reader:
    transport: asyncio.Transport | None
    since: float
    """When it began, by the loop's clock."""
    body: bytes


class Sending:
    """Bodies on their way to readers."""

    def __init__(
        self, *, sending_max: int = SENDING_MAX, bodies_bytes_max: int = BODIES_BYTES_MAX
    ) -> None:
        self._sending_max = sending_max
        self._bodies_bytes_max = bodies_bytes_max
        self._readers: dict[_Reader, None] = {}
        """Oldest first."""
        self._bodies: Counter[int] = Counter()
        """Readers of each body, by its identity."""
        self.bytes_used = 0

    async def send(self, request: web.Request, answer: web.StreamResponse) -> web.StreamResponse:
        """Return the answer; a long one is sent already. 503 if too much waits for other
        readers.
        """
        body = answer.body if isinstance(answer, web.Response) and not answer.prepared else None
        if not isinstance(body, bytes) or len(body) <= PIECE_BYTES or request.method == "HEAD":
            return answer
        if not self._make_room(0 if id(body) in self._bodies else len(body)):
            return ask_again("too many read at once; try again")
        reader = self._begin(request, body)
        response = web.StreamResponse(status=answer.status, headers=answer.headers)
        response.content_length = len(body)
        try:
            await response.prepare(request)
            view = memoryview(body)
            for start in range(0, len(body), PIECE_BYTES):
                await response.write(view[start : start + PIECE_BYTES])
            await response.write_eof()
        except ConnectionError:
            log.debug("a reader has left, or had to")
        finally:
            self._end(reader)
        return response

    def _make_room(self, size_bytes: int) -> bool:
        now = asyncio.get_running_loop().time()
        while self._readers and (
            len(self._readers) >= self._sending_max
            or self.bytes_used + size_bytes > self._bodies_bytes_max
        ):
            oldest = next(iter(self._readers))
            if now - oldest.since < PATIENCE_S:
                return False
            self._end(oldest)
            if oldest.transport is not None:
                oldest.transport.abort()
        return True

    def _begin(self, request: web.BaseRequest, body: bytes) -> _Reader:
        reader = _Reader(request.transport, asyncio.get_running_loop().time(), body)
        self._readers[reader] = None
        self._bodies[id(body)] += 1
        if self._bodies[id(body)] == 1:
            self.bytes_used += len(body)
        return reader

    def _end(self, reader: _Reader) -> None:
        if reader not in self._readers:  # it was cut for another
            return
        del self._readers[reader]
        body = reader.body
        self._bodies[id(body)] -= 1
        if not self._bodies[id(body)]:
            del self._bodies[id(body)]
            self.bytes_used -= len(body)
