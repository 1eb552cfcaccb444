"""The whole service: pools shrink, are drained and lose pods, and every move has its reason."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from extender.kube.api import ADAPTERPOOLS, NotFound, Obj, PatchType
from extender.model import names
from tests.support.builders import NS, POOL
from tests.support.service import World, a_world, until
from tests.support.tasks import at_work

pytestmark = pytest.mark.looptime


@asynccontextmanager
async def stateful_set_controller(world: World) -> AsyncIterator[None]:
    """Takes away the pods that the StatefulSet no longer wants."""

    async def work() -> None:
        while True:
            for ordinal in range(await world.replicas(), 10):
                try:
                    await world.remove_pod(ordinal)
                except NotFound:
                    break
            await asyncio.sleep(0.5)

    async with at_work(work()):
        yield


async def reasons(world: World) -> set[str]:
    """Of all moves: what stands in brackets at the end of each sentence."""
    notes = [event["note"] for event in await world.events("Moved")]
    return {
        sentence.rpartition("(")[2].rstrip(")") for note in notes for sentence in note.split("; ")
    }


async def test_a_pool_that_is_too_large_is_emptied_from_the_top_and_shrinks():
    budget = {"movesPerPeriod": 4, "cooldownSeconds": 15}
    world = await World.create(replicas=0, scaleDownPeriodSeconds=10, rebalance=budget)
    async with world.serving() as service, world.adapters(service), stateful_set_controller(world):
        for index in range(8):
            await world.vpod(f"v{index}", 10)
        await until(world.replicas, 4, timeout_s=5)
        await asyncio.sleep(5)
        for index in range(8):
            await world.set_vreplicas(f"v{index}", 2)
        await until(world.replicas, 1, timeout_s=200)
        await world.check()
        for index in range(8):
            assert await world.condition(f"v{index}") == ("True", "AllPlaced")
            assert await world.published(f"v{index}") == {0: 2}
        await asyncio.sleep(3)
        assert await reasons(world) == {"Compaction"}
        moved = len(await world.events("Moved"))
        await asyncio.sleep(100)
        assert len(await world.events("Moved")) == moved, "nothing moves without need"


async def test_in_a_dry_run_all_stays_and_what_would_move_is_told():
    world = await World.create(replicas=2, scaleDownPeriodSeconds=5, rebalance={"dryRun": True})
    await world.vpod("a", 3, {1: 3})
    await world.pod(0, {}, node="node-0")
    await world.pod(1, {"tenant/a": 3}, node="node-1")
    async with world.serving():
        await asyncio.sleep(60)
        assert await world.published() == {1: 3}
        assert await world.replicas() == 2
        (event,) = await world.events("WouldMove")
        assert (
            event["note"] == "3 vreplicas would move from dispatcher-1 to dispatcher-0 (Compaction)"
        )
        assert not await world.events("Moved")


async def test_a_drain_waits_for_room_and_goes_on_when_there_is_some():
    world = await World.create(replicas=2, maxPods=2)
    await world.vpod("a", 15, {0: 15})
    await world.vpod("b", 10, {1: 10})
    await world.pod(0, {"tenant/a": 15}, node="node-0")
    await world.pod(1, {"tenant/b": 10}, node="node-1")
    async with world.serving():
        await asyncio.sleep(1)
        await world.annotate(0, **{names.UNSCHEDULABLE_ANNOTATION: "true"})
        await asyncio.sleep(20)
        assert await world.published("a") == {0: 5, 1: 10}
        await world.set_vreplicas("b", 4)
        await until(world.published, {1: 15}, timeout_s=30)
        await asyncio.sleep(3)
        assert await reasons(world) == {"Drain"}


async def test_what_a_pod_not_ready_for_too_long_holds_is_placed_elsewhere_and_stays_there():
    world = await a_world(0, 1, 2, replicas=3, rescheduleAfterSeconds=30, minPods=3)
    for ordinal in range(3):
        await world.ready(ordinal)
    async with world.serving() as service:
        await world.vpod("a", 9)
        await until(world.published, {0: 3, 1: 3, 2: 3})
        await world.ready(1, ready=False)
        await asyncio.sleep(29)
        assert await world.published() == {0: 3, 1: 3, 2: 3}
        await until(world.published, {0: 5, 2: 4}, timeout_s=3)
        await asyncio.sleep(3)
        assert await reasons(world) == {"Reschedule"}
        assert service.caches.state.pool(POOL).abandoned == {"dispatcher-1"}
        await world.ready(1)
        await asyncio.sleep(60)
        assert service.caches.state.pool(POOL).abandoned == frozenset()
        assert await world.published() == {0: 5, 2: 4}


async def test_when_no_pod_is_ready_nothing_is_lost_and_nothing_moves():
    world = await a_world(0, 1, replicas=2, rescheduleAfterSeconds=10, minPods=2, maxPods=2)
    async with world.serving() as service:
        await world.vpod("a", 4)
        await asyncio.sleep(60)
        assert service.caches.state.pool(POOL).abandoned == {"dispatcher-0", "dispatcher-1"}
        assert await world.published() == {0: 2, 1: 2}
        assert not await world.events("Moved")


async def test_a_profile_evens_out_over_pods_that_have_come_later_a_few_at_a_time_and_then_rests():
    budget = {"movesPerPeriod": 2, "cooldownSeconds": 12}
    world = await World.create(
        replicas=3, minPods=3, profile="ha", scaleDownPeriodSeconds=5, rebalance=budget
    )
    await world.vpod("a", 6, {0: 6})
    await world.pod(0, {"tenant/a": 6}, node="node-0")
    await world.pods(1, 2)
    async with world.serving() as service:
        await asyncio.sleep(8)
        assert await world.published() == {0: 4, 1: 1, 2: 1}
        await asyncio.sleep(5)
        assert await world.published() == {0: 4, 1: 1, 2: 1}, "it cools down"
        await until(world.published, {0: 2, 1: 2, 2: 2}, timeout_s=30)
        await asyncio.sleep(60)
        assert await reasons(world) == {"Policy"}
        assert 'moves_total{reason="Policy"} 4.0' in service.metrics.render().decode()


async def test_a_pool_waits_300_seconds_unless_it_says_null_which_stays():
    world = await World.create(replicas=1)

    async def patience(patch: Obj | list[Obj] | None, how: PatchType = PatchType.MERGE) -> object:
        if patch is not None:
            await world.cluster.patch(ADAPTERPOOLS, NS, "dispatcher", patch, patch_type=how)
        return (await world.cluster.get(ADAPTERPOOLS, NS, "dispatcher"))["spec"][
            "rescheduleAfterSeconds"
        ]

    assert await patience(None) == 300
    never = {"op": "add", "path": "/spec/rescheduleAfterSeconds", "value": None}
    assert await patience([never], PatchType.JSON) is None
    assert await patience({"spec": {"maxPods": 9}}) is None, "another field's change leaves it"
    merged = {"spec": {"rescheduleAfterSeconds": None}}
    assert await patience(merged) == 300, (
        "a merge patch takes the field away, as with the real API server"
    )
