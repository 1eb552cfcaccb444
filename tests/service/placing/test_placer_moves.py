"""Moves of the evictor and vpods of callers: both decided in between two batches of a pool."""

import asyncio
from dataclasses import replace

import pytest

from extender.kube.api import ApiError
from extender.model.moves import Move, MoveReason
from extender.model.objects import VPod
from extender.service.placing.placer import NotCommitted
from tests.support.builders import POOL
from tests.support.service import World, a_world, lost, until

pytestmark = pytest.mark.looptime
KEY = "tenant/a"
CALLERS = "tenant/topic@queue.example.com"


async def settled(world: World, published: dict[int, int], name: str = "a") -> None:
    await until(lambda: world.published(name), published)


def a_move(vreplicas: int, *, to: int = 1, reason: MoveReason = MoveReason.COMPACTION) -> Move:
    return Move(KEY, "dispatcher-0", f"dispatcher-{to}", vreplicas, reason)


async def test_a_move_is_written_and_told_with_its_reason_in_event_condition_and_metric():
    world = await a_world(0)
    await world.vpod("a", 4)
    async with world.serving() as service:
        await settled(world, {0: 4})
        await world.pods(1)
        await asyncio.sleep(1)
        assert await service.placer.move(POOL, [a_move(3)]) == [a_move(3)]
        await settled(world, {0: 1, 1: 3})
        await world.check()
        assert await world.ledger(0) == {KEY: 1}
        await asyncio.sleep(20)
        assert await world.published() == {0: 1, 1: 3}, "placing leaves it where it was moved to"
        note = "3 vreplicas moved from dispatcher-0 to dispatcher-1 (Compaction)"
        assert [event["note"] for event in await world.events("Moved")] == [note]
        condition = (await world.conditions())["Moved"]
        assert (condition["status"], condition["reason"], condition["message"]) == (
            "True",
            "Compaction",
            note,
        )
        assert (
            'vreplica_scheduler_moves_total{reason="Compaction"} 3.0'
            in service.metrics.render().decode()
        )


async def test_a_move_takes_no_more_than_is_there_and_fits():
    world = await a_world(0, 1, slotsPerPod=5)
    await world.vpod("a", 8)
    async with world.serving() as service:
        await settled(world, {0: 4, 1: 4})
        assert await service.placer.move(POOL, [a_move(9)]) == [a_move(1)]
        assert await world.published() == {0: 3, 1: 5}
        assert await service.placer.move(POOL, [a_move(1)]) == [], "the target is full by now"


@pytest.mark.parametrize("close", [1 << 1, 0], ids=["closed", "not there"])
async def test_nothing_moves_to_a_pod_that_takes_no_work(close: int):
    world = await a_world(0, 1)
    await world.vpod("a", 4)
    async with world.serving() as service:
        await settled(world, {0: 2, 1: 2})
        service.caches.state.pool(POOL).set_closed(close)
        calls = len(world.api.writes())
        assert await service.placer.move(POOL, [a_move(1, to=1 if close else 7)]) == []
        assert len(world.api.writes()) == calls


async def test_a_move_whose_new_ledger_is_not_written_leaves_all_where_it_was():
    world = await a_world(0)
    await world.vpod("a", 4)
    async with world.serving() as service:
        await settled(world, {0: 4})
        await world.pods(1)
        await asyncio.sleep(1)
        world.api.fail(
            "patch", "pods", name="dispatcher-1", before=ApiError(500, "InternalError", "no")
        )
        assert await service.placer.move(POOL, [a_move(2)]) == []
        await asyncio.sleep(30)
        assert await world.published() == {0: 4}
        assert await world.ledger(1) == {}
        assert "Moved" not in await world.conditions()


async def test_a_move_whose_answer_is_lost_settles_with_nothing_lost_or_doubled():
    world = await a_world(0)
    await world.vpod("a", 4)
    async with world.serving() as service:
        await settled(world, {0: 4})
        await world.pods(1)
        await asyncio.sleep(1)
        world.api.fail("patch", "vpods/status", after=lost())
        await service.placer.move(POOL, [a_move(2)])
        await asyncio.sleep(60)
        assert await world.placed() == 4


# -- callers that keep their status ----------------------------------------------------------------


def of_caller(vreplicas: int, placements: dict[int, int] | None = None) -> VPod:
    return VPod(
        namespace="tenant",
        name="topic",
        source="queue.example.com",
        pool=POOL,
        vreplicas=vreplicas,
        placements={f"dispatcher-{o}": count for o, count in (placements or {}).items()},
    )


async def test_a_callers_vpod_is_in_the_ledgers_before_it_is_answered():
    world = await a_world(0, 1)
    async with world.serving() as service:
        await asyncio.sleep(1)
        decision = await service.placer.schedule(of_caller(3))
        assert dict(decision.target) == {"dispatcher-0": 2, "dispatcher-1": 1}
        assert [await world.ledger(o) for o in (0, 1)] == [{CALLERS: 2}, {CALLERS: 1}]
        await asyncio.sleep(120)
        assert [await world.ledger(o) for o in (0, 1)] == [{CALLERS: 2}, {CALLERS: 1}], (
            "nobody takes it back"
        )


async def test_what_has_no_room_is_left_and_the_pool_grows_for_it():
    world = await a_world(0, replicas=1, slotsPerPod=2)
    async with world.serving() as service:
        await asyncio.sleep(1)
        decision = await service.placer.schedule(of_caller(3))
        assert (dict(decision.target), decision.pending) == ({"dispatcher-0": 2}, 1)
        await until(world.replicas, 2)


async def test_a_shrinking_caller_keeps_its_ledgers_until_it_has_published_less():
    world = await a_world(0, 1)
    async with world.serving() as service:
        await asyncio.sleep(1)
        await service.placer.schedule(of_caller(4))
        fewer = await service.placer.schedule(of_caller(2, {0: 2, 1: 2}))
        assert dict(fewer.target) == {"dispatcher-0": 2}
        assert await world.ledger(1) == {CALLERS: 2}
        await service.placer.schedule(of_caller(2, {0: 2}))
        assert [await world.ledger(o) for o in (0, 1)] == [{CALLERS: 2}, {}]


async def test_a_caller_that_asks_again_leaves_a_pod_that_is_being_emptied():
    world = await a_world(0, 1)
    async with world.serving() as service:
        await asyncio.sleep(1)
        await service.placer.schedule(of_caller(2))
        service.caches.state.pool(POOL).set_closed(1 << 1)
        moved = await service.placer.schedule(of_caller(2, {0: 1, 1: 1}))
        assert dict(moved.target) == {"dispatcher-0": 2}
        assert [await world.ledger(o) for o in (0, 1)] == [{CALLERS: 2}, {CALLERS: 1}], (
            "covered until published"
        )
        again = await service.placer.schedule(of_caller(2, {0: 2}))
        assert dict(again.target) == {"dispatcher-0": 2}
        assert await world.ledger(1) == {}


async def test_a_caller_that_wants_nothing_any_more_is_released_and_forgotten():
    world = await a_world(0, 1, 2, minPods=3)
    async with world.serving() as service:
        await asyncio.sleep(1)
        await service.placer.schedule(of_caller(2))
        await service.placer.schedule(of_caller(0, {0: 1, 1: 1}))
        await service.placer.schedule(of_caller(0))
        assert [await world.ledger(ordinal) for ordinal in range(3)] == [{}, {}, {}]
        assert CALLERS not in service.caches.state.pool(POOL).vpods


async def test_after_a_restart_a_callers_share_stands_and_its_next_call_finds_it():
    world = await a_world(0, 1, 2, minPods=3)
    async with world.serving() as service:
        await asyncio.sleep(1)
        first = await service.placer.schedule(of_caller(2))
    async with world.serving() as service:
        await world.vpod("a", 3)
        await settled(world, {0: 1, 1: 1, 2: 1})
        await asyncio.sleep(100)
        again = await service.placer.schedule(of_caller(2))
        assert again.target == first.target


async def test_a_caller_that_changes_its_pool_leaves_the_old_ones_ledgers():
    world = await a_world(0)
    async with world.serving() as service:
        await asyncio.sleep(1)
        await service.placer.schedule(of_caller(2))
        await service.placer.schedule(replace(of_caller(2), pool="knative-eventing/other"))
        await asyncio.sleep(5)
        assert await world.ledger(0) == {}


async def test_a_ledger_that_cannot_be_written_is_told_to_the_caller():
    world = await a_world(0)
    async with world.serving() as service:
        await asyncio.sleep(1)
        world.api.fail("patch", "pods", before=ApiError(500, "InternalError", "no"))
        with pytest.raises(NotCommitted, match=r"tenant/topic@queue\.example\.com was not written"):
            await service.placer.schedule(of_caller(2))
        assert dict((await service.placer.schedule(of_caller(2))).target) == {"dispatcher-0": 2}


async def test_when_ordinals_start_elsewhere_all_stays_where_it_runs_until_the_new_pods_have_room():
    world = await a_world(0, 1, 2)
    await world.vpod("a", 45)
    async with world.serving():
        await settled(world, {0: 15, 1: 15, 2: 15})
        await world.patch_stateful_set(ordinals={"start": 5})
        await asyncio.sleep(30)
        assert await world.published() == {0: 15, 1: 15, 2: 15}, "nothing is there yet to take it"
        assert await world.condition() == ("False", "InsufficientSlots")
        assert await world.replicas() == 3
        await world.pods(5)
        await settled(world, {0: 15, 1: 10, 5: 20})
        await world.check()
        assert (await world.conditions())["Moved"]["reason"] == "OrdinalGone"
        await world.pods(6, 7)
        await settled(world, {5: 20, 6: 20, 7: 5})
        assert await world.condition() == ("True", "AllPlaced")
        for ordinal in range(3):
            await world.remove_pod(ordinal)
        await asyncio.sleep(30)
        assert await world.published() == {5: 20, 6: 20, 7: 5}


async def test_a_pod_that_ends_without_its_ordinal_before_there_is_room_has_its_vreplicas_wait():
    world = await a_world(0)
    await world.vpod("a", 4)
    async with world.serving():
        await settled(world, {0: 4})
        await world.patch_stateful_set(ordinals={"start": 5})
        await asyncio.sleep(1)
        assert await world.published() == {0: 4}
        await world.remove_pod(0)
        await settled(world, {})
        await world.pods(5)
        await settled(world, {5: 4})
