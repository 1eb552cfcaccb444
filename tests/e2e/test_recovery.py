"""Disasters: pods, nodes and zones fail and return, objects are deleted and made again, and the
service dies in the middle.

Each scenario is held to the invariants over its whole history (``Watcher``): no pod over its slots,
nothing lost, and no vreplica moved: an ordinal comes back with what it held. Only a pool that says
rescheduleAfterSeconds moves what waits for too long.
"""

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from extender.engine.state.availability import condition_of
from extender.kube.api import ADAPTERPOOLS, NODES, STATEFULSETS, VPODS, Forbidden, Obj, PatchType
from extender.model.moves import MoveReason
from extender.model.names import ALLOW_DELETION_ANNOTATION, UNREACHABLE_TAINT
from extender.model.objects import VPod, split_key
from tests.e2e.backend import Backend, nodes_ready
from tests.e2e.objects import stateful_set
from tests.e2e.operations import (
    delete_pod,
    deletions,
    emptied,
    evict,
    fail_nodes,
    fail_pod,
    ledgers,
    on_nodes,
    out_of_service,
    placed,
    published,
    remove_vpods,
    seen,
    terminating,
    told,
    without_pods,
)
from tests.e2e.scenario import POOL, QUICK_ELECTION, Setup, System, adapter_pool
from tests.e2e.waiting import NotYet

SEED: Final = 4
QUICK: Final = Setup(election=QUICK_ELECTION)
ZONES: Final = 3
GARBAGE_COLLECTED_S: Final = 45.0
"""Kubernetes looks for pods to remove by force every 20 s."""
SOON_EVICTED: Final = {
    "key": UNREACHABLE_TAINT,
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": 1,
}
"""A toleration: the pod is deleted when its node cannot be reached for a second, not for five
minutes.
"""


async def test_pods_that_fail_are_evicted_or_are_deleted_come_back_with_what_they_held(
    backend: Backend, tmp_path: Path
):
    async with System(backend, tmp_path, QUICK) as system:
        await backend.add_nodes(6)
        await system.pool()
        await system.vpods(12, 8)
        before = await system.settled(pods=5)
        standing = published(system)
        await fail_pod(system, f"{POOL}-0")
        await evict(system, f"{POOL}-1")
        await delete_pod(system, f"{POOL}-2")
        await delete_pod(system, f"{POOL}-3", grace_s=0)
        await seen(lambda: len(deletions(system)) > 1, "they are going")
        await system.restart()
        for adapter in before[:4]:
            await system.came_back(adapter)
        assert ledgers(await system.settled(pods=5)) == ledgers(before)
        assert published(system) == standing


async def test_a_lost_node_moves_nothing_and_what_it_ran_comes_back_elsewhere(
    backend: Backend, tmp_path: Path
):
    async with System(backend, tmp_path, QUICK) as system:
        await backend.add_nodes(4)
        await system.pool(pod_spec={"tolerations": [SOON_EVICTED]})
        tenant = await system.vpods(9, 8)
        before = await system.settled(pods=4)
        standing = published(system, tenant)
        node = before[0].node
        lost = on_nodes(before, [node])
        await fail_nodes(system, [node])
        await system.restart()
        # Its pods are to go, and no kubelet is there to end them. What is new goes to the other
        # pods.
        await terminating(system, lost)
        new = await system.vpods(2, 8)
        await placed(system, new)
        placements = [
            v.placements for v in (await system.all_vpods()).values() if v.namespace == new
        ]
        assert not lost & {name for there in placements for name in there}
        assert published(system, tenant) == standing
        # The machine does not return: its Node and, by force, its pods are deleted.
        await backend.remove_node(node)
        for name in sorted(lost):
            await delete_pod(system, name, grace_s=0)
        after = await system.settled()
        assert not on_nodes(after, [node])
        assert published(system, tenant) == standing


async def test_a_zone_that_fails_takes_its_share_of_any_vpod_of_an_ha_pool_and_returns(
    backend: Backend, tmp_path: Path
):
    rng = random.Random(SEED)
    async with System(backend, tmp_path, QUICK) as system:
        await backend.add_nodes(6, zones=ZONES)
        await system.pool(profile="ha", minPods=6)
        tenant = await backend.namespace("tenant")
        for index in range(10):
            await system.vpods(1, rng.randrange(1, 14), tenant=tenant, prefix=f"source{index}")
        before = await system.settled()
        zones = await _zones(system)
        for vpod in (await system.all_vpods()).values():
            node_of = {adapter.name: adapter.node for adapter in before}
            by_zone = Counter[str]()
            for name, count in vpod.placements.items():
                by_zone[zones[node_of[name]]] += count
            assert max(by_zone.values()) <= -(-vpod.vreplicas // ZONES) + 1, (
                f"{vpod.key}: {by_zone}"
            )
        standing = published(system)
        failing = [name for name, zone in zones.items() if zone == "zone-1"]
        down = on_nodes(before, failing)
        assert down
        await fail_nodes(system, failing)
        await system.restart()
        assert ledgers(await system.settled(down=down)) == ledgers(before)
        for name in failing:
            await backend.recover_node(name)
        await nodes_ready(backend.api, failing)
        assert ledgers(await system.settled()) == ledgers(before)
        assert published(system) == standing


async def _zones(system: System) -> dict[str, str]:
    """Node -> zone."""
    page = await system.backend.api.list_page(NODES)
    return {
        str(obj["metadata"]["name"]): str(obj["metadata"]["labels"]["topology.kubernetes.io/zone"])
        for obj in page.items
    }


async def test_where_the_pool_says_so_what_a_failed_node_holds_is_placed_elsewhere_for_good(
    backend: Backend, tmp_path: Path
):
    async with System(backend, tmp_path, QUICK) as system:
        system.watcher.may_move = frozenset({MoveReason.RESCHEDULE})
        await backend.add_nodes(4)
        await system.pool(rescheduleAfterSeconds=2)
        await system.vpods(9, 8)
        before = await system.settled(pods=4)
        node = before[0].node
        lost = on_nodes(before, [node])
        await fail_nodes(system, [node])
        await seen(
            lambda: any(_left(obj.object, lost) for obj in system.watcher.of(VPODS)),
            "the first is moved",
        )
        await system.restart()
        await emptied(system, lost)
        await system.settled(down=lost)
        moves = await system.watcher.moves()
        assert {name for move in moves for name in move.left} == lost
        standing = published(system)
        await backend.recover_node(node)
        await nodes_ready(backend.api, [node])
        await system.settled()
        assert published(system) == standing


async def test_a_node_lost_for_good_loses_its_shares_in_time_and_its_pods_when_out_of_service(
    backend: Backend, tmp_path: Path
):
    async with System(backend, tmp_path, QUICK) as system:
        system.watcher.may_move = frozenset({MoveReason.RESCHEDULE})
        await backend.add_nodes(4)
        await system.pool(rescheduleAfterSeconds=2, pod_spec={"tolerations": [SOON_EVICTED]})
        await system.vpods(9, 8)
        before = await system.settled(pods=4)
        node = before[0].node
        lost = on_nodes(before, [node])
        await fail_nodes(system, [node])
        # Nobody there confirms that the pods ended, so no others of their names come; what they
        # hold goes elsewhere.
        await terminating(system, lost)
        await emptied(system, lost)
        await until_available(system, "True")
        standing = published(system)
        await out_of_service(system, node)
        for adapter in before:
            if adapter.name in lost:
                await system.came_back(adapter, GARBAGE_COLLECTED_S)
        assert not on_nodes(await system.settled(), [node])
        assert published(system) == standing, "what has moved stays where it is"


def _left(vpod: Obj, pods: set[str]) -> bool:
    """Whether its status tells of a move away from one of those pods."""
    conditions = vpod.get("status", {}).get("conditions", [])
    told = [str(entry["message"]) for entry in conditions if entry["type"] == "Moved"]
    return any(f"from {name} " in message for name in pods for message in told)


async def test_a_pool_or_its_stateful_set_is_made_again_and_nothing_moves_that_has_its_ordinal(
    backend: Backend, tmp_path: Path
):
    async with System(backend, tmp_path, QUICK) as system:
        system.watcher.may_move = frozenset({MoveReason.ORDINAL_GONE})
        await backend.add_nodes(6)
        namespace = await system.pool()
        tenant = await system.vpods(9, 8)
        before = await system.settled(pods=4)
        standing = published(system, tenant)
        # The pool: its pods run on, its tenants are told.
        with pytest.raises(Forbidden, match="9 VPods use it"):
            await backend.api.delete(ADAPTERPOOLS, namespace, POOL)
        allowed = {"metadata": {"annotations": {ALLOW_DELETION_ANNOTATION: "true"}}}
        await backend.api.patch(ADAPTERPOOLS, namespace, POOL, allowed, patch_type=PatchType.MERGE)
        await backend.api.delete(ADAPTERPOOLS, namespace, POOL)
        await system.vpods(1, 8, tenant=tenant, prefix="late")
        await told(system, tenant, "False", "PoolNotFound")
        await system.restart()
        await backend.apply([adapter_pool(namespace)])
        await system.settled(pods=4)
        # The StatefulSet: its pods go with it, their ordinals come back.
        late = published(system, tenant)
        await backend.api.delete(STATEFULSETS, namespace, POOL)
        await seen(lambda: len(deletions(system)) > 0, "its pods go")
        await system.restart()
        await without_pods(system)
        await backend.apply([stateful_set(namespace, POOL, 4, pool=POOL)])
        after = await system.settled(pods=4)
        assert {adapter.uid for adapter in after} & {adapter.uid for adapter in before} == set()
        assert published(system, tenant) == late
        assert {
            key: number for key, number in late.items() if not key.startswith(f"{tenant}/late")
        } == standing


async def test_vpods_are_deleted_renamed_and_made_again_under_the_same_name_at_once(
    backend: Backend, tmp_path: Path
):
    async with System(backend, tmp_path, QUICK) as system:
        await backend.add_nodes(6)
        await system.pool()
        calm = await system.vpods(3, 8)
        tenant = await backend.namespace("tenant")
        for prefix in ("first", "second"):
            await system.vpods(6, 6, tenant=tenant, prefix=prefix)
        before = await system.settled(pods=5)
        standing = published(system, calm)
        await _change_tenants(system, tenant, "first")
        await system.settled(pods=5)
        changing = asyncio.create_task(_change_tenants(system, tenant, "second"))
        await system.restart()
        await changing
        after = await system.settled(pods=5)
        # That ledgers hold these vpods and no others is part of being settled; what they took was
        # free, or became so.
        assert {adapter.uid for adapter in after} == {adapter.uid for adapter in before}
        assert published(system, calm) == standing
        left = {
            name
            for key in await system.all_vpods()
            for space, name in [split_key(key)]
            if space == tenant
        }
        assert left == {f"{prefix}{suffix}" for prefix in ("first", "second") for suffix in _LEFT}


_LEFT: Final = ("-2", "-3", "-4-renamed", "-5-renamed")


async def _change_tenants(system: System, tenant: str, prefix: str) -> None:
    """Of six vpods two are deleted, two are made again under their names, with more to do, and two
    are renamed.
    """
    api = system.backend.api
    await remove_vpods(system, tenant, [f"{prefix}-{index}" for index in range(4)])
    again = [system.vpod(tenant, f"{prefix}-{index}", 8) for index in (2, 3)]
    # A new name is a new object: people make it first, and delete the old one then.
    renamed = [system.vpod(tenant, f"{prefix}-{index}-renamed", 6) for index in (4, 5)]
    await asyncio.gather(*(api.create(VPODS, tenant, obj) for obj in [*again, *renamed]))
    await remove_vpods(system, tenant, [f"{prefix}-{index}" for index in (4, 5)])


async def test_a_lost_node_is_told_on_the_vpods_and_their_pool_until_it_is_back(
    backend: Backend, tmp_path: Path
):
    async with System(backend, tmp_path, QUICK) as system:
        await backend.add_nodes(3)
        await system.pool()
        tenant = await system.vpods(6, 8)
        await system.settled()
        await until_available(system, "True")
        victim = str((await system.adapters())[0]["spec"]["nodeName"])
        try:
            await backend.fail_node(victim)
            lost = await until_available(system, "False", some=True)
            assert {one.reason for vpod in lost if (one := condition_of(vpod))} == {"NodeLost"}
            assert all((vpod.ready_vreplicas or 0) < vpod.scheduled_vreplicas for vpod in lost)
            await system.event(tenant, lost[0].name, "Unavailable", victim)
        finally:
            await backend.recover_node(victim)
        await until_available(system, "True")
        await system.event(tenant, lost[0].name, "Available")


async def until_available(system: System, status: str, *, some: bool = False) -> list[VPod]:
    """The vpods whose condition Available is so, once that is true of all of them, or of
    ``some``.
    """

    async def look() -> list[VPod]:
        vpods = list((await system.all_vpods()).values())
        found = [
            vpod
            for vpod in vpods
            if (one := condition_of(vpod)) is not None and one.status == status
        ]
        if not found or (len(found) < len(vpods) and not some):
            raise NotYet(f"{len(found)} of {len(vpods)} vpods have Available={status}")
        return found

    return await system.eventually(look, 90.0, f"Available={status}")
