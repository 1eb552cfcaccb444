"""A replica as an adapter sees it: TLS, the token, the stream of assignments, and a service's
faults.
"""

import asyncio
import json
import ssl
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeAlias

from aiohttp import web
from aiohttp.typedefs import Handler

from extender.lab.adapter_kit.address import Address
from extender.lab.adapter_kit.contract import Answer

Lines: TypeAlias = "asyncio.Queue[bytes | None]"
"""Of one stream. None ends it in the middle of a line."""
ASSIGNMENT, ACKNOWLEDGE = "/v1/assignment", "/v1/acknowledge"
OK: Final = 200
ALIVE_EVERY_S: Final = 2.0
"""The service says each 10 s that a stream is alive."""
BODY_BYTES_MAX: Final = 1024 * 1024


class Desk:
    """What both replicas know. ``hear`` takes an acknowledgement's body and answers it.

    ``token``: what a request must carry. ``faults``: what requests of a path are answered with
    instead. ``asked``: requests of each path so far, those that failed included. ``authorized``:
    requests with the token so far.
    """

    def __init__(
        self, token: str, newest: Callable[[], bytes], hear: Callable[[bytes], Answer]
    ) -> None:
        self.token = token
        self.faults: dict[str, Answer] = {}
        self.streams: set[Lines] = set()
        self.silenced: set[Lines] = set()
        """Streams that stay open and say nothing any more."""
        self.hanging = 0
        """The port of a replica that takes requests and answers none."""
        self._healed = asyncio.Event()
        self._late: tuple[float, Answer] | None = None
        self.asked: dict[str, int] = {}
        self.authorized, self.unauthorized = 0, 0
        self.has_streamed = False
        """Whether a stream has ever been opened: an adapter may ask again and again instead."""
        self._newest, self._hear = newest, hear

    def send(self, line: bytes | None) -> None:
        """Send a line to all streams, or cut them."""
        for stream in self.streams - self.silenced:
            stream.put_nowait(line)

    def hang(self, port: int) -> None:
        """Let a replica answer nothing any more. All streams that are open fall silent."""
        self.hanging = port
        self.silenced |= self.streams

    def answer_late(self, late_s: float, then: Answer) -> None:
        """Take the next acknowledgement, and answer it late. From then on, ``then`` answers all
        requests of both paths, and the streams are cut.
        """
        self._late = late_s, then

    @property
    def will_answer_late(self) -> bool:
        """Whether the acknowledgement that is answered late has not come yet."""
        return self._late is not None

    def heal(self) -> None:
        """End all faults. Streams that are silent are cut, and what hangs is answered 503."""
        self.faults.clear()
        self.hanging, self._late = 0, None
        self._healed.set()
        self._healed = asyncio.Event()
        for stream in self.silenced:
            stream.put_nowait(None)

    async def assignment(self, request: web.Request) -> web.StreamResponse:
        """``GET /v1/assignment``."""
        if (refused := await self._refusal(request)) is not None:
            return refused
        if request.query.get("watch") != "true":
            return web.Response(body=self._newest(), content_type="application/json")
        lines: Lines = asyncio.Queue()
        self.streams.add(lines)
        self.has_streamed = True
        reply = web.StreamResponse(headers={"Content-Type": "application/json"})
        try:
            await reply.prepare(request)
            lines.put_nowait(self._newest())
            while (line := await self._next(lines)) is not None:
                await reply.write(line + b"\n")
            await reply.write(b'{"generation":')
            if request.transport is not None:
                request.transport.abort()
        except ConnectionError:
            pass
        finally:
            self.streams.discard(lines)
            self.silenced.discard(lines)
        return reply

    async def _next(self, lines: Lines) -> bytes | None:
        while True:
            try:
                async with asyncio.timeout(ALIVE_EVERY_S):
                    return await lines.get()
            except TimeoutError:
                if lines not in self.silenced:
                    return b""

    async def acknowledge(self, request: web.Request) -> web.Response:
        """``POST /v1/acknowledge``."""
        body = await request.read()
        if (refused := await self._refusal(request)) is not None:
            return refused
        answer = self._hear(body)
        if self._late is not None and answer.status == OK:
            (late_s, then), self._late = self._late, None
            self.faults.update({ASSIGNMENT: then, ACKNOWLEDGE: then})
            self.send(None)
            await asyncio.sleep(late_s)
        return _response(answer)

    async def _refusal(self, request: web.Request) -> web.Response | None:
        self.asked[request.path] = self.asked.get(request.path, 0) + 1
        if self.hanging and _port(request) == self.hanging:
            await self._healed.wait()  # or until the caller gives up
            return _response(Answer(503, {"error": "this replica did not answer"}, 1))
        if (fault := self.faults.get(request.path)) is not None:
            return _response(fault)
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            self.unauthorized += 1
            return _response(Answer(401, {"error": "the token is not this pod's"}))
        self.authorized += 1
        return None


class Replica:
    """One address. ``open`` and ``close`` may be repeated; the port stays."""

    def __init__(self, desk: Desk, context: ssl.SSLContext, address: Address) -> None:
        self._desk, self._context = desk, context
        self._runner: web.AppRunner | None = None
        self.requests: Counter[str] = Counter()
        """By path, since it was opened. A handshake that began before may end later, and its
        requests do not count.
        """
        self.address = address
        """Where it listens once it has been opened."""

    async def open(self, context: ssl.SSLContext | None = None) -> None:
        """Listen, if it does not, with another ``context`` than its own if one is given. Raises
        OSError.
        """
        if self._runner is not None:
            return
        requests = self.requests = Counter()

        @web.middleware
        async def count(request: web.Request, handler: Handler) -> web.StreamResponse:
            requests[request.path] += 1
            return await handler(request)

        app = web.Application(client_max_size=BODY_BYTES_MAX, middlewares=[count])
        app.router.add_get(ASSIGNMENT, self._desk.assignment, allow_head=False)
        app.router.add_post(ACKNOWLEDGE, self._desk.acknowledge)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(
            self._runner,
            self.address.interface,
            self.address.port,
            reuse_address=True,
            ssl_context=context or self._context,
        )
        await site.start()
        self.address = replace(self.address, port=self._runner.addresses[0][1])

    async def close(self) -> None:
        """End all connections at once, and listen no more."""
        runner, self._runner = self._runner, None
        if runner is None:
            return
        for site in list(runner.sites):
            await site.stop()
        for connection in runner.server.connections if runner.server is not None else ():
            # Closing it would wait for the adapter's end of TLS, which may never come.
            if connection.transport is not None:
                connection.transport.abort()
        await runner.cleanup()


def _port(request: web.Request) -> int:
    """At which the request arrived. The ``Host`` is what the adapter calls it: any name."""
    transport = request.transport
    return 0 if transport is None else int(transport.get_extra_info("sockname")[1])


def _response(answer: Answer) -> web.Response:
    headers = {"Retry-After": str(answer.retry_after_s)} if answer.retry_after_s else {}
    return web.Response(
        status=answer.status,
        text=json.dumps(dict(answer.body)),
        content_type="application/json",
        headers=headers,
    )
