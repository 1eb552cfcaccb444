"""What an AdapterPool's status says, and that it is written only when it changes."""

import asyncio

import pytest

from extender.kube.api import (
    ADAPTERPOOLS,
    NODES,
    PODS,
    STATEFULSETS,
    ApiError,
    OutcomeUnknown,
    PatchType,
)
from extender.model.ledger import Share
from tests.support.builders import NS
from tests.support.service import World, a_world, until

pytestmark = pytest.mark.looptime

FOUND = ("True", "StatefulSetFound")


async def test_the_status_counts_pods_slots_and_vreplicas():
    world = await a_world(0, 1, replicas=3, maxPods=3)
    await world.pod(2)
    await world.vpod("a", 45)
    async with world.serving():
        await asyncio.sleep(5)
        status = await world.pool_status()
        status.pop("conditions")
    assert status == {
        "observedGeneration": 1,
        "pods": 3,
        "desiredPods": 3,
        "schedulablePods": 2,
        "slots": 40,
        "usedSlots": 40,
        "freeSlots": 0,
        "closedSlots": 0,
        "pendingVReplicas": 5,
        "readyVReplicas": 0,
        "unservedVReplicas": 40,
        "unavailableVPods": 1,
        "vpods": 1,
    }


async def test_the_conditions_tell_a_missing_statefulset_and_its_coming():
    world = await a_world(0)
    stateful_set = await world.cluster.get(STATEFULSETS, NS, "dispatcher")
    await world.cluster.delete(STATEFULSETS, NS, "dispatcher")
    async with world.serving():
        await asyncio.sleep(3)
        assert await world.pool_condition("Ready") == ("False", "StatefulSetNotFound")
        stateful_set["metadata"] = {"name": "dispatcher"}
        made = await world.cluster.create(STATEFULSETS, NS, stateful_set)
        await asyncio.sleep(3)
        assert await world.pool_condition("Ready") == ("False", "NoPodTakesVReplicas")
        adopt = [
            {
                "op": "replace",
                "path": "/metadata/ownerReferences/0/uid",
                "value": made["metadata"]["uid"],
            }
        ]
        await world.cluster.patch(PODS, NS, "dispatcher-0", adopt, patch_type=PatchType.JSON)
        await asyncio.sleep(3)
        assert await world.pool_condition("Ready") == FOUND


async def test_a_pool_of_which_no_pod_takes_vreplicas_is_not_ready_and_says_why():
    world = await a_world(0, 1, replicas=3, minPods=3, maxPods=3)
    await world.pod(2)
    for name in ("node-0", "node-1"):
        await world.cluster.patch(
            NODES, "", name, {"spec": {"unschedulable": True}}, patch_type=PatchType.MERGE
        )
    async with world.serving():
        await asyncio.sleep(3)
        assert await world.pool_condition("Ready") == ("False", "NoPodTakesVReplicas")
        message = await world.pool_message("Ready")
        assert message == "none of 3 pods takes vreplicas: 2 node cordoned, 1 not bound"
        for name in ("node-0", "node-1"):
            await world.cluster.patch(
                NODES, "", name, {"spec": {"unschedulable": None}}, patch_type=PatchType.MERGE
            )
        await until(lambda: world.pool_condition("Ready"), FOUND, timeout_s=10)


async def test_a_pool_of_no_pods_is_ready_for_the_first_vpod():
    world = await World.create(replicas=0, minPods=0)
    async with world.serving():
        await until(lambda: world.pool_condition("Ready"), FOUND, timeout_s=10)


async def test_slots_that_are_used_are_among_all_slots_also_of_pods_that_are_away():
    world = await a_world(0, replicas=2, minPods=2, maxPods=2)
    await world.pod(1)
    await world.vpod("a", 25, {0: 10, 1: 15})
    async with world.serving():
        await asyncio.sleep(3)
        status = await world.pool_status()
        assert (status["slots"], status["usedSlots"]) == (40, 25)


async def test_the_conditions_tell_an_overcommitted_pod_and_a_pool_held_by_max_pods():
    world = await World.create(replicas=1, maxPods=1)
    await world.pod(0, {"tenant/a": 25}, node="node-0")
    await world.vpod("a", 25, {0: 25})
    async with world.serving():
        await until(lambda: world.pool_condition("ScalingLimited"), ("True", "MaxPods"))
    world = await World.create(replicas=1, maxPods=1)
    await world.pod(0, {"tenant/a": 25}, node="node-0")
    world.api.fail("patch", "vpods/status", times=99, before=ApiError(500, "InternalError", "etcd"))
    await world.vpod("a", 25, {0: 25})
    async with world.serving(seed=2, checked=False):
        await until(lambda: world.pool_condition("Overcommitted"), ("True", "LedgerOverSlots"))


async def test_what_a_ledger_takes_too_much_of_is_told_with_its_figures():
    world = await World.create(replicas=2, maxPods=2, capacities={"cpu": 4, "memory": 9})
    world.api.fail("patch", "vpods/status", times=99, before=ApiError(500, "InternalError", "etcd"))
    hungry = Share(3, 1, (("cpu", 3), ("memory", 3)))
    await world.pod(0, {"tenant/a": hungry}, node="node-0")
    await world.pod(1, {"tenant/b": 25}, node="node-0")
    await world.vpod("a", 3, {0: 3}, perVReplica={"cpu": 3, "memory": 3})
    await world.vpod("b", 25, {1: 25})
    async with world.serving(checked=False):
        await until(lambda: world.pool_condition("Overcommitted"), ("True", "LedgerOverSlots"))
        message = await world.pool_message("Overcommitted")
        assert message.endswith(": dispatcher-0 (9 of 4 cpu), dispatcher-1 (25 of 20 slots)")


async def test_a_ledger_that_is_over_no_slots_says_so_in_its_reason():
    world = await World.create(replicas=1, maxPods=1, capacities={"cpu": 4})
    world.api.fail("patch", "vpods/status", times=99, before=ApiError(500, "InternalError", "etcd"))
    await world.pod(0, {"tenant/a": Share(3, 1, (("cpu", 3),))}, node="node-0")
    await world.vpod("a", 3, {0: 3}, perVReplica={"cpu": 3})
    async with world.serving():
        await until(lambda: world.pool_condition("Overcommitted"), ("True", "LedgerOverCapacities"))


async def test_it_is_not_written_again_while_nothing_changes():
    world = await a_world(0)
    await world.vpod("a", 3)
    async with world.serving():
        await asyncio.sleep(5)
        written = world.api.count("patch", "adapterpools/status")
        await asyncio.sleep(60)
        assert world.api.count("patch", "adapterpools/status") == written


async def test_a_failover_changes_no_transition_time():
    world = await World.create()
    async with world.serving():
        await asyncio.sleep(3)
    before = await world.pool_status()
    await asyncio.sleep(100)
    async with world.serving(seed=2):
        await asyncio.sleep(3)
    assert await world.pool_status() == before


async def test_what_another_leader_wrote_meanwhile_is_corrected_when_we_lead_again():
    world = await a_world(0)
    service = world.service()
    task = asyncio.create_task(service.run())
    await asyncio.sleep(3)
    task.cancel()
    await asyncio.wait({task})
    right = await world.pool_status()
    await world.patch_status(ADAPTERPOOLS, NS, "dispatcher", pods=7)
    leading_again = asyncio.create_task(service.pool_status.run())
    await asyncio.sleep(2)
    leading_again.cancel()
    await asyncio.wait({leading_again})
    assert await world.pool_status() == right


async def test_a_status_that_could_not_be_written_is_written_later():
    world = await a_world(0)
    world.api.fail(
        "patch", "adapterpools/status", times=3, before=ApiError(500, "InternalError", "etcd")
    )
    async with world.serving():
        await until(lambda: world.pool_condition("Ready"), FOUND, timeout_s=10)


async def foreign_condition(world: World, status: str, *, keep: bool = True) -> None:
    """Another controller's condition; ``keep`` False: it knows nothing of others' and replaces the
    list.
    """
    known = (await world.pool_status()).get("conditions", []) if keep else []
    theirs = {
        "type": "CostReviewed",
        "status": status,
        "reason": "Finance",
        "message": "by hand",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    await world.patch_status(
        ADAPTERPOOLS,
        NS,
        "dispatcher",
        conditions=[*(c for c in known if c["type"] != "CostReviewed"), theirs],
    )


async def test_conditions_of_other_writers_stay():
    world = await a_world(0)
    await foreign_condition(world, "True")
    async with world.serving():
        await until(lambda: world.pool_condition("Ready"), FOUND, timeout_s=5)
        assert await world.pool_condition("CostReviewed") == ("True", "Finance")
        await foreign_condition(world, "False")
        await world.vpod("a", 3)
        await asyncio.sleep(3)
        assert (await world.pool_status())["vpods"] == 1
        assert await world.pool_condition("CostReviewed") == ("False", "Finance")


async def test_conditions_that_another_writer_has_removed_come_back():
    world = await a_world(0)
    async with world.serving():
        await until(lambda: world.pool_condition("Ready"), FOUND, timeout_s=5)
        await foreign_condition(world, "True", keep=False)
        await until(lambda: world.pool_condition("Ready"), FOUND, timeout_s=5)
        assert await world.pool_condition("CostReviewed") == ("True", "Finance")


async def test_a_condition_that_comes_between_our_read_and_our_write_is_not_lost():
    world = await a_world(0)
    fault = world.api.pause("patch", "adapterpools/status")
    async with world.serving():
        await fault.reached.wait()
        await foreign_condition(world, "True")
        fault.go_on.set()
        await until(lambda: world.pool_condition("Ready"), FOUND, timeout_s=5)
        assert await world.pool_condition("CostReviewed") == ("True", "Finance")


async def test_a_status_that_stays_as_it_is_costs_no_reads():
    world = await World.create()
    async with world.serving():
        await asyncio.sleep(5)
        read = world.api.count("get", "adapterpools")
        await asyncio.sleep(60)
        assert world.api.count("get", "adapterpools") == read


async def test_a_pod_on_a_tainted_node_is_told_once_though_nothing_is_evicted():
    world = await a_world(0, replicas=1)
    await world.vpod("a", 3)
    async with world.serving():
        await until(
            lambda: world.pool_condition("PodsMisplaced"), ("False", "NoneMisplaced"), timeout_s=15
        )
        taint = {"key": "dedicated", "value": "batch", "effect": "NoSchedule"}
        await world.cluster.patch(
            NODES, "", "node-0", {"spec": {"taints": [taint]}}, patch_type=PatchType.MERGE
        )
        await until(
            lambda: world.pool_condition("PodsMisplaced"), ("True", "NotEnabled"), timeout_s=75
        )
        written = world.api.count("patch", "adapterpools/status")
        await asyncio.sleep(120)
        assert world.api.count("patch", "adapterpools/status") == written
    before = await world.pool_status()
    async with world.serving(seed=2):
        await asyncio.sleep(15)
    assert await world.pool_status() == before


@pytest.mark.parametrize("lost", [False, True])
async def test_an_outage_is_reported_once_also_if_the_answer_to_the_write_is_lost(lost: bool):
    """Found by review: the status said it, and no event did."""
    world = await a_world(0, 1, replicas=2, minPods=2, maxPods=2)
    await world.vpod("a", 30, {0: 15, 1: 15})

    async def is_ready(ordinal: int, status: str) -> None:
        conditions = {"status": {"conditions": [{"type": "Ready", "status": status}]}}
        await world.cluster.patch(
            PODS,
            NS,
            f"dispatcher-{ordinal}",
            conditions,
            patch_type=PatchType.MERGE,
            subresource="status",
        )

    async def told() -> int:
        events = await world.events("Unavailable")
        return sum(event["regarding"]["kind"] == "AdapterPool" for event in events)

    async with world.serving():
        for ordinal in (0, 1):
            await is_ready(ordinal, "True")
        await asyncio.sleep(30)
        before = await told()
        if lost:
            no_answer = OutcomeUnknown(0, "Timeout", "lost")
            world.api.fail("patch", "adapterpools/status", times=1, after=no_answer)
        await is_ready(0, "False")
        await asyncio.sleep(60)
        assert await told() == before + 1
