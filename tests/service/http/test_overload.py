"""More than it takes: floods, slow clients, held connections and odd requests, over real
sockets.
"""

import asyncio
import contextlib
import logging
import ssl
import time
from collections.abc import Awaitable, Callable

import orjson
import pytest
from aiohttp import web

from extender.kube.serving.guard import ConnectionLimits
from extender.kube.serving.listener import KEEPALIVE_TIMEOUT_S, Listener
from extender.model.errors import WireError
from extender.service.http.overload import BIND, FILTER, Gate, Overloaded, VerbLimits
from tests.service.http.test_server import NODES, Serving, limited, serving
from tests.support.service import World, bind_args, filter_args, until

log = logging.getLogger(__name__)

REFUSALS = 400


class Body:
    """A body in parts; ``then`` is awaited before its end."""

    def __init__(self, *parts: bytes, then: Callable[[], Awaitable[object]] | None = None) -> None:
        self._parts = list(parts)
        self._then = then

    def is_eof(self) -> bool:
        return False

    async def readany(self) -> bytes:
        if self._parts:
            return self._parts.pop(0)
        if self._then is not None:
            await self._then()
        return b""


# -- the gate --------------------------------------------------------------------------------------


async def test_bodies_that_arrive_together_share_a_budget_and_give_it_back():
    gate = Gate(VerbLimits(bodies_bytes_max=100))
    with gate.admit(FILTER) as first:
        assert await first.read(Body(b"x" * 60), None) == b"x" * 60
        with gate.admit(FILTER) as second:
            with pytest.raises(Overloaded):
                await second.read(Body(b"y" * 30, b"y" * 11), 41)
            assert gate.bodies.bytes_used == 90, (
                "what had arrived counts until the request is answered"
            )
        with gate.admit(FILTER) as third:
            assert await third.read(Body(b"y" * 40), 40) == b"y" * 40
    assert gate.bodies.bytes_used == 0
    assert gate.refused == {FILTER: 1}


async def test_a_length_that_is_only_announced_takes_nothing_from_others():
    gate, arrives = Gate(VerbLimits(bodies_bytes_max=100)), asyncio.Event()
    with gate.admit(FILTER) as slow:
        reading = asyncio.create_task(slow.read(Body(b"x", then=arrives.wait), 100))
        await asyncio.sleep(0)
        with gate.admit(FILTER) as other:
            assert len(await other.read(Body(b"y" * 99), 99)) == 99
        arrives.set()
        assert await reading == b"x"


async def test_a_body_that_announces_too_much_is_not_read():
    gate = Gate(VerbLimits(body_bytes_max={BIND: 10}))
    with gate.admit(BIND) as admission, pytest.raises(WireError) as refused:
        await admission.read(Body(b"never read"), 11)
    assert (refused.value.status, gate.bodies.bytes_used) == (413, 0)


@pytest.mark.looptime
async def test_draining_ends_with_the_last_request_or_with_the_time():
    gate = Gate()
    assert await gate.drained(0)
    with gate.admit(BIND):
        assert not await gate.drained(10)
    assert await gate.drained(10)


# -- floods ----------------------------------------------------------------------------------------


async def test_while_all_binds_wait_the_rest_is_refused_at_once_and_everything_else_is_answered():
    world = await World.create()
    await world.pod(0)
    body = bind_args(await world.pod_object(0), "node-1")
    async with serving(world, deadline_s=60.0) as it:
        gate = limited(it, in_flight_max={BIND: 4, FILTER: 4})
        pause = world.api.pause("bind", "pods", times=4)
        waiting = [asyncio.create_task(it.post("bind", body)) for _ in range(4)]
        await until(lambda: gate.in_flight[BIND] == 4, timeout_s=15)
        took_s, statuses = await _flood(it, body)
        assert set(statuses) == {503}
        assert _percentile(took_s, 99) < 1.0, "nothing waits: the binds before it will not end"
        log.info("%d refusals: p50 %.1f ms, p99 %.1f ms", len(took_s), *_ms(took_s))
        assert gate.refused[BIND] == REFUSALS
        for path in ("/livez", "/readyz", "/metrics", "/state.json"):
            assert (await it.get(path))[0] == 200
        _, text = await it.get("/metrics")
        assert f'vreplica_scheduler_requests_turned_away_total{{verb="bind"}} {REFUSALS}.0' in text
        assert 'vreplica_scheduler_requests_in_flight{verb="bind"} 4.0' in text
        assert (await it.post("filter", filter_args(await world.pod_object(0), NODES)))[0] == 200
        pause.go_on.set()
        await asyncio.gather(*waiting)
    assert await world.node_of(0) == "node-1"


async def _flood(it: Serving, body: bytes) -> tuple[list[float], list[int]]:
    """Refusals asked for by 20 clients at once, one after the other each: seconds, statuses."""
    took_s: list[float] = []
    statuses: list[int] = []

    async def client() -> None:
        for _ in range(REFUSALS // 20):
            began = time.perf_counter()
            status, _ = await it.post("bind", body)
            took_s.append(time.perf_counter() - began)
            statuses.append(status)

    await asyncio.gather(*(client() for _ in range(20)))
    return took_s, statuses


def _percentile(values: list[float], percent: int) -> float:
    return sorted(values)[len(values) * percent // 100]


def _ms(took_s: list[float]) -> tuple[float, float]:
    return _percentile(took_s, 50) * 1e3, _percentile(took_s, 99) * 1e3


async def test_a_refusal_says_when_to_ask_again():
    world = await World.create()
    async with serving(world) as it:
        limited(it, in_flight_max={BIND: 0})
        url = f"{it.server.url}/v1/bind"
        async with it.session.post(
            url, data=b"{}", headers={"Content-Type": "application/json"}
        ) as reply:
            assert (reply.status, reply.headers["Retry-After"]) == (503, "1")


async def test_beyond_the_budget_half_a_body_gives_way_to_a_whole_one():
    world = await World.create()
    await world.pod(0)
    good = filter_args(await world.pod_object(0), NODES)
    async with serving(world) as it:
        limited(it, bodies_bytes_max=200_000)
        half_done = [await Raw.to(it) for _ in range(2)]
        for raw in half_done:
            raw.head("filter", "Content-Length: 100000")
            raw.send(b" " * 99_000)
        await until(lambda: it.server.gate.bodies.bytes_used == 198_000, timeout_s=15)
        assert (await it.post("filter", good + b" " * 10_000))[0] == 200
        await until(lambda: it.server.gate.bodies.bytes_used == 99_000, timeout_s=15)
        assert (await it.post("filter", good))[0] == 200
        status, text = await it.post("filter", b" " * 200_001)
        assert (status, "bytes of request bodies are in memory already" in text) == (503, True)
        for raw in half_done:
            await raw.close()
        await until(lambda: it.server.gate.bodies.bytes_used == 0, timeout_s=15)


# -- slow clients ----------------------------------------------------------------------------------


class Raw:
    """A client that sends bytes as it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def to(cls, it: Serving) -> "Raw":
        port = int(it.server.url.rpartition(":")[2])
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=2**24))

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def head(self, verb: str, *lines: str) -> None:
        more = "".join(f"{line}\r\n" for line in ("Content-Type: application/json", *lines))
        self.send(f"POST /v1/{verb} HTTP/1.1\r\nHost: x\r\n{more}\r\n".encode())

    async def get(self, path: str) -> int:
        self.send(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        return await self.answer()

    async def answer(self) -> int:
        """The status of the next answer, which is read to its end."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        (length,) = (
            line.partition(b":")[2]
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length")
        )
        await self.reader.readexactly(int(length))
        return int(head.split()[1])

    async def is_cut(self) -> bool:
        """Whether the server ends the connection without another byte; waits for it."""
        try:
            return await self.reader.read() == b""
        except ConnectionError:
            return True
        finally:
            await self.close()

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


def connection_limits(it: Serving, **limits) -> None:
    it.server._listener.limits = ConnectionLimits(**limits)


@pytest.mark.looptime
async def test_a_client_that_sends_its_head_byte_by_byte_is_cut():
    world = await World.create()
    async with serving(world) as it:
        raw = await Raw.to(it)
        clock = asyncio.get_running_loop().time
        began = clock()
        for byte in b"POST /v1/filter HTTP/1.1\r\nHost: somewhere\r\n":
            raw.send(bytes([byte]))
            await asyncio.sleep(1)
            if it.server._listener.cut:
                break
        assert await raw.is_cut()
        assert clock() - began == pytest.approx(it.server._listener.limits.head_timeout_s, abs=1.5)
        assert it.server._listener.cut == {"slow head": 1}


@pytest.mark.looptime
async def test_a_head_that_is_slow_behind_a_request_that_was_answered_is_cut_too():
    world = await World.create()
    async with serving(world) as it:
        raw = await Raw.to(it)
        assert await raw.get("/livez") == 200
        await asyncio.sleep(60)
        assert await raw.get("/livez") == 200, "idle is not slow"
        raw.send(b"GET /livez HT")
        assert await raw.is_cut()


async def test_a_client_that_never_reads_its_answers_is_cut(monkeypatch: pytest.MonkeyPatch):
    world = await World.create()
    async with serving(world) as it:
        connection_limits(it, write_timeout_s=0.2)
        monkeypatch.setattr(it.server._metrics, "render", lambda: b"x" * 20_000_000)
        raw = await Raw.to(it)
        raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
        raw.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: it.server._listener.cut == {"slow reader": 1}, timeout_s=15)
        await until(lambda: it.server._listener.connections == 0, timeout_s=15)
        raw.writer.transport.abort()


@pytest.mark.looptime
async def test_a_body_byte_by_byte_is_given_up_and_with_it_the_connection():
    world = await World.create()
    async with serving(world) as it:
        raw = await Raw.to(it)
        raw.head("bind", "Content-Length: 1000")
        sending = asyncio.create_task(_trickle(raw))
        assert await raw.answer() == 408
        assert await raw.is_cut()
        sending.cancel()
        assert it.server.gate.bodies.arriving == 0


async def _trickle(raw: Raw) -> None:
    for _ in range(1000):
        raw.send(b" ")
        await asyncio.sleep(0.5)


async def test_a_tls_handshake_that_does_not_go_on_is_given_up():
    listener = Listener(ConnectionLimits(handshake_timeout_s=0.1))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    port = await listener.start(web.Application(), "127.0.0.1", 0, tls=context)
    raw = Raw(*await asyncio.open_connection("127.0.0.1", port))
    raw.send(b"\x16\x03\x01\x02\x00\x01")  # the beginning of a hello
    assert await raw.is_cut()
    await listener.stop()


# -- many connections ------------------------------------------------------------------------------


async def test_a_thousand_idle_connections_do_not_delay_a_request():
    world = await World.create()
    await world.pod(0)
    body = filter_args(await world.pod_object(0), NODES)
    async with serving(world) as it:
        held = [await Raw.to(it) for _ in range(1000)]
        await until(lambda: it.server._listener.connections == 1000, timeout_s=15)
        began = time.perf_counter()
        assert (await it.post("filter", body))[0] == 200
        took_s = time.perf_counter() - began
        log.info("beside 1000 idle connections: %.1f ms", took_s * 1e3)
        assert took_s < 1.0
        assert await held[0].get("/livez") == 200, "and none of them was cut"
        for raw in held:
            raw.writer.transport.abort()


async def test_over_the_limit_of_connections_the_longest_idle_one_makes_room():
    world = await World.create()
    async with serving(world) as it:
        it.server._listener._connections_max = 3
        first, second, third = [await Raw.to(it) for _ in range(3)]
        for raw in (second, third, first):
            assert await raw.get("/livez") == 200
        newcomer = await Raw.to(it)
        assert await newcomer.get("/livez") == 200
        assert await second.is_cut()
        assert await first.get("/livez") == await third.get("/livez") == 200
        for raw in (first, third, newcomer):
            await raw.close()


async def test_over_the_limit_with_every_connection_busy_the_new_one_is_refused():
    world = await World.create()
    await world.pod(0)
    async with serving(world) as it:
        it.server._listener._connections_max = 1
        pause = world.api.pause("bind", "pods")
        asked = asyncio.create_task(it.post("bind", bind_args(await world.pod_object(0), "node-1")))
        await pause.reached.wait()
        newcomer = await Raw.to(it)
        assert await newcomer.is_cut()
        pause.go_on.set()
        assert orjson.loads((await asked)[1]) == {"Error": ""}


@pytest.mark.looptime
async def test_an_idle_connection_lives_longer_than_gos_client_keeps_it():
    world = await World.create()
    async with serving(world) as it:
        raw = await Raw.to(it)
        assert await raw.get("/livez") == 200
        await asyncio.sleep(120)
        assert await raw.get("/livez") == 200
        await asyncio.sleep(KEEPALIVE_TIMEOUT_S + 1)
        assert await raw.is_cut()


# -- odd requests ----------------------------------------------------------------------------------


async def test_pipelined_requests_are_answered_one_by_one_in_order():
    world = await World.create()
    async with serving(world) as it:
        raw = await Raw.to(it)
        raw.send(
            b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n" * 50
            + b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n"
        )
        assert [await raw.answer() for _ in range(51)] == [200] * 50 + [404]
        await raw.close()


@pytest.mark.parametrize(
    "where",
    [
        "POST /v1/bind",
        "GET /v1/bind",
        "GET /nowhere",
        "GET /livez",
        "GET /livez%0a",
        "OPTIONS *",
        "CONNECT a:80",
    ],
)
async def test_an_expectation_that_is_not_met_is_refused_whatever_its_bytes_and_wherever_it_goes(
    where: str,
):
    world = await World.create()
    async with serving(world) as it:
        raw = await Raw.to(it)
        raw.send(where.encode() + b" HTTP/1.1\r\nHost: x\r\nExpect: \xf4\xff\r\n\r\n")
        assert await raw.answer() == 417
        await raw.close()


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100, id="a-tls-hello"
        ),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", id="http-2"),
        pytest.param(b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", id="a-long-line"),
        pytest.param(
            b"GET /livez HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % i for i in range(500)) + b"\r\n",
            id="headers",
        ),
        pytest.param(
            b"GET /livez HTTP/1.1\r\nX: " + b"a" * 20_000 + b"\r\n\r\n", id="a-long-header"
        ),
        pytest.param(
            b"POST /v1/filter HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: "
            b"2\r\n\r\n{}",
            id="two-lengths",
        ),
        pytest.param(
            b"POST /v1/filter HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nTransfer-Encoding: "
            b"chunked\r\n\r\n{}",
            id="two-framings",
        ),
        pytest.param(
            b"POST /v1/filter HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n{}", id="negative"
        ),
        pytest.param(
            b"POST /v1/filter HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\nzz\r\n",
            id="broken-chunks",
        ),
    ],
)
async def test_a_malformed_request_gets_a_4xx_and_ends_the_connection(
    request_bytes: bytes, caplog: pytest.LogCaptureFixture
):
    world = await World.create()
    async with serving(world) as it:
        raw = await Raw.to(it)
        raw.send(request_bytes)
        assert await raw.answer() in {400, 413, 431}
        assert await raw.is_cut()
        assert await it.get("/livez") == (200, "ok\n")
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING], (
        "or anybody fills the log"
    )


async def test_a_client_that_goes_away_in_the_middle_leaves_nothing_behind_and_no_error(
    caplog: pytest.LogCaptureFixture,
):
    world = await World.create()
    await world.pod(0)
    async with serving(world) as it:
        for _ in range(20):
            raw = await Raw.to(it)
            raw.head("filter", "Content-Length: 100000")
            raw.send(b"{" * 50_000)
            await raw.writer.drain()
            raw.writer.transport.abort()
        await until(lambda: it.server._listener.connections == 0, timeout_s=15)
        assert await it.server.gate.drained(15)
        assert it.server.gate.bodies.bytes_used == 0
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
