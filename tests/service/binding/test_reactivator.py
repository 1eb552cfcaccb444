"""Refused pods come back to kube-scheduler when what refused them has changed, and only then."""

import asyncio

import pytest

from extender.kube.api import ADAPTERPOOLS, NODES, PODS, ApiError, Binding, PatchType
from extender.model import names
from extender.model.decode import pod_from
from extender.model.objects import AdapterPod
from extender.service.binding.reactivator import REFUSED_PODS_MAX, Reactivator
from tests.support.builders import NS, a_pod
from tests.support.service import World, schedule, until

pytestmark = pytest.mark.looptime
ALL = ["node-0", "node-1", "node-2"]


def retried(world: World, ordinal: int = 0):
    return lambda: world.annotation(ordinal, names.RETRY_ANNOTATION)


async def touch(world: World, node: str, value: int) -> None:
    """A heartbeat, as kubelets write all the time."""
    patch = {"metadata": {"annotations": {"example.dev/heartbeat": str(value)}}}
    await world.cluster.patch(NODES, "", node, patch, patch_type=PatchType.MERGE)


async def test_a_pod_refused_for_want_of_its_pool_is_patched_when_the_pool_comes():
    world = await World.create()
    await world.cluster.delete(ADAPTERPOOLS, NS, "dispatcher")
    await world.pod(0)
    async with world.serving() as service:
        assert await schedule(service, await world.pod_object(0), ALL) == "PoolNotFound"
        await asyncio.sleep(5)
        assert not await retried(world)()
        await world.pool()
        await until(retried(world), timeout_s=1)
        assert await schedule(service, await world.pod_object(0), ALL) == ""


async def test_a_pod_refused_for_want_of_node_slots_is_patched_when_a_pod_leaves():
    world = await World.create(nodes=1, node_slots=20)
    await world.pod(0, {}, node="node-0")
    await world.pod(1)
    async with world.serving() as service:
        assert await schedule(service, await world.pod_object(1), ["node-0"]) == "NodeSlotsExceeded"
        await asyncio.sleep(40)
        assert not await retried(world, 1)()
        await world.remove_pod(0)
        await until(retried(world, 1), timeout_s=1)


async def test_a_pod_that_waits_for_its_zone_is_patched_when_its_vreplicas_have_left_it():
    world = await World.create(replicas=2, profile="ha")
    await world.pod(0, {"tenant/a": 1}, node="node-0")
    await world.pod(1)
    await world.vpod("a", 2, {0: 1, 1: 1})
    async with world.serving() as service:
        assert await schedule(service, await world.pod_object(1), ["node-0"]) == "ZoneSkewExceeded"
        await asyncio.sleep(70)
        assert not await retried(world, 1)()
        await world.set_vreplicas("a", 1)
        await until(retried(world, 1), timeout_s=1)
        assert await schedule(service, await world.pod_object(1), ["node-0"]) == ""


async def test_a_pod_that_waits_for_its_zone_is_patched_when_a_node_gets_another_zone():
    """A cloud's controller labels a node some time after it has registered."""
    world = await World.create(replicas=2, profile="ha")
    await world.node("late-0")
    await world.pod(0, {"tenant/a": 1}, node="node-0")
    await world.pod(1)
    await world.vpod("a", 2, {0: 1, 1: 1})
    async with world.serving() as service:
        assert await schedule(service, await world.pod_object(1), ["late-0"]) == "ZoneSkewExceeded"
        patch = {"metadata": {"labels": {names.ZONE_LABEL: "z1"}}}
        await world.cluster.patch(NODES, "", "late-0", patch, patch_type=PatchType.MERGE)
        await until(retried(world, 1), timeout_s=5)
        assert await schedule(service, await world.pod_object(1), ["late-0"]) == ""


async def test_a_pod_is_patched_once_for_one_change():
    world = await World.create(nodes=1, node_slots=20)
    await world.pod(0, {}, node="node-0")
    await world.pod(1)
    async with world.serving() as service:
        await schedule(service, await world.pod_object(1), ["node-0"])
        await world.remove_pod(0)
        await asyncio.sleep(120)
    assert world.api.count("patch", "pods", "dispatcher-1") == 1


async def test_a_pod_that_filter_refuses_for_a_reason_unseen_here_is_no_hot_loop():
    """kube-scheduler's view of a node may lag behind ours for long, and nodes' heartbeats never
    end.
    """
    world = await World.create(nodes=1, node_slots=20)
    await world.pod(0)
    patched: list[float] = []
    async with world.serving() as service:
        for beat in range(600):
            pod = await world.pod_object(0)
            if len(patched) < world.api.count("patch", "pods") or not beat:
                patched.append(asyncio.get_running_loop().time())
                service.reactivator.note(pod_from(pod), frozenset({"node-0"}))
            await touch(world, "node-0", beat)
            await asyncio.sleep(1)
    assert len(patched) < 30, "in ten minutes"


@pytest.mark.parametrize("after_s", [0.81, 0.9, 0.999])
async def test_a_pod_whose_time_comes_just_after_a_look_is_patched_at_its_time(after_s: float):
    """It was forgotten until something else changed, or 30 s: the look after the second refusal is
    within 0.2 s of its time.
    """
    world = await World.create()
    await world.pod(0)
    await world.sync()
    reactivator = Reactivator(world.api, world.caches, metrics=world.metrics, leads=lambda _: True)
    running = asyncio.create_task(reactivator.run())
    await asyncio.sleep(1)
    for _ in range(2):
        reactivator.note(pod_from(await world.pod_object(0)), frozenset({"node-0"}))
        reactivator._wake.set()
        await asyncio.sleep(after_s)
    await asyncio.sleep(2)
    assert world.api.count("patch", "pods", "dispatcher-0") == 2
    running.cancel()
    await asyncio.wait({running})


async def test_a_patch_that_fails_is_tried_again():
    world = await World.create()
    await world.cluster.delete(ADAPTERPOOLS, NS, "dispatcher")
    await world.pod(0)
    world.api.fail("patch", "pods", before=ApiError(500, "InternalError", "etcd"))
    async with world.serving() as service:
        await schedule(service, await world.pod_object(0), ALL)
        await world.pool()
        await until(retried(world), timeout_s=60)


async def test_a_pod_that_was_bound_or_deleted_meanwhile_is_forgotten():
    world = await World.create()
    await world.cluster.delete(ADAPTERPOOLS, NS, "dispatcher")
    await world.pod(0)
    await world.pod(1)
    async with world.serving() as service:
        for ordinal in (0, 1):
            await schedule(service, await world.pod_object(ordinal), ALL)
        await world.remove_pod(0)
        await world.cluster.bind(Binding(NS, "dispatcher-1", "node-0"))
        await world.pool()
        await asyncio.sleep(40)
        assert service.reactivator._refused == {}
        assert not await retried(world, 1)()


async def test_refusals_are_remembered_for_so_many_pods_only():
    world = await World.create()
    reactivator = Reactivator(world.api, world.caches, metrics=world.metrics, leads=lambda _: True)
    for index in range(REFUSED_PODS_MAX + 50):
        reactivator.note(a_pod(index), frozenset(ALL))
    assert len(reactivator._refused) == REFUSED_PODS_MAX
    assert "uid-0" not in reactivator._refused


async def test_pods_that_were_refused_on_the_same_nodes_share_their_names():
    """Found by review: names of 15,000 nodes for each of 1,000 pods took 1.6 GiB."""
    world = await World.create()
    reactivator = Reactivator(world.api, world.caches, metrics=world.metrics, leads=lambda _: True)
    for index in range(3):
        reactivator.note(a_pod(index), frozenset(map(str, range(100, 200))))
    assert len({id(refusal.nodes) for refusal in reactivator._refused.values()}) == 1


async def test_other_tasks_run_between_two_refused_pods():
    """Found by review: a look at 300 pods and 15,000 nodes stopped the event loop for 7 s."""
    world = await World.create()
    await world.cluster.delete(ADAPTERPOOLS, NS, "dispatcher")
    for ordinal in range(5):
        await world.pod(ordinal)
    await world.sync()
    reactivator = Reactivator(world.api, world.caches, metrics=world.metrics, leads=lambda _: True)
    for ordinal in range(5):
        reactivator.note(pod_from(await world.pod_object(ordinal)), frozenset({"node-0"}))
    looks = 0
    seen: list[int] = []

    def look_at_pod(key: str) -> AdapterPod | None:
        nonlocal looks
        looks += 1
        return get(key)

    get = world.caches.pods.get
    world.caches.pods.get = look_at_pod  # type: ignore[method-assign]
    running = asyncio.create_task(reactivator.run())
    while looks < 5:
        await asyncio.sleep(0)
        seen.append(looks)
    assert seen == sorted({*seen}), "one pod in each turn"
    running.cancel()
    await asyncio.wait({running})


async def test_a_pod_refused_while_the_watch_shows_its_predecessor_is_patched_when_it_is_shown():
    """Seed 314000352: it was forgotten, as if the predecessor had come after it, and waited for
    kube-scheduler's five minutes.
    """
    world = await World.create(nodes=1, node_slots=20)
    await world.pod(0, {}, node="node-0")
    await world.sync()
    reactivator = Reactivator(world.api, world.caches, metrics=world.metrics, leads=lambda _: True)
    running = asyncio.create_task(reactivator.run())
    await world.remove_pod(0)
    await world.pod(0)
    reactivator.note(pod_from(await world.pod_object(0)), frozenset({"node-0"}))
    await asyncio.sleep(70)
    assert not await retried(world)(), "for all that is known here, it is there and bound"
    await world.sync("pods")
    await until(retried(world), timeout_s=40)
    running.cancel()
    await asyncio.wait({running})


async def test_a_pod_that_was_replaced_before_the_watch_showed_it_is_forgotten():
    world = await World.create(nodes=1, node_slots=20)
    await world.pod(0, {}, node="node-0")
    await world.sync()
    reactivator = Reactivator(world.api, world.caches, metrics=world.metrics, leads=lambda _: True)
    running = asyncio.create_task(reactivator.run())
    reactivator.note(a_pod(0, node="", uid="never shown"), frozenset({"node-0"}))
    await world.remove_pod(0)
    await world.pod(0)
    await world.sync("pods")
    await asyncio.sleep(5)
    assert not reactivator._refused
    running.cancel()
    await asyncio.wait({running})


async def a_pod_without_room(world: World) -> None:
    """kube-scheduler has found no node for it, and our filter was not even asked."""
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available: 3 Insufficient cpu.",
    }
    await world.pod(0)
    await world.patch_status(PODS, NS, "dispatcher-0", conditions=[condition])


async def test_a_pod_that_kube_schedulers_own_plugins_refuse_is_not_patched():
    world = await World.create()
    async with world.serving():
        await asyncio.sleep(60)
        await a_pod_without_room(world)
        await world.node("node-9")
        await asyncio.sleep(60)
        assert not await retried(world)()


async def test_a_replica_that_takes_a_pool_over_patches_once_what_may_have_been_refused():
    """It was killed before it could patch; kube-scheduler would look at the pod five
    minutes later.
    """
    world = await World.create()
    await a_pod_without_room(world)
    await world.sync()
    leads = False
    reactivator = Reactivator(world.api, world.caches, metrics=world.metrics, leads=lambda _: leads)
    running = asyncio.create_task(reactivator.run())
    await asyncio.sleep(70)
    assert not await retried(world)()
    leads = True
    await until(retried(world), timeout_s=40)
    await asyncio.sleep(600)
    assert world.api.count("patch", "pods", "dispatcher-0") == 1
    running.cancel()
    await asyncio.wait({running})
