"""The whole service: a vreplica that fits nowhere gets room by a few moves."""

import asyncio
from functools import partial
from typing import Any, Final

import pytest

from extender.kube.api import VPODS
from extender.model.ledger import Share
from tests.service.test_rebalancing import reasons
from tests.support.service import TENANT, World, until

pytestmark = pytest.mark.looptime

PERIOD_S: Final = 50


async def two_pods(weight: int = 1, **spec) -> World:
    """28 slots of 40 are used, 14 on each of two pods, by vreplicas of ``weight`` slots."""
    world = await World.create(replicas=2, **spec)
    count = 14 // weight
    for ordinal, name in enumerate("ab"):
        await world.vpod(name, count, {ordinal: count}, slotsPerVReplica=weight)
        ledger = {f"tenant/{name}": Share(count, weight)}
        await world.pod(ordinal, ledger, node=f"node-{ordinal}")
    return world


async def test_one_move_gives_a_place_in_a_pool_that_may_not_grow():
    world = await two_pods(maxPods=2)
    async with world.serving():
        await asyncio.sleep(1)
        await world.vpod("heavy", 1, slotsPerVReplica=7)
        await until(lambda: world.placed("heavy"), 1, timeout_s=3)
        await asyncio.sleep(3)
        (event,) = await world.events("Moved")
        assert event["note"] == "1 vreplica moved from dispatcher-0 to dispatcher-1 (MakeRoom)"
        await asyncio.sleep(200)
        assert await world.events("Moved") == [event], "nothing else moves"


async def test_a_pool_that_may_grow_grows():
    world = await two_pods(maxPods=3)
    async with world.serving() as service, world.adapters(service):
        await asyncio.sleep(1)
        await world.vpod("heavy", 1, slotsPerVReplica=7)
        await until(lambda: world.placed("heavy"), 1, timeout_s=10)
        assert await world.replicas() == 3
        assert not await world.events("Moved")


@pytest.mark.parametrize("starts_s", [PERIOD_S - 10, None])
async def test_nothing_moves_for_a_vreplica_that_a_pod_on_its_way_has_room_for(
    starts_s: float | None,
):
    """None: its pod never comes. Then vreplicas move after a period."""
    world = await two_pods(scaleDownPeriodSeconds=PERIOD_S)
    async with world.serving():
        await asyncio.sleep(PERIOD_S / 2)
        await world.vpod("heavy", 1, slotsPerVReplica=7)
        await asyncio.sleep(1)
        assert await world.replicas() == 3
        await asyncio.sleep((starts_s or PERIOD_S) - 2)
        assert not await world.events("Moved")
        if starts_s is not None:
            await world.pod(2, {}, node="node-2")
        await until(lambda: world.placed("heavy"), 1, timeout_s=PERIOD_S + 2)
        assert await reasons(world) == (set() if starts_s else {"MakeRoom"})


FIRST: Final[dict[str, Any]] = {"rebalance": {"makeRoomBeforeGrowing": True}}


class TestBeforeGrowing:
    """The pool's owner wants moves to be tried first."""

    async def test_moves_come_first(self):
        world = await two_pods(maxPods=3, **FIRST)
        async with world.serving() as service, world.adapters(service):
            await asyncio.sleep(1)
            await world.vpod("heavy", 1, slotsPerVReplica=7)
            await until(lambda: world.placed("heavy"), 1, timeout_s=5)
            await asyncio.sleep(3)
            assert await world.replicas() == 2
            assert await reasons(world) == {"MakeRoom"}

    async def test_the_pool_grows_at_once_if_no_moves_would_do(self):
        world = await two_pods(maxPods=3, **FIRST)
        async with world.serving() as service, world.adapters(service):
            await asyncio.sleep(1)
            await world.vpod("heavy", 1, slotsPerVReplica=13)
            await until(lambda: world.placed("heavy"), 1, timeout_s=10)
            assert await world.replicas() == 3
            assert not await world.events("Moved")

    async def test_the_pool_grows_after_a_period_in_which_the_moves_did_not_happen(self):
        """Both vpods have just been moved, so they stay for the cool-down."""
        world = await two_pods(2, maxPods=3, scaleDownPeriodSeconds=20, **FIRST)
        async with world.serving() as service, world.adapters(service):
            await asyncio.sleep(1)
            for name, weight in (("first", 7), ("second", 9)):
                await world.vpod(name, 1, slotsPerVReplica=weight)
                await until(partial(world.placed, name), 1, timeout_s=25)
                await world.cluster.delete(VPODS, TENANT, name)
                await asyncio.sleep(1)
            moved = len(await world.events("Moved"))
            await world.vpod("third", 1, slotsPerVReplica=12)
            await asyncio.sleep(15)
            assert await world.replicas() == 2
            await until(partial(world.placed, "third"), 1, timeout_s=20)
            assert await world.replicas() == 3
            assert len(await world.events("Moved")) == moved
