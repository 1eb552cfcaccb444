"""A ledger that somebody else has written is noticed, told and put right; what we write ourselves
never alarms anybody.
"""

import asyncio
import logging

import pytest

from extender.model import names
from extender.service.watching.own_writes import OwnWrites
from extender.telemetry.metrics import Metrics
from tests.support.builders import POOL
from tests.support.service import World, a_world, lost, until

pytestmark = pytest.mark.looptime


async def a_placed_world() -> World:
    world = await World.create()
    await world.pod(0, {"tenant/a": 3}, node="node-0")
    await world.pod(1, {}, node="node-1")
    await world.vpod("a", 3, {0: 3})
    return world


def told(metrics: Metrics, kind: str) -> bool:
    return f'repairs_total{{kind="{kind}"}} 1.0' in metrics.render().decode()


@pytest.mark.parametrize(
    ("forged", "says"),
    [
        pytest.param({"tenant/a": 20}, "tenant/a 3 -> 20", id="more than is wanted"),
        pytest.param({"tenant/a": 1}, "tenant/a 3 -> 1", id="less than is published"),
        pytest.param({}, "tenant/a 3 -> 0", id="emptied"),
        pytest.param(
            {"tenant/a": 3, "tenant/ghost": 9},
            "tenant/ghost 0 -> 9",
            id="a vpod that does not exist",
        ),
        pytest.param(
            {"tenant/a": 3, "tenant/ghost": 900},
            "tenant/ghost 0 -> 900",
            id="more than the pod's slots",
        ),
        pytest.param({"../\n\x1b[31m": 2}, r"../\n\x1b[31m 0 -> 2", id="a name with escapes"),
        pytest.param('{"tenant/a": 3}', "the same entries", id="another form of the same"),
        pytest.param("nonsense", "unreadable now", id="unreadable"),
    ],
)
async def test_a_forged_ledger_of_a_bound_pod_is_told_and_put_right(
    forged: dict[str, int] | str, says: str, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.WARNING)
    world = await a_placed_world()
    async with world.serving() as service:
        await asyncio.sleep(1)
        await world.edit_ledger(0, forged)

        async def is_right() -> bool:
            text = await world.annotation(0, names.PLACEMENTS_ANNOTATION)
            return text in {'{"tenant/a":3}', '{"tenant/a": 3}'}

        await until(is_right, timeout_s=5)
        await asyncio.sleep(2)
        assert await world.ledger(0) == {"tenant/a": 3}
        assert await world.published() == {0: 3}
        (event,) = await world.events("ForeignWrite")
        assert (event["type"], event["regarding"]["name"]) == ("Warning", "dispatcher-0")
        assert says in event["note"]
        assert event["note"].isprintable()
        assert told(service.metrics, "ForeignWrite")
    assert "ForeignWrite" in caplog.text


async def test_a_ledger_that_is_taken_away_is_told_as_that_where_the_webhook_had_stamped_the_pod():
    world = await World.create()
    resources = {"requests": {names.SLOTS_RESOURCE: "20"}, "limits": {names.SLOTS_RESOURCE: "20"}}
    stamped = {"name": "adapter", "image": "i", "resources": resources}
    await world.pod(0, {"tenant/a": 3}, node="node-0", containers=[stamped])
    await world.vpod("a", 3, {0: 3})
    async with world.serving():
        await asyncio.sleep(1)
        await world.annotate(0, **{names.PLACEMENTS_ANNOTATION: None})
        await until(lambda: world.ledger(0), {"tenant/a": 3}, timeout_s=5)
        await asyncio.sleep(1)
        assert not await world.events("WebhookBypassed")
        assert await world.events("ForeignWrite")


@pytest.mark.parametrize("forged", ["1000", "1", "0", "many", None])
async def test_slots_that_are_not_what_the_pod_requests_are_written_again(forged: str | None):
    world = await World.create()
    resources = {"requests": {names.SLOTS_RESOURCE: "20"}, "limits": {names.SLOTS_RESOURCE: "20"}}
    stamped = {"name": "adapter", "image": "i", "resources": resources}
    await world.pod(0, {"tenant/a": 3}, node="node-0", containers=[stamped])
    await world.vpod("a", 3, {0: 3})
    async with world.serving() as service:
        await asyncio.sleep(1)
        await world.annotate(0, **{names.SLOTS_ANNOTATION: forged})
        await until(lambda: world.annotation(0, names.SLOTS_ANNOTATION), "20", timeout_s=5)
        await asyncio.sleep(2)
        (event,) = await world.events("SlotsMismatch")
        assert "the pod requests 20" in event["note"]
        assert told(service.metrics, "SlotsMismatch")
        await until(lambda: world.ledger(0), {"tenant/a": 3}, timeout_s=5)


async def test_a_pod_is_as_large_as_what_it_requests_whatever_becomes_of_its_annotation():
    """Seed 313000117: the annotation was taken away, the pool's slotsPerPod had grown, and the pod
    was filled up to that.
    """
    world = await World.create(slots=20, replicas=1, maxPods=1)
    resources = {"requests": {names.SLOTS_RESOURCE: "3"}, "limits": {names.SLOTS_RESOURCE: "3"}}
    stamped = {"name": "adapter", "image": "i", "resources": resources}
    await world.pod(0, {}, node="node-0", slots=3, containers=[stamped])
    async with world.serving() as service:
        await asyncio.sleep(1)
        for forged in (None, "20", "3"):
            await world.annotate(0, **{names.SLOTS_ANNOTATION: forged})
            await world.vpod(f"as-{forged}".lower(), 9)
            await asyncio.sleep(3)
            state = service.caches.state.pool(POOL).pods["dispatcher-0"]
            assert (state.capacity, state.decided) == (3, 3)
            assert sum((await world.ledger(0)).values()) == 3
            assert await world.annotation(0, names.SLOTS_ANNOTATION) == "3"


async def test_slots_of_a_pool_that_was_resized_are_not_taken_for_forged():
    world = await World.create()
    resources = {"requests": {names.SLOTS_RESOURCE: "20"}, "limits": {names.SLOTS_RESOURCE: "20"}}
    await world.pod(
        0, {}, node="node-0", containers=[{"name": "adapter", "image": "i", "resources": resources}]
    )
    async with world.serving():
        for slots in (10, 30, 20):
            await world.patch_pool(slotsPerPod=slots)
            await asyncio.sleep(65)
        assert not await world.events("SlotsMismatch")


@pytest.mark.parametrize(
    ("ledger", "says"),
    [
        pytest.param(
            {"tenant/a": 3, "tenant/ghost": 9},
            "9 of tenant/ghost, which does not exist",
            id="ghost",
        ),
        pytest.param({"tenant/a": 1}, "1 of tenant/a, which publishes 3", id="uncovered"),
        pytest.param({"tenant/a": 15}, "15 of tenant/a, which wants 3", id="inflated"),
        pytest.param({"tenant/a": 30}, "30 slots in a pod of 20", id="overcommitted"),
    ],
)
async def test_what_was_forged_while_nobody_led_is_told_by_the_next_leader(
    ledger: dict[str, int], says: str
):
    world = await World.create()
    await world.pod(0, ledger, node="node-0")
    await world.vpod("a", 3, {0: 3})
    async with world.serving() as service:
        await until(lambda: world.ledger(0), {"tenant/a": 3}, timeout_s=5)
        await asyncio.sleep(1)
        (event,) = await world.events("LedgerDiffers")
        assert says in event["note"]
        assert told(service.metrics, "LedgerDiffers")
        assert not await world.events("ForeignWrite")


async def test_our_own_writes_alarm_nobody_whatever_becomes_of_their_answers():
    world = await a_world(0, 1, 2)
    async with world.serving() as service:
        await asyncio.sleep(1)
        for index in range(6):
            world.api.fail("patch", "pods", after=lost())
            await world.vpod(f"v{index}", 4)
            await asyncio.sleep(2)
        for index in range(6):
            await world.set_vreplicas(f"v{index}", 1 + index)
        await asyncio.sleep(30)
        for reason in ("ForeignWrite", "LedgerDiffers"):
            assert not await world.events(reason), reason
        assert 'repairs_total{kind="ForeignWrite"} 0.0' in service.metrics.render().decode()


async def test_pods_that_are_bound_with_their_ledgers_alarm_nobody():
    world = await World.create(replicas=0, minPods=0)
    async with world.serving() as service, world.adapters(service):
        for index in range(5):
            await world.vpod(f"v{index}", 8)
        await asyncio.sleep(30)
        assert (await world.status("v4"))["scheduledVReplicas"] == 8
        assert not await world.events("ForeignWrite")
        assert not await world.events("LedgerDiffers")


async def test_a_replica_that_does_not_lead_takes_no_ledger_for_forged():
    world = await a_placed_world()
    async with world.serving(elect=True, seed=1) as first:
        await until(first.leading, timeout_s=30)
        async with world.serving(elect=True, seed=2) as second:
            await asyncio.sleep(1)
            await world.vpod("b", 5)
            await asyncio.sleep(5)
            assert (await world.status("b"))["scheduledVReplicas"] == 5
            assert not second.leading()
        assert not await world.events("ForeignWrite")


class TestOwnWrites:
    def test_a_text_is_ours_while_it_is_on_its_way(self):
        own = OwnWrites()
        with own.sending("u", "{}"):
            assert own.is_ours("u", "{}")
            assert not own.is_ours("u", "x")
            assert not own.is_ours("other", "{}")
        assert not own.is_ours("u", "{}")

    def test_one_whose_answer_is_lost_stays_ours_until_the_next_is_answered(self):
        own = OwnWrites()
        with pytest.raises(type(lost())), own.sending("u", "1"):
            raise lost()
        assert own.is_ours("u", "1")
        with own.sending("u", "2"):
            pass
        assert not own.is_ours("u", "1")

    def test_a_cancelled_one_may_have_arrived(self):
        own = OwnWrites()
        with pytest.raises(asyncio.CancelledError), own.sending("u", "1"):
            raise asyncio.CancelledError
        assert own.is_ours("u", "1")

    def test_what_is_remembered_has_a_limit_and_ends_with_the_pod(self):
        own = OwnWrites()
        for index in range(100):
            with pytest.raises(type(lost())), own.sending("u", str(index)):
                raise lost()
        assert sum(own.is_ours("u", str(index)) for index in range(100)) == 8
        own.forget("u")
        assert not own.is_ours("u", "99")
