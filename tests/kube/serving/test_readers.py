"""Readers of long answers: they share one, are sent it in bounds, and delay no verb."""

import asyncio
import logging
import time
from collections.abc import Generator

import aiohttp
import orjson
import pytest
from aiohttp import web

from extender.kube.serving import readers
from extender.kube.serving.listener import Listener
from extender.kube.serving.readers import Sending, SharedAnswers, TooManyAsk, in_steps
from tests.service.http.test_overload import Raw
from tests.service.http.test_server import NODES, Serving, serving
from tests.support.service import World, a_world, filter_args, until

log = logging.getLogger(__name__)

VPODS = 1_500
READERS = 20


async def test_readers_of_the_state_do_not_delay_a_filter():
    world = await a_world(0, 1, 2)
    for number in range(VPODS):
        await world.vpod(f"v{number}", 1)
    body = filter_args(await world.pod_object(0), NODES)
    async with serving(world) as it:
        await until(lambda: _knows(it, VPODS), timeout_s=30)
        alone_s = await _median_of_filters(it, body)
        reading = [asyncio.create_task(_read_on(it.server.url)) for _ in range(READERS)]
        await asyncio.sleep(0.5)
        beside_s = await _median_of_filters(it, body)
        for task in reading:
            task.cancel()
        await asyncio.wait(reading)
    log.info("filter p50: alone %.1f ms, beside readers %.1f ms", alone_s * 1e3, beside_s * 1e3)
    assert beside_s < alone_s + 0.1


async def _knows(it: Serving, vpods: int) -> bool:
    (pool,) = orjson.loads((await it.get("/state.json"))[1])["pools"]
    return bool(pool["vpods"] == vpods)


async def _read_on(url: str) -> None:
    async with aiohttp.ClientSession() as session:
        while True:
            async with session.get(url + "/state.json") as reply:
                await reply.read()


async def _median_of_filters(it: Serving, body: bytes) -> float:
    took_s = []
    for _ in range(25):
        began = time.perf_counter()
        assert (await it.post("filter", body))[0] == 200
        took_s.append(time.perf_counter() - began)
    return sorted(took_s)[len(took_s) // 2]


async def test_who_asks_at_once_shares_an_answer_that_is_no_older_than_the_question():
    made = 0
    go_on = asyncio.Event()

    async def make(_key: str) -> bytes:
        nonlocal made
        made += 1
        number = made
        await go_on.wait()
        return b"%d" % number

    shared = SharedAnswers(make, general="")
    first = asyncio.create_task(shared.get(""))
    await until(lambda: made == 1)
    later = [asyncio.create_task(shared.get("")) for _ in range(50)]
    later[0].cancel()
    await asyncio.sleep(0)
    go_on.set()
    assert await first == b"1"
    assert set(await asyncio.gather(*later[1:])) == {b"2"}
    assert made == 2


async def test_what_is_raised_while_it_is_made_is_told_to_who_asked_and_to_nobody_after():
    answers = [ValueError("no"), None]

    async def make(_key: str) -> bytes:
        if (error := answers.pop(0)) is not None:
            raise error
        return b"yes"

    shared = SharedAnswers(make, general="")
    with pytest.raises(ValueError, match="no"):
        await shared.get("")
    assert await shared.get("") == b"yes"


async def test_of_questions_that_wait_there_are_a_few_and_the_general_one_always_finds_a_place():
    go_on = asyncio.Event()

    async def make(key: str) -> bytes:
        await go_on.wait()
        return key.encode()

    shared = SharedAnswers(make, general="")
    asked = [asyncio.create_task(shared.get(f"q{number}")) for number in range(1_000)]
    await asyncio.sleep(0)
    general = asyncio.create_task(shared.get(""))
    await asyncio.sleep(0)
    assert shared.waiting <= readers.WAITING_MAX + 1
    go_on.set()
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert (
        sum(isinstance(result, TooManyAsk) for result in results) >= 1_000 - readers.WAITING_MAX - 1
    )
    assert await general == b""
    assert await shared.get("again") == b"again"


async def test_who_waits_for_one_answer_are_bounded_too():
    go_on = asyncio.Event()

    async def make(_key: str) -> bytes:
        await go_on.wait()
        return b"made"

    shared = SharedAnswers(make, general="")
    asked = [asyncio.create_task(shared.get("")) for _ in range(readers.ASKED_MAX + 10)]
    await asyncio.sleep(0)
    go_on.set()
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert sum(isinstance(result, TooManyAsk) for result in results) == 10


async def test_one_who_asks_something_else_each_time_is_told_to_ask_again_and_a_key_has_an_end():
    world = await World.create()
    async with serving(world) as it:
        asked = [it.get(f"/state.json?vpod=a/{number}") for number in range(200)]
        statuses = [status for status, _ in await asyncio.gather(*asked)]
        assert set(statuses) == {200, 503}
        assert (await it.get("/state.json"))[0] == 200
        status, text = await it.get(f"/state.json?vpod={'x' * 2_000}")
        assert (status, text) == (400, "vpod: expected a key of at most 1024 characters\n")


@pytest.mark.looptime
async def test_readers_who_ask_again_and_again_take_a_quarter_of_the_time():
    clock = asyncio.get_running_loop().time

    async def make(_key: str) -> bytes:
        await asyncio.sleep(1)
        return b""

    shared = SharedAnswers(make, general="")
    began = clock()
    for _ in range(5):
        await shared.get("")
    assert clock() - began == pytest.approx(5 + 4 * readers.REST, abs=0.1)


async def test_others_run_between_steps():
    ran: list[str] = []

    def steps() -> Generator[None, None, str]:
        for number in range(3):
            ran.append(f"step {number}")
            yield
        return "made"

    async def other() -> None:
        while len(ran) < 6:
            ran.append("other")
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    assert await in_steps(steps()) == "made"
    await beside
    assert ran[:5] == ["step 0", "other", "step 1", "other", "step 2"]


async def _serve(sending: Sending, bodies: list[bytes]) -> tuple[Listener, int]:
    async def answer(request: web.Request) -> web.StreamResponse:
        return await sending.send(request, web.Response(body=bodies[int(request.query["body"])]))

    app = web.Application()
    app.router.add_get("/", answer)
    listener = Listener()
    return listener, await listener.start(app, "127.0.0.1", 0, tls=None)


async def _deaf(port: int, body: int) -> Raw:
    raw = Raw(*await asyncio.open_connection("127.0.0.1", port, limit=1))
    raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
    raw.send(b"GET /?body=%d HTTP/1.1\r\nHost: x\r\n\r\n" % body)
    return raw


async def test_a_body_counts_once_for_all_readers_and_over_the_bytes_the_longest_gives_way(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(readers, "PATIENCE_S", 0.0)
    sending = Sending(bodies_bytes_max=90_000_000)
    listener, port = await _serve(
        sending, [b"x" * 40_000_000, b"y" * 40_000_000, b"z" * 40_000_000]
    )
    deaf = [await _deaf(port, 0) for _ in range(5)]
    await until(lambda: len(sending._readers) == 5)
    assert sending.bytes_used == 40_000_000
    deaf += [await _deaf(port, 1), await _deaf(port, 2)]
    await until(lambda: len(sending._readers) == 2)
    assert sending.bytes_used == 80_000_000
    for raw in deaf:
        raw.writer.transport.abort()
    await until(lambda: not sending._readers)
    assert (sending.bytes_used, sending._bodies) == (0, {})
    await listener.stop()


async def test_where_all_have_just_begun_the_new_reader_is_told_to_come_again():
    sending = Sending(sending_max=2)
    listener, port = await _serve(sending, [b"x" * 20_000_000])
    deaf = [await _deaf(port, 0) for _ in range(2)]
    await until(lambda: len(sending._readers) == 2)
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}/?body=0") as reply,
    ):
        assert (reply.status, reply.headers["Retry-After"]) == (503, "1")
    for raw in deaf:
        raw.writer.transport.abort()
    await listener.stop()
