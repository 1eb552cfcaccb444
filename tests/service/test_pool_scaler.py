"""One pool's size, where the caches lag behind or something comes while it is looked at."""

import asyncio
import random

import pytest

from extender.kube.api import STATEFULSETS, PatchType
from extender.service.pool_scaler import PoolScaler, Surroundings
from extender.service.scale_cache import ScaleCache
from tests.support.builders import NS, POOL
from tests.support.service import World

pytestmark = pytest.mark.looptime


def told(pool: str, *, opened: bool) -> None:
    """Nobody waits for pods that are opened or closed."""
    del pool, opened


def a_scaler(world: World) -> PoolScaler:
    """One whose period ends at once."""
    around = Surroundings(
        world.caches,
        ScaleCache(world.api, clock=asyncio.get_running_loop().time),
        lambda _: world.api,
        world.recorder(),
        world.metrics,
        random.Random(1),
        told,
    )
    return PoolScaler(POOL, around, period_s=0.0)


async def test_pods_that_the_watch_has_not_shown_yet_are_not_removed():
    """They may hold something, and be among those that would go."""
    world = await World.create(replicas=3)
    await world.pods(0, 1, 2)
    await world.sync()
    await world.cluster.patch(
        STATEFULSETS, NS, "dispatcher", {"spec": {"replicas": 5}}, patch_type=PatchType.MERGE
    )
    scaler = a_scaler(world)
    await scaler.look()
    assert (await world.replicas(), world.api.count("update", "statefulsets/scale")) == (5, 0)
    await world.sync("statefulsets")
    await asyncio.sleep(200)
    await scaler.look()
    assert await world.replicas() == 0


async def test_a_pod_that_a_vpod_needs_which_came_while_the_scale_was_read_stays():
    """By the sum of slots two pods are enough, but on neither of them is room for a vreplica as heavy as that."""
    world = await World.create(replicas=3, slots=5)
    for ordinal, name in enumerate(("a", "b")):
        await world.pod(ordinal, {f"tenant/{name}": 3}, node=f"node-{ordinal}", slots=5)
        await world.vpod(name, 3, {ordinal: 3})
    await world.pod(2, {}, node="node-2", slots=5)
    await world.sync()

    async def come() -> None:
        await world.vpod("heavy", 1, slotsPerVReplica=3)
        await world.sync("vpods")

    world.api.fail("get", "statefulsets/scale", then=come)
    await a_scaler(world).look()
    assert world.api.count("get", "statefulsets/scale") == 1
    assert (await world.replicas(), world.api.count("update", "statefulsets/scale")) == (3, 0)
