"""``TcpProxy``: a wire between two programs that can be cut, held, and cut in the middle of an
answer.

Theory of operation. It forwards bytes and knows nothing of what they mean, so TLS passes through
it. Each new connection goes to the first upstream that takes it, beginning with another one each
time. ``hold`` stops all bytes both ways (a route that is gone: nobody is told), ``reset`` ends all
connections with RST, whatever is under way on them.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Sequence
from typing import Final

CHUNK_BYTES_MAX: Final = 64 * 1024
CONNECT_TIMEOUT_S: Final = 1.0
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER on, 0 s: close sends RST."""

Address = tuple[str, int]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class TcpProxy:
    """Listens on ``address`` between ``start`` and ``stop``; ``upstreams`` may be replaced at any
    time.
    """

    def __init__(self, address: Address, upstreams: Sequence[Address]) -> None:
        self.address = address
        self.upstreams = list(upstreams)
        self.resets = 0
        """Connections that were cut."""
        self._turn = 0
        self._open = asyncio.Event()
        self._open.set()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        """Listens. Raises OSError where the port is taken."""
        self._server = await asyncio.start_server(self._serve, *self.address)

    async def stop(self) -> None:
        """Cuts everything and listens no more."""
        if self._server is not None:
            self._server.close()
            self.resume()
            self.reset()
            await self._server.wait_closed()
            self._server = None

    def reset(self) -> None:
        """Cuts all connections with RST."""
        for writer in list(self._writers):
            if writer.transport.is_closing():
                continue
            sock: socket.socket | None = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):
                if sock is not None:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()
            self.resets += 1

    def hold(self) -> None:
        """No byte passes until ``resume``; connections are taken and hang."""
        self._open.clear()

    def resume(self) -> None:
        """Bytes pass again, also those that have waited."""
        self._open.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            await self._open.wait()
            upstream = await self._connect()
            if upstream is None:
                return
            self._writers.add(upstream[1])
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._pump(reader, upstream[1]))
                    tasks.create_task(self._pump(upstream[0], writer))
            finally:
                self._writers.discard(upstream[1])
                upstream[1].close()
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _connect(self) -> Streams | None:
        self._turn += 1
        known = self.upstreams
        for index in range(len(known)):
            address = known[(self._turn + index) % len(known)]
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    return await asyncio.open_connection(*address)
        return None

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(CHUNK_BYTES_MAX):
                await self._open.wait()
                if sink.is_closing():  # cut meanwhile
                    break
                sink.write(data)
                await sink.drain()
        # Half-closed connections are nobody's here: one end is the end.
        sink.close()
