"""Server-sent events: everything once, then news, at most two a second, for few listeners, who take
them or are cut.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import orjson
import pytest

from extender.service.http.page import stream
from extender.service.http.page.facts import News
from extender.service.http.page.stream import Feed, Listener, encode_event
from tests.support.builders import POOL
from tests.support.service import a_world, until
from tests.ui.scene import Cluster, a_page, served


class FakeFacts:
    """Facts that change when told to; looks are counted."""

    def __init__(self, looking_takes_s: float = 0.0) -> None:
        self.records: News = {"pods": {"p-0": 0}}
        self.looks = 0
        self._takes_s = looking_takes_s
        self._news: News = {}

    def change(self, value: int) -> None:
        self._news = {"pods": {"p-0": value}}
        self.records["pods"] = {"p-0": value}

    def all(self) -> News:
        return self.records

    async def look(self) -> News:
        self.looks += 1
        await asyncio.sleep(self._takes_s)
        news, self._news = self._news, {}
        return news


def a_feed(facts: FakeFacts) -> Feed:
    return Feed(facts)  # type: ignore[arg-type]


async def heard(listener: Listener, *, within_s: float = 0.1) -> list[bytes]:
    """The events that are there, and those that come meanwhile."""
    await asyncio.sleep(within_s)
    found = []
    while listener._queue.qsize():
        found.append(await listener.next())
    return found


def event(name: str, value: int) -> bytes:
    return encode_event(name, {"pods": {"p-0": value}})


@pytest.mark.looptime
async def test_a_listener_hears_everything_once_and_then_what_is_new():
    facts, listener = FakeFacts(), Listener()
    feed = a_feed(facts)
    feed.join(listener)
    assert await heard(listener) == [event("snapshot", 0)]
    assert await heard(listener, within_s=3) == []
    facts.change(1)
    assert await heard(listener, within_s=1) == [event("news", 1)]
    feed.leave(listener)


@pytest.mark.looptime
async def test_what_changes_all_the_time_is_told_twice_a_second():
    facts, listener = FakeFacts(), Listener()
    feed = a_feed(facts)
    feed.join(listener)
    await heard(listener)
    events = []
    for value in range(1, 101):
        facts.change(value)
        events += await heard(listener, within_s=0.02)
    assert len(events) == 4
    assert events[-1] > event("news", 70)
    feed.leave(listener)


@pytest.mark.looptime
async def test_who_comes_later_hears_everything_as_it_was_told_last():
    facts, first, second = FakeFacts(), Listener(), Listener()
    feed = a_feed(facts)
    feed.join(first)
    await heard(first)
    facts.change(1)
    await heard(first, within_s=1)
    feed.join(second)
    assert await heard(second) == [event("snapshot", 1)]
    assert facts.looks < 5
    for listener in (first, second):
        feed.leave(listener)


@pytest.mark.looptime
async def test_one_look_serves_all_who_listen_and_nobody_looks_for_nobody():
    facts, listeners = FakeFacts(), [Listener() for _ in range(20)]
    feed = a_feed(facts)
    for listener in listeners:
        feed.join(listener)
    await asyncio.sleep(10.2)
    assert facts.looks == 21
    for listener in listeners:
        feed.leave(listener)
    await asyncio.sleep(10)
    assert facts.looks == 21


@pytest.mark.looptime
async def test_where_a_look_takes_long_there_are_fewer_of_them():
    facts, listener = FakeFacts(looking_takes_s=0.5), Listener()
    feed = a_feed(facts)
    feed.join(listener)
    await asyncio.sleep(105)
    assert facts.looks == 10
    feed.leave(listener)


@pytest.mark.looptime
async def test_a_client_that_takes_nothing_is_cut_and_holds_nobody_up():
    cut: list[str] = []
    facts, slow, quick = FakeFacts(), Listener(lambda: cut.append("slow")), Listener()
    feed = a_feed(facts)
    feed.join(slow)
    feed.join(quick)
    for value in range(1, 40):
        facts.change(value)
        await heard(quick, within_s=0.5)
    assert (slow.cut, quick.cut, cut) == (True, False, ["slow"])
    assert slow._queue.qsize() == stream.QUEUE_ITEMS_MAX
    for listener in (slow, quick):
        feed.leave(listener)


@pytest.mark.looptime
async def test_while_nothing_happens_a_comment_keeps_the_connection():
    began = asyncio.get_running_loop().time()
    assert await Listener().next() == b":\n\n"
    assert asyncio.get_running_loop().time() - began == stream.KEEPALIVE_S


def test_an_event_is_two_lines_whatever_is_in_it():
    raw = encode_event("news", {"vpods": {"a\n\nevent: x\r\u2028": {"waits": "\ndata: y"}}})
    head, data, *rest = raw.split(b"\n")
    assert (head, rest) == (b"event: news", [b"", b""])
    assert orjson.loads(data.removeprefix(b"data: ")) == {
        "vpods": {"a\n\nevent: x\r\u2028": {"waits": "\ndata: y"}}
    }


# -- over real sockets -----------------------------------------------------------------------------


@asynccontextmanager
async def streaming(url: str, pool: str = POOL) -> AsyncIterator[aiohttp.ClientResponse]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{url}/v1/stream", params={"pool": pool}) as reply,
    ):
        yield reply


async def next_event(reply: aiohttp.ClientResponse) -> tuple[str, News]:
    name = ""
    async with asyncio.timeout(5):
        while True:
            line = (await reply.content.readuntil(b"\n")).decode().strip()
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                return name, orjson.loads(line.removeprefix("data: "))


async def test_a_page_is_told_the_state_and_each_change_of_it():
    cluster = Cluster(pods=6, vpods=8, nodes=3)
    async with served(a_page(cluster.state)) as url, streaming(url) as reply:
        assert reply.headers["Content-Type"].startswith("text/event-stream")
        name, told = await next_event(reply)
        assert (name, len(told["pods"]), len(told["vpods"])) == ("snapshot", 6, 8)
        cluster.state.pools[POOL].set_closed(0b1)
        name, told = await next_event(reply)
        assert (name, set(told["pods"])) == ("news", {"dispatcher-0"})


async def test_of_too_many_pages_the_last_is_told_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stream, "STREAMS_MAX", 2)
    page = a_page(Cluster(pods=1, vpods=1, nodes=1).state)
    async with served(page) as url:
        async with streaming(url) as first, streaming(url) as second:
            assert (first.status, second.status, page.streams.open) == (200, 200, 2)
            async with streaming(url) as third:
                assert (third.status, third.headers["Retry-After"]) == (503, "10")
                assert "2 pages are open already" in await third.text()
        await until(lambda: not page.streams.open, timeout_s=5)
        async with streaming(url) as again:
            assert again.status == 200
    assert page.streams.ended == {"too many": 1, "slow reader": 0}


async def test_a_service_that_stops_ends_its_streams_at_once():
    page = a_page(Cluster(pods=1, vpods=1, nodes=1).state)
    async with served(page) as url:
        context = streaming(url)
        reply = await context.__aenter__()
        await next_event(reply)
        began = asyncio.get_running_loop().time()
    assert (
        asyncio.get_running_loop().time() - began < 0.9
    )  # what the listener waits for who goes on
    assert (await reply.content.read()).strip() == b""
    await context.__aexit__(None, None, None)


async def test_the_service_streams_what_it_places():
    world = await a_world(0, 1)
    async with world.serving(serve=True) as service, streaming(service.server.url) as reply:
        name, told = await next_event(reply)
        assert (name, told["service"][""]["problems"]) == ("snapshot", [])  # type: ignore[index]
        await world.vpod("a", 3)
        placed = 0
        while placed < 3:
            _, told = await next_event(reply)
            pods = told.get("pods", {}).values()
            placed += sum(pod["used"] for pod in pods if pod["used"])  # type: ignore[index]
