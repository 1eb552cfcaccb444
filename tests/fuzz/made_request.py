"""One HTTP request without a socket: parsed by aiohttp's own parser, routed and answered by the
application, collected.

What a handler raises comes out as it is, and not as a 500. Threads are not used: what a handler
gives to one runs at once, so that the CPU time of an input is that of the thread that measures it,
and an input that hangs can be ended.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpRequestParser
from multidict import CIMultiDict

READ_LIMIT_BYTES: Final = 64 * 1024
LINE_BYTES_MAX: Final = 8190
"""aiohttp's own, of a request line and of a header."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered. ``body``: as it was written, without chunks' sizes."""

    status: int
    content_type: str
    body: bytes


class InlineExecutor(ThreadPoolExecutor):
    """Runs what it is given before it returns; ``BaseException`` of it is the caller's."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - it is whoever waits for it that is told
            future.set_exception(error)
        return future


class _Transport(asyncio.Transport):
    """A connection that nobody has closed yet."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 40_000), "sockname": ("127.0.0.1", 10_261)})
        self._closing = False

    def is_closing(self) -> bool:
        return self._closing

    def abort(self) -> None:
        self._closing = True

    close = abort

    def pause_reading(self) -> None:
        """All of a request is there already."""

    resume_reading = pause_reading


class _Protocol(BaseProtocol):
    """What a ``web.Request`` asks of its connection."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.connection_made(_Transport())
        self.ssl_context = None
        self.peername, self.sockname = ("127.0.0.1", 40_000), ("127.0.0.1", 10_261)


class _Writer(AbstractStreamWriter):
    """Keeps what is written. ``leave_after``: the client leaves with the write that has these bytes
    in it.
    """

    def __init__(self, leave_after: bytes) -> None:
        self.body = bytearray()
        self.length: int | None = None
        self._leave_after = leave_after

    async def write(self, chunk: bytes | bytearray | memoryview) -> None:
        self.body += chunk
        if self._leave_after and self._leave_after in self.body:
            raise ConnectionResetError("the client has left")

    async def write_eof(self, chunk: bytes = b"") -> None:
        self.body += chunk

    async def drain(self) -> None:
        """Everything is taken at once."""

    def enable_compression(self, encoding: str = "deflate", strategy: int | None = None) -> None:
        raise AssertionError("no answer of ours is compressed on the way")

    def enable_chunking(self) -> None:
        """Chunks are not written as such here."""

    async def write_headers(self, status_line: str, headers: CIMultiDict[str]) -> None:
        lines = [status_line, *(f"{name}: {value}" for name, value in headers.items())]
        if any("\r" in line or "\n" in line for line in lines):
            raise AssertionError(f"a header with a line break: {lines}")


async def ask(app: web.Application, request: bytes, *, leave_after: bytes = b"") -> Answer | None:
    """The answer to these bytes; None where they are no whole request. Raises what the handler
    raises, and HttpProcessingError.
    """
    loop = asyncio.get_running_loop()
    protocol = _Protocol(loop)
    parser = HttpRequestParser(
        protocol,
        loop,
        READ_LIMIT_BYTES,
        max_line_size=LINE_BYTES_MAX,
        max_field_size=LINE_BYTES_MAX,
        payload_exception=web.RequestPayloadError,
        auto_decompress=False,
    )
    messages, _, _ = parser.feed_data(request)
    if not messages:
        return None
    message, payload = messages[0]
    writer = _Writer(leave_after)
    task = asyncio.current_task()
    assert task is not None
    made = web.Request(message, payload, protocol, writer, task, loop, client_max_size=1024**2)  # type: ignore[arg-type]
    try:
        response = await app._handle(made)
    except web.HTTPException as error:
        response = error
    await response.prepare(made)
    if not leave_after or leave_after not in writer.body:
        await response.write_eof()
    return Answer(response.status, response.content_type, bytes(writer.body))
