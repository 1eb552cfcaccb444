"""The whole service: vpods that need several vreplicas together (minAvailable)."""

import asyncio

import pytest

from extender.kube.api import VPODS
from tests.support.service import TENANT, World, until

pytestmark = pytest.mark.looptime


async def scheduled(world: World, name: str) -> str:
    """The message of a vpod's condition Scheduled."""
    return str((await world.conditions(name))["Scheduled"]["message"])


async def test_one_that_does_not_fit_waits_with_nothing_and_comes_as_a_whole():
    world = await World.create(slotsPerPod=4, maxPods=2, replicas=2)
    await world.pod(0, {}, node="node-0", slots=4)
    await world.pod(1, {}, node="node-1", slots=4)
    async with world.serving():
        await world.vpod("first", 6, minAvailable=6)
        await until(lambda: world.placed("first"), 6, timeout_s=5)
        await world.vpod("second", 5, minAvailable=5)
        await world.vpod("light", 1)
        await until(lambda: world.placed("light"), 1, timeout_s=5)
        assert await world.placed("second") == 0
        assert await scheduled(world, "second") == (
            "5 of 5 vreplicas are not placed (InsufficientSlots): minAvailable is 5, and only 2 "
            "have room"
        )
        await world.cluster.delete(VPODS, TENANT, "first")
        await until(lambda: world.placed("second"), 5, timeout_s=5)
        assert not await world.events("Moved")


async def test_the_pool_grows_for_all_of_it():
    world = await World.create(slotsPerPod=4, replicas=1)
    await world.pod(0, {}, node="node-0", slots=4)
    async with world.serving() as service:
        await world.vpod("a", 11, minAvailable=10)
        await asyncio.sleep(2)
        assert (await world.replicas(), await world.placed("a")) == (3, 0)
        async with world.adapters(service, slots=4):
            await until(lambda: world.placed("a"), 11, timeout_s=10)


async def test_a_pool_that_may_not_grow_far_enough_stays_as_it_is():
    world = await World.create(slotsPerPod=4, maxPods=3, replicas=2)
    await world.vpod("other", 8, {0: 4, 1: 4})
    for ordinal in range(2):
        await world.pod(ordinal, {"tenant/other": 4}, node=f"node-{ordinal}", slots=4)
    async with world.serving():
        await world.vpod("a", 5, minAvailable=5)
        await asyncio.sleep(300)
        assert (await world.replicas(), await world.placed("a")) == (2, 0)
        assert await world.pool_condition("ScalingLimited") == ("True", "MaxPods")
