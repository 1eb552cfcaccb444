"""One pool's size, where the caches lag behind or something comes while it is looked at."""

import asyncio
import random

import pytest

from extender.config.model import ScaleCacheConfig
from extender.engine.placing.refused import IN_DOUBT, why_not_each
from extender.engine.pods.bits import bits
from extender.engine.scaling.size import plan_scale
from extender.kube.api import STATEFULSETS, Conflict, OutcomeUnknown, PatchType
from extender.service.pools.closed_ordinals import SHOWN_S
from extender.service.pools.pool_scaler import RETRY_S, PoolScaler, ScalerContext
from extender.service.pools.scale_cache import ScaleCache
from tests.support.builders import NS, POOL
from tests.support.service import World, a_world, lost

pytestmark = pytest.mark.looptime


def told(pool: str, *, opened: bool) -> None:
    """Nobody waits for pods that are opened or closed."""
    del pool, opened


def a_scaler(world: World, *, alone: bool = True, period_s: float = 0.0) -> PoolScaler:
    """One whose period ends at once."""
    context = ScalerContext(
        world.caches,
        ScaleCache(world.api, clock=asyncio.get_running_loop().time, config=ScaleCacheConfig()),
        lambda _: world.api,
        world.recorder(),
        world.metrics,
        random.Random(1),
        told,
        lambda _pool: None,
        lambda _pool: alone,
    )
    return PoolScaler(POOL, context, period_s=period_s)


async def test_pods_that_the_watch_has_not_shown_yet_are_not_removed():
    """They may hold something, and be among those that would go."""
    world = await a_world(0, 1, 2, replicas=3)
    await world.sync()
    await world.patch_stateful_set(replicas=5)
    scaler = a_scaler(world)
    await scaler.look()
    assert (await world.replicas(), world.api.count("update", "statefulsets/scale")) == (5, 0)
    await world.sync("statefulsets")
    await asyncio.sleep(200)
    await scaler.look()
    assert await world.replicas() == 0


async def test_a_pod_that_a_vpod_needs_which_came_while_the_scale_was_read_stays():
    """By the sum of slots two pods are enough, but on neither of them is room for a vreplica as
    heavy as that.
    """
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


@pytest.mark.parametrize(("vreplicas", "mode"), [(50, "External"), (50, "Advise"), (5, "Advise")])
async def test_a_pool_that_others_size_by_the_time_its_scale_is_read_is_not_scaled(
    vreplicas: int, mode: str
):
    """Its size was written by the mode that it had before."""
    world = await a_world(0, 1, replicas=2)
    await world.vpod("a", vreplicas, {0: 5})
    await world.sync()

    async def hand_over() -> None:
        await world.patch_pool(scaling={"mode": mode})
        await world.sync("adapterpools")

    world.api.fail("get", "statefulsets/scale", then=hand_over)
    await a_scaler(world).look()
    assert world.api.count("get", "statefulsets/scale") == 1
    assert (await world.replicas(), world.api.count("update", "statefulsets/scale")) == (2, 0)


async def test_a_pool_grows_no_further_than_is_needed_once_its_scale_is_read():
    """It grew to what had been needed before."""
    world = await a_world(0, replicas=1)
    await somebody_waits_for_all(world)
    await world.sync()

    async def need_less() -> None:
        await world.set_vreplicas("big", 30)
        await world.sync("vpods")

    world.api.fail("get", "statefulsets/scale", then=need_less)
    scaler = a_scaler(world)
    await scaler.look()
    assert await world.replicas() == 1
    assert scaler.due_at - asyncio.get_running_loop().time() <= RETRY_S
    await scaler.look()
    assert await world.replicas() == 2


# -- a scale-down of which nobody knows whether it arrived (seed 13566111) -------------------------


def closed(world: World) -> list[int]:
    return list(bits(world.caches.state.pools[POOL].closed))


async def two_of_three_are_empty() -> World:
    world = await a_world(0, 1, 2, replicas=3, scaleDownPeriodSeconds=3600)
    await world.vpod("a", 5)
    await world.sync()
    return world


async def somebody_waits_for_all(world: World) -> None:
    await world.vpod("big", 50)
    await world.sync("vpods")


async def wanted_again_after_an_unanswered_scale_down(world: World, scaler: PoolScaler) -> None:
    world.api.fail("update", "statefulsets/scale", before=lost("to the scale-down"))
    with pytest.raises(OutcomeUnknown):
        await scaler.look()
    await somebody_waits_for_all(world)


async def a_newer_version(world: World) -> None:
    note = {"metadata": {"annotations": {"example.com/note": "new"}}}
    await world.cluster.patch(STATEFULSETS, NS, "dispatcher", note, patch_type=PatchType.MERGE)
    await world.sync("statefulsets")


async def test_what_an_unanswered_scale_down_may_still_remove_stays_closed_though_wanted_again():
    world = await two_of_three_are_empty()
    scaler = a_scaler(world)
    await wanted_again_after_an_unanswered_scale_down(world, scaler)
    for _ in range(2):
        await asyncio.sleep(SHOWN_S / 3)
        await scaler.look()
        assert closed(world) == [1, 2]
    left_s = scaler.due_at - asyncio.get_running_loop().time()
    assert left_s == pytest.approx(SHOWN_S / 3, abs=0.1), "looks when it ends"


async def test_a_newer_version_of_the_stateful_set_opens_them_for_the_late_write_is_refused_then():
    world = await two_of_three_are_empty()
    scaler = a_scaler(world)
    scale = await world.cluster.get(STATEFULSETS, NS, "dispatcher", subresource="scale")
    await wanted_again_after_an_unanswered_scale_down(world, scaler)
    await a_newer_version(world)
    await scaler.look()
    assert closed(world) == []
    scale["spec"]["replicas"] = 1
    with pytest.raises(Conflict):
        await world.cluster.update(STATEFULSETS, NS, "dispatcher", scale, subresource="scale")


async def test_they_are_opened_once_no_request_lives_that_long():
    world = await two_of_three_are_empty()
    scaler = a_scaler(world)
    await wanted_again_after_an_unanswered_scale_down(world, scaler)
    await asyncio.sleep(SHOWN_S)
    await scaler.look()
    assert closed(world) == []


async def test_an_unanswered_scale_up_closes_nothing():
    world = await a_world(0, replicas=1)
    await somebody_waits_for_all(world)
    await world.sync()
    scaler = a_scaler(world)
    world.api.fail("update", "statefulsets/scale", before=lost("to the scale-up"))
    with pytest.raises(OutcomeUnknown):
        await scaler.look()
    assert closed(world) == []


async def test_what_the_leader_before_may_have_removed_is_closed_before_anything_is_placed():
    """Only the highest that hold nothing: it removes no others."""
    world = await World.create(replicas=4, scaleDownPeriodSeconds=3600)
    await world.pod(0, {}, node="node-0")
    await world.pod(1, {"tenant/a": 5}, node="node-1")
    await world.pod(2, {}, node="node-2")
    await world.vpod("a", 5, {1: 5})
    await world.vpod("big", 70)
    await world.sync()
    scaler = a_scaler(world, alone=False)
    assert closed(world) == [2, 3]
    await scaler.look()
    assert closed(world) == [2, 3]
    await asyncio.sleep(15)
    await scaler.look()
    assert closed(world) == []


def answers(world: World) -> set[str]:
    """What the pods say to one more vreplica of vpod ``a``."""
    state = world.caches.state.pools[POOL]
    return set(why_not_each(state, state.vpods["tenant/a"], {}, state.free_of).values())


async def test_what_is_closed_for_the_leader_before_is_not_said_to_be_emptied():
    """Nothing empties it. Once somebody does, its pods say so."""
    world = await two_of_three_are_empty()
    state = world.caches.state.pools[POOL]
    draining = a_scaler(world, alone=False).closed
    assert (state.closed, answers(world)) == (0b111, {IN_DOUBT})
    plan = plan_scale(state)
    assert plan is not None
    draining.close(state, plan, lambda _: True)
    assert (state.closed, state.in_doubt) == (0b111, 0b001)
    assert answers(world) == {IN_DOUBT, "being emptied"}


async def test_what_is_closed_for_the_leader_before_is_not_removed_for_it():
    """It is opened again, and lives until the pool's own period ends."""
    world = await two_of_three_are_empty()
    scaler = a_scaler(world, alone=False, period_s=3600.0)
    await scaler.look()
    await a_newer_version(world)
    await scaler.look()
    assert (closed(world), await world.replicas()) == ([], 3)


async def test_a_new_leader_opens_them_at_once_where_the_stateful_set_has_changed_since():
    world = await two_of_three_are_empty()
    scaler = a_scaler(world, alone=False)
    assert closed(world) == [0, 1, 2]
    await somebody_waits_for_all(world)
    await a_newer_version(world)
    await scaler.look()
    assert closed(world) == []


async def test_ordinals_that_have_moved_unseen_are_not_cut_by_the_number_of_before():
    """Seed 153140008: as many replicas as before, from another start, and the pod that was cut held
    vreplicas.
    """
    world = await a_world(0, 1, 2, replicas=3)
    await world.vpod("a", 1)
    await world.sync()
    await world.patch_stateful_set(ordinals={"start": 1})
    scaler = a_scaler(world)
    await scaler.look()
    assert (await world.replicas(), world.api.count("update", "statefulsets/scale")) == (3, 0)
    await world.pods(3)
    await world.sync()
    await asyncio.sleep(200)
    await scaler.look()
    assert await world.replicas() < 3


async def test_one_with_room_only_on_a_pod_whose_removal_is_in_doubt_opens_no_other_one():
    """Pods are closed because they are not needed, and then their removal gets no answer."""
    world = await World.create(replicas=4, slots=5, scaleDownPeriodSeconds=3600)
    for ordinal in range(4):
        ledger = {f"tenant/v{ordinal}": 2} if ordinal < 3 else {}
        await world.pod(ordinal, ledger, node=f"node-{ordinal % 3}", slots=5)
        if ledger:
            await world.vpod(f"v{ordinal}", 2, {ordinal: 2})
    await world.sync()
    scaler = a_scaler(world)
    world.api.fail("update", "statefulsets/scale", before=lost("to the scale-down"))
    with pytest.raises(OutcomeUnknown):
        await scaler.look()
    before = world.caches.state.pool(POOL).closed
    await world.vpod("b", 1, slotsPerVReplica=4)
    await world.sync("vpods")
    await scaler.look()
    assert world.caches.state.pool(POOL).closed == before
