"""Hand-over of shares between adapters: pools with ``spec.handoff.mode: Overlap``."""

import asyncio
import json
from collections.abc import Callable
from functools import partial

import pytest

from extender.engine.placing.plan import release_all
from extender.kube.api import VPODS, ApiError
from extender.model import assignment as model
from extender.model.assignment import (
    Acknowledgement,
    AssignedShare,
    Assignment,
    acknowledged,
    decode_assignment,
    encode_acknowledged,
    encode_assignment,
)
from extender.model.bucket import WHOLE
from extender.model.eviction import Eviction, encode_eviction
from extender.model.moves import Move, MoveReason
from extender.model.names import (
    ACKNOWLEDGED_ANNOTATION,
    ASSIGNMENT_ANNOTATION,
    EVICTING_ANNOTATION,
    UNSCHEDULABLE_ANNOTATION,
)
from extender.service.placing.handovers import LOOK_AGAIN_S, HandOvers
from tests.support.adapters import Adapters, adapters, adapters_beside, served
from tests.support.builders import NS, POOL, a_pod
from tests.support.evictions import evict, with_webhook
from tests.support.service import TENANT, World, lost, until

pytestmark = pytest.mark.looptime
KEY = "tenant/a"
PREPARE_S = 30
"""The default of prepareTimeoutSeconds."""


async def a_world(*ordinals: int, handoff=None, replicas: int = 3, **pool) -> World:
    overlap = {"mode": "Overlap", **(handoff or {})}
    pool = {"handoff": overlap, "minPods": replicas, "rescheduleAfterSeconds": None, **pool}
    world = await World.create(replicas=replicas, **pool)
    await world.pods(*ordinals)
    return world


def a_move(vreplicas: int = 2, *, to: int = 1, origin: int = 0) -> Move:
    reason = MoveReason.COMPACTION
    return Move(KEY, f"dispatcher-{origin}", f"dispatcher-{to}", vreplicas, reason)


def was_told(known: Adapters, last: tuple[int, str, str]):
    """For ``until``: (ordinal, vpod, state) is what an adapter was told last."""
    return lambda: known.told[-1] == last


async def moved(world: World) -> tuple[str, str]:
    """(reason, message without the reason) of the vpod's condition Moved."""
    found = (await world.conditions())["Moved"]
    return found["reason"], found["message"].partition(" (")[0]


async def published(world: World, wanted: dict[int, int], timeout_s: float = 30) -> None:
    async with asyncio.timeout(timeout_s):
        await until(lambda: world.published("a"), wanted)


async def ledgers(world: World, wanted: dict[int, int], timeout_s: float = 30) -> None:
    async def is_so() -> bool:
        found = {i: (await world.ledger(i)).get(KEY) for i in wanted}
        return found == {i: count or None for i, count in wanted.items()}

    async with asyncio.timeout(timeout_s):
        await until(is_so)


async def test_a_moved_share_is_prepared_served_and_only_then_drained():
    world = await a_world(0)
    await world.vpod("a", 2)
    async with world.serving() as service, adapters(world, 0) as known:
        await until(served(known, KEY, {0: 2}))
        await world.pods(1)
        one = asyncio.create_task(known.run(1))
        await asyncio.sleep(1)
        assert await service.placer.move(POOL, [a_move()]) == [a_move()]
        assert await world.published("a") == {0: 2}, "the adapter of the new pod is not ready"
        await published(world, {1: 2})
        await ledgers(world, {0: 0, 1: 2})
        one.cancel()
    assert known.told == [
        (0, KEY, "Serve"),
        (1, KEY, "Prepare"),
        (1, KEY, "Serve"),
        (0, KEY, "Drain"),
    ]
    assert known.gaps == []


async def test_a_pod_whose_ledger_has_more_than_it_gets_is_waited_for_too():
    world = await a_world(0, 1)
    await world.vpod("a", 4)
    async with world.serving() as service, adapters(world, 0, 1) as known:
        await until(served(known, KEY, {0: 2, 1: 2}))
        known.never.add((1, "Drain"))
        await world.set_vreplicas("a", 2)
        await until(was_told(known, (1, KEY, "Drain")))
        assert await service.placer.move(POOL, [a_move(1)]) == [a_move(1)]
        await asyncio.sleep(5)
        assert await world.published("a") == {0: 2}, "the adapter of the other pod lets go still"


async def test_moves_of_several_vpods_and_counts_leave_no_gap():
    world = await a_world(0)
    for name in "abc":
        await world.vpod(name, 4)
    async with world.serving() as service, adapters(world, 0) as known:
        await until(served(known, "tenant/c", {0: 4}))
        await world.pods(1)
        async with adapters_beside(known, 1):
            await asyncio.sleep(1)
            moves = [
                Move(f"tenant/{n}", "dispatcher-0", "dispatcher-1", 3, MoveReason.POLICY)
                for n in "abc"
            ]
            assert len(await service.placer.move(POOL, moves)) == 3
            for name in "abc":
                await until(served(known, f"tenant/{name}", {0: 1, 1: 3}))
            await ledgers(world, {0: 1, 1: 3})
    assert known.gaps == []


async def test_a_drained_pod_keeps_its_shares_until_others_serve_them():
    world = await a_world(0, 1)
    pods_adapters = adapters(world, 0, 1, delay_s={1: 3.0})
    async with world.serving() as service, pods_adapters as known:
        await world.vpod("a", 4)
        await until(served(known, KEY, {0: 2, 1: 2}))
        await world.annotate(0, **{UNSCHEDULABLE_ANNOTATION: "true"})
        await asyncio.sleep(2)
        assert known.serving[0] == {KEY: 2}
        await until(served(known, KEY, {1: 4}))
        await ledgers(world, {0: 0, 1: 4})
        text = service.metrics.render().decode()
        for step in ("prepare", "drain"):
            count = f'vreplica_scheduler_handover_duration_seconds_count{{step="{step}"}} 1.0'
            assert count in text
    assert known.gaps == []
    assert await moved(world) == ("Drain", "2 vreplicas moved from dispatcher-0 to dispatcher-1")


async def test_a_vpod_that_grows_during_its_hand_over_is_told_where_it_was_moved():
    """Seed 240000907: it publishes a new pod before its vreplicas leave the old one."""
    world = await a_world(0)
    await world.vpod("a", 2)
    async with world.serving() as service, adapters(world, 0) as known:
        await until(served(known, KEY, {0: 2}))
        known.never.add((2, "Prepare"))
        await world.pods(1, 2)
        async with adapters_beside(known, 1, 2):
            await asyncio.sleep(1)
            moves = [a_move(1), a_move(1, to=2)]
            assert await service.placer.move(POOL, moves) == moves
            await world.annotate(0, **{UNSCHEDULABLE_ANNOTATION: "true"})  # nothing comes back
            await world.set_vreplicas("a", 4)
            await published(world, {0: 2, 2: 2})
            await published(world, {1: 2, 2: 2})
    told = (await world.conditions())["Moved"]["message"]
    assert told == (
        "1 vreplica moved from dispatcher-0 to dispatcher-1 (Compaction); "
        "1 vreplica moved from dispatcher-0 to dispatcher-2 (Compaction)"
    )


async def test_a_move_whose_new_adapter_never_gets_ready_is_taken_back_and_told():
    world = await a_world(0, 1, rebalance={"cooldownSeconds": 120})
    async with world.serving() as service, adapters(world, 0, 1) as known:
        await world.vpod("a", 4)
        await until(served(known, KEY, {0: 2, 1: 2}))
        known.never = {(1, "Serve")}
        await world.annotate(0, **{UNSCHEDULABLE_ANNOTATION: "true"})
        await asyncio.sleep(29)
        assert await world.ledger(1) == {KEY: 4}
        await ledgers(world, {0: 2, 1: 2}, 4)
        assert await world.published("a") == {0: 2, 1: 2}
        (event,) = await world.events("PrepareTimedOut")
        assert "dispatcher-1" in event["note"]
        text = service.metrics.render().decode()
        assert 'vreplica_scheduler_handover_timeouts_total{step="prepare"} 1.0' in text
        await asyncio.sleep(60)
        assert await world.ledger(1) == {KEY: 2}, "not tried again at once"
        known.never = set()
        await asyncio.sleep(60)
        await until(served(known, KEY, {1: 4}))
        await ledgers(world, {0: 0, 1: 4})
    assert known.gaps == []


async def test_a_vpod_whose_move_was_taken_back_is_not_moved_by_the_evictor_either():
    world = await a_world(0, 1, rebalance={"cooldownSeconds": 120})
    async with world.serving() as service, adapters(world, 0, 1) as known:
        await world.vpod("a", 4)
        await until(served(known, KEY, {0: 2, 1: 2}))
        known.never = {(1, "Serve")}
        await world.annotate(0, **{UNSCHEDULABLE_ANNOTATION: "true"})
        await asyncio.sleep(40)
        await ledgers(world, {0: 2, 1: 2})
        await world.annotate(0, **{UNSCHEDULABLE_ANNOTATION: None})
        world.api.calls.clear()
        assert await service.placer.move(POOL, [a_move(1)]) == []
        assert world.api.count("patch", "pods") == 0
        await asyncio.sleep(120)
        assert await service.placer.move(POOL, [a_move(1)]) == [a_move(1)]


async def test_a_move_goes_on_where_a_vpod_is_to_be_on_more_pods_than_there_are():
    """Seed 148755216: minPodsPerVPod wanted back what was being moved."""
    world = await a_world(0, 1, minPodsPerVPod=4)
    async with world.serving() as service, adapters(world, 0, 1) as known:
        await world.vpod("a", 4)
        await until(served(known, KEY, {0: 2, 1: 2}))
        assert await service.placer.move(POOL, [a_move(1)]) == [a_move(1)]
        await published(world, {0: 1, 1: 3})
        await ledgers(world, {0: 1, 1: 3})


async def test_a_move_whose_ledger_is_written_until_its_reservation_expires_is_decided_again():
    """What had expired was looked up all the same, and the error ended the leader's loops."""
    world = await a_world(0)
    await world.vpod("a", 2)
    async with world.serving() as service, adapters(world, 0) as known:
        await until(served(known, KEY, {0: 2}))
        await world.pods(1)
        async with adapters_beside(known, 1):
            await asyncio.sleep(1)
            error = ApiError(500, "InternalError", "etcd")
            written = world.api.pause("patch", "pods", "dispatcher-1", before=error)
            await world.annotate(0, **{UNSCHEDULABLE_ANNOTATION: "true"})
            await written.reached.wait()
            await asyncio.sleep(60 + service.committer.hand_overs.longest_s(POOL))
            assert [*service.caches.state.pools[POOL].claims_of(KEY)] == ["dispatcher-0"]
            written.go_on.set()
            await published(world, {1: 2})
    assert known.gaps == []


async def test_an_adapter_that_does_not_let_go_loses_its_share_at_its_deadline():
    world = await a_world(0, 1, handoff={"drainTimeoutSeconds": 20})
    async with world.serving() as service, adapters(world, 0, 1) as known:
        await world.vpod("a", 4)
        await until(served(known, KEY, {0: 2, 1: 2}))
        known.never = {(0, "Drain")}
        await world.annotate(0, **{UNSCHEDULABLE_ANNOTATION: "true"})
        await published(world, {1: 4})
        await asyncio.sleep(19)
        assert (await world.ledger(0)).get(KEY) == 2
        await ledgers(world, {0: 0, 1: 4}, 4)
        (event,) = await world.events("DrainTimedOut")
        assert "dispatcher-0" in event["note"]
        text = service.metrics.render().decode()
        assert 'vreplica_scheduler_handover_timeouts_total{step="drain"} 1.0' in text


@pytest.mark.parametrize(("what", "intent"), [("shrinks", "Scale"), ("is deleted", "Removed")])
async def test_what_a_vpod_gives_up_is_drained(what: str, intent: str):
    world = await a_world(0, 1)
    async with world.serving(), adapters(world, 0, 1, delay_s={1: 2.0}) as known:
        await world.vpod("a", 2)
        await until(served(known, KEY, {0: 1, 1: 1}))
        if what == "shrinks":
            await world.set_vreplicas("a", 1)
        else:
            await world.cluster.delete(VPODS, TENANT, "a")
        await asyncio.sleep(1)
        told = await known.assignment(1)
        assert (told["shares"][KEY]["state"], told["shares"][KEY]["intent"]) == ("Drain", intent)
        assert (await world.ledger(1)).get(KEY) == 1
        await ledgers(world, {1: 0})


async def test_each_pod_that_a_vpod_leaves_for_a_reason_of_its_own_is_told_that_reason():
    """All of them were told that of the first."""
    world = await a_world(0, 1)
    async with adapters(world, 0, 1) as known:
        async with world.serving():
            await world.vpod("a", 4)
            await until(served(known, KEY, {0: 2, 1: 2}))
        await world.annotate(0, **{UNSCHEDULABLE_ANNOTATION: "true"})
        now = world.cluster.server.now()
        mark = Eviction(now, now, MoveReason.MAINTENANCE, turn_s=now)
        await world.annotate(1, **{EVICTING_ANNOTATION: encode_eviction(mark, await world.uid(1))})
        await world.pods(2)
        known.never = {(0, "Drain"), (1, "Drain")}
        async with adapters_beside(known, 2), world.serving(seed=2):
            await until(served(known, KEY, {0: 2, 1: 2, 2: 4}))
            await asyncio.sleep(2)
            told = [(await known.assignment(one))["shares"][KEY] for one in (0, 1)]
            assert [share["intent"] for share in told] == ["Drain", "Maintenance"]


async def test_adapters_without_the_contract_are_not_waited_for():
    world = await a_world(0, 1)
    async with world.serving():
        await world.vpod("a", 4)
        await published(world, {0: 2, 1: 2})
        await world.annotate(0, **{UNSCHEDULABLE_ANNOTATION: "true"})
        await published(world, {1: 4}, 3)
        await ledgers(world, {0: 0, 1: 4}, 3)


async def test_a_pod_that_does_not_serve_is_not_waited_for():
    world = await a_world(0, 1)
    async with world.serving(), adapters(world, 0, 1) as known:
        await world.vpod("a", 4)
        await until(served(known, KEY, {0: 2, 1: 2}))
        known.never = {(1, "Serve"), (0, "Drain")}
        await world.ready(0, ready=False)
        await world.annotate(0, **{UNSCHEDULABLE_ANNOTATION: "true"})
        await published(world, {1: 4}, 3)
        await ledgers(world, {0: 0, 1: 4}, 3)


async def test_what_waits_stays_published_where_it_is_served():
    """Seed 7000022: it stayed on the pod that was not Ready, and left the one that served it."""
    world = await a_world(0, 1)
    async with world.serving() as service, adapters(world, 0, 1) as known:
        await world.vpod("a", 4)
        await until(served(known, KEY, {0: 2, 1: 2}))
        await world.ready(0, ready=False)
        await world.pods(2)
        async with adapters_beside(known, 2):
            known.never = {(2, "Prepare")}
            await asyncio.sleep(1)
            moves = [a_move(2, to=2), a_move(2, to=2, origin=1)]
            assert await service.placer.move(POOL, moves) == moves
            assert await world.published("a") == {1: 2, 2: 2}
            known.never = set()
            await published(world, {2: 4})
            await ledgers(world, {0: 0, 1: 0, 2: 4})
    assert known.gaps == []


async def test_what_waits_while_its_vpod_gets_smaller_stays_on_the_pod_that_it_is_moved_off():
    """Seed 41000027: another pod kept it, and why it left that one was not told."""
    world = await a_world(0, 1, profile="spread")
    async with world.serving(), adapters(world, 0, 1) as known:
        await world.vpod("a", 4)
        await until(served(known, KEY, {0: 2, 1: 2}))
        await world.pods(2)
        async with adapters_beside(known, 2):
            known.never = {(2, "Prepare")}
            drain = partial(world.annotate, 1, **{UNSCHEDULABLE_ANNOTATION: "true"})
            world.api.fail("patch", "vpods/status", before=lost(), then=drain)
            await world.set_vreplicas("a", 2)
            await published(world, {0: 1, 1: 1})
            known.never = set()
            await published(world, {0: 1, 2: 1})
            assert await moved(world) == (
                "Drain",
                "1 vreplica moved from dispatcher-1 to dispatcher-2",
            )
    assert known.gaps == []


@pytest.mark.parametrize("at", ["Prepare", "Serve", "Drain"])
async def test_a_new_leader_goes_on_and_leaves_no_gap(at: str):
    """It comes when the destination is to get ready, when it is to serve, or when the source is to
    let go.
    """
    world = await a_world(0)
    await world.vpod("a", 2)
    late = {"Prepare": {1: 5.0}, "Serve": {1: 0.1}, "Drain": {0: 5.0}}[at]
    async with adapters(world, 0) as known:
        async with world.serving() as service:
            await until(served(known, KEY, {0: 2}))
            await world.pods(1)
            known.delay_s = late
            one = asyncio.create_task(known.run(1))
            await asyncio.sleep(1)
            await service.placer.move(POOL, [a_move()])
            told = (0, KEY, "Drain") if at == "Drain" else (1, KEY, at)
            await until(was_told(known, told))
        await asyncio.sleep(1)
        async with world.serving():
            wanted = {0: 2} if at == "Prepare" else {1: 2}
            await published(world, wanted)
            await ledgers(world, {0: wanted.get(0, 0), 1: wanted.get(1, 0)}, 100)
            await asyncio.sleep(30)
            assert await world.published("a") == wanted
            await until(served(known, KEY, wanted))
        one.cancel()
    assert known.gaps == []
    await world.check()


async def test_a_pool_that_loses_its_mode_waits_for_nobody():
    world = await a_world(0, 1)
    async with world.serving(), adapters(world, 0, 1) as known:
        await world.vpod("a", 4)
        await until(served(known, KEY, {0: 2, 1: 2}))
        known.never = {(1, "Serve"), (0, "Drain")}
        await world.annotate(0, **{UNSCHEDULABLE_ANNOTATION: "true"})
        await asyncio.sleep(3)
        assert await world.published("a") == {0: 2, 1: 2}
        await world.patch_pool(handoff={"mode": "None"})
        await ledgers(world, {0: 0, 1: 4}, 10)


async def test_a_vpod_whose_move_was_taken_back_leaves_at_once_when_its_pool_loses_its_mode():
    """It stayed on the drained pod for as long as moves rest, though nobody is waited for."""
    world = await a_world(0, 1, rebalance={"cooldownSeconds": 300})
    async with world.serving() as service, adapters(world, 0, 1) as known:
        await world.vpod("a", 4)
        await until(served(known, KEY, {0: 2, 1: 2}))
        known.never = {(1, "Serve")}
        await world.annotate(0, **{UNSCHEDULABLE_ANNOTATION: "true"})
        await asyncio.sleep(PREPARE_S + 5)
        assert service.committer.hand_overs.was_taken_back(POOL, KEY)
        await world.patch_pool(handoff={"mode": "None"})
        await ledgers(world, {0: 0, 1: 4}, 10)
        assert not service.committer.hand_overs.was_taken_back(POOL, KEY)


async def test_a_vpod_that_grows_meanwhile_is_served_by_all_its_pods():
    world = await a_world(0, 1)
    async with world.serving(), adapters(world, 0, 1, delay_s={1: 3.0}) as known:
        await world.vpod("a", 4)
        await until(served(known, KEY, {0: 2, 1: 2}))
        await world.annotate(0, **{UNSCHEDULABLE_ANNOTATION: "true"})
        await asyncio.sleep(1)
        await world.set_vreplicas("a", 6)
        await until(served(known, KEY, {1: 6}))
        await ledgers(world, {0: 0, 1: 6})
    assert known.gaps == []


async def test_a_drain_that_is_called_off_leaves_everything_where_it_is_served():
    world = await a_world(0, 1)
    async with world.serving(), adapters(world, 0, 1, delay_s={1: 3.0}) as known:
        await world.vpod("a", 4)
        await until(served(known, KEY, {0: 2, 1: 2}))
        await world.annotate(0, **{UNSCHEDULABLE_ANNOTATION: "true"})
        await asyncio.sleep(1)
        await world.annotate(0, **{UNSCHEDULABLE_ANNOTATION: None})
        await asyncio.sleep(120)
        assert await world.placed() == 4
    assert known.gaps == []


async def test_an_acknowledgement_goes_on_with_a_hand_over_at_once():
    world = await a_world(0, 1)
    async with world.serving(), adapters(world, 0, 1) as known:
        await world.vpod("a", 4)
        await until(served(known, KEY, {0: 2, 1: 2}))
        await world.annotate(0, **{UNSCHEDULABLE_ANNOTATION: "true"})
        await ledgers(world, {0: 0, 1: 4}, LOOK_AGAIN_S / 2)


async def test_what_a_hand_over_waits_for_is_told():
    """First the new adapter does not get ready, then it does not serve, then the old one does not
    let go.
    """
    world = await a_world(0)
    async with world.serving() as service, adapters(world, 0) as known:
        await world.vpod("a", 2)
        await until(served(known, KEY, {0: 2}))
        waits = service.committer.hand_overs.describe_waits
        assert waits(POOL, KEY) == []
        await world.pods(1)
        known.never = {(1, "Prepare"), (1, "Serve"), (0, "Drain")}
        async with adapters_beside(known, 1):
            await asyncio.sleep(1)
            await service.placer.move(POOL, [a_move()])
            for state, pod, doing, limit_s in (
                ("Prepare", 1, "get ready", 30),
                ("Serve", 1, "serve", 30),
                ("Drain", 0, "let go", 60),
            ):
                await until(was_told(known, (pod, KEY, state)))
                await asyncio.sleep(12)
                (told,) = waits(POOL, KEY)
                start = f"waits for the adapter of dispatcher-{pod} to {doing} (12 s of {limit_s})"
                assert told == start
                known.never.remove((pod, state))
            await ledgers(world, {0: 0, 1: 2})
            assert waits(POOL, KEY) == []


async def test_a_pod_that_is_down_is_not_named_as_what_a_move_waits_for_that_does_not_concern_it():
    """Every pod of the vpod that did not serve it was named."""
    world = await a_world(0, 1)
    await world.vpod("a", 4)
    async with world.serving() as service, adapters(world, 0, 1) as known:
        await until(served(known, KEY, {0: 2, 1: 2}))
        await world.pods(2)
        known.never = {(2, "Serve")}
        async with adapters_beside(known, 2):
            await asyncio.sleep(1)
            await world.ready(1, ready=False)
            assert await service.placer.move(POOL, [a_move(2, to=2)]) == [a_move(2, to=2)]
            await until(was_told(known, (2, KEY, "Serve")))
            await asyncio.sleep(12)
            (told,) = service.committer.hand_overs.describe_waits(POOL, KEY)
            assert told == "waits for the adapter of dispatcher-2 to serve (12 s of 30)"


async def test_that_a_hand_over_was_taken_back_is_told():
    world = await a_world(0, 1, rebalance={"cooldownSeconds": 120})
    async with world.serving() as service, adapters(world, 0, 1) as known:
        await world.vpod("a", 4)
        await until(served(known, KEY, {0: 2, 1: 2}))
        known.never = {(1, "Serve")}
        await world.annotate(0, **{UNSCHEDULABLE_ANNOTATION: "true"})
        await asyncio.sleep(50)
        assert service.committer.hand_overs.describe_waits(POOL, KEY) == [
            "a move was taken back, because an adapter did not get ready in time: it is not tried "
            "again for 100 s"
        ]


async def test_what_an_adapter_is_told_to_serve_meanwhile_does_not_leave_its_ledger():
    """Seed 124815293: its assignment was written right before the patch that lowered its ledger."""
    world = await a_world()
    await world.pod(0, {KEY: 2}, node="node-0")
    await world.annotate(0, **{ASSIGNMENT_ANNOTATION: an_assignment(1)})
    await world.sync()

    async def tell() -> None:
        await world.annotate(0, **{ASSIGNMENT_ANNOTATION: an_assignment(2, serve=2)})

    world.api.fail("patch", "pods", then=tell)
    committer, decision = world.committer(), release_all(world.caches.state.pools[POOL], KEY)
    committer.reserve("test", decision)
    committed = await committer.commit("test", POOL, [decision])
    assert KEY in committed.failed, "it is decided again, now that more is known"
    assert await world.ledger(0) == {KEY: 2}


def an_assignment(generation: int, *, serve: int = 0) -> str:
    shares = {KEY: AssignedShare(serve, 1, serve, generation)} if serve else {}
    return encode_assignment(Assignment(generation, f"{NS}/dispatcher-0", "uid-0", shares))


async def test_a_share_that_is_prepared_and_then_served_by_nobody_is_told():
    """Its former pod has let go after its time. Until the new one serves, its status says so."""
    world = await a_world(0, handoff={"prepareTimeoutSeconds": 20})
    async with world.serving() as service, adapters(world, 0) as known:
        await world.vpod("a", 4)
        await until(served(known, KEY, {0: 4}))
        known.never = {(1, "Serve")}
        await world.pods(1)
        async with adapters_beside(known, 1):
            await asyncio.sleep(1)
            assert await service.placer.move(POOL, [a_move(4)]) == [a_move(4)]
            await published(world, {1: 4})
            await asyncio.sleep(19)
            assert service.unserved_shares.vreplicas(POOL) == 0  # its former pod serves
            assert (await world.ledger(0)).get(KEY) == 4
            await ledgers(world, {0: 0, 1: 4}, 5)
            (event,) = await world.events("ServeTimedOut")
            assert "dispatcher-1" in event["note"]
            text = service.metrics.render().decode()
            assert 'vreplica_scheduler_handover_timeouts_total{step="serve"} 1.0' in text
            await asyncio.sleep(3)
            told = (await world.conditions())["Available"]
            assert (told["status"], told["reason"]) == ("False", "AdapterNotServing")
            assert "4 on dispatcher-1 (its adapter does not serve them)" in told["message"]
            assert service.unserved_time.seconds[POOL] >= 8
            known.never.clear()
            await asyncio.sleep(3)
            assert (await world.conditions())["Available"]["status"] == "True"
            before = service.unserved_time.seconds[POOL]
            await asyncio.sleep(10)
            assert service.unserved_time.seconds[POOL] == before


async def test_a_part_that_moves_is_served_until_the_new_adapter_serves():
    world = await a_world(0)
    await world.vpod("a", 4)
    async with world.serving() as service, adapters(world, 0, delay_s={0: 0.5, 1: 5.0}) as known:
        await until(served(known, KEY, {0: 4}))
        await world.pods(1)
        async with adapters_beside(known, 1):
            await asyncio.sleep(6)
            assert await service.placer.move(POOL, [a_move(2)]) == [a_move(2)]
            await published(world, {0: 2, 1: 2})
            await world.vpod("b", 1)  # dispatcher-0 is told something new, and says busy for 0.5 s
            await world.set_vreplicas("a", 5)
            least = 9
            for _ in range(80):
                await asyncio.sleep(0.1)
                least = min(least, sum(m.get(KEY, 0) for m in known.serving.values()))
            assert least >= 4


async def test_a_drain_is_counted_and_told_once_though_its_write_is_retried():
    world = await a_world(0)
    await world.vpod("a", 2)
    async with world.serving() as service, adapters(world, 0) as known:
        await until(served(known, KEY, {0: 2}))
        known.never.add((0, "Drain"))
        await world.pods(1)
        async with adapters_beside(known, 1):
            await asyncio.sleep(1)
            assert await service.placer.move(POOL, [a_move()])
            await until(was_told(known, (0, KEY, "Drain")))
            world.api.fail("patch", "pods", name="dispatcher-0", before=lost("patch"), times=3)
            await asyncio.sleep(50)
            await ledgers(world, {0: 0, 1: 2})
            await asyncio.sleep(5)
            (event,) = await world.events("DrainTimedOut")
            text = service.metrics.render().decode()
            found = [
                line
                for line in text.splitlines()
                if 'step="drain"' in line and ("timeouts_total" in line or "seconds_count" in line)
            ]
            assert [line.split()[-1] for line in found] == ["1.0", "1.0"], (found, event["series"])


# -- 9. Exclusive: a lease that has run out is held on to ------------------------------------------


class StoredAsTheServiceDoes(Adapters):
    """What they say is stored as the service stores it."""

    async def _acknowledge(self, ordinal, text, assignment, busy):
        if await self.world.annotation(ordinal, ASSIGNMENT_ANNOTATION) != text:
            return False
        done = {
            state: frozenset(
                key
                for key, share in assignment["shares"].items()
                if share["state"] == state and key not in busy
            )
            for state in ("Serve", "Drain")
        }
        said = Acknowledgement(
            uid="",
            generation=assignment["generation"],
            serving=done["Serve"],
            drained=done["Drain"],
            busy=frozenset(busy),
        )
        told = decode_assignment(text)
        assert told is not None
        stored = encode_acknowledged(acknowledged(said, told))
        await self.world.annotate(ordinal, **{ACKNOWLEDGED_ANNOTATION: stored})
        return True


async def test_a_slow_drain_of_many_does_not_make_the_others_unserved(monkeypatch):
    monkeypatch.setattr(model, "ACKNOWLEDGED_BYTES_MAX", 200)  # for 24 KiB: some 600 names
    world = await a_world(0)
    names = [f"orders-of-shop-{i}" for i in range(10)]
    for name in names:
        await world.vpod(name, 1)
    async with world.serving() as service:
        known = StoredAsTheServiceDoes(world)
        async with adapters_beside(known, 0):
            await until(lambda: len(known.serving.get(0, {})) == 10)
            known.never.add((0, "Drain"))
            await world.pods(1)
            async with adapters_beside(known, 1):
                await asyncio.sleep(1)
                moves = [
                    Move(f"tenant/{n}", "dispatcher-0", "dispatcher-1", 1, MoveReason.COMPACTION)
                    for n in names[:9]
                ]
                assert await service.placer.move(POOL, moves) == moves
                await asyncio.sleep(45)
                stored = json.loads(await world.annotation(0, ACKNOWLEDGED_ANNOTATION) or "")
                assert (stored["serving"], stored["busy"]) == (1, "*")
                assert "tenant/orders-of-shop-9" in known.serving[0]
                assert (await world.conditions("orders-of-shop-9"))["Available"]["status"] == "True"


# -- pods that are down, bystanders, and what comes after a move was taken back --------------------


@pytest.mark.parametrize("how", ["not Ready", "deleted"])
async def test_the_former_pod_goes_on_while_the_next_one_is_down(how: str):
    world = await a_world(0)
    await world.vpod("a", 2)
    async with world.serving() as service, adapters(world, 0) as known:
        await until(served(known, KEY, {0: 2}))
        await world.pods(1)
        known.never = {(1, "Serve")}
        next_adapter = asyncio.create_task(known.run(1))
        await asyncio.sleep(1)
        assert await service.placer.move(POOL, [a_move()]) == [a_move()]
        await published(world, {1: 2})
        next_adapter.cancel()
        if how == "deleted":
            await world.remove_pod(1)
        else:
            await world.ready(1, ready=False)
        await asyncio.sleep(PREPARE_S - 5)
        assert (known.gaps, await world.events("ServeTimedOut")) == ([], [])
        await asyncio.sleep(10)
        [late] = await world.events("ServeTimedOut")
        assert "dispatcher-1" in late["note"]


async def test_a_pod_that_the_move_does_not_concern_is_not_waited_for():
    world = await a_world(0, 1)
    await world.vpod("a", 4)
    async with world.serving() as service, adapters(world, 0) as known:
        bystander = asyncio.create_task(known.run(1))
        await until(served(known, KEY, {0: 2, 1: 2}))
        await world.pods(2)
        async with adapters_beside(known, 2):
            await asyncio.sleep(1)
            bystander.cancel()  # it goes on serving, and reads its next assignment late
            await world.vpod("b", 3)
            await asyncio.sleep(3)
            assert await service.placer.move(POOL, [a_move(2, to=2)]) == [a_move(2, to=2)]

            async def is_gone() -> bool:
                return KEY not in await world.ledger(0)

            await until(is_gone, timeout_s=3)
            assert await world.events("ServeTimedOut") == []


async def test_the_next_destination_of_a_hand_over_has_its_own_time_to_get_ready():
    world = await a_world(0)
    await world.vpod("a", 2)
    async with world.serving() as service, adapters(world, 0) as known:
        await until(served(known, KEY, {0: 2}))
        await world.pods(1, 2)
        known.never, known.delay_s = {(1, "Prepare")}, {2: 8.0}
        async with adapters_beside(known, 1, 2):
            await asyncio.sleep(10)
            assert await service.placer.move(POOL, [a_move(2, to=1)])
            await asyncio.sleep(25)
            for ordinal in (0, 1):
                await world.annotate(ordinal, **{UNSCHEDULABLE_ANNOTATION: "true"})
            await published(world, {2: 2}, timeout_s=20)
            assert await world.events("PrepareTimedOut") == []


async def test_what_a_vpod_gives_up_after_a_move_was_taken_back_is_told_as_such():
    world = await a_world(0, 1, rebalance={"cooldownSeconds": 300})
    await world.vpod("a", 4)
    async with world.serving() as service, adapters(world, 0, 1, delay_s={1: 1.0}) as known:
        await until(served(known, KEY, {0: 2, 1: 2}))
        await world.pods(2)
        known.never = {(2, "Prepare")}
        async with adapters_beside(known, 2):
            await asyncio.sleep(1)
            assert await service.placer.move(POOL, [a_move(2, to=2)])
            await asyncio.sleep(PREPARE_S + 10)
            assert await world.published("a") == {0: 2, 1: 2}, "taken back"
            await world.set_vreplicas("a", 2)
            intents = set()
            for _ in range(100):
                await asyncio.sleep(0.02)
                shares = [(await known.assignment(one))["shares"].get(KEY) for one in (0, 1)]
                intents |= {one["intent"] for one in shares if one and one["state"] == "Drain"}
            assert intents == {"Scale"}


async def test_an_eviction_soon_after_a_move_was_taken_back_is_handed_over_all_the_same():
    world = await a_world(0, replicas=2, rebalance={"cooldownSeconds": 300})
    await with_webhook(world)
    await world.vpod("a", 2)
    async with world.serving() as service, adapters(world, 0) as known:
        await until(served(known, KEY, {0: 2}))
        await world.pods(1)
        known.never = {(1, "Prepare")}
        async with adapters_beside(known, 1):
            await asyncio.sleep(1)
            assert await service.placer.move(POOL, [a_move()]) == [a_move()]
            await asyncio.sleep(PREPARE_S + 2)
            assert len(await world.events("PrepareTimedOut")) == 1
            known.never.clear()
            began = asyncio.get_running_loop().time()
            await evict(world, 0)
            assert asyncio.get_running_loop().time() - began < 30
            assert known.gaps == []


@pytest.mark.parametrize("profile", ["default", "knative"])
async def test_what_has_no_room_stays_on_a_drained_pod_whatever_the_profile(profile: str):
    """Knative's rules drop it, and nobody would serve it."""
    world = await a_world(0, profile=profile, replicas=1, minPods=1)
    await world.vpod("a", 2)
    async with world.serving(), adapters(world, 0) as known:
        await until(served(known, KEY, {0: 2}))
        await world.annotate(0, **{UNSCHEDULABLE_ANNOTATION: "true"})
        await asyncio.sleep(20)
        assert (known.gaps, await world.published("a")) == ([], {0: 2})


async def test_a_move_that_waits_is_not_decided_back_under_rules_that_start_from_the_status():
    world = await a_world(0, profile="knative-maxfillup")
    await world.vpod("a", 2)
    async with world.serving() as service, adapters(world, 0) as known:
        await until(served(known, KEY, {0: 2}))
        await world.pods(1)
        known.delay_s = {1: 3.0}
        async with adapters_beside(known, 1):
            await asyncio.sleep(1)
            assert await service.placer.move(POOL, [a_move()]) == [a_move()]
            await published(world, {1: 2}, timeout_s=10)
            assert known.gaps == []


async def test_the_next_leader_does_not_wait_for_a_bystander_that_is_down():
    world = await a_world(0, 2)
    await world.vpod("a", 6)
    async with adapters(world, 0, 2) as known:
        async with world.serving() as service:
            await until(served(known, KEY, {0: 3, 2: 3}), timeout_s=60)
            await world.ready(2, ready=False)
            known.ends(2)
            known.delay_s[1] = 3.0
            await world.pods(1)
            next_adapter = asyncio.create_task(known.run(1))
            await asyncio.sleep(1)
            move = asyncio.create_task(service.placer.move(POOL, [a_move(3)]))
            await published(world, {1: 3, 2: 3})
        async with world.serving(seed=2):
            await ledgers(world, {0: 0}, timeout_s=20)
            assert await world.events("ServeTimedOut") == []
        next_adapter.cancel()
        move.cancel()


# -- what is known only while this replica leads, and while a pod is the same ----------------------


def with_a_full_assignment() -> tuple[World, HandOvers, Callable[[], bool]]:
    """Also whether the pod's adapter is known not to be told of the vpod."""
    world, pod = World(), a_pod(0, resource_version="1")
    world.caches.pods.update(pod)
    hand_overs = world.committer().hand_overs
    hand_overs.views.leave_out(pod, frozenset({KEY}))
    return world, hand_overs, lambda: hand_overs.views.adapter(pod).is_left_out(KEY)


async def test_what_a_full_assignment_left_out_is_forgotten_once_another_replica_has_led():
    """It was not waited for, although the other replica had told the adapter of it."""
    _, hand_overs, is_left_out = with_a_full_assignment()
    assert is_left_out()
    hand_overs.forget(WHOLE)
    assert not is_left_out()


async def test_what_a_full_assignment_left_out_is_not_taken_for_that_of_the_ordinals_next_pod():
    """It was forgotten only if the watch showed the deletion of the last pod by itself."""
    world, _, is_left_out = with_a_full_assignment()
    assert is_left_out()
    world.caches.pods.update(a_pod(0, uid="next", resource_version="2"))
    assert not is_left_out()
