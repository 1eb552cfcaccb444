"""Binds that run at once: of the same pod, and of two pods for the same pending vreplicas."""

import asyncio

import pytest

from tests.support.builders import NS
from tests.support.service import World

pytestmark = pytest.mark.looptime


async def test_a_bind_that_is_asked_again_while_it_is_written_is_not_written_twice():
    world = await World.create()
    uid = await world.pod(0)
    await world.sync()
    binder = world.pod_binder()
    pause = world.api.pause("bind", "pods")
    asked = [asyncio.create_task(binder.bind(NS, "dispatcher-0", uid, "node-0")) for _ in range(2)]
    await pause.reached.wait()
    await asyncio.sleep(1)
    assert world.api.count("bind", "pods") == 1
    pause.go_on.set()
    await asyncio.gather(*asked)
    assert (world.api.count("bind", "pods"), await world.node_of(0)) == (1, "node-0")


async def test_a_pod_that_changes_while_it_is_bound_leaves_what_was_planned_for_it_to_nobody_else():
    world = await World.create()
    await world.pod(0)
    await world.pod(1)
    await world.vpod("a", 1)
    await world.sync()
    binder, pods = world.binder(), world.caches.pods
    first = pods.get(f"{NS}/dispatcher-0")
    assert first is not None
    assert binder.assume(first, "node-0").carry.planned == {"tenant/a": 1}
    await world.annotate(0, noise="x")
    await world.sync("pods")
    second = pods.get(f"{NS}/dispatcher-1")
    assert second is not None
    assert binder.assume(second, "node-1").carry.planned == {}
