"""One pool's size, where the caches lag behind."""

import asyncio
import random

import pytest

from extender.kube.api import STATEFULSETS, PatchType
from extender.service.pool_scaler import PoolScaler, Surroundings
from extender.service.scale_cache import ScaleCache
from tests.support.builders import NS, POOL
from tests.support.service import World

pytestmark = pytest.mark.looptime


def told(_pool: str, *, opened: bool) -> None:
    """Nobody waits for pods that are opened or closed."""


async def test_pods_that_the_watch_has_not_shown_yet_are_not_removed():
    """They may hold something, and be among those that would go."""
    world = await World.create(replicas=3)
    await world.pods(0, 1, 2)
    await world.sync()
    await world.cluster.patch(
        STATEFULSETS, NS, "dispatcher", {"spec": {"replicas": 5}}, patch_type=PatchType.MERGE
    )
    around = Surroundings(
        world.caches,
        ScaleCache(world.api, clock=asyncio.get_running_loop().time),
        world.recorder(),
        world.metrics,
        random.Random(1),
        told,
    )
    scaler = PoolScaler(POOL, around, period_s=0.0)
    await scaler.look()
    assert (await world.replicas(), world.api.count("update", "statefulsets/scale")) == (5, 0)
    await world.sync("statefulsets")
    await asyncio.sleep(200)
    await scaler.look()
    assert await world.replicas() == 0
