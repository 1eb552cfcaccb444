"""A client that costs next to nothing: one kept connection, one request at a time, written as it
goes over the wire.
"""

import asyncio
import ssl
from typing import Self

HOST = "localhost"


class Connection:
    """A kept HTTP/1.1 connection to a server on loopback. Close it in the end."""

    def __init__(self, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
        self._reader, self._writer = streams

    @classmethod
    async def open(cls, port: int, tls: ssl.SSLContext | None = None) -> Self:
        """Connect, by TLS with a context that trusts ``localhost``'s certificate."""
        host = HOST if tls is not None else None
        return cls(await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=host))

    async def post(self, message: bytes) -> bytes:
        """Send what ``request`` made; the body of the answer. Raises AssertionError for a status
        other than 200.
        """
        self._writer.write(message)
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
        body = await self._reader.readexactly(int(length))
        if not head.startswith(b"http/1.1 200"):
            raise AssertionError(f"{head.decode()}{body.decode()}")
        return body

    def close(self) -> None:
        """End the connection."""
        self._writer.close()


def request(path: str, body: bytes) -> bytes:
    """A POST of JSON."""
    head = f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
