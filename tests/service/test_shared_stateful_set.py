"""A StatefulSet has one pool: of several that name it the first has it, and the others are told and
left alone.
"""

import asyncio

import pytest

from extender.kube.api import ADAPTERPOOLS
from extender.model import names
from tests.support.builders import NS
from tests.support.service import World, until

pytestmark = pytest.mark.looptime
OTHER = {"namespace": NS, "name": "other"}


async def label_template(world: World, pool: str) -> None:
    template = {"metadata": {"labels": {names.POOL_LABEL: pool}}}
    await world.patch_stateful_set(template=template)


async def a_second_pool(world: World) -> dict[int, int]:
    """45 vreplicas of the first pool stand on three pods when another pool names their StatefulSet;
    what is published.
    """
    await world.vpod("a", 45)
    await until(world.replicas, 3)
    await asyncio.sleep(5)
    standing = await world.published()
    await world.pool(20, name="other", scaleDownPeriodSeconds=1)
    return standing


async def test_the_later_of_two_pools_never_scales_and_says_why():
    world = await World.create(replicas=0, rescheduleAfterSeconds=None)
    async with world.serving() as service, world.adapters(service):
        standing = await a_second_pool(world)
        await asyncio.sleep(600)
        assert (await world.replicas(), await world.published()) == (3, standing)
        assert world.api.count("update", "statefulsets/scale") == 1
        assert await world.pool_condition("Ready") == ("True", "StatefulSetFound")
        assert await world.pool_condition("Ready", "other") == ("False", "StatefulSetTaken")
        assert f"{NS}/dispatcher" in await world.pool_message("Ready", "other")
        assert await world.events("ReplicasChanged") == []


async def test_vpods_of_the_later_pool_are_told_and_do_not_make_it_grow():
    world = await World.create(replicas=1)
    await world.pool(20, name="other")
    await world.vpod("late", 45, poolRef=OTHER)
    async with world.serving():
        await asyncio.sleep(60)
        assert await world.condition("late") == ("False", "StatefulSetTaken")
        assert await world.replicas() <= 1


async def test_the_pool_that_the_pods_name_is_first_whenever_it_was_created():
    world = await World.create(replicas=0)
    await label_template(world, "other")
    await asyncio.sleep(5)
    await world.pool(20, name="other", minPods=2)
    await world.vpod("a", 45)
    async with world.serving():
        await until(world.replicas, 2)
        await asyncio.sleep(60)
        assert await world.replicas() == 2
        assert (await world.pool_condition("Ready"))[1] == "StatefulSetTaken"
        await label_template(world, "dispatcher")
        await until(world.replicas, 3)
        await asyncio.sleep(5)
        assert (await world.pool_condition("Ready", "other"))[1] == "StatefulSetTaken"


async def test_when_the_first_pool_goes_the_next_one_has_the_stateful_set():
    world = await World.create(replicas=0)
    await world.pool(20, name="other")
    await world.vpod("late", 45, poolRef=OTHER)
    async with world.serving():
        await asyncio.sleep(30)
        assert await world.replicas() == 0
        await world.cluster.delete(ADAPTERPOOLS, NS, "dispatcher")
        await until(world.replicas, 3, timeout_s=2)
        assert await world.condition("late") == ("False", "InsufficientSlots")
        await asyncio.sleep(5)
        assert (await world.pool_condition("Ready", "other"))[0] == "False", (
            "its pods are still to come"
        )


async def test_what_the_first_pool_has_left_behind_is_not_scaled_away_by_the_next():
    world = await World.create(replicas=0, rescheduleAfterSeconds=None)
    async with world.serving() as service, world.adapters(service):
        standing = await a_second_pool(world)
        await world.cluster.delete(ADAPTERPOOLS, NS, "dispatcher")
        await asyncio.sleep(300)
        assert (await world.replicas(), await world.published()) == (3, standing)
        assert await world.condition() == ("False", "PoolNotFound")
        await world.pool(20)
        await asyncio.sleep(60)
        assert (await world.replicas(), await world.published()) == (3, standing), (
            "its pods name it"
        )
        assert await world.condition() == ("True", "AllPlaced")
