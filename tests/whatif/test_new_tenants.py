"""What if a new tenant came: what it gets, and who gives back how many slots."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from extender.model.errors import InvalidObject
from extender.model.objects import LabelSelector
from extender.model.tenancy import Tenancy, VReplicaQuota
from extender.whatif.new_tenants import NewTenant
from extender.whatif.request import change_from
from extender.whatif.snapshot import Snapshot
from extender.whatif.tenants import TENANTS_LISTED_MAX
from extender.whatif.whatif import Change, what_if
from tests.support.builders import POOL, Scene

MANY = 2**31 - 1


def a_scene(max_pods: int | None = 2, **tenancy) -> Scene:
    """Two pods of 20 slots."""
    scene = Scene(replicas=2, max_pods=max_pods, tenancy=Tenancy(**tenancy))
    return scene.pods(0, 1)


def with_tenant(scene: Scene, name: str, vreplicas: int, *used: int) -> Scene:
    """A vpod in a namespace of its own, with so many vreplicas on each pod."""
    placements = dict(enumerate(used))
    ledgers = {ordinal: count for ordinal, count in placements.items() if count}
    for ordinal, count in ledgers.items():
        known = scene.pool.pods[f"dispatcher-{ordinal}"].pod
        assert known is not None
        shares = {key: share.vreplicas for key, share in known.ledger.items()}
        scene.pod(ordinal, {**shares, f"{name}/{name}": count})
    return scene.namespace(name).vpod(name, vreplicas, placements, namespace=name)


def asked(scene: Scene, *tenants: tuple[str, int], **more: Any) -> Any:
    new = tuple(NewTenant(name, POOL, slots) for name, slots in tenants)
    return what_if(Snapshot.of(scene.state, [POOL]), Change(tenants=new, **more))


def used(answer: Any) -> dict[str, tuple[int, int]]:
    """Tenant -> slots that it uses without the change and with it."""
    [pool] = answer["pools"]
    return {row["tenant"]: (row["usedSettled"], row["usedAfter"]) for row in pool["tenants"]}


def test_a_new_tenant_gets_its_share_and_it_is_said_who_gives_back_how_much():
    scene = with_tenant(a_scene(), "greedy", MANY, 20, 10)
    with_tenant(scene, "modest", 10, 0, 10)
    answer = asked(scene, ("new", 40))
    assert used(answer) == {"new": (0, 15), "greedy": (30, 15)}
    assert answer["notes"][:2] == [
        f"pool {POOL}: tenant new would use 15 of the 40 slots that it asks for (its fair share is "
        "15)",
        f"pool {POOL}: 15 slots would be given back by greedy (15)",
    ]
    [new, greedy] = answer["pools"][0]["tenants"]
    assert new == {
        "tenant": "new",
        "new": True,
        "usedBefore": 0,
        "usedSettled": 0,
        "usedAfter": 15,
        "askedAfter": 40,
        "waitingAfter": 25,
        "guarantee": 0,
        "limit": None,
        "share": 15,
    }
    assert (greedy["new"], greedy["usedBefore"]) == (False, 30)
    [row] = [row for row in answer["vpods"] if row["new"]]
    assert (row["name"], sum(row["after"].values()), row["unplaced"]) == ("new/what-if", 15, 25)


def test_its_quota_counts_if_it_is_there_already():
    scene = with_tenant(a_scene(), "greedy", 40, 20, 20)
    quota = VReplicaQuota(namespace="new", name="q", pool=POOL, guarantee=30, limit=32)
    scene.state.quota_changed(None, quota)
    answer = asked(scene, ("new", 100))
    assert used(answer) == {"new": (0, 32), "greedy": (40, 8)}
    assert "tenant new would use 32 of the 100 slots" in answer["notes"][0]
    assert "its limit is 32" in answer["notes"][0]


def test_where_there_is_room_nobody_gives_anything_back():
    scene = with_tenant(a_scene(), "a", 10, 10)
    answer = asked(scene, ("new", 20))
    assert used(answer) == {"new": (0, 20)}
    assert answer["notes"] == [
        f"pool {POOL}: tenant new would use 20 of the 20 slots that it asks for",
        f"pool {POOL}: no tenant would give anything back",
    ]


def test_a_pool_that_may_grow_grows_for_it_and_that_is_said():
    scene = with_tenant(a_scene(max_pods=4), "a", 30, 20, 10)
    answer = asked(scene, ("new", 40), autoscale=True)
    assert used(answer) == {"new": (0, 40)}
    assert f"pool {POOL} would grow from 2 to 4 pods" in answer["notes"]
    answer = asked(scene, ("new", 40))
    assert used(answer) == {"new": (0, 10)}
    assert any("--autoscale counts them in" in note for note in answer["notes"])


def test_several_tenants_come_together():
    scene = with_tenant(a_scene(), "greedy", MANY, 20, 20)
    assert used(asked(scene, ("x", 5), ("y", 40))) == {
        "x": (0, 5),
        "y": (0, 17),
        "greedy": (40, 18),
    }


def test_a_tenant_by_label_comes_in_a_namespace_of_its_own_that_the_pool_selects():
    scene = a_scene(tenant_label="team")
    known = scene.pool.adapter_pool
    assert known is not None
    selector = LabelSelector(match_labels={"uses": "adapters"})
    scene.state.adapter_pool_changed(known, replace(known, namespace_selector=selector))
    answer = asked(scene, ("Team_A", 7), ("b", 3))
    assert used(answer) == {"Team_A": (0, 7), "b": (0, 3)}
    assert {row["name"] for row in answer["vpods"]} == {
        "what-if-tenant-0/what-if",
        "what-if-tenant-1/what-if",
    }


def test_a_tenant_by_label_comes_in_one_of_its_namespaces_that_the_pool_selects():
    scene = a_scene(tenant_label="team")
    known = scene.pool.adapter_pool
    assert known is not None
    selector = LabelSelector(match_labels={"uses": "adapters"})
    scene.state.adapter_pool_changed(known, replace(known, namespace_selector=selector))
    scene.namespace("b1", team="b")
    for name in ("b3", "b2"):
        scene.namespace(name, team="b", uses="adapters")
    [row] = asked(scene, ("b", 3))["vpods"]
    assert row["name"] == "b2/what-if"


def test_a_tenant_whose_namespace_the_pool_does_not_select_gets_nothing():
    scene = a_scene().namespace("b")
    known = scene.pool.adapter_pool
    assert known is not None
    selector = LabelSelector(match_labels={"uses": "adapters"})
    scene.state.adapter_pool_changed(known, replace(known, namespace_selector=selector))
    answer = asked(scene, ("b", 3))
    assert used(answer) == {"b": (0, 0)}
    assert answer["vpods"][0]["reasons"][0] == "TenantNotAllowed"


@pytest.mark.parametrize(
    ("tenancy", "name", "problem"),
    [
        pytest.param(
            {}, "there", "tenant there has vpods in AdapterPool .* already: ask", id="it is there"
        ),
        pytest.param({}, "Team_A", "are namespaces, and Team_A cannot be one", id="no namespace"),
        pytest.param(
            {"tenant_label": "team"}, "b", "selects no namespace of tenant b", id="not selected"
        ),
    ],
)
def test_a_tenant_that_cannot_come_is_refused(tenancy, name, problem):
    scene = with_tenant(a_scene(**tenancy), "there", 1)
    known = scene.pool.adapter_pool
    assert known is not None
    if tenancy:
        selector = LabelSelector(match_labels={"team": "a"})
        scene.state.adapter_pool_changed(known, replace(known, namespace_selector=selector))
    with pytest.raises(InvalidObject, match=rf"addTenants\[0\]: .*{problem}"):
        asked(scene, (name, 3))


def test_a_pool_without_tenancy_has_no_tenants_to_come():
    with pytest.raises(InvalidObject, match=r"has no spec\.tenancy: ask with addVPods instead"):
        asked(Scene().pods(0), ("a", 3))


def test_a_pool_without_tenancy_tells_of_no_tenants():
    [pool] = asked(Scene())["pools"]
    assert "tenants" not in pool


def test_of_many_tenants_that_change_those_that_give_back_most_are_listed():
    count = TENANTS_LISTED_MAX + 5
    scene = Scene(replicas=1, slots=count * 2, max_pods=1, tenancy=Tenancy()).pods(0)
    for number in range(count):
        with_tenant(scene, f"t{number:02}", 9, 2)
    quota = VReplicaQuota(namespace="new", name="q", pool=POOL, guarantee=count)
    scene.state.quota_changed(None, quota)
    [pool] = asked(scene, ("new", count))["pools"]
    assert len(pool["tenants"]) == TENANTS_LISTED_MAX
    assert pool["tenants"][0]["tenant"] == "new"
    assert pool["tenantsNotListed"] > 0
    lost = [row["usedSettled"] - row["usedAfter"] for row in pool["tenants"][1:]]
    assert lost == sorted(lost, reverse=True)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(0, 10)), max_size=4),
    st.integers(1, 60),
    st.integers(0, 10),
)
def test_what_it_gets_is_what_a_vpod_of_it_gets(others, slots, guarantee):
    """A vpod that is added by hand in a namespace of the tenant's name comes to the same."""
    scene = a_scene(default_guarantee=guarantee)
    for number, (vreplicas, placed) in enumerate(others):
        with_tenant(scene, f"t{number}", vreplicas, min(placed, 20 // len(others)))
    vpod = {"namespace": "new", "name": "what-if", "vreplicas": slots}
    by_hand = change_from({"addVPods": [vpod]}, pool=POOL)
    by_tenant = change_from({"addTenants": [{"name": "new", "slots": slots}]}, pool=POOL)
    answers: list[Any] = [
        what_if(Snapshot.of(scene.state, [POOL]), change) for change in (by_hand, by_tenant)
    ]
    assert answers[0]["pools"] == answers[1]["pools"]
    assert answers[0]["vpods"] == answers[1]["vpods"]
    got = used(answers[1])
    assert sum(after for _, after in got.values()) <= 40
    assert got["new"][1] >= min(slots, guarantee if guarantee * (len(others) + 1) <= 40 else 0)
