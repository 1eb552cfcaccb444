"""Clients that begin a request's body and then wait, many at once."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

JSON_HEAD = (
    "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
    "{length}\r\n\r\n"
)
LENGTH_BYTES = 1000


def head(path: str, length_bytes: int) -> bytes:
    """Of a request with a JSON body of so many bytes."""
    return JSON_HEAD.format(path=path, length=length_bytes).encode()


class SlowBodies:
    """The clients, and how their requests ended."""

    def __init__(self) -> None:
        self.ends: Counter[int] = Counter()
        """By status, 0 for a connection that was closed without one."""
        self._watched: list[asyncio.Task[None]] = []
        self._writers: list[asyncio.StreamWriter] = []

    async def add(self, port: int, path: str) -> None:
        """One more, of whose body one byte has been sent."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head(path, LENGTH_BYTES) + b"{")
        self._writers.append(writer)
        self._watched.append(asyncio.create_task(self._watch(reader)))

    async def _watch(self, reader: asyncio.StreamReader) -> None:
        answer = b""
        with contextlib.suppress(ConnectionError):
            answer = await reader.read()
        self.ends[int(answer.split()[1]) if answer else 0] += 1

    async def ended(self) -> None:
        """Returns once the server has closed every connection."""
        await asyncio.gather(*self._watched)

    def go_away(self) -> None:
        """All of them, without another byte."""
        for writer in self._writers:
            writer.transport.abort()


@contextlib.asynccontextmanager
async def slow_bodies(count: int, port: int, path: str) -> AsyncIterator[SlowBodies]:
    """``count`` clients, in the order in which they came; gone at the end."""
    clients = SlowBodies()
    try:
        for _ in range(count):
            await clients.add(port, path)
        yield clients
    finally:
        clients.go_away()
        await clients.ended()


async def ask(
    port: int, path: str, body: bytes, *, between: Callable[[], Awaitable[object]] | None = None
) -> int:
    """The status of an honest request: in one packet, or with ``between`` awaited between its head
    and its body.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        if between is None:
            writer.write(head(path, len(body)) + body)
        else:
            writer.write(head(path, len(body)))
            await between()
            writer.write(body)
        return int((await reader.readuntil(b"\r\n")).split()[1])
    finally:
        writer.transport.abort()
