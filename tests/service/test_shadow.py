"""Shadow mode: every answer of the other scheduler is compared with ours, and nothing is
written.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

import orjson
import pytest

from extender.config.model import Config, Mode, ServerConfig
from extender.kube.api import EVERYWHERE, PODS, VPODS
from extender.kube.read_only import ReadOnlyApi
from extender.model.objects import VPod
from extender.service import shadow as shadow_module
from extender.service.app import Service
from extender.service.shadow import Shadow
from extender.service.watching.caches import Caches
from extender.telemetry.metrics import Metrics
from extender.whatif.comparison import Outcome
from tests.support.builders import POOL, a_node, a_pod, a_pool, a_stateful_set, a_vpod
from tests.support.service import FaultApi, World, a_world, bind_args, filter_args, wall
from tests.support.tasks import at_work

pytestmark = pytest.mark.looptime


class Scene:
    """A shadow over caches that the test fills: ``pods`` bound pods of 4 slots, each on a node of
    its own.
    """

    def __init__(self, pods: int = 3, **pool_fields) -> None:
        self.caches = Caches()
        self.metrics = Metrics()
        self.api = ReadOnlyApi(None)  # type: ignore[arg-type]
        clock = asyncio.get_running_loop().time
        self.shadow = Shadow(self.caches, self.api, metrics=self.metrics, clock=clock, now=wall)
        self.version = 0
        self.caches.stateful_sets.update(a_stateful_set(pods))
        self.caches.pools.update(a_pool(4, **pool_fields))
        for ordinal in range(pods):
            self.caches.nodes.update(a_node(f"node-{ordinal}", f"z{ordinal}"))
            self.pod(ordinal)

    def pod(self, ordinal: int, ledger: Mapping[str, int] | None = None, **fields) -> None:
        self.version += 1
        pod = a_pod(ordinal, ledger, **{"node": f"node-{ordinal}", **fields})
        self.caches.pods.update(replace(pod, resource_version=str(self.version)))

    def vpod(
        self, name: str, vreplicas: int, placements: Mapping[int, int] | None = None, **fields
    ) -> None:
        self.version += 1
        self.put(a_vpod(name, vreplicas, placements, resource_version=str(self.version), **fields))

    def put(self, vpod: VPod) -> None:
        self.caches.vpods.update(vpod)

    async def outcomes(self) -> list[str]:
        """What has been told by now, in its order."""
        await asyncio.sleep(3 * shadow_module.SETTLE_S)
        return [str(record.outcome) for record in self.shadow.records]


@asynccontextmanager
async def running(scene: Scene) -> AsyncIterator[Scene]:
    async with at_work(scene.shadow.run()):
        yield scene


async def test_the_answer_that_we_would_have_given_is_the_same():
    async with running(Scene()) as it:
        it.vpod("a", 4)
        it.vpod("a", 4, {0: 2, 1: 1, 2: 1})
        assert await it.outcomes() == ["Same"]
        (record,) = it.shadow.records
        assert (record.vpod, record.pool, record.wanted) == ("tenant/a", POOL, 4)
        assert record.before == {}
        assert (
            record.ours
            == record.theirs
            == {"dispatcher-0": 2, "dispatcher-1": 1, "dispatcher-2": 1}
        )
        assert record.explanation[-1] == "all 4 vreplicas are placed"


@pytest.mark.parametrize(
    ("wanted", "before", "after", "outcome"),
    [
        pytest.param(3, {}, {0: 3}, "OtherPods", id="packed"),
        pytest.param(3, {0: 2, 1: 1}, {1: 1, 2: 2}, "OtherMoved", id="moved"),
        pytest.param(6, {0: 3}, {1: 3, 2: 3}, "OtherMoved", id="placed-afresh"),
        pytest.param(5, {}, {0: 1, 1: 1}, "WouldPlaceMore", id="too-few"),
        pytest.param(2, {0: 2}, {0: 2, 1: 2}, "WouldPlaceLess", id="too-many"),
        pytest.param(5, {}, {0: 5}, "Overcommitted", id="overcommitted"),
        pytest.param(2, {0: 2, 1: 2}, {0: 2}, "Same", id="shrunk"),
    ],
)
async def test_another_answer_is_called_by_what_differs(wanted, before, after, outcome):
    async with running(Scene()) as it:
        it.vpod("a", sum(before.values()), before)
        it.vpod("a", wanted, before)
        it.vpod("a", wanted, after)
        assert await it.outcomes() == [outcome]
        record = it.shadow.records[0]
        assert record.theirs == {f"dispatcher-{ordinal}": count for ordinal, count in after.items()}


async def test_each_answer_is_judged_from_the_state_before_it():
    async with running(Scene(pods=2)) as it:
        for name in "abc":
            it.vpod(name, 2)
        it.vpod("a", 2, {0: 1, 1: 1})
        it.vpod("b", 2, {0: 1, 1: 1})
        it.vpod("c", 2, {0: 2})
        assert await it.outcomes() == ["Same", "Same", "OtherPods"]


async def test_the_ledger_of_another_vreplica_scheduler_does_not_whisper_its_answer():
    """It writes the ledger before the status: with it in the state, whatever it did would be kept,
    and be the same.
    """
    async with running(Scene()) as it:
        it.vpod("a", 3)
        it.pod(0, {"tenant/a": 3})
        it.vpod("a", 3, {0: 3})
        assert await it.outcomes() == ["OtherPods"]


async def test_a_pod_of_which_we_hear_later_than_of_what_was_placed_on_it_counts():
    async with running(Scene(pods=3)) as it:
        it.pod(2, node="", uid="new")
        it.vpod("a", 12, {0: 4, 1: 4})
        await asyncio.sleep(1)
        it.vpod("a", 12, {0: 4, 1: 4, 2: 4})
        it.pod(2, uid="new")
        assert await it.outcomes() == ["Same"]


async def test_what_the_other_has_published_before_we_came_is_not_judged():
    async with running(Scene()) as it:
        it.vpod("a", 3, {0: 3})
        it.vpod("a", 3, {0: 3}, scheduled_vreplicas=3)
        it.vpod("a", 3, {0: 3, 1: 0})
        assert await it.outcomes() == []


async def test_an_answer_to_an_older_spec_is_not_judged():
    async with running(Scene()) as it:
        it.vpod("a", 2, generation=1)
        it.vpod("a", 5, generation=2)
        it.vpod("a", 5, {0: 1, 1: 1}, generation=2, observed_generation=1)
        it.vpod("a", 5, {0: 2, 1: 2, 2: 1}, generation=2, observed_generation=2)
        assert await it.outcomes() == ["Same"]
        assert it.shadow.describe()["notJudged"] == {"OlderGeneration": 1}


async def test_a_vpod_of_a_pool_that_we_do_not_know_is_not_judged():
    async with running(Scene()) as it:
        it.vpod("a", 2, pool="elsewhere/none")
        it.vpod("a", 2, {0: 2}, pool="elsewhere/none")
        assert await it.outcomes() == []
        assert it.shadow.describe()["notJudged"] == {"PoolNotFound": 1}


async def test_an_answer_that_does_not_come_is_told_once():
    async with running(Scene()) as it:
        it.vpod("a", 2)
        assert await it.outcomes() == []
        assert it.shadow.describe()["waiting"] == 1
        await asyncio.sleep(100)
        assert await it.outcomes() == ["Waiting"]
        record = it.shadow.records[0]
        assert (record.ours, record.theirs) == ({"dispatcher-0": 1, "dispatcher-1": 1}, {})
        it.vpod("a", 2, {0: 1, 1: 1})
        assert await it.outcomes() == ["Waiting", "Same"]
        assert it.shadow.describe()["waiting"] == 0


async def test_where_there_is_no_room_nobody_is_awaited():
    async with running(Scene(pods=1)) as it:
        it.vpod("a", 4, {0: 4})
        it.vpod("b", 2)
        await asyncio.sleep(60)
        assert await it.outcomes() == []


async def test_a_vpod_that_goes_is_awaited_no_longer():
    async with running(Scene()) as it:
        vpod = a_vpod("a", 2, resource_version="9")
        it.put(vpod)
        it.caches.vpods.delete(vpod)
        await asyncio.sleep(60)
        assert await it.outcomes() == []
        assert it.shadow.describe()["waiting"] == 0


async def test_a_vpod_created_again_under_its_name_is_a_new_one():
    async with running(Scene()) as it:
        it.vpod("a", 2, {0: 2}, uid="old")
        it.vpod("a", 2, uid="new")
        it.vpod("a", 2, {0: 1, 1: 1}, uid="new")
        assert await it.outcomes() == ["Same"]


async def test_outcomes_are_counted_in_metrics_and_told_in_one_log_line_each(caplog):
    with caplog.at_level(logging.INFO, logger=shadow_module.__name__):
        async with running(Scene()) as it:
            it.vpod("a", 1)
            named = a_vpod("a", 1, resource_version="99")
            it.put(replace(named, placements={"evil\n2026 ERROR \x1b[31m\u202e-0": 1}))
            await it.outcomes()
            text = it.metrics.render().decode()
    assert 'vreplica_scheduler_shadow_decisions_total{outcome="OtherPods"} 1.0' in text
    assert 'vreplica_scheduler_shadow_decisions_total{outcome="Same"} 0.0' in text
    (line,) = [r.getMessage() for r in caplog.records if r.name == shadow_module.__name__]
    assert line.isascii()
    assert line.isprintable()
    assert '"outcome": "OtherPods"' in line


async def test_only_the_last_comparisons_are_kept_and_the_queue_has_a_limit(monkeypatch):
    monkeypatch.setattr(shadow_module, "QUEUE_ITEMS_MAX", 5)
    it = Scene()
    for turn in range(300):
        it.vpod("a", 1, {turn % 2: 1})
    assert it.shadow.describe()["queued"] == 5
    async with running(it):
        assert len(await it.outcomes()) == shadow_module.RECORDS_MAX
        page = orjson.loads(orjson.dumps(it.shadow.describe()))
        assert sum(page["decisions"].values()) == 299
        assert page["last"][0]["theirs"] == {"dispatcher-1": 1}, "the newest first"


# -- beside another service ------------------------------------------------------------------------


class Beside:
    """A whole service in shadow mode, on the cluster of ``world``, with an API of its own that
    counts its calls.
    """

    def __init__(self, world: World) -> None:
        self.api = FaultApi(world.cluster)
        config = Config(server=ServerConfig(port=0), mode=Mode.SHADOW)
        self.service = Service(self.api, config, now=wall, rng=random.Random(7), serve=False)
        assert self.service.shadow is not None
        self.shadow: Shadow = self.service.shadow

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Beside"]:
        task = asyncio.create_task(self.service.run())
        try:
            await self.service.informers.wait_synced()
            yield self
        finally:
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled()
        assert {call.verb for call in self.api.calls} <= {"list", "watch", "get"}, (
            "nothing but reads"
        )


async def test_beside_an_active_service_all_is_the_same_and_nothing_is_written():
    world = await World.create(replicas=2, maxPods=6)
    async with (
        Beside(world).running() as beside,
        world.serving() as active,
        world.adapters(active),
    ):
        for number in range(12):
            await world.vpod(f"v{number}", 1 + number % 7)
            await asyncio.sleep(1)
        await world.set_vreplicas("v3", 9)
        await asyncio.sleep(1)
        await world.set_vreplicas("v5", 1)
        await asyncio.sleep(5)
        published = {f"v{number}": await world.published(f"v{number}") for number in range(12)}
    assert sum(map(sum, (counts.values() for counts in published.values()))) == 43
    outcomes = beside.shadow.outcomes
    assert set(outcomes) == {Outcome.SAME}, [record.to_json() for record in beside.shadow.records]
    assert outcomes[Outcome.SAME] >= 14
    assert beside.shadow.describe()["refusedWrites"] == {}, "nothing has even tried to write"
    assert not beside.service.leading()
    await world.check()


async def test_an_other_that_moves_and_overcommits_is_found_out():
    world = await a_world(0, 1, 2, replicas=3, slots=4)
    async with Beside(world).running() as beside:
        await world.vpod("a", 3, {0: 3})
        await asyncio.sleep(1)
        await publish(world, "a", {1: 3})
        await world.vpod("b", 2)
        await asyncio.sleep(1)
        await publish(world, "b", {1: 2})
        await asyncio.sleep(1)
    told = [(str(record.outcome), record.vpod) for record in beside.shadow.records]
    assert told == [
        ("OtherPods", "tenant/a"),
        ("OtherMoved", "tenant/a"),
        ("Overcommitted", "tenant/b"),
    ]


async def publish(world: World, name: str, placements: Mapping[int, int]) -> None:
    status = {
        "placements": [
            {"podName": f"dispatcher-{o}", "vreplicas": n} for o, n in placements.items()
        ]
    }
    await world.patch_status(VPODS, "tenant", name, **status)


async def test_the_verbs_answer_and_bind_is_refused_and_says_why():
    world = await World.create()
    await world.vpod("a", 2, {0: 2})
    await world.pod(0)
    pod = await world.pod_object(0)
    async with Beside(world).running() as beside:
        reply = orjson.loads(beside.service.verbs.filter(filter_args(pod, ["node-0", "node-1"]))[0])
        assert reply["NodeNames"] == ["node-0", "node-1"]
        scores = orjson.loads(beside.service.verbs.prioritize(filter_args(pod, ["node-0"]))[0])
        assert [score["Host"] for score in scores] == ["node-0"]
        for _ in range(2):
            bound = orjson.loads((await beside.service.verbs.bind(bind_args(pod, "node-0")))[0])
            assert "shadow mode writes nothing" in bound["Error"]
        pool = beside.service.caches.state.pool(POOL)
        assert pool.pods["dispatcher-0"].pod is not None
        assert not pool.pods["dispatcher-0"].bound, "what was assumed is undone"
    assert await world.node_of(0) == ""
    page = await world.cluster.list_page(PODS, EVERYWHERE)
    assert len(page.items) == 1
