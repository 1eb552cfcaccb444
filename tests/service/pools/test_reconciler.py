"""What no event puts right: pods that slipped past us, ledgers that cannot be read, claims that
leaked.
"""

import asyncio

import pytest

from extender.kube.api import PODS, VPODS, ApiError
from extender.model import names
from extender.model.errors import LedgerUnreadable
from extender.model.ledger import Share
from tests.support.builders import NS, POOL
from tests.support.service import TENANT, World, a_world, until

pytestmark = pytest.mark.looptime


def ledger_is(world: World, ordinal: int, wanted: dict[str, int]):
    async def is_so() -> bool:
        if await world.annotation(ordinal, names.PLACEMENTS_ANNOTATION) is None:
            return False
        try:
            return await world.ledger(ordinal) == wanted
        except LedgerUnreadable:
            return False

    return is_so


async def test_a_pod_that_slipped_past_the_webhook_gets_its_annotations_and_is_told_of():
    world = await World.create()
    await world.vpod("a", 3, {0: 3})
    async with world.serving() as service:
        await world.pod(0, None, slots=None, node="node-0", schedulerName="default-scheduler")
        await until(ledger_is(world, 0, {"tenant/a": 3}), timeout_s=2)
        assert await world.annotation(0, names.SLOTS_ANNOTATION) == "20"
        await asyncio.sleep(1)
        (event,) = await world.events("WebhookBypassed")
        assert event["regarding"]["name"] == "dispatcher-0"
        assert 'repairs_total{kind="WebhookBypassed"} 1.0' in service.metrics.render().decode()


@pytest.mark.parametrize(
    "text", ["not json", "[]", '{"tenant/a":"many"}', "[" * 5000, '{"tenant/a":-1}']
)
async def test_a_ledger_that_cannot_be_read_is_written_again_from_what_is_published(text: str):
    world = await World.create()
    await world.pod(0, {"tenant/a": 3}, node="node-0")
    await world.vpod("a", 3, {0: 3})
    async with world.serving():
        await world.edit_ledger(0, text)
        await until(ledger_is(world, 0, {"tenant/a": 3}), timeout_s=5)
        await asyncio.sleep(1)
        assert await world.published() == {0: 3}


async def test_a_ledger_entry_of_a_vpod_that_is_gone_is_released():
    world = await World.create()
    await world.pod(0, {"tenant/gone": 7, "tenant/a": 3}, node="node-0")
    await world.vpod("a", 3, {0: 3})
    async with world.serving():
        await until(ledger_is(world, 0, {"tenant/a": 3}), timeout_s=2)


async def test_a_vpod_deleted_while_nobody_led_is_released():
    world = await World.create()
    await world.pod(0, {"tenant/a": 3}, node="node-0")
    await world.vpod("a", 3, {0: 3})
    async with world.serving():
        await asyncio.sleep(1)
    await world.cluster.delete(VPODS, TENANT, "a")
    async with world.serving(seed=2):
        await until(ledger_is(world, 0, {}), timeout_s=2)


async def test_a_status_that_a_ledger_does_not_cover_is_covered():
    world = await World.create()
    await world.pod(0, {}, node="node-0")
    await world.vpod("a", 3, {0: 3})
    async with world.serving():
        await until(ledger_is(world, 0, {"tenant/a": 3}), timeout_s=2)


async def test_a_reservation_that_no_write_confirmed_expires():
    world = await a_world(0)
    await world.vpod("b", 0)
    async with world.serving() as service:
        await asyncio.sleep(1)
        pool = service.caches.state.pool(POOL)
        expires_at = asyncio.get_running_loop().time() + 30
        pool.reserve(("lost", 1), "tenant/b", {"dispatcher-0": Share(20)}, expires_at=expires_at)
        await world.vpod("a", 20)
        await asyncio.sleep(20)
        assert pool.pods["dispatcher-0"].free <= 0
        await until(ledger_is(world, 0, {"tenant/a": 20}), timeout_s=75)
        assert 'repairs_total{kind="ReservationExpired"} 1.0' in service.metrics.render().decode()


async def test_a_repair_that_fails_is_tried_again_and_not_in_a_hot_loop():
    world = await World.create()
    world.api.fail("patch", "pods", times=2, before=ApiError(500, "InternalError", "etcd"))
    async with world.serving():
        await world.pod(0, None, slots=None, node="node-0")
        await until(ledger_is(world, 0, {}), timeout_s=200)
        assert world.api.count("patch", "pods") == 3
        assert asyncio.get_running_loop().time() > 30


async def test_a_pod_of_no_pool_is_left_alone():
    world = await World.create()
    pod = {
        "metadata": {"name": "stranger-0", "labels": {names.POOL_LABEL: "unknown"}},
        "spec": {
            "nodeName": "node-0",
            "containers": [{"name": "c", "image": "registry.example/x:1"}],
        },
    }
    await world.cluster.create(PODS, NS, pod)
    async with world.serving():
        await asyncio.sleep(90)
    assert world.api.count("patch", "pods") == 0


async def test_a_pod_whose_slots_annotation_is_not_what_it_requests_is_repaired_too():
    """Seen in the simulation: slotsPerPod shrank, the bind wrote it over the stamp, and nothing was
    repaired any more.
    """
    world = await World.create()
    requested = {"requests": {names.SLOTS_RESOURCE: "20"}, "limits": {names.SLOTS_RESOURCE: "20"}}
    container = {"name": "adapter", "image": "registry.example/adapter:1", "resources": requested}
    await world.pod(0, {}, node="node-0", slots=16, containers=[container])
    async with world.serving():
        await world.edit_ledger(0, "{oops")
        await until(ledger_is(world, 0, {}), timeout_s=5)


async def notes(world: World, reason: str) -> list[str]:
    return [event["note"] for event in await world.events(reason)]


@pytest.mark.parametrize(
    "key", [names.UNSCHEDULABLE_ANNOTATION, names.KNATIVE_UNSCHEDULABLE_ANNOTATION]
)
async def test_each_value_of_a_drain_mark_that_is_no_bool_is_told_once(key: str):
    world = await a_world(0, nodes=3)
    async with world.serving():
        for value in ("yes", "on", "", "true", "yes", None):
            await world.annotate(0, **{key: value})
            await asyncio.sleep(5)
            await world.annotate(0, **{"example.dev/other": str(value)})
            await asyncio.sleep(65)
        told = await notes(world, "AnnotationUnreadable")
        assert told == [
            f"annotation {key} is {value!r}, which is no bool: the pod is not drained"
            for value in ("yes", "on", "")
        ]
        series = [
            event.get("series", {}).get("count", 1)
            for event in await world.events("AnnotationUnreadable")
        ]
        assert series == [2, 1, 1], "it was put right in between, and wrong again"


async def test_a_drain_mark_that_is_no_bool_and_stands_there_before_is_told_by_each_leader():
    world = await World.create()
    await world.pod(0, {}, node="node-0", annotations={names.UNSCHEDULABLE_ANNOTATION: "yes"})
    for seed in (1, 2):
        async with world.serving(seed=seed):
            await asyncio.sleep(150)
            assert len(await notes(world, "AnnotationUnreadable")) == seed


async def test_a_drain_mark_that_is_no_bool_is_told_once_and_drains_nothing():
    world = await a_world(0, 1)
    await world.vpod("a", 4)
    async with world.serving():
        await asyncio.sleep(5)
        before = await world.published()
        await world.annotate(0, **{names.UNSCHEDULABLE_ANNOTATION: "yes"})
        await asyncio.sleep(5)
        (event,) = await world.events("AnnotationUnreadable")
        assert (event["type"], event["regarding"]["name"]) == ("Warning", "dispatcher-0")
        assert event["note"] == (
            "annotation vreplica.dev/unschedulable is 'yes', which is no bool: the pod is not "
            "drained"
        )
        assert await world.published() == before
