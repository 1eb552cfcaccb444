"""Pools with ``spec.handoff.mode: Exclusive``: a vpod's adapters never serve more vreplicas
together than it publishes.
"""

import asyncio
from dataclasses import replace

import pytest

from extender.kube.api import PODS, STATEFULSETS, VPODS
from extender.model.assignment import (
    Acknowledged,
    AssignedShare,
    Assignment,
    ShareInstruction,
    ShareState,
    encode_acknowledged,
    encode_assignment,
)
from extender.model.ledger import Share
from extender.model.moves import Move, MoveReason
from extender.model.names import UNSCHEDULABLE_ANNOTATION
from extender.model.objects import AdapterPod, Handoff, HandoffMode
from extender.service.placing.exclusive import ExclusiveShares
from extender.service.placing.handover_view import HandOverViews
from extender.service.watching.caches import Caches
from tests.support.adapters import Adapters, adapters, adapters_beside, served
from tests.support.builders import NS, POOL, a_node, a_pod, a_pool, a_stateful_set, a_vpod
from tests.support.service import World, until

pytestmark = pytest.mark.looptime
KEY = "tenant/a"
LEASE_S = 10


async def a_world(*ordinals: int, handoff=None, **pool) -> World:
    exclusive = {"mode": "Exclusive", "leaseSeconds": LEASE_S, **(handoff or {})}
    pool = {"handoff": exclusive, "minPods": 3, "rescheduleAfterSeconds": None, **pool}
    world = await World.create(replicas=3, **pool)
    await world.pods(*ordinals)
    return world


def a_move(vreplicas: int = 2) -> Move:
    return Move(KEY, "dispatcher-0", "dispatcher-1", vreplicas, MoveReason.COMPACTION)


async def serves(known: Adapters, wanted: dict[int, int], timeout_s: float = 120) -> float:
    """Wait until these adapters serve the vpod, and no others. Return how long that took."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    await until(served(known, KEY, wanted), timeout_s=timeout_s)
    return loop.time() - began


async def test_a_moved_share_is_prepared_drained_and_only_then_served():
    world = await a_world(0)
    await world.vpod("a", 2)
    async with world.serving() as service, adapters(world, 0) as known:
        await serves(known, {0: 2})
        await world.pods(1)
        async with adapters_beside(known, 1):
            await asyncio.sleep(1)
            assert await service.placer.move(POOL, [a_move()]) == [a_move()]
            assert await serves(known, {1: 2}) < 3
            assert (await known.assignment(1))["leaseSeconds"] == LEASE_S
            await until(lambda: gone_from_ledger(world, 0))
    assert known.told == [
        (0, KEY, "Prepare"),  # the leader is new
        (0, KEY, "Serve"),
        (1, KEY, "Prepare"),
        (0, KEY, "Drain"),
        (1, KEY, "Serve"),
    ]
    assert known.most == {KEY: 2}


async def test_an_adapter_is_told_why_its_share_goes_to_one_that_serves_the_vpod_already():
    """Nothing is held back then, and the reason of the move was lost: it was told ``Scale``."""
    world = await a_world(0, 1)
    async with world.serving() as service, adapters(world, 0, 1, delay_s={0: 3.0}) as known:
        await world.vpod("a", 2)
        await serves(known, {0: 1, 1: 1})
        assert await service.placer.move(POOL, [a_move(1)]) == [a_move(1)]
        await until(lambda: (0, KEY, "Drain") in known.told)
        assert (await known.assignment(0))["shares"][KEY]["intent"] == "Rebalance"
        await serves(known, {1: 2})
        assert len(service.committer.hand_overs) == 0
    assert known.most == {KEY: 2}


async def gone_from_ledger(world: World, ordinal: int) -> bool:
    return KEY not in await world.ledger(ordinal)


async def test_of_a_part_that_moves_no_more_is_served_together():
    world = await a_world(0)
    await world.vpod("a", 4)
    async with world.serving() as service, adapters(world, 0, delay_s={0: 3.0}) as known:
        await serves(known, {0: 4})
        await world.pods(1)
        async with adapters_beside(known, 1):
            await asyncio.sleep(1)
            assert await service.placer.move(POOL, [a_move(3)]) == [a_move(3)]
            assert await serves(known, {0: 1, 1: 3}) > 3
    assert known.most == {KEY: 4}


async def test_a_drained_pods_shares_are_served_elsewhere_once_it_has_let_go():
    world = await a_world(0, 1)
    async with world.serving(), adapters(world, 0, 1, delay_s={0: 5.0}) as known:
        await world.vpod("a", 4)
        await serves(known, {0: 2, 1: 2})
        await world.annotate(0, **{UNSCHEDULABLE_ANNOTATION: "true"})
        assert await serves(known, {1: 4}) > 5
    assert known.most == {KEY: 4}


async def test_what_an_adapter_does_not_let_go_is_served_elsewhere_a_lease_after_its_deadline():
    world = await a_world(0, 1, handoff={"drainTimeoutSeconds": 20})
    async with world.serving() as service, adapters(world, 0, 1) as known:
        await world.vpod("a", 4)
        await serves(known, {0: 2, 1: 2})
        known.never.add((0, "Drain"))
        await world.annotate(0, **{UNSCHEDULABLE_ANNOTATION: "true"})
        await asyncio.sleep(5)
        assert service.committer.hand_overs.describe_waits(POOL, KEY) == [
            "waits for the adapter of dispatcher-0 to let go (5 s of 20)"
        ]
        await asyncio.sleep(20)
        (wait,) = service.committer.hand_overs.describe_waits(POOL, KEY)
        assert wait.startswith("waits until the lease of dispatcher-0 has run out (")
        assert 20 + LEASE_S - 26 < await serves(known, {1: 4}) < 20 + LEASE_S - 22


async def test_the_shares_of_a_lost_pod_are_served_elsewhere_a_lease_later():
    world = await a_world(0, 1, rescheduleAfterSeconds=15)
    async with world.serving(), adapters(world, 0, 1) as known:
        await world.vpod("a", 4)
        await serves(known, {0: 2, 1: 2})
        await world.ready(0, ready=False)
        known.ends(0)
        assert 15 + LEASE_S - 1 < await serves(known, {1: 4}) < 15 + LEASE_S + 3


@pytest.mark.parametrize(("stopped", "wait_s"), [(True, 0), (False, LEASE_S)])
async def test_an_ordinal_that_comes_back_serves_once_the_pod_before_it_has_stopped(
    stopped: bool, wait_s: float
):
    world = await a_world(0)
    async with world.serving():
        async with adapters(world, 0) as known:
            await world.vpod("a", 2)
            await serves(known, {0: 2})
        if stopped:
            await stop(world, 0)
        known.ends(0)
        await world.remove_pod(0)
        await world.pods(0)
        async with adapters_beside(known, 0):
            assert wait_s - 1 < await serves(known, {0: 2}) < wait_s + 2


async def stop(world: World, ordinal: int) -> None:
    """The kubelet says that the containers of a pod have stopped."""
    status = {"containerStatuses": [{"name": "a", "state": {"terminated": {"exitCode": 0}}}]}
    await world.patch_status(PODS, NS, f"dispatcher-{ordinal}", **status)


async def test_a_leader_that_is_new_tells_nobody_to_serve_more_for_a_lease():
    world = await a_world(0, 1)
    async with adapters(world, 0, 1) as known:
        async with world.serving():
            await world.vpod("a", 2)
            await serves(known, {0: 1, 1: 1})
        # Who leads next does not know that this pod was there.
        known.ends(1)
        await world.remove_pod(1)
    async with world.serving() as service, adapters_beside(known, 0):
        await world.pods(1)
        async with adapters_beside(known, 1):
            await asyncio.sleep(3)
            assert known.serving == {0: {KEY: 1}, 1: {}}, "what is served is served on"
            (wait,) = service.committer.hand_overs.describe_waits(POOL, KEY)
            assert wait.startswith("the leader is new: it tells nobody to serve more until")
            assert LEASE_S - 5 < await serves(known, {0: 1, 1: 1}) < LEASE_S


async def test_a_pool_that_becomes_exclusive_goes_on_and_tells_its_adapters_of_the_lease():
    world = await a_world(0, handoff={"mode": "Overlap"})
    async with world.serving(), adapters(world, 0) as known:
        await world.vpod("a", 2)
        await serves(known, {0: 2})
        assert "leaseSeconds" not in await known.assignment(0)
        await world.patch_pool(handoff={"mode": "Exclusive"})
        await asyncio.sleep(1)
        assert (await known.assignment(0))["leaseSeconds"] == LEASE_S
        await world.vpod("b", 1)
        await until(served(known, "tenant/b", {0: 1}), timeout_s=LEASE_S + 2)
    assert known.gaps == []


async def test_what_a_vpod_publishes_in_its_former_pool_is_not_served_here_too():
    world = await a_world(0)
    async with world.serving() as service:
        await asyncio.sleep(LEASE_S + 1)
        await world.vpod("a", 2, poolRef={"namespace": "elsewhere", "name": "former"})
        await world.patch_status(
            VPODS, "tenant", "a", placements=[{"podName": "former-3", "vreplicas": 2}]
        )
        await asyncio.sleep(1)
        await world.point("a", at=NS)
        while not service.caches.state.pool(POOL).claims_of(KEY):  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0)
        pod = service.caches.pods.latest(f"{NS}/dispatcher-0")
        assert pod is not None
        newer = replace(pod, ledger={KEY: Share(2)})
        assert service.committer.hand_overs.instruct(newer, KEY, None).state == "Prepare"


async def test_a_share_of_a_ledger_that_is_not_in_the_claims_yet_is_not_served():
    world = await a_world(0)
    async with world.serving() as service:
        await asyncio.sleep(LEASE_S + 1)
        pod = service.caches.pods.latest(f"{NS}/dispatcher-0")
        assert pod is not None
        newer = replace(pod, ledger={KEY: Share(2)})
        assert service.committer.hand_overs.instruct(newer, KEY, None).state == "Prepare"


async def test_while_no_stateful_set_is_known_a_pod_serves_what_is_published_on_it():
    """A pool's StatefulSet may be deleted without its pods, and made again."""
    world = await a_world(0)
    await world.vpod("a", 2)
    async with world.serving() as service, adapters(world, 0) as known:
        await until(lambda: (0, KEY, "Prepare") in known.told)  # the leader is new
        await world.cluster.delete(STATEFULSETS, NS, "dispatcher")
        await serves(known, {0: 2})
        assert service.caches.state.pool(POOL).stateful_set is None


async def test_an_adapter_that_may_not_serve_yet_is_not_blamed():
    """The former pod does not let go, so its lease has to run out first."""
    world = await a_world(0, handoff={"prepareTimeoutSeconds": 5, "drainTimeoutSeconds": 20})
    await world.vpod("a", 2)
    async with world.serving() as service, adapters(world, 0) as known:
        await serves(known, {0: 2})
        await world.pods(1)
        async with adapters_beside(known, 1):
            await asyncio.sleep(1)
            known.never = {(0, "Drain")}
            assert await service.placer.move(POOL, [a_move(2)]) == [a_move(2)]
            await asyncio.sleep(25)
            told = (await world.conditions())["Available"]
            assert told["reason"] == "WaitingForHandOver"
            assert "dispatcher-1 (its adapter waits until another pod has let" in told["message"]
            await serves(known, {1: 2}, timeout_s=100)
            await asyncio.sleep(5)
            assert (await world.conditions())["Available"]["reason"] == "AllReady"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        pytest.param({}, "Prepare", id="it runs"),
        pytest.param({"stopped": True}, "Prepare", id="its containers have crashed"),
        pytest.param({"deleting": True}, "Prepare", id="they are about to stop"),
        pytest.param({"stopped": True, "deleting": True}, "Serve", id="they have stopped"),
        pytest.param({"stopped": True, "finished": True}, "Serve", id="they have finished"),
    ],
)
async def test_only_who_has_stopped_for_good_holds_nothing_any_more(fields, told: str):
    """The kubelet starts the containers of a pod that stays again, and they serve on."""
    caches = Caches()
    shares = ExclusiveShares(
        caches,
        adapter_of=(adapter_of := HandOverViews(caches).adapter),
        leads_since=lambda _pool: float("-inf"),
        clock=asyncio.get_running_loop().time,
        request_assignment=lambda _pool, _vpod: None,
    )
    caches.nodes.update(a_node())
    caches.stateful_sets.update(a_stateful_set(2))
    handoff = Handoff(mode=HandoffMode.EXCLUSIVE, lease_s=LEASE_S)
    caches.pools.update(a_pool(handoff=handoff))
    leaves = a_told_pod(0, AssignedShare(2, 1, 2, 5))
    caches.pods.update(leaves)
    comes = a_told_pod(1, AssignedShare(2, 1, 2, 5, ShareState.PREPARE))
    caches.pods.update(comes)
    caches.vpods.update(a_vpod("a", 2, {1: 2}, resource_version="1"))
    await asyncio.sleep(LEASE_S + 1)  # the leader is not new any more
    caches.pods.update(replace(leaves, resource_version="2", ready=False, **fields))
    current = adapter_of(comes).share_of(KEY)
    state = caches.state.pool(POOL)
    assert shares.narrowed(state, comes, KEY, current, ShareInstruction()).state == told


def a_told_pod(ordinal: int, share: AssignedShare) -> AdapterPod:
    told = Assignment(7, f"{NS}/dispatcher-{ordinal}", f"uid-{ordinal}", {KEY: share}, LEASE_S)
    return a_pod(
        ordinal,
        {KEY: 2},
        ready=True,
        resource_version="1",
        assignment_text=encode_assignment(told),
        acknowledged_text=encode_acknowledged(Acknowledged(7, 1)),
    )
