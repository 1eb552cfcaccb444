"""Long names fill a ledger before the pod's slots are taken: others still find bytes, the pool
grows, and it is told.
"""

import asyncio

import pytest

from extender.kube.api import NAMESPACES, VPODS
from tests.service.http.test_gauges import scraped
from tests.support.service import World, until

pytestmark = [pytest.mark.looptime, pytest.mark.timeout(60)]

SLOTS = 2_000
GREEDY = "greedy" * 10
SHARE = 191
"""vpods with names of 253 characters that are a namespace's share of a ledger: one more gets no
entry there.
"""


def long_name(number: int) -> str:
    return f"{'v' * 249}{number:04}"


async def a_world(vpods: int, **pool) -> World:
    """One pod, and one tenant's vpods with long names."""
    world = await World.create(slots=SLOTS, replicas=1, scaleDownPeriodSeconds=5, **pool)
    await world.cluster.create(NAMESPACES, "", {"metadata": {"name": GREEDY}})
    for number in range(vpods):
        await world.vpod(long_name(number), 1, namespace=GREEDY)
    return world


async def condition(world: World, name: str) -> tuple[str, str, str]:
    stored = await world.cluster.get(VPODS, GREEDY, name)
    (found,) = [
        c for c in stored.get("status", {}).get("conditions", []) if c["type"] == "Scheduled"
    ]
    return found["status"], found["reason"], found["message"]


async def placed(world: World) -> int:
    return sum(
        (v.get("status") or {}).get("scheduledVReplicas", 0)
        for v in (await world.cluster.list_page(VPODS, limit=10_000)).items
    )


@pytest.mark.parametrize(
    "profile", ["default", "pack", "spread", "ha", "knative", "knative-maxfillup"]
)
async def test_another_tenant_is_placed_at_once_and_the_pool_grows_until_all_long_names_are(
    profile,
):
    world = await a_world(SHARE + 20, profile=profile)
    async with world.serving() as service, world.adapters(service, slots=SLOTS):
        await asyncio.sleep(1)
        await world.vpod("a", 1)
        await until(lambda: _is(world, "a", ("True", "AllPlaced")), timeout_s=2)
        await until(lambda: placed(world), SHARE + 21, timeout_s=30)
        assert await world.replicas() == 2, "as many as have bytes for all"
        await asyncio.sleep(20)
        assert await world.replicas() == 2, "and no pod is closed that the bytes need"
        assert await _all(world, SHARE + 21)
        for ordinal in range(2):
            assert sum(key.startswith(GREEDY) for key in await world.ledger(ordinal)) <= SHARE


async def _is(world: World, name: str, wanted: tuple[str, str]) -> bool:
    return (
        bool((await world.status(name)).get("conditions")) and await world.condition(name) == wanted
    )


async def _all(world: World, count: int) -> bool:
    return await placed(world) == count


async def test_where_it_may_not_grow_condition_event_metric_and_pool_say_why():
    world = await a_world(SHARE, maxPods=1)
    waiting = [long_name(SHARE + number) for number in range(3)]
    async with world.serving() as service, world.adapters(service, slots=SLOTS):
        await until(lambda: placed(world), SHARE, timeout_s=10)
        for name in waiting:
            await world.vpod(name, 1, namespace=GREEDY)
        await world.vpod("a", 3)
        await asyncio.sleep(5)
        assert await world.condition("a") == ("True", "AllPlaced")
        for name in waiting:
            status, reason, message = await condition(world, name)
            assert (status, reason) == ("False", "LedgerTooLarge")
            assert message.endswith("0/1 pods have room: 1 its namespace has half of the ledger")
        told = [
            event
            for event in await world.events("FailedScheduling")
            if "LedgerTooLarge" in event["note"]
        ]
        assert sorted(event["regarding"]["name"] for event in told) == waiting
        assert scraped(service, "unschedulable_vpods") == {("LedgerTooLarge",): 3}
        assert scraped(service, "refusals_total")[("LedgerTooLarge",)] >= 3
        assert await world.pool_condition("ScalingLimited") == ("True", "MaxPods")
        message = await world.pool_message("ScalingLimited")
        assert message == "2 pods are needed, and maxPods allows 1"


async def test_a_condition_follows_when_slots_come_and_bytes_do_not():
    world = await a_world(SHARE, maxPods=1)
    await world.vpod("b", SLOTS - SHARE)
    async with world.serving() as service, world.adapters(service, slots=SLOTS):
        await asyncio.sleep(5)
        await world.vpod(long_name(SHARE), 1, namespace=GREEDY)
        await asyncio.sleep(5)
        assert (await condition(world, long_name(SHARE)))[:2] == ("False", "InsufficientSlots")
        await world.set_vreplicas("b", 1)
        await asyncio.sleep(5)
        assert (await condition(world, long_name(SHARE)))[:2] == ("False", "LedgerTooLarge")
        await world.cluster.delete(VPODS, GREEDY, long_name(0))
        await asyncio.sleep(5)
        assert (await condition(world, long_name(SHARE)))[:2] == ("True", "AllPlaced")
