"""VPods and pools say which of their vreplicas are served: in time, once a change, and not for a
mere restart.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from extender.kube.api import EVENTS, NODES
from extender.model.objects import Condition
from extender.service.pools import availability
from extender.service.pools.availability import AvailabilityTracker
from extender.service.watching.caches import Caches
from tests.support.builders import POOL, a_node, a_pod, a_pool, a_stateful_set, a_vpod
from tests.support.service import World, a_world

pytestmark = pytest.mark.looptime


async def set_node_ready(world: World, name: str, *, ready: bool) -> None:
    await world.patch_status(NODES, "", name, conditions=[{"type": "Ready", "status": str(ready)}])


async def available(world: World, name: str = "a") -> tuple[object, ...]:
    """(readyVReplicas, the condition's status, its reason)."""
    found = (await world.conditions(name))["Available"]
    return (await world.status(name))["readyVReplicas"], found["status"], found["reason"]


async def told(world: World) -> list[tuple[str, str, str]]:
    """(type, reason, kind) of the events about availability."""
    page = await world.cluster.list_page(EVENTS)
    found = [event for event in page.items if event["reason"] in {"Available", "Unavailable"}]
    return [(event["type"], event["reason"], event["regarding"]["kind"]) for event in found]


async def on_pod_0(world: World) -> int:
    placements = (await world.status("a"))["placements"]
    return next(int(item["vreplicas"]) for item in placements if item["podName"] == "dispatcher-0")


def status_writes(world: World) -> int:
    return world.api.count("patch", "vpods/status", "a")


@asynccontextmanager
async def a_world_at_work(vreplicas: int = 6, **pool_spec: Any) -> AsyncIterator[World]:
    """Three pods that are Ready, and a vpod on them; all stays where it is unless ``pool_spec``
    says otherwise.
    """
    world = await a_world(0, 1, 2, **{"minPods": 3, "rescheduleAfterSeconds": None, **pool_spec})
    for ordinal in range(3):
        await world.ready(ordinal, ready=True)
    await world.vpod("a", vreplicas)
    async with world.serving():
        await asyncio.sleep(5)
        yield world


async def test_a_vpod_whose_pods_are_ready_is_available_with_its_first_status():
    async with a_world_at_work() as world:
        assert await available(world) == (6, "True", "AllReady")
        assert status_writes(world) == 1
        assert await told(world) == []


async def test_a_lost_node_is_told_after_ten_seconds_with_one_write_and_one_warning():
    async with a_world_at_work() as world:
        on_it = await on_pod_0(world)
        await set_node_ready(world, "node-0", ready=False)
        await asyncio.sleep(9)
        assert await available(world) == (6, "True", "AllReady")
        await asyncio.sleep(5)
        assert await available(world) == (6 - on_it, "False", "NodeLost")
        assert status_writes(world) == 2
        assert sorted(await told(world)) == [
            ("Warning", "Unavailable", "AdapterPool"),
            ("Warning", "Unavailable", "VPod"),
        ]
        await set_node_ready(world, "node-0", ready=True)
        await asyncio.sleep(5)
        assert await available(world) == (6, "True", "AllReady")
        assert status_writes(world) == 3
        assert ("Normal", "Available", "VPod") in await told(world)
        assert len(await told(world)) == 4


async def test_a_pod_that_is_ready_again_within_ten_seconds_changes_nothing():
    async with a_world_at_work() as world:
        for _ in range(3):
            await world.ready(0, ready=False)
            await asyncio.sleep(8)
            await world.ready(0, ready=True)
            await asyncio.sleep(2)
        await asyncio.sleep(20)
        assert await available(world) == (6, "True", "AllReady")
        assert status_writes(world) == 1
        assert await told(world) == []


async def test_a_pod_that_has_not_been_ready_yet_serves_nothing_and_is_no_warning():
    world = await a_world(0)
    await world.vpod("a", 3)
    async with world.serving():
        await asyncio.sleep(3)
        assert await available(world) == (0, "False", "PodNotReady")
        await world.ready(0, ready=True)
        await asyncio.sleep(3)
        assert await available(world) == (3, "True", "AllReady")
        assert [item for item in await told(world) if item[0] == "Warning"] == []


async def test_the_pool_counts_what_nobody_serves():
    async with a_world_at_work() as world:
        await world.ready(0, ready=False)
        await asyncio.sleep(15)
        status = await world.pool_status()
        on_it = await on_pod_0(world)
        assert (status["unservedVReplicas"], status["readyVReplicas"]) == (on_it, 6 - on_it)
        assert status["unavailableVPods"] == 1
        assert await world.pool_condition("Available") == ("False", "PodNotReady")


async def test_another_leader_tells_nothing_twice():
    async with a_world_at_work() as world:
        await set_node_ready(world, "node-0", ready=False)
        await asyncio.sleep(15)
        before, writes = await told(world), status_writes(world)
    async with world.serving(seed=2):
        await asyncio.sleep(30)
        assert await told(world) == before
        assert status_writes(world) == writes
        assert (await available(world))[1:] == ("False", "NodeLost")


async def notes(world: World, kind: str, reason: str = "Unavailable") -> list[str]:
    page = await world.cluster.list_page(EVENTS)
    found = [
        event
        for event in page.items
        if (event["reason"], event["regarding"]["kind"]) == (reason, kind)
    ]
    return [event["note"] for event in found]


async def test_each_further_loss_is_told_of_vpod_and_pool():
    async with a_world_at_work() as world:
        for ordinal in range(3):
            await world.ready(ordinal, ready=False)
            await asyncio.sleep(600)
        for kind in ("VPod", "AdapterPool"):
            served = [note.partition(" served")[0] for note in await notes(world, kind)]
            assert served == [
                "4 of 6 vreplicas are",
                "2 of 6 vreplicas are",
                "0 of 6 vreplicas are",
            ], kind
        assert await notes(world, "VPod", "Available") == []


async def test_a_reason_that_gets_worse_is_told_and_one_that_gets_better_is_not():
    async with a_world_at_work() as world:
        await world.ready(0, ready=False)
        await asyncio.sleep(60)
        await set_node_ready(world, "node-0", ready=False)
        await asyncio.sleep(60)
        await set_node_ready(world, "node-0", ready=True)
        await asyncio.sleep(60)
        for kind in ("VPod", "AdapterPool"):
            assert ["node node-0" in note for note in await notes(world, kind)] == [False, True], (
                kind
            )


async def test_a_pod_that_restarts_beside_one_that_is_lost_is_told_nowhere():
    async with a_world_at_work() as world:
        await world.ready(0, ready=False)
        await asyncio.sleep(60)
        writes = status_writes(world)
        for _ in range(3):
            await world.ready(1, ready=False)
            await asyncio.sleep(8)
            await world.ready(1, ready=True)
            await asyncio.sleep(30)
        assert status_writes(world) == writes
        assert len(await told(world)) == 2


async def test_fewer_that_are_wanted_are_no_loss():
    async with a_world_at_work() as world:
        await world.ready(0, ready=False)
        await asyncio.sleep(60)
        await world.set_vreplicas("a", 5)
        await asyncio.sleep(60)
        assert (await available(world))[0] == 3
        assert len(await told(world)) == 2


async def test_the_condition_names_the_pods_that_are_down_now():
    async with a_world_at_work() as world:
        await world.ready(0, ready=False)
        await asyncio.sleep(60)
        writes = status_writes(world)
        await world.ready(1, ready=False)
        await asyncio.sleep(10.5)
        await world.ready(0, ready=True)
        await asyncio.sleep(60)
        message = (await world.conditions())["Available"]["message"]
        assert "dispatcher-1" in message
        assert "dispatcher-0" not in message
        assert await available(world) == (4, "False", "PodNotReady")
        assert status_writes(world) - writes == 1
        await asyncio.sleep(600)
        assert status_writes(world) - writes == 1


async def test_a_pool_is_made_smaller_only_as_far_as_what_is_served_goes_on_being_served():
    async with a_world_at_work(minPods=0, scaleDownPeriodSeconds=20) as world:
        await world.ready(0, ready=False)
        served = 6 - await on_pod_0(world)
        for _ in range(120):
            await asyncio.sleep(5)
            assert (await world.status("a"))["readyVReplicas"] >= served
        assert await world.replicas() == 2
        await world.ready(0, ready=True)
        await asyncio.sleep(600)
        assert await world.replicas() == 1
        assert await available(world) == (6, "True", "AllReady")


async def test_a_pod_that_is_ready_while_the_first_status_is_being_written_is_told_in_seconds():
    """The write says that nobody serves yet; when the pod was looked at, it published nothing that
    could be outdated.
    """
    world = await a_world(0)
    async with world.serving():
        held = world.api.pause("patch", "vpods/status", "a")
        await world.vpod("a", 3)
        await held.reached.wait()
        await world.ready(0, ready=True)
        await asyncio.sleep(2)
        held.go_on.set()
        await asyncio.sleep(3)
        assert await available(world) == (3, "True", "AllReady")
        assert status_writes(world) == 2


async def test_a_lost_zone_feeds_the_queue_in_portions():
    caches, fed = Caches(), []
    caches.nodes.update(a_node())
    caches.stateful_sets.update(a_stateful_set(1))
    caches.pools.update(a_pool())
    caches.pods.update(a_pod(0, {}, ready=True, resource_version="1"))
    fine = (Condition("Available", "True", "AllReady"),)
    for number in range(600):
        vpod = a_vpod(
            f"v{number}", 1, {0: 1}, ready_vreplicas=1, conditions=fine, resource_version="1"
        )
        caches.vpods.update(vpod)
    clock = asyncio.get_running_loop().time
    tracker = AvailabilityTracker(
        caches, feed=lambda pool, key: fed.append((pool, key)), leads=lambda _: True, clock=clock
    )
    task = asyncio.create_task(tracker.run())
    await asyncio.sleep(1)
    caches.nodes.update(a_node(ready=False))
    await asyncio.sleep(11.5)
    assert len(fed) == availability.FEED_MAX
    await asyncio.sleep(5)
    assert len(set(fed)) == len(fed) == 600
    assert {pool for pool, _ in fed} == {POOL}
    task.cancel()
