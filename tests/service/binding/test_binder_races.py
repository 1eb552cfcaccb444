"""Binds at the same time as something else: another bind of the pod, a change of it, a decision
about its vpods.
"""

import asyncio
from dataclasses import replace

import pytest

from extender.model.objects import AdapterPod
from extender.model.reasons import ConflictReason
from extender.service.binding.binder import BindRefused
from extender.service.binding.pod_binder import PodBinder
from tests.support.builders import NS, POOL
from tests.support.placing import place
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


async def test_a_pod_that_is_bound_by_the_cache_alone_is_not_taken_for_bound():
    """Etcd was restored, and this replica has not seen it yet. kube-scheduler would have believed
    it, and never have asked again (seed 108015178).
    """
    world = await World.create()
    uid = await world.pod(0)
    await world.sync()
    pod = world.caches.pods.latest(f"{NS}/dispatcher-0")
    assert pod is not None
    world.caches.pods.update(replace(pod, node="node-0", resource_version="999999"))
    with pytest.raises(BindRefused):
        await world.pod_binder().bind(NS, "dispatcher-0", uid, "node-0")
    assert await world.node_of(0) == ""


async def test_a_pod_that_is_on_the_node_is_read_again_and_not_written():
    world = await World.create()
    uid = await world.pod(0)
    await world.sync()
    await world.pod_binder().bind(NS, "dispatcher-0", uid, "node-0")
    await world.sync()
    reads = world.api.count("get", "pods")
    await world.pod_binder().bind(NS, "dispatcher-0", uid, "node-0")
    assert (world.api.count("bind", "pods"), world.api.count("get", "pods")) == (1, reads + 1)


async def test_a_pod_that_changes_while_it_is_bound_leaves_what_was_planned_for_it_to_nobody_else():
    world = await World.create()
    await world.pod(0)
    await world.pods(1)
    await world.vpod("a", 1)
    await world.sync()
    pod = world.caches.pods.get(f"{NS}/dispatcher-0")
    assert pod is not None
    assert world.binder().assume(pod, "node-0").bind_ledger.added == {"tenant/a": 1}
    await world.annotate(0, noise="x")
    await world.sync("pods")
    pool = world.caches.state.pool(POOL)
    assert place(pool, pool.vpods["tenant/a"]).target == {"dispatcher-0": 1}


async def test_a_pod_whose_past_is_not_known_is_not_bound():
    world = await World.create()
    uid = await world.pod(0)
    await world.sync()

    async def never(_pod: AdapterPod) -> bool:
        return False

    binder = PodBinder(world.api, world.caches, world.binder(), knows_past=never)
    with pytest.raises(BindRefused) as refused:
        await binder.bind(NS, "dispatcher-0", uid, "node-0")
    assert refused.value.reason is ConflictReason.CATCHING_UP
    assert await world.node_of(0) == ""


@pytest.mark.parametrize(("past_known", "there"), [(True, {"node-0": 1}), (False, {})])
async def test_a_pod_whose_bind_still_waits_for_its_past_counts_where_it_goes(
    past_known: bool, there: dict[str, int]
):
    world = await World.create()
    uid = await world.pod(0)
    await world.sync()
    pool = world.caches.state.pool(POOL)
    waits, go_on = asyncio.Event(), asyncio.Event()

    async def read_past(_pod: AdapterPod) -> bool:
        waits.set()
        await go_on.wait()
        return past_known

    binder = PodBinder(world.api, world.caches, world.binder(), knows_past=read_past)
    bind = asyncio.create_task(binder.bind(NS, "dispatcher-0", uid, "node-0"))
    await waits.wait()
    assert pool.bound_pods.on_node == {"node-0": 1}
    go_on.set()
    await asyncio.gather(bind, return_exceptions=True)
    assert pool.bound_pods.on_node == there


async def test_a_pod_whose_bind_waits_counts_where_it_goes_also_after_an_event_of_it():
    world = await World.create()
    await world.pod(0)
    await world.sync()
    pool, node = world.caches.state.pool(POOL), world.caches.state.nodes["node-0"]
    with pool.expecting("dispatcher-0", node):
        await world.annotate(0, noise="x")
        await world.sync("pods")
        assert pool.bound_pods.on_node == {"node-0": 1}
    assert pool.bound_pods.on_node == {}
