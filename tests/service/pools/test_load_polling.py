"""Pools with a ``loadSource``: their leader asks, balances by what comes, and tells if nothing
comes.
"""

import asyncio
import logging
from itertools import pairwise
from math import nan
from typing import Any

import pytest

from extender.model.errors import WireError
from extender.service.pools import load_polling
from extender.service.pools.load_polling import AT_ONCE_MAX
from extender.service.pools.load_reports import Report
from extender.service.pools.prometheus import Answer, LoadTrouble, QueryFailed
from tests.service.test_load import METRIC, PERIOD_S, loads, pool_status, post, twelve_vpods
from tests.support.builders import NS, POOL
from tests.support.service import TENANT, World, until

pytestmark = pytest.mark.looptime

SOURCE = {
    "name": "requests",
    "url": "http://prometheus:9090",
    "query": 'n{namespace="$namespace", pod=~"$statefulSet-.+"}',
    "periodSeconds": 10,
    "timeoutSeconds": 5,
}
DOWN = QueryFailed(LoadTrouble.UNREACHABLE, "cannot be reached", "connection refused to 10.0.0.1")


class FakeServer:
    """Answers from memory; keeps the queries, with the loop's time."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, str]] = []
        self.known: list[Report] = []
        self.warnings = ""
        self.fails: QueryFailed | None = None
        self.delay_s = 0.0
        self.under_way = self.most_at_once = 0

    async def ask(self, query: str) -> Answer:
        self.asked.append((asyncio.get_running_loop().time(), query))
        self.under_way += 1
        self.most_at_once = max(self.most_at_once, self.under_way)
        try:
            await asyncio.sleep(self.delay_s)
        finally:
            self.under_way -= 1
        if self.fails is not None:
            raise self.fails
        return Answer(self.known, 0, self.warnings)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    """The only server that there is."""
    fake = FakeServer()
    monkeypatch.setattr(load_polling, "Prometheus", lambda _source: fake)
    return fake


async def a_world(**pool: Any) -> World:
    """Three pods, and a pool that takes its load from ``requests``."""
    rebalance = {"cooldownSeconds": 0, "load": {"metric": METRIC, "target": 1.2}}
    world = await World.create(
        replicas=3,
        minPods=3,
        maxPods=3,
        scaleDownPeriodSeconds=PERIOD_S,
        rescheduleAfterSeconds=None,
        **{"loadSource": "requests", "rebalance": rebalance, **pool},
    )
    await world.pods(0, 1, 2)
    return world


async def unavailable(world: World) -> tuple[str, str, str]:
    """Status, reason and message of the condition LoadUnavailable, empty if there is none."""
    for condition in (await pool_status(world)).get("conditions", []):
        if condition["type"] == "LoadUnavailable":
            return condition["status"], condition["reason"], condition["message"]
    return ("", "", "")


async def shares(world: World, rates: dict[str, float]) -> list[Report]:
    """What Prometheus knows of the pods' ledgers."""
    return [
        Report(key, f"dispatcher-{ordinal}", rates[key.partition("/")[2]] * count)
        for ordinal in range(3)
        for key, count in (await world.ledger(ordinal)).items()
    ]


async def test_a_pool_is_balanced_by_what_its_source_answers(server: FakeServer):
    world = await a_world()
    rates = await twelve_vpods(world)
    async with world.serving(load_sources=[SOURCE]):
        await asyncio.sleep(5)
        before = await loads(world, rates)
        assert max(before) > 1.25 * sum(before) / 3
        for _ in range(60):
            server.known = await shares(world, rates)
            await asyncio.sleep(10)
        after = await loads(world, rates)
        assert max(after) <= 1.25 * sum(after) / 3
        assert {event["note"][-6:] for event in await world.events("Moved")} == {"(Load)"}
        assert await unavailable(world) == ("False", "LoadKnown", "loadSource requests answers")
        assert server.asked[0][1] == f'n{{namespace="{NS}", pod=~"dispatcher-.+"}}'


async def test_it_asks_at_once_and_then_every_period(server: FakeServer):
    world = await a_world()
    async with world.serving(load_sources=[SOURCE]) as service:
        await asyncio.sleep(31)
        assert [round(at) for at, _ in server.asked] == [0, 10, 20, 30]
        assert 'load_queries_total{result="answered"} 4' in service.metrics.render().decode()


async def test_after_failures_it_waits_longer_and_after_an_answer_it_does_not(server: FakeServer):
    world = await a_world()
    server.fails = DOWN
    async with world.serving(load_sources=[SOURCE]):
        await asyncio.sleep(1000)
        times = [at for at, _ in server.asked]
        waits = [later - before for before, later in pairwise(times)]
        assert 10 <= waits[0] <= 12
        assert all(before < later for before, later in pairwise(waits[:4]))
        assert max(waits) <= 120 * 1.2 + 1
        server.fails = None
        await asyncio.sleep(150)
        begun = len(server.asked)
        await asyncio.sleep(100)
        assert len(server.asked) == begun + 10


async def test_failures_are_told_by_condition_metric_and_log_and_so_is_their_end(
    server: FakeServer, caplog: pytest.LogCaptureFixture
):
    world = await a_world()
    server.fails = DOWN
    with caplog.at_level(logging.INFO):
        async with world.serving(load_sources=[SOURCE]) as service:
            await asyncio.sleep(35)
            status, reason, message = await unavailable(world)
            assert (status, reason) == ("True", "Unreachable")
            assert message == "loadSource requests: cannot be reached", "no address"
            text = service.metrics.render().decode()
            assert f'pool_load_unavailable{{pool="{POOL}"}} 1' in text
            assert 'load_queries_total{result="Unreachable"}' in text
            server.fails = None
            await asyncio.sleep(100)
            assert (await unavailable(world))[:2] == ("False", "LoadKnown")
            assert f'pool_load_unavailable{{pool="{POOL}"}} 0' in service.metrics.render().decode()
    told = [record.getMessage() for record in caplog.records if "loadSource" in record.message]
    assert len(told) == 2, "once, not for each query"
    assert "connection refused to 10.0.0.1" in told[0]


async def test_a_warning_of_the_server_is_told_and_its_answer_counts(
    server: FakeServer, caplog: pytest.LogCaptureFixture
):
    world = await a_world()
    server.warnings = "store gateway 10.0.0.1 is down"
    with caplog.at_level(logging.INFO):
        async with world.serving(load_sources=[SOURCE]) as service:
            await world.vpod("a", 3)
            await asyncio.sleep(5)
            server.known = await shares(world, {"a": 1.0})
            await asyncio.sleep(35)
            status, reason, message = await unavailable(world)
            assert (status, reason) == ("False", "LoadPartial")
            assert message == "loadSource requests answers, but warns that something may be missing"
            assert 'load_reports_total{result="kept"} 0' not in service.metrics.render().decode()
            server.warnings = ""
            await asyncio.sleep(15)
            assert (await unavailable(world))[1] == "LoadKnown"
    told = [record for record in caplog.records if "loadSource" in record.message]
    assert [record.levelname for record in told] == ["WARNING", "INFO"], "once, not for each query"
    assert "store gateway 10.0.0.1 is down" in told[0].getMessage()


async def test_a_source_that_the_configuration_lacks_is_told_and_nothing_is_asked(
    server: FakeServer,
):
    world = await a_world(loadSource="other")
    async with world.serving(load_sources=[SOURCE]):
        await asyncio.sleep(300)
        assert (await unavailable(world))[:2] == ("True", "UnknownSource")
        assert server.asked == []
        await world.patch_pool(loadSource="requests")
        await asyncio.sleep(3)
        assert len(server.asked) == 1, "at once"
        assert (await unavailable(world))[0] == "False"


async def test_an_answer_about_nothing_is_right_while_all_that_waits_is_reserved(
    server: FakeServer,
):
    """The first placements of a pool are on their way."""
    world = await a_world()
    await world.vpod("a", 3)
    stopped = world.api.pause("patch", "pods")
    async with world.serving(load_sources=[SOURCE]):
        await stopped.reached.wait()
        await asyncio.sleep(30)
        assert server.asked
        assert (await unavailable(world))[0] == "False"
        stopped.go_on.set()


async def test_an_answer_about_nothing_of_the_pool_is_told(server: FakeServer):
    world = await a_world()
    await world.vpod("a", 3)
    server.known = [Report("a", "dispatcher-0", 1.0), Report(f"{TENANT}/a", "p", 1.0)]
    async with world.serving(load_sources=[SOURCE]):
        await asyncio.sleep(30)
        assert (await unavailable(world))[:2] == ("True", "NoSeries")


@pytest.mark.parametrize(
    ("loads", "told"),
    [
        ([nan, nan], ("True", "NoUsableValue")),
        ([nan, -1.0], ("True", "NoUsableValue")),
        ([nan, 1.0], ("False", "LoadKnown")),
    ],
)
async def test_an_answer_without_any_usable_value_is_told(
    server: FakeServer, loads: list[float], told: tuple[str, str]
):
    """Found by review: it counted as an answer, and nothing moved for load."""
    world = await a_world()
    await world.vpod("a", 6)
    pods = ("dispatcher-0", "dispatcher-1")
    server.known = [Report(f"{TENANT}/a", pod, load) for pod, load in zip(pods, loads, strict=True)]
    async with world.serving(load_sources=[SOURCE]):
        await asyncio.sleep(30)
        assert (await unavailable(world))[:2] == told


async def test_an_empty_pool_has_no_series_and_that_is_right(server: FakeServer):
    world = await a_world()
    async with world.serving(load_sources=[SOURCE]):
        await asyncio.sleep(30)
        assert server.asked
        assert (await unavailable(world))[0] == "False"


async def test_a_pool_without_a_source_has_no_condition_and_asks_nothing(server: FakeServer):
    world = await a_world(loadSource=None)
    async with world.serving(load_sources=[SOURCE]):
        await asyncio.sleep(30)
        assert await unavailable(world) == ("", "", "")
        assert server.asked == []


async def test_a_pool_that_no_longer_names_a_source_stops_asking_and_takes_reports(
    server: FakeServer,
):
    world = await a_world()
    await world.vpod("a", 3)
    report = (f"{TENANT}/a", "dispatcher-0", 1.0)
    async with world.serving(load_sources=[SOURCE]) as service:
        await asyncio.sleep(5)
        with pytest.raises(WireError, match="takes its load from 'requests'") as caught:
            await post(service, report)
        assert caught.value.status == 409
        await world.patch_pool(loadSource=None)
        await asyncio.sleep(5)
        asked = len(server.asked)
        await asyncio.sleep(100)
        assert len(server.asked) == asked
        assert await unavailable(world) == ("", "", "")
        assert (await post(service, report))["kept"] == 1


async def test_an_answer_that_comes_after_the_pool_has_changed_is_dropped(server: FakeServer):
    world = await a_world()
    await world.vpod("a", 3)
    server.known = [Report(f"{TENANT}/a", "dispatcher-0", 1.0)]
    server.delay_s = 8.0
    async with world.serving(load_sources=[SOURCE]) as service:
        await asyncio.sleep(4)
        await world.patch_pool(loadSource=None)
        await asyncio.sleep(20)
        assert len(server.asked) == 1
        assert service.load_reports.shares() == 0


async def test_only_the_leader_asks_and_after_a_failover_the_new_one(server: FakeServer):
    world = await a_world()
    async with world.serving(elect=True, load_sources=[SOURCE], seed=2) as second:
        async with world.serving(elect=True, load_sources=[SOURCE]) as first:
            await until(lambda: first.leading() != second.leading(), timeout_s=60)
            begun = len(server.asked)
            await asyncio.sleep(100)
            assert len(server.asked) - begun <= 11, "one of the two"
        await asyncio.sleep(60)
        begun = len(server.asked)
        await asyncio.sleep(100)
        assert second.leading()
        assert 9 <= len(server.asked) - begun <= 11


async def test_few_queries_are_under_way_at_once(server: FakeServer):
    world = await a_world()
    for index in range(9):
        await world.pool(
            name=f"p{index}", loadSource="requests", rebalance={"load": {"metric": "n"}}
        )
    server.delay_s = 4.0
    async with world.serving(load_sources=[SOURCE]):
        await asyncio.sleep(60)
        assert server.most_at_once == AT_ONCE_MAX
        assert len(server.asked) >= 20


async def test_a_source_that_hangs_delays_no_other(monkeypatch: pytest.MonkeyPatch):
    servers = {"requests": FakeServer(), "hangs": FakeServer()}
    servers["hangs"].delay_s = 30.0
    monkeypatch.setattr(load_polling, "Prometheus", lambda source: servers[source.name])
    world = await a_world()
    for index in range(20):
        await world.pool(name=f"p{index}", loadSource="hangs", rebalance={"load": {"metric": "n"}})
    slow = {**SOURCE, "name": "hangs", "periodSeconds": 30, "timeoutSeconds": 30}
    async with world.serving(load_sources=[SOURCE, slow]):
        await asyncio.sleep(101)
    asked = [at for at, _ in servers["requests"].asked]
    assert max(later - at for at, later in pairwise(asked)) < 11
    assert servers["hangs"].most_at_once == AT_ONCE_MAX
