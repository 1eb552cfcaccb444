"""Answers for people and tools: made beside the work, shared by all who ask meanwhile, and sent
within bounds.

``SharedAnswers`` makes one answer at a time, in steps between which verbs are answered. Who asks
gets the next one that is begun, so an answer is never older than its question, and many who ask at
once cost as much as one. After each there is a rest, so that readers who ask again and again take
``1 / (1 + REST)`` of the time and no more. What waits is bounded.

``Sending`` bounds what waits for its readers. A body is sent in pieces, so that a connection holds
a piece of its own and not a copy of the whole; bodies that are being sent are ``BODIES_BYTES_MAX``
together, each counted once however many read it, to ``SENDING_MAX`` readers. Over it who has been
at it for longest is cut for the new one, or, where all have just begun, the new one is refused.
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
"""Answers that are not begun yet, of those that are narrowed to something."""
ASKED_MAX: Final = 256
"""Who waits for any of them. Whoever goes away waits on: aiohttp lets a handler end."""
REST: Final = 3.0
"""Of the time that an answer took to make; so long none is made."""
SENDING_MAX: Final = 64
BODIES_BYTES_MAX: Final = 32 * 1024 * 1024
PIECE_BYTES: Final = 64 * 1024
"""What aiohttp writes before it waits for the client."""
PATIENCE_S: Final = 1.0
"""How long a reader has before it gives way."""
RETRY_AFTER_S: Final = 1


async def in_steps(steps: Generator[None, None, Result]) -> Result:
    """What ``steps`` returns; others run between them."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: Result = done.value
            return result
        await asyncio.sleep(0)


def ask_again(text: str, retry_after_s: int = RETRY_AFTER_S) -> web.Response:
    """503: ``text`` says why not now, the header when to come back."""
    headers = {"Retry-After": str(retry_after_s)}
    return web.Response(status=503, text=text + "\n", headers=headers)


class TooManyAsk(VReplicaError):
    """So many wait for their answers that this question is refused (503): it may be asked again in
    a moment.
    """


class SharedAnswers(Generic[Key]):
    """Answers by what is asked for. ``make`` runs once at a time; what it raises all who wait for
    it get.

    ``general``: the question that always finds a place among those that wait, whatever else is
    asked.
    """

    def __init__(self, make: Callable[[Key], Awaitable[bytes]], *, general: Key) -> None:
        self._make = make
        self._general = general
        self._next: dict[Key, asyncio.Task[bytes]] = {}
        """Those that are not begun yet."""
        self._asked = 0
        """Who waits."""
        self._turn = asyncio.Lock()
        self._rested_at = 0.0

    async def get(self, key: Key) -> bytes:
        """An answer that is begun after this call. Raises TooManyAsk."""
        made = self._next.get(key)
        is_one_too_many = made is None and key != self._general and len(self._next) >= WAITING_MAX
        if is_one_too_many or self._asked >= ASKED_MAX:
            raise TooManyAsk("too many ask at once; ask again in a moment")
        if made is None:
            made = self._next[key] = asyncio.create_task(self._make_next(key), name="shared answer")
            made.add_done_callback(_note_end)
        self._asked += 1
        try:
            # Who leaves takes nothing from the others.
            return await asyncio.shield(made)
        finally:
            self._asked -= 1

    @property
    def waiting(self) -> int:
        """Answers that are not begun yet."""
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
        made.exception()  # all who asked may have gone


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
        """The oldest first."""
        self._bodies: Counter[int] = Counter()
        """Readers of each body, by its identity."""
        self.bytes_used = 0

    async def send(self, request: web.Request, answer: web.StreamResponse) -> web.StreamResponse:
        """The answer, sent if it is long; 503 where too much waits for other readers."""
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
        if reader not in self._readers:  # it has given way
            return
        del self._readers[reader]
        body = reader.body
        self._bodies[id(body)] -= 1
        if not self._bodies[id(body)]:
            del self._bodies[id(body)]
            self.bytes_used -= len(body)
