"""``Guard``: between a transport and aiohttp's handler, with a timer for what the client must do
next.

``intake`` keeps and counts what was sent, apart from a body that is being read. ``Guard`` acts on
it: it pauses the transport, hands the next part to aiohttp, and cuts the connection.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, cast

from aiohttp import web

from extender.kube.serving.intake import Intake, Stage, TooMuchSent

PIECE_BYTES: Final = 16 * 1024
"""A body without a length is handed on in such pieces, because the parser's error repeats a piece
whose framing is broken.
"""
_READ: Final = memoryview(bytearray(64 * 1024))
"""The buffer of one read, for all connections: a process has one loop, and takes what was read
before it reads another connection. asyncio would allocate a quarter of a megabyte for each read,
which the kernel has to clear.
"""
_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 22\r\n"
    b"Content-Type: text/plain\r\n\r\nthe head is too large\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Bounds of one listener's connections."""

    connections_max: int = 2000
    receive_bytes: int | None = None
    """Bytes of one connection that the kernel keeps; None: its own limit, megabytes."""
    head_timeout_s: float = 5.0
    write_timeout_s: float = 10.0
    handshake_timeout_s: float = 5.0
    unserved_bytes_max: int = 16 * 1024 * 1024
    """Heads, framing, trailers and requests sent ahead, of all connections together. aiohttp keeps
    a field twice. As much again may have come with heads whose turn has not come yet.
    """
    shutdown_timeout_s: float = 1.0
    """How long requests may still run after the stop. A server that drains first has none."""


CUT_REASONS: Final = ("slow head", "slow body", "slow reader", "too many", "too many bytes")


class Owner(Protocol):
    """The part of the listener that a guard needs. Its methods are called on the event loop and
    return at once.
    """

    limits: ConnectionLimits
    cut: Counter[str]

    def opened(self, guard: "Guard") -> bool:
        """A connection was made; False if it may not stay."""
        ...

    def closed(self, guard: "Guard") -> None:
        """A connection is gone, or going."""
        ...

    def count(self, guard: "Guard", counted: int, arrived: int) -> None:
        """A connection holds so many bytes now, see ``Intake``. The listener may cut it for
        that.
        """
        ...


def _nothing() -> None:
    pass


class Guard(asyncio.BufferedProtocol):
    """Guards one connection."""

    def __init__(self, listener: Owner, make_handler: Callable[[], asyncio.Protocol]) -> None:
        self._listener = listener
        self._make_handler = make_handler
        self.handler: asyncio.Protocol = asyncio.Protocol()
        """aiohttp's, once the connection is made: a connection that ends in its handshake costs no
        parser.
        """
        self.counted = 0
        self.arrived = 0
        """``counted`` and ``arrived`` of ``Intake``, as the listener has counted them. Only the
        listener changes them.
        """
        self.on_closed: Callable[[], None] = _nothing
        """Called when the connection is closed or cut: aiohttp notices that only on a write."""
        self._ends_unseen = False
        """Whether the request has a body whose end only aiohttp sees."""
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._intake = Intake()
        self._request: web.BaseRequest | None = None
        self._is_first = True
        self._paused = False
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._refused = False
        self._ended = False

    # -- the transport -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol, also for the other methods."""
        self._transport = cast("asyncio.Transport", transport)
        self.handler = self._make_handler()
        if not self._listener.opened(self):
            self._refused = self._ended = True
            self._transport.abort()
            return
        self.handler.connection_made(transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """The buffer of the next read. What it holds is taken before another connection is read."""
        return _READ

    def buffer_updated(self, nbytes: int) -> None:
        """Keep what was read, or hand it on."""
        if self._ended:
            return
        try:
            part = self._intake.take(bytes(_READ[:nbytes]))
        except TooMuchSent:
            self._end_for_bytes()
        else:
            self._hand_on(part)

    def eof_received(self) -> bool | None:
        """aiohttp decides."""
        return None if self._refused else self.handler.eof_received()

    def pause_writing(self) -> None:
        """The client does not read what is sent to it."""
        self._write_timer = self._loop.call_later(
            self._listener.limits.write_timeout_s, self.end, "slow reader"
        )
        self.handler.pause_writing()

    def resume_writing(self) -> None:
        """The client reads again."""
        self._stop_write_timer()
        self.handler.resume_writing()
        self._loop.call_soon(self._next)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed, by either side."""
        self._ended = True
        self._listener.closed(self)
        self._forget()
        self._transport = None  # it has the buffers of TLS, and refers to us
        if not self._refused:
            self.handler.connection_lost(exc)

    # -- the request -------------------------------------------------------------------------------

    def begin_request(self, request: web.BaseRequest) -> None:
        """The head is whole, and the request's turn has come."""
        self._stop_head_timer()
        self._is_first = False
        if self._ended:
            return
        self._request = request
        self._intake.begin(request.content, request.content_length)
        self._ends_unseen = self._intake.is_chunked and not request.content.is_eof()
        self._settle()

    def close_after(self, answer: web.StreamResponse) -> None:
        """If only aiohttp sees where the request's body ends, end the connection after ``answer``:
        no other request can follow.
        """
        if self._ends_unseen:
            answer.force_close()

    def ask(self) -> None:
        """Somebody reads the body from now on."""
        self._hand_on_if_allowed(self._intake.ask)

    def end_request(self) -> None:
        """The answer is decided, and about to be sent."""
        self._hand_on_if_allowed(self._intake.end)

    def end(self, reason: str) -> None:
        """Cut the connection, whatever is still to be sent on it."""
        self._ended = True
        self._listener.cut[reason] += 1
        self._listener.closed(self)
        self._forget()
        if self._transport is not None:
            self._transport.abort()

    def _forget(self) -> None:
        """Drop what the connection held. A dead connection is in reference cycles with its
        transport and its request, which would keep it until the collector runs.
        """
        self._stop_head_timer()
        self._stop_write_timer()
        self._request = None
        self._intake = Intake()
        on_closed, self.on_closed = self.on_closed, _nothing
        on_closed()

    def _has_failed(self) -> bool:
        """Whether aiohttp could not parse what it was handed.

        Also clears that error's traceback: its frames hold the error, and with it all that was
        sent.
        """
        failed = False
        for message, _body in getattr(self.handler, "_messages", ()):
            if isinstance(error := getattr(message, "exc", None), Exception):
                error.__traceback__ = None
                failed = True
        return failed

    def _next(self) -> None:
        """Hand on the next head, if the answer is on its way and does not wait for its reader."""
        if self._write_timer is None:
            self._hand_on_if_allowed(self._intake.next)

    def _hand_on_if_allowed(self, take: Callable[[], bytes]) -> None:
        if self._ended:
            return
        try:
            part = take()
        except TooMuchSent:
            self._end_for_bytes()
        else:
            self._hand_on(part)

    def _hand_on(self, part: bytes) -> None:
        if part and self._intake.is_chunked:
            self._hand_on_pieces(part)
        elif part:
            self.handler.data_received(part)
            self._has_failed()
        if self._intake.stage is Stage.ANSWERED:
            self._loop.call_soon(self._next)
        self._settle()

    def _hand_on_pieces(self, part: bytes) -> None:
        assert self._request is not None
        body = self._request.content
        for start in range(0, len(part), PIECE_BYTES):
            self.handler.data_received(part[start : start + PIECE_BYTES])
            if body.is_eof():
                return
            if self._has_failed():
                # The parser queues its error as if it were the next request, so a reader of this
                # body would wait for ever.
                body.set_exception(web.RequestPayloadError("its framing is broken"))
                body.feed_eof()
                return

    def _settle(self) -> None:
        if self._ended or self._transport is None or self._transport.is_closing():
            return
        intake = self._intake
        if intake.stage is Stage.HEAD and intake.counted and self._head_timer is None:
            self._head_timer = self._loop.call_later(
                self._listener.limits.head_timeout_s, self.end, "slow head"
            )
        if intake.should_pause is not self._paused:
            self._paused = not self._paused
            if self._paused:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()
        self._listener.count(self, intake.counted, intake.arrived)

    def _end_for_bytes(self) -> None:
        """Cut a connection that has sent too much. It gets an answer only for its first head, and
        not over TLS, where closing waits for the client's consent.
        """
        transport = self._transport
        is_first = self._is_first and self._intake.stage is Stage.HEAD
        if not is_first or transport is None or transport.get_extra_info("sslcontext") is not None:
            self.end("too many bytes")
            return
        self._ended = True
        self._listener.cut["too many bytes"] += 1
        self._listener.closed(self)
        self._forget()
        transport.write(_TOO_LARGE)
        transport.close()

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None


GUARD: Final = web.RequestKey("guard", Guard)
"""The key under which a request has its connection's guard."""
