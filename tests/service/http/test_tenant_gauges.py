"""Gauges of tenants: who has what, in a bounded number of series."""

import asyncio

import pytest

from extender.engine.state.cluster_state import ClusterState
from extender.engine.state.pool_state import PoolState
from extender.engine.state.tenancy import TenantUse
from extender.kube.api import NAMESPACES, VPODS
from extender.model.objects import Namespace, VPod
from extender.model.tenancy import Tenancy, VReplicaQuota
from extender.service.http import tenant_gauges
from extender.service.http.pool_gauges import POOLS_NAMED_MAX
from extender.service.http.tenant_gauges import (
    OTHERS,
    PERIOD_S,
    TENANTS_NAMED_MAX,
    TenantGauges,
    TenantNumbers,
    TenantSlots,
    add_tenant_gauges,
)
from extender.telemetry.exposition import OTHER
from extender.telemetry.metrics import Metrics
from tests.service.http.test_gauges import scraped
from tests.support.builders import NS, POOL, Scene, a_pool, a_stateful_set, a_vpod
from tests.support.service import World


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def a_scene(**tenancy) -> Scene:
    """One pod of 1,000 slots, whose pool may have no other."""
    return Scene(replicas=1, slots=1_000, max_pods=1, tenancy=Tenancy(**tenancy)).pods(0)


def with_tenant(scene: Scene, name: str, vreplicas: int, used: int = 0, **fields) -> Scene:
    """A vpod in a namespace of its own, which exists."""
    return scene.namespace(name).vpod(name, vreplicas, {0: used}, namespace=name, **fields)


def leads_all(_pool: str) -> bool:
    return True


def count(state: ClusterState, leads=leads_all) -> TenantNumbers:
    return TenantGauges(state, leads, Clock()).read()


def test_a_tenant_tells_what_it_uses_waits_for_and_borrows():
    scene = with_tenant(a_scene(default_guarantee=2, default_limit=50), "a", 30, 5, weight=2)
    assert count(scene.state).slots == {(POOL, "a"): TenantSlots(10, 50, 8, 2, 50)}
    assert count(scene.state).tenants == {POOL: 1}


def test_a_pool_without_tenancy_has_no_tenants():
    scene = with_tenant(Scene().pods(0), "a", 3, 3)
    assert count(scene.state) == TenantNumbers()


def test_the_tenants_that_use_most_are_named_and_the_rest_are_added_up():
    scene = a_scene(default_guarantee=2, default_limit=50)
    for number in range(TENANTS_NAMED_MAX + 3):
        with_tenant(scene, f"t{number:02}", 9, 1)
    with_tenant(scene, "large", 10, 9)
    slots = count(scene.state).slots
    named = [tenant for _, tenant in slots]
    assert named == ["large", *(f"t{n:02}" for n in range(TENANTS_NAMED_MAX - 1)), OTHERS]
    assert slots[POOL, OTHERS] == TenantSlots(4, 32, 0, 8, None)
    assert count(scene.state).tenants == {POOL: TENANTS_NAMED_MAX + 4}


@pytest.mark.parametrize("name", ["other", "missing"])
def test_the_row_of_the_rest_is_no_tenants_name(name):
    scene = with_tenant(a_scene(), name, 3, 3)
    for number in range(TENANTS_NAMED_MAX):
        with_tenant(scene, f"t{number}", 1, 1)
    slots = count(scene.state).slots
    assert (slots[POOL, name].used, slots[POOL, OTHERS].used) == (3, 1)


def test_a_namespace_that_a_caller_makes_up_gets_no_series():
    scene = with_tenant(a_scene(), "real", 1, 1)
    made_up = VPod(namespace="made-up", name="x", source="s.x.dev", pool=POOL, vreplicas=9)
    scene.state.vpod_changed(None, made_up)
    slots = count(scene.state).slots
    assert set(slots) == {(POOL, "real"), (POOL, OTHERS)}
    assert slots[POOL, OTHERS].waiting == 9


def test_tenants_are_named_by_the_label_of_their_namespaces():
    scene = a_scene(tenant_label="team")
    for name, labels in (("a1", {"team": "a"}), ("a2", {"team": "a"}), ("b", {})):
        scene.namespace(name, **labels).vpod(name, 4, {0: 2}, namespace=name)
    slots = count(scene.state).slots
    assert {key: row.used for key, row in slots.items()} == {
        (POOL, "a"): 4,
        (POOL, "namespace/b"): 2,
    }


def test_tenants_and_pools_that_go_have_no_series_any_more():
    scene = with_tenant(with_tenant(a_scene(), "a", 1, 1), "b", 1, 1)
    clock = Clock()
    gauges = TenantGauges(scene.state, leads_all, clock)
    assert set(gauges.read().slots) == {(POOL, "a"), (POOL, "b")}
    scene.no_vpod("b")
    clock.now_s += PERIOD_S
    assert set(gauges.read().slots) == {(POOL, "a")}
    scene.state.adapter_pool_changed(scene.pool.adapter_pool, None)
    clock.now_s += PERIOD_S
    assert gauges.read() == TenantNumbers()


def test_only_the_pools_that_a_replica_leads_are_told():
    scene = with_tenant(a_scene(default_guarantee=2), "a", 1)
    assert count(scene.state, lambda pool: pool == POOL) != TenantNumbers()
    assert count(scene.state, lambda pool: pool != POOL) == TenantNumbers()


def test_all_gauges_share_one_count_which_is_made_once_a_period(monkeypatch):
    scene = with_tenant(a_scene(), "a", 1, 1)
    counted: list[str] = []

    def tenant_uses(pool: PoolState) -> list[TenantUse]:
        counted.append(pool.key)
        return []

    monkeypatch.setattr(PoolState, "tenant_uses", tenant_uses)
    clock, metrics = Clock(), Metrics()
    add_tenant_gauges(metrics, scene.state, leads_all, clock)
    for now_s in (0.0, PERIOD_S - 0.1):
        clock.now_s = now_s
        metrics.render()
    assert counted == [POOL]
    clock.now_s = PERIOD_S
    metrics.render()
    assert counted == [POOL] * 2


def many_pools(count: int) -> ClusterState:
    """Pools with one tenant each, the same in all of them."""
    state = ClusterState()
    state.namespace_changed(None, Namespace(name="a", labels={}))
    for number in range(count):
        name = f"p{number:04}"
        state.stateful_set_changed(None, a_stateful_set(1, name=name))
        pool = a_pool(name=name, stateful_set=name, tenancy=Tenancy(default_guarantee=1))
        state.adapter_pool_changed(None, pool)
        state.vpod_changed(None, a_vpod(name, 1, namespace="a", pool=f"{NS}/{name}"))
    return state


def test_pools_that_share_a_label_name_no_tenant():
    numbers = count(many_pools(POOLS_NAMED_MAX + 2))
    assert numbers.slots[OTHER, OTHERS] == TenantSlots(0, 2, 0, 2, None)
    assert (OTHER, "a") not in numbers.slots
    assert (numbers.tenants[OTHER], numbers.below_guarantee[OTHER]) == (2, 2)


def test_the_names_in_all_pools_together_are_bounded(monkeypatch):
    monkeypatch.setattr(tenant_gauges, "NAMES_MAX", 3)
    slots = count(many_pools(5)).slots
    assert [tenant for _, tenant in slots] == ["a", "a", "a", OTHERS, OTHERS]


def test_a_pool_counts_the_tenants_that_are_below_their_guarantee():
    scene = with_tenant(a_scene(default_guarantee=4), "served", 9, 4)
    with_tenant(with_tenant(scene, "waits", 9, 3), "modest", 2, 2)
    scene.state.quota_changed(
        None, VReplicaQuota(namespace="waits", name="q", pool=POOL, guarantee=4)
    )
    assert count(scene.state).below_guarantee == {POOL: 1}


@pytest.mark.looptime
async def test_the_leader_alone_exports_what_tenants_have_until_they_go():
    world = await World.create(maxPods=3, tenancy={"defaultGuarantee": 3, "defaultLimit": 50})
    await world.pods(0, 1, 2)
    for name in ("a", "b"):
        await world.cluster.create(NAMESPACES, "", {"metadata": {"name": name}})
        await world.vpod(name, 40, namespace=name)
    async with world.serving(elect=True) as leader, world.serving(elect=True, seed=2) as follower:
        await asyncio.sleep(30)
        used = {(POOL, "a"): 30, (POOL, "b"): 30}
        assert scraped(leader, "tenant_used_slots") == used
        assert scraped(leader, "tenant_waiting_slots") == dict.fromkeys(used, 10)
        assert scraped(leader, "tenant_borrowed_slots") == dict.fromkeys(used, 27)
        assert scraped(leader, "tenant_guarantee_slots") == dict.fromkeys(used, 3)
        assert scraped(leader, "tenant_limit_slots") == dict.fromkeys(used, 50)
        assert scraped(leader, "pool_tenants") == {(POOL,): 2}
        assert scraped(leader, "pool_tenants_below_guarantee") == {(POOL,): 0}
        for name in ("tenant_used_slots", "pool_tenants", "pool_tenants_below_guarantee"):
            assert scraped(follower, name) == {}
        await world.cluster.delete(VPODS, "b", "b")
        await asyncio.sleep(10)
        assert scraped(leader, "tenant_used_slots") == {(POOL, "a"): 40}
