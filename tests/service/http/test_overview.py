"""``GET /v1/overview``: what a replica says of itself and of its pools."""

import asyncio

import aiohttp

from extender.service.http.overview import ChangeCounts
from extender.service.watching.caches import Caches
from tests.support.builders import a_pod, a_vpod
from tests.support.service import World, a_world, until


async def test_a_replica_tells_who_leads_what_there_is_and_what_happens():
    world = await a_world(0, 1)
    async with world.serving(serve=True) as service, aiohttp.ClientSession() as session:
        await world.vpod("a", 3)
        await until(lambda: _published(world))
        async with session.get(f"{service.server.url}/v1/overview") as reply:
            assert reply.status == 200
            found = await reply.json()
    assert (found["identity"], found["leader"], found["leading"]) == (
        service.identity,
        service.identity,
        True,
    )
    assert found["counters"]["decisions"] >= 1
    assert found["counters"]["published"] == 1
    (pool,) = found["pools"]
    assert (pool["pods"], pool["usedSlots"]) == (2, 3)


async def _published(world: World) -> bool:
    return bool(await world.published("a"))


async def test_many_that_look_at_once_cost_as_much_as_one():
    world = await World.create()
    async with world.serving(serve=True) as service, aiohttp.ClientSession() as session:

        async def look() -> bytes:
            async with session.get(f"{service.server.url}/v1/overview") as reply:
                return await reply.read()

        assert len(set(await asyncio.gather(*(look() for _ in range(20))))) == 1


def test_a_first_list_is_nothing_that_happens():
    caches = Caches()
    counts = ChangeCounts(caches)
    caches.pods.add(a_pod(0, resource_version="1"))
    caches.vpods.add(a_vpod("a", 2, {0: 2}, uid="u", resource_version="2"))
    assert counts.to_json() == {"binds": 0, "published": 0, "moved": 0}


def test_binds_publications_and_moves_are_counted_once():
    caches = Caches()
    counts = ChangeCounts(caches)
    caches.pods.add(a_pod(0, node="", resource_version="1"))
    caches.pods.update(a_pod(0, node="node-0", resource_version="2"))
    caches.pods.update(a_pod(0, node="node-0", ready=True, resource_version="3"))
    caches.vpods.add(a_vpod("a", 2, uid="u", resource_version="4"))
    caches.vpods.update(a_vpod("a", 2, {0: 2}, uid="u", resource_version="5"))
    caches.vpods.update(a_vpod("a", 2, {0: 1, 1: 1}, uid="u", resource_version="6"))
    caches.vpods.update(a_vpod("a", 1, {0: 1}, uid="u", resource_version="7"))
    assert counts.to_json() == {"binds": 1, "published": 3, "moved": 1}
