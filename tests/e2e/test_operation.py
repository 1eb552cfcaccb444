"""A day in operation: tenants come and go, adapters are upgraded, pods and nodes are drained, a
cluster is full.

Each scenario is held to the invariants over its whole history (``Watcher``): no pod over its slots,
nothing lost, and no vreplica moved but for the reasons that the scenario names. Somewhere in the
middle the service is killed.
"""

import asyncio
import random
from pathlib import Path
from typing import Any, Final

import pytest

from extender.kube.api import PODS
from extender.model.moves import MoveReason
from extender.model.objects import split_key
from tests.e2e.backend import Backend
from tests.e2e.operations import (
    cordon,
    deletions,
    drain_node,
    emptied,
    evict,
    ledgers,
    mark_unschedulable,
    on_nodes,
    placed,
    published,
    remove_vpods,
    rolled,
    seen,
    told,
    upgrade,
)
from tests.e2e.scenario import POOL, QUICK_ELECTION, SLOTS_PER_POD, Setup, System

SEED: Final = 4
QUICK: Final = Setup(election=QUICK_ELECTION)
BRISK: Final[dict[str, Any]] = {
    "scaleDownPeriodSeconds": 1,
    "rebalance": {"movesPerPeriod": 200, "cooldownSeconds": 0},
}
"""Of a pool: looks every second whether fewer pods are enough, and moves what it has to."""


@pytest.mark.long
async def test_a_pool_grows_with_its_busy_tenants_and_shrinks_to_its_floor_when_they_leave(
    backend: Backend, tmp_path: Path
):
    rng = random.Random(SEED)
    async with System(backend, tmp_path, QUICK) as system:
        system.watcher.may_move = frozenset({MoveReason.COMPACTION})
        await backend.add_nodes(6)
        namespace = await system.pool(minPods=1, **BRISK)
        tenant = await backend.namespace("tenant")
        for wave in range(3):
            await system.vpods(10, rng.randrange(4, 10), tenant=tenant, prefix=f"wave{wave}")
            for _ in range(4):
                await system.want(tenant, f"wave{wave}-{rng.randrange(10)}", rng.randrange(1, 16))
            if wave == 1:
                await system.restart()
        busy = await _no_larger_than_needed(system)
        for wave in range(3):
            names = [f"wave{wave}-{index}" for index in range(10)]
            await remove_vpods(system, tenant, names[:5])
            await asyncio.gather(
                *(system.want(tenant, name, rng.randrange(1, 4)) for name in names[5:])
            )
        await seen(lambda: len(deletions(system)) > 0, "the pool shrinks")
        await system.restart()
        idle = await _no_larger_than_needed(system)
        assert 1 < idle < busy
        await remove_vpods(
            system, tenant, [vpod.name for vpod in (await system.all_vpods()).values()]
        )
        (last,) = await system.settled(pods=1)
        assert (last.name, dict(last.ledger)) == (f"{POOL}-0", {})
        await system.event(namespace, POOL, "ScaledDown")
        assert {move.reason for move in await system.watcher.moves()} == {MoveReason.COMPACTION}


async def _no_larger_than_needed(system: System) -> int:
    """Settled on as many pods as the slots need (vreplicas of one slot fill every pod); the number
    of pods.
    """
    wanted = sum(vpod.vreplicas for vpod in (await system.all_vpods()).values())
    return len(await system.settled(pods=max(1, -(-wanted // SLOTS_PER_POD))))


async def test_a_rolling_upgrade_replaces_every_pod_and_moves_nothing(
    backend: Backend, tmp_path: Path
):
    async with System(backend, tmp_path, QUICK) as system:
        await backend.add_nodes(6)
        await system.pool()
        tenant = await system.vpods(9, 8)
        before = await system.settled(pods=4)
        standing = published(system, tenant)
        await upgrade(system, "registry.invalid/adapter:2")
        await seen(lambda: len(deletions(system)) >= 2, "the second pod is replaced")
        await system.restart()
        late = await system.vpods(1, 8)  # in the middle, into what is free
        after_roll = await rolled(system, "registry.invalid/adapter:2", 4)
        after = await system.settled(pods=4)
        assert {obj["metadata"]["uid"] for obj in after_roll} & {pod.uid for pod in before} == set()
        # kwok deletes by name, now and then twice: the second time it hits the pod that has taken
        # the name.
        assert list(dict.fromkeys(deletions(system))) == [
            f"{POOL}-{ordinal}" for ordinal in (3, 2, 1, 0)
        ]
        assert published(system, tenant) == standing
        assert {
            name: {key: share for key, share in ledger.items() if not key.startswith(f"{late}/")}
            for name, ledger in ledgers(after).items()
        } == ledgers(before)


async def test_a_pod_marked_unschedulable_is_emptied_for_that_reason_and_nothing_returns(
    backend: Backend, tmp_path: Path
):
    async with System(backend, tmp_path, QUICK) as system:
        system.watcher.may_move = frozenset({MoveReason.DRAIN})
        await backend.add_nodes(6)
        await system.pool()
        await system.vpods(6, 8)
        held = {adapter.name: adapter for adapter in await system.settled(pods=3)}[f"{POOL}-1"]
        assert held.ledger
        await mark_unschedulable(system, held.name)
        # 48 slots do not fit into the two pods that are left: what has no room waits where it is.
        await seen(
            lambda: len(system.watcher.of(PODS, f"{system.namespace}/{POOL}-3")) > 0,
            "a pod is added",
        )
        await system.restart()
        await emptied(system, [held.name])
        await system.settled(pods=4)
        moves = await system.watcher.moves()
        assert {move.vpod for move in moves} == set(held.ledger)
        assert {name for move in moves for name in move.left} == {held.name}
        # Events of the service that was killed may be lost; what a status records is not.
        await system.event(*split_key(moves[-1].vpod), "Moved", f"from {held.name} ")
        standing = published(system)
        await mark_unschedulable(system, held.name, unschedulable=False)
        await evict(system, held.name)
        await system.came_back(held)
        await system.settled(pods=4)
        assert published(system) == standing
        new = await system.vpods(1, 8)  # and it is used again
        await system.settled(pods=4)
        vpod = (await system.all_vpods())[f"{new}/source-0"]
        assert held.name in vpod.placements


async def test_a_cordoned_node_keeps_what_it_has_and_a_drained_one_gives_its_pods_to_others(
    backend: Backend, tmp_path: Path
):
    async with System(backend, tmp_path, QUICK) as system:
        await backend.add_nodes(4)
        await system.pool()
        tenant = await system.vpods(9, 8)
        before = await system.settled(pods=4)
        node = before[0].node
        there = on_nodes(before, [node])
        standing = published(system, tenant)
        await cordon(system, node)
        new = await system.vpods(1, 8)
        await system.settled()
        vpod = (await system.all_vpods())[f"{new}/source-0"]
        assert not there & set(vpod.placements)
        assert published(system, tenant) == standing
        draining = asyncio.create_task(drain_node(system, node))
        await seen(lambda: len(deletions(system)) > 0, "the node is being drained")
        await system.restart()
        await draining
        after = await system.settled()
        assert not on_nodes(after, [node])
        assert published(system, tenant) == standing
        await cordon(system, node, unschedulable=False)
        await system.vpods(4, 10, tenant=new, prefix="later")
        await system.settled()
        assert published(system, tenant) == standing


async def test_while_the_cluster_has_no_room_for_a_pool_its_tenants_are_told_and_all_else_goes_on(
    backend: Backend, tmp_path: Path
):
    async with System(backend, tmp_path, QUICK) as system:
        await backend.add_nodes(3, cpu=2)
        namespace = await system.pool(cpu="4")
        await system.pool("receiver", cpu="100m")
        waiting = await system.vpods(6, 8)
        await told(system, waiting, "False", "InsufficientSlots")
        await system.event(waiting, "source-0", "FailedScheduling")
        await system.event(namespace, f"{POOL}-0", "FailedScheduling", "Insufficient cpu")
        going_on = await system.vpods(5, 8, pool="receiver")
        await placed(system, going_on)
        await system.restart()
        await system.want(going_on, "source-0", 12)
        await system.vpods(1, 8, tenant=going_on, prefix="late", pool="receiver")
        await placed(system, going_on)
        await told(system, waiting, "False", "InsufficientSlots")
        # Pods that wait count as coming: more of them would help nobody.
        assert len(await system.adapters(POOL)) == 3
        standing = published(system, going_on)
        await backend.add_nodes(3, cpu=5)
        adapters = await system.settled(pods=3 + 3)
        assert len({adapter.node for adapter in adapters if adapter.name.startswith(POOL)}) == 3
        await told(system, waiting, "True", "AllPlaced")
        assert published(system, going_on) == standing
