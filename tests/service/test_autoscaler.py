"""The pool grows as soon as it must, as far as it may, and never shrinks by this hand."""

import asyncio

import pytest

from extender.kube.api import ADAPTERPOOLS, NAMESPACES, STATEFULSETS, ApiError, PatchType, TooManyRequests
from tests.support.builders import NS
from tests.support.service import TENANT, World, until

pytestmark = pytest.mark.looptime


async def set_replicas(world: World, replicas: int) -> None:
    spec = {"spec": {"replicas": replicas}}
    await world.cluster.patch(STATEFULSETS, NS, "dispatcher", spec, patch_type=PatchType.MERGE)


def grown_to(world: World, replicas: int):
    async def is_so() -> bool:
        return await world.replicas() == replicas

    return is_so


def scale_writes(world: World) -> int:
    return world.api.count("update", "statefulsets/scale")


async def test_the_pool_grows_at_once_by_what_is_left_over():
    world = await World.create(replicas=0)
    async with world.serving():
        await world.vpod("a", 45)
        await until(grown_to(world, 3), timeout_s=1)
        assert scale_writes(world) == 1
        await asyncio.sleep(3)
        (event,) = await world.events("ScaledUp")
        assert "from 0 to 3 pods" in event["note"]


async def test_a_burst_of_vpods_gives_few_scale_writes():
    world = await World.create(replicas=0)
    async with world.serving() as service, world.adapters(service):
        for index in range(60):
            await world.vpod(f"v{index:02}", 3)
            await asyncio.sleep(0.005)
        await until(grown_to(world, 9))
        await asyncio.sleep(5)
    assert scale_writes(world) <= 5
    await world.check()


async def test_the_pool_grows_from_nothing_until_all_is_placed_and_no_further():
    world = await World.create(replicas=0)
    async with world.serving() as service, world.adapters(service):
        for index in range(10):
            await world.vpod(f"v{index}", 8)
        await asyncio.sleep(20)
        for index in range(10):
            assert await world.condition(f"v{index}") == ("True", "AllPlaced")
        assert await world.replicas() == 4
        await world.check()


async def test_max_pods_holds_and_is_told_once():
    world = await World.create(replicas=1, maxPods=2)
    async with world.serving() as service:
        await world.vpod("a", 100)
        await asyncio.sleep(60)
        assert await world.replicas() == 2
        (event,) = await world.events("ScalingLimited")
        assert "5 pods are needed, maxPods allows 2" in event["note"]
        assert "series" not in event, "told once"
        assert service.autoscaler.limited == {f"{NS}/dispatcher"}
        await world.cluster.patch(
            ADAPTERPOOLS, NS, "dispatcher", {"spec": {"maxPods": 9}}, patch_type=PatchType.MERGE
        )
        await until(grown_to(world, 5), timeout_s=15)
        assert service.autoscaler.limited == set()


async def test_a_pool_that_is_larger_than_needed_stays_so():
    world = await World.create(replicas=7)
    await world.vpod("a", 3)
    async with world.serving():
        await asyncio.sleep(60)
    assert (await world.replicas(), scale_writes(world)) == (7, 0)


async def test_min_pods_is_a_floor_without_any_vpod():
    world = await World.create(replicas=0, minPods=2)
    async with world.serving():
        await until(grown_to(world, 2), timeout_s=15)


async def test_somebody_elses_write_between_read_and_write_is_seen_and_not_overwritten():
    world = await World.create(replicas=0)
    world.api.fail("update", "statefulsets/scale", then=lambda: set_replicas(world, 5))
    async with world.serving():
        await world.vpod("a", 45)
        await asyncio.sleep(10)
    assert await world.replicas() == 5
    assert scale_writes(world) == 1, "looked at again: five are enough"


async def test_somebody_elses_write_of_fewer_is_looked_at_again_and_corrected():
    world = await World.create(replicas=1)
    world.api.fail("update", "statefulsets/scale", then=lambda: set_replicas(world, 2))
    async with world.serving():
        await world.vpod("a", 45)
        await until(grown_to(world, 3), timeout_s=5)
    assert scale_writes(world) == 2


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ApiError(500, "InternalError", "etcd"), id="500"),
        pytest.param(TooManyRequests(429, "TooManyRequests", "later", retry_after_s=7), id="429"),
    ],
)
async def test_a_pool_that_cannot_be_scaled_now_is_tried_again_and_holds_up_no_other(error: ApiError):
    world = await World.create(replicas=0)
    spec = await world.cluster.get(STATEFULSETS, NS, "dispatcher")
    spec["metadata"] = {"name": "other"}
    await world.cluster.create(STATEFULSETS, NS, spec)
    other = await world.cluster.get(ADAPTERPOOLS, NS, "dispatcher")
    other["metadata"], other["spec"]["statefulSet"] = {"name": "other"}, "other"
    await world.cluster.create(ADAPTERPOOLS, NS, other)
    world.api.fail("update", "statefulsets/scale", name="dispatcher", before=error)
    async with world.serving():
        await world.vpod("a", 5)
        await world.vpod("b", 5, poolRef={"namespace": NS, "name": "other"})

        async def other_has_grown() -> bool:
            return bool((await world.cluster.get(STATEFULSETS, NS, "other"))["spec"]["replicas"])

        await until(other_has_grown, timeout_s=0.6)
        await until(grown_to(world, 1), timeout_s=15)


async def test_a_pool_does_not_grow_for_tenants_that_it_does_not_select():
    world = await World.create(replicas=0, namespaceSelector={"matchLabels": {"paid": "yes"}})
    async with world.serving():
        await world.vpod("a", 400)
        await asyncio.sleep(30)
        assert await world.replicas() == 0
        labels = {"metadata": {"labels": {"paid": "yes"}}}
        await world.cluster.patch(NAMESPACES, "", TENANT, labels, patch_type=PatchType.MERGE)
        await until(grown_to(world, 20), timeout_s=2)


async def test_a_pool_without_its_statefulset_is_left_alone():
    world = await World.create(statefulSet="missing")
    async with world.serving():
        await world.vpod("a", 400)
        await asyncio.sleep(30)
    assert scale_writes(world) == 0
