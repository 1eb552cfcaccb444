"""Evictions of adapter pods in pools with ``spec.handoff.mode: Overlap``."""

import asyncio

import pytest

from extender.kube.api import (
    NODES,
    STATEFULSETS,
    Conflict,
    PatchType,
    Preconditions,
    TooManyRequests,
)
from extender.model.decode import pod_from
from extender.model.eviction import FRESH_S, Eviction, encode_eviction, eviction_of
from extender.model.names import EVICTING_ANNOTATION, UNSCHEDULABLE_ANNOTATION
from extender.service.pools.evictions import EvictionMarks, give_turns
from tests.service.placing.test_handovers import KEY, a_world, ledgers, moved, published
from tests.support.adapters import adapters, adapters_beside, served
from tests.support.builders import NS, POOL
from tests.support.evictions import evict, is_gone, with_webhook
from tests.support.service import World, until

pytestmark = pytest.mark.looptime


async def two_pods(**pool) -> World:
    world = await a_world(0, 1, replicas=2, **pool)
    await with_webhook(world)
    return world


async def test_an_eviction_that_is_tried_again_ends_by_itself_and_leaves_no_gap():
    world = await two_pods()
    async with world.serving(), adapters(world, 0, 1, delay_s={1: 3.0}) as known:
        await world.vpod("a", 4)
        await until(served(known, KEY, {0: 2, 1: 2}))
        refusals = await evict(world, 0)
        assert 1 <= len(refusals) <= 5
        assert f"pod {NS}/dispatcher-0 of AdapterPool {POOL} waits for its turn" in refusals[0]
        assert all("still has 2 vreplicas" in refusal for refusal in refusals[1:])
        assert known.serving == {0: {}, 1: {KEY: 4}}
        assert await is_gone(world, 0)
    assert known.gaps == []
    assert await moved(world) == ("Evicted", "2 vreplicas moved from dispatcher-0 to dispatcher-1")


async def test_an_adapter_is_told_that_it_is_evicted():
    world = await two_pods()
    async with world.serving(), adapters(world, 0, 1, delay_s={0: 4.0}) as known:
        await world.vpod("a", 4)
        await until(served(known, KEY, {0: 2, 1: 2}))
        eviction = asyncio.create_task(evict(world, 0))
        await until(served(known, KEY, {0: 2, 1: 4}))
        await asyncio.sleep(1)
        share = (await known.assignment(0))["shares"][KEY]
        assert (share["state"], share["intent"]) == ("Drain", "Evicted")
        await eviction
    assert known.gaps == []


async def test_an_eviction_that_nobody_tries_again_is_given_up():
    world = await two_pods()
    async with world.serving(), adapters(world, 0, 1) as known:
        await world.vpod("a", 4)
        await until(served(known, KEY, {0: 2, 1: 2}))
        with pytest.raises(TooManyRequests):
            await world.cluster.evict(NS, "dispatcher-0")
        await ledgers(world, {0: 0, 1: 4})
        await world.vpod("b", 1)
        await until(served(known, "tenant/b", {1: 1}))
        await asyncio.sleep(FRESH_S - 10)
        assert await world.annotation(0, EVICTING_ANNOTATION) is not None
        await asyncio.sleep(70)
        assert await world.annotation(0, EVICTING_ANNOTATION) is None
        await world.vpod("c", 4)
        await until(lambda: "tenant/c" in known.serving[0])
    assert known.gaps == []


@pytest.mark.parametrize("ahead_s", [-3600.0, -360.0, 3600.0])
async def test_an_eviction_ends_by_itself_whatever_the_webhooks_clock_says(ahead_s: float):
    """Found by review: a leader ahead of the webhook took each attempt for given up."""
    world = await a_world(0, 1, replicas=2)
    await with_webhook(world, ahead_s=ahead_s)
    async with world.serving(), adapters(world, 0, 1) as known:
        await world.vpod("a", 4)
        await until(served(known, KEY, {0: 2, 1: 2}))
        assert len(await evict(world, 0)) <= 5
    assert known.gaps == []


async def test_an_eviction_that_a_webhook_ahead_has_marked_is_given_up_in_time():
    """Found by review: it kept its pod out of service for as long as the webhook was ahead."""
    world = await a_world(0, 1, replicas=2)
    await with_webhook(world, ahead_s=3600.0)
    async with world.serving(), adapters(world, 0, 1) as known:
        await world.vpod("a", 4)
        await until(served(known, KEY, {0: 2, 1: 2}))
        with pytest.raises(TooManyRequests):
            await world.cluster.evict(NS, "dispatcher-0")
        await asyncio.sleep(FRESH_S + 65)
        assert await world.annotation(0, EVICTING_ANNOTATION) is None


async def test_an_eviction_without_an_adapter_that_can_take_over_ends_at_its_deadline():
    world = await two_pods(handoff={"prepareTimeoutSeconds": 10, "drainTimeoutSeconds": 20})
    async with world.serving(), adapters(world, 0, 1) as known:
        await world.vpod("a", 4)
        await until(served(known, KEY, {0: 2, 1: 2}))
        known.never = {(1, "Serve")}
        began = asyncio.get_running_loop().time()
        await evict(world, 0)
        assert 105 < asyncio.get_running_loop().time() - began < 120
        assert await is_gone(world, 0)


async def test_an_adapter_that_is_late_once_is_tried_again_before_the_eviction_is_allowed():
    world = await two_pods()
    async with world.serving(), adapters(world, 0, 1) as known:
        await world.vpod("a", 4)
        await until(served(known, KEY, {0: 2, 1: 2}))
        known.never = {(1, "Serve")}
        eviction = asyncio.create_task(evict(world, 0))
        await asyncio.sleep(35)
        assert await world.events("PrepareTimedOut")
        known.never = set()
        await eviction
        assert known.serving == {0: {}, 1: {KEY: 4}}
    assert known.gaps == []


async def test_an_eviction_waits_for_adapters_that_use_all_of_their_time():
    """Found by review: the deadline had ``prepareTimeoutSeconds`` once, and the new adapter has
    that time twice, to get ready and to serve.
    """
    times = {"prepareTimeoutSeconds": 100, "drainTimeoutSeconds": 60}
    world = await a_world(0, replicas=2, handoff=times)
    await with_webhook(world)
    async with world.serving(), adapters(world, 0, delay_s={0: 50.0, 1: 95.0}) as known:
        await world.vpod("a", 2)
        await until(served(known, KEY, {0: 2}), timeout_s=120)
        await world.pods(1)
        async with adapters_beside(known, 1):
            await asyncio.sleep(100)  # it takes its time for an assignment without shares, too
            began = asyncio.get_running_loop().time()
            await evict(world, 0)
            assert asyncio.get_running_loop().time() - began > 95 + 95 + 50
            assert known.serving == {0: {}, 1: {KEY: 2}}
    assert known.gaps == []


async def test_descheduling_waits_like_any_other_eviction():
    world = await World.create(
        replicas=2,
        minPods=2,
        scaleDownPeriodSeconds=20,
        handoff={"mode": "Overlap"},
        descheduling={"reasons": ["NodeTaints"], "minPodAgeSeconds": 0},
    )
    await with_webhook(world)
    await world.pods(0, 1)
    await world.patch_status(STATEFULSETS, NS, "dispatcher", observedGeneration=1, replicas=2)
    async with world.serving() as service, adapters(world, 0, 1, delay_s={1: 3.0}) as known:
        await world.vpod("a", 4)
        await until(served(known, KEY, {0: 2, 1: 2}))
        taint = {"key": "spot-interruption", "effect": "NoSchedule"}
        patch = {"spec": {"taints": [taint]}}
        node = await world.node_of(0)
        await world.cluster.patch(NODES, "", node, patch, patch_type=PatchType.MERGE)
        await until(lambda: is_gone(world, 0))
        assert known.serving == {0: {}, 1: {KEY: 4}}
        text = service.metrics.render().decode()
        assert 'vreplica_scheduler_pods_evicted_total{result="refused"} 0.0' in text
    assert known.gaps == []
    assert await world.events("DeschedulingRefused") == []


async def test_a_cordoned_node_is_left_pod_by_pod_once_others_serve_what_it_has():
    """Two of three pods stand on the node, and maxUnavailable lets one go at a time."""
    world = await a_world(
        2,
        replicas=3,
        minPods=3,
        handoff={"mode": "Overlap"},
        descheduling={"reasons": ["NodeMaintenance"]},
    )
    for ordinal in (0, 1):
        await world.pod(ordinal, {}, node="node-0")
    await world.patch_status(STATEFULSETS, NS, "dispatcher", observedGeneration=1, replicas=3)
    async with world.serving(), adapters(world, 0, 1, 2, delay_s={0: 2.0, 1: 2.0}) as known:
        await world.vpod("a", 6)
        await until(served(known, KEY, {0: 2, 1: 2, 2: 2}))
        cordon = {"spec": {"unschedulable": True}}
        await world.cluster.patch(NODES, "", "node-0", cordon, patch_type=PatchType.MERGE)

        async def one_is_told() -> bool:
            shares = [(await known.assignment(pod))["shares"].get(KEY, {}) for pod in (0, 1)]
            return [share.get("intent") for share in shares].count("Maintenance") == 1

        await until(one_is_told)
        assert len([key for key in known.serving if known.serving[key]]) >= 2

        async def gone() -> list[int]:
            return [ordinal for ordinal in (0, 1) if await is_gone(world, ordinal)]

        async def one_is_gone() -> bool:
            return bool(await gone())

        await until(one_is_gone)
        await asyncio.sleep(30)
        (first,) = await gone()
        assert '"queued":true' in (await world.annotation(1 - first, EVICTING_ANNOTATION) or "")
        await world.remove_pod(first)
        await world.pod(first, {}, node="node-1")
        async with adapters_beside(known, first):
            await until(lambda: is_gone(world, 1 - first))
    assert known.gaps == []
    assert len(await world.events("Descheduled")) == 2


async def test_a_template_that_carries_the_annotation_drains_nothing_and_loses_it():
    world = await two_pods()
    mark = '{"uid":"another","first":"2027-01-15T08:00:00Z","latest":"2027-01-15T08:00:00Z"}'
    await world.annotate(0, **{EVICTING_ANNOTATION: mark})
    async with world.serving():
        await world.vpod("a", 4)
        await published(world, {0: 2, 1: 2})
        await asyncio.sleep(61)
        assert await world.annotation(0, EVICTING_ANNOTATION) is None
        assert await world.published("a") == {0: 2, 1: 2}


async def test_a_pool_without_the_mode_ignores_the_annotation():
    world = await a_world(0, 1, handoff={"mode": "None"})
    async with world.serving():
        await world.vpod("a", 4)
        await published(world, {0: 2, 1: 2})
        uid = await world.uid(0)
        now = "2027-01-15T08:00:00Z"
        mark = f'{{"uid":"{uid}","first":"{now}","latest":"{now}","turn":"{now}"}}'
        await world.annotate(0, **{EVICTING_ANNOTATION: mark})
        await asyncio.sleep(30)
        assert await world.published("a") == {0: 2, 1: 2}


async def test_a_pod_that_is_drained_by_a_person_too_stays_drained_after_the_eviction():
    world = await two_pods()
    async with world.serving(), adapters(world, 0, 1) as known:
        await world.vpod("a", 4)
        await until(served(known, KEY, {0: 2, 1: 2}))
        with pytest.raises(TooManyRequests):
            await world.cluster.evict(NS, "dispatcher-0")
        await world.annotate(0, **{UNSCHEDULABLE_ANNOTATION: "true"})
        await ledgers(world, {0: 0, 1: 4})
        await asyncio.sleep(FRESH_S + 65)
        assert await world.annotation(0, EVICTING_ANNOTATION) is None
        await world.vpod("b", 1)
        await until(served(known, "tenant/b", {1: 1}))
        assert await world.ledger(0) == {}
    assert known.gaps == []


async def test_evictions_of_several_pods_wait_for_each_other_and_end_by_themselves():
    world = await a_world(0, 1, 2, handoff={"maxUnavailable": {"pool": 1}})
    await with_webhook(world)
    async with world.serving(), adapters(world, 0, 1, 2) as known:
        for name in "abc":
            await world.vpod(name, 3)
        await until(served(known, KEY, {0: 1, 1: 1, 2: 1}))
        first = asyncio.create_task(evict(world, 0))
        await asyncio.sleep(0.01)
        second = asyncio.create_task(evict(world, 1))
        await first
        await asyncio.sleep(20)
        assert not second.done()
        assert "turn" not in (await world.annotation(1, EVICTING_ANNOTATION) or "turn")
        assert known.serving[1]
        await world.remove_pod(0)
        await world.pod(0, {}, node="node-0")
        async with adapters_beside(known, 0):
            refusals = await second
        assert "waits for its turn" in refusals[0]
        assert len(refusals) > 4
    assert known.gaps == []


async def test_an_eviction_of_a_former_pod_of_the_name_is_left_to_the_api_server():
    world = await a_world(0, 1)
    await with_webhook(world)
    await world.vpod("a", 2)
    async with world.serving(), adapters(world, 0, 1) as known:
        await until(served(known, KEY, {0: 1, 1: 1}))
        with pytest.raises(Conflict):
            await world.cluster.evict(NS, "dispatcher-0", preconditions=Preconditions("former", ""))
        assert await world.annotation(0, EVICTING_ANNOTATION) is None
        uid = await world.uid(0)
        with pytest.raises(TooManyRequests):
            await world.cluster.evict(NS, "dispatcher-0", preconditions=Preconditions(uid, ""))
        assert await world.annotation(0, EVICTING_ANNOTATION) is not None


async def test_while_a_turn_may_be_stored_that_is_not_seen_yet_no_other_pod_gets_one():
    """The watch is behind, so that the turn, whose answer was lost, is written again."""
    world = await a_world(0, 1, replicas=2, handoff={"maxUnavailable": {"pool": 2}})
    now_s = world.cluster.server.now()
    waits = [Eviction(now_s + ordinal, now_s + ordinal) for ordinal in (0, 1)]
    for ordinal, mark in enumerate(waits):
        await world.ready(ordinal)
        text = encode_eviction(mark, await world.uid(ordinal))
        await world.annotate(ordinal, **{EVICTING_ANNOTATION: text})
    await world.sync()
    has_turn = encode_eviction(waits[0]._replace(turn_s=now_s), await world.uid(0))
    await world.annotate(0, **{EVICTING_ANNOTATION: has_turn})
    marks = EvictionMarks(world.caches, asyncio.get_running_loop().time)
    state = world.caches.state.pool(POOL)

    async def give() -> bool:
        return await give_turns(world.caches, lambda _pool: world.api, state, now_s, marks)

    assert not await give()
    assert [await gets_turn(world, ordinal) for ordinal in (0, 1)] == [True, False]
    await world.sync("pods")
    assert await give()
    assert await gets_turn(world, 1)


async def gets_turn(world: World, ordinal: int) -> bool:
    mark = eviction_of(pod_from(await world.pod_object(ordinal)))
    return mark is not None and not mark.waits
