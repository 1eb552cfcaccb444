"""What clients send beyond bodies: heads, trailers, framing and requests ahead, over real
sockets.
"""

import asyncio
import time

import pytest

from extender.kube.serving.guard import ConnectionLimits
from tests.service.http.test_overload import Raw
from tests.service.http.test_server import NODES, Serving, serving
from tests.support.service import World, bind_args, filter_args, until

LARGE_HEAD = b"GET /livez HTTP/1.1\r\nHost: x\r\n" + b"".join(
    b"X-%d: " % number + b"x" * 8000 + b"\r\n" for number in range(120)
)
"""Every line and field, and their number, within aiohttp's limits."""
FIELDS = b"".join(b"X-%d: " % number + b"x" * 8000 + b"\r\n" for number in range(7))


async def test_a_head_of_a_megabyte_is_refused_before_it_is_whole():
    world = await World.create()
    async with serving(world) as it:
        raw = await Raw.to(it)
        raw.send(LARGE_HEAD)
        async with asyncio.timeout(2):
            assert await raw.answer() == 431
            assert await raw.is_cut()


async def test_trailers_without_end_cut_the_connection():
    world = await World.create()
    async with serving(world) as it:
        raw = await Raw.to(it)
        raw.head("filter", "Transfer-Encoding: chunked")
        raw.send(b"2\r\n{}\r\n0\r\n")
        await until(lambda: it.server.gate.bodies.arriving == 1, timeout_s=15)
        for _ in range(4):
            raw.send(FIELDS)
            await asyncio.sleep(0.01)
        await until(lambda: it.server._listener.cut == {"too many bytes": 1}, timeout_s=15)
        assert await raw.is_cut()


async def test_broken_chunks_are_refused_at_once_and_repeated_by_no_error():
    world = await World.create()
    async with serving(world) as it:
        raw = await Raw.to(it)
        raw.head("filter", "Transfer-Encoding: chunked")
        await until(lambda: it.server.gate.bodies.arriving == 1, timeout_s=15)
        began = time.perf_counter()
        raw.send(b"zz" * 100_000)
        assert await raw.answer() == 400
        assert time.perf_counter() - began < 0.5, "or its reader waits until the body is late"
        raw.writer.transport.abort()


async def test_nothing_is_read_ahead_while_a_request_is_served():
    world = await World.create()
    await world.pod(0)
    async with serving(world) as it:
        pause = world.api.pause("bind", "pods")
        raw = await Raw.to(it)
        body = bind_args(await world.pod_object(0), "node-1")
        raw.head("bind", f"Content-Length: {len(body)}")
        raw.send(body)
        await pause.reached.wait()
        for _ in range(40):
            raw.send(b"GET /livez HTTP/1.1\r\nHost: x\r\n" + FIELDS + b"\r\n")
        await asyncio.sleep(0.2)
        (handler,) = it.server._listener._guards
        assert len(handler._messages) == 0  # type: ignore[attr-defined]
        assert it.server._listener.unserved_bytes < 600_000
        pause.go_on.set()
        assert [await raw.answer() for _ in range(41)] == [200] * 41
        await raw.close()
        await until(lambda: it.server._listener.connections == 0, timeout_s=15)
        assert it.server._listener.unserved_bytes == 0


async def test_all_unserved_bytes_together_are_bounded_and_the_largest_holder_goes():
    world = await World.create()
    await world.pod(0)
    good = filter_args(await world.pod_object(0), NODES)
    async with serving(world) as it:
        listener = it.server._listener
        listener.limits = ConnectionLimits(unserved_bytes_max=500_000)
        small = await _unfinished(it, 10_000)
        held = [await _unfinished(it, 50_000 + number) for number in range(20)]
        await until(lambda: listener.cut["too many bytes"] == 11, timeout_s=15)
        assert listener.unserved_bytes <= 500_000
        assert (await it.post("filter", good))[0] == 200
        small.send(b"\r\n\r\n")
        assert await small.answer() == 200, "who holds little stays"
        for raw in [small, *held]:
            raw.writer.transport.abort()


async def _unfinished(it: Serving, size_bytes: int) -> Raw:
    raw = await Raw.to(it)
    begin = b"GET /livez HTTP/1.1\r\nHost: x"
    lines = b"".join(b"\r\nX-%d: " % number + b"x" * 4990 for number in range(size_bytes // 5000))
    raw.send(begin + lines + b"\r\nX: " + b"x" * (size_bytes % 5000))
    await asyncio.sleep(0.005)
    return raw


@pytest.mark.parametrize("path", ["/metrics", "/state.json", "/nowhere"])
async def test_a_body_that_nobody_reads_is_not_kept_and_the_next_request_is_answered(path: str):
    world = await World.create()
    async with serving(world) as it:
        raw = await Raw.to(it)
        raw.send(
            b"GET %b HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n" % path.encode()
            + b"x" * 1_000_000
        )
        assert await raw.answer() == (404 if path == "/nowhere" else 200)
        assert await raw.get("/livez") == 200
        await raw.close()


async def test_bodies_that_come_with_many_heads_at_once_cut_nobody_who_sends_little():
    world = await World.create()
    await world.pod(0)
    good = filter_args(await world.pod_object(0), NODES)
    async with serving(world) as it:
        it.server._listener.limits = ConnectionLimits(unserved_bytes_max=300_000)
        floods = [await Raw.to(it) for _ in range(20)]
        for raw in floods:
            raw.head("plan", "Content-Length: 1048576")
            raw.send(b" " * 200_000)
        for _ in range(20):
            assert (await it.post("filter", good))[0] == 200
            for raw in floods:
                raw.send(b" " * 10_000)
        for raw in floods:
            raw.writer.transport.abort()
        await until(lambda: it.server._listener.connections <= 1, timeout_s=15)
        assert (it.server._listener.unserved_bytes, it.server._listener.arrived_bytes) == (0, 0)
