"""A client that costs next to nothing: whole requests down kept connections, whole answers up, one
thread, no parsing.

An answer's body is found by Content-Length, or by the last chunk (Go's server sends longer ones in
chunks). ``Connections`` sends one request down each of its connections at once and times each
answer, as several binds of a kube-scheduler are.
"""

import selectors
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Self

READ_BYTES: Final = 1024 * 1024
TIMEOUT_S: Final = 30.0
_END: Final = b"\r\n\r\n"
_LAST_CHUNK: Final = b"\r\n0\r\n\r\n"


class BadAnswer(Exception):
    """An answer that is not 200, or no answer."""


@dataclass
class _Connection:
    sock: socket.socket
    received: bytearray = field(default_factory=bytearray)

    def take(self) -> bool:
        """Read what is there; whether the answer is whole. Raises BadAnswer."""
        chunk = self.sock.recv(READ_BYTES)
        if not chunk:
            raise BadAnswer("the connection was closed before the end of the answer")
        self.received += chunk
        return is_whole(self.received)


class Connections:
    """``count`` connections to ``host`` (address:port), kept; a context manager."""

    def __init__(self, host: str, count: int = 1) -> None:
        self.host = host
        address, _, port = host.rpartition(":")
        self._all: list[_Connection] = []
        for _ in range(count):
            sock = socket.create_connection((address, int(port)), timeout=TIMEOUT_S)
            # As Go's and Python's servers and clients do.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._all.append(_Connection(sock))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._all:
            connection.sock.close()

    def exchange(self, request: bytes) -> tuple[bytes, float]:
        """One request down the first connection: the body of its answer, and how long it took
        (seconds).
        """
        ((body, took_s),) = self.exchange_all([request])
        return body, took_s

    def exchange_all(self, requests: Sequence[bytes]) -> list[tuple[bytes, float]]:
        """One request down each of as many connections, at once; bodies and seconds, each from its
        own sending.

        Raises BadAnswer where one is not answered 200 within ``TIMEOUT_S``.
        """
        used = self._all[: len(requests)]
        sent_s: dict[int, float] = {}
        took_s: dict[int, float] = {}
        with selectors.DefaultSelector() as selector:
            for connection, request in zip(used, requests, strict=True):
                connection.received.clear()
                selector.register(connection.sock, selectors.EVENT_READ, connection)
                sent_s[id(connection)] = time.perf_counter()
                connection.sock.sendall(request)
            while len(took_s) < len(used):
                ready = selector.select(TIMEOUT_S)
                if not ready:
                    raise BadAnswer(f"no answer within {TIMEOUT_S:g} s")
                for key, _ in ready:
                    connection = key.data
                    if connection.take():
                        took_s[id(connection)] = time.perf_counter() - sent_s[id(connection)]
                        selector.unregister(connection.sock)
        return [(body_of(bytes(each.received)), took_s[id(each)]) for each in used]


def is_whole(received: bytes | bytearray) -> bool:
    """Whether an answer has come to its end."""
    end = received.find(_END)
    if end < 0:
        return False
    length = _length(bytes(received[:end]))
    if length is not None:
        return len(received) >= end + len(_END) + length
    return received.endswith(_LAST_CHUNK)


def body_of(answer: bytes) -> bytes:
    """The body of a whole answer. Raises BadAnswer unless it is a 200."""
    head, _, rest = answer.partition(_END)
    if not head.startswith(b"HTTP/1.1 200 "):
        raise BadAnswer((head[:200] + b" | " + rest[:500]).decode(errors="replace"))
    if _length(head) is not None:
        return rest
    chunks = []
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        chunks.append(rest[: int(size, 16)])
        rest = rest[int(size, 16) + 2 :]
    return b"".join(chunks)


def _length(head: bytes) -> int | None:
    """Content-Length, None where the answer is chunked."""
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return None
