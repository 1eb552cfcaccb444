"""Rollouts in pools with ``spec.rollout.strategy: HandedOver``, with the whole service."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from extender.kube.api import ADAPTERPOOLS, PODS, Forbidden, NotFound, Resource
from extender.model.decode import pod_from
from extender.model.eviction import Eviction, encode_eviction, eviction_of
from extender.model.names import EVICTING_ANNOTATION
from extender.service.pools.rollouts import STUCK_S
from tests.service.placing.test_handovers import a_world, moved
from tests.support.adapters import Adapters
from tests.support.builders import NS, POOL
from tests.support.rollouts import Controller, annotation, controlled, revisions, with_strategy
from tests.support.service import FaultApi, World, lost, until

pytestmark = [pytest.mark.looptime, pytest.mark.timeout(60)]  # hours of virtual time

FORBIDDEN = Forbidden(403, "Forbidden", "may not create pods/eviction")
HANDED_OVER = {"strategy": "HandedOver"}


@asynccontextmanager
async def rolling(
    *, rollout: dict[str, Any] | None = None, strategy: str = "OnDelete", **pool
) -> AsyncIterator[tuple[World, Controller, Adapters]]:
    """Three pods with four VPods of 3 between them, all served, before a rollout."""
    world = await a_world(rollout={**HANDED_OVER, **(rollout or {})}, **pool)
    await with_strategy(world, strategy)
    async with controlled(world) as (controller, known), world.serving():
        for name in "abcd":
            await world.vpod(name, 3)
        await until(all_served(known))
        yield world, controller, known


def all_served(known: Adapters):
    return lambda: sum(count for mine in known.serving.values() for count in mine.values()) >= 12


def has_revision(world: World, *wanted: str):
    async def is_so() -> bool:
        return set((await revisions(world)).values()) == set(wanted)

    return is_so


async def test_a_rollout_replaces_each_pod_once_its_shares_are_served_elsewhere():
    async with rolling() as (world, controller, known):
        controller.roll_out("r2")
        await until(has_revision(world, "r2"), timeout_s=300)
        await until(all_served(known))
        assert controller.deleted[:3] == ["dispatcher-2", "dispatcher-1", "dispatcher-0"]
        assert controller.down_most == 1
        assert (await moved(world))[0] == "Rollout"
        reasons = [one["note"] for one in await world.events("RolledOut")]
        assert len(reasons) == 3
        await asyncio.sleep(2)
        assert await world.pool_condition("RollingOut") == ("False", "UpToDate")
    assert known.gaps == []


async def test_two_pods_are_replaced_at_the_same_time_where_maxunavailable_allows_it():
    most = {"maxUnavailable": {"pool": 2}}
    async with rolling(minPods=6, slots=8, handoff=most) as (world, controller, known):
        await until(world.replicas, 6)
        await asyncio.sleep(5)
        controller.roll_out("r2")
        await until(lambda: marks(world), 2)
        await until(has_revision(world, "r2"), timeout_s=300)
        await until(all_served(known))
        assert controller.down_most <= 2
    assert known.gaps == []


async def test_pods_that_may_go_are_evicted_in_one_look_however_long_each_call_takes():
    """One went a look: after its eviction, the time of the look was before that of the next."""
    loop_time, sent = asyncio.get_running_loop().time, []

    async def slowly() -> None:
        sent.append(loop_time())
        await asyncio.sleep(5)

    async with rolling(handoff={"maxUnavailable": {"pool": 2}}) as (world, controller, _):
        controller.broken.add("r2")
        controller.roll_out("r2")
        await until(has_revision(world, "r1", "r2"))
        await asyncio.sleep(30)
        assert controller.deleted == ["dispatcher-2", "dispatcher-1"]
        world.api.fail("evict", "pods", then=slowly, times=2)
        controller.roll_out("r3")
        await until(lambda: len(sent), 2)
        assert sent[1] - sent[0] == pytest.approx(5, abs=0.01)


async def test_only_as_many_pods_are_handed_over_as_have_room_elsewhere():
    most = {"maxUnavailable": {"pool": 3}}
    async with rolling(slots=6, handoff=most) as (world, controller, known):
        controller.roll_out("r2")
        await until(lambda: marks(world), 1)
        await asyncio.sleep(0.5)
        assert await marks(world) == 1
        await until(has_revision(world, "r2"), timeout_s=300)
        await until(all_served(known))
    assert known.gaps == []


async def test_a_rollout_leaves_the_place_of_a_pod_that_somebody_evicts():
    most = {"maxUnavailable": {"pool": 2}}
    async with rolling(minPods=6, slots=8, handoff=most) as (world, controller, _):
        await until(world.replicas, 6)
        await asyncio.sleep(5)
        now = world.cluster.server.now()
        uid = await world.uid(0)
        mark = encode_eviction(Eviction(now, now + 200), uid)
        await world.annotate(0, **{EVICTING_ANNOTATION: mark})
        controller.roll_out("r2")
        await asyncio.sleep(60)
        assert controller.deleted
        assert controller.down_most == 1


async def marks(world: World) -> int:
    ordinals = range(await world.replicas())
    return sum([await annotation(world, i, EVICTING_ANNOTATION) is not None for i in ordinals])


async def test_a_pool_without_room_grows_by_the_surge_before_a_pod_is_marked():
    async with rolling(slots=4, minPods=0) as (world, controller, _):
        controller.broken.add("r2")
        controller.roll_out("r2")
        await until(world.replicas, 4)
        await asyncio.sleep(60)
        assert await world.replicas() == 4
        marks = [await annotation(world, i, EVICTING_ANNOTATION) for i in range(4)]
        assert marks == [None] * 4
        assert controller.deleted == []
        assert "dispatcher-3, of the newest revision, is not Ready" in await world.pool_message(
            "RollingOut"
        )


async def test_a_pool_without_room_shrinks_again_after_the_rollout():
    async with rolling(slots=4, minPods=0, scaleDownPeriodSeconds=20) as (world, controller, known):
        assert await world.replicas() == 3
        controller.roll_out("r2")
        await until(world.replicas, 4)
        assert controller.deleted == []
        await until(has_revision(world, "r2"), timeout_s=300)
        await until(world.replicas, 3, timeout_s=900)
        await until(all_served(known))
    assert known.gaps == []


async def test_without_surge_a_pool_without_room_does_not_grow_and_is_told():
    limits = {"prepareTimeoutSeconds": 5, "drainTimeoutSeconds": 5}
    full = rolling(rollout={"surge": 0}, slots=4, minPods=0, handoff=limits)
    async with full as (world, controller, _):
        controller.roll_out("r2")
        await until(lambda: world.events("RolledOutUnserved"), timeout_s=120)
        assert await world.replicas() == 3


async def test_a_rollout_whose_first_new_pod_does_not_get_ready_stops_and_is_told():
    async with rolling() as (world, controller, known):
        controller.broken.add("r2")
        controller.roll_out("r2")
        await asyncio.sleep(STUCK_S + 60)
        assert controller.deleted == ["dispatcher-2"]
        assert await world.pool_condition("RollingOut") == ("True", "PodNotReady")
        message = await world.pool_message("RollingOut")
        assert "dispatcher-2, of the newest revision, is not Ready" in message
        (event,) = await world.events("RolloutWaits")
        assert "dispatcher-2" in event["note"]
        controller.roll_out("r3")
        await until(has_revision(world, "r3"), timeout_s=300)
        assert controller.down_most == 1
    assert known.gaps == []


async def test_a_rollout_that_is_taken_back_leaves_the_pods_that_were_not_replaced():
    async with rolling() as (world, controller, known):
        controller.broken.add("r2")
        controller.roll_out("r2")
        await asyncio.sleep(30)
        controller.roll_out("r1")
        await until(has_revision(world, "r1"))
        assert controller.deleted == ["dispatcher-2", "dispatcher-2"]
    assert known.gaps == []


async def test_a_statefulset_that_is_not_on_delete_is_left_alone_and_told():
    async with rolling(strategy="RollingUpdate") as (world, controller, _):
        controller.roll_out("r2")
        await asyncio.sleep(60)
        assert controller.deleted == []
        assert await world.pool_condition("RollingOut") == ("True", "NotOnDelete")
        assert "OnDelete" in await world.pool_message("RollingOut")


@pytest.mark.parametrize("rollout", [{"strategy": "AsIs"}, None], ids=["AsIs", "absent"])
async def test_a_pool_that_has_not_opted_in_is_left_alone_and_has_no_condition(rollout):
    world = await a_world(**({"rollout": rollout} if rollout is not None else {}))
    await with_strategy(world)
    async with controlled(world) as (controller, _), world.serving():
        await world.vpod("a", 3)
        await asyncio.sleep(10)
        controller.roll_out("r2")
        await asyncio.sleep(1)
        writes = len(world.api.writes())
        await asyncio.sleep(120)
        assert len(world.api.writes()) == writes
        assert controller.deleted == []
        assert await world.pool_condition("RollingOut") == ("", "")


async def test_the_next_leader_goes_on_with_the_pod_that_is_marked():
    world = await a_world(rollout=HANDED_OVER)
    await with_strategy(world)
    async with controlled(world, delay_s=dict.fromkeys(range(3), 3.0)) as (controller, known):
        async with world.serving():
            for name in "abcd":
                await world.vpod(name, 3)
            await until(all_served(known))
            controller.roll_out("r2")
            await until(lambda: annotation(world, 2, EVICTING_ANNOTATION))
            mark = await annotation(world, 2, EVICTING_ANNOTATION)
        async with world.serving():
            await asyncio.sleep(2)
            assert await annotation(world, 2, EVICTING_ANNOTATION) == mark
            await until(has_revision(world, "r2"), timeout_s=600)
    assert controller.deleted == ["dispatcher-2", "dispatcher-1", "dispatcher-0"]
    assert known.gaps == []


async def test_nothing_is_known_any_more_of_a_pool_that_is_gone():
    """It stayed until another replica led: only the pools of the state were looked at."""
    world = await a_world(rollout=HANDED_OVER)
    async with world.serving() as service:
        rollouts = service.rollouts
        await until(lambda: rollouts.condition(POOL))
        assert (set(rollouts._paces), rollouts._handing_over) == ({POOL}, {POOL})
        await world.cluster.delete(ADAPTERPOOLS, NS, "dispatcher")
        await until(lambda: POOL not in service.caches.state.pools)
        await asyncio.sleep(15)
        assert (rollouts._paces, rollouts._conditions, rollouts._handing_over) == ({}, {}, set())


async def test_without_the_right_to_evict_nothing_is_evicted_and_the_condition_says_how():
    async with rolling() as (world, controller, _):
        world.api.fail("evict", "pods", before=FORBIDDEN, times=1000)
        controller.roll_out("r2")
        await asyncio.sleep(60)
        assert controller.deleted == []
        assert (await world.pool_condition("RollingOut"))[1] == "EvictionForbidden"
        assert "rbac.rollouts" in await world.pool_message("RollingOut")
        assert await world.events("RolloutRefused")


async def test_a_rollout_waits_for_an_eviction_of_another_pod():
    async with rolling() as (world, controller, _):
        now = world.cluster.server.now()
        uid = await world.uid(0)
        await world.annotate(0, **{EVICTING_ANNOTATION: encode_eviction(Eviction(now, now), uid)})
        controller.roll_out("r2")
        await asyncio.sleep(30)
        assert controller.deleted == []
        assert (await world.pool_condition("RollingOut"))[1] == "PodEvicted"


async def test_a_rollout_that_is_switched_off_gives_its_pod_back():
    async with rolling() as (world, controller, known):
        world.api.fail("evict", "pods", before=FORBIDDEN, times=1000)
        controller.roll_out("r2")
        await asyncio.sleep(30)
        assert await annotation(world, 2, EVICTING_ANNOTATION) is not None
        await world.patch_pool(rollout=None)
        await asyncio.sleep(400)
        assert await annotation(world, 2, EVICTING_ANNOTATION) is None
        assert await world.pool_condition("RollingOut") == ("", "")
    assert known.gaps == []


async def test_a_turn_whose_answer_is_lost_counts_before_the_rollout_takes_a_pod():
    limits = {"maxUnavailable": {"pool": 1}}
    async with rolling(minPods=6, slots=8, handoff=limits) as (world, controller, _):
        await until(world.replicas, 6)
        await asyncio.sleep(15)
        now_s = world.cluster.server.now()
        mark = encode_eviction(Eviction(now_s, now_s), await world.uid(0))
        await world.annotate(0, **{EVICTING_ANNOTATION: mark})
        controller.roll_out("r2")
        world.api.fail("patch", "pods", name="dispatcher-0", after=lost())
        for _ in range(200):
            await asyncio.sleep(0.02)
            taken = [ordinal for ordinal in range(6) if await has_turn(world, ordinal)]
            assert len(taken) <= 1


async def test_a_turn_that_is_stored_and_not_seen_counts_before_the_rollout_takes_a_pod(
    monkeypatch,
):
    """Its answer is lost, and the watch is behind: written again, it conflicts."""
    watch, goes_on = FaultApi.watch, asyncio.Event()
    goes_on.set()

    async def late(self: FaultApi, resource: Resource, *args, **options):
        async for event in watch(self, resource, *args, **options):
            if resource is PODS:
                await goes_on.wait()
            yield event

    async def falls_behind() -> None:
        goes_on.clear()

    monkeypatch.setattr(FaultApi, "watch", late)
    limits = {"maxUnavailable": {"pool": 1}}
    async with rolling(minPods=6, slots=8, handoff=limits) as (world, controller, _):
        await until(world.replicas, 6)
        await asyncio.sleep(15)
        now_s = world.cluster.server.now()
        mark = encode_eviction(Eviction(now_s, now_s), await world.uid(0))
        world.api.fail("patch", "pods", name="dispatcher-0", after=lost(), then=falls_behind)
        await world.annotate(0, **{EVICTING_ANNOTATION: mark})
        controller.roll_out("r2")
        for _ in range(200):
            await asyncio.sleep(0.1)
            taken = [ordinal for ordinal in range(6) if await has_turn(world, ordinal)]
            assert len(taken) <= 1
        assert await has_turn(world, 0)
        goes_on.set()


async def has_turn(world: World, ordinal: int) -> bool:
    try:
        mark = eviction_of(pod_from(await world.pod_object(ordinal)))
    except NotFound:
        return False
    return mark is not None and not mark.waits
