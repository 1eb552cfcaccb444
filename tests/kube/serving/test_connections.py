"""What a connection of the HTTP servers holds of our memory, and who gives way to whom."""

import asyncio
import gc
import socket
import ssl
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop
from aiohttp import web

from extender.kube.serving import sockets
from extender.kube.serving.guard import ConnectionLimits
from extender.kube.serving.listener import Listener, body_of
from tests.service.authority import Authority
from tests.support.service import until

RECEIVE_BYTES = 16 * 1024
RECEIVE_BUFFER = (socket.SOL_SOCKET, socket.SO_RCVBUF)


class Served:
    """A listener with one route that reads bodies and one that tells of its connection."""

    def __init__(
        self,
        listener: Listener,
        port: int,
        tls: ssl.SSLContext | None,
        left: "LeftAlone",
    ) -> None:
        self.listener, self.port, self._tls = listener, port, tls
        self.left = left

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=self._tls)

    async def ask(
        self, connection: tuple[asyncio.StreamReader, asyncio.StreamWriter], path: str = "/"
    ) -> bytes:
        reader, writer = connection
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in head.partition(b"\r\n")[0], head
        return await reader.readuntil(b".")


class LeftAlone:
    """How far the handler is of a request whose client leaves."""

    def __init__(self) -> None:
        self.served, self.ended = asyncio.Event(), asyncio.Event()


def _routes_of_who_leaves(app: web.Application, left: LeftAlone) -> None:
    async def until_gone(request: web.Request) -> web.Response:
        transport = request.transport
        left.served.set()

        async def is_gone() -> bool:
            return transport is None or transport.is_closing()

        await until(is_gone, timeout_s=15)
        try:
            await web.StreamResponse().prepare(request)
        finally:
            left.ended.set()
        raise AssertionError("nobody is there to be answered")

    async def unchecked(request: web.Request) -> web.Response:
        left.served.set()
        try:
            return web.Response(body=await body_of(request).read())
        finally:
            left.ended.set()

    async def broken(request: web.Request) -> web.Response:
        try:
            await until_gone(request)
        except ConnectionError:
            raise RuntimeError("a mistake of ours") from None
        raise AssertionError("nobody is there to be answered")

    app.router.add_get("/broken", broken)
    app.router.add_get("/until-gone", until_gone)
    app.router.add_post("/unchecked", unchecked)


@asynccontextmanager
async def served(
    limits: ConnectionLimits, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Served]:
    async def ok(_request: web.Request) -> web.Response:
        return web.Response(text="ok.")

    async def kept(request: web.Request) -> web.Response:
        assert request.transport is not None
        size = request.transport.get_extra_info("socket").getsockopt(*RECEIVE_BUFFER)
        return web.Response(text=f"{size}.")

    async def read(request: web.Request) -> web.Response:
        try:
            await body_of(request).read()
        except (web.RequestPayloadError, ConnectionError) as error:
            return web.Response(status=400, text=f"{error}.")
        return web.Response(text="ok.")

    listener, app, left = Listener(limits), web.Application(), LeftAlone()
    _routes_of_who_leaves(app, left)
    app.router.add_get("/", ok)
    app.router.add_get("/kept", kept)
    app.router.add_post("/", read)
    port = await listener.start(app, "127.0.0.1", 0, tls=tls)
    client = None
    if tls is not None:
        client = ssl.create_default_context()
        client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    try:
        yield Served(listener, port, client, left)
    finally:
        await listener.stop()


def _held() -> dict[str, int]:
    """How many requests and servers' ends of TLS connections are in memory."""
    found = gc.get_objects()
    return {
        "requests": sum(isinstance(each, web.Request) for each in found),
        "TLS": sum(isinstance(each, ssl.SSLObject) and each.server_side for each in found),
    }


async def _alone(it: Served) -> bool:
    return it.listener.connections == 0


@pytest.mark.parametrize(("limit", "is_bounded"), [(RECEIVE_BYTES, True), (None, False)])
async def test_what_one_read_can_bring_is_what_the_limit_says(limit: int | None, is_bounded: bool):
    async with served(ConnectionLimits(receive_bytes=limit)) as it:
        connection = await it.connect()
        size = int((await it.ask(connection, "/kept")).strip(b"."))
        # Linux doubles it, for its own records.
        assert (size <= 2 * RECEIVE_BYTES) is is_bounded
        connection[1].close()


async def test_over_the_limit_who_has_asked_nothing_goes_before_who_has():
    async with served(ConnectionLimits(connections_max=2)) as it:
        served_before, silent = await it.connect(), await it.connect()
        await it.ask(served_before)
        newcomer = await it.connect()
        await it.ask(newcomer)
        assert await silent[0].read() == b""
        assert await it.ask(served_before) == b"ok."
        assert it.listener.cut == {"too many": 1}
        for _, writer in (served_before, silent, newcomer):
            writer.close()


SENT = {
    "broken framing": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    + b"z" * 100_000,
    "half a body": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" + b"z" * 50_000,
    "half a head": b"POST / HTTP/1.1\r\nHost: x\r\n" + b"X-1: z\r\n" * 100,
    "no HTTP": b"\x16\x03" + b"z" * 100_000,
    "too large a head": b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X-1: zzzzz\r\n" * 100_000,
}


LEFT = {
    "half of the body has come": SENT["half a body"].replace(b"POST /", b"POST /unchecked"),
    "the answer is to begin": b"GET /until-gone HTTP/1.1\r\nHost: x\r\n\r\n",
}


async def _leave(it: Served, request: bytes) -> None:
    """Once the request is served, and until its handler has ended."""
    _, writer = await it.connect()
    writer.write(request)
    await asyncio.wait_for(it.left.served.wait(), timeout=15)
    writer.transport.abort()
    await asyncio.wait_for(it.left.ended.wait(), timeout=15)
    await until(lambda: _alone(it), timeout_s=15)


@pytest.mark.parametrize("when", LEFT)
async def test_that_a_client_leaves_is_no_error_of_ours(
    when: str, caplog: pytest.LogCaptureFixture
):
    """A traceback each would take longer than the request, and fill the log."""
    caplog.set_level("DEBUG")
    async with served(ConnectionLimits()) as it:
        await _leave(it, LEFT[when])
    told = [record for record in caplog.records if "the client has left" in record.message]
    assert [record.levelname for record in told] == ["DEBUG"]
    assert not [record for record in caplog.records if record.exc_info]


async def test_a_mistake_of_ours_is_logged_also_where_the_client_has_left(
    caplog: pytest.LogCaptureFixture,
):
    async with served(ConnectionLimits()) as it:
        await _leave(it, b"GET /broken HTTP/1.1\r\nHost: x\r\n\r\n")
    assert "a mistake of ours" in caplog.text


@pytest.mark.parametrize("sent", SENT)
async def test_a_connection_that_is_gone_leaves_nothing_to_the_collector(sent: str, tmp_path: Path):
    """Hundreds of attempts a second would be in memory until it looks."""
    async with served(ConnectionLimits(), _tls(tmp_path)) as it:
        gc.collect()
        gc.disable()
        try:
            before = _held()
            for _ in range(5):
                _, writer = await it.connect()
                writer.write(SENT[sent])
                await asyncio.sleep(0.05)
                writer.transport.abort()
            await until(lambda: _alone(it), timeout_s=15)
            await asyncio.sleep(0.05)
            assert _held() == before
        finally:
            gc.enable()


async def test_of_handshakes_that_do_not_go_on_the_oldest_gives_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sockets, "HANDSHAKES_MAX", 3)
    async with served(ConnectionLimits(handshake_timeout_s=60.0), _tls(tmp_path)) as it:
        silent = [await asyncio.open_connection("127.0.0.1", it.port) for _ in range(4)]
        assert await silent[0][0].read() == b""
        connection = await it.connect()
        assert await it.ask(connection) == b"ok."
        assert await silent[1][0].read() == b""
        assert not silent[2][0].at_eof()
        for _, writer in (*silent, connection):
            writer.close()


@pytest.mark.parametrize("loop", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("turns", range(5))
def test_a_server_that_closes_while_a_client_comes_closes_the_clients_connection(
    tmp_path: Path, loop, turns: int
):
    """``turns`` of the event loop after the client came."""

    async def come_and_close() -> None:
        (listening,) = await sockets.listening_sockets("127.0.0.1", 0, None)
        server = sockets.TlsServer([listening], _tls(tmp_path), 60.0)
        await server.start(asyncio.Protocol)
        await asyncio.sleep(0)
        with socket.create_connection(listening.getsockname()):
            for _ in range(turns):
                await asyncio.sleep(0)
            server.close()
            await asyncio.sleep(0.02)

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ResourceWarning)
        # The loop that an earlier test left to its thread: ``loop`` puts its own in its place.
        warnings.filterwarnings("ignore", "unclosed event loop", ResourceWarning)
        loop(come_and_close())
        gc.collect()
    assert [str(one.message) for one in told] == []


def test_a_client_that_gives_up_its_handshake_leaves_nothing(tmp_path: Path):
    """On the loop that is shipped: asyncio's own leaves its failed handshakes to the collector."""

    async def give_up() -> None:
        async with served(ConnectionLimits(), _tls(tmp_path)) as it:
            for sent in (b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n"):
                _, writer = await asyncio.open_connection("127.0.0.1", it.port)
                writer.write(sent)
                await asyncio.sleep(0.02)
                writer.transport.abort()
            await asyncio.sleep(0.1)
            connection = await it.connect()
            assert await it.ask(connection) == b"ok."
            assert _held()["TLS"] == before + 1
            connection[1].close()

    gc.collect()
    gc.disable()
    before = _held()["TLS"]
    try:
        uvloop.run(give_up())
    finally:
        gc.enable()


def _tls(folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*Authority(folder, "ours").issue("localhost"))
    return context
