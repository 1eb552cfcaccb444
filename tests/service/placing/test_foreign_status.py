"""Objects of foreign kinds tell their owners what happens to them, as VPods do: by events, and by
conditions where their kind has a place for them. Other writers' conditions stay as they are.
"""

import asyncio
import logging

import pytest

from extender.kube.api import EVENTS, Forbidden, Invalid, Obj
from extender.model.names import UNSCHEDULABLE_ANNOTATION
from extender.model.timestamps import timestamp
from extender.service.placing.foreign_status import REFUSALS_MAX
from tests.service.pools.test_availability import set_node_ready
from tests.service.watching.test_sources import (
    GROUP_KEY,
    GROUPS,
    KEY,
    PRESET,
    a_world,
    group,
    patch_pool,
    placed_is,
    set_status,
    status_of,
    want,
)
from tests.support.service import TENANT, World, lost, until, wall

pytestmark = pytest.mark.looptime

PLACE = {
    "group": GROUPS.group,
    "version": GROUPS.version,
    "resource": GROUPS.plural,
    "kind": GROUPS.kind,
}
PATHS = {"vreplicas": "spec.replicas", "placements": "status.placements"}
WITHOUT_CONDITIONS = {**PLACE, "paths": PATHS}
READY: Obj = {
    "type": "Ready",
    "status": "Unknown",
    "reason": "Theirs",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
    "more": {"theirs": [1]},
}


async def conditions(world: World, name: str = "g") -> dict[str, Obj]:
    return {item["type"]: item for item in (await status_of(world, name)).get("conditions", [])}


async def says(world: World, kind: str, status: str, reason: str) -> Obj:
    """The condition, once it has that status and reason."""

    async def look() -> bool:
        found = (await conditions(world)).get(f"vreplica.dev/{kind}", {})
        return (found.get("status"), found.get("reason")) == (status, reason)

    await until(look, timeout_s=60)
    return (await conditions(world))[f"vreplica.dev/{kind}"]


async def told(world: World, reason: str = "") -> list[tuple[str, str]]:
    """(reason, note) of the events about ConsumerGroups."""
    page = await world.cluster.list_page(EVENTS)
    return [
        (event["reason"], event["note"])
        for event in page.items
        if event["regarding"]["kind"] == GROUPS.kind and reason in {"", event["reason"]}
    ]


def status_writes(world: World) -> int:
    return world.api.count("patch", "consumergroups/status", "g")


async def drain(world: World, ordinal: int) -> None:
    await world.annotate(ordinal, **{UNSCHEDULABLE_ANNOTATION: "true"})


async def test_a_consumer_group_gets_a_vpods_conditions_beside_its_own_controllers():
    world = await a_world()
    await world.pods(0)
    await world.ready(0, ready=True)
    await group(world, replicas=3, conditions=[READY])
    async with world.serving():
        scheduled = await says(world, "Scheduled", "True", "AllPlaced")
        await asyncio.sleep(10)
        assert scheduled["message"] == "all 3 vreplicas are placed: 3 on dispatcher-0"
        assert (await conditions(world))["Ready"] == READY
        assert set(await conditions(world)) == {
            "Ready",
            "vreplica.dev/Scheduled",
            "vreplica.dev/Available",
        }
        available = await says(world, "Available", "True", "AllReady")
        assert available["severity"] == "Info", "Knative's Ready must not depend on it"
        assert status_writes(world) == 1


async def test_that_a_consumer_group_is_placed_is_an_event_on_it():
    world = await a_world()
    await world.pods(0)
    await group(world, replicas=3)
    obj = await world.cluster.get(GROUPS, TENANT, "g")
    async with world.serving():
        await placed_is(world, 3)
        await asyncio.sleep(5)
        (event,) = await world.events("Scheduled")
        assert event["regarding"] == {
            "apiVersion": "internal.kafka.eventing.knative.dev/v1alpha1",
            "kind": "ConsumerGroup",
            "namespace": TENANT,
            "name": "g",
            "uid": obj["metadata"]["uid"],
        }
        assert event["metadata"]["namespace"] == TENANT
        assert event["note"] == "all 3 vreplicas are placed: 3 on dispatcher-0"
    async with world.serving(seed=2):
        await asyncio.sleep(30)
        assert len(await world.events("Scheduled")) == 1, "another leader does not tell it again"


async def test_one_that_has_no_room_says_why_until_it_has():
    world = await a_world(maxPods=1)
    await world.pods(0)
    await world.ready(0, ready=True)
    await group(world, replicas=25)
    async with world.serving():
        scheduled = await says(world, "Scheduled", "False", "InsufficientSlots")
        assert scheduled["message"].startswith("5 of 25 vreplicas are not placed")
        await asyncio.sleep(5)
        assert [reason for reason, _ in await told(world)] == ["FailedScheduling"]
        since = scheduled["lastTransitionTime"]
        await asyncio.sleep(20)
        await want(world, 24)
        await asyncio.sleep(10)
        again = await says(world, "Scheduled", "False", "InsufficientSlots")
        assert again["lastTransitionTime"] == since
        assert again["message"].startswith("4 of 24 vreplicas are not placed")
        await want(world, 20)
        later = await says(world, "Scheduled", "True", "AllPlaced")
        assert later["lastTransitionTime"] > since
        await asyncio.sleep(5)
        assert "Scheduled" in [reason for reason, _ in await told(world)]


async def test_a_move_is_an_event_and_a_condition_with_its_reason():
    world = await a_world()
    await world.pods(0, 1)
    await group(world, replicas=2, placements=[{"podName": "dispatcher-1", "vreplicas": 2}])
    await world.edit_ledger(1, {KEY: 2})
    async with world.serving() as service:
        await drain(world, 1)
        moved = await says(world, "Moved", "True", "Drain")
        sentence = "2 vreplicas moved from dispatcher-1 to dispatcher-0 (Drain)"
        assert moved["message"] == sentence
        await asyncio.sleep(5)
        assert await told(world, "Moved") == [("Moved", sentence)]
        assert 'moves_total{reason="Drain"} 2.0' in service.metrics.render().decode()
        assert GROUP_KEY not in "".join(
            line for line in service.metrics.render().decode().splitlines() if "source=" not in line
        )


async def stands_last(conditions: list[Obj], source: Obj) -> World:
    """A pool of three pods of which one is enough, with a group on the last one."""
    rebalance = {"movesPerPeriod": 10, "cooldownSeconds": 300}
    world = await a_world(sources=[source], scaleDownPeriodSeconds=10, rebalance=rebalance)
    await world.pods(0, 1, 2)
    await world.edit_ledger(2, {KEY: 2})
    where = [{"podName": "dispatcher-2", "vreplicas": 2}]
    await group(world, replicas=2, placements=where, conditions=conditions)
    return world


def moved_ago(seconds: float, prefix: str = "vreplica.dev/") -> Obj:
    when = timestamp(wall() - seconds)
    return {"type": f"{prefix}Moved", "status": "True", "lastTransitionTime": when}


async def test_a_new_leader_knows_when_an_object_was_moved_and_lets_it_cool_down():
    world = await stands_last([READY, moved_ago(100)], PRESET)
    async with world.serving():
        await asyncio.sleep(190)
        assert await world.ledger(2) == {KEY: 2}
        assert await told(world, "Moved") == []
        moved = await says(world, "Moved", "True", "Compaction")
        assert moved["message"].startswith("2 vreplicas moved from dispatcher-2 to dispatcher-0")


@pytest.mark.parametrize(
    ("condition", "source"),
    [
        pytest.param(("vreplica.dev/",), WITHOUT_CONDITIONS, id="a kind without conditions"),
        pytest.param(("",), PRESET, id="another's condition"),
    ],
)
async def test_what_is_not_our_condition_of_a_declared_place_cools_nothing_down(condition, source):
    world = await stands_last([moved_ago(100, *condition)], source)
    async with world.serving():
        await asyncio.sleep(100)
        assert await world.ledger(2) == {}
        assert len(await told(world, "Moved")) == 1


async def test_a_kind_whose_declaration_names_no_place_gets_events_and_no_conditions():
    world = await a_world(sources=[WITHOUT_CONDITIONS])
    await world.pods(0, 1)
    await group(world, replicas=2, conditions=[READY])
    async with world.serving():
        await placed_is(world, 2)
        await drain(world, 1)
        await asyncio.sleep(30)
        assert len(await told(world, "Scheduled")) == 2, "each place that it got, as of a VPod"
        assert len(await told(world, "Moved")) == 1
        assert (await status_of(world))["conditions"] == [READY]


async def test_a_lost_pod_is_told_once_by_condition_and_event_and_by_no_other_leader():
    world = await a_world(minPods=3, rescheduleAfterSeconds=None)
    await world.pods(0, 1, 2)
    for ordinal in range(3):
        await world.ready(ordinal, ready=True)
    await group(world, replicas=6)
    async with world.serving():
        await says(world, "Available", "True", "AllReady")
        for ordinal in (0, 1):
            await world.ready(ordinal, ready=False)
            await asyncio.sleep(20)
        await set_node_ready(world, "node-2", ready=False)
        await says(world, "Available", "False", "NodeLost")
        await asyncio.sleep(5)
        served = [note.partition(" served")[0] for _, note in await told(world, "Unavailable")]
        assert served == [f"{count} of 6 vreplicas are" for count in (4, 2, 0)]
        writes = status_writes(world)
        assert writes == 4
    async with world.serving(seed=2):
        await asyncio.sleep(60)
        assert len(await told(world, "Unavailable")) == 3
        assert status_writes(world) == writes
        for ordinal in (0, 1):
            await world.ready(ordinal, ready=True)
        await set_node_ready(world, "node-2", ready=True)
        await says(world, "Available", "True", "AllReady")
        await asyncio.sleep(5)
        assert [reason for reason, _ in await told(world, "Available")] == ["Available"]


async def test_a_controller_that_writes_at_the_same_moment_keeps_what_it_wrote():
    world = await a_world()
    await world.pods(0)
    await group(world, replicas=3, conditions=[READY])
    theirs = {**READY, "status": "True"}
    world.api.fail(
        "patch",
        "consumergroups/status",
        then=lambda: set_status(world, conditions=[theirs], subscriberUri="http://x"),
    )
    async with world.serving():
        await says(world, "Scheduled", "True", "AllPlaced")
        assert (await conditions(world))["Ready"] == theirs
        assert (await status_of(world))["subscriberUri"] == "http://x"


async def test_a_controller_that_drops_our_conditions_is_not_fought():
    world = await a_world(minPods=3)
    await world.pods(0)
    await world.ready(0, ready=True)
    await group(world, replicas=3, conditions=[READY])
    async with world.serving():
        await says(world, "Scheduled", "True", "AllPlaced")
        writes = status_writes(world)
        await set_status(world, conditions=[READY])
        await asyncio.sleep(600)
        assert status_writes(world) == writes
        assert (await status_of(world))["conditions"] == [READY]
        await want(world, 4)
        await says(world, "Scheduled", "True", "AllPlaced")
        assert status_writes(world) == writes + 1


async def test_a_condition_of_ours_that_somebody_sets_wrong_is_put_right():
    world = await a_world()
    await world.pods(0)
    await world.ready(0, ready=True)
    await group(world, replicas=3)
    async with world.serving():
        await says(world, "Available", "True", "AllReady")
        wrong = [
            {**item, "status": "False", "reason": "NodeLost"}
            for item in (await conditions(world)).values()
            if item["type"] == "vreplica.dev/Available"
        ]
        await set_status(world, conditions=wrong)
        await says(world, "Available", "True", "AllReady")
        await says(world, "Scheduled", "True", "AllPlaced")


async def test_a_status_write_without_an_answer_tells_the_move_once_it_is_known():
    world = await a_world()
    await world.pods(0, 1)
    await group(world, replicas=2, placements=[{"podName": "dispatcher-1", "vreplicas": 2}])
    await world.edit_ledger(1, {KEY: 2})
    async with world.serving():
        await says(world, "Scheduled", "True", "AllPlaced")
        world.api.fail("patch", "consumergroups/status", after=lost())
        await drain(world, 1)
        await says(world, "Moved", "True", "Drain")
        await asyncio.sleep(40)
        assert len(await told(world, "Moved")) == 1


async def test_a_status_that_may_not_be_written_is_a_warning_on_the_object(
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level(logging.WARNING)
    world = await a_world()
    await world.pods(0)
    await group(world, replicas=3)
    refused = Forbidden(403, "Forbidden", "no role\nfor this")
    world.api.fail("patch", "consumergroups/status", before=refused)
    async with world.serving():
        await placed_is(world, 3)
        await asyncio.sleep(5)
        ((_, note),) = await told(world, "WriteRefused")
        assert f"the status of {GROUP_KEY} {KEY} may not be written: no role for this" in note
        assert "\n" not in note


def invalid() -> Invalid:
    return Invalid(422, "Invalid", "status.conditions[0].type: Unsupported value")


async def test_conditions_that_the_kinds_schema_refuses_keep_nobody_from_a_place(
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level(logging.WARNING)
    world = await a_world(minPods=3)
    await world.pods(0)
    await world.ready(0, ready=True)
    await group(world, replicas=3)
    world.api.fail("patch", "consumergroups/status", before=invalid(), times=REFUSALS_MAX)
    async with world.serving():
        await placed_is(world, 3)
        assert "conditions" not in await status_of(world)
        await asyncio.sleep(200)
        assert status_writes(world) == REFUSALS_MAX + 1
        assert caplog.text.count("with them is refused: 422 Invalid: status.conditions[0]") == 1
        await want(world, 4)
        await says(world, "Scheduled", "True", "AllPlaced")


async def test_one_refused_write_costs_no_condition():
    world = await a_world()
    await world.pods(0)
    await group(world, replicas=3)
    world.api.fail("patch", "consumergroups/status", before=invalid())
    async with world.serving():
        await placed_is(world, 3)
        await says(world, "Scheduled", "True", "AllPlaced")
        for wanted in (4, 5, 6):
            world.api.fail("patch", "consumergroups/status", before=invalid())
            await want(world, wanted)
            await placed_is(world, wanted)
            scheduled = await says(world, "Scheduled", "True", "AllPlaced")
            assert scheduled["message"].startswith(f"all {wanted} vreplicas"), "none in a row"


async def test_a_schema_that_drops_fields_of_a_condition_is_not_written_to_again_and_again():
    world = await a_world(minPods=3)
    await world.pods(0)
    await group(world, replicas=3)
    async with world.serving():
        await says(world, "Available", "False", "PodNotReady")
        kept = [
            {key: value for key, value in item.items() if key not in {"reason", "message"}}
            for item in (await conditions(world)).values()
        ]
        writes = status_writes(world)
        await set_status(world, conditions=kept)
        await asyncio.sleep(200)
        assert status_writes(world) == writes


async def test_where_the_kinds_controller_writes_the_status_we_write_none_of_it():
    world = await a_world(sources=[{**PRESET, "writeStatus": False}])
    await world.pods(0)
    await group(world, replicas=3, conditions=[READY])
    async with world.serving():
        await asyncio.sleep(100)
        assert await world.ledger(0) == {KEY: 3}
        assert status_writes(world) == 0


async def test_conditions_come_once_a_pool_declares_their_place():
    world = await a_world(sources=[WITHOUT_CONDITIONS])
    await world.pods(0)
    await group(world, replicas=3)
    async with world.serving():
        await placed_is(world, 3)
        await asyncio.sleep(5)
        assert "conditions" not in await status_of(world)
        with_conditions = {**PLACE, "paths": {**PATHS, "conditions": "status.conditions"}}
        await patch_pool(world, {"sources": [with_conditions]})
        await says(world, "Scheduled", "True", "AllPlaced")


async def test_an_object_that_had_all_its_places_before_gets_conditions_and_no_event():
    world = await a_world()
    await world.pods(0)
    await group(world, replicas=3, placements=[{"podName": "dispatcher-0", "vreplicas": 3}])
    async with world.serving():
        await says(world, "Scheduled", "True", "AllPlaced")
        await asyncio.sleep(30)
        assert await told(world) == []
