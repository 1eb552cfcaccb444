"""The HTTP listener under both servers that Kubernetes calls: the extender (kube-scheduler) and the webhook (API server).

aiohttp parses, routes and keeps idle connections; what it has no limit for is limited here, for each connection, between
the socket and its handler:

- a request's head must be whole ``head_timeout_s`` after its first byte: who sends a byte a second is cut, not waited for;
- an answer must be taken: a client that reads nothing for ``write_timeout_s`` is cut;
- a TLS handshake must be done within ``handshake_timeout_s``;
- ``connections_max`` connections at once. Over it the one that has been idle for longest goes, so that clients that hold
  connections keep nobody else out; with none idle the new one is refused.

A host of no address in particular (``EVERYWHERE``) is all addresses of both families, as Kubernetes' own ``--bind-address`` has it:
one socket, so that port 0 is one port, and IPv4 alone where the machine has no IPv6.

An ``Expect`` header is looked at here, too, before aiohttp does, which puts an unknown value into its refusal: with bytes that
are no UTF-8 that fails, and the client would get a 500. How long a body may take, and how much of it is read, is the server's own rule (``bodies``): it knows the request. Who is
too slow with one gets a last answer, and the connection ends with it. Idle connections live for longer than the 90 s
after which Go's client closes them itself: otherwise a request could meet a closing one.
"""

import asyncio
import errno
import logging
import resource
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, cast

from aiohttp import HttpVersion11, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler

KEEPALIVE_TIMEOUT_S: Final = 130.0
LINGERING_TIME_S: Final = 2.0
"""How long the rest of a body that was refused is thrown away, so that its sender comes to read why."""
FILES_RESERVED: Final = 256
"""File descriptors that connections leave to the rest of the process: watches, requests to the API server, files."""
BACKLOG: Final = 1024
EVERYWHERE: Final = frozenset({"", "0.0.0.0", "::"})
_NO_IPV6: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


BaseHandler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

_http_log: Final = logging.getLogger(__name__ + ".http")


def _is_ours(record: logging.LogRecord) -> bool:
    """Not a request that is no HTTP: its sender is told, and must not fill our log with tracebacks."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


_http_log.addFilter(_is_ours)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Bounds of one listener's connections."""

    connections_max: int = 2000
    head_timeout_s: float = 5.0
    write_timeout_s: float = 10.0
    handshake_timeout_s: float = 5.0
    shutdown_timeout_s: float = 1.0
    """For requests that still run when it stops; a server that drains before leaves none."""


CUT_REASONS: Final = ("slow head", "slow body", "slow reader", "too many")


class Listener:
    """Serves one application between ``start`` and ``stop``."""

    def __init__(self, limits: ConnectionLimits | None = None) -> None:
        self.limits = limits or ConnectionLimits()
        self._guards: dict[asyncio.BaseProtocol, _Guard] = {}
        self._idle: dict[_Guard, None] = {}
        self._runner: web.AppRunner | None = None
        self._connections_max = self.limits.connections_max
        self.cut: Counter[str] = Counter()
        """Connections that were cut, by ``CUT_REASONS``."""

    @property
    def connections(self) -> int:
        """Open now."""
        return len(self._guards)

    async def start(self, app: web.Application, host: str, port: int, *, tls: ssl.SSLContext | None) -> int:
        """Listen, and return the port (of the system's choice for 0). ``app`` is not started yet. Raises OSError."""
        files_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if files_max != resource.RLIM_INFINITY:
            self._connections_max = min(self._connections_max, max(1, files_max - FILES_RESERVED))
        app.middlewares.insert(0, self._note_request)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            keepalive_timeout=KEEPALIVE_TIMEOUT_S,
            shutdown_timeout=self.limits.shutdown_timeout_s,
            lingering_time=LINGERING_TIME_S,
            auto_decompress=False,
            logger=_http_log,
        )
        await self._runner.setup()
        server = self._runner.server
        assert server is not None
        server.request_handler = _with_known_expectations(server.request_handler)
        site = _Site(self._runner, self, host, port, tls)
        try:
            await site.start()
        except BaseException:
            await self._runner.cleanup()
            raise
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Close the socket, give requests that still run ``shutdown_timeout_s``, close all connections."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def too_slow(self, request: web.Request, message: str) -> web.Response:
        """The answer to a request whose body is waited for no longer; with it the connection ends."""
        self.cut["slow body"] += 1
        return _LastAnswer(request.protocol, message)

    def connection(self) -> asyncio.Protocol:
        """The protocol of a new connection."""
        assert self._runner is not None
        assert self._runner.server is not None
        return _Guard(self, self._runner.server())

    def opened(self, guard: "_Guard") -> bool:
        """A connection was made; False where it may not stay."""
        if len(self._guards) >= self._connections_max:
            longest = next(iter(self._idle), None)
            if longest is None:
                self.cut["too many"] += 1
                return False
            longest.end("too many")
        self._guards[guard.handler] = guard
        self._idle[guard] = None
        return True

    def closed(self, guard: "_Guard") -> None:
        """A connection is gone, or going."""
        self._guards.pop(guard.handler, None)
        self._idle.pop(guard, None)

    @web.middleware
    async def _note_request(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """From here, where the head is whole, to the answer a connection is busy."""
        guard = self._guards.get(request.protocol)
        if guard is None:  # cut while its request waited for its turn
            return await handler(request)
        self._idle.pop(guard, None)
        guard.begin_request()
        try:
            return await handler(request)
        finally:
            guard.end_request()
            if request.protocol in self._guards:
                self._idle[guard] = None


class _LastAnswer(web.Response):
    """408, after which a connection is closed at once: its client would use the time to linger to hold it."""

    def __init__(self, protocol: web.RequestHandler, message: str) -> None:
        super().__init__(status=408, text=message + "\n")
        self.force_close()
        self._protocol = protocol

    async def write_eof(self, data: bytes = b"") -> None:
        await super().write_eof(data)
        self._protocol.force_close()


class _Site(web.BaseSite):
    """A TCP site whose connections are guarded."""

    def __init__(
        self, runner: web.AppRunner, listener: Listener, host: str, port: int, tls: ssl.SSLContext | None
    ) -> None:
        super().__init__(runner, ssl_context=tls, backlog=BACKLOG)
        self._listener = listener
        self._host = host
        self._port = port

    @property
    def name(self) -> str:
        """Where it listens."""
        return f"{'https' if self._ssl_context else 'http'}://{host_port(self._host, self._port)}"

    async def start(self) -> None:
        """Raises OSError."""
        await super().start()
        handshake_timeout_s = self._listener.limits.handshake_timeout_s if self._ssl_context else None
        options: dict[str, Any] = {
            "ssl": self._ssl_context,
            "backlog": self._backlog,
            "ssl_handshake_timeout": handshake_timeout_s,
            "ssl_shutdown_timeout": handshake_timeout_s,
        }
        if self._host in EVERYWHERE:
            options["sock"] = everywhere_socket(self._port)
        else:
            options |= {"host": self._host, "port": self._port}
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._listener.connection, **options)


def everywhere_socket(port: int) -> socket.socket:
    """One that listens on all addresses, of both families where there are both. Raises OSError."""
    try:
        if socket.has_dualstack_ipv6():
            return socket.create_server(
                ("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG
            )
    except OSError as error:
        if error.errno not in _NO_IPV6:
            raise
    return socket.create_server(("0.0.0.0", port), backlog=BACKLOG)


def host_port(host: str, port: int) -> str:
    """As a URL has it: an IPv6 address in brackets."""
    bare = host.strip("[]") or "::"
    return f"[{bare}]:{port}" if ":" in bare else f"{bare}:{port}"


def _with_known_expectations(handle: BaseHandler) -> BaseHandler:
    async def checked(request: web.BaseRequest) -> web.StreamResponse:
        expected = request.headers.get("Expect", "")
        if expected and expected.lower() != "100-continue" and request.version >= HttpVersion11:
            return web.Response(status=417, text="of all expectations only 100-continue is met\n")
        return await handle(cast("web.Request", request))

    return checked


class _Guard(asyncio.Protocol):
    """Between a transport and aiohttp's handler, with a timer for what the client owes us at the moment."""

    def __init__(self, listener: Listener, handler: asyncio.Protocol) -> None:
        self._listener = listener
        self.handler = handler
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._busy = False
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._refused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if not self._listener.opened(self):
            self._refused = True
            self._transport.abort()
            return
        self.handler.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if not self._busy and self._head_timer is None:
            self._head_timer = self._loop.call_later(
                self._listener.limits.head_timeout_s, self.end, "slow head"
            )
        self.handler.data_received(data)

    def eof_received(self) -> bool | None:
        return None if self._refused else self.handler.eof_received()

    def pause_writing(self) -> None:
        self._write_timer = self._loop.call_later(
            self._listener.limits.write_timeout_s, self.end, "slow reader"
        )
        self.handler.pause_writing()

    def resume_writing(self) -> None:
        self._stop_write_timer()
        self.handler.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._listener.closed(self)
        self._stop_head_timer()
        self._stop_write_timer()
        if not self._refused:
            self.handler.connection_lost(exc)

    def begin_request(self) -> None:
        """The head is whole."""
        self._busy = True
        self._stop_head_timer()

    def end_request(self) -> None:
        """The answer is decided; the next byte begins the next head."""
        self._busy = False

    def end(self, reason: str) -> None:
        """Cut the connection, whatever is still to be sent on it."""
        self._listener.cut[reason] += 1
        self._listener.closed(self)
        if self._transport is not None:
            self._transport.abort()

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
