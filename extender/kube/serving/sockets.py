"""Listening sockets, and TLS handshakes under way.

A host in ``EVERYWHERE`` stands for all addresses of both families, as in Kubernetes' own
``--bind-address``. One socket serves both, so that port 0 is one port. A machine without IPv6 gets
IPv4 alone.

asyncio's own server begins a handshake for every client, without a limit, and each takes some 100
KiB. ``TlsServer`` has at most ``HANDSHAKES_MAX`` of them. Beyond that the oldest is given up, so
that clients that connect and stay silent keep nobody out.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

BACKLOG: Final = 1024
EVERYWHERE: Final = frozenset({"", "0.0.0.0", "::"})
HANDSHAKES_MAX: Final = 128
GOODBYE_TIMEOUT_S: Final = 1.0
"""How long a TLS connection that we close waits for its client's consent; it keeps its buffers
until then.
"""
ACCEPT_AGAIN_S: Final = 1.0
"""The pause after a failed accept: most likely no file descriptors are left."""
_NO_IPV6: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


UNACKNOWLEDGED_MS: Final = 30_000
SEND_BYTES: Final = 32 * 1024
"""Of one connection in the kernel. It takes twice as much for its own bookkeeping."""
READ_BYTES: Final = 16 * 1024


def keep_little(transport: asyncio.Transport | None) -> None:
    """Bound what a connection holds that is answered for long and asks nothing more.

    asyncio keeps half a megabyte that the client does not take before it says so, and a buffer of
    256 KiB for what a client sends over TLS (``sslproto``), which only a client that sends needs.
    The kernel gives up a client that acknowledges nothing for ``UNACKNOWLEDGED_MS``; its own time
    is a quarter of an hour.
    """
    if transport is None:
        return
    transport.set_write_buffer_limits(high=SEND_BYTES)
    tls: Any = getattr(transport, "_ssl_protocol", None)
    if hasattr(tls, "_ssl_buffer"):
        tls.max_size = READ_BYTES
        # The next read takes this buffer as it is: no read is under way while a task runs.
        tls._ssl_buffer = buffer = bytearray(READ_BYTES)  # noqa: SLF001 - there is no other way
        tls._ssl_buffer_view = memoryview(buffer)  # noqa: SLF001
    connection = transport.get_extra_info("socket")
    if connection is None:
        return
    with suppress(OSError):  # closed meanwhile
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS)


async def listening_sockets(host: str, port: int, receive_bytes: int | None) -> list[socket.socket]:
    """A socket for each of the host's addresses, not accepting yet. ``receive_bytes``: see
    ``ConnectionLimits``. Raises OSError.
    """
    found: list[socket.socket] = []
    try:
        if host in EVERYWHERE:
            found.append(everywhere_socket(port))
        else:
            loop = asyncio.get_running_loop()
            kind, passive = socket.SOCK_STREAM, socket.AI_PASSIVE
            infos = await loop.getaddrinfo(host, port, type=kind, flags=passive)
            for family, *_, address in dict.fromkeys(infos):
                found.append(socket.create_server(address[:2], family=family, backlog=BACKLOG))
    except BaseException:
        for one in found:
            one.close()
        raise
    for one in found:
        one.setblocking(False)
        if receive_bytes is not None:  # connections inherit it
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    return found


def everywhere_socket(port: int) -> socket.socket:
    """A socket that listens on all addresses, of both families if there are both. Raises
    OSError.
    """
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
    """``host:port`` as in a URL, an IPv6 address in brackets."""
    bare = host.strip("[]") or "::"
    return f"[{bare}]:{port}" if ":" in bare else f"{bare}:{port}"


class PlainServer:
    """Accepts on some sockets without TLS."""

    def __init__(self, sockets: Sequence[socket.socket]) -> None:
        self.sockets = sockets
        self._servers: list[asyncio.Server] = []

    async def start(self, connection: Callable[[], asyncio.BaseProtocol]) -> None:
        """``connection`` makes the protocol of each connection."""
        loop = asyncio.get_running_loop()
        self._servers = [
            await loop.create_server(connection, sock=one, backlog=BACKLOG) for one in self.sockets
        ]

    def close(self) -> None:
        """Accept no more. Connections go on."""
        for server in self._servers:
            server.close()


class TlsServer:
    """Accepts on some sockets, and hands a connection on once its handshake is done."""

    def __init__(
        self, sockets: Sequence[socket.socket], context: ssl.SSLContext, handshake_timeout_s: float
    ) -> None:
        self.sockets = sockets
        self._context = context
        self._handshake_timeout_s = handshake_timeout_s
        self._paused: dict[socket.socket, asyncio.TimerHandle] = {}
        """Sockets that could not accept, until they try again."""
        self._handshakes: dict[asyncio.Task[None], socket.socket | None] = {}
        """Oldest first; a connection whose task has not run yet."""

    async def start(self, connection: Callable[[], asyncio.BaseProtocol]) -> None:
        """``connection`` makes the protocol of each connection."""
        for one in self.sockets:
            self._listen(one, connection)

    def close(self) -> None:
        """Accept no more, and give up handshakes. Connections go on."""
        loop = asyncio.get_running_loop()
        for one in self.sockets:
            if one.fileno() >= 0:
                loop.remove_reader(one)
            one.close()
        for timer in self._paused.values():
            timer.cancel()
        for task in self._handshakes:
            task.cancel()

    def _listen(
        self, listening: socket.socket, connection: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        self._paused.pop(listening, None)
        asyncio.get_running_loop().add_reader(listening, self._accept, listening, connection)

    def _accept(
        self, listening: socket.socket, connection: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        """A client waits. ``loop.sock_accept`` would lose the connection if it were cancelled at
        the moment in which it has it.
        """
        loop = asyncio.get_running_loop()
        try:
            accepted, _ = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # the client is gone
        except OSError:
            loop.remove_reader(listening)
            again = loop.call_later(ACCEPT_AGAIN_S, self._listen, listening, connection)
            self._paused[listening] = again
            return
        accepted.setblocking(False)
        if len(self._handshakes) >= HANDSHAKES_MAX:
            oldest = next(iter(self._handshakes))
            self._shaken(oldest)
            oldest.cancel()
        task = asyncio.create_task(self._shake_hands(accepted, connection))
        self._handshakes[task] = accepted
        task.add_done_callback(self._shaken)

    def _shaken(self, task: asyncio.Task[None]) -> None:
        untouched = self._handshakes.pop(task, None)
        if untouched is not None:
            untouched.close()

    async def _shake_hands(
        self, accepted: socket.socket, connection: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        if (task := asyncio.current_task()) is not None:
            self._handshakes[task] = None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                connection,
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=self._handshake_timeout_s,
                ssl_shutdown_timeout=GOODBYE_TIMEOUT_S,
            )
        except OSError:  # the client's fault, or a time-out: the connection is closed
            return
