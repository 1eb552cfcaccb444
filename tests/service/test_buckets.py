"""Whole services that share pools in buckets, on the embedded cluster in virtual time."""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import orjson
import pytest

from extender.config.model import Config, LeaderElectionConfig
from extender.kube.api import (
    EVERYWHERE,
    LEASES,
    PODS,
    VPODS,
    ListOptions,
    ListPage,
    NotFound,
    Resource,
)
from extender.model.bucket import Bucket
from extender.model.names import LEASE_NAME
from extender.service.app import Service
from tests.service.http.test_schedule import KEY, a_request
from tests.support.builders import POOL
from tests.support.service import World, lost, until, wall
from tests.support.tasks import at_work

pytestmark = pytest.mark.looptime


async def a_world(buckets: int) -> World:
    world = await World.create()
    await world.pods(0, 1, 2)
    for index in range(1, buckets):
        name = Bucket(index, buckets).lease_name(LEASE_NAME)
        await world.cluster.create(LEASES, "vreplica-system", {"metadata": {"name": name}})
    return world


@asynccontextmanager
async def running(world: World, seed: int, buckets: int) -> AsyncIterator[Service]:
    config = Config(leader_election=LeaderElectionConfig(buckets=buckets))
    service = Service(world.api, config, now=wall, rng=random.Random(seed), serve=False)
    async with at_work(service.run()):
        yield service


async def leads(service: Service) -> None:
    await until(lambda: service.leadership.acts(POOL), timeout_s=120)


async def ask(
    service: Service, vreplicas: int, placements: Mapping[str, int], **more: Any
) -> dict[str, int]:
    """A caller asks, publishes what it is answered, and asks again, which takes back what it has
    given up.
    """
    for _ in range(2):
        listed = [{"podName": name, "vreplicas": count} for name, count in placements.items()]
        body = orjson.dumps(a_request(vreplicas=vreplicas, placements=listed, **more))
        answer, _ = await service.schedule_verb().schedule(body)
        placements = {
            item["podName"]: item["vreplicas"] for item in orjson.loads(answer)["placements"]
        }
    return dict(placements)


async def held(world: World) -> dict[str, int]:
    ledgers = {f"dispatcher-{ordinal}": await world.ledger(ordinal) for ordinal in range(3)}
    return {name: ledger[KEY] for name, ledger in ledgers.items() if KEY in ledger}


@pytest.mark.parametrize(
    ("vreplicas", "more"),
    [
        pytest.param(9, {}, id="grown"),
        pytest.param(1, {}, id="shrunk"),
        pytest.param(0, {"deleted": True}, id="released"),
    ],
)
async def test_what_a_caller_asked_of_us_before_another_led_is_not_gone_back_to(
    vreplicas: int, more: dict[str, Any]
):
    """Found by review: the vpod as it was then was decided again, and ledgers were lowered below
    what is published (I2).
    """
    world = await a_world(2)
    async with running(world, 1, 2) as first:
        await leads(first)
        await asyncio.sleep(
            30
        )  # until then empty pods are closed: another leader's scale-down might still arrive
        published = await ask(first, 3, {})
        assert sum(published.values()) == 3
        async with running(world, 2, 2) as second:
            await leads(second)
            await asyncio.sleep(30)
            published = await ask(second, vreplicas, published, **more)
            assert await held(world) == published
        await leads(first)
        await asyncio.sleep(90)
        assert await held(world) == published
        # It asks again, and goes on from there.
        assert sum((await ask(first, 4, published)).values()) == 4


async def test_who_leads_no_more_binds_pods_without_what_callers_have_asked_of_it():
    """Seeds 311000105 and 310000171: a pod came back with what another leader had long taken back,
    and which nobody asked for.
    """
    world = await a_world(2)
    async with running(world, 1, 2) as first:
        await leads(first)
        await asyncio.sleep(
            30
        )  # until then empty pods are closed: another leader's scale-down might still arrive
        published = await ask(first, 3, {})
        ordinal = int(next(iter(published)).rpartition("-")[2])
        async with running(world, 2, 2) as second:
            await leads(second)
            await asyncio.sleep(30)
            await ask(second, 0, published, deleted=True)
            await asyncio.sleep(5)
            assert not second.placer.external_vpods, "all pods are bound, and none holds any of it"
            uid = await world.uid(ordinal)
            await world.remove_pod(ordinal)
            async with world.adapters(first):

                async def back() -> bool:
                    with suppress(NotFound):
                        pod = await world.pod_object(ordinal)
                        return pod["metadata"]["uid"] != uid and bool(pod["spec"].get("nodeName"))
                    return False

                await until(back, timeout_s=30)
                assert await held(world) == {}


async def test_who_leads_again_with_nobody_in_between_remembers_what_callers_have_asked():
    """Seed 315000117: it bound a pod without what a caller has there, since it had listed pods
    while that pod was away.
    """
    world = await a_world(1)
    async with running(world, 1, 1) as service:
        await leads(service)
        await asyncio.sleep(30)
        published = await ask(service, 3, {})
        for verb in ("update", "get"):
            world.api.fail(verb, "leases", before=lost(), times=12)
        await until(lambda: not service.leadership.leads(POOL), timeout_s=60)
        await leads(service)
        assert [vpod.placements for vpod in service.placer.external_vpods] == [published]


@pytest.mark.parametrize("buckets", [1, 8, 64])
async def test_however_many_buckets_are_taken_at_once_pods_are_read_a_few_times(buckets: int):
    world = await a_world(buckets)
    async with running(world, 1, buckets) as service:
        await leads(service)
        await asyncio.sleep(20)
        assert len(service.leadership.buckets_led()) == buckets
        assert world.api.count("list", "pods") <= 8


async def test_many_buckets_taken_at_once_do_not_make_the_watch_of_pods_list_again(
    monkeypatch: pytest.MonkeyPatch,
):
    """Found by review: eight readings of half a second each, one after the other, were taken for a
    watch that is behind.
    """
    world = await a_world(8)
    list_page, core = world.api.list_page, asyncio.Lock()

    async def slow(resource: Resource, options: ListOptions = EVERYWHERE, **more: Any) -> ListPage:
        if resource == PODS:
            async with core:
                await asyncio.sleep(0.5)
        page: ListPage = await list_page(resource, options, **more)
        return page

    monkeypatch.setattr(world.api, "list_page", slow)
    async with running(world, 1, 8) as service:
        await leads(service)
        await asyncio.sleep(20)
        assert service.informers._pods.lists == 1


async def test_a_status_that_is_refused_again_and_again_has_vpods_listed(
    monkeypatch: pytest.MonkeyPatch,
):
    """Found by review: what fails was never asked whether it is in doubt, so a silent watch cost
    minutes.
    """
    world = await World.create()
    await world.pods(0, 1, 2)
    await world.vpod("a", 3)
    quiet, watch = asyncio.Event(), world.api.watch

    def silenced(resource: Resource, *args: Any, **more: Any) -> Any:
        async def silent() -> AsyncIterator[Any]:
            async for event in watch(resource, *args, **more):
                if quiet.is_set():
                    await asyncio.Event().wait()
                yield event

        return silent() if resource == VPODS else watch(resource, *args, **more)

    monkeypatch.setattr(world.api, "watch", silenced)
    async with world.serving():
        await until(world.placed, 3, timeout_s=10)
        quiet.set()
        await world.set_vreplicas("a", 4)  # of which the watch does not tell
        drained = next(iter(await world.published()))
        await world.annotate(drained, **{"vreplica.dev/unschedulable": "true"})

        async def moved() -> bool:
            published = await world.published()
            return drained not in published and sum(published.values()) == 4

        await until(moved, timeout_s=20)
