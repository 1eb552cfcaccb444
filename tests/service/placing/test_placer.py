"""The leader's loop: every vpod gets placed, again after failures, and nobody writes
without need.
"""

import asyncio
import random

import orjson
import pytest

from extender.engine.placing.explain import Explanation
from extender.engine.placing.plan import Decision
from extender.kube.api import (
    ADAPTERPOOLS,
    NAMESPACES,
    PODS,
    STATEFULSETS,
    VPODS,
    ApiError,
    Obj,
    PatchType,
)
from extender.model import names
from extender.model.bucket import WHOLE
from extender.model.ledger import Share
from extender.model.moves import Move, MoveReason
from extender.service.app import Service
from extender.service.placing.placer import Placer
from extender.service.pools.availability import FEED_PERIOD_S
from tests.support.builders import NS, POOL
from tests.support.service import TENANT, Call, World, a_world, lost, schedule, until
from tests.support.tasks import at_work

pytestmark = pytest.mark.looptime


async def placed(world: World, name: str = "a", **more) -> None:
    await until(lambda: world.condition(name), ("True", "AllPlaced"), **more)


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_a_vpod_is_placed_round_robin_over_the_bound_pods():
    world = await a_world(0, 1, 2)
    async with world.serving():
        await world.vpod("a", 8)
        await placed(world, timeout_s=1)
    assert await world.published() == {0: 3, 1: 3, 2: 2}
    await world.check()
    (event,) = await world.events("Scheduled")
    assert event["regarding"]["name"] == "a"


async def test_vpods_that_were_there_before_the_service_started_are_placed():
    world = await a_world(0, 1, 2)
    for index in range(7):
        await world.vpod(f"v{index}", 4)
    async with world.serving():
        for index in range(7):
            await placed(world, f"v{index}")


async def test_what_does_not_fit_waits_for_a_pod_and_is_placed_by_its_very_bind():
    world = await a_world(0, replicas=2)
    await world.vpod("a", 25)
    async with world.serving() as service:
        await until(world.placed, 20)
        assert await world.condition() == ("False", "InsufficientSlots")
        assert len(await world.events("FailedScheduling")) == 1
        await world.pod(1)
        await asyncio.sleep(1)
        assert await schedule(service, await world.pod_object(1), ["node-1"]) == ""
        assert await world.ledger(1) == {"tenant/a": 5}
        bound_at = now()
        await placed(world)
        assert now() - bound_at < 0.5, "an event that helps is not waited out"


async def test_what_a_shrinking_vpod_frees_goes_to_the_one_that_waits():
    world = await a_world(0, replicas=1, maxPods=1)
    await world.vpod("a", 20)
    async with world.serving():
        await placed(world)
        await world.vpod("b", 5)
        await asyncio.sleep(1)
        assert await world.condition("b") == ("False", "InsufficientSlots")
        await world.set_vreplicas("a", 15)
        await placed(world, "b", timeout_s=1)
    assert await world.ledger(0) == {"tenant/a": 15, "tenant/b": 5}


async def test_a_burst_finds_room_in_another_order_if_the_heaviest_first_leaves_some():
    still = {"movesPerPeriod": 0}
    world = await a_world(
        0, 1, replicas=2, minPods=2, maxPods=2, rebalance=still, rescheduleAfterSeconds=None
    )
    for name, weight in {"a": 9, "b": 8, "c": 6, "d": 6, "e": 5, "f": 5}.items():
        await world.vpod(name, 1, slotsPerVReplica=weight)
    async with world.serving():
        for name in "abcdef":
            await placed(world, name)
        await asyncio.sleep(1)
        ledgers = [await world.ledger(ordinal) for ordinal in (0, 1)]
        assert sum(map(len, ledgers)) == 6


async def test_a_light_vpod_is_placed_although_heavy_ones_come_and_go():
    """Each heavy one comes before the last one goes, when the light one has waited for longer."""
    still = {"movesPerPeriod": 0}
    pods = {"replicas": 3, "minPods": 3, "maxPods": 3}
    world = await a_world(0, 1, 2, rebalance=still, rescheduleAfterSeconds=None, **pods)
    async with world.serving():
        for name, weight in {"a": 19, "b": 19, "c": 7, "heavy-0": 13}.items():
            await world.vpod(name, 1, slotsPerVReplica=weight)
            await placed(world, name)
        await world.vpod("light", 1, slotsPerVReplica=2)
        await asyncio.sleep(40)
        await world.vpod("heavy-1", 1, slotsPerVReplica=13)
        await asyncio.sleep(50)
        await world.cluster.delete(VPODS, TENANT, "heavy-0")
        await asyncio.sleep(10)
        assert await world.published("light")
        assert not await world.published("heavy-1")


async def test_what_may_have_been_written_counts_in_any_order_of_a_burst():
    """A vpod's write had no reply: its reservation says where it may be by now."""
    still = {"movesPerPeriod": 0}
    pods = {"replicas": 2, "minPods": 2, "maxPods": 2, "slotsPerPod": 21}
    world = await World.create(rebalance=still, rescheduleAfterSeconds=None, **pods)
    await world.pod(0, {"tenant/g": 1}, node="node-0", slots=21)
    await world.pod(1, {}, node="node-1", slots=21)
    await world.vpod("g", 1, {0: 1})
    for name, weight in {"a": 9, "b": 8, "c": 6, "d": 6, "e": 5, "f": 5}.items():
        await world.vpod(name, 1, slotsPerVReplica=weight)
    await world.sync()
    placer = a_placer(world)
    pool = world.caches.state.pool(POOL)
    moved = {"dispatcher-0": Share(0), "dispatcher-1": Share(1)}
    pool.reserve(("placer", 0), "tenant/g", moved, expires_at=float("inf"))
    await placer.place_batch(POOL, [f"tenant/{name}" for name in "abcdefg"])
    assert await world.published("g") == {1: 1}
    await world.check()


async def test_a_deleted_vpod_leaves_the_ledgers():
    world = await a_world(0, 1)
    await world.vpod("a", 6)
    async with world.serving():
        await placed(world)
        await world.cluster.delete(VPODS, TENANT, "a")
        await until(lambda: _ledgers_are(world, {0: {}, 1: {}}), timeout_s=1)


async def _ledgers_are(world: World, wanted: dict[int, dict[str, int]]) -> bool:
    return {ordinal: await world.ledger(ordinal) for ordinal in wanted} == wanted


async def test_a_pod_marked_unschedulable_is_drained_and_covered_meanwhile():
    world = await a_world(0, 1)
    await world.vpod("a", 6)
    async with world.serving():
        await placed(world)
        await world.annotate(0, **{names.UNSCHEDULABLE_ANNOTATION: "true"})
        await until(lambda: _ledgers_are(world, {0: {}, 1: {"tenant/a": 6}}), timeout_s=2)
        await world.check()
    assert await world.published() == {1: 6}


async def test_a_lost_compare_and_swap_is_decided_again_after_a_backoff():
    world = await a_world(0, replicas=1, maxPods=1)
    async with world.serving() as service:
        await asyncio.sleep(1)
        raced = world.api.fail("patch", "pods", then=lambda: world.edit_ledger(0, {"tenant/x": 15}))
        await world.vpod("a", 10)
        await raced.reached.wait()
        lost_at = now()
        await until(world.placed, 10)
        assert 0.9 < now() - lost_at < 2.5
        await world.check()
        claims = service.caches.state.pool(POOL).claims_of("tenant/a").values()
        assert all(claim.reserved is None for claim in claims)


async def test_a_write_that_keeps_failing_is_tried_at_growing_distances():
    world = await a_world(0)
    world.api.fail("patch", "pods", times=1000, before=ApiError(500, "InternalError", "etcd"))
    async with world.serving():
        await world.vpod("a", 1)
        await asyncio.sleep(60)
    assert 6 <= world.api.count("patch", "pods") <= 11, "1, 2, 4, 8, 10, 10, ... s apart"


@pytest.mark.parametrize(
    ("pool", "vpod", "reason"),
    [
        pytest.param(
            {}, {"poolRef": {"namespace": NS, "name": "other"}}, "PoolNotFound", id="no-pool"
        ),
        pytest.param({"statefulSet": "other"}, {}, "StatefulSetNotFound", id="no-statefulset"),
        pytest.param({}, {"slotsPerVReplica": 21}, "Unsatisfiable", id="too-heavy"),
        pytest.param(
            {"namespaceSelector": {"matchLabels": {"paid": "yes"}}},
            {},
            "TenantNotAllowed",
            id="tenant-not-allowed",
        ),
        pytest.param({"maxPods": 3}, {"vreplicas": 61}, "InsufficientSlots", id="no-slots"),
    ],
)
async def test_the_condition_says_why_a_vpod_is_not_placed(pool: Obj, vpod: Obj, reason: str):
    world = await a_world(0, 1, 2, **pool)
    async with world.serving():
        await world.vpod("a", **{"vreplicas": 2, **vpod})
        await asyncio.sleep(1)
        assert await world.condition() == ("False", reason)


async def available(world: World, name: str) -> tuple[str, ...]:
    """Status, reason and message of the condition Available."""
    found = (await world.conditions(name))["Available"]
    return (found["status"], found["reason"], found["message"])


async def test_the_event_of_a_deleted_pool_is_not_lost_in_one_for_another_reason():
    """Both are FailedScheduling; the first one's note is what a series keeps."""
    world = await a_world(0)
    await world.vpod("waits", 24)
    await world.vpod("placed", 4)
    async with world.serving():
        await asyncio.sleep(5)
        await world.set_vreplicas("waits", 16)
        await asyncio.sleep(5)
        assert {await world.condition(name) for name in ("waits", "placed")} == {
            ("True", "AllPlaced")
        }
        before = {event["metadata"]["name"] for event in await world.events("FailedScheduling")}
        assert before
        await world.cluster.delete(ADAPTERPOOLS, NS, "dispatcher")
        await asyncio.sleep(1)
        told = {
            event["regarding"]["name"]: event["note"]
            for event in await world.events("FailedScheduling")
            if event["metadata"]["name"] not in before
        }
        lost = (
            "stay where they are (PoolNotFound): AdapterPool knative-eventing/dispatcher does not "
            "exist"
        )
        assert told == {"waits": f"all 16 vreplicas {lost}", "placed": f"all 4 vreplicas {lost}"}


async def test_a_vpod_whose_pool_is_deleted_is_told_in_a_second_and_placed_when_it_is_back():
    world = await a_world(0, 1)
    await world.vpod("a", 4)
    await world.vpod("none", 0)
    async with world.serving():
        await placed(world)
        standing = await world.published()
        pool = await world.cluster.get(ADAPTERPOOLS, NS, "dispatcher")
        await world.cluster.delete(ADAPTERPOOLS, NS, "dispatcher")
        await asyncio.sleep(1)
        assert await world.condition() == ("False", "PoolNotFound")
        assert await world.condition("none") == ("False", "PoolNotFound"), (
            "also one that asks for nothing"
        )
        assert await world.published() == standing, "its pods run on, and nothing is lost"
        nothing = ("True", "AllReady", "no vreplicas are wanted")
        assert await available(world, "none") == nothing, "whoever asks for nothing misses nothing"
        assert {
            event["note"].partition(":")[0] for event in await world.events("FailedScheduling")
        } == {
            "all 4 vreplicas stay where they are (PoolNotFound)",
            "nothing is placed (PoolNotFound)",
        }
        await world.cluster.create(
            ADAPTERPOOLS, NS, {"metadata": {"name": "dispatcher"}, "spec": pool["spec"]}
        )
        await asyncio.sleep(1)
        assert await world.condition() == ("True", "AllPlaced")
        assert await world.published() == standing


async def test_one_vpod_that_has_no_place_does_not_hinder_the_others():
    world = await a_world(0, 1, 2)
    await world.vpod("a", 1, slotsPerVReplica=21)
    await world.vpod("b", 1, poolRef={"namespace": NS, "name": "other"})
    for index in range(5):
        await world.vpod(f"v{index}", 4)
    async with world.serving():
        for index in range(5):
            await placed(world, f"v{index}", timeout_s=1)


async def test_a_tenant_is_placed_as_soon_as_its_namespace_gets_the_label():
    world = await a_world(0, namespaceSelector={"matchLabels": {"paid": "yes"}})
    async with world.serving():
        await world.vpod("a", 3)
        await asyncio.sleep(1)
        assert await world.condition() == ("False", "TenantNotAllowed")
        labels = {"metadata": {"labels": {"paid": "yes"}}}
        await world.cluster.patch(NAMESPACES, "", TENANT, labels, patch_type=PatchType.MERGE)
        await placed(world, timeout_s=1)


@pytest.mark.parametrize(
    ("vreplicas", "after", "condition"),
    [
        pytest.param(12, {1: 12}, ("True", "AllPlaced"), id="there is room elsewhere"),
        pytest.param(30, {0: 10, 1: 20}, ("False", "InsufficientSlots"), id="there is not enough"),
    ],
)
async def test_a_tenant_that_is_let_in_again_leaves_the_pod_that_was_to_be_emptied(
    vreplicas: int, after: dict[int, int], condition: tuple[str, str]
):
    """Seed 287004468: it had all it wanted, so it waited in no queue."""
    world = await a_world(0, 1, maxPods=2, namespaceSelector={"matchLabels": {"paid": "yes"}})
    await relabel(world, "yes")
    await world.vpod("a", vreplicas)
    async with world.serving():
        await placed(world)
        await relabel(world, "no")
        await asyncio.sleep(1)
        await world.annotate(0, **{names.UNSCHEDULABLE_ANNOTATION: "true"})
        await asyncio.sleep(5)
        before = {0: vreplicas // 2, 1: vreplicas // 2}
        assert await world.published() == before, "a tenant that is not let in keeps what it has"
        await relabel(world, "yes")
        await asyncio.sleep(1)
        assert (await world.published(), await world.condition()) == (after, condition)


async def relabel(world: World, paid: str) -> None:
    patch = {"metadata": {"labels": {"paid": paid}}}
    await world.cluster.patch(NAMESPACES, "", TENANT, patch, patch_type=PatchType.MERGE)


async def test_a_pod_that_is_recreated_keeps_every_vreplica_where_it_was():
    world = await a_world(0, 1, 2)
    await world.vpod("a", 9)
    async with world.serving() as service:
        await placed(world)
        start = world.cluster.version
        await world.remove_pod(1)
        await asyncio.sleep(5)
        await world.pod(1)
        await asyncio.sleep(0.1)
        assert await schedule(service, await world.pod_object(1), ["node-2"]) == ""
        await asyncio.sleep(5)
        assert await world.ledger(1) == {"tenant/a": 3}
        where = {f"dispatcher-{ordinal}": 3 for ordinal in range(3)}
        # Why nobody serves those of pod 1 is told anew, as they have never been served.
        assert all(item == where for item in await history(world, "a", since=start))


async def history(world: World, name: str, *, since: int) -> list[dict[str, int]]:
    """What a vpod has published since a version, one entry a change."""
    found = []
    async for event in world.cluster.watch(VPODS, resource_version=str(since), timeout_s=0.1):
        if event.object["metadata"].get("name") == name:
            placements = event.object.get("status", {}).get("placements", [])
            found.append({item["podName"]: item["vreplicas"] for item in placements})
    return found


async def test_nothing_is_written_while_nothing_happens():
    world = await a_world(0, 1, 2, maxPods=3)
    for index in range(9):
        await world.vpod(f"v{index}", 6)
    await world.vpod("full", 40)
    await world.vpod("heavy", 1, slotsPerVReplica=21)
    async with world.serving(elect=True):
        await asyncio.sleep(20)
        quiet = len(world.api.writes())
        await asyncio.sleep(60)
        assert world.api.writes()[quiet:] == []
        assert world.api.count("update", "leases") + world.api.count("patch", "leases") > 20


async def test_a_pools_own_status_writes_decide_nobody_again():
    world = await a_world(0, 1, 2)
    async with world.serving() as service:
        await world.vpod("a", 3)
        await asyncio.sleep(5)
        written = world.api.count("patch", "adapterpools/status")
        decided = _attempts(service)
        await world.vpod("b", 1)
        await asyncio.sleep(5)
        assert world.api.count("patch", "adapterpools/status") > written
        assert _attempts(service) - decided <= 3, "b, and a once at most"


async def test_what_is_written_as_decided_is_not_decided_again():
    world = await a_world(0, 1, 2)
    async with world.serving() as service:
        await world.vpod("a", 3)
        await asyncio.sleep(5)
        assert await world.published() == {0: 1, 1: 1, 2: 1}
        decided = _attempts(service)
        await world.set_vreplicas("a", 5)
        await asyncio.sleep(5)
        assert await world.published() == {0: 2, 1: 2, 2: 1}
        assert _attempts(service) - decided == 1


async def test_what_others_publish_while_a_batch_is_written_is_decided_again():
    """A status with a pod that does not exist: no ledger tells that it is not what was decided.

    At once: whoever looks at what is served would find it only after ``FEED_PERIOD_S``.
    """
    world = await a_world(0)
    await world.vpod("a", 3)
    await world.vpod("b", 3)
    late = world.api.pause("patch", "vpods/status", name="b")
    async with world.serving():
        await late.reached.wait()
        await until(world.placed, 3)
        others = [
            {"podName": "dispatcher-0", "vreplicas": 3},
            {"podName": "dispatcher-9", "vreplicas": 1},
        ]
        await world.patch_status(VPODS, TENANT, "a", placements=others)
        await asyncio.sleep(0.1)
        late.go_on.set()
        await asyncio.sleep(FEED_PERIOD_S / 2)
        assert (await world.published("a"), await world.published("b")) == ({0: 3}, {0: 3})


def _attempts(service: Service) -> int:
    return service.placer._batches


# -- interrupted -----------------------------------------------------------------------------------


class NoScaling:
    def trigger(self, pool: str) -> None:
        pass


def a_placer(world: World) -> Placer:
    return Placer(
        world.caches,
        world.committer(),
        NoScaling(),
        reporting=world.reporting(),
        clock=asyncio.get_running_loop().time,
    )


async def test_what_was_being_written_when_the_lease_was_lost_is_decided_when_we_lead_again():
    world = await a_world(0)
    await world.vpod("a", 3)
    await world.sync()
    placer = a_placer(world)
    pause = world.api.pause("patch", "pods")
    async with at_work(placer.run()):
        await pause.reached.wait()
    async with at_work(placer.run()):
        await placed(world, timeout_s=5)


async def test_what_was_decided_and_nobody_knows_of_is_not_held_when_we_lead_again():
    """Seed 312000120: another leader had placed others there meanwhile, and one of them was trimmed
    for what nobody had placed.
    """
    world = await a_world(0)
    await world.vpod("a", 3)
    await world.sync()
    placer = a_placer(world)
    pool = world.caches.state.pool(POOL)
    for verb in ("patch", "get"):
        world.api.fail(verb, "pods", before=lost(), times=99)
    async with at_work(placer.run()):
        await asyncio.sleep(3)
    assert pool.decided_of("tenant/a") == {"dispatcher-0": 3}, "it may have been written"
    pool.reserve(("bind", "u"), "tenant/b", {"dispatcher-0": Share(2)}, expires_at=float("inf"))
    placer.forget(WHOLE)
    assert pool.decided_of("tenant/a") == {}
    assert pool.decided_of("tenant/b") == {"dispatcher-0": 2}, (
        "what a pod is bound with does not go by who leads"
    )


async def test_moves_that_nobody_was_told_of_are_forgotten_once_another_replica_has_led():
    """What the vpod gave up later was called the move that the other replica had not made."""
    world = await World.create()
    await world.pod(0, {"tenant/a": 3}, node="node-0")
    await world.pods(1)
    await world.vpod("a", 3, {0: 3})
    await world.sync()
    placer = a_placer(world)
    world.api.fail("patch", "vpods/status", before=lost())
    await placer.move(
        POOL, [Move("tenant/a", "dispatcher-0", "dispatcher-1", 3, MoveReason.POLICY)]
    )
    placer.forget(WHOLE)
    await world.set_vreplicas("a", 1)
    await world.sync()
    async with at_work(placer.run()):
        await until(world.published, {0: 1})
    text = world.metrics.render().decode()
    assert 'vreplica_scheduler_moves_total{reason="Policy"} 0.0' in text


SCENE_WRITES = 14


@pytest.mark.parametrize("writes", range(1, SCENE_WRITES))
async def test_a_crash_after_any_write_moves_nothing(writes: int):
    """grown: more are wanted; shrunk: fewer; new: not placed yet; gone: deleted, its ledger entries
    still there.
    """
    world = await World.create()
    stands = {"tenant/grown": 2, "tenant/shrunk": 4, "tenant/still": 3, "tenant/gone": 1}
    for ordinal in range(3):
        await world.pod(ordinal, stands, node=f"node-{ordinal}")
    await world.vpod("grown", 12, {0: 2, 1: 2, 2: 2})
    await world.vpod("shrunk", 6, {0: 4, 1: 4, 2: 4})
    await world.vpod("still", 9, {0: 3, 1: 3, 2: 3})
    await world.vpod("new", 5)
    start = world.cluster.version
    done = 0

    def count(call: Call) -> None:
        nonlocal done
        done += call in world.api.writes()[-1:]
        if done == writes:
            world.api.dead = True

    world.api.served = count
    async with world.serving():
        await asyncio.sleep(3)
    world.api.dead, world.api.served = False, lambda _call: None
    await world.check()
    async with world.serving(seed=2):
        await asyncio.sleep(5)
    await world.check()
    assert await history(world, "still", since=start) == []
    grown = await history(world, "grown", since=start)
    assert all(step[f"dispatcher-{o}"] >= 2 for step in grown for o in range(3))
    for name, vreplicas in (("grown", 12), ("shrunk", 6), ("still", 9), ("new", 5)):
        assert await world.placed(name) == vreplicas
        ledgers = [(await world.ledger(ordinal)).get(f"tenant/{name}", 0) for ordinal in range(3)]
        assert sum(ledgers) == vreplicas, "S = L"
    assert not any(["tenant/gone" in await world.ledger(ordinal) for ordinal in range(3)])


@pytest.mark.parametrize("seed", range(6))
async def test_answers_lost_at_random_settle_with_nothing_lost_or_doubled(seed: int):
    world = await a_world(0, 1, 2)
    rng = random.Random(seed)
    for _ in range(25):
        what = rng.choice(["pods", "vpods/status"])
        world.api.fail(
            "patch", what, **{rng.choice(["before", "after"]): lost()}, times=rng.randint(0, 2)
        )
    async with world.serving():
        for index in range(10):
            await world.vpod(f"v{index}", rng.randint(0, 6))
            await asyncio.sleep(rng.random())
            await world.check()
        await asyncio.sleep(60)
        await world.check()
        for index in range(10):
            await placed(world, f"v{index}", timeout_s=1)
    pods = [await world.ledger(ordinal) for ordinal in range(3)]
    for index in range(10):
        assert sum(ledger.get(f"tenant/v{index}", 0) for ledger in pods) == sum(
            (await world.published(f"v{index}")).values()
        )


async def test_a_second_leader_makes_no_overcommitment():
    """Both believe to lead: compare-and-swap alone keeps them apart."""
    world = await a_world(0, 1, 2)
    async with world.serving(seed=1), world.serving(seed=2):
        for index in range(12):
            await world.vpod(f"v{index}", 6)
        for _ in range(20):
            await asyncio.sleep(0.5)
            await world.check()
    assert sum([sum((await world.ledger(ordinal)).values()) for ordinal in range(3)]) == 60


async def test_tenants_text_stays_out_of_log_lines_and_events(caplog: pytest.LogCaptureFixture):
    evil = "x\nERROR root: all is lost\x1b[31m\u202e"
    world = await a_world(0, maxPods=1, replicas=1)
    await world.annotate(0, **{names.PLACEMENTS_ANNOTATION: orjson.dumps({evil: "many"}).decode()})
    caplog.set_level("DEBUG")
    async with world.serving() as service:
        await world.vpod("a", 50, poolRef={"namespace": NS, "name": "dispatcher"})
        await asyncio.sleep(5)
        exposed = service.metrics.render().decode()
    page = [*await world.events("LedgerUnreadable"), *await world.events("FailedScheduling")]
    assert page
    for event in page:
        assert not set("\n\x1b\u202e") & set(event["note"])
    assert "all is lost" not in exposed
    assert not [
        r for r in caplog.records if r.name.startswith("extender") and "\n" in r.getMessage()
    ]


async def test_a_vpod_that_changes_its_pool_leaves_the_old_ledgers_once_it_publishes_in_the_new():
    world = await a_world(0)
    await world.cluster.create(
        STATEFULSETS, NS, {"metadata": {"name": "other"}, "spec": {"replicas": 1, **OTHER_TEMPLATE}}
    )
    spec = {"statefulSet": "other", "slotsPerPod": 20}
    meta = {"name": "other", "namespace": NS}
    await world.cluster.create(
        ADAPTERPOOLS,
        NS,
        {"apiVersion": names.API_VERSION, "kind": "AdapterPool", "metadata": meta, "spec": spec},
    )
    async with world.serving():
        await world.vpod("a", 3)
        await placed(world)
        assert await world.ledger(0) == {"tenant/a": 3}
        patch = {"spec": {"poolRef": {"name": "other"}}}
        await world.cluster.patch(VPODS, TENANT, "a", patch, patch_type=PatchType.MERGE)
        await until(lambda: _ledgers_are(world, {0: {}}), timeout_s=30)
    assert await world.published() == {}


OTHER_TEMPLATE: Obj = {
    "selector": {"matchLabels": {"app": "other"}},
    "serviceName": "other",
    "template": {
        "metadata": {"labels": {"app": "other"}},
        "spec": {"containers": [{"name": "adapter", "image": "adapter"}]},
    },
}


async def test_a_move_whose_answer_was_lost_is_told_with_its_reason_all_the_same():
    world = await a_world(0, 1)
    async with world.serving() as service:
        await world.vpod("a", 2)
        await placed(world)
        world.api.fail("patch", "vpods/status", before=lost(), times=2)
        await world.annotate(1, **{names.UNSCHEDULABLE_ANNOTATION: "true"})
        await until(lambda: _ledgers_are(world, {0: {"tenant/a": 2}, 1: {}}), timeout_s=10)
        await asyncio.sleep(60)
        assert (await world.conditions())["Moved"]["reason"] == "Drain"
        assert len(await world.events("Moved")) == 1
        assert 'moves_total{reason="Drain"} 1.0' in service.metrics.render().decode()


async def test_a_shrink_in_doubt_that_is_not_wanted_any_more_moves_nothing():
    world = await a_world(0, 1)
    async with world.serving():
        await world.vpod("a", 4)
        await placed(world)
        before = await world.published()
        await world.pods(2)
        await asyncio.sleep(1)
        world.api.fail("patch", "vpods/status", before=lost())
        await world.set_vreplicas("a", 0)
        await asyncio.sleep(0.5)
        await world.set_vreplicas("a", 4)
        seen = []
        for _ in range(100):
            seen.append(await world.published())
            await asyncio.sleep(0.1)
        assert all(published == before for published in seen)


async def test_more_pods_raise_the_target_of_a_vpod_that_has_all_it_asked_for():
    world = await a_world(0, minPodsPerVPod=2, minPods=2)
    async with world.serving():
        await world.vpod("a", 1)
        await placed(world)
        assert await world.published() == {0: 1}
        await world.pods(1)
        await until(world.placed, 2, timeout_s=5)
    assert await world.published() == {0: 1, 1: 1}


async def test_under_knatives_rules_more_pods_raise_even_the_target_of_a_vpod_that_wants_none():
    world = await a_world(0, minPodsPerVPod=2, minPods=2, profile="knative")
    async with world.serving():
        await world.vpod("a", 0)
        await placed(world)
        assert await world.published() == {0: 1}
        await world.pods(1)
        await until(world.placed, 2, timeout_s=5)
    assert await world.published() == {0: 1, 1: 1}


async def test_a_ledger_covers_what_a_status_may_say_while_that_is_in_doubt():
    """A status arrives, its answer does not; then all shall be as the old status, which the watch
    still shows, says.
    """
    world = await a_world(0)
    await world.pod(1, {"tenant/a": 1}, node="node-1")
    await world.vpod("a", 1, {1: 1})
    await world.sync()
    committer = world.committer()

    async def commit(target: dict[str, int]) -> None:
        vpod = world.caches.vpods.latest("tenant/a")
        assert vpod is not None
        steps = Explanation(1, (), 0, None)
        decision = Decision("tenant/a", POOL, target, 1, 0, steps, (vpod.uid, vpod.generation))
        committer.reserve("test", decision)
        await committer.commit("test", POOL, [decision])

    world.api.fail("patch", "vpods/status", after=lost())
    await commit({"dispatcher-0": 1})
    assert await world.published() == {0: 1}
    await commit({"dispatcher-1": 1})
    assert await world.ledger(0) == {"tenant/a": 1}
    await world.check()
    await world.sync()
    await commit({"dispatcher-1": 1})
    assert (await world.published(), await world.ledger(0)) == ({1: 1}, {})


async def test_pods_that_a_statefulset_made_anew_adopts_give_room_at_once():
    """Found by review: what waited heard of it a minute later."""
    world = await a_world(0, 1, replicas=2, minPods=2, rescheduleAfterSeconds=None)
    async with world.serving(checked=False):
        await world.vpod("a", 4)
        await until(lambda: world.condition("a"), ("True", "AllPlaced"), timeout_s=5)
        await asyncio.sleep(61)
        await world.cluster.delete(STATEFULSETS, NS, "dispatcher")
        await world.stateful_set(2)
        await asyncio.sleep(1)
        await world.vpod("b", 4)
        await until(lambda: world.condition("b"), ("False", "InsufficientSlots"), timeout_s=5)
        new = await world.cluster.get(STATEFULSETS, NS, "dispatcher")
        owner: Obj = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "dispatcher"}
        owner |= {"uid": new["metadata"]["uid"], "controller": True}
        adopted = {"metadata": {"ownerReferences": [owner]}}
        for ordinal in (0, 1):
            name = f"dispatcher-{ordinal}"
            await world.cluster.patch(PODS, NS, name, adopted, patch_type=PatchType.MERGE)
        await until(lambda: world.condition("b"), ("True", "AllPlaced"), timeout_s=2)
