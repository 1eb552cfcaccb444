"""Gauges that are read when they are scraped."""

import asyncio

import pytest
from prometheus_client.parser import text_string_to_metric_families

from extender.engine.state.cluster_state import ClusterState
from extender.kube.api import VPODS
from extender.service.app import Service
from extender.service.http.pool_gauges import MISSING, POOLS_NAMED_MAX, PoolGauges
from extender.service.http.process_metrics import LoopLag
from extender.telemetry.exposition import OTHER, Label
from extender.telemetry.metrics import Metrics
from tests.soak.measure import metric
from tests.support.builders import NS, Scene, a_pool
from tests.support.service import World, a_world

pytestmark = pytest.mark.looptime


async def test_the_tasks_of_the_event_loop_are_counted_so_that_one_that_leaks_shows():
    world = await World.create()
    async with world.serving() as service:
        await asyncio.sleep(2)
        before = metric(service.metrics.render().decode(), "vreplica_scheduler_asyncio_tasks")
        leaked = [asyncio.create_task(asyncio.sleep(1000)) for _ in range(3)]
        after = metric(service.metrics.render().decode(), "vreplica_scheduler_asyncio_tasks")
        assert after == before + 3
        for task in leaked:
            task.cancel()


def scraped(service: Service, name: str) -> dict[tuple[str, ...], float]:
    """Values of a family's labels, in the order of their names -> amount."""
    text = service.metrics.render().decode()
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == f"vreplica_scheduler_{name}"
    }


async def test_a_vpod_waits_from_when_it_comes_until_it_has_its_place_over_all_attempts():
    world = await World.create()
    await world.vpod("a", 3)
    async with world.serving() as service:
        await asyncio.sleep(100)
        assert scraped(service, "pending_vpods_oldest_seconds")[()] == pytest.approx(100, abs=2)
        assert scraped(service, "unschedulable_vpods") == {("InsufficientSlots",): 1}
        await world.pods(0)
        await asyncio.sleep(5)
        assert scraped(service, "pending_vpods_oldest_seconds") == {(): 0}
        assert scraped(service, "unschedulable_vpods") == {}
        ((attempts,),) = [
            k
            for k, v in scraped(service, "vpod_scheduling_sli_duration_seconds_count").items()
            if v
        ]
        assert int(attempts) > 1
        (waited,) = scraped(service, "vpod_scheduling_sli_duration_seconds_sum").values()
        assert waited == pytest.approx(101, abs=4)


async def test_what_changes_nothing_is_no_placement_that_somebody_waited_for():
    world = await World.create()
    await world.pod(0, {"tenant/a": 3}, node="node-0")
    await world.vpod("a", 3, {0: 3})
    async with world.serving() as service:
        await asyncio.sleep(30)
        assert sum(scraped(service, "schedule_attempts_total").values()) > 0
        assert scraped(service, "vpod_scheduling_attempts_count") == {(): 0}


async def test_a_replica_that_does_not_lead_tells_of_no_vpod_that_waits():
    world = await World.create()
    await world.vpod("a", 3)
    async with world.serving(elect=True) as leader, world.serving(elect=True, seed=2) as follower:
        await asyncio.sleep(30)
        assert leader.leading()
        assert not follower.leading()
        assert sum(scraped(leader, "pending_vpods").values()) == 1
        assert sum(scraped(follower, "pending_vpods").values()) == 0
        assert scraped(follower, "pending_vpods_oldest_seconds") == {(): 0}
        assert scraped(follower, "pool_pending_vreplicas") == {(f"{NS}/dispatcher",): 3}


async def test_a_pool_tells_of_its_pods_slots_and_vreplicas():
    world = await a_world(0)
    await world.pod(1, {}, node="node-1", annotations={"vreplica.dev/unschedulable": "true"})
    await world.vpod("a", 25)
    async with world.serving() as service:
        await asyncio.sleep(5)
        pool = f"{NS}/dispatcher"
        slots = scraped(service, "pool_slots")
        assert {state: amount for (name, state), amount in slots.items() if name == pool} == {
            "total": 40,
            "used": 20,
            "free": 0,
            "closed": 20,
            "reserved": 0,
        }
        pods = scraped(service, "pool_pods")
        assert (pods[pool, "schedulable"], pods[pool, "unschedulable"]) == (1, 1)
        assert scraped(service, "pool_pending_vreplicas") == {(pool,): 5}
        assert scraped(service, "pool_vpods") == {(pool,): 1}


def test_of_what_is_placed_a_pool_tells_how_much_is_served_and_how_much_is_not():
    scene = Scene(replicas=2).pod(0, {"tenant/a": 3}, ready=True).pod(1, {"tenant/a": 2})
    scene.vpod("a", 9, {0: 3, 1: 2})
    ((_, numbers),) = PoolGauges(scene.state).read()
    assert (numbers.ready, numbers.unserved, numbers.pending) == (3, 2, 4)


def test_pools_beyond_the_limit_are_added_up_and_a_pool_keeps_its_name_while_it_exists():
    state = ClusterState()
    for number in range(POOLS_NAMED_MAX + 5):
        state.adapter_pool_changed(None, a_pool(name=f"p{number:04}"))
    gauges = PoolGauges(state)
    named = [label for label, _ in gauges.read()]
    assert named.count(OTHER) == 5
    assert len(set(named)) == POOLS_NAMED_MAX + 1
    state.adapter_pool_changed(None, a_pool(name="p"))
    assert [label for label, _ in gauges.read()].count(f"{NS}/p") == 0, (
        "one that comes first by name takes no other's"
    )
    state.adapter_pool_changed(state.pools[f"{NS}/p0000"].adapter_pool, None)
    assert [label for label, _ in gauges.read()].count(OTHER) == 5


async def test_a_reflector_tells_how_long_it_has_heard_nothing():
    world = await World.create()
    async with world.serving() as service:
        await asyncio.sleep(600)
        silence = scraped(service, "reflector_silence_seconds")
        assert set(silence) == {(r.resource.plural,) for r in service.informers.reflectors}
        assert max(silence.values()) <= 150, "bookmarks come once a minute"
        assert set(scraped(service, "reflector_synced").values()) == {1}


def test_a_value_that_is_not_in_a_labels_closed_set_is_counted_as_other():
    metrics = Metrics()
    metrics.gauge("things", "Things", Label("kind", ("good",)), lambda: {"good": 1, "x": 2, "y": 3})
    metrics.refused("forged\n")
    lines = metrics.render().decode()
    assert 'vreplica_scheduler_things{kind="other"} 5.0' in lines
    assert 'vreplica_scheduler_refusals_total{reason="other"} 1.0' in lines
    assert "forged" not in lines


def test_a_name_is_declared_once():
    metrics = Metrics()
    with pytest.raises(ValueError, match="vreplica_scheduler_refusals is declared twice"):
        metrics.add_counter("refusals", "Again")


async def test_the_loops_lag_is_what_a_callback_keeps_it_from():
    metrics = Metrics()
    lag = asyncio.create_task(LoopLag(metrics).run())
    await asyncio.sleep(2)
    lag.cancel()
    text = metrics.render().decode()
    assert metric(text, "vreplica_scheduler_event_loop_lag_seconds_count") >= 7
    assert metric(text, "vreplica_scheduler_event_loop_lag_seconds_sum") < 0.01, (
        "virtual time is never late"
    )


async def test_an_outage_that_is_over_before_the_next_scrape_is_counted():
    world = await World.create()
    await world.pods(0)
    await world.ready(0)
    await world.vpod("a", 3)
    pool = (f"{NS}/dispatcher",)
    async with world.serving() as service:
        await asyncio.sleep(20)
        assert scraped(service, "pool_unserved_vreplica_seconds_total") == {pool: 0}
        await world.ready(0, ready=False)
        await asyncio.sleep(10)
        await world.ready(0)
        await asyncio.sleep(10)
        seconds = scraped(service, "pool_unserved_vreplica_seconds_total")
        assert seconds[pool] == pytest.approx(30, abs=3)


async def test_vpods_whose_pool_does_not_exist_have_one_series_however_many_pools_they_name():
    world = await World.create()
    async with world.serving() as service:
        for name in ("x", "y"):
            await world.vpod(name, 3, poolRef={"namespace": NS, "name": name})
        await asyncio.sleep(5)
        assert scraped(service, "pool_pending_vreplicas") == {
            (f"{NS}/dispatcher",): 0,
            (MISSING,): 6,
        }
        assert scraped(service, "pool_vpods")[(MISSING,)] == 2
        for name in ("x", "y"):
            await world.cluster.delete(VPODS, "tenant", name)
        await asyncio.sleep(5)
        assert set(scraped(service, "pool_vpods")) == {(f"{NS}/dispatcher",)}


def test_a_deleted_pool_leaves_its_unserved_vreplicas_under_missing_and_overcommits_no_pod():
    scene = Scene(replicas=1).pod(0, {"tenant/a": 3}).vpod("a", 3, {0: 3})
    scene.state.adapter_pool_changed(scene.pool.adapter_pool, None)
    ((label, numbers),) = PoolGauges(scene.state).read()
    assert (label, numbers.unserved, numbers.ready, numbers.vpods) == (MISSING, 3, 0, 1)
    assert scene.pool.overcommitted() == [], "it is not known how many slots they have"
