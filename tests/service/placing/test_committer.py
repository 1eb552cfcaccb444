"""Decisions become writes: in which order, in how many, and what is left when one of them fails."""

import asyncio
from collections.abc import Mapping

import pytest

from extender.engine.placing.explain import Explanation
from extender.engine.placing.plan import Decision, release_all
from extender.kube.api import PODS, VPODS, ApiError
from extender.model import names
from extender.model.errors import LedgerTooLarge
from extender.model.ledger import Share, decode_ledger
from extender.model.objects import placement_order
from extender.model.reasons import ConflictReason
from extender.service.binding.pod_binder import PodBinder
from extender.service.placing.batch import Committed
from extender.service.placing.committer import RESERVATION_TTL_S, Committer
from extender.service.placing.ledger_patch import ledger_patch
from tests.support.builders import NS, POOL, a_pod
from tests.support.service import TENANT, World, a_world, always, lost

OWNER = ("test", 1)


def a_decision(
    name: str, target: Mapping[int, int], *, wanted: int | None = None, weight: int = 1
) -> Decision:
    placed = sum(target.values())
    wanted = placed if wanted is None else wanted
    left = wanted - placed
    names = {f"dispatcher-{ordinal}": count for ordinal, count in target.items()}
    ordered = {name: names[name] for name in sorted(names, key=placement_order)}
    reason = ConflictReason.INSUFFICIENT_SLOTS if left else None
    return Decision(
        f"{TENANT}/{name}", POOL, ordered, weight, left, Explanation(wanted, (), left, reason)
    )


def made_now(world: World, decision: Decision) -> Decision:
    """The decision as one about the vpod that the cache has in that pool."""
    vpod = world.caches.vpods.latest(decision.vpod)
    known = vpod is not None and vpod.pool == decision.pool
    return (
        decision._replace(decided_version=(vpod.uid, vpod.generation))
        if vpod is not None and known
        else decision
    )


async def placed_on_the_first_of_two() -> World:
    """Three vreplicas of vpod ``a``."""
    world = await World.create()
    await world.pod(0, {"tenant/a": 3}, node="node-0")
    await world.pods(1)
    await world.vpod("a", 3, {0: 3})
    await world.sync()
    return world


async def commit(world: World, *wanted: Decision) -> dict[str, str]:
    """vpod key -> why not all of its decision was written."""
    decisions = [made_now(world, decision) for decision in wanted]
    return (await reserve_and_commit(world.committer(), *decisions)).failed


async def reserve_and_commit(committer: Committer, *wanted: Decision | None) -> Committed:
    decisions = [decision for decision in wanted if decision is not None]
    assert len(decisions) == len(wanted)
    for decision in decisions:
        committer.reserve(OWNER, decision)
    return await committer.commit(OWNER, POOL, decisions)


def wrote(world: World) -> list[str]:
    return [f"{call.what} {call.name}" for call in world.api.writes()]


async def test_growing_writes_the_ledger_before_the_status():
    world = await a_world(0)
    await world.vpod("a", 3)
    await world.sync()
    assert await commit(world, a_decision("a", {0: 3})) == {}
    assert wrote(world) == ["pods dispatcher-0", "vpods/status a"]
    assert await world.ledger(0) == {"tenant/a": 3}
    assert await world.published() == {0: 3}


async def test_shrinking_writes_the_status_before_the_ledger():
    world = await World.create()
    await world.pod(0, {"tenant/a": 3}, node="node-0")
    await world.vpod("a", 1, {0: 3})
    await world.sync()
    await commit(world, a_decision("a", {0: 1}))
    assert wrote(world) == ["vpods/status a", "pods dispatcher-0"]
    assert await world.ledger(0) == {"tenant/a": 1}


async def test_a_move_writes_its_new_pod_then_the_status_then_its_old_pod():
    world = await placed_on_the_first_of_two()
    await commit(world, a_decision("a", {1: 3}))
    assert wrote(world) == ["pods dispatcher-1", "vpods/status a", "pods dispatcher-0"]
    assert (await world.ledger(0), await world.ledger(1)) == ({}, {"tenant/a": 3})


async def test_many_vpods_on_one_pod_are_one_patch_of_it():
    world = await a_world(0)
    vpods = [f"v{i}" for i in range(10)]
    for name in vpods:
        await world.vpod(name, 2)
    await world.sync()
    await commit(world, *(a_decision(name, {0: 2}) for name in vpods))
    assert world.api.count("patch", "pods") == 1
    assert world.api.count("patch", "vpods/status") == 10
    assert len(await world.ledger(0)) == 10


@pytest.mark.parametrize("published", [2, 1], ids=["all", "a part"])
async def test_what_a_vpod_still_publishes_in_the_pool_that_it_has_left_keeps_its_weight(
    published: int,
):
    world = await World.create()
    await world.pod(0, {"tenant/a": Share(2, 3)}, node="node-0")
    pool = {"namespace": NS, "name": "other"}
    await world.vpod("a", 2, {0: published}, slotsPerVReplica=3, poolRef=pool)
    await world.sync()
    failed = await commit(world, release_all(world.caches.state.pool(POOL), "tenant/a"))
    assert failed == {"tenant/a": "its new pool has not published yet where it goes"}
    annotation = await world.annotation(0, names.PLACEMENTS_ANNOTATION)
    assert decode_ledger(annotation) == {"tenant/a": Share(published, 3)}


async def test_a_vpod_that_is_gone_leaves_the_ledger_in_one_write():
    world = await World.create()
    await world.pod(0, {"tenant/a": 3, "tenant/b": 1}, node="node-0")
    await world.sync()
    await commit(world, release_all(world.caches.state.pool(POOL), "tenant/a"))
    assert wrote(world) == ["pods dispatcher-0"]
    assert await world.ledger(0) == {"tenant/b": 1}


async def test_writing_what_is_written_already_writes_nothing():
    world = await World.create()
    await world.pod(0, {"tenant/a": 3}, node="node-0")
    await world.vpod("a", 3, {0: 3})
    await world.sync()
    await commit(world, a_decision("a", {0: 3}))
    assert wrote(world) == []


async def test_the_scheduled_condition_says_why_not_and_since_when():
    world = await a_world(0)
    await world.vpod("a", 30)
    await world.sync()
    await commit(world, a_decision("a", {0: 20}, wanted=30))
    assert await world.condition() == ("False", "InsufficientSlots")
    status = await world.status()
    assert (status["scheduledVReplicas"], status["observedGeneration"]) == (20, 1)
    await world.set_vreplicas("a", 20)
    await world.sync()
    await commit(world, a_decision("a", {0: 20}))
    assert await world.condition() == ("True", "AllPlaced")
    assert (await world.status())["observedGeneration"] == 2


async def test_a_status_keeps_conditions_of_others():
    world = await a_world(0)
    await world.vpod("a", 3)
    other = {
        "type": "Billed",
        "status": "True",
        "reason": "Paid",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    await world.patch_status(VPODS, TENANT, "a", conditions=[other])
    await world.sync()
    await commit(world, a_decision("a", {0: 3}))
    assert {c["type"] for c in (await world.status())["conditions"]} == {
        "Billed",
        "Scheduled",
        "Available",
    }


# -- what goes wrong -------------------------------------------------------------------------------


async def test_a_ledger_that_somebody_else_wrote_is_not_overwritten():
    world = await a_world(0)
    await world.vpod("a", 15)
    await world.sync()
    before = world.digest()
    await world.edit_ledger(0, {"tenant/x": 10})
    failed = await commit(world, a_decision("a", {0: 15}))
    assert set(failed) == {"tenant/a"}
    assert await world.ledger(0) == {"tenant/x": 10}
    assert await world.published() == {}
    assert world.metrics.ledger_conflicts._value.get() == 1
    await world.edit_ledger(0, {})
    await world.sync()
    assert world.digest() == before, "nothing of the batch stays reserved"


@pytest.mark.parametrize(
    "verb_lost", [pytest.param("pods", id="ledger"), pytest.param("vpods/status", id="status")]
)
@pytest.mark.parametrize("arrived", [True, False], ids=["arrived", "never-arrived"])
async def test_a_lost_answer_neither_loses_nor_doubles_anything(verb_lost: str, arrived: bool):
    world = await a_world(0)
    await world.vpod("a", 3)
    await world.sync()
    world.api.fail("patch", verb_lost, **{"after" if arrived else "before": lost()})
    failed = await commit(world, a_decision("a", {0: 3}))
    assert bool(failed) is not (arrived and verb_lost == "pods")
    await world.check()
    await world.sync()
    assert await commit(world, a_decision("a", {0: 3})) == {}
    assert await world.ledger(0) == {"tenant/a": 3}
    assert await world.published() == {0: 3}


@pytest.mark.looptime
async def test_a_write_in_doubt_keeps_its_slots_until_its_reservation_expires():
    world = await a_world(0)
    await world.vpod("a", 15)
    await world.sync()
    before = world.digest()
    world.api.fail("patch", "pods", before=lost())
    world.api.fail("get", "pods", before=lost())
    await commit(world, a_decision("a", {0: 15}))
    assert world.caches.state.pool(POOL).free_of(0) == 5
    await asyncio.sleep(RESERVATION_TTL_S)
    world.caches.state.expire(asyncio.get_running_loop().time())
    await world.patch_status(VPODS, TENANT, "a", placements=[])
    await world.sync()
    assert world.digest() == before


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ApiError(500, "InternalError", "etcd"), id="500"),
        pytest.param(ApiError(404, "NotFound", "gone"), id="404"),
    ],
)
async def test_what_no_ledger_took_is_not_published(error: ApiError):
    world = await a_world(0, 1)
    await world.vpod("a", 4)
    await world.sync()
    world.api.fail("patch", "pods", name="dispatcher-1", before=error)
    failed = await commit(world, a_decision("a", {0: 2, 1: 2}))
    assert set(failed) == {"tenant/a"}
    assert await world.published() == {0: 2}
    assert await world.condition() == ("False", "InsufficientSlots")
    await world.check()


async def test_what_a_vpod_needs_together_is_published_together():
    world = await a_world(0, 1)
    await world.vpod("a", 4, minAvailable=3)
    await world.sync()
    error = ApiError(500, "InternalError", "etcd")
    world.api.fail("patch", "pods", name="dispatcher-1", before=error)
    await commit(world, a_decision("a", {0: 2, 1: 2}))
    assert await world.published() == {}
    await commit(world, a_decision("a", {0: 2, 1: 2}))
    assert await world.published() == {0: 2, 1: 2}
    await world.check()


async def test_a_move_whose_new_pod_refuses_stays_published_where_it_was():
    world = await placed_on_the_first_of_two()
    world.api.fail(
        "patch", "pods", name="dispatcher-1", before=ApiError(500, "InternalError", "etcd")
    )
    await commit(world, a_decision("a", {1: 3}))
    assert await world.published() == {0: 3}
    assert await world.ledger(0) == {"tenant/a": 3}


async def test_a_status_that_was_refused_keeps_the_ledger_that_covers_it():
    world = await World.create()
    await world.pod(0, {"tenant/a": 3}, node="node-0")
    await world.vpod("a", 1, {0: 3})
    await world.sync()
    world.api.fail("patch", "vpods/status", before=ApiError(500, "InternalError", "etcd"))
    assert set(await commit(world, a_decision("a", {0: 1}))) == {"tenant/a"}
    assert await world.ledger(0) == {"tenant/a": 3}


async def test_one_vpod_that_cannot_be_written_does_not_hinder_the_others():
    world = await a_world(0)
    for name in ("a", "b", "c"):
        await world.vpod(name, 2)
    await world.sync()
    world.api.fail("patch", "vpods/status", name="b", before=ApiError(500, "InternalError", "etcd"))
    failed = await commit(world, *(a_decision(name, {0: 2}) for name in ("a", "b", "c")))
    assert set(failed) == {"tenant/b"}
    assert await world.published("a") == await world.published("c") == {0: 2}


async def test_a_ledger_larger_than_the_pods_slots_is_never_written():
    world = await World.create()
    await world.pod(0, {"tenant/x": 10}, node="node-0")
    await world.vpod("a", 11)
    await world.sync()
    failed = await commit(world, a_decision("a", {0: 11}))
    assert "over the pod's 20" in failed["tenant/a"]
    assert wrote(world) == ["vpods/status a"]
    assert await world.published() == {}


async def test_a_ledger_beyond_a_dimension_of_the_pool_is_never_written():
    world = await World.create(capacities={"cpu": 10})
    await world.pod(0, {"tenant/x": Share(2, 1, (("cpu", 4),))}, node="node-0")
    await world.vpod("a", 3, perVReplica={"cpu": 1})
    await world.sync()
    decision = a_decision("a", {0: 3})._replace(amounts=(("cpu", 1),))
    failed = await commit(world, decision)
    assert failed["tenant/a"] == "ledger of 11 cpu is over the pod's 10"
    assert await world.ledger(0) == {"tenant/x": 2}


async def test_a_ledger_says_what_its_vreplicas_take_of_each_dimension():
    world = await a_world(0, capacities={"cpu": 10})
    await world.vpod("a", 3, perVReplica={"cpu": 2})
    await world.sync()
    assert await commit(world, a_decision("a", {0: 3})._replace(amounts=(("cpu", 2),))) == {}
    ledger = await world.annotation(0, names.PLACEMENTS_ANNOTATION)
    assert ledger == '{"tenant/a":[3,1,{"cpu":2}]}'
    assert await world.published() == {0: 3}


async def test_a_ledger_over_a_lowered_dimension_may_still_shrink():
    world = await World.create(capacities={"cpu": 3})
    await world.pod(0, {"tenant/a": Share(4, 1, (("cpu", 2),))}, node="node-0")
    await world.vpod("a", 2, {0: 4}, perVReplica={"cpu": 2})
    await world.sync()
    decision = a_decision("a", {0: 2})._replace(amounts=(("cpu", 2),))
    assert await commit(world, decision) == {}
    assert await world.ledger(0) == {"tenant/a": 2}


def test_a_ledger_over_128_kib_is_refused():
    pod = a_pod(0, {})
    with pytest.raises(LedgerTooLarge):
        ledger_patch(pod, {f"tenant/{i:05}" + "x" * 240: Share(1) for i in range(600)}, 10_000)


async def test_a_ledger_that_is_over_its_slots_may_still_shrink():
    world = await World.create()
    await world.pod(0, {"tenant/a": 30}, node="node-0")
    await world.vpod("a", 25, {0: 30})
    await world.sync()
    assert await commit(world, a_decision("a", {0: 25})) == {}
    assert await world.ledger(0) == {"tenant/a": 25}


async def test_a_recreated_pod_does_not_get_its_predecessors_ledger_patch():
    world = await a_world(0)
    await world.vpod("a", 3)
    await world.sync()
    await world.remove_pod(0)
    await world.pods(0)
    assert set(await commit(world, a_decision("a", {0: 3}))) == {"tenant/a"}
    assert await world.ledger(0) == {}
    await world.check()


async def test_a_spec_that_changes_while_its_ledger_is_written_is_not_reported_as_observed():
    world = await a_world(0)
    await world.vpod("a", 3)
    await world.sync()

    async def change() -> None:
        await world.set_vreplicas("a", 9)
        await world.sync("vpods")

    world.api.fail("patch", "pods", then=change)
    await commit(world, a_decision("a", {0: 3}))
    assert (await world.status()).get("observedGeneration", 0) != 2


async def test_a_vpod_recreated_under_the_same_name_does_not_get_its_predecessors_status():
    world = await a_world(0)
    await world.vpod("a", 3)
    await world.sync()

    async def recreate() -> None:
        await world.cluster.delete(VPODS, TENANT, "a")
        await world.vpod("a", 5)
        await world.sync("vpods")

    world.api.fail("patch", "pods", then=recreate)
    await commit(world, a_decision("a", {0: 3}))
    assert await world.published() == {}


async def test_what_a_bind_under_way_carries_is_not_published_before_it_is_confirmed():
    world = await a_world(0)
    await world.vpod("a", 5)
    uid = await world.pod(1)
    await world.sync()
    binder = world.binder()
    pod = world.caches.pods.get(f"{NS}/dispatcher-1")
    assert pod is not None
    assert pod.uid == uid
    assumed = binder.assume(pod, "node-1")
    assert assumed.bind_ledger.added == {"tenant/a": 5}
    await commit(world, a_decision("a", {1: 5}))
    assert await world.published() == {}
    await binder.bind(assumed)
    await world.sync()
    await commit(world, a_decision("a", {1: 5}))
    assert await world.published() == {1: 5}


async def test_who_no_longer_leads_writes_nothing_more():
    world = await placed_on_the_first_of_two()

    async def depose() -> None:
        world.leads = False

    world.api.fail("patch", "pods", then=depose)
    assert set(await commit(world, a_decision("a", {1: 3}))) == {"tenant/a"}
    assert wrote(world) == ["pods dispatcher-1"]
    await world.check()


@pytest.mark.parametrize("calls", [1, 2, 3])
async def test_a_commit_cancelled_after_any_write_reserves_nothing_and_leaves_all_covered(
    calls: int,
):
    world = await placed_on_the_first_of_two()
    served = 0

    def count(_call) -> None:
        nonlocal served
        served += 1
        if served == calls:
            committing.cancel()

    world.api.served = count
    committing = asyncio.ensure_future(commit(world, a_decision("a", {1: 3})))
    await asyncio.wait({committing})
    await world.check()
    await world.sync()
    claims = world.caches.state.pool(POOL).claims_of("tenant/a").values()
    assert all(claim.reserved is None for claim in claims)


@pytest.mark.parametrize("annotation", [None, "not json"], ids=["no ledger", "a spoilt one"])
async def test_the_first_to_write_a_ledger_that_is_missing_covers_all_that_is_published_there(
    annotation,
):
    """Found by a soak: another scheduler had bound the pod, and a vpod in back-off was left out."""
    world = await World.create()
    await world.pod(
        0,
        None,
        node="node-0",
        annotations={"vreplica.dev/placements": annotation} if annotation else {},
    )
    await world.vpod("a", 3, {0: 3})
    await world.vpod("b", 2, {0: 2})
    await world.sync()
    await commit(world, a_decision("a", {0: 3}))
    assert await world.ledger(0) == {"tenant/a": 3, "tenant/b": 2}


async def test_an_unreadable_ledger_is_replaced_only_as_long_as_it_is_the_one_we_read():
    world = await World.create()
    await world.pod(0, None, node="node-0", annotations={"vreplica.dev/placements": "not json"})
    await world.vpod("a", 3, {0: 3})
    await world.sync()
    await world.edit_ledger(0, "something else")
    assert set(await commit(world, a_decision("a", {0: 3}))) == {"tenant/a"}
    pod = await world.cluster.get(PODS, NS, "dispatcher-0")
    assert pod["metadata"]["annotations"]["vreplica.dev/placements"] == "something else"


@pytest.mark.parametrize("annotation", [None, "not json"], ids=["no ledger", "a spoilt one"])
async def test_a_ledger_that_cannot_hold_what_statuses_say_of_its_pod_fails_its_vpods(annotation):
    """Even the unchanged shares were too many, and that error ended the leader's loops."""
    world = await World.create(slots=1000)
    await world.pod(
        0,
        None,
        node="node-0",
        slots=1000,
        annotations={"vreplica.dev/placements": annotation} if annotation else {},
    )
    many = [f"{number:03}" + "x" * 240 for number in range(550)]
    for name in many:
        await world.vpod(name, 1, {0: 1})
    await world.vpod("new", 1)
    await world.sync()
    failed = await commit(world, a_decision(many[0], {0: 1}), a_decision("new", {0: 1}))
    assert set(failed) == {f"tenant/{many[0]}", "tenant/new"}
    assert world.api.count("patch", "pods") == 0


async def test_a_leader_that_reads_of_another_pod_of_the_name_believes_the_old_ledger_no_more():
    world = await World.create()
    await world.pod(0, {"tenant/a": 2}, node="node-0")
    await world.vpod("a", 2)
    await world.vpod("b", 1)
    await world.sync()
    await world.remove_pod(0)
    await world.pods(0)
    committer = world.committer()
    for name, target in (("b", {0: 1}), ("a", {0: 2})):
        decision = made_now(world, a_decision(name, target))
        failed = (await reserve_and_commit(committer, decision)).failed
        assert set(failed) == {f"tenant/{name}"}
    assert await world.published("a") == {}
    await world.check()


@pytest.mark.parametrize(
    "error",
    [None, ApiError(500, "InternalError", "etcd"), lost()],
    ids=["recreated", "500", "no answer"],
)
async def test_what_only_the_watch_has_told_of_a_ledger_is_asked_for_before_it_is_published(
    error,
):
    world = await World.create()
    await world.pod(0, {"tenant/a": 2}, node="node-0")
    await world.vpod("a", 2)
    await world.sync()
    if error is None:
        await world.remove_pod(0)
        await world.pods(0)
    else:
        world.api.fail("patch", "pods", before=error)
        world.api.fail("get", "pods", before=error)
    assert set(await commit(world, a_decision("a", {0: 2}))) == {"tenant/a"}
    assert await world.published() == {}
    await world.check()


async def test_what_was_bound_here_a_moment_ago_is_published_without_asking():
    world = await World.create()
    await world.vpod("a", 2)
    uid = await world.pod(0)
    await world.sync()
    committer = world.committer()
    binder = PodBinder(
        world.api,
        world.caches,
        world.binder(),
        knows_past=always,
        on_bound=committer.ledger_confirmations.note,
    )
    await binder.bind(NS, "dispatcher-0", uid, "node-1")
    await world.sync()
    decision = made_now(world, a_decision("a", {0: 2}))
    assert (await reserve_and_commit(committer, decision)).failed == {}
    assert wrote(world)[-1:] == ["vpods/status a"]
    assert world.api.count("patch", "pods") == 0


async def test_what_grows_beyond_the_pod_does_not_keep_from_being_asked_what_will_make_room():
    """Both have become other vpods with other weights; the ledger is of their predecessors."""
    world = await World.create(slotsPerPod=7)
    await world.pod(0, {"tenant/a": Share(2, 3), "tenant/b": 1}, node="node-0", slots=7)
    await world.vpod("a", 2)
    await world.vpod("b", 1, slotsPerVReplica=3)
    await world.sync()
    failed = await commit(world, a_decision("a", {0: 2}), a_decision("b", {0: 1}, weight=3))
    assert set(failed) == {"tenant/b"}
    assert await world.published("a") == {0: 2}
    assert await world.ledger(0) == {"tenant/a": 2, "tenant/b": 1}
    await world.sync()
    assert await commit(world, a_decision("b", {0: 1}, weight=3)) == {}
