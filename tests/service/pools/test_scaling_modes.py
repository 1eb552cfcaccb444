"""Pools whose StatefulSet others size (spec.scaling): what the leader does and tells there, while
somebody changes replicas.
"""

import asyncio
from typing import Any

import pytest

from extender.kube.api import STATEFULSETS
from tests.service.pools.test_autoscaler import controller, scale_writes
from tests.support.builders import NS
from tests.support.service import World, a_world, until
from tests.support.tasks import at_work

pytestmark = pytest.mark.looptime

PERIOD_S = 10


async def a_pool(replicas: int, mode: str, **spec: Any) -> World:
    return await a_world(
        *range(replicas),
        replicas=replicas,
        scaleDownPeriodSeconds=PERIOD_S,
        scaling={"mode": mode},
        **spec,
    )


async def desired(world: World) -> int | None:
    return (await world.pool_status()).get("desiredPods")


async def limited(world: World) -> tuple[str, str]:
    """Reason and message of the condition ScalingLimited."""
    _, reason = await world.pool_condition("ScalingLimited")
    return reason, await world.pool_message("ScalingLimited")


async def announce(world: World, replicas: int | None) -> None:
    await world.patch_pool(scaling={"announcedReplicas": replicas})


async def follow(world: World) -> None:
    """Write what status.desiredPods says into the StatefulSet, a little late."""
    while True:
        await asyncio.sleep(3)
        advice = await desired(world)
        if advice is not None and advice != await world.replicas():
            await world.patch_stateful_set(replicas=advice)


async def test_a_pool_that_others_size_is_never_scaled_and_says_what_it_needs():
    world = await a_pool(2, "External", minPods=1, maxPods=9)
    async with world.serving(), controller(world):
        await world.vpod("a", 50)
        await asyncio.sleep(3 * PERIOD_S)
        assert (await world.replicas(), await desired(world)) == (2, 3)
        assert await limited(world) == (
            "ExternalReplicas",
            "3 pods are needed, and others leave it 2 (spec.scaling.mode is External)",
        )
        assert await world.condition("a") == ("False", "InsufficientSlots")
        await world.patch_stateful_set(replicas=3)
        await asyncio.sleep(PERIOD_S)
        assert await world.condition("a") == ("True", "AllPlaced")
        await world.set_vreplicas("a", 1)
        await asyncio.sleep(5 * PERIOD_S)
        assert (await world.replicas(), await desired(world)) == (3, 1)
        assert (await limited(world))[0] == "WithinLimits"
        assert scale_writes(world) == 0
        assert await world.events("ReplicasChanged") == []


async def test_who_follows_the_advice_to_shrink_is_not_told_to_grow_again():
    """Found by review: vreplicas of three slots fill three pods of five, and the sum fits two."""
    world = await a_pool(3, "External", slots=5)
    async with world.serving(), controller(world), at_work(follow(world)):
        for name in ("a", "b", "c"):
            await world.vpod(name, 1, slotsPerVReplica=3)
        await asyncio.sleep(10 * PERIOD_S)
        assert (await world.replicas(), await desired(world)) == (3, 3)
        assert all([await world.condition(name) == ("True", "AllPlaced") for name in "abc"])


async def test_pods_whose_end_is_announced_are_emptied_first_and_opened_if_it_is_called_off():
    world = await a_pool(3, "External")
    await world.vpod("a", 30)
    async with world.serving(), controller(world):
        await asyncio.sleep(PERIOD_S)
        before = await world.published("a")
        await announce(world, 2)
        await asyncio.sleep(5 * PERIOD_S)
        assert (await world.ledger(2), await world.replicas()) == ({}, 3)
        await world.vpod("late", 20)
        await asyncio.sleep(PERIOD_S)
        assert (await world.ledger(2)) == {}, "it takes nothing new, whoever waits"
        assert await world.condition("late") == ("False", "InsufficientSlots")
        await announce(world, None)
        await asyncio.sleep(PERIOD_S)
        assert await world.condition("late") == ("True", "AllPlaced")
        assert sum((await world.published("a")).values()) == sum(before.values()) == 30


async def test_who_follows_the_advice_gets_as_many_pods_as_are_needed_and_takes_only_empty_ones():
    world = await a_pool(1, "Advise")
    async with world.serving(), controller(world), at_work(follow(world)):
        await world.vpod("a", 50)
        await until(world.replicas, 3, timeout_s=10)
        await asyncio.sleep(PERIOD_S)
        assert await world.condition("a") == ("True", "AllPlaced")
        await world.set_vreplicas("a", 10)
        await until(world.replicas, 1, timeout_s=8 * PERIOD_S)
        assert await world.published("a") == {0: 10}
        await asyncio.sleep(3 * PERIOD_S)
        assert (await world.replicas(), scale_writes(world)) == (1, 0)
        assert await world.events("ReplicasChanged") == []


async def test_advice_that_nobody_follows_is_told():
    world = await a_pool(1, "Advise")
    async with world.serving():
        await world.vpod("a", 50)
        await asyncio.sleep(PERIOD_S)
        assert await limited(world) == (
            "AdviceNotFollowed",
            "3 pods are needed (status.desiredPods), and others have not given it more than 1 yet "
            "(spec.scaling.mode is Advise)",
        )


async def test_pods_that_old_advice_may_still_remove_take_nothing_new():
    world = await a_pool(3, "Advise")
    async with world.serving():
        await until(lambda: desired(world), 0, timeout_s=5 * PERIOD_S)
        await world.vpod("a", 60)
        await asyncio.sleep(5)
        assert await desired(world) == 3
        assert await world.published("a") == {}, "whoever follows may have read 0 a moment ago"
        await asyncio.sleep(60)
        assert await world.condition("a") == ("True", "AllPlaced")


async def test_advice_that_nobody_gives_any_more_is_taken_back():
    """Found by review: without its StatefulSet, a pool went on telling the number that it had told
    last, and others follow that.
    """
    world = await a_pool(2, "Advise")
    await world.vpod("a", 75)
    async with world.serving():
        await until(lambda: desired(world), 4, timeout_s=2 * PERIOD_S)
        await world.cluster.delete(STATEFULSETS, NS, "dispatcher")
        await until(lambda: desired(world), None, timeout_s=2 * PERIOD_S)
        assert await world.pool_condition("Ready") == ("False", "StatefulSetNotFound")
