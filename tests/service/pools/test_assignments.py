"""Adapters of a pool with spec.handoff are told what their ledger has, and nobody else is told
anything.
"""

import asyncio
import json
from functools import partial
from typing import Any

import pytest

from extender.kube.api import ADAPTERPOOLS, VPODS, Api, ApiError, Conflict
from extender.kube.fence import NotLeading
from extender.model import assignment as model
from extender.model.assignment import DRAINS_BYTES, Assignment, encode_assignment
from extender.model.moves import Move, MoveReason
from extender.model.names import (
    ACKNOWLEDGED_ANNOTATION,
    ASSIGNMENT_ANNOTATION,
    ASSIGNMENT_BYTES_MAX,
    UNSCHEDULABLE_ANNOTATION,
)
from extender.service.pools.assignments import own_assignment
from tests.support.adapters import adapters, adapters_beside
from tests.support.builders import NS, POOL, a_pod
from tests.support.service import TENANT, World, lost, until

pytestmark = pytest.mark.looptime


async def a_world(*ordinals: int, **pool) -> World:
    pool = {"handoff": {}, "minPods": len(ordinals), "rescheduleAfterSeconds": None, **pool}
    world = await World.create(replicas=len(ordinals), **pool)
    await world.pods(*ordinals)
    return world


async def assignment(world: World, ordinal: int) -> dict[str, Any] | None:
    text = await world.annotation(ordinal, ASSIGNMENT_ANNOTATION)
    return json.loads(text) if text is not None else None


async def shares(world: World, ordinal: int) -> dict[str, tuple[int, int]]:
    """Vpod -> (vreplicas, of)."""
    told = await assignment(world, ordinal)
    return {k: (s["vreplicas"], s["of"]) for k, s in (told or {"shares": {}})["shares"].items()}


def tells(world: World, **wanted: dict[str, tuple[int, int]]):
    """For ``until``: the pods (by name without the pool's) are told that."""

    async def is_so() -> bool:
        return all(
            [
                await shares(world, int(pod.removeprefix("pod"))) == told
                for pod, told in wanted.items()
            ]
        )

    return is_so


async def test_each_pod_is_told_what_its_ledger_has():
    world = await a_world(0, 1)
    async with world.serving():
        await world.vpod("a", 3)
        await until(tells(world, pod0={"tenant/a": (2, 3)}, pod1={"tenant/a": (1, 3)}))
        told = await assignment(world, 0)
    assert told is not None
    assert told["pod"] == f"{NS}/dispatcher-0"
    assert told["uid"] == await world.uid(0)
    assert told["shares"]["tenant/a"]["state"] == "Serve"


async def test_a_pod_is_told_although_its_leader_does_not_lead_at_one_moment(
    monkeypatch: pytest.MonkeyPatch,
):
    """Seed 260861382: nothing changed for the pod after that, so it was never told."""
    world = await a_world(0)
    async with world.serving() as service:
        fenced, refused = service.assignments._fenced, 0

        def at_first(pool: str) -> Api:
            nonlocal refused
            refused += 1
            if refused == 1:
                raise NotLeading
            return fenced(pool)

        monkeypatch.setattr(service.assignments, "_fenced", at_first)
        await world.vpod("a", 3)
        await until(tells(world, pod0={"tenant/a": (3, 3)}))
    assert refused > 1


def test_what_an_ordinals_previous_pod_was_told_is_not_for_its_next_one():
    told = encode_assignment(Assignment(4, f"{NS}/dispatcher-0", "uid-2", {}))
    previous, other = (a_pod(0, uid=uid, assignment_text=told) for uid in ("uid-2", "uid-3"))
    assert own_assignment(previous) == Assignment(4, previous.key, "uid-2", {})
    assert own_assignment(other) is None


async def test_a_pod_that_carries_nothing_is_told_so():
    world = await a_world(0)

    async with world.serving():
        await until(lambda: assignment(world, 0))
    assert (await assignment(world, 0) or {})["shares"] == {}


async def test_a_pod_that_this_replica_binds_is_told():
    """What is assumed for its Binding already looks as the bound pod does."""
    world = await World.create(replicas=1, minPods=1, handoff={}, rescheduleAfterSeconds=None)
    await world.pod(0, {})

    async with world.serving() as service:
        await asyncio.sleep(1.0)  # the first look is over
        async with world.adapters(service):
            await until(lambda: assignment(world, 0))


async def test_a_vpod_that_grows_elsewhere_changes_what_its_other_pods_are_told():
    world = await a_world(0, 1)
    async with world.serving():
        await world.vpod("a", 2)
        await until(tells(world, pod0={"tenant/a": (1, 2)}, pod1={"tenant/a": (1, 2)}))
        epochs = [(await assignment(world, i) or {})["shares"]["tenant/a"]["epoch"] for i in (0, 1)]
        await world.set_vreplicas("a", 3)
        await until(tells(world, pod0={"tenant/a": (2, 3)}, pod1={"tenant/a": (1, 3)}))
        after = [(await assignment(world, i) or {})["shares"]["tenant/a"]["epoch"] for i in (0, 1)]
    assert after == epochs


async def test_a_callers_vpod_that_grows_elsewhere_changes_what_its_other_pods_are_told():
    world = await a_world(0, 1)
    key = "tenant/a@broker.x.dev"

    async with world.serving() as service:

        async def ask(vreplicas: int) -> None:
            vpod = {"namespace": "tenant", "name": "a", "kind": "Broker", "group": "x.dev"}
            pool = {"namespace": NS, "name": "dispatcher"}
            body = {"vpod": {**vpod, "vreplicas": vreplicas, "placements": []}, "pool": pool}
            await service.schedule_verb().schedule(json.dumps(body).encode())

        await until(service.leading)
        await ask(2)
        await until(tells(world, pod0={key: (1, 2)}, pod1={key: (1, 2)}))
        await ask(3)
        await until(tells(world, pod0={key: (2, 3)}, pod1={key: (1, 3)}))


async def test_a_pool_without_handoff_tells_nothing_and_writes_nothing_more():
    world = await World.create(replicas=1, minPods=1, rescheduleAfterSeconds=None)
    await world.pods(0)

    async with world.serving():
        await world.vpod("a", 1)
        await until(lambda: world.published("a"), {0: 1})
        await asyncio.sleep(60)
    assert await assignment(world, 0) is None
    assert world.api.count("patch", "pods") == 1  # the ledger


async def test_the_annotations_go_with_spec_handoff():
    world = await a_world(0)
    async with world.serving():
        await world.vpod("a", 1)
        await until(tells(world, pod0={"tenant/a": (1, 1)}))
        await world.annotate(0, **{ACKNOWLEDGED_ANNOTATION: '{"generation":1,"serving":1}'})
        await world.patch_pool(handoff=None)
        await until(lambda: world.annotation(0, ASSIGNMENT_ANNOTATION), None)
        await until(lambda: world.annotation(0, ACKNOWLEDGED_ANNOTATION), None)


async def test_the_annotations_go_with_the_adapterpool_without_any_other_change():
    """They stayed until something else changed about the pods."""
    world = await a_world(0)
    async with world.serving():
        await world.vpod("a", 1)
        await until(tells(world, pod0={"tenant/a": (1, 1)}))
        await asyncio.sleep(5)
        await world.cluster.delete(ADAPTERPOOLS, NS, "dispatcher")
        await until(lambda: world.annotation(0, ASSIGNMENT_ANNOTATION), None)


async def test_what_a_pods_template_says_of_acknowledgements_goes_with_the_first_assignment():
    world = await a_world(0)
    said = '{"generation":4000000000000000000,"serving":1}'
    await world.annotate(0, **{ACKNOWLEDGED_ANNOTATION: said})
    async with world.serving():
        await world.vpod("a", 1)
        await until(tells(world, pod0={"tenant/a": (1, 1)}))
        assert await world.annotation(0, ACKNOWLEDGED_ANNOTATION) is None


async def test_an_acknowledgement_stays_when_the_assignment_changes():
    world = await a_world(0)
    async with world.serving():
        await world.vpod("a", 1)
        await until(tells(world, pod0={"tenant/a": (1, 1)}))
        await world.annotate(0, **{ACKNOWLEDGED_ANNOTATION: '{"generation":1,"serving":1}'})
        await world.vpod("b", 1)
        await until(tells(world, pod0={"tenant/a": (1, 1), "tenant/b": (1, 1)}))
        assert await world.annotation(0, ACKNOWLEDGED_ANNOTATION) is not None


@pytest.mark.parametrize("restarted", [False, True], ids=["one leader", "two leaders"])
async def test_generations_grow_although_the_annotation_was_away_for_a_time(restarted: bool):
    """The adapter that runs has seen the generations before, and takes greater ones only."""
    world = await a_world(0)
    async with world.serving():
        for vreplicas in range(1, 6):
            await (world.set_vreplicas if vreplicas > 1 else world.vpod)("a", vreplicas)
            await until(tells(world, pod0={"tenant/a": (vreplicas, vreplicas)}))
        seen = (await assignment(world, 0) or {})["generation"]
        if not restarted:
            await world.patch_pool(handoff=None)
            await until(tells(world, pod0={}))
    if restarted:
        await world.annotate(0, **{ASSIGNMENT_ANNOTATION: None})
    async with world.serving(seed=2):
        await world.patch_pool(handoff={})
        await until(tells(world, pod0={"tenant/a": (5, 5)}))
    assert (await assignment(world, 0) or {})["generation"] > seen


async def test_a_new_leader_writes_nothing_where_all_are_told():
    world = await a_world(0)
    async with world.serving():
        await world.vpod("a", 1)
        await until(tells(world, pod0={"tenant/a": (1, 1)}))
    before = await assignment(world, 0)
    world.api.calls.clear()
    async with world.serving(seed=2):
        await world.vpod("b", 1)
        await until(tells(world, pod0={"tenant/a": (1, 1), "tenant/b": (1, 1)}))
    after = await assignment(world, 0)
    assert world.api.count("patch", "pods") == 2  # b's ledger and its assignment
    assert before is not None
    assert after is not None
    assert after["generation"] == before["generation"] + 1
    assert after["shares"]["tenant/a"] == before["shares"]["tenant/a"]
    assert after["shares"]["tenant/b"]["epoch"] > before["shares"]["tenant/a"]["epoch"]


async def test_what_somebody_else_has_written_is_put_right():
    world = await a_world(0)
    async with world.serving():
        await world.vpod("a", 1)
        await until(tells(world, pod0={"tenant/a": (1, 1)}))
        for text in ("{}", None, '{"generation":9,"pod":"x","uid":"y","shares":{}}'):
            await world.annotate(0, **{ASSIGNMENT_ANNOTATION: text})
            await until(tells(world, pod0={"tenant/a": (1, 1)}))


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(Conflict(409, "Conflict", "changed"), id="the pod has changed"),
        pytest.param(ApiError(500, "InternalError", "no"), id="the API server fails"),
        pytest.param(lost(), id="no answer"),
    ],
)
async def test_a_write_that_fails_is_made_again(error: Exception):
    world = await a_world(0)
    async with world.serving():
        await world.vpod("a", 1)
        await until(tells(world, pod0={"tenant/a": (1, 1)}))
        world.api.fail("patch", "pods", before=error, times=2)
        await world.annotate(0, **{ASSIGNMENT_ANNOTATION: None})
        await until(tells(world, pod0={"tenant/a": (1, 1)}))


async def test_an_assignment_is_never_ahead_of_its_ledger():
    """The ledger changes while the assignment of the ledger before is on its way."""
    world = await a_world(0)
    async with world.serving():
        await world.vpod("a", 2)
        await until(tells(world, pod0={"tenant/a": (2, 2)}))
        stopped = world.api.pause("patch", "pods")
        await world.annotate(0, **{ASSIGNMENT_ANNOTATION: None})
        await stopped.reached.wait()
        await world.set_vreplicas("a", 1)
        await until(lambda: world.ledger(0), {"tenant/a": 1})
        stopped.go_on.set()
        await until(tells(world, pod0={"tenant/a": (1, 1)}))
    told = await assignment(world, 0) or {}
    assert told["generation"] == told["shares"]["tenant/a"]["epoch"], "it is the first one"


async def test_an_adapter_is_told_of_as_many_vpods_as_an_annotation_holds():
    """What it serves already stays, what has left its ledger goes, and an event tells the rest."""
    world = await World.create(
        replicas=1, slots=2000, minPods=1, handoff={}, rescheduleAfterSeconds=None
    )
    keys = [f"tenant/{'v' * 60}-{i:03}" for i in range(900)]
    await world.pod(0, dict.fromkeys(keys, 1), node="node-0", slots=2000)
    for key in keys:
        await world.vpod(key.partition("/")[2], 1, {0: 1})

    async with world.serving():
        await until(lambda: world.events("AssignmentTooLarge"))
        first = [*await shares(world, 0)]
        assert first == keys[: len(first)]
        assert 500 < len(first) < 900
        for key in keys[:3]:
            await world.cluster.delete(VPODS, TENANT, key.partition("/")[2])
        wanted = keys[3 : len(first) + 3]

        async def others() -> bool:
            return [*await shares(world, 0)] == wanted

        await until(others)
    text = await world.annotation(0, ASSIGNMENT_ANNOTATION)
    most = ASSIGNMENT_BYTES_MAX - DRAINS_BYTES
    assert most - 200 < len(text or "") <= most


@pytest.mark.timeout(60)
async def test_shares_that_do_not_move_stay_told_while_others_are_drained():
    world = await World.create(
        replicas=2, slots=1000, handoff={"mode": "Overlap"}, minPods=2, rescheduleAfterSeconds=None
    )
    await world.pod(0, {}, node="node-0", slots=1000)
    names = [f"orders-of-shop-{i:05}" for i in range(850)]
    for name in names:
        await world.vpod(name, 1)
    async with world.serving() as service, adapters(world, 0) as known:
        await until(lambda: len(known.serving.get(0, {})) == 850)
        assert await world.events("AssignmentTooLarge") == []
        known.never.add((0, "Drain"))  # it needs drainTimeoutSeconds
        await world.pod(1, {}, node="node-1", slots=1000)
        async with adapters_beside(known, 1):
            await asyncio.sleep(1)
            moves = [
                Move(f"tenant/{n}", "dispatcher-0", "dispatcher-1", 1, MoveReason.COMPACTION)
                for n in names[:500]
            ]
            assert len(await service.placer.move(POOL, moves)) == 500
            await asyncio.sleep(30)
            last = (await world.conditions(names[-1]))["Available"]
            assert (len(known.gaps), last["reason"]) == (0, "AllReady")


# -- 3. leaseSeconds is made shorter (I6) ----------------------------------------------------------


async def test_a_share_that_fits_is_waited_for_although_the_assignment_is_nearly_full(monkeypatch):
    monkeypatch.setattr(model, "ASSIGNMENT_BYTES_MAX", 1024 + DRAINS_BYTES + 150)
    world = await World.create(
        replicas=2, minPods=2, handoff={"mode": "Overlap"}, rescheduleAfterSeconds=None
    )
    await world.pod(0, {}, node="node-0")
    await world.vpod("a", 2)
    async with world.serving() as service, adapters(world, 0) as known:
        await until(lambda: "tenant/a" in known.serving.get(0, {}))
        await world.pod(1, {}, node="node-1")
        known.delay_s = {1: 8.0}
        async with adapters_beside(known, 1):
            await world.vpod("b", 2)
            await asyncio.sleep(20)
            move = Move("tenant/a", "dispatcher-0", "dispatcher-1", 2, MoveReason.COMPACTION)
            assert await service.placer.move(POOL, [move]) == [move]
            await asyncio.sleep(30)
            assert (known.gaps, await world.published("a")) == ([], {1: 2})


@pytest.mark.parametrize("spare", [0, 50, 200])
async def test_a_pod_whose_assignment_is_full_is_drained_all_the_same(monkeypatch, spare: int):
    world = await World.create(
        replicas=2, minPods=2, handoff={"mode": "Overlap"}, rescheduleAfterSeconds=None
    )
    await world.pod(0, {}, node="node-0")
    for number in range(6):
        await world.vpod(f"v{number}", 1)
    async with world.serving(), adapters(world, 0) as known:
        await until(lambda: len(known.serving.get(0, {})) == 6)
        text = await world.annotation(0, ASSIGNMENT_ANNOTATION) or ""
        monkeypatch.setattr(model, "ASSIGNMENT_BYTES_MAX", len(text) + DRAINS_BYTES + spare)
        await world.pod(1, {}, node="node-1")
        async with adapters_beside(known, 1):
            await world.annotate(0, **{UNSCHEDULABLE_ANNOTATION: "true"})
            await until(partial(world.ledger, 0), {}, timeout_s=60)


async def test_a_pod_whose_assignment_is_full_is_told_that_its_pool_becomes_exclusive(monkeypatch):
    """Its shares were told as before, so its adapter went on without a lease."""
    monkeypatch.setattr(model, "ASSIGNMENT_BYTES_MAX", 600 + DRAINS_BYTES)
    world = await a_world(0, handoff={"mode": "Overlap"})
    for number in range(9):
        await world.vpod(f"v{number}", 1)
    async with world.serving():
        await until(lambda: world.events("AssignmentTooLarge"))
        before = await assignment(world, 0) or {}
        await world.patch_pool(handoff={"mode": "Exclusive", "leaseSeconds": 10})
        told = {"generation": before["generation"] + 1, "leaseSeconds": 10}
        await until(lambda: assignment(world, 0), before | told)
