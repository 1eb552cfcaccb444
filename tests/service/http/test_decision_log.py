"""``GET /v1/decisions``: what a replica tells who records it, over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import aiohttp
import orjson
import pytest

from extender.service.app import Service
from extender.service.http import decision_log, recording_buffer
from extender.whatif.recording.entries import Decided, Entry, Header, Line, Put, Reserve, Synced
from extender.whatif.recording.lines import line_from
from tests.support.service import World, a_world, until


class Client:
    def __init__(self, world: World, service: Service, session: aiohttp.ClientSession) -> None:
        self.world = world
        self.service = service
        self._session = session

    async def ask(self, **parameters: object) -> tuple[int, list[Line]]:
        asked = {key: str(value) for key, value in parameters.items()}
        async with self._session.get(
            f"{self.service.server.url}/v1/decisions", params=asked
        ) as reply:
            body = await reply.read()
            if reply.status != 200:
                return reply.status, []
            return 200, [line_from(orjson.loads(line), "a line") for line in body.splitlines()]

    async def begin(self) -> tuple[str, int, list[Line]]:
        status, lines = await self.ask()
        assert status == 200
        header, end = lines[0], lines[-1]
        assert isinstance(header, Header)
        assert isinstance(end, Synced)
        return header.journal, end.seq, lines


@asynccontextmanager
async def a_client() -> AsyncIterator[Client]:
    world = await a_world(0, 1)
    async with world.serving(serve=True) as service, aiohttp.ClientSession() as session:
        yield Client(world, service, session)


async def placed(world: World, name: str) -> bool:
    return bool(await world.published(name))


async def test_nothing_is_kept_until_somebody_asks():
    async with a_client() as client:
        assert client.service.caches.state.observer is None
        assert (await client.ask(since=0, journal="x"))[0] == 410
        assert client.service.caches.state.observer is None
        await client.begin()
        assert client.service.caches.state.observer is not None


async def test_a_snapshot_says_who_leads_and_has_what_there_is():
    async with a_client() as client:
        _, _, lines = await client.begin()
        header = lines[0]
        assert isinstance(header, Header)
        assert header.identity == header.leader == client.service.identity
        kinds = {
            type(line.content.obj).__name__
            for line in lines
            if isinstance(line, Entry) and isinstance(line.content, Put)
        }
        assert {"Node", "Namespace", "StatefulSet", "AdapterPool", "AdapterPod"} <= kinds


async def test_a_decision_comes_before_its_reservation_and_then_what_became_of_it():
    async with a_client() as client:
        journal, seq, _ = await client.begin()
        await client.world.vpod("a", 3)
        await until(lambda: placed(client.world, "a"))
        _, lines = await client.ask(since=seq, journal=journal)
        said = [line.content for line in lines if isinstance(line, Entry)]
        (first, *_) = [what for what in said if isinstance(what, Decided)]
        assert sum(first.target.values()) == 3
        assert isinstance(said[said.index(first) + 1], Reserve)
        sequence = [line.seq for line in lines if isinstance(line, Entry | Synced)]
        assert sequence == sorted(sequence)


async def test_who_waits_is_answered_as_soon_as_there_is_something():
    async with a_client() as client:
        journal, seq, _ = await client.begin()
        waiting = asyncio.create_task(client.ask(since=seq, journal=journal, wait=20))
        await asyncio.sleep(0)
        await client.world.vpod("a", 1)
        async with asyncio.timeout(5):
            status, lines = await waiting
        assert status == 200
        assert len(lines) > 1


async def test_what_has_fallen_out_of_the_ring_is_410_and_so_is_another_journal(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(recording_buffer, "ENTRIES_MAX", 5)
    async with a_client() as client:
        journal, seq, _ = await client.begin()
        for name in ("a", "b", "c"):
            await client.world.vpod(name, 1)
            await until(partial(placed, client.world, name))
        assert (await client.ask(since=seq, journal=journal))[0] == 410
        assert (await client.ask(since=seq, journal="another"))[0] == 410
        assert (await client.ask(since=10**9, journal=journal))[0] == 410
        journal, seq, _ = await client.begin()
        assert (await client.ask(since=seq, journal=journal))[0] == 200


@pytest.mark.parametrize("parameters", [{"since": "x"}, {"since": 1, "wait": "long"}], ids=str)
async def test_what_is_no_number_is_400(parameters: dict[str, object]):
    async with a_client() as client:
        await client.begin()
        assert (await client.ask(journal="x", **parameters))[0] == 400


async def test_so_many_are_answered_at_once_and_the_next_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(decision_log, "READERS_MAX", 1)
    async with a_client() as client:
        journal, seq, _ = await client.begin()
        waiting = asyncio.create_task(client.ask(since=seq, journal=journal, wait=20))
        assert 503 in [(await client.ask())[0] for _ in range(20)]
        waiting.cancel()


async def test_it_ends_when_nobody_asks_any_more(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(decision_log, "IDLE_S", 0.01)
    async with a_client() as client:
        await client.begin()
        await until(lambda: client.service.caches.state.observer is None)
        assert client.service.answers.watchers.decision_log.ring.journal == ""
