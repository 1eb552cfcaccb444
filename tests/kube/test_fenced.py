"""A leader whose lease has run out while it was frozen: its loops still run when it wakes, and
nothing of theirs is written.
"""

import asyncio

import pytest

from extender.kube.api import ADAPTERPOOLS, PODS, PatchType
from extender.model.names import PLACEMENTS_ANNOTATION
from extender.service.app import Service
from tests.support.builders import NS
from tests.support.service import World, a_world, until

pytestmark = pytest.mark.looptime


async def wakes_up_late(service: Service) -> None:
    """``leading`` says no, as ``still_leading`` does; that the loops are ended comes a moment
    later.
    """

    async def leads() -> bool:
        return service.leading()

    await until(leads)
    service.leadership._always = False


async def test_no_pool_status_is_written():
    world = await a_world(0)
    async with world.serving() as service:
        await until(lambda: written(world, "patch", "adapterpools/status"))
        before = world.api.count("patch", "adapterpools/status")
        await wakes_up_late(service)
        await world.cluster.patch(
            ADAPTERPOOLS, NS, "dispatcher", {"spec": {"maxPods": 3}}, patch_type=PatchType.MERGE
        )
        await asyncio.sleep(5)
        assert world.api.count("patch", "adapterpools/status") == before


async def test_no_statefulset_is_scaled():
    world = await a_world(0, 1, replicas=2, scaleDownPeriodSeconds=1)
    async with world.serving() as service:
        await wakes_up_late(service)
        await asyncio.sleep(10)
        assert await world.replicas() == 2
        assert world.api.count("update", "statefulsets/scale") == 0


async def test_no_pod_is_repaired():
    world = await a_world(0)
    async with world.serving(checked=False) as service:
        await asyncio.sleep(2)
        await wakes_up_late(service)
        patch = {"metadata": {"annotations": {PLACEMENTS_ANNOTATION: "not JSON"}}}
        await world.cluster.patch(PODS, NS, "dispatcher-0", patch, patch_type=PatchType.MERGE)
        before = world.api.count("patch", "pods")
        await asyncio.sleep(90)
        assert world.api.count("patch", "pods") == before


async def test_once_it_leads_again_all_of_that_is_done():
    world = await a_world(0, 1, replicas=2, scaleDownPeriodSeconds=1)
    async with world.serving() as service:
        await wakes_up_late(service)
        await asyncio.sleep(5)
        service.leadership._always = True
        await until(lambda: written(world, "patch", "adapterpools/status"))
        await until(lambda: written(world, "update", "statefulsets/scale"), timeout_s=120)
        assert await world.replicas() < 2


async def written(world: World, verb: str, what: str) -> bool:
    return world.api.count(verb, what) > 0
