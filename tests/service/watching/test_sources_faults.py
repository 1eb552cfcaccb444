"""Foreign kinds while answers are lost, leaders change and watches lag: nothing lost, doubled or
moved.
"""

import asyncio
import random

import pytest

from extender.kube.api import PODS
from extender.service.watching import foreign_kind
from tests.service.watching.test_sources import (
    GROUP_KEY,
    GROUPS,
    PRESET,
    a_world,
    another_pool,
    group,
    patch_pool,
    placed,
    placed_is,
    want,
)
from tests.support.builders import NS, POOL
from tests.support.service import TENANT, World, lost, until

pytestmark = pytest.mark.looptime


def a_key(name: str) -> str:
    return f"{TENANT}/{name}@{GROUP_KEY}"


async def check(world: World) -> None:
    """I1, and I2 for consumer groups."""
    await world.check()
    for obj in (await world.cluster.list_page(GROUPS)).items:
        for item in obj.get("status", {}).get("placements", []):
            held = await world.ledger(int(item["podName"].rpartition("-")[2]))
            assert held.get(a_key(obj["metadata"]["name"]), 0) >= item["vreplicas"], item


async def held_of(world: World, name: str) -> int:
    return sum([(await world.ledger(ordinal)).get(a_key(name), 0) for ordinal in range(3)])


@pytest.mark.parametrize("seed", range(6))
async def test_answers_lost_at_random_settle_with_nothing_lost_or_doubled(seed: int):
    # No kubelet makes these pods Ready, and a kind that cannot be listed takes longer than five
    # minutes.
    world = await a_world(maxPods=3, minPods=3, rescheduleAfterSeconds=None)
    await world.pods(0, 1, 2)
    rng = random.Random(seed)
    for _ in range(25):
        verb, what = rng.choice(
            [("patch", "pods"), ("patch", "consumergroups/status"), ("list", "consumergroups")]
        )
        world.api.fail(
            verb, what, **{rng.choice(["before", "after"]): lost()}, times=rng.randint(0, 2)
        )
    wanted = {f"g{index}": rng.randint(0, 6) for index in range(8)}
    async with world.serving():
        for name, replicas in wanted.items():
            await group(world, name, replicas)
            await asyncio.sleep(rng.random())
            await check(world)
        for name in rng.sample(sorted(wanted), 4):
            wanted[name] = rng.randint(0, 6)
            await want(world, wanted[name], name)
            await asyncio.sleep(rng.random())
            await check(world)
        gone = rng.choice(sorted(wanted))
        await world.cluster.delete(GROUPS, TENANT, gone)
        del wanted[gone]
        await asyncio.sleep(600)  # a kind that cannot be listed is asked for ever less often
        await check(world)
    for name, replicas in wanted.items():
        assert (await placed(world, name), await held_of(world, name)) == (replicas, replicas)
    assert await held_of(world, gone) == 0


async def test_a_new_leader_that_has_not_seen_the_last_changes_moves_and_releases_nothing():
    world = await a_world(rebalance={"movesPerPeriod": 0})
    await world.pods(0, 1, 2)
    async with world.serving(elect=True, seed=1) as first:
        await group(world, "earlier", 1)
        await placed_is(world, 1, "earlier")  # the first one leads, and has caught up
        async with world.serving(elect=True, seed=2) as second:
            stuck = world.api.pause("list", "consumergroups")
            second.informers.sources._running[GROUP_KEY].watch.read_again()
            await stuck.reached.wait()
            await group(world, "g", 5)
            await placed_is(world, 5, "g")
            before = [await world.ledger(ordinal) for ordinal in range(3)]
            first.leadership.electors[0].still_leading = lambda: False  # type: ignore[method-assign] # as one that hangs
            await second.informers.catch_up()
            assert GROUP_KEY not in second.caches.state.pool(POOL).watched_sources
            second.placer.activation.add_all(POOL)
            await asyncio.sleep(30)
            assert [await world.ledger(ordinal) for ordinal in range(3)] == before
            stuck.go_on.set()
            await asyncio.sleep(30)
            assert [await world.ledger(ordinal) for ordinal in range(3)] == before


async def test_a_pool_that_declares_a_kind_again_adopts_what_its_ledgers_have_of_it(monkeypatch):
    monkeypatch.setattr(foreign_kind, "SLICE_OBJECTS", 1)
    world = await a_world(sources=[], rebalance={"movesPerPeriod": 0})
    others = {**PRESET, "labelSelector": {"matchLabels": {"pool": "later"}}}
    await another_pool(world, "later", sources=[others])
    await world.pod(0, {a_key("g"): 3}, node="node-0")
    await world.pods(1, 2)
    for index in range(50):
        await group(world, f"a{index:04}", 0)
    await group(world, "g", 3, placements=[{"podName": "dispatcher-0", "vreplicas": 3}])
    async with world.serving() as service:
        await asyncio.sleep(5)
        assert GROUP_KEY in service.caches.state.pool(f"{NS}/later").watched_sources
        assert service.caches.vpods.get(a_key("g")) is None
        writes = world.api.count("patch", "pods")
        await patch_pool(world, {"sources": [PRESET]})
        await asyncio.sleep(30)
        assert await world.ledger(0) == {a_key("g"): 3}
        assert world.api.count("patch", "pods") == writes


async def test_a_pool_that_names_another_version_keeps_what_it_has_until_that_is_listed():
    place = {"group": GROUPS.group, "resource": GROUPS.plural, "kind": GROUPS.kind}
    paths = {"vreplicas": "spec.replicas", "placements": "status.placements"}
    world = await a_world(sources=[{**place, "version": "v1alpha1", "paths": paths}])
    await world.pods(0, 1, 2)
    await group(world, "g", 6)
    async with world.serving() as service:
        await placed_is(world, 6, "g")
        before = [await world.ledger(ordinal) for ordinal in range(3)]
        await patch_pool(world, {"sources": [{**place, "version": "v2", "paths": paths}]})
        await asyncio.sleep(100)
        assert [await world.ledger(ordinal) for ordinal in range(3)] == before
        assert service.caches.vpods.get(a_key("g")) is not None
        await world.cluster.delete(GROUPS, TENANT, "g")
        await patch_pool(world, {"sources": [{**place, "version": "v1alpha1", "paths": paths}]})
        await until(lambda: held_of(world, "g"), 0, timeout_s=30)


async def test_of_two_that_believe_to_lead_none_overcommits_a_pod():
    world = await a_world(maxPods=3, minPods=3)
    await world.pods(0, 1, 2)
    async with world.serving(seed=1), world.serving(seed=2):
        for index in range(12):
            await group(world, f"g{index}", 6)
        for _ in range(20):
            await asyncio.sleep(0.5)
            await check(world)
    assert sum([sum((await world.ledger(ordinal)).values()) for ordinal in range(3)]) == 60


async def test_a_status_that_its_own_controller_writes_all_the_time_is_published_all_the_same():
    world = await a_world()
    await world.pods(0, 1, 2)
    await group(world, "g", 6)

    async def heartbeat() -> None:
        while True:
            obj = await world.cluster.get(GROUPS, TENANT, "g")
            obj.setdefault("status", {})["conditions"] = [
                {"type": "Ready", "n": random.Random(1).random()}
            ]
            await world.cluster.update(GROUPS, TENANT, "g", obj, subresource="status")
            await asyncio.sleep(0.01)

    async with world.serving():
        task = asyncio.create_task(heartbeat())
        await placed_is(world, 6, "g")
        await want(world, 2, "g")
        await placed_is(world, 2, "g")
        task.cancel()
        await asyncio.wait({task})


async def test_what_only_ledgers_know_of_callers_keeps_its_pods_and_their_room():
    world = await a_world(sources=[])
    for ordinal in range(3):
        await world.pod(ordinal, {"tenant/a@broker.x.dev": 6}, node=f"node-{ordinal}")
    async with world.serving():
        await world.vpod("v", 50)
        await asyncio.sleep(600)
        held = [await world.ledger(ordinal) for ordinal in range(3)]
        assert [ledger["tenant/a@broker.x.dev"] for ledger in held] == [6, 6, 6]
        assert await world.replicas() > 3  # 18 + 50 slots do not fit on three pods
        await world.set_vreplicas("v", 0)
        await asyncio.sleep(1200)
        assert await world.replicas() == 3
        assert [await world.ledger(ordinal) for ordinal in range(3)] == [
            {"tenant/a@broker.x.dev": 6}
        ] * 3


async def test_a_group_that_is_deleted_and_created_again_under_its_name_is_a_new_one():
    world = await a_world()
    await world.pods(0, 1, 2)
    await group(world, "g", 6)
    async with world.serving():
        await placed_is(world, 6, "g")
        await world.cluster.delete(GROUPS, TENANT, "g")
        await group(world, "g", 2)
        await placed_is(world, 2, "g")
        await until(lambda: held_of(world, "g"), 2, timeout_s=30)
        await check(world)


async def test_a_pod_that_is_lost_comes_back_with_what_groups_publish_on_it():
    world = await a_world(sources=[PRESET])
    await world.pods(0, 1, 2)
    await group(world, "g", 6)
    async with world.serving() as service, world.adapters(service):
        await placed_is(world, 6, "g")
        before = await world.ledger(1)
        uid = await world.uid(1)
        await world.cluster.delete(PODS, NS, "dispatcher-1", grace_period_s=0)

        async def back() -> bool:
            pods = {p["metadata"]["name"]: p for p in (await world.cluster.list_page(PODS)).items}
            pod = pods.get("dispatcher-1")
            return (
                pod is not None
                and pod["metadata"]["uid"] != uid
                and bool(pod["spec"].get("nodeName"))
            )

        await until(back, timeout_s=30)
        assert await world.ledger(1) == before
        await check(world)
