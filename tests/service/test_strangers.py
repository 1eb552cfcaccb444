"""A pod with the pool's label that no StatefulSet controls: the running service gives it nothing
and writes nothing on it.
"""

import asyncio

import pytest

from extender.kube.api import PODS, PatchType
from extender.model import names
from tests.support.builders import NS
from tests.support.service import World, until

pytestmark = pytest.mark.looptime


@pytest.mark.parametrize("slots", [20, 2**31 - 1, None])
async def test_a_mirror_pod_in_an_ordinals_place_is_given_nothing(slots: int | None):
    world = await World.create(replicas=2)
    await world.pod(0, {}, node="node-0")
    await world.pod(1, {"tenant/ghost": 7}, node="node-1", slots=slots)
    alone = {"metadata": {"ownerReferences": None}}
    await world.cluster.patch(PODS, NS, "dispatcher-1", alone, patch_type=PatchType.MERGE)
    before = await world.pod_object(1)
    await world.vpod("a", 30)
    async with world.serving() as service:
        await until(world.published, {0: 20}, timeout_s=5)
        await asyncio.sleep(120)
        assert await world.published() == {0: 20}
        assert (await world.condition())[0] == "False"
        assert await world.pod_object(1) == before
        assert not await world.events("WebhookBypassed")
        assert not await world.events("ForeignWrite")
        pool = service.caches.state.pools[f"{NS}/dispatcher"]
        assert pool.slot_counts().total == 20
        assert names.POOL_LABEL in before["metadata"]["labels"]
