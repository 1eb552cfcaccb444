"""``LineStreams``: answers that go on. Each is JSON lines: what is so now, then what is newer.

.. code-block:: text

    a cache changes --> changed(subject) --> the streams of that subject wake
                                                      |
                    write the newest line, wait until its reader has room for more, look again

A stream keeps no queue. It asks for the newest line when it may write, so a slow reader misses
lines in between. Some 200 KiB may be on their way to a reader; when it takes nothing of that for
``ConnectionLimits.write_timeout_s``, its connection is cut. An empty line each ``KEEPALIVE_S``
shows the reader that this replica is there. A peer that is gone without a word is noticed by the
kernel, after ``UNACKNOWLEDGED_MS``.

A stream ends when its subject does, when its caller may no longer ask, when the service stops, and
after ``STREAM_MAX_S``: the caller comes again with the token that it has then. An owner has at most
``of_owner_max`` streams: one more ends the oldest, which most often is a connection that its owner
has forgotten.

An open stream costs some 52 KiB of memory, most of it for TLS and aiohttp's request. It would be
290 KiB with the buffer that asyncio keeps for reads (``keep_little``).
"""

import asyncio
import random
from collections import Counter
from typing import Final, Protocol

from aiohttp import web

from extender.kube.serving.guard import GUARD
from extender.kube.serving.readers import ask_again
from extender.kube.serving.sockets import keep_little

KEEPALIVE_S: Final = 10.0
STREAM_MAX_S: Final = 3600.0
RETRY_AFTER_S: Final = 5
LEFT, OWNER, SUBJECT, AGE, STOPPING, REFUSED = (
    "client left",
    "too many of one owner",
    "subject ended",
    "age",
    "stopping",
    "too many",
)
END_REASONS: Final = (LEFT, OWNER, SUBJECT, AGE, STOPPING, REFUSED)
HEADERS: Final = {
    "Content-Type": "application/jsonl",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
}


class News(Protocol):
    """What one stream tells. Both methods touch only memory."""

    def take(self) -> bytes:
        """The newest line, with its line break; empty if it was taken before."""
        ...

    def ended(self) -> bool:
        """Whether there will be no more, or the caller may no longer ask."""
        ...


class _Stream:
    """An open stream. ``subject``: whose changes wake it. ``owner``: whom it counts for."""

    def __init__(self, subject: str, owner: str) -> None:
        self.subject = subject
        self.owner = owner
        self.why_ended = ""
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Look for news."""
        self._wake.set()

    def end(self, reason: str) -> None:
        """End soon."""
        self.why_ended = self.why_ended or reason
        self._wake.set()

    async def changed(self) -> bool:
        """Wait until it is woken. False after ``KEEPALIVE_S``."""
        try:
            async with asyncio.timeout(KEEPALIVE_S):
                await self._wake.wait()
        except TimeoutError:
            return False
        self._wake.clear()
        return True


class LineStreams:
    """All streams of one kind, at most ``streams_max`` at once."""

    def __init__(self, *, of_owner_max: int, streams_max: int, rng: random.Random) -> None:
        self._of_owner_max = of_owner_max
        self._streams_max = streams_max
        self._rng = rng
        self._by_subject: dict[str, dict[_Stream, None]] = {}
        self._by_owner: dict[str, dict[_Stream, None]] = {}
        """Oldest first."""
        self.open = 0
        self.ended: Counter[str] = Counter(dict.fromkeys(END_REASONS, 0))
        """By ``END_REASONS``."""
        self._stopping = False

    def changed(self, subject: str) -> None:
        """Tell the streams of a subject what is new."""
        for stream in self._by_subject.get(subject, ()):
            stream.wake()

    def all_changed(self) -> None:
        """Have all streams look."""
        for subject in self._by_subject:
            self.changed(subject)

    def stop(self) -> None:
        """End all streams, and begin no more."""
        self._stopping = True
        for streams in self._by_subject.values():
            for stream in streams:
                stream.end(STOPPING)

    async def serve(
        self, request: web.Request, news: News, *, subject: str, owner: str
    ) -> web.StreamResponse:
        """Stream until the end. 503 if too many are open."""
        if self._stopping:
            return ask_again("shutting down")
        if self.open >= self._streams_max:
            self.ended[REFUSED] += 1
            return ask_again(f"{self.open} streams are open already", RETRY_AFTER_S)
        stream = self._enter(_Stream(subject, owner))
        request[GUARD].on_closed = lambda: stream.end(LEFT)
        response = web.StreamResponse(headers=HEADERS)
        try:
            await response.prepare(request)
            keep_little(request.transport)
            await self._send(response, stream, news)
            await response.write_eof()
        except ConnectionError:
            stream.end(LEFT)
        finally:
            self._leave(stream)
        return response

    async def _send(self, response: web.StreamResponse, stream: _Stream, news: News) -> None:
        clock = asyncio.get_running_loop().time
        until = clock() + STREAM_MAX_S * (0.75 + self._rng.random() / 4)
        is_due = True
        while not stream.why_ended:
            if news.ended():
                stream.end(SUBJECT)
                return
            if clock() >= until:
                stream.end(AGE)
                return
            if line := news.take() or (b"\n" if is_due else b""):
                await response.write(line)
            is_due = not await stream.changed()

    def _enter(self, stream: _Stream) -> _Stream:
        of_owner = self._by_owner.setdefault(stream.owner, {})
        if len(of_owner) >= self._of_owner_max:
            oldest = next(iter(of_owner))
            del of_owner[oldest]
            oldest.end(OWNER)
        of_owner[stream] = None
        self._by_subject.setdefault(stream.subject, {})[stream] = None
        self.open += 1
        return stream

    def _leave(self, stream: _Stream) -> None:
        self.open -= 1
        self.ended[stream.why_ended or STOPPING] += 1
        for known, key in ((self._by_owner, stream.owner), (self._by_subject, stream.subject)):
            if (streams := known.get(key)) is not None:
                streams.pop(stream, None)
                if not streams:
                    del known[key]
