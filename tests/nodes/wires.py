"""TCP between network namespaces that have nothing but their loopback: ``python -m
tests.nodes.wires FILE``.

Theory of operation. A socket stays in the network namespace that it was made in, whoever uses it.
So this program enters a namespace for as long as it takes to make a listening or a connecting
socket, goes back, and copies bytes between the two as any proxy does. It reads one JSON list of
wires from a file: ``{"inside": PID or 0, "listen": [HOST, PORT], "to": PID or 0, "address": [HOST,
PORT]}``, where the namespaces are those of processes and 0 is its own. It runs until it is ended.
"""

import asyncio
import contextlib
import ctypes
import json
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

CHUNK_BYTES: Final = 65536
_CLONE_NEWNET: Final = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def _enter(descriptor: int) -> None:
    if _libc.setns(descriptor, _CLONE_NEWNET) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


class Namespace:
    """The network namespace of a process, which it outlives; 0: that of this program."""

    def __init__(self, pid: int) -> None:
        self._home = os.open("/proc/self/ns/net", os.O_RDONLY)
        self._there = os.open(f"/proc/{pid or 'self'}/ns/net", os.O_RDONLY)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Sockets made within are the namespace's. Nothing may wait in it: the thread is elsewhere
        meanwhile.
        """
        _enter(self._there)
        try:
            yield
        finally:
            _enter(self._home)

    def socket(self) -> socket.socket:
        """A TCP socket of that namespace."""
        with self.entered():
            made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        made.setblocking(False)
        return made


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()


async def lay(wire: dict[str, Any]) -> asyncio.Server:
    """Serves one wire."""
    listening = Namespace(wire["inside"]).socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(tuple(wire["listen"]))
    other = Namespace(wire["to"])

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far = other.socket()
        try:
            async with asyncio.timeout(10.0):
                await asyncio.get_running_loop().sock_connect(far, tuple(wire["address"]))
        except OSError:
            far.close()
            # A refused connection is a reset, not an end of stream: clients try again at once.
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection(sock=far)
        await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))

    return await asyncio.start_server(serve, sock=listening)


async def main(wires: list[dict[str, Any]]) -> None:
    """Runs until it is ended."""
    servers = [await lay(wire) for wire in wires]
    await asyncio.gather(*(server.serve_forever() for server in servers))


if __name__ == "__main__":
    asyncio.run(main(json.loads(Path(sys.argv[1]).read_text())))
