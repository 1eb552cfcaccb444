"""``Listener``: the HTTP listener under both servers that Kubernetes calls, the extender
(kube-scheduler) and the webhook (API server).

aiohttp parses, routes and keeps idle connections. The listener adds the limits that aiohttp lacks,
for each connection, between the socket and aiohttp's handler:

- A request's head must be whole ``head_timeout_s`` after its first byte: a client that sends a byte
  a second is cut.
- A head is limited in bytes, as is everything else outside bodies (``intake``). All connections
  together are limited too: over ``unserved_bytes_max`` the one that holds most is cut.
- While a request is served, nothing is read ahead. aiohttp gets the next one when the answer is
  taken.
- An answer must be taken: a client that reads nothing for ``write_timeout_s`` is cut.
- A TLS handshake must end within ``handshake_timeout_s``, and only so many are under way at once
  (``sockets``).
- At most ``connections_max`` connections are open. Beyond that the listener cuts the oldest one
  that has asked nothing yet, else the one that has been idle for longest. So clients that only
  hold connections keep nobody out. If none is idle, the new one is refused.
- ``receive_bytes`` limits what the kernel keeps of a connection, and so what one read brings. A TLS
  connection has buffers for several reads, and none of them shrinks again.

The listener also checks ``Expect``, before aiohttp does. aiohttp repeats an unknown value in its
refusal. That fails for bytes that are not UTF-8, and the client would get a 500. How long a body
may take, and how much of it is read, is the server's own rule (``bodies``), because the server
knows the request. A client that is too slow with a body gets a last answer, and its connection
ends. Idle connections live for longer than the 90 s after which Go's client closes them: otherwise
a request could meet a closing one.
"""

import asyncio
import logging
import resource
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from operator import attrgetter
from typing import Final, cast

from aiohttp import HttpVersion11, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.streams import StreamReader

from extender.kube.serving.guard import GUARD, ConnectionLimits, Guard
from extender.kube.serving.intake import PAUSE_BYTES
from extender.kube.serving.sockets import PlainServer, TlsServer, host_port, listening_sockets

KEEPALIVE_TIMEOUT_S: Final = 130.0
LINGERING_TIME_S: Final = 2.0
"""How long the rest of a refused body is thrown away, so that its sender comes to read why."""
READ_BYTES: Final = 64 * 1024
"""Of a body that nobody reads, twice as much is kept before its connection is paused."""
FILES_RESERVED: Final = 256
"""File descriptors that connections leave to the rest of the process: watches, requests to the API
server, files.
"""

BaseHandler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

CLIENT_HAS_LEFT: Final = 499
"""Status of an answer that nobody reads. The number is nginx's."""

_COUNTED: Final = attrgetter("counted")
_http_log: Final = logging.getLogger(__name__ + ".http")


def _is_ours(record: logging.LogRecord) -> bool:
    """False for a request that is not HTTP: its sender gets an answer, and must not fill our log
    with tracebacks.
    """
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


_http_log.addFilter(_is_ours)


class Listener:
    """Serves one application between ``start`` and ``stop``."""

    def __init__(self, limits: ConnectionLimits | None = None) -> None:
        self.limits = limits or ConnectionLimits()
        self._guards: dict[asyncio.BaseProtocol, Guard] = {}
        self._new: dict[Guard, None] = {}
        """Connections that have asked nothing yet. ``_idle``: the others that wait. Both oldest
        first.
        """
        self._idle: dict[Guard, None] = {}
        self._runner: web.AppRunner | None = None
        self._connections_max = self.limits.connections_max
        self.cut: Counter[str] = Counter()
        """Connections that were cut, by ``CUT_REASONS``."""
        self.unserved_bytes = 0
        self.arrived_bytes = 0
        """``unserved_bytes`` and ``arrived_bytes`` that are in memory now; see
        ``ConnectionLimits``.
        """

    @property
    def connections(self) -> int:
        """Connections that are open now."""
        return len(self._guards)

    async def start(
        self, app: web.Application, host: str, port: int, *, tls: ssl.SSLContext | None
    ) -> int:
        """Listen, and return the port (the system's choice for 0). ``app`` must not be started yet.
        Raises OSError.
        """
        files_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if files_max != resource.RLIM_INFINITY:
            self._connections_max = min(self._connections_max, max(1, files_max - FILES_RESERVED))
        self._runner = web.AppRunner(
            app,
            access_log=None,
            keepalive_timeout=KEEPALIVE_TIMEOUT_S,
            shutdown_timeout=self.limits.shutdown_timeout_s,
            lingering_time=LINGERING_TIME_S,
            auto_decompress=False,
            read_bufsize=READ_BYTES,
            logger=_http_log,
        )
        await self._runner.setup()
        server = self._runner.server
        assert server is not None
        server.request_handler = self._guarded(server.request_handler)
        site = _Site(self._runner, self, host, port, tls)
        try:
            await site.start()
        except BaseException:
            await self._runner.cleanup()
            raise
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Close the socket, give running requests ``shutdown_timeout_s``, then close all
        connections.
        """
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def too_slow(self, request: web.Request, message: str) -> web.Response:
        """The answer to a request whose body is no longer awaited. It ends the connection."""
        self.cut["slow body"] += 1
        return LastAnswer(request, status=408, text=message + "\n")

    def connection(self) -> asyncio.BaseProtocol:
        """The protocol of a new connection."""
        assert self._runner is not None
        assert self._runner.server is not None
        return Guard(self, self._runner.server)

    def opened(self, guard: Guard) -> bool:
        """A connection was made; False if it may not stay."""
        if len(self._guards) >= self._connections_max:
            longest = next(iter(self._new or self._idle), None)
            if longest is None:
                self.cut["too many"] += 1
                return False
            longest.end("too many")
        self._guards[guard.handler] = guard
        self._new[guard] = None
        return True

    def closed(self, guard: Guard) -> None:
        """A connection is gone, or going."""
        self._guards.pop(guard.handler, None)
        self._new.pop(guard, None)
        self._idle.pop(guard, None)
        self.unserved_bytes -= guard.counted
        self.arrived_bytes -= guard.arrived
        guard.counted = guard.arrived = 0

    def count(self, guard: Guard, counted: int, arrived: int) -> None:
        """Count what a connection holds now. While all together hold too much, cut those that hold
        most.

        What came with a head leaves within a moment, so for that only a newcomer that brings much
        is cut.
        """
        self.unserved_bytes += counted - guard.counted
        self.arrived_bytes += arrived - guard.arrived
        guard.counted, guard.arrived = counted, arrived
        bytes_max = self.limits.unserved_bytes_max
        while self.unserved_bytes > bytes_max:
            max(self._guards.values(), key=_COUNTED).end("too many bytes")
        if guard.arrived >= PAUSE_BYTES and self.arrived_bytes > bytes_max:
            guard.end("too many bytes")

    def _guarded(self, handle: BaseHandler) -> BaseHandler:
        """Wrap a handler: the connection is busy from here, where the head is whole, to the
        answer.
        """

        async def serve(request: web.BaseRequest) -> web.StreamResponse:
            guard = self._guards.get(request.protocol)
            if guard is None:  # cut while its request waited for its turn
                return web.Response(status=CLIENT_HAS_LEFT)
            self._new.pop(guard, None)
            self._idle.pop(guard, None)
            request[GUARD] = guard
            guard.begin_request(request)
            try:
                answer = _refused_expectation(request) or await handle(cast("web.Request", request))
            except web.HTTPException as refusal:
                guard.close_after(refusal)
                raise
            except (ConnectionResetError, web.RequestPayloadError, RuntimeError) as error:
                if not _is_for_want_of_a_client(request, error):
                    raise
                # aiohttp would log a traceback, which takes longer than the request did.
                _http_log.debug("the client has left: %s %r", request.path, error)
                return web.Response(status=CLIENT_HAS_LEFT)
            else:
                guard.close_after(answer)
                return answer
            finally:
                guard.end_request()
                if (broken := request.content.exception()) is not None:
                    # Break the cycle of traceback, request, body and error, which would live until
                    # the collector runs.
                    broken.__traceback__ = None
                if request.protocol in self._guards:
                    self._idle[guard] = None

        return serve


def _is_for_want_of_a_client(request: web.BaseRequest, error: Exception) -> bool:
    """Whether the error means that the client has left. aiohttp raises RuntimeError if a body is
    awaited then.
    """
    has_left = request.transport is None or request.transport.is_closing()
    return has_left and (not isinstance(error, RuntimeError) or str(error) == "Connection closed.")


def body_of(request: web.BaseRequest) -> StreamReader:
    """The body of a request, for its reader. Until this call only the part that came with the head
    is read.
    """
    guard = request.get(GUARD)
    if guard is not None:
        guard.ask()
    return request.content


class LastAnswer(web.Response):
    """An answer after which its connection is closed at once, whatever is still to come of the
    request's body. Otherwise the client could use the lingering time to hold the connection, or to
    send.
    """

    def __init__(
        self,
        request: web.Request,
        *,
        status: int,
        text: str,
        content_type: str = "text/plain",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status=status, text=text, content_type=content_type, headers=headers)
        self.force_close()
        self._protocol = request.protocol

    async def write_eof(self, data: bytes = b"") -> None:
        """End the answer and the connection."""
        await super().write_eof(data)
        self._protocol.force_close()


class _Site(web.BaseSite):
    """A TCP site whose connections are guarded."""

    def __init__(
        self,
        runner: web.AppRunner,
        listener: Listener,
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
    ) -> None:
        super().__init__(runner, ssl_context=tls)
        self._listener = listener
        self._host = host
        self._port = port

    @property
    def name(self) -> str:
        """The URL of the listener."""
        return f"{'https' if self._ssl_context else 'http'}://{host_port(self._host, self._port)}"

    async def start(self) -> None:
        """Start to listen. Raises OSError."""
        await super().start()
        limits = self._listener.limits
        sockets = await listening_sockets(self._host, self._port, limits.receive_bytes)
        context = self._ssl_context
        server = (
            PlainServer(sockets)
            if context is None
            else TlsServer(sockets, context, limits.handshake_timeout_s)
        )
        await server.start(self._listener.connection)
        self._server = cast("asyncio.AbstractServer", server)


def _refused_expectation(request: web.BaseRequest) -> web.Response | None:
    expected = request.headers.get("Expect", "")
    if expected and expected.lower() != "100-continue" and request.version >= HttpVersion11:
        return web.Response(status=417, text="of all expectations only 100-continue is met\n")
    return None
