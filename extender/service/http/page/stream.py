"""``GET /v1/stream?pool=NAMESPACE/NAME``: the state as server-sent events: all of it once, then
what changes.

.. code-block:: text

    event: snapshot     data: {section: {key: record}}     as in ``records``
    event: news         data: {section: {key: record, or null for one that is gone}}, at most two
                        a second
    : a comment         each ``KEEPALIVE_S``, so that proxies keep the connection and a browser
                        notices when this replica is gone

Streams of the same pool share a *feed*. It examines and encodes the state once, however many
listeners it has, and stops when it has none. A feed looks each ``PERIOD_S``, or less often if
looking takes more than ``SHARE_OF_TIME``. All changes in between are one event. Each listener has a
short queue of encoded events. If a client does not take them in time, its stream is cut, by this
queue or by its socket in ``kube.serving.listener``, and its browser begins again with a snapshot.

    State --look--> Facts --news, encoded once--> queue of each listener --> its socket

Without ``pool``, a stream has only the service and the counts of all pools. For pools of another
leader, and in shadow mode, it shows what this replica has seen; ``leads`` and ``shadow`` say so.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

import orjson
from aiohttp import web

from extender.kube.serving.readers import ask_again
from extender.service.http.page.facts import Facts, News

log: Final = logging.getLogger(__name__)

PERIOD_S: Final = 0.5
SHARE_OF_TIME: Final = 0.05
STREAMS_MAX: Final = 32
QUEUE_ITEMS_MAX: Final = 16
"""Events that a client has not taken yet: some eight seconds of a state that always changes."""
KEEPALIVE_S: Final = 15.0
LEFT_PERIOD_S: Final = 1.0
"""How often a stream checks whether its client is still there."""
END_REASONS: Final = ("too many", "slow reader")
RETRY_MS: Final = 2_000
"""After this time a browser reconnects."""
RETRY_AFTER_S: Final = 10
HEADERS: Final = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_KEEPALIVE: Final = b":\n\n"


class Listener:
    """One stream's events that wait to be sent. If there are too many, ``cut`` becomes True and
    ``abort`` is called.
    """

    def __init__(self, abort: Callable[[], None] = lambda: None) -> None:
        self._queue: asyncio.Queue[bytes] = asyncio.Queue(QUEUE_ITEMS_MAX)
        self._abort = abort
        self.cut = False

    def queue(self, event: bytes) -> None:
        """Queue an event."""
        if self.cut:
            return
        try:
            self._queue.put_nowait(event)
        except asyncio.QueueFull:
            self.cut = True
            self._abort()

    async def next(self) -> bytes:
        """The next event, or a comment if none comes for ``KEEPALIVE_S``."""
        try:
            async with asyncio.timeout(KEEPALIVE_S):
                return await self._queue.get()
        except TimeoutError:
            return _KEEPALIVE


class Feed:
    """What the streams of one pool share. It looks while it has listeners."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self.listeners: dict[Listener, None] = {}
        self._task: asyncio.Task[None] | None = None
        self._snapshot: bytes | None = None
        self._looked = False

    def join(self, listener: Listener) -> None:
        """Send the listener everything, now or after the first look, and then every change."""
        self.listeners[listener] = None
        if self._looked:
            listener.queue(self._everything())
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="page feed")

    def leave(self, listener: Listener) -> None:
        """Send the listener nothing more. The feed stops with its last listener."""
        self.listeners.pop(listener, None)
        if not self.listeners and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            news = await self._facts.look()
            self._send(news)
            await asyncio.sleep(max(PERIOD_S, (clock() - began) / SHARE_OF_TIME))

    def _send(self, news: News) -> None:
        if news:
            self._snapshot = None
        if not self._looked:
            self._looked = True
            event = self._everything()
        elif news:
            event = encode_event("news", news)
        else:
            return
        for listener in self.listeners:
            listener.queue(event)

    def _everything(self) -> bytes:
        if self._snapshot is None:
            self._snapshot = encode_event("snapshot", self._facts.all())
        return self._snapshot


class Streams:
    """All streams of one replica, at most ``STREAMS_MAX`` at once. ``facts``: makes those of a pool
    key.
    """

    def __init__(self, facts: Callable[[str], Facts]) -> None:
        self._facts = facts
        self._feeds: dict[str, Feed] = {}
        self.open = 0
        self.ended: Counter[str] = Counter(dict.fromkeys(END_REASONS, 0))
        """Streams that this replica ended, by reason."""
        self._stopping = asyncio.Event()

    async def serve(self, request: web.Request, pool: str) -> web.StreamResponse:
        """Stream until the client leaves or is cut, or until ``stop``."""
        if self.open >= STREAMS_MAX or self._stopping.is_set():
            self.ended["too many"] += not self._stopping.is_set()
            return ask_again(
                f"{self.open} pages are open already; close one, or try again later", RETRY_AFTER_S
            )
        self.open += 1
        transport = request.transport
        listener = Listener(transport.abort if transport is not None else lambda: None)
        feed = self._feeds.get(pool)
        if feed is None:
            feed = self._feeds[pool] = Feed(self._facts(pool))
        feed.join(listener)
        try:
            return await self._send(request, listener)
        finally:
            self.open -= 1
            self.ended["slow reader"] += listener.cut
            feed.leave(listener)
            if not feed.listeners and self._feeds.get(pool) is feed:
                del self._feeds[pool]

    async def stop(self) -> None:
        """End all streams, and begin no more."""
        self._stopping.set()

    async def _send(self, request: web.Request, listener: Listener) -> web.StreamResponse:
        response = web.StreamResponse(headers=HEADERS)
        await response.prepare(request)
        stopping = asyncio.ensure_future(self._stopping.wait())
        event = asyncio.ensure_future(listener.next())
        try:
            await response.write(f"retry: {RETRY_MS}\n\n".encode())
            while not (listener.cut or stopping.done() or _has_left(request)):
                waited = {event, stopping}
                await asyncio.wait(
                    waited, timeout=LEFT_PERIOD_S, return_when=asyncio.FIRST_COMPLETED
                )
                if event.done():
                    await response.write(event.result())
                    event = asyncio.ensure_future(listener.next())
        except ConnectionError:
            log.debug("a page has left in the middle of an event")
        finally:
            event.cancel()
            stopping.cancel()
        return response


def _has_left(request: web.Request) -> bool:
    """aiohttp notices a closed connection only on a write. Without this check, a client that leaves
    while nothing happens would keep one of the few streams.
    """
    return request.transport is None or request.transport.is_closing()


def encode_event(name: str, data: News) -> bytes:
    """Encode one server-sent event. orjson writes no line breaks, which would end the data line."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), orjson.dumps(data))
