"""The whole service: load is reported, pods are balanced, and status and reasons say so."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import orjson
import pytest
from hypothesis import given, strategies as st

from extender.engine.pods.pod_loads import NO_LOADS, PodLoads
from extender.kube.api import ADAPTERPOOLS, Obj
from extender.model.errors import WireError
from extender.service.app import Service
from extender.service.http.load import reports_of_request
from tests.support.builders import NS, POOL
from tests.support.service import TENANT, World, until
from tests.support.tasks import at_work

pytestmark = pytest.mark.looptime

PERIOD_S = 100
METRIC = "requests_per_second"
REPORT_S = 10.0


async def a_world(**rebalance) -> World:
    """Three pods, all of which stay."""
    rebalance = {
        "movesPerPeriod": 10,
        "cooldownSeconds": 0,
        "load": {"metric": METRIC, "target": 1.2},
        **rebalance,
    }
    world = await World.create(
        replicas=3,
        minPods=3,
        maxPods=3,
        scaleDownPeriodSeconds=PERIOD_S,
        rescheduleAfterSeconds=None,
        rebalance=rebalance,
    )
    await world.pods(0, 1, 2)
    return world


async def post(service: Service, *reports: tuple[str, str, float], **fields) -> dict[str, Any]:
    """The answer to a request of these (vpod, pod, load)."""
    listed = [{"vpod": vpod, "pod": pod, "load": load} for vpod, pod, load in reports]
    body = {"pool": POOL, "metric": METRIC, "reports": listed, **fields}
    answer, _ = await service.load_verb().take(orjson.dumps(body))
    found: dict[str, Any] = orjson.loads(answer)
    return found


@asynccontextmanager
async def adapters_report(
    service: Service, world: World, rates: Mapping[str, float]
) -> AsyncIterator[None]:
    """Every 10 s, each pod reports what its ledger has. ``rates``: vpod name -> load of one."""

    async def work() -> None:
        while True:
            await asyncio.sleep(REPORT_S)
            shares = [
                (key, f"dispatcher-{ordinal}", rates[key.partition("/")[2]] * count)
                for ordinal in range(3)
                for key, count in (await world.ledger(ordinal)).items()
            ]
            await post(service, *shares)

    async with at_work(work()):
        yield


async def loads(world: World, rates: Mapping[str, float]) -> list[float]:
    return [
        sum(
            rates[key.partition("/")[2]] * count
            for key, count in (await world.ledger(ordinal)).items()
        )
        for ordinal in range(3)
    ]


async def pool_status(world: World) -> Obj:
    return dict((await world.cluster.get(ADAPTERPOOLS, NS, "dispatcher")).get("status", {}))


async def twelve_vpods(world: World) -> dict[str, float]:
    """Four vpods of one vreplica on each pod. Those of pod 0 have most of the load."""
    rates = {}
    for index in range(12):
        name = f"v{index:02}"
        rates[name] = 8.0 if index % 3 == 0 else 1.0
        await world.vpod(name, 1)
    return rates


async def test_hot_pods_are_balanced_with_the_reason_load_and_then_nothing_moves():
    world = await a_world()
    rates = await twelve_vpods(world)
    async with world.serving() as service, adapters_report(service, world, rates):
        await asyncio.sleep(5)
        before = await loads(world, rates)
        assert max(before) > 1.25 * sum(before) / 3
        await asyncio.sleep(6 * PERIOD_S)
        after = await loads(world, rates)
        assert max(after) <= 1.25 * sum(after) / 3
        notes = [event["note"] for event in await world.events("Moved")]
        assert notes
        assert all(note.endswith("(Load)") for note in notes)
        writes = len(world.api.writes())
        await asyncio.sleep(5 * PERIOD_S)
        assert await loads(world, rates) == after
        assert len(world.api.writes()) == writes, "the status neither"
        text = service.metrics.render().decode()
        assert f'pool_load_ratio{{pool="{POOL}"}} 1.' in text
        assert 'load_reports_total{result="kept"}' in text
        (told,) = service.load_reports.of_pod(POOL, "dispatcher-0")
        assert "times the pods' mean" in told
        status = (await pool_status(world))["load"]
        assert status["metric"] == METRIC
        assert status["maxToMean"] == round(max(after) / (sum(after) / 3), 2)
        assert status["silentVReplicas"] == 0


async def test_at_most_nine_percent_of_the_vreplicas_move_in_a_period():
    world = await a_world()
    rates = {}
    for index in range(9):
        rates[f"v{index}"] = 8.0 if index % 3 == 0 else 1.0
        await world.vpod(f"v{index}", 4, {index % 3: 4})
    async with world.serving() as service, adapters_report(service, world, rates):
        await asyncio.sleep(1.9 * PERIOD_S)
        moved = service.metrics.render().decode()
        (line,) = [row for row in moved.splitlines() if 'moves_total{reason="Load"}' in row]
        assert float(line.split()[-1]) == 3, "9 % of 36 are 3.24"


async def test_without_reports_nothing_moves_and_no_load_is_told():
    world = await a_world()
    await twelve_vpods(world)
    async with world.serving():
        await asyncio.sleep(4 * PERIOD_S)
        assert await world.events("Moved") == []
        assert "load" not in await pool_status(world)


async def test_nothing_moves_for_load_before_a_period_of_reports_has_ended():
    world = await a_world()
    rates = await twelve_vpods(world)
    async with world.serving() as service, adapters_report(service, world, rates):
        for _ in range(9):
            await asyncio.sleep(PERIOD_S / 10)
            service.evictor.trigger(POOL)
        assert await world.events("Moved") == []
        await asyncio.sleep(PERIOD_S / 5)
        assert await world.events("Moved")


async def test_a_dry_run_only_tells():
    world = await a_world(dryRun=True)
    rates = await twelve_vpods(world)
    async with world.serving() as service, adapters_report(service, world, rates):
        await asyncio.sleep(3 * PERIOD_S)
        assert await world.events("Moved") == []
        assert await world.events("WouldMove")


async def test_a_pool_that_no_longer_balances_forgets_what_was_reported():
    world = await a_world()
    await world.vpod("a", 3)
    async with world.serving() as service:
        await asyncio.sleep(5)
        await post(service, (f"{TENANT}/a", "dispatcher-0", 1.0))
        await asyncio.sleep(PERIOD_S)
        assert (await pool_status(world))["load"]["hottestPod"] == "dispatcher-0"
        await world.patch_pool(rebalance={"load": None})
        await asyncio.sleep(PERIOD_S + 5)
        assert "load" not in await pool_status(world)
        assert service.load_reports.shares() == 0
        with pytest.raises(WireError, match=r"does not balance load: set its spec.rebalance.load"):
            await post(service, (f"{TENANT}/a", "dispatcher-0", 1.0))


async def test_what_is_reported_is_there_for_new_placements_while_the_pool_balances_and_is_led():
    world = await a_world()
    await world.vpod("a", 3)
    async with world.serving() as service:
        await asyncio.sleep(5)
        pool = service.caches.state.pool(POOL)
        await post(service, (f"{TENANT}/a", "dispatcher-0", 1.0))
        await asyncio.sleep(PERIOD_S)
        assert pool.load is NO_LOADS, "most vreplicas are silent"
        for ordinal, load in enumerate((1.0, 4.0, 4.0)):
            await post(service, (f"{TENANT}/a", f"dispatcher-{ordinal}", load))
        await asyncio.sleep(PERIOD_S)
        assert [round(pool.load.expected(ordinal, 1), 2) for ordinal in range(3)] == [
            0.5,
            1.25,
            1.25,
        ]
        await world.patch_pool(rebalance={"load": None})
        await asyncio.sleep(PERIOD_S + 5)
        assert pool.load is NO_LOADS
        pool.load = PodLoads({0: 1.0}, {0: 1}, 1.0, 1.0)
    assert pool.load is NO_LOADS, "another replica leads"


async def test_reports_that_do_not_count_are_told_with_the_reason():
    world = await a_world()
    await world.vpod("a", 3)
    async with world.serving() as service:
        await asyncio.sleep(5)
        answer = await post(
            service,
            (f"{TENANT}/a", "dispatcher-0", 2.0),
            (f"{TENANT}/a", "dispatcher-1", -2.0),
            (f"{TENANT}/a", "dispatcher-7", 2.0),
            (f"{TENANT}/b", "dispatcher-0", 2.0),
        )
        assert answer["kept"] == 1
        assert [(one["vpod"], one["pod"], one["why"]) for one in answer["refused"]] == [
            (f"{TENANT}/a", "dispatcher-1", "Negative"),
            (f"{TENANT}/a", "dispatcher-7", "NotPlaced"),
            (f"{TENANT}/b", "dispatcher-0", "NotPlaced"),
        ]
        many = await post(service, *[(f"{TENANT}/b", "dispatcher-0", 2.0)] * 1200)
        assert (many["kept"], len(many["refused"]), many["refusedNotListed"]) == (0, 20, 1180)


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"pool": f"{NS}/other"}, 404, f"AdapterPool {NS}/other does not exist"),
        ({"metric": "bytes"}, 409, f"balances by {METRIC}, not by bytes"),
        ({"metric": "a b"}, 400, "metric: is not valid"),
        ({"pool": "dispatcher"}, 400, "pool: is not valid"),
        ({"pool": None}, 400, "pool: is required"),
        ({"reports": {}}, 400, "must be a list"),
        ({"reports": [{}]}, 400, r"reports\[0\].load: is no number"),
        ({"reports": [{"vpod": "a/b", "pod": "p", "load": "1"}]}, 400, "is no number"),
        ({"reports": [{"vpod": "a/b", "pod": "p", "load": True}]}, 400, "is no number"),
        ({"reports": [{"vpod": "a/../b", "pod": "p", "load": 1}]}, 400, r"reports\[0\].vpod"),
        ({"reports": [{"vpod": "a/b", "pod": "p/q", "load": 1}]}, 400, r"reports\[0\].pod"),
        ({"reports": [1]}, 400, "must be a JSON object"),
        ({"more": 1}, 400, "more: is not known"),
        ({"reports": [{"vpod": "a/b", "pod": "p", "load": 1}] * 5001}, 400, "the limit is 5000"),
    ],
)
async def test_a_wrong_request_is_refused_with_the_field_and_what_to_do(fields, status, message):
    world = await a_world()
    async with world.serving() as service:
        await asyncio.sleep(5)
        with pytest.raises(WireError, match=message) as caught:
            await post(service, **fields)
        assert caught.value.status == status


async def test_a_body_that_is_too_large_or_no_json_is_refused():
    world = await a_world()
    async with world.serving() as service:
        for body, status in ((b" " * (1024 * 1024 + 1), 413), (b"{", 400), (b"[]", 400)):
            with pytest.raises(WireError) as caught:
                await service.load_verb().take(body)
            assert caught.value.status == status


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["pool", "metric", "reports", "vpod", "pod", "load"]), inner
        )
    ),
    max_leaves=8,
)
reports = st.fixed_dictionaries(
    {"vpod": st.just("a/b") | values, "pod": st.just("p-0") | values, "load": st.floats() | values}
)


@given(
    body=st.binary(max_size=40)
    | st.fixed_dictionaries(
        {
            "pool": st.just(POOL) | values,
            "metric": st.just(METRIC) | values,
            "reports": st.lists(reports, max_size=3) | values,
        }
    ).map(lambda value: json.dumps(value).encode())
)
def test_no_body_raises_anything_but_a_refusal(body):
    with suppress(WireError):
        _, _, found = reports_of_request(body)
        assert all(isinstance(report.load, float) for report in found)


async def test_a_replica_that_does_not_lead_keeps_nothing_and_names_the_leader():
    world = await a_world()
    await world.vpod("a", 3)
    async with (
        world.serving(elect=True) as first,
        world.serving(elect=True, seed=2) as second,
    ):
        await until(lambda: first.leading() != second.leading(), timeout_s=60)
        leader, other = (first, second) if first.leading() else (second, first)
        await asyncio.sleep(30)
        report = (f"{TENANT}/a", "dispatcher-0", 1.0)
        with pytest.raises(WireError, match=f"{leader.identity} leads, ask it") as caught:
            await post(other, report)
        assert caught.value.status == 503
        assert (await post(leader, report))["kept"] == 1


async def test_explain_tells_the_load_of_a_vpod_and_of_a_pod():
    world = await a_world()
    await world.vpod("a", 3)
    async with world.serving() as service:
        await asyncio.sleep(5)
        await post(
            service,
            (f"{TENANT}/a", "dispatcher-0", 2.0),
            (f"{TENANT}/a", "dispatcher-1", 4.0),
            (f"{TENANT}/a", "dispatcher-2", -1.0),
        )
        await asyncio.sleep(PERIOD_S)
        state = service.caches.state.pool(POOL)
        assert service.load_reports.of_vpod(state, f"{TENANT}/a") == [
            f"load on dispatcher-0: 2 {METRIC}",
            f"load on dispatcher-1: 4 {METRIC}",
            f"load on dispatcher-2: 3 {METRIC}, which counts as the mean (Negative)",
        ]
        assert service.load_reports.of_pod(POOL, "dispatcher-1") == [
            f"load: 4 {METRIC}, 1.33 times the pods' mean, 5 s ago"
        ]
