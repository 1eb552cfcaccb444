"""The evictor's limits in time: budget, cool-down, dry run, and what it tells."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from extender.engine.rebalance.relocation import relocate
from extender.engine.scaling.size import ScalePlan, plan_scale
from extender.kube.api import ApiError
from extender.kube.events import EventRecorder, ObjectReference
from extender.model.eviction import Eviction, encode_eviction
from extender.model.moves import Move, MoveReason
from extender.model.objects import Condition, Handoff, HandoffMode, LabelSelector, VPod
from extender.model.timestamps import timestamp
from extender.service.placing.placer import Placer
from extender.service.placing.vpod_events import VPodEvents
from extender.service.pools.evictor import Evictor
from extender.service.watching.caches import Caches
from extender.telemetry.metrics import Metrics
from tests.support.builders import POOL, a_node, a_pod, a_pool, a_stateful_set, a_vpod
from tests.support.service import World, wall
from tests.support.tasks import at_work

pytestmark = pytest.mark.looptime

PERIOD_S = 100


class Scaler:
    """Counts triggers."""

    def __init__(self) -> None:
        self.triggered: list[str] = []

    def trigger(self, pool: str) -> None:
        self.triggered.append(pool)


class Recorder(EventRecorder):
    """Keeps (reason, name of the object, note), and writes nothing."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def event(self, regarding: ObjectReference, *, reason, note, cause="", related=None) -> None:
        self.events.append((reason, regarding.name, note))


@dataclass
class Bench:
    """An evictor over caches that the test fills; the mover changes them as a committed
    move would.
    """

    caches: Caches = field(default_factory=Caches)
    scaler: Scaler = field(default_factory=Scaler)
    recorder: Recorder = field(default_factory=Recorder)
    metrics: Metrics = field(default_factory=Metrics)
    calls: list[tuple[float, list[Move]]] = field(default_factory=list)
    """(loop time, moves) of each call of the mover."""
    refuse: set[str] = field(default_factory=set)
    error: Exception | None = None
    version: int = 1

    def __post_init__(self) -> None:
        self.evictor = Evictor(
            self.caches,
            self,
            self.scaler,
            vpod_events=VPodEvents(self.recorder, self.metrics),
            metrics=self.metrics,
            now=wall,
        )

    async def move(self, pool: str, moves: Sequence[Move]) -> list[Move]:
        self.calls.append((asyncio.get_running_loop().time(), list(moves)))
        if self.error is not None:
            raise self.error
        done: list[Move] = []
        for key in dict.fromkeys(move.vpod for move in moves if move.vpod not in self.refuse):
            vpod = self.caches.state.pool(pool).vpods[key]
            decision = relocate(
                self.caches.state.pool(pool), vpod, [m for m in moves if m.vpod == key]
            )
            if decision is not None:
                self.vpod(replace(vpod, placements=dict(decision.target)))
                done += decision.moves
        return done

    def vpod(self, vpod: VPod) -> None:
        self.version += 1
        self.caches.vpods.update(replace(vpod, resource_version=str(self.version)))

    def pod(self, ordinal: int, **fields) -> None:
        self.version += 1
        self.caches.pods.update(a_pod(ordinal, {}, resource_version=str(self.version), **fields))

    def pool(self, **fields) -> None:
        self.version += 1
        fields = {
            "scale_down_period_s": PERIOD_S,
            "slots": 20,
            "generation": self.version,
            **fields,
        }
        self.caches.pools.update(a_pool(**fields))

    def fill(self, placements: dict[str, dict[int, int]], replicas: int = 3, **pool) -> "Bench":
        """Bound pods, and vpods that stand where the test says; the last pod is closed."""
        self.caches.nodes.update(a_node())
        self.caches.stateful_sets.update(a_stateful_set(replicas))
        self.pool(**pool)
        for ordinal in range(replicas):
            self.pod(ordinal)
        for name, where in placements.items():
            self.vpod(a_vpod(name, sum(where.values()), where))
        self.state.set_closed(1 << replicas - 1)
        return self

    @property
    def state(self):
        return self.caches.state.pool(POOL)

    def placed(self, name: str) -> dict[int, int]:
        found = self.state.decided_of(f"tenant/{name}")
        return {int(pod.rpartition("-")[2]): count for pod, count in found.items()}

    def moved(self) -> list[tuple[float, int]]:
        """(time of the call, vreplicas asked for)."""
        return [(at, sum(move.vreplicas for move in moves)) for at, moves in self.calls]

    def metric(self, name: str) -> dict[str, float]:
        families = text_string_to_metric_families(self.metrics.render().decode())
        return {
            sample.labels["reason"]: sample.value
            for family in families
            for sample in family.samples
            if sample.name == f"vreplica_scheduler_{name}_total" and sample.value
        }

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with at_work(self.evictor.run()):
            yield


def moved_condition(seconds_ago: float) -> tuple[Condition, ...]:
    return (Condition("Moved", "True", "Drain", "", timestamp(wall() - seconds_ago)),)


async def test_a_closed_pod_is_emptied_over_several_periods_and_the_autoscaler_told():
    bench = Bench().fill({"a": {2: 5}}, moves_per_period=2, move_cooldown_s=0)
    async with bench.running():
        await asyncio.sleep(PERIOD_S - 1)
        assert bench.calls == [], "placing has the first word"
        await asyncio.sleep(3 * PERIOD_S)
    assert bench.moved() == [(100, 2), (200, 2), (300, 1)]
    assert bench.placed("a") == {0: 3, 1: 2}
    assert bench.scaler.triggered == [POOL] * 3
    assert bench.metric("moves_planned") == {"Compaction": 5}


async def test_the_budget_is_a_periods_however_often_the_pool_is_looked_at():
    bench = Bench().fill({"a": {2: 9}}, moves_per_period=2, move_cooldown_s=0)
    async with bench.running():
        for _ in range(25):
            await asyncio.sleep(10)
            bench.evictor.trigger(POOL)
    assert sum(count for _, count in bench.moved()) == 6, (
        "two before the first period ends, and two in each"
    )


async def test_a_steady_stream_of_triggers_does_not_keep_a_period_from_ending():
    bench = Bench().fill({"a": {2: 9}}, moves_per_period=1, move_cooldown_s=0)
    async with bench.running():
        for _ in range(3 * PERIOD_S * 10):
            bench.evictor.trigger(POOL)
            await asyncio.sleep(0.1)
    assert len(bench.moved()) >= 3


@pytest.mark.parametrize("begins_s", [0.01, 0.04, 0.07, 0.11, 0.15])
async def test_a_timer_that_fires_a_moment_early_is_no_reason_to_look_again_and_again(
    begins_s, monkeypatch
):
    """The loop calls what is due within one tick of its clock."""
    bench = Bench().fill({"a": {2: 9}}, moves_per_period=1, move_cooldown_s=0)
    await asyncio.sleep(begins_s)
    looks: list[str] = []
    rebalance = bench.evictor.rebalance

    async def counted(key: str) -> object:
        looks.append(key)
        assert len(looks) < 100, "it looks without an end"
        return await rebalance(key)

    monkeypatch.setattr(bench.evictor, "rebalance", counted)
    async with bench.running():
        await asyncio.sleep(10.5 * PERIOD_S)
    assert len(looks) < 30


async def test_a_vpod_that_was_moved_cools_down():
    bench = Bench().fill({"a": {2: 3}, "b": {2: 4}}, moves_per_period=1, move_cooldown_s=250)
    async with bench.running():
        await asyncio.sleep(650)
    assert [(at, moves[0].vpod) for at, moves in bench.calls] == [
        (100, "tenant/a"),
        (200, "tenant/b"),
        (400, "tenant/a"),
        (500, "tenant/b"),
    ]


async def test_a_new_leader_reads_the_cool_down_from_the_status():
    bench = Bench().fill({"a": {2: 1}}, move_cooldown_s=300)
    bench.vpod(a_vpod("a", 1, {2: 1}, conditions=moved_condition(50)))
    async with bench.running():
        await asyncio.sleep(240)
        assert bench.calls == []
        await asyncio.sleep(70)
    assert bench.moved() == [(300, 1)]


@pytest.mark.parametrize("when", ["", "soon", "2999-01-01T00:00:00Z", "1970-01-01T00:00:00Z"])
async def test_a_time_of_a_move_that_makes_no_sense_holds_up_nothing(when):
    bench = Bench().fill({"a": {2: 1}})
    bench.vpod(a_vpod("a", 1, {2: 1}, conditions=(Condition("Moved", "True", "Drain", "", when),)))
    assert len(await bench.evictor.rebalance(POOL)) == 1


async def test_a_drain_knows_no_cool_down():
    bench = Bench().fill({"a": {1: 2}}, move_cooldown_s=300)
    bench.vpod(a_vpod("a", 2, {1: 2}, conditions=moved_condition(5)))
    bench.pod(1, unschedulable=True)
    (move,) = await bench.evictor.rebalance(POOL)
    assert move == Move("tenant/a", "dispatcher-1", "dispatcher-0", 2, MoveReason.DRAIN)


async def test_what_an_evicted_pod_holds_leaves_it_with_that_reason():
    handoff = Handoff(mode=HandoffMode.OVERLAP)
    bench = Bench().fill({"a": {1: 2}}, move_cooldown_s=300, handoff=handoff)
    bench.vpod(a_vpod("a", 2, {1: 2}, conditions=moved_condition(5)))
    mark = Eviction(100, 200, turn_s=100)
    evicting = encode_eviction(mark, bench.state.pods["dispatcher-1"].pod.uid)
    bench.pod(1, evicting_text=evicting)
    (move,) = await bench.evictor.rebalance(POOL)
    assert move == Move("tenant/a", "dispatcher-1", "dispatcher-0", 2, MoveReason.EVICTED)


async def test_what_an_abandoned_pod_holds_is_placed_elsewhere():
    bench = Bench().fill({"a": {1: 2}})
    bench.state.set_abandoned(frozenset({"dispatcher-1"}))
    (move,) = await bench.evictor.rebalance(POOL)
    assert move == Move("tenant/a", "dispatcher-1", "dispatcher-0", 2, MoveReason.RESCHEDULE)


class TestDryRun:
    async def test_it_tells_and_counts_once_and_writes_nothing(self):
        bench = Bench().fill({"a": {2: 2}, "b": {2: 1}}, move_dry_run=True)
        async with bench.running():
            await asyncio.sleep(4 * PERIOD_S)
        assert bench.calls == []
        assert bench.placed("a") == {2: 2}
        assert bench.scaler.triggered == []
        assert bench.recorder.events == [
            (
                "WouldMove",
                "b",
                "1 vreplica would move from dispatcher-2 to dispatcher-0 (Compaction)",
            ),
            (
                "WouldMove",
                "a",
                "1 vreplica would move from dispatcher-2 to dispatcher-0 (Compaction); "
                "1 vreplica would move from dispatcher-2 to dispatcher-1 (Compaction)",
            ),
        ]
        assert bench.metric("moves_planned") == {"Compaction": 3}

    async def test_what_is_new_is_told(self):
        bench = Bench().fill({"a": {2: 2}}, move_dry_run=True)
        await bench.evictor.rebalance(POOL)
        bench.vpod(a_vpod("c", 1, {2: 1}))
        await bench.evictor.rebalance(POOL)
        assert [name for _, name, _ in bench.recorder.events] == ["a", "c"]

    async def test_moves_begin_when_it_ends(self):
        bench = Bench().fill({"a": {2: 2}}, move_dry_run=True)
        async with bench.running():
            await asyncio.sleep(PERIOD_S + 1)
            bench.pool(move_dry_run=False)
            await asyncio.sleep(1)
        assert bench.moved() == [(101, 2)]

    async def test_the_next_one_tells_all_again(self):
        bench = Bench(refuse={"tenant/a"}).fill({"a": {2: 1}}, move_dry_run=True)
        async with bench.running():
            await asyncio.sleep(2 * PERIOD_S)
            assert len(bench.recorder.events) == 1
            bench.pool(move_dry_run=False)
            await asyncio.sleep(1)
            bench.pool(move_dry_run=True)
            await asyncio.sleep(3 * PERIOD_S)
        assert [name for _, name, _ in bench.recorder.events] == ["a", "a"]

    async def test_an_object_of_a_foreign_kind_gets_no_event_of_ours(self):
        bench = Bench().fill({}, move_dry_run=True)
        bench.vpod(
            a_vpod("a", 1, {2: 1}, source="consumergroup.internal.kafka.eventing.knative.dev")
        )
        await bench.evictor.rebalance(POOL)
        assert bench.recorder.events == []


class TestWhatGoesWrong:
    async def test_moves_that_are_refused_do_not_hold_the_budget_for_ever(self):
        bench = Bench(refuse={"tenant/a"}).fill({"a": {1: 1}, "b": {1: 3}}, moves_per_period=1)
        bench.pod(1, unschedulable=True)
        async with bench.running():
            await asyncio.sleep(5 * PERIOD_S - 1)
        assert [moves[0].vpod for _, moves in bench.calls] == [
            "tenant/a",
            "tenant/b",
            "tenant/a",
            "tenant/b",
        ]
        assert bench.placed("b") == {0: 2, 1: 1}
        assert len(bench.scaler.triggered) == 2

    async def test_an_error_is_waited_out_and_spends_nothing(self):
        bench = Bench(error=ApiError(500, "InternalError", "etcd")).fill(
            {"a": {2: 1}}, moves_per_period=1
        )
        async with bench.running():
            await asyncio.sleep(PERIOD_S + 1)
            bench.error = None
            await asyncio.sleep(2 * PERIOD_S)
        assert bench.placed("a") == {0: 1}

    async def test_a_pool_that_waits_for_its_mover_holds_up_no_other(self, monkeypatch):
        bench = Bench().fill({"a": {2: 1}})
        other = a_pool(name="other", stateful_set="other", scale_down_period_s=PERIOD_S)
        bench.caches.stateful_sets.update(a_stateful_set(2, name="other"))
        bench.caches.pools.update(other)
        pod = replace(
            a_pod(0, {}, resource_version="99"), name="other-0", pool=other.key, owner="other"
        )
        bench.caches.pods.update(pod)
        bench.vpod(replace(a_vpod("o", 1, pool=other.key), placements={"other-1": 1}))
        bench.caches.state.pool(other.key).set_closed(0b10)
        asked: list[str] = []

        async def hang(pool: str, moves: Sequence[Move]) -> list[Move]:
            asked.append(pool)
            await asyncio.sleep(1e6)
            return []

        monkeypatch.setattr(bench, "move", hang)
        async with bench.running():
            await asyncio.sleep(PERIOD_S + 1)
        assert sorted(asked) == [POOL, other.key]

    async def test_a_pool_without_a_budget_moves_nothing(self):
        bench = Bench().fill({"a": {2: 1}}, moves_per_period=0)
        async with bench.running():
            await asyncio.sleep(3 * PERIOD_S)
        assert bench.calls == []

    async def test_a_pool_that_goes_and_comes_back_is_looked_at_again(self):
        bench = Bench().fill({"a": {2: 1}})
        pool = bench.caches.pools.get(POOL)
        assert pool is not None
        async with bench.running():
            await asyncio.sleep(1)
            bench.caches.pools.delete(pool)
            await asyncio.sleep(2 * PERIOD_S)
            assert bench.calls == []
            bench.pool()
            bench.state.set_closed(0b100)
            await asyncio.sleep(PERIOD_S + 1)
        assert bench.placed("a") == {0: 1}

    @pytest.mark.parametrize("what", ["pool", "stateful set"])
    async def test_nothing_is_moved_in_a_pool_that_is_not_whole(self, what):
        bench = Bench().fill({"a": {2: 1}})
        if what == "pool":
            bench.pool(deleting=True)
        else:
            bench.caches.stateful_sets.delete(a_stateful_set(3))
        assert await bench.evictor.rebalance(POOL) == []
        assert await bench.evictor.rebalance("nowhere/nothing") == []
        assert bench.calls == []


class TestPolicy:
    def watched(self, monkeypatch, vpods: int, **pool) -> tuple[Bench, list[str]]:
        """An evictor whose plans are empty, and the vpods of each: their numbers."""
        bench = Bench().fill({f"v{index}": {0: 1} for index in range(vpods)}, **pool)
        looked: list[str] = []

        def look(state, limits, advice) -> list[Move]:
            looked.append("".join(key[-1] for key in advice.vpods))
            return []

        monkeypatch.setattr("extender.service.pools.evictor.plan_moves", look)
        monkeypatch.setattr("extender.service.pools.pool_moves.SLICE_VPODS", 2)
        monkeypatch.setattr("extender.service.pools.pool_moves.POLICY_PLANS_MAX", 2)
        return bench, looked

    async def test_it_looks_at_a_few_vpods_at_a_time_in_turn(self, monkeypatch):
        bench, looked = self.watched(monkeypatch, 5, profile="spread")
        await bench.evictor.rebalance(POOL)
        assert looked == ["01", "23"]
        await bench.evictor.rebalance(POOL)
        assert looked == ["01", "23", "4", "01"]

    async def test_others_run_in_between(self, monkeypatch):
        bench, looked = self.watched(monkeypatch, 5, profile="spread")
        task = asyncio.create_task(bench.evictor.rebalance(POOL))
        await asyncio.sleep(0)
        assert looked == ["01"]
        await task

    async def test_a_profile_without_plugins_has_none_to_look_at(self, monkeypatch):
        bench, looked = self.watched(monkeypatch, 5)
        await bench.evictor.rebalance(POOL)
        assert looked == [""]

    async def test_the_pool_is_sized_once_in_all_plans_of_a_look(self, monkeypatch):
        bench, looked = self.watched(monkeypatch, 5, profile="spread")
        bench.vpod(a_vpod("waits", 1))
        sized: list[str] = []

        def size(state, allows) -> ScalePlan | None:
            sized.append(state.key)
            return plan_scale(state, allows)

        monkeypatch.setattr("extender.service.pools.evictor.plan_scale", size)
        for looks in (1, 2):
            await bench.evictor.rebalance(POOL)
            assert (len(looked), sized) == (2 * looks, [POOL] * looks)

    async def test_tenants_that_the_pool_does_not_select_are_left_alone(self, monkeypatch):
        paid = LabelSelector(match_labels={"paid": "yes"})
        bench, looked = self.watched(monkeypatch, 2, profile="spread", namespace_selector=paid)
        await bench.evictor.rebalance(POOL)
        assert looked == [""]

    async def test_a_profile_evens_out_what_stands_unevenly_within_its_budget_and_then_rests(self):
        bench = Bench().fill({"a": {0: 6}}, profile="spread", moves_per_period=2, move_cooldown_s=0)
        bench.state.set_closed(0)
        async with bench.running():
            await asyncio.sleep(10 * PERIOD_S)
        assert bench.placed("a") == {0: 2, 1: 2, 2: 2}
        assert bench.moved() == [(100, 2), (200, 2)]
        assert bench.metric("moves_planned") == {"Policy": 4}

    async def test_two_plugins_that_disagree_are_stopped(self, monkeypatch):
        bench = Bench().fill({"a": {0: 1}}, profile="spread", move_cooldown_s=0)
        bench.state.set_closed(0)
        there = {
            "dispatcher-0": "dispatcher-1",
            "dispatcher-1": "dispatcher-2",
            "dispatcher-2": "dispatcher-0",
        }
        disagree = lambda pool, vpod, placed, profile: next((name, there[name]) for name in placed)  # noqa: E731
        monkeypatch.setattr("extender.engine.rebalance.moves.better_place", disagree)
        async with bench.running():
            await asyncio.sleep(10 * PERIOD_S)
            assert bench.moved() == [(100, 1), (200, 1)], (
                "back on dispatcher-0 it would be where it was"
            )
            bench.pod(0, unschedulable=True)
            bench.pod(0)
            await asyncio.sleep(2 * PERIOD_S)
            assert len(bench.moved()) == 2, "all is as it was again"
            bench.pod(1, slots=5)
            await asyncio.sleep(PERIOD_S)
            assert len(bench.moved()) == 3, "something has changed: it may be right now"


async def test_the_placer_makes_the_moves_with_reason_in_status_event_and_metric():
    world = await World.create(replicas=3, rebalance={"movesPerPeriod": 5, "cooldownSeconds": 300})
    await world.vpod("a", 3, {2: 3})
    for ordinal in range(3):
        await world.pod(ordinal, {"tenant/a": 3} if ordinal == 2 else {}, node=f"node-{ordinal}")
    await world.sync()
    clock = asyncio.get_running_loop().time
    scaler, recorder = Scaler(), Recorder()
    committer = world.committer()
    placer = Placer(
        world.caches,
        committer,
        scaler,
        reporting=world.reporting(recorder),
        clock=clock,
    )

    def an_evictor() -> Evictor:
        return Evictor(
            world.caches,
            placer,
            scaler,
            vpod_events=VPodEvents(recorder, world.metrics),
            metrics=world.metrics,
            now=wall,
        )

    state = world.caches.state.pool(POOL)
    state.set_closed(0b100)
    assert sum(move.vreplicas for move in await an_evictor().rebalance(POOL)) == 3
    assert await world.published() == {0: 2, 1: 1}
    assert await world.ledger(2) == {}
    await world.check()
    assert (await world.conditions())["Moved"]["reason"] == "Compaction"
    assert recorder.events == [
        (
            "Moved",
            "a",
            "2 vreplicas moved from dispatcher-2 to dispatcher-0 (Compaction); "
            "1 vreplica moved from dispatcher-2 to dispatcher-1 (Compaction)",
        )
    ]
    assert 'moves_total{reason="Compaction"} 3.0' in world.metrics.render().decode()
    await world.sync()
    state.set_closed(0b010)
    assert await an_evictor().rebalance(POOL) == [], "a new leader lets it cool down, too"
