"""``GET /v1/stream?pool=NAMESPACE/NAME``: the state as server-sent events, all of it once and then
what is different.

.. code-block:: text

    event: snapshot     data: {section: {key: record}}     as in ``records``
    event: news         data: {section: {key: record, or null for one that is gone}}, at most two
                        a second
    : a comment         each ``KEEPALIVE_S``, so that proxies keep the connection and a browser
                        notices that we are gone

Theory of operation. Streams of the same pool share a *feed*: what it looks at and encodes is done
once, however many listen, and nothing is while nobody does. A feed looks each ``PERIOD_S``, less
often where looking takes more than ``SHARE_OF_TIME``. All that has happened in between is one piece
of news. A listener has a short queue of encoded events; a client that does not take them in time is
cut, by its queue here or by its socket in ``kube.serving.listener``, and its browser begins again
with a snapshot.

    State --look--> Facts --news, encoded once--> queue of each listener --> its socket

Without ``pool`` only the service and the counts of all pools are told. Of another leader's pools,
and in shadow mode, it is what this replica has seen; ``leads`` and ``shadow`` say so.
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
"""Events that a client has not taken yet: some eight seconds of a state that changes all the time.
"""
KEEPALIVE_S: Final = 15.0
LEFT_PERIOD_S: Final = 1.0
"""How often a stream looks whether its client is still there."""
END_REASONS: Final = ("too many", "slow reader")
RETRY_MS: Final = 2_000
"""After which a browser begins again."""
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
    """One stream's events that wait to be sent. ``abort`` is called, and ``cut`` is true, once
    there are too many.
    """

    def __init__(self, abort: Callable[[], None] = lambda: None) -> None:
        self._queue: asyncio.Queue[bytes] = asyncio.Queue(QUEUE_ITEMS_MAX)
        self._abort = abort
        self.cut = False

    def tell(self, event: bytes) -> None:
        """Queue an event."""
        if self.cut:
            return
        try:
            self._queue.put_nowait(event)
        except asyncio.QueueFull:
            self.cut = True
            self._abort()

    async def next(self) -> bytes:
        """The next event, or a comment where none comes for ``KEEPALIVE_S``."""
        try:
            async with asyncio.timeout(KEEPALIVE_S):
                return await self._queue.get()
        except TimeoutError:
            return _KEEPALIVE


class Feed:
    """What the streams of one pool share. Looks while it has listeners."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self.listeners: dict[Listener, None] = {}
        self._task: asyncio.Task[None] | None = None
        self._snapshot: bytes | None = None
        self._looked = False

    def join(self, listener: Listener) -> None:
        """Tell a listener everything, now or as soon as it is known, and what is new from
        then on.
        """
        self.listeners[listener] = None
        if self._looked:
            listener.tell(self._everything())
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="page feed")

    def leave(self, listener: Listener) -> None:
        """Tell it nothing more; with the last one the feed stops."""
        self.listeners.pop(listener, None)
        if not self.listeners and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            news = await self._facts.look()
            self._tell(news)
            await asyncio.sleep(max(PERIOD_S, (clock() - began) / SHARE_OF_TIME))

    def _tell(self, news: News) -> None:
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
            listener.tell(event)

    def _everything(self) -> bytes:
        if self._snapshot is None:
            self._snapshot = encode_event("snapshot", self._facts.all())
        return self._snapshot


class Streams:
    """All streams of one replica. ``facts``: of a pool's key; at most ``STREAMS_MAX`` streams at
    once.
    """

    def __init__(self, facts: Callable[[str], Facts]) -> None:
        self._facts = facts
        self._feeds: dict[str, Feed] = {}
        self.open = 0
        self.ended: Counter[str] = Counter(dict.fromkeys(END_REASONS, 0))
        """Streams that we did not serve to their end, by why."""
        self._stopping = asyncio.Event()

    async def serve(self, request: web.Request, pool: str) -> web.StreamResponse:
        """Stream until the client leaves, is cut, or ``stop``."""
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
        """End all streams, and begin none."""
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
    """aiohttp tells a handler only when it writes: who leaves while nothing happens would hold one
    of the few streams.
    """
    return request.transport is None or request.transport.is_closing()


def encode_event(name: str, data: News) -> bytes:
    """One server-sent event. JSON has no line breaks outside of its strings, and none in them."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), orjson.dumps(data))
