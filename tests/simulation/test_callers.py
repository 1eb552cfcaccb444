"""What a caller of ``POST /v1/schedule`` was answered stays in the ledgers until it asks again
(docs/python-api.md).
"""

import asyncio
from functools import wraps

import pytest

from extender.kube.api import ADAPTERPOOLS, NODES, PODS, VPODS, PatchType
from extender.lab.clock import run_virtual
from extender.lab.simulation.world.objects import vpod_object
from extender.lab.simulation.world.scale import NAME, NS, TENANTS, Scale
from extender.lab.simulation.world.world import World
from extender.model.names import UNSCHEDULABLE_ANNOTATION
from tests.simulation.callers import Caller

pytestmark = [pytest.mark.sim, pytest.mark.timeout(60)]


def in_virtual_time(story):
    @wraps(story)
    def run():
        run_virtual(story())

    return run


async def led(world: World) -> None:
    await world.until(lambda: world.leadership.leader is not None, "a leader")
    await asyncio.sleep(5.0)


async def stays_covered(caller: Caller) -> None:
    for _ in range(100):
        await asyncio.sleep(0.1)
        assert caller.uncovered() == [], "nobody has asked"


@in_virtual_time
async def test_it_stays_on_a_pod_that_is_drained():
    async with World(1, Scale(nodes=2, slots_per_pod=5, min_pods=2, replicas=1)) as world:
        await led(world)
        caller = Caller(world, "x")
        assert await caller.ask(4) == 0
        assert caller.published == {f"{NAME}-0": 2, f"{NAME}-1": 2}
        mark = {"metadata": {"annotations": {UNSCHEDULABLE_ANNOTATION: "true"}}}
        await world.cluster.patch(PODS, NS, f"{NAME}-1", mark, patch_type=PatchType.MERGE)
        await stays_covered(caller)
        assert await caller.ask(4) == 0
        assert f"{NAME}-1" not in caller.published, "asked again, it is told where to go"


@in_virtual_time
async def test_it_stays_where_the_pool_would_place_less():
    scale = Scale(nodes=2, slots_per_pod=5, min_pods=3, replicas=1, pools=({"minPodsPerVPod": 3},))
    async with World(1, scale) as world:
        await led(world)
        caller = Caller(world, "x")
        assert await caller.ask(1) == 0
        assert sum(caller.published.values()) == 3
        less = {"spec": {"minPodsPerVPod": 0}}
        await world.cluster.patch(ADAPTERPOOLS, NS, NAME, less, patch_type=PatchType.MERGE)
        await stays_covered(caller)


@in_virtual_time
async def test_it_stays_when_a_pod_is_replaced_while_the_watch_of_pods_has_a_gap():
    async with World(
        1, Scale(nodes=1, slots_per_pod=5, min_pods=2, max_pods=2, replicas=2)
    ) as world:
        await led(world)
        assert world.leadership.leader is not None
        world.stop(
            world.leadership.leader
        )  # any installation but a brand new one: somebody has led before
        await asyncio.sleep(30.0)
        leader = world.leadership.leader
        assert leader is not None
        caller = Caller(world, "x")
        assert await caller.ask(4) == 0
        await asyncio.sleep(30.0)
        await cordon(world, on=True)
        leader.pause()
        await asyncio.sleep(0.1)
        await world.cluster.delete(PODS, NS, f"{NAME}-0", grace_period_s=0)
        await asyncio.sleep(1.5)
        world.cluster.compact()
        leader.resume()
        await asyncio.sleep(40.0)
        await world.cluster.create(VPODS, TENANTS[1], vpod_object("greedy", 8))
        await asyncio.sleep(1.0)
        await cordon(world, on=False)
        await world.until(
            lambda: bool(world.stored(PODS)[NS, f"{NAME}-0"]["spec"].get("nodeName")), "it is bound"
        )
        assert caller.uncovered() == []


async def cordon(world: World, *, on: bool) -> None:
    await world.cluster.patch(
        NODES, "", "node-0", {"spec": {"unschedulable": on or None}}, patch_type=PatchType.MERGE
    )


@in_virtual_time
async def test_pools_that_do_not_exist_are_forgotten_with_the_last_vpod_that_names_them():
    async with World(1, Scale(nodes=1, min_pods=0, replicas=1)) as world:
        await led(world)
        assert world.leadership.leader is not None
        service = world.leadership.leader.service
        queues, tasks = len(list(service.placer.queues)), len(asyncio.all_tasks())
        for number in range(100):
            await world.cluster.create(
                VPODS, TENANTS[0], vpod_object("v", 1, pool=f"made-up-{number}")
            )
            await asyncio.sleep(0.05)
            await world.cluster.delete(VPODS, TENANTS[0], "v")
            await asyncio.sleep(0.05)
        await asyncio.sleep(60.0)
        assert len(list(service.placer.queues)) == queues
        assert len(asyncio.all_tasks()) < tasks + 10
