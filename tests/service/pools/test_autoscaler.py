"""The pool grows as soon as it must, as far as it may, and shrinks to what it needs, never over
anything placed.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from extender.engine.pods.bits import bits
from extender.engine.state.pool_state import PoolState
from extender.kube.api import (
    ADAPTERPOOLS,
    NAMESPACES,
    PODS,
    STATEFULSETS,
    VPODS,
    ApiError,
    Forbidden,
    OutcomeUnknown,
    PatchType,
    TooManyRequests,
)
from extender.model import names
from extender.service.app import Service
from tests.support.builders import NS
from tests.support.service import TENANT, World, a_world, until
from tests.support.tasks import at_work

pytestmark = pytest.mark.looptime


def scale_writes(world: World) -> int:
    return world.api.count("update", "statefulsets/scale")


async def test_the_pool_grows_at_once_by_what_is_left_over():
    world = await World.create(replicas=0)
    async with world.serving():
        await world.vpod("a", 45)
        await until(world.replicas, 3, timeout_s=1)
        assert scale_writes(world) == 1
        await asyncio.sleep(3)
        (event,) = await world.events("ScaledUp")
        assert "from 0 to 3 pods" in event["note"]


async def test_a_burst_of_vpods_gives_few_scale_writes():
    world = await World.create(replicas=0)
    async with world.serving() as service, world.adapters(service):
        for index in range(60):
            await world.vpod(f"v{index:02}", 3)
            await asyncio.sleep(0.005)
        await until(world.replicas, 9)
        await asyncio.sleep(5)
    assert scale_writes(world) <= 5


async def test_the_pool_grows_from_nothing_until_all_is_placed_and_no_further():
    world = await World.create(replicas=0)
    async with world.serving() as service, world.adapters(service):
        for index in range(10):
            await world.vpod(f"v{index}", 8)
        await asyncio.sleep(20)
        for index in range(10):
            assert await world.condition(f"v{index}") == ("True", "AllPlaced")
        assert await world.replicas() == 4


async def test_max_pods_holds_and_is_told_once():
    world = await World.create(replicas=1, maxPods=2)
    async with world.serving() as service:
        await world.vpod("a", 100)
        await asyncio.sleep(60)
        assert await world.replicas() == 2
        (event,) = await world.events("ScalingLimited")
        assert "5 pods are needed, and maxPods allows 2" in event["note"]
        assert "series" not in event, "told once"
        assert service.autoscaler.limited == {f"{NS}/dispatcher"}
        await world.patch_pool(maxPods=9)
        await until(world.replicas, 5, timeout_s=15)
        assert service.autoscaler.limited == set()


async def test_pods_that_stay_pending_are_not_piled_up():
    world = await World.create(replicas=0)
    async with world.serving():
        await world.vpod("a", 45)
        await until(world.replicas, 3, timeout_s=1)
        for ordinal in range(3):
            await world.pod(ordinal)
        await asyncio.sleep(120)
        assert (await world.replicas(), scale_writes(world)) == (3, 1)


async def test_min_pods_is_a_floor_without_any_vpod():
    world = await World.create(replicas=0, minPods=2)
    async with world.serving():
        await until(world.replicas, 2, timeout_s=15)


async def test_somebody_elses_write_between_read_and_write_is_seen_and_not_overwritten():
    world = await World.create(replicas=0)
    world.api.fail(
        "update", "statefulsets/scale", then=lambda: world.patch_stateful_set(replicas=5)
    )
    async with world.serving():
        await world.vpod("a", 45)
        await asyncio.sleep(10)
    assert await world.replicas() == 5
    assert scale_writes(world) == 1, "looked at again: five are enough"


async def test_somebody_elses_write_of_fewer_is_looked_at_again_and_corrected():
    world = await World.create(replicas=1)
    world.api.fail(
        "update", "statefulsets/scale", then=lambda: world.patch_stateful_set(replicas=2)
    )
    async with world.serving():
        await world.vpod("a", 45)
        await until(world.replicas, 3, timeout_s=5)
    assert scale_writes(world) == 2


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ApiError(500, "InternalError", "etcd"), id="500"),
        pytest.param(TooManyRequests(429, "TooManyRequests", "later", retry_after_s=7), id="429"),
    ],
)
async def test_a_pool_that_cannot_be_scaled_now_is_tried_again_and_holds_up_no_other(
    error: ApiError,
):
    world = await World.create(replicas=0)
    spec = await world.cluster.get(STATEFULSETS, NS, "dispatcher")
    spec["metadata"] = {"name": "other"}
    await world.cluster.create(STATEFULSETS, NS, spec)
    other = await world.cluster.get(ADAPTERPOOLS, NS, "dispatcher")
    other["metadata"], other["spec"]["statefulSet"] = {"name": "other"}, "other"
    await world.cluster.create(ADAPTERPOOLS, NS, other)
    world.api.fail("update", "statefulsets/scale", name="dispatcher", before=error)
    async with world.serving():
        await world.vpod("a", 5)
        await world.vpod("b", 5, poolRef={"namespace": NS, "name": "other"})

        async def other_has_grown() -> bool:
            return bool((await world.cluster.get(STATEFULSETS, NS, "other"))["spec"]["replicas"])

        await until(other_has_grown, timeout_s=0.6)
        await until(world.replicas, 1, timeout_s=15)


async def test_a_pool_does_not_grow_for_tenants_that_it_does_not_select():
    world = await World.create(replicas=0, namespaceSelector={"matchLabels": {"paid": "yes"}})
    async with world.serving():
        await world.vpod("a", 400)
        await asyncio.sleep(30)
        assert await world.replicas() == 0
        labels = {"metadata": {"labels": {"paid": "yes"}}}
        await world.cluster.patch(NAMESPACES, "", TENANT, labels, patch_type=PatchType.MERGE)
        await until(world.replicas, 20, timeout_s=2)


async def test_a_pool_without_its_statefulset_is_left_alone():
    world = await World.create(statefulSet="missing")
    async with world.serving():
        await world.vpod("a", 400)
        await asyncio.sleep(30)
    assert scale_writes(world) == 0


# -- down ------------------------------------------------------------------------------------------

PERIOD_S = 20


async def a_pool(replicas: int, **fields) -> World:
    """A pool of that many bound pods, with a short scale-down period."""
    return await a_world(
        *range(replicas), replicas=replicas, **{"scaleDownPeriodSeconds": PERIOD_S, **fields}
    )


def state_of(service: Service) -> PoolState:
    return service.caches.state.pool(f"{NS}/dispatcher")


@asynccontextmanager
async def controller(world: World) -> AsyncIterator[None]:
    """A stand-in for the StatefulSet controller and kube-scheduler: bound pods for all ordinals,
    and no others.
    """

    async def work() -> None:
        while True:
            names = {pod["metadata"]["name"] for pod in (await world.cluster.list_page(PODS)).items}
            ordinals = {int(name.rpartition("-")[2]) for name in names}
            replicas = await world.replicas()
            for ordinal in sorted(ordinals - set(range(replicas))):
                await world.remove_pod(ordinal)
            await world.pods(*(ordinal for ordinal in range(replicas) if ordinal not in ordinals))
            await asyncio.sleep(0.05)

    async with at_work(work()):
        yield


async def test_a_pool_that_is_larger_than_needed_shrinks_in_its_period_and_no_sooner():
    world = await a_pool(7)
    await world.vpod("a", 3, {0: 3})
    await world.edit_ledger(0, {"tenant/a": 3})
    async with world.serving(), controller(world):
        await asyncio.sleep(PERIOD_S * 0.8)
        assert (await world.replicas(), scale_writes(world)) == (7, 0)
        await until(world.replicas, 1, timeout_s=PERIOD_S * 0.4)
        await asyncio.sleep(3 * PERIOD_S)
        assert await world.condition("a") == ("True", "AllPlaced")
        (event,) = await world.events("ScaledDown")
        assert "from 7 to 1 pod:" in event["note"]
        assert (await world.replicas(), scale_writes(world)) == (1, 1)


async def test_min_pods_is_where_shrinking_ends():
    world = await a_pool(5, minPods=2)
    async with world.serving(), controller(world):
        await asyncio.sleep(2 * PERIOD_S)
        assert await world.replicas() == 2


async def test_ordinals_that_start_higher_shrink_from_the_top_too():
    world = await World.create(
        replicas=0, scaleDownPeriodSeconds=PERIOD_S, rebalance={"dryRun": True}
    )
    await world.patch_stateful_set(ordinals={"start": 10}, replicas=3)
    await world.pods(10, 11, 12)
    await world.vpod("a", 2, {11: 2})
    await world.edit_ledger(11, {"tenant/a": 2})
    async with world.serving():
        await asyncio.sleep(1.5 * PERIOD_S)
        assert await world.replicas() == 2, "12 holds nothing, 11 does"


async def test_what_stands_on_a_pod_keeps_it_and_nothing_new_comes_there():
    world = await a_pool(4, rebalance={"dryRun": True})
    await world.vpod("a", 2, {2: 2})
    await world.edit_ledger(2, {"tenant/a": 2})
    async with world.serving() as service, controller(world):
        await until(world.replicas, 3, timeout_s=1.5 * PERIOD_S)
        await asyncio.sleep(PERIOD_S)
        assert list(bits(state_of(service).closed)) == [1, 2]
        await world.vpod("b", 9)
        await asyncio.sleep(5)
        assert await world.published("b") == {0: 9}
        assert await world.published("a") == {2: 2}
        await world.cluster.delete(VPODS, TENANT, "a")
        await until(world.replicas, 1, timeout_s=1.5 * PERIOD_S)


async def test_a_steady_stream_of_triggers_does_not_put_off_scaling_down():
    world = await a_pool(7)
    async with world.serving() as service, controller(world):

        async def trigger() -> None:
            while True:
                service.autoscaler.trigger(f"{NS}/dispatcher")
                await asyncio.sleep(0.3)

        task = asyncio.create_task(trigger())
        await asyncio.sleep(1.2 * PERIOD_S)
        task.cancel()
        assert await world.replicas() == 0


async def test_a_shorter_period_counts_from_now():
    world = await a_pool(3, scaleDownPeriodSeconds=10_000)
    async with world.serving(), controller(world):
        await asyncio.sleep(5)
        await world.patch_pool(scaleDownPeriodSeconds=5)
        await until(world.replicas, 0, timeout_s=8)


async def test_closed_pods_are_opened_as_soon_as_they_are_needed():
    world = await a_pool(3, rebalance={"dryRun": True})
    await world.vpod("a", 2, {2: 2})
    await world.edit_ledger(2, {"tenant/a": 2})
    async with world.serving() as service, controller(world):
        await asyncio.sleep(1.5 * PERIOD_S)
        assert list(bits(state_of(service).closed)) == [1, 2]
        await world.vpod("b", 50)
        await asyncio.sleep(1)
        assert await world.condition("b") == ("True", "AllPlaced")
        assert state_of(service).closed == 0
        assert await world.replicas() == 3


async def test_what_the_sum_of_slots_does_not_show_opens_closed_pods_too():
    """Two vreplicas of 15 slots are 30 slots, two pods; what is left of them takes no third."""
    world = await a_pool(3, rebalance={"dryRun": True})
    await world.vpod("a", 1, {2: 1}, slotsPerVReplica=9)
    await world.edit_ledger(2, '{"tenant/a":[1,9]}')
    async with world.serving() as service, controller(world):
        await asyncio.sleep(1.5 * PERIOD_S)
        assert list(bits(state_of(service).closed)) == [1, 2]
        await world.vpod("b", 1, slotsPerVReplica=11)
        await asyncio.sleep(2)
        assert await world.published("b") == {0: 1}
        await world.vpod("c", 1, slotsPerVReplica=10)
        await asyncio.sleep(2)
        assert await world.condition("c") == ("True", "AllPlaced")
        assert await world.replicas() == 3


async def test_who_leads_no_longer_closes_nothing():
    world = await a_pool(2, rebalance={"dryRun": True})
    await world.vpod("a", 2, {1: 2})
    await world.edit_ledger(1, {"tenant/a": 2})
    async with world.serving() as service:
        await asyncio.sleep(1.5 * PERIOD_S)
        assert list(bits(state_of(service).closed)) == [1]
    assert state_of(service).closed == 0


async def test_max_pods_below_what_is_needed_removes_nothing_that_holds_something():
    world = await a_pool(4)
    await world.vpod("a", 60, {0: 20, 1: 20, 2: 20})
    for ordinal in range(3):
        await world.edit_ledger(ordinal, {"tenant/a": 20})
    async with world.serving() as service, controller(world):
        await asyncio.sleep(1)
        await world.patch_pool(maxPods=1)
        await asyncio.sleep(3 * PERIOD_S)
        assert await world.replicas() == 3, "the fourth held nothing"
        assert service.autoscaler.limited == {f"{NS}/dispatcher"}
        assert list(bits(state_of(service).closed)) == [1, 2]
        assert await world.published("a") == {0: 20, 1: 20, 2: 20}


async def test_what_stands_above_is_moved_below_first_and_then_the_pods_go():
    world = await a_pool(4)
    await world.vpod("a", 7, {0: 3, 2: 2, 3: 2})
    for ordinal, count in ((0, 3), (2, 2), (3, 2)):
        await world.edit_ledger(ordinal, {"tenant/a": count})
    async with world.serving(), controller(world):
        await until(world.replicas, 1, timeout_s=5 * PERIOD_S)
        assert await world.published("a") == {0: 7}


# -- races of a scale-down -------------------------------------------------------------------------


async def test_what_is_placed_while_the_scale_is_read_stops_the_write():
    world = await a_pool(2, rebalance={"dryRun": True})

    async def place_there() -> None:
        await world.vpod("a", 2, {1: 2})
        await world.edit_ledger(1, {"tenant/a": 2})
        await asyncio.sleep(0.01)

    world.api.fail("get", "statefulsets/scale", then=place_there)
    async with world.serving():
        await asyncio.sleep(1.5 * PERIOD_S)
        assert (await world.replicas(), scale_writes(world)) == (2, 0)
        assert await world.published("a") == {1: 2}


async def test_a_write_between_the_look_and_our_write_is_a_conflict_and_all_is_looked_at_again():
    world = await a_pool(3)
    world.api.fail(
        "update", "statefulsets/scale", then=lambda: world.patch_stateful_set(replicas=4)
    )
    async with world.serving() as service:
        await asyncio.sleep(PERIOD_S * 1.1)
        assert await world.replicas() == 4
        assert service.autoscaler.foreign == {f"{NS}/dispatcher": 4}


async def test_replicas_that_the_watch_has_not_shown_yet_stop_the_write():
    """Pods that we do not know of may be among those that would go."""
    world = await a_pool(3)
    world.api.fail("get", "statefulsets/scale", then=lambda: world.patch_stateful_set(replicas=5))
    async with world.serving():
        await asyncio.sleep(PERIOD_S * 1.15)
        assert (await world.replicas(), scale_writes(world)) == (5, 0)


async def test_a_scale_down_of_which_the_answer_is_lost_is_no_foreign_one_and_not_made_twice():
    world = await a_pool(3)
    world.api.fail("update", "statefulsets/scale", after=OutcomeUnknown(0, "Timeout", "no answer"))
    async with world.serving() as service, controller(world):
        await asyncio.sleep(1.5 * PERIOD_S)
        assert (await world.replicas(), scale_writes(world)) == (0, 1)
        assert service.autoscaler.foreign == {}


async def test_a_pool_that_may_not_be_scaled_says_so_until_it_may():
    world = await a_pool(1)
    refusal = Forbidden(403, "Forbidden", "statefulsets/scale may not be written")
    fault = world.api.fail("update", "statefulsets/scale", before=refusal, times=1_000)
    async with world.serving(), controller(world):
        await world.vpod("a", 30)
        await until(lambda: world.pool_condition("ScalingLimited"), ("True", "ScaleFailed"))
        assert "may not be written" in await world.pool_message("ScalingLimited")
        fault.times = 0
        await until(world.placed, 30, timeout_s=120)
        await until(lambda: world.pool_condition("ScalingLimited"), ("False", "WithinLimits"))


# -- another writer --------------------------------------------------------------------------------


async def test_replicas_that_somebody_else_raised_are_told_and_stand_until_the_next_period():
    world = await a_pool(1)
    await world.vpod("a", 3)
    async with world.serving() as service, controller(world):
        await asyncio.sleep(1)
        await world.patch_stateful_set(replicas=4)
        await asyncio.sleep(2)
        assert service.autoscaler.foreign == {f"{NS}/dispatcher": 4}
        assert await world.pool_condition("ScalingLimited") == ("True", "ForeignReplicas")
        (event,) = await world.events("ReplicasChanged")
        assert "from 1 to 4" in event["note"]
        service.autoscaler.trigger(f"{NS}/dispatcher")
        await asyncio.sleep(2)
        assert (await world.replicas(), scale_writes(world)) == (4, 0)
        await until(world.replicas, 1, timeout_s=1.2 * PERIOD_S)
        assert service.autoscaler.foreign == {}


async def test_replicas_that_somebody_else_lowered_stand_where_nothing_is_without_a_place():
    world = await a_pool(3, minPods=3, scaleDownPeriodSeconds=60)
    async with world.serving(), controller(world):
        await asyncio.sleep(1)
        await world.patch_stateful_set(replicas=2)
        await asyncio.sleep(40)
        assert await world.replicas() == 2, "the floor is asked for again in the next period"
        await until(world.replicas, 3, timeout_s=30)


async def test_vreplicas_without_a_place_get_pods_though_somebody_else_wants_fewer():
    world = await a_pool(2)
    async with world.serving(), controller(world):
        await world.vpod("a", 40)
        await asyncio.sleep(1)
        await world.patch_stateful_set(replicas=1)
        await until(world.replicas, 2, timeout_s=2)
        await asyncio.sleep(2)
        assert await world.condition("a") == ("True", "AllPlaced")


async def test_a_tug_of_war_is_given_up_with_growing_delays():
    world = await a_pool(2)
    lowered = []
    async with world.serving(), controller(world):
        await world.vpod("a", 40)
        await asyncio.sleep(1)
        for _ in range(4):
            await world.patch_stateful_set(replicas=1)
            began = asyncio.get_running_loop().time()
            await until(world.replicas, 2, timeout_s=100)
            lowered.append(asyncio.get_running_loop().time() - began)
    assert lowered[0] < 2
    assert 9 < lowered[2] < 15
    assert 19 < lowered[3] < 25


async def test_a_number_that_is_what_the_pool_needs_is_nobodys_business():
    world = await a_pool(1)
    async with world.serving() as service, controller(world):
        await asyncio.sleep(1)
        await world.patch_stateful_set(replicas=2)
        await world.vpod("a", 40)
        await asyncio.sleep(2)
        assert service.autoscaler.foreign == {}
        assert scale_writes(world) == 0


async def test_our_own_writes_are_never_taken_for_somebody_elses():
    world = await World.create(replicas=0, scaleDownPeriodSeconds=PERIOD_S)
    async with world.serving() as service, controller(world):
        for size in (30, 70, 10, 90, 0):
            await (world.vpod("a", size) if size == 30 else world.set_vreplicas("a", size))
            await asyncio.sleep(1.3 * PERIOD_S)
        assert await world.events("ReplicasChanged") == []
        assert service.autoscaler.foreign == {}
        assert await world.replicas() == 0


# -- errors ----------------------------------------------------------------------------------------


async def test_errors_are_tried_again_with_growing_delays_however_often_it_is_triggered():
    world = await World.create(replicas=0)
    world.api.fail(
        "update", "statefulsets/scale", before=ApiError(500, "InternalError", "etcd"), times=5
    )
    async with world.serving() as service:
        await world.vpod("a", 5)
        began = asyncio.get_running_loop().time()
        while not await world.replicas():
            service.autoscaler.trigger(f"{NS}/dispatcher")
            await asyncio.sleep(0.3)
        took = asyncio.get_running_loop().time() - began
    assert scale_writes(world) == 6
    assert 0.9 * (2 + 4 + 8 + 16) < took < 1.1 * (2 + 4 + 8 + 16) + 3, (
        "the first error is tried again at once"
    )


async def test_a_pool_whose_scale_cannot_be_read_holds_up_no_other():
    world = await World.create(replicas=0)
    spec = await world.cluster.get(STATEFULSETS, NS, "dispatcher")
    spec["metadata"] = {"name": "other"}
    await world.cluster.create(STATEFULSETS, NS, spec)
    other = await world.cluster.get(ADAPTERPOOLS, NS, "dispatcher")
    other["metadata"], other["spec"]["statefulSet"] = {"name": "other"}, "other"
    await world.cluster.create(ADAPTERPOOLS, NS, other)
    stuck = world.api.pause("get", "statefulsets/scale", name="dispatcher")
    async with world.serving():
        await world.vpod("a", 5)
        await stuck.reached.wait()
        await world.vpod("b", 5, poolRef={"namespace": NS, "name": "other"})

        async def other_has_grown() -> bool:
            return bool((await world.cluster.get(STATEFULSETS, NS, "other"))["spec"]["replicas"])

        await until(other_has_grown, timeout_s=2)
        stuck.go_on.set()
        await until(world.replicas, 1, timeout_s=2)


async def test_room_that_a_profile_refuses_does_not_keep_pods_closed():
    """Three zones, of which one is left without an open pod; a hard rule then refuses the room in
    the others.
    """
    world = await a_pool(3, profile="ha", rebalance={"dryRun": True})
    await world.vpod("b", 1, {2: 1})
    await world.edit_ledger(2, {"tenant/b": 1})
    async with world.serving() as service, controller(world):
        await asyncio.sleep(1)
        state_of(service).set_closed(0b100)
        await world.vpod("a", 3)
        await asyncio.sleep(2)
        assert await world.condition("a") == ("False", "InsufficientSlots")
        await asyncio.sleep(6)
        assert await world.condition("a") == ("True", "AllPlaced")
        assert await world.replicas() == 3


@pytest.mark.timeout(60)
async def test_a_pool_that_had_to_grow_again_for_the_same_needs_is_shrunk_more_and_more_seldom():
    """Found by seed 59000483: all fits into two pods, but not spread as the profile wants it;
    three, two, three for ever.
    """
    rebalance = {"movesPerPeriod": 20, "cooldownSeconds": 0}
    spec = {"minPodsPerVPod": 3, "rebalance": rebalance, "rescheduleAfterSeconds": None}
    world = await a_pool(3, slotsPerPod=7, profile="spread", **spec)
    await world.vpod("heavy", 2, slotsPerVReplica=3)
    await world.vpod("light", 4)
    async with world.serving(), controller(world):
        await asyncio.sleep(30 * PERIOD_S)
        assert scale_writes(world) <= 10


async def a_pool_that_needs_one_pod(replicas: int) -> World:
    """Its vpod stands on the first pod, and may be moved as often as needed."""
    world = await a_pool(replicas, rebalance={"movesPerPeriod": 20, "cooldownSeconds": 0})
    await world.vpod("a", 3, {0: 3})
    await world.edit_ledger(0, {"tenant/a": 3})
    return world


async def test_a_pool_that_grows_again_by_and_by_is_taken_to_have_grown_again_once():
    """Found by seed 70000527: nodes failed one after the other, and each pod that made up for them
    doubled the patience.
    """
    world = await a_pool_that_needs_one_pod(3)
    async with world.serving(), controller(world):
        await until(world.replicas, 1, timeout_s=1.5 * PERIOD_S)
        for ordinal in range(3):
            await world.annotate(ordinal, **{names.UNSCHEDULABLE_ANNOTATION: "true"})
            await until(world.replicas, ordinal + 2, timeout_s=0.5 * PERIOD_S)
            await asyncio.sleep(1)
        for ordinal in range(3):
            await world.annotate(ordinal, **{names.UNSCHEDULABLE_ANNOTATION: None})
        await until(world.replicas, 1, timeout_s=4 * PERIOD_S)


async def test_a_pool_that_grew_for_a_drained_pod_is_made_smaller_again_in_its_next_period():
    """Found by seed 321000208: the drain was taken for a sign that the pool had been too small."""
    world = await a_pool_that_needs_one_pod(2)
    async with world.serving(), controller(world):
        await until(world.replicas, 1, timeout_s=1.5 * PERIOD_S)
        for _ in range(3):
            await world.annotate(0, **{names.UNSCHEDULABLE_ANNOTATION: "true"})
            await until(world.replicas, 2, timeout_s=0.5 * PERIOD_S)
            await asyncio.sleep(1)
            await world.annotate(0, **{names.UNSCHEDULABLE_ANNOTATION: None})
            await until(world.replicas, 1, timeout_s=2.5 * PERIOD_S)
