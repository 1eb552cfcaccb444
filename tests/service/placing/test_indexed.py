"""Pools with ``spec.handoff.identity: Indexed``: each vreplica has an index, which stays where it
is as long as it can.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from extender.engine.placing.handover import Adapter
from extender.kube.api import ADAPTERPOOLS, VPODS, PatchType
from extender.model.assignment import (
    AssignedShare,
    Assignment,
    ShareInstruction,
    decode_assignment,
    encode_assignment,
)
from extender.model.indexes import indexes_from, indexes_text
from extender.model.moves import Move, MoveReason
from extender.model.names import ASSIGNMENT_ANNOTATION
from extender.model.objects import Handoff, HandoffMode, Identity
from extender.service.placing.indexed import IndexedShares
from extender.service.watching.caches import Caches
from tests.support.adapters import Adapters, adapters, adapters_beside, served
from tests.support.builders import NS, POOL, a_pod, a_pool, a_vpod
from tests.support.service import World, lost, until

pytestmark = pytest.mark.looptime
KEY = "tenant/a"
LEASE_S = 10
MODES = pytest.mark.parametrize("mode", ["None", "Overlap", "Exclusive"])


async def a_world(mode: str, *ordinals: int, replicas: int = 3, **pool) -> World:
    handoff = {"mode": mode, "identity": "Indexed", "leaseSeconds": LEASE_S}
    pool = {"handoff": handoff, "minPods": replicas, "rescheduleAfterSeconds": None, **pool}
    world = await World.create(replicas=replicas, **pool)
    await world.pods(*ordinals)
    return world


def a_move(vreplicas: int, to: int = 1) -> Move:
    return Move(KEY, "dispatcher-0", f"dispatcher-{to}", vreplicas, MoveReason.COMPACTION)


async def serve(known: Adapters, wanted: dict[int, int], timeout_s: float = 60) -> None:
    await until(served(known, KEY, wanted), timeout_s=timeout_s)
    await asyncio.sleep(1)


async def with_high_indexes_on_0(world: World, known: Adapters) -> None:
    """The vpod has 4 vreplicas on pod 1, and then two more on each."""
    await world.vpod("a", 4)
    await serve(known, {1: 4})
    await world.pods(0)
    await grow(world, 8)


def indexes(known: Adapters, key: str = KEY) -> dict[int, set[int]]:
    return {at[0]: found for at, found in sorted(known.indexes.items()) if at[1] == key and found}


async def epoch(known: Adapters, ordinal: int) -> int:
    return int((await known.assignment(ordinal))["shares"][KEY]["epoch"])


async def grow(world: World, vreplicas: int) -> None:
    spec = {"spec": {"vreplicas": vreplicas}}
    await world.cluster.patch(VPODS, "tenant", "a", spec, patch_type=PatchType.MERGE)


@MODES
async def test_the_pods_share_the_indexes_from_0_and_keep_them_when_the_vpod_grows(mode: str):
    world = await a_world(mode, 0, 1)
    async with world.serving(), adapters(world, 0, 1) as known:
        await world.vpod("a", 4)
        await serve(known, {0: 2, 1: 2})
        assert indexes(known) == {0: {0, 1}, 1: {2, 3}}
        before = await epoch(known, 0)
        await grow(world, 6)
        await serve(known, {0: 3, 1: 3})
        assert indexes(known) == {0: {0, 1, 4}, 1: {2, 3, 5}}
        assert await epoch(known, 0) > before, "another pod may have had index 4 once"
        share = (await known.assignment(0))["shares"][KEY]
        assert (share["indexes"], share["of"]) == ("0-1,4", 6)
    assert not known.unserved


@MODES
async def test_a_vpod_that_shrinks_has_the_lowest_indexes(mode: str):
    world = await a_world(mode, 1)
    async with world.serving(), adapters(world, 1) as known:
        await with_high_indexes_on_0(world, known)
        async with adapters_beside(known, 0):
            await serve(known, {0: 2, 1: 6})
            assert indexes(known) == {0: {4, 5}, 1: {0, 1, 2, 3, 6, 7}}
            await grow(world, 4)
            await serve(known, {0: 2, 1: 2})
            assert indexes(known) == {0: {2, 3}, 1: {0, 1}}
            assert (await known.assignment(0))["shares"][KEY]["of"] == 4


@asynccontextmanager
async def a_part_has_moved(mode: str) -> AsyncIterator[Adapters]:
    """Three of four vreplicas have gone from pod 0 to pod 1."""
    world = await a_world(mode, 0)
    async with world.serving() as service, adapters(world, 0, delay_s={0: 2.0}) as known:
        await world.vpod("a", 4)
        await serve(known, {0: 4})
        await world.pods(1)
        async with adapters_beside(known, 1):
            await asyncio.sleep(1)
            assert await service.placer.move(POOL, [a_move(3)]) == [a_move(3)]
            await serve(known, {0: 1, 1: 3})
            assert indexes(known) == {0: {0}, 1: {1, 2, 3}}
            yield known


async def test_no_index_is_out_of_service_while_a_part_of_a_share_moves():
    async with a_part_has_moved("Overlap") as known:
        assert await epoch(known, 1) > await epoch(known, 0)
    assert not known.unserved


async def test_no_index_is_served_twice_while_a_part_of_a_share_moves():
    async with a_part_has_moved("Exclusive") as known:
        pass
    assert not known.twice
    assert known.most == {KEY: 4}


async def test_a_vpod_that_shrinks_below_the_indexes_of_a_pod_serves_none_twice():
    world = await a_world("Exclusive", 1)
    async with world.serving(), adapters(world, 1, delay_s={0: 2.0, 1: 3.0}) as known:
        await with_high_indexes_on_0(world, known)
        async with adapters_beside(known, 0):
            await serve(known, {0: 2, 1: 6})
            await grow(world, 4)
            await until(lambda: indexes(known) == {0: {2, 3}, 1: {0, 1}})
    assert not known.twice


@MODES
async def test_lost_ordinals_come_back_with_their_indexes(mode: str):
    world = await a_world(mode, 0, 1, 2)
    async with world.serving():
        async with adapters(world, 0, 1, 2) as known:
            await world.vpod("a", 6)
            await serve(known, {0: 2, 1: 2, 2: 2})
            await grow(world, 8)
            await serve(known, {0: 3, 1: 3, 2: 2})
            before = indexes(known)
        for ordinal in (0, 1):
            known.ends(ordinal)
            await world.remove_pod(ordinal)
        await world.pods(1)
        await asyncio.sleep(1)
        await world.pods(0)
        async with adapters_beside(known, 0, 1, 2):
            await serve(known, {0: 3, 1: 3, 2: 2})
            assert indexes(known) == before


async def test_the_next_leader_goes_on_with_the_indexes():
    world = await a_world("Overlap", 0, 1)
    async with adapters(world, 0, 1) as known:
        async with world.serving():
            await world.vpod("a", 4)
            await serve(known, {0: 2, 1: 2})
            await grow(world, 6)
            await serve(known, {0: 3, 1: 3})
        before = [await known.assignment(ordinal) for ordinal in (0, 1)]
        async with world.serving():
            await asyncio.sleep(5)
            assert [await known.assignment(ordinal) for ordinal in (0, 1)] == before
    await world.check()


async def test_an_index_that_comes_back_before_it_has_left_has_a_greater_epoch():
    """Outside systems may have seen the other pod's epoch, and refuse lower ones."""
    world = await a_world("Overlap", 1)
    async with world.serving() as service, adapters(world, 1) as known:
        await world.vpod("a", 2)
        await serve(known, {1: 2})
        await world.pods(0)
        known.never.add((0, "Serve"))
        async with adapters_beside(known, 0):
            await asyncio.sleep(1)
            there = Move(KEY, "dispatcher-1", "dispatcher-0", 1, MoveReason.COMPACTION)
            assert await service.placer.move(POOL, [there]) == [there]
            await until(lambda: _is_told(known, 0, "1"))
            other, before = await epoch(known, 0), await epoch(known, 1)
            assert other > before
            back = Move(KEY, "dispatcher-0", "dispatcher-1", 1, MoveReason.COMPACTION)
            assert await service.placer.move(POOL, [back]) == [back]
            await serve(known, {1: 2})
            assert indexes(known) == {1: {0, 1}}
            assert await epoch(known, 1) > other
    assert not known.unserved


class Told:
    """What pods are told of the vpod, without a service."""

    def __init__(self, vreplicas: int, placements: dict[int, int]) -> None:
        self.requested = list[tuple[str, str]]()
        self._writes = 0
        self._caches = Caches()
        handoff = Handoff(mode=HandoffMode.OVERLAP, identity=Identity.INDEXED)
        self._caches.pools.update(a_pool(handoff=handoff))
        self._indexed = IndexedShares(
            self._caches,
            adapter_of=lambda pod: Adapter(decode_assignment(pod.assignment_text, pod.uid)),
            request_assignment=lambda pool, vpod: self.requested.append((pool, vpod)),
        )
        self._placements = placements
        self._caches.vpods.update(a_vpod("a", vreplicas, placements, resource_version="1"))

    def tell(self, ordinal: int, indexes: str, *, epoch: int = 7) -> None:
        share = AssignedShare(indexes_from(indexes).bit_count(), 1, 3, epoch, indexes=indexes)
        told = Assignment(1, f"{NS}/dispatcher-{ordinal}", f"uid-{ordinal}", {KEY: share})
        text = encode_assignment(told)
        ledger = {KEY: self._placements[ordinal]}
        self._writes += 1
        pod = a_pod(ordinal, ledger, assignment_text=text, resource_version=str(self._writes))
        self._caches.pods.update(pod)

    def taking_over(self) -> frozenset[str]:
        return self._indexed.taking_over(self._caches.state.pool(POOL), KEY)

    def next(self, ordinal: int) -> str:
        """The indexes that the pod is told next."""
        pod = self._caches.pods.get(f"{NS}/dispatcher-{ordinal}")
        assert pod is not None
        told = decode_assignment(pod.assignment_text, pod.uid)
        assert told is not None
        instruction = self._indexed.numbered(pod, KEY, told.shares[KEY], ShareInstruction())
        return indexes_text(instruction.indexes or 0)


@pytest.mark.parametrize(("indexes", "told_anew"), [("1", [(POOL, KEY)]), ("2", [])])
async def test_the_pods_of_a_vpod_are_told_anew_when_one_is_told_what_another_one_has(
    indexes: str, told_anew: list[tuple[str, str]]
):
    """Whose epoch is greater is decided when both are known."""
    told = Told(3, {0: 2, 1: 1})
    told.tell(0, "0-1")
    told.tell(1, indexes)
    assert told.requested == told_anew


@pytest.mark.parametrize(
    ("epoch_of_0", "next_of_0", "next_of_1"), [(9, "0-1,3", "2"), (3, "0-2", "3")]
)
async def test_an_index_of_a_move_that_is_not_needed_any_more_stays_with_the_pod_that_had_it(
    epoch_of_0: int, next_of_0: str, next_of_1: str
):
    """Seed 55878860: the vpod shrinks and grows again at once. Its pods keep their counts, and both
    are told index 2. Only the one that had it is sure to serve it.
    """
    told = Told(4, {0: 3, 1: 1})
    told.tell(0, "0-2", epoch=epoch_of_0)
    told.tell(1, "2", epoch=5)
    assert (told.next(0), told.next(1)) == (next_of_0, next_of_1)


async def test_a_pod_that_gets_one_index_for_another_takes_over():
    """Seed 590001285: index 3 goes from pod 2 to pod 1, and comes back, because pod 0 loses one.
    So pod 1 gets that one instead, and has no more than before.
    """
    told = Told(4, {0: 1, 1: 1, 2: 2})
    told.tell(0, "0-1")
    told.tell(2, "2-3")
    told.tell(1, "3", epoch=9)
    assert [told.next(ordinal) for ordinal in (0, 1, 2)] == ["0", "1", "2-3"]
    assert "dispatcher-1" in told.taking_over()
    told.tell(1, "1", epoch=10)
    assert told.taking_over() == {"dispatcher-1"}
    told.tell(0, "0")
    assert told.taking_over() == frozenset()


async def _is_told(known: Adapters, ordinal: int, indexes: str) -> bool:
    share = (await known.assignment(ordinal))["shares"].get(KEY, {})
    return (share.get("state"), share.get("indexes")) == ("Serve", indexes)


@MODES
async def test_a_pool_that_gets_indexes_at_work_goes_on(mode: str):
    world = await a_world(mode, 0, 1, handoff={"mode": mode, "leaseSeconds": LEASE_S})
    async with world.serving(), adapters(world, 0, 1) as known:
        await world.vpod("a", 4)
        await serve(known, {0: 2, 1: 2})
        assert "indexes" not in (await known.assignment(0))["shares"][KEY]
        spec = {"spec": {"handoff": {"identity": "Indexed"}}}
        await world.cluster.patch(ADAPTERPOOLS, NS, "dispatcher", spec, patch_type=PatchType.MERGE)
        await asyncio.sleep(2)
        assert indexes(known) == {0: {0, 1}, 1: {2, 3}}
        spec = {"spec": {"handoff": {"identity": "Counted"}}}
        await world.cluster.patch(ADAPTERPOOLS, NS, "dispatcher", spec, patch_type=PatchType.MERGE)
        await asyncio.sleep(2)
        assert "indexes" not in (await known.assignment(0))["shares"][KEY]
    assert known.gaps == []
    assert known.most == {KEY: 4}


async def two_that_exchange_an_index(handoff) -> World:
    world = await World.create(replicas=2, handoff=handoff, minPods=2, rescheduleAfterSeconds=None)
    for i, (count, indexes) in enumerate([(1, "3"), (3, "0-2")]):
        uid = await world.pod(i, {KEY: count}, node=f"node-{i}")
        share = AssignedShare(count, 1, 4, 1, indexes=indexes)
        text = encode_assignment(Assignment(1, f"{NS}/dispatcher-{i}", uid, {KEY: share}))
        await world.annotate(i, **{ASSIGNMENT_ANNOTATION: text})
    await world.vpod("a", 4, {0: 1, 1: 3})
    return world


async def test_an_index_that_is_exchanged_is_served_all_the_time():
    """Both adapters are well; that of dispatcher-0 takes 5 s to begin with another index."""
    world = await two_that_exchange_an_index({"mode": "Overlap", "identity": "Indexed"})
    async with world.serving(), adapters(world, 0, 1, delay_s={0: 5.0, 1: 0.5}) as known:
        await until(served(known, KEY, {0: 1, 1: 3}))
        await asyncio.sleep(5)
        await world.set_vreplicas("a", 3)
        await asyncio.sleep(30)
        assert known.indexes == {(0, KEY): {2}, (1, KEY): {0, 1}}
        assert known.unserved - {(KEY, 3)} == set()


# -- 2. a hand-over makes an assignment overflow, and shares that are served are untold -----------


async def test_an_exchanged_index_that_nobody_serves_is_told():
    handoff = {"mode": "Overlap", "identity": "Indexed", "prepareTimeoutSeconds": 20}
    world = await two_that_exchange_an_index(handoff)
    async with world.serving(), adapters(world, 1) as known:
        async with adapters_beside(known, 0):
            await until(served(known, KEY, {0: 1, 1: 3}))
        await world.set_vreplicas("a", 3)  # the adapter of dispatcher-0 hangs
        await asyncio.sleep(100)
        assert (await known.assignment(0))["shares"][KEY]["indexes"] == "2"
        assert known.indexes == {(0, KEY): {3}, (1, KEY): {0, 1}}  # nobody serves index 2
        assert (await world.conditions("a"))["Available"]["reason"] == "AdapterNotServing"


async def test_the_pod_that_is_not_told_of_its_index_in_time_is_named_and_not_those_that_serve():
    """All pods of the vpod were named, as if their adapters did not serve it."""
    handoff = {"mode": "Overlap", "identity": "Indexed", "prepareTimeoutSeconds": 20}
    world = await two_that_exchange_an_index(handoff)
    async with world.serving(), adapters(world, 0, 1) as known:
        await until(served(known, KEY, {0: 1, 1: 3}))
        await asyncio.sleep(5)
        world.api.fail("patch", "pods", name="dispatcher-0", before=lost(), times=1000)
        await world.set_vreplicas("a", 3)
        await asyncio.sleep(60)
        (event,) = await world.events("ServeTimedOut")
        assert "the adapter of dispatcher-0 did not" in event["note"]


@pytest.mark.parametrize("stage", ["Prepare", "Serve", "Drain"])
async def test_a_pool_may_get_indexes_while_a_share_is_handed_over(stage: str):
    world = await a_world("Overlap", 0, handoff={"mode": "Overlap"})
    await world.vpod("a", 2)
    async with world.serving() as service, adapters(world, 0) as known:
        await until(served(known, KEY, {0: 2}))
        await world.pods(1)
        async with adapters_beside(known, 1):
            await asyncio.sleep(1)
            known.never = {(0, "Drain")} if stage == "Drain" else {(1, stage)}
            assert await service.placer.move(POOL, [a_move(2)]) == [a_move(2)]
            await asyncio.sleep(5)
            await world.patch_pool(handoff={"mode": "Overlap", "identity": "Indexed"})
            await asyncio.sleep(10)
            assert known.gaps == []
