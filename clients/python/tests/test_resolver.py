"""Where a vpod is served, and what is answered while nobody says so."""

import asyncio
from contextlib import asynccontextmanager, suppress

import pytest

from vreplica_adapter import PlacedPod, Resolver, Unresolved, WireError
from vreplica_adapter.service import Service
from vreplica_adapter.testing import QUICK, FakeScheduler
from vreplica_adapter.wire import Placements, write_placements

ORDERS, CLICKS = "team-a/orders", "team-b/clicks"


@pytest.fixture
async def scheduler():
    async with FakeScheduler() as scheduler:
        yield scheduler


@asynccontextmanager
async def resolving(scheduler, **arguments):
    async with Resolver([scheduler.url], timing=QUICK, **arguments) as resolver:
        yield resolver


async def until_generation(resolver: Resolver, vpod: str, generation: int) -> Placements:
    async with asyncio.timeout(5):
        while (found := await resolver.resolve(vpod)).generation < generation:
            await asyncio.sleep(0.001)
    return found


async def test_a_vpod_is_found_and_followed(scheduler):
    one, two = scheduler.pod("worker-0"), scheduler.pod("worker-1")
    one.assign(ORDERS, vreplicas=2, indexes=(0, 1), epoch=4)
    async with resolving(scheduler) as resolver:
        found = await resolver.resolve(ORDERS)
        assert found.pods == (PlacedPod("adapters/worker-0", 2, (0, 1)),)
        two.prepare(ORDERS)
        found = await until_generation(resolver, ORDERS, 2)
        assert [pod.pod for pod in found.pods] == ["adapters/worker-0"]
        two.assign(ORDERS)
        found = await until_generation(resolver, ORDERS, 3)
        assert [pod.pod for pod in found.pods] == ["adapters/worker-0", "adapters/worker-1"]


async def test_answers_go_on_while_the_service_is_down_and_at_once(scheduler):
    pod = scheduler.pod("worker-0")
    pod.assign(ORDERS)
    async with resolving(scheduler) as resolver:
        before = await resolver.resolve(ORDERS)
        async with scheduler.down():
            for _ in range(50):
                assert await resolver.resolve(ORDERS) == before
            with pytest.raises(Unresolved, match="no replica says where team-b/clicks is"):
                await resolver.resolve(CLICKS)
        pod.assign(ORDERS, vreplicas=5)
        assert (await until_generation(resolver, ORDERS, 2)).pods[0].vreplicas == 5


async def test_an_older_generation_changes_nothing(scheduler):
    pod = scheduler.pod("worker-0")
    for vreplicas in (1, 2, 3):
        pod.assign(ORDERS, vreplicas=vreplicas)
    async with resolving(scheduler) as resolver:
        await resolver.resolve(ORDERS)
        old = Placements(1, (PlacedPod("adapters/old", 1),))
        for stream in scheduler._resolvers:
            stream.put_nowait(write_placements(old))
        pod.assign(ORDERS, vreplicas=4)
        seen = await until_generation(resolver, ORDERS, 4)
        assert seen.pods[0].pod == "adapters/worker-0"
        assert (await resolver.resolve(ORDERS)).generation == 4


async def test_a_vpod_that_is_not_placed_has_no_pods_until_it_is(scheduler):
    async with resolving(scheduler) as resolver:
        assert await resolver.resolve(ORDERS) == Placements(0)
        scheduler.pod("worker-0").assign(ORDERS)
        found = await until_generation(resolver, ORDERS, 1)
        assert found.pods == (PlacedPod("adapters/worker-0", 1),)


async def test_a_service_without_the_path_is_told_at_once_and_found_when_it_has_it(scheduler):
    async with resolving(scheduler) as resolver:
        with scheduler.failing(404), pytest.raises(Unresolved, match="404 this is a test"):
            await resolver.resolve(ORDERS)
        scheduler.pod("worker-0").assign(ORDERS)
        found = None
        async with asyncio.timeout(5):
            while found is None:
                with suppress(Unresolved):
                    found = await resolver.resolve(ORDERS)
                await asyncio.sleep(0.001)
        assert found.pods[0].vreplicas == 1


async def test_no_more_vpods_are_watched_than_its_limit_and_the_least_wanted_goes(scheduler):
    pod = scheduler.pod("worker-0")
    keys = [f"team-a/vpod-{number}" for number in range(4)]
    for key in keys:
        pod.assign(key)
    async with resolving(scheduler, vpods_max=2) as resolver:
        await resolver.resolve(keys[0])
        await resolver.resolve(keys[1])
        await resolver.resolve(keys[0])
        await resolver.resolve(keys[2])
        assert list(resolver._watches) == [keys[0], keys[2]]
        async with asyncio.timeout(5):
            while set(scheduler._resolvers.values()) != {keys[0], keys[2]}:
                await asyncio.sleep(0.001)


@pytest.mark.parametrize("key", ["", "orders", "a/b/c", "../b", "a/b\n", "a/b?c"])
async def test_what_is_no_vpod_is_refused_before_anything_is_asked(scheduler, key):
    async with resolving(scheduler) as resolver:
        with pytest.raises(WireError):
            await resolver.resolve(key)
        assert not resolver._watches


async def test_an_answer_that_cannot_be_read_changes_nothing(scheduler):
    pod = scheduler.pod("worker-0")
    pod.assign(ORDERS)
    async with resolving(scheduler) as resolver:
        before = await resolver.resolve(ORDERS)
        for stream in list(scheduler._resolvers):
            stream.put_nowait(b'{"generation": 9, "placements": 3}')
        for _ in range(20):
            assert await resolver.resolve(ORDERS) == before
            await asyncio.sleep(0.001)


def test_a_resolver_that_may_watch_nothing_is_refused():
    with pytest.raises(ValueError, match="vpods_max"):
        Resolver(["http://x"], vpods_max=0)


async def test_a_failure_that_nobody_has_thought_of_ends_no_watch(scheduler, monkeypatch):
    scheduler.pod("worker-0").assign(ORDERS)
    real = Service.lines
    failed: list[str] = []

    def lines(service, path, query):
        if not failed:
            failed.append(path)
            raise LookupError("whatever a library raises")
        return real(service, path, query)

    monkeypatch.setattr(Service, "lines", lines)
    async with resolving(scheduler) as resolver:
        assert (await resolver.resolve(ORDERS)).pods
    assert failed
