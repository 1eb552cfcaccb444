"""What the reconciler does by itself, where no placer is faster."""

import asyncio

import pytest

from extender.kube.api import VPODS, Conflict
from extender.model.bucket import WHOLE
from extender.model.names import PLACEMENTS_ANNOTATION, SLOTS_ANNOTATION
from extender.model.objects import StatefulSet
from extender.service.placing.queue import VPodQueues
from extender.service.pools.evictions import EvictionMarks
from extender.service.pools.reconciler import Reconciler
from extender.service.watching.own_writes import OwnWrites
from extender.service.watching.unexpected_writes import UnexpectedWrites
from tests.support.builders import NS, POOL
from tests.support.service import TENANT, World
from tests.support.tasks import at_work

pytestmark = pytest.mark.looptime


def a_reconciler(world: World) -> tuple[Reconciler, VPodQueues]:
    clock = asyncio.get_running_loop().time
    queues = VPodQueues(clock, rank=lambda _pool, _key: (0, 1))
    queues.begin(WHOLE)
    unexpected_writes = UnexpectedWrites(
        world.caches, OwnWrites(), recorder=world.recorder(), metrics=world.metrics
    )
    reconciler = Reconciler(
        lambda _: world.api,
        world.caches,
        queues,
        unexpected_writes=unexpected_writes,
        metrics=world.metrics,
        clock=clock,
        marks=EvictionMarks(world.caches, clock),
    )
    return reconciler, queues


async def test_a_ledger_and_a_status_that_differ_are_decided_again():
    world = await World.create()
    await world.pod(0, {"tenant/a": 3, "tenant/b": 1}, node="node-0")
    await world.vpod("a", 2, {0: 2})
    await world.vpod("b", 1, {0: 1})
    await world.sync()
    reconciler, queues = a_reconciler(world)
    await reconciler.reconcile()
    assert await queues.of(POOL).pop_batch(10) == ["tenant/a"]


@pytest.mark.parametrize(
    ("placed", "says", "again"),
    [(2, "True", False), (2, "False", True), (1, "True", True), (1, "False", False)],
)
async def test_a_condition_that_the_placements_do_not_bear_out_is_decided_again(
    placed: int, says: str, again: bool
):
    """Found by seed 56000553: a leader whose Lease was deleted wrote over what the next one had
    written.
    """
    world = await World.create(maxPods=1)
    await world.pod(0, {"tenant/a": placed}, node="node-0")
    await world.vpod("a", 2, {0: placed})
    condition = {"type": "Scheduled", "status": says, "reason": "Any", "message": ""}
    condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    available = (await world.conditions())["Available"]
    await world.patch_status(VPODS, TENANT, "a", conditions=[condition, available])
    await world.sync()
    reconciler, queues = a_reconciler(world)
    pool = world.caches.state.pool(POOL)
    pool._with_pending.clear()
    await reconciler.reconcile()
    assert queues.of(POOL).sizes["active"] == int(again)


async def test_a_ledger_that_cannot_be_read_is_written_again_with_what_is_published():
    world = await World.create()
    await world.pod(0, {}, node="node-0")
    await world.vpod("a", 3, {0: 3})
    await world.edit_ledger(0, "not JSON")
    await world.sync()
    reconciler, _ = a_reconciler(world)
    await reconciler.reconcile()
    assert await world.ledger(0) == {"tenant/a": 3}


@pytest.mark.parametrize(("namespace", "looks_again"), [(NS, True), ("elsewhere", False)])
async def test_a_stateful_set_wakes_it_only_where_a_pool_may_name_it(
    namespace: str, looks_again: bool
):
    world = await World.create()
    await world.pod(0, {"tenant/a": 3}, node="node-0")
    await world.vpod("a", 2, {0: 2})
    await world.sync()
    reconciler, queues = a_reconciler(world)
    queue = queues.of(POOL)
    async with at_work(reconciler.run()):
        assert await queue.pop_batch(10) == ["tenant/a"]
        queue.done("tenant/a")
        await asyncio.sleep(1)
        for replicas in (1, 2):
            other = StatefulSet(namespace=namespace, name="db", replicas=replicas)
            world.caches.stateful_sets.update(other)
            await asyncio.sleep(1)
        assert queue.sizes["active"] == int(looks_again)


async def test_a_pod_that_another_has_put_right_while_our_repair_failed_is_told_at_once():
    """Seen on the real control plane: the placer was faster, and the event came with the next
    period, a minute later.
    """
    world = await World.create()
    await world.pod(0, node="node-0", slots=None)
    await world.sync()
    reconciler, _ = a_reconciler(world)
    world.api.fail("patch", "pods", before=Conflict(409, "Conflict", "another was faster"))
    running = asyncio.create_task(reconciler.run())
    await asyncio.sleep(1)
    await world.annotate(0, **{SLOTS_ANNOTATION: "20", PLACEMENTS_ANNOTATION: "{}"})
    await world.sync("pods")
    await asyncio.sleep(1)
    assert 'repairs_total{kind="WebhookBypassed"} 1.0' in world.metrics.render().decode()
    running.cancel()
    await asyncio.wait({running})
