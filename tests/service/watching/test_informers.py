"""What fills the caches, in which order, and what becomes of objects that cannot be read."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from extender.engine.state.ordinal_history import OrdinalHistory
from extender.kube.api import NODES, PODS, VPODS, Obj, WatchEvent, WatchEventType
from extender.model import decode
from extender.model.errors import InvalidObject
from extender.service.watching.caches import Caches
from extender.service.watching.informers import REACH_TIMEOUT_S, CacheSink, Informers
from tests.kube.fakes import give_list
from tests.support.builders import NS
from tests.support.service import TENANT, World, a_world
from tests.support.tasks import at_work

pytestmark = pytest.mark.looptime


@asynccontextmanager
async def informing(world: World) -> AsyncIterator[Informers]:
    informers = Informers(
        world.api, world.caches, rng=random.Random(1), ordinal_history=OrdinalHistory(lambda: 0.0)
    )
    async with at_work(informers.run()):
        yield informers


async def test_all_kinds_are_mirrored():
    world = await a_world(0, 1)
    await world.vpod("a", 3)
    async with informing(world) as informers:
        await informers.wait_synced()
        assert (len(world.caches.pods), len(world.caches.vpods), len(world.caches.nodes)) == (
            2,
            1,
            3,
        )
        assert (len(world.caches.pools), len(world.caches.stateful_sets)) == (1, 1)
        await world.vpod("b", 1)
        await world.remove_pod(0)
        await asyncio.sleep(0.1)
        assert (len(world.caches.pods), len(world.caches.vpods)) == (1, 2)


async def test_pods_without_our_label_are_not_even_listed():
    world = await World.create()
    await world.cluster.create(
        PODS,
        "default",
        {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}},
    )
    await world.pods(0)
    async with informing(world) as informers:
        await informers.wait_synced()
        assert [pod.name for pod in world.caches.pods.list()] == ["dispatcher-0"]


async def test_a_pod_that_loses_its_label_is_gone():
    world = await a_world(0)
    async with informing(world) as informers:
        await informers.wait_synced()
        pod = await world.pod_object(0)
        pod["metadata"]["labels"] = {}
        await world.cluster.update(PODS, NS, "dispatcher-0", pod)
        await asyncio.sleep(0.1)
        assert len(world.caches.pods) == 0


async def test_only_pools_of_the_named_namespaces_are_kept_with_what_belongs_to_them():
    world = await a_world(0)
    other = await world.beside("others", 0, 1)
    await world.vpod("ours")
    await other.vpod("theirs")
    world.caches = Caches(pool_namespaces={NS})
    async with informing(world) as informers:
        await informers.wait_synced()
        await world.pods(1)
        await other.pods(2)
        await other.vpod("theirs-too")
        await asyncio.sleep(0.1)
        assert [pod.key for pod in world.caches.pods.list()] == [
            f"{NS}/dispatcher-0",
            f"{NS}/dispatcher-1",
        ]
        assert [vpod.name for vpod in world.caches.vpods.list()] == ["ours"]
        assert [pool.namespace for pool in world.caches.pools.list()] == [NS]
        assert [owner.namespace for owner in world.caches.stateful_sets.list()] == [NS]
        assert list(world.caches.state.pools) == [f"{NS}/dispatcher"]


async def test_a_vpod_that_changes_to_a_pool_that_is_not_served_is_gone():
    world = await World.create()
    await world.beside("others")
    await world.vpod("a")
    world.caches = Caches(pool_namespaces={NS})
    async with informing(world) as informers:
        await informers.wait_synced()
        await world.point("a", at="others")
        await asyncio.sleep(0.1)
        assert len(world.caches.vpods) == 0
        await world.point("a", at=NS)
        await asyncio.sleep(0.1)
        assert [vpod.pool for vpod in world.caches.vpods.list()] == [f"{NS}/dispatcher"]


async def test_nobody_waits_for_the_watch_to_show_pods_that_are_not_kept():
    world = await a_world(0)
    await world.beside("others", 0)
    world.caches = Caches(pool_namespaces={NS})
    async with informing(world) as informers:
        await informers.wait_synced()
        began = asyncio.get_running_loop().time()
        await informers.catch_up()
        assert asyncio.get_running_loop().time() - began < REACH_TIMEOUT_S


async def test_an_unreadable_object_of_another_installation_is_nobodys_trouble(caplog):
    caches = Caches(pool_namespaces={"others"})
    sink = CacheSink(decode.vpod_from, caches.vpods, keeps=lambda _vpod: False)
    give_list(sink, [a_raw_vpod("a", 1, "many")], "1")
    for kind in (WatchEventType.ADDED, WatchEventType.MODIFIED, WatchEventType.DELETED):
        sink.apply(WatchEvent(kind, a_raw_vpod("a", 2, "many")))
    assert not caplog.records


async def test_vpods_are_listed_after_pods():
    world = await World.create()
    pause = world.api.pause("list", "pods")
    async with informing(world) as informers:
        await pause.reached.wait()
        await asyncio.sleep(1)
        assert world.api.count("list", "vpods") == 0
        assert "vpods" in informers.not_synced()
        pause.go_on.set()
        await informers.wait_synced()
        assert informers.not_synced() == []


async def test_a_gap_in_the_pods_watch_lists_vpods_again_too():
    world = await a_world(0)
    async with informing(world) as informers:
        await informers.wait_synced()
        listed = world.api.count("list", "vpods")
        informers._pods.request_relist()
        await asyncio.sleep(5)
        assert world.api.count("list", "vpods") > listed


def a_raw_vpod(name: str, version: int, vreplicas: object = 1) -> Obj:
    return {
        "metadata": {
            "namespace": TENANT,
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": str(version),
        },
        "spec": {"poolRef": {"namespace": NS, "name": "dispatcher"}, "vreplicas": vreplicas},
    }


async def test_an_object_of_a_list_that_cannot_be_read_stays_as_it_was_known():
    caches = Caches()
    sink = CacheSink(decode.vpod_from, caches.vpods)
    give_list(sink, [a_raw_vpod("a", 1, 4)], "1")
    give_list(sink, [a_raw_vpod("a", 2, "many"), a_raw_vpod("b", 2), a_raw_vpod("c", 2, -1)], "2")
    assert {vpod.name: vpod.vreplicas for vpod in caches.vpods.list()} == {"a": 4, "b": 1}


async def test_an_event_that_cannot_be_read_is_reported_and_changes_nothing():
    caches = Caches()
    sink = CacheSink(decode.vpod_from, caches.vpods)
    give_list(sink, [a_raw_vpod("a", 1, 4)], "1")
    with pytest.raises(InvalidObject):
        sink.apply(WatchEvent(WatchEventType.MODIFIED, a_raw_vpod("a", 2, "many")))
    assert [vpod.vreplicas for vpod in caches.vpods.list()] == [4]


async def test_an_object_is_gone_when_deleted_even_if_its_last_form_cannot_be_read():
    caches = Caches()
    sink = CacheSink(decode.vpod_from, caches.vpods)
    give_list(sink, [a_raw_vpod("a", 1, 4)], "1")
    sink.apply(WatchEvent(WatchEventType.DELETED, a_raw_vpod("a", 3, "many")))
    assert len(caches.vpods) == 0
    with pytest.raises(InvalidObject):
        sink.apply(WatchEvent(WatchEventType.DELETED, a_raw_vpod("never-known", 3, "many")))


async def test_what_is_missing_from_a_new_list_is_gone_and_its_handlers_are_told():
    caches = Caches()
    told: list[tuple[str, str]] = []
    caches.nodes.add_event_handler(
        lambda old, new: told.append((old.name if old else "", new.name if new else ""))
    )
    sink = CacheSink(decode.node_from, caches.nodes)
    give_list(sink, [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}], "1")
    give_list(sink, [{"metadata": {"name": "b"}}], "2")
    assert told == [("", "a"), ("", "b"), ("a", ""), ("b", "b")]


async def test_after_the_history_is_lost_everything_is_as_on_the_server():
    world = await a_world(0, 1, 2)
    async with informing(world) as informers:
        await informers.wait_synced()
        await world.remove_pod(1)
        await world.cluster.delete(NODES, "", "node-2")
        await world.vpod("a", 3, {0: 3})
        world.cluster.compact()
        await asyncio.sleep(60)
        fresh = World()
        fresh.cluster = world.cluster
        await fresh.sync()
        assert world.digest() == fresh.digest()
        assert world.api.count("list", VPODS.plural) >= 1
