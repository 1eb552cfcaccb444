"""The life of an entry of the ScaleCache, against the embedded cluster's scale subresource."""

import asyncio
from typing import Any

import pytest

from extender.config.model import SCALE_REFRESH_PERIOD_S, ScaleCacheConfig
from extender.kube.api import (
    STATEFULSETS,
    ApiError,
    Conflict,
    NotFound,
    Obj,
    OutcomeUnknown,
    PatchType,
)
from extender.model.decode import stateful_set_from
from extender.model.objects import StatefulSet
from extender.service.pools.scale_cache import ScaleCache
from tests.support.builders import NS
from tests.support.service import World

pytestmark = pytest.mark.looptime
NAME = "dispatcher"


async def a_world(period_s: float = 60.0, **limits: int) -> tuple[World, ScaleCache]:
    world = await World.create(replicas=3)
    config = ScaleCacheConfig(refresh_period_s=period_s, **limits)
    return world, ScaleCache(world.api, clock=asyncio.get_running_loop().time, config=config)


def reads(world: World) -> int:
    return world.api.count("get", "statefulsets/scale")


async def scaled_by_hand(world: World, replicas: int) -> None:
    await world.cluster.patch(
        STATEFULSETS, NS, NAME, {"spec": {"replicas": replicas}}, patch_type=PatchType.MERGE
    )


async def test_within_the_period_nobody_is_asked_twice():
    world, cache = await a_world()
    first = await cache.get_scale(NS, NAME)
    await asyncio.sleep(59)
    assert await cache.get_scale(NS, NAME) == first
    assert (first.replicas, reads(world)) == (3, 1)
    await asyncio.sleep(2)
    await cache.get_scale(NS, NAME)
    assert reads(world) == 2


async def test_a_period_of_zero_means_knatives_five_minutes():
    world, cache = await a_world(0.0)
    await cache.get_scale(NS, NAME)
    await asyncio.sleep(SCALE_REFRESH_PERIOD_S - 1)
    await cache.get_scale(NS, NAME)
    assert reads(world) == 1


async def test_an_update_stores_what_the_server_answers_and_can_be_followed_by_another():
    world, cache = await a_world()
    scale = await cache.update_scale(await cache.get_scale(NS, NAME), 5)
    assert await cache.get_scale(NS, NAME) == scale
    assert (await cache.update_scale(scale, 6)).replicas == 6
    assert (await world.replicas(), reads(world)) == (6, 1)


async def test_what_somebody_else_has_written_meanwhile_is_never_overwritten_and_read_afresh():
    world, cache = await a_world()
    scale = await cache.get_scale(NS, NAME)
    await scaled_by_hand(world, 7)
    with pytest.raises(Conflict):
        await cache.update_scale(scale, 5)
    assert await world.replicas() == 7
    assert (await cache.get_scale(NS, NAME)).replicas == 7


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ApiError(500, "InternalError", "etcd"), id="500"),
        pytest.param(OutcomeUnknown(0, "Timeout", "no answer"), id="no answer"),
    ],
)
async def test_a_failed_update_keeps_the_entry(error: ApiError):
    world, cache = await a_world()
    scale = await cache.get_scale(NS, NAME)
    world.api.fail("update", "statefulsets/scale", before=error)
    with pytest.raises(type(error)):
        await cache.update_scale(scale, 5)
    assert await cache.get_scale(NS, NAME) == scale
    assert reads(world) == 1


async def test_a_stateful_set_that_is_gone_is_not_remembered():
    world, cache = await a_world()
    scale = await cache.get_scale(NS, NAME)
    await world.cluster.delete(STATEFULSETS, NS, NAME)
    with pytest.raises(NotFound):
        await cache.update_scale(scale, 5)
    with pytest.raises(NotFound):
        await cache.get_scale(NS, NAME)


async def test_reset_forgets_everything():
    world, cache = await a_world()
    await cache.get_scale(NS, NAME)
    cache.reset()
    await cache.get_scale(NS, NAME)
    assert reads(world) == 2


@pytest.mark.parametrize(
    ("version", "reads_after"),
    [pytest.param("same", 1, id="as known"), pytest.param("other", 2, id="another version")],
)
async def test_what_the_watch_shows_ends_an_entry_of_another_version(
    version: str, reads_after: int
):
    world, cache = await a_world()
    scale = await cache.get_scale(NS, NAME)
    seen = scale.resource_version if version == "same" else "1"
    new = StatefulSet(namespace=NS, name=NAME, uid=scale.uid, resource_version=seen, replicas=3)
    cache.stateful_set_changed(None, new)
    await cache.get_scale(NS, NAME)
    assert reads(world) == reads_after


async def test_a_reply_that_the_watch_has_overtaken_is_not_kept():
    """Found by review: the older number stood for up to five minutes."""
    world, cache = await a_world()
    get, old = world.api.get, await world.cluster.get(STATEFULSETS, NS, NAME)

    async def slow(*called: Any, **options: Any) -> Obj:
        reply = await get(*called, **options)
        await scaled_by_hand(world, 7)
        new = await world.cluster.get(STATEFULSETS, NS, NAME)
        cache.stateful_set_changed(stateful_set_from(old), stateful_set_from(new))
        return reply

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.api, "get", slow)
        assert (await cache.get_scale(NS, NAME)).replicas == 3
    assert (await cache.get_scale(NS, NAME)).replicas == 7


async def test_a_stateful_set_that_the_watch_saw_deleted_is_forgotten():
    world, cache = await a_world()
    scale = await cache.get_scale(NS, NAME)
    cache.stateful_set_changed(StatefulSet(namespace=NS, name=NAME, uid=scale.uid), None)
    await cache.get_scale(NS, NAME)
    assert reads(world) == 2


async def create_another(world: World) -> None:
    other = await world.cluster.get(STATEFULSETS, NS, NAME)
    other["metadata"] = {"name": "other"}
    await world.cluster.create(STATEFULSETS, NS, other)


async def test_a_new_period_also_applies_to_what_is_kept():
    world, cache = await a_world()
    await cache.get_scale(NS, NAME)
    await asyncio.sleep(30)
    cache.reconfigure(ScaleCacheConfig(refresh_period_s=20.0))
    await cache.get_scale(NS, NAME)
    assert reads(world) == 2
    cache.reconfigure(ScaleCacheConfig(refresh_period_s=120.0))
    await asyncio.sleep(100)
    await cache.get_scale(NS, NAME)
    assert reads(world) == 2


async def test_a_lower_limit_drops_the_oldest_at_once():
    world, cache = await a_world(entries_max=2)
    await create_another(world)
    for name in (NAME, "other"):
        await cache.get_scale(NS, name)
    cache.reconfigure(ScaleCacheConfig(entries_max=1))
    cache.reconfigure(ScaleCacheConfig(entries_max=2))
    for name in ("other", NAME):
        await cache.get_scale(NS, name)
    assert reads(world) == 3


async def test_the_oldest_entries_go_first():
    world, cache = await a_world(entries_max=1)
    await create_another(world)
    for name in (NAME, "other", "other", NAME):
        await cache.get_scale(NS, name)
    assert reads(world) == 3
