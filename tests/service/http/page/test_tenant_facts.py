"""What a stream is told of the tenants of a pool with ``spec.tenancy``."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from extender.engine.state.pool_state import PoolState
from extender.engine.state.tenancy import TenantUse
from extender.model.objects import VPod
from extender.model.tenancy import Tenancy, VReplicaQuota
from extender.service.http.page import facts
from extender.service.http.page.facts import TENANCY_SECTIONS
from extender.service.http.page.records import Record, pool_record
from extender.whatif.tenants import tenants_of
from tests.service.http.page.test_facts import facts_of, look, three_zones
from tests.support.builders import NS, POOL, Scene, a_pool

SLOTS = 20


def a_shared_pool(*asked: int, **tenancy: Any) -> Scene:
    """Pod 0 has 20 slots, and the pool may have no other. ``tenant-0`` and so on ask for so many
    vreplicas.
    """
    scene = Scene(replicas=1, slots=SLOTS, max_pods=1, tenancy=Tenancy(**tenancy)).pod(0)
    for number, vreplicas in enumerate(asked):
        ask_for(scene, f"tenant-{number}", vreplicas)
    return scene


def ask_for(scene: Scene, tenant: str, vreplicas: int, published: int = 0, name: str = "") -> None:
    """The vpod of a tenant asks for so many, and has so many on pod 0."""
    scene.vpod(name or tenant, vreplicas, {0: published} if published else {}, namespace=tenant)


def a_quota(tenant: str, **spec: Any) -> VReplicaQuota:
    return VReplicaQuota(namespace=tenant, name="quota", pool=POOL, **spec)


def share(scene: Scene, old: Tenancy | None, new: Tenancy | None) -> None:
    """Change ``spec.tenancy`` of the pool."""
    scene.state.adapter_pool_changed(
        a_pool(SLOTS, max_pods=1, tenancy=old), a_pool(SLOTS, max_pods=1, tenancy=new)
    )


def test_what_each_tenant_has_may_have_and_waits_for_is_told_in_slots():
    scene = a_shared_pool(default_limit=50)
    scene.state.quota_changed(None, a_quota("late", guarantee=4))
    ask_for(scene, "greedy", 100, 15)
    ask_for(scene, "late", 5, 3)
    news = look(facts_of(scene))
    assert news["tenants"] == {
        "greedy": {
            "vpods": 1,
            "guarantee": 0,
            "limit": 50,
            "share": 15,
            "askedSlots": 100,
            "usedSlots": 15,
            "borrowedSlots": 15,
            "waitingSlots": 85,
        },
        "late": {
            "vpods": 1,
            "guarantee": 4,
            "limit": 50,
            "share": 5,
            "askedSlots": 5,
            "usedSlots": 3,
            "borrowedSlots": 0,
            "waitingSlots": 2,
        },
    }
    assert news["tenancy"] == {
        "": {
            "tenants": 2,
            "waitingTenants": 2,
            "waitingSlots": 87,
            "borrowers": [{"tenant": "greedy", "borrowedSlots": 15}],
        }
    }


def test_a_pool_without_tenancy_is_told_as_if_there_were_no_tenants():
    it = facts_of(three_zones())
    assert not look(it).keys() & set(TENANCY_SECTIONS)
    assert not it.all().keys() & set(TENANCY_SECTIONS)


def test_only_the_pool_that_is_looked_into_has_its_tenants_told():
    assert not look(facts_of(a_shared_pool(3), "")).keys() & set(TENANCY_SECTIONS)


def test_of_too_many_tenants_those_that_wait_for_most_are_told_and_all_are_counted(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(facts, "TENANTS_LISTED_MAX", 2)
    scene = a_shared_pool(1, 7, 3, 7)
    ask_for(scene, "borrower", 12, 12)
    news = look(facts_of(scene))
    assert set(news["tenants"]) == {"tenant-1", "tenant-3"}
    (summary,) = news["tenancy"].values()
    assert isinstance(summary, dict)
    assert (summary["tenants"], summary["waitingTenants"], summary["waitingSlots"]) == (5, 4, 18)
    borrowers = [{"tenant": "borrower", "borrowedSlots": 12}]
    assert summary["borrowers"] == borrowers, "named although it is not among those that wait"


def test_a_tenant_that_waits_no_more_makes_room_for_another(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(facts, "TENANTS_LISTED_MAX", 1)
    scene = a_shared_pool(7, 3)
    it = facts_of(scene)
    assert set(look(it)["tenants"]) == {"tenant-0"}
    ask_for(scene, "tenant-0", 7, 7)
    news = look(it)["tenants"]
    assert news["tenant-0"] is None
    assert news["tenant-1"]["waitingSlots"] == 3  # type: ignore[index]


def test_a_quota_that_changes_is_told_although_no_vpod_is_admitted_otherwise():
    scene = a_shared_pool(3)
    it = facts_of(scene)
    assert look(it)["tenants"]["tenant-0"]["guarantee"] == 0  # type: ignore[index]
    quota = a_quota("tenant-0", guarantee=6)
    scene.state.quota_changed(None, quota)
    assert look(it)["tenants"]["tenant-0"]["guarantee"] == 6  # type: ignore[index]
    scene.state.quota_changed(quota, replace(quota, limit=9))
    assert look(it)["tenants"]["tenant-0"]["limit"] == 9  # type: ignore[index]


def test_a_change_of_one_tenant_tells_no_other():
    scene = a_shared_pool(2, 3)
    it = facts_of(scene)
    look(it)
    ask_for(scene, "tenant-1", 4)
    assert set(look(it)["tenants"]) == {"tenant-1"}
    assert look(it) == {}


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.sampled_from("ab"), st.integers(0, 30), st.integers(0, 9)),
        st.tuples(st.just("guarantee"), st.sampled_from("ab"), st.integers(0, 20)),
        st.tuples(st.just("team"), st.sampled_from("ab"), st.sampled_from(["red", ""])),
        st.tuples(st.just("pods"), st.integers(0, 2)),
        st.tuples(st.just("leave"), st.sampled_from("ab")),
    ),
    max_size=8,
)


@settings(max_examples=60)
@given(changes=CHANGES)
def test_what_was_told_of_tenants_change_by_change_is_what_there_is(
    changes: list[tuple[Any, ...]],
):
    scene = a_shared_pool(tenant_label="team")
    it = facts_of(scene)
    quotas: dict[str, VReplicaQuota] = {}
    for change in changes:
        look(it)
        match change:
            case "ask", name, vreplicas, published:
                ask_for(scene, name, vreplicas, published)
            case "guarantee", name, guarantee:
                quota = a_quota(name, guarantee=guarantee)
                scene.state.quota_changed(quotas.get(name), quota)
                quotas[name] = quota
            case "team", name, team:
                scene.namespace(name, team=team)
            case "pods", replicas:
                scene.stateful_set(replicas)
            case _, name:
                scene.no_vpod(name)
    look(it)
    look(it)
    fresh = facts_of(scene)
    look(fresh)
    for section in TENANCY_SECTIONS:
        assert it.all().get(section) == fresh.all().get(section)


def test_tenants_are_counted_only_when_something_has_changed(monkeypatch: pytest.MonkeyPatch):
    scene = a_shared_pool(2, 3)
    it = facts_of(scene)
    look(it)
    look(it)
    counted: list[str] = []

    def noted(pool: PoolState) -> list[TenantUse]:
        counted.append(pool.key)
        return tenants_of(pool)

    monkeypatch.setattr(facts, "tenants_of", noted)
    look(it)
    look(it)
    assert counted == []
    ask_for(scene, "tenant-1", 4)
    look(it)
    assert counted == [POOL]


def test_a_change_that_has_shares_decided_anew_has_the_pool_counted_once(
    monkeypatch: pytest.MonkeyPatch,
):
    scene = a_shared_pool(30, default_limit=50)
    it = facts_of(scene)
    look(it)
    counted: list[str] = []

    def noted(pool: PoolState) -> Record:
        counted.append(pool.key)
        return pool_record(pool)

    monkeypatch.setattr(facts, "pool_record", noted)
    ask_for(scene, "late", 4)
    look(it)
    look(it)
    assert counted == [POOL]


def test_the_tenant_of_a_namespace_is_told_where_it_is_not_the_namespace():
    scene = a_shared_pool(2, 3, tenant_label="team").namespace("tenant-0", team="red")
    it = facts_of(scene)
    news = look(it)
    assert news["namespaces"] == {"tenant-0": "red", "tenant-1": "namespace/tenant-1"}
    assert set(news["tenants"]) == {"red", "namespace/tenant-1"}
    scene.namespace("tenant-0", team="blue")
    news = look(it)
    assert news["namespaces"] == {"tenant-0": "blue"}
    assert news["tenants"].keys() == {"red", "blue"}
    assert news["tenants"]["red"] is None
    assert "namespaces" not in look(facts_of(a_shared_pool(2, 3)))


def test_tenants_go_with_the_tenancy_of_their_pool_and_with_the_pool():
    scene = a_shared_pool(2, tenant_label="team")
    it = facts_of(scene)
    look(it)
    share(scene, Tenancy(tenant_label="team"), None)
    news = look(it)
    gone = "namespace/tenant-0"
    assert (news["tenants"], news["tenancy"]) == ({gone: None}, {"": None})
    assert news["namespaces"] == {"tenant-0": None}
    assert not it.all().keys() & set(TENANCY_SECTIONS)
    share(scene, None, Tenancy())
    assert set(look(it)["tenants"]) == {"tenant-0"}


def test_a_shared_pool_that_nobody_uses_says_that_it_has_no_tenants():
    news = look(facts_of(a_shared_pool()))
    assert news["tenancy"] == {
        "": {"tenants": 0, "waitingTenants": 0, "waitingSlots": 0, "borrowers": []}
    }
    assert "tenants" not in news


def test_more_than_a_browser_counts_is_told_as_the_most_that_it_does():
    scene = a_shared_pool()
    for number in range(3):
        vpod = VPod(namespace="huge", name=f"v-{number}", pool=POOL, vreplicas=2**53)
        scene.state.vpod_changed(None, vpod)
    news = look(facts_of(scene))
    assert news["tenants"]["huge"]["waitingSlots"] == 2**53 - 1  # type: ignore[index]
    assert news["tenancy"][""]["waitingSlots"] == 2**53 - 1  # type: ignore[index]


@pytest.mark.parametrize("name", ["__proto__", '"><script>alert(1)</script>', NS, "\u202egpj"])
def test_a_name_is_told_as_it_is(name: str):
    scene = a_shared_pool(tenant_label="team").namespace("tenant-0", team=name)
    ask_for(scene, "tenant-0", 1)
    assert set(look(facts_of(scene))["tenants"]) == {name}
