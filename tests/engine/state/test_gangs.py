"""What is admitted of vpods that need several vreplicas together (minAvailable)."""

import pytest

from extender.engine.scaling.size import plan_scale
from extender.engine.state.admission import Wanted, admitted_within
from extender.model.tenancy import Preemption, Tenancy
from tests.support.builders import Scene

LOW, HIGH = 0, 1000


def wanted(now: int, least: int = 0, used: int = 0, *, priority: int = LOW) -> Wanted:
    return Wanted(now, now, used, weight=1, priority=priority, preempts=True, least=least)


def admitted(vpods: list[Wanted], slots: int = 10, *, preempts: bool = False) -> list[int]:
    used = [one.used for one in vpods]
    return list(admitted_within(slots, vpods, used, preempts=preempts).vreplicas)


@pytest.mark.parametrize(
    ("vpods", "counts"),
    [
        pytest.param([wanted(4, 4), wanted(8, 8), wanted(6)], [4, 0, 6], id="the next one gets it"),
        pytest.param([wanted(4, 4), wanted(8, 5)], [4, 6], id="part of it is enough"),
        pytest.param([wanted(6, 6, 5), wanted(5, used=5)], [0, 5], id="it has lost some"),
        pytest.param(
            [wanted(6, 6, 5), wanted(6, 6, 5)], [6, 0], id="one gives the other what it has lost"
        ),
        pytest.param([wanted(9, 9, 9), wanted(8, 8, 8)], [9, 0], id="too much is used"),
    ],
)
def test_it_gets_as_many_as_it_needs_together_or_none(vpods: list[Wanted], counts: list[int]):
    assert admitted(vpods) == counts


def test_a_more_important_one_takes_nothing_if_it_could_not_have_all_that_it_needs():
    vpods = [wanted(11, 11, priority=HIGH), wanted(10, used=10)]
    assert admitted(vpods, preempts=True) == [0, 10]


def test_of_a_less_important_one_that_would_have_too_few_all_is_taken():
    vpods = [wanted(3, priority=HIGH), wanted(10, 8, 10)]
    assert admitted(vpods, preempts=True) == [3, 0]


def test_what_it_waits_for_until_others_have_left_goes_to_nobody_else():
    """Of the ten slots, six leave in any case. It needs eight."""
    vpods = [wanted(8, 8, priority=HIGH), wanted(0, used=6), wanted(4)]
    assert admitted(vpods, preempts=True) == [0, 0, 0]
    vpods = [wanted(8, 8, priority=HIGH), wanted(4)]
    assert admitted(vpods, preempts=True) == [8, 2]


def test_a_tenants_share_that_ends_within_one_is_lent_to_others():
    scene = Scene(replicas=1, slots=10, max_pods=1, tenancy=Tenancy()).pods(0)
    for tenant, least in (("t0", 6), ("t1", 0)):
        scene.vpod(tenant, 9, namespace=tenant, min_available=least)
    assert {vpod.name: vpod.vreplicas for vpod in scene.pool.vpods.values()} == {"t0": 0, "t1": 9}


def test_what_is_left_of_shares_is_lent_to_one_that_can_then_have_what_it_needs():
    """Each of three has a share of three."""
    scene = Scene(replicas=1, slots=10, max_pods=1, tenancy=Tenancy()).pods(0)
    scene.vpod("a", 9, namespace="t0", min_available=4)
    scene.vpod("b", 3, namespace="t1").vpod("c", 3, namespace="t2")
    assert {vpod.name: vpod.vreplicas for vpod in scene.pool.vpods.values()} == {
        "a": 4,
        "b": 3,
        "c": 3,
    }


def test_a_pool_that_preempts_tells_a_gang_that_it_waits():
    scene = Scene(replicas=1, slots=10, max_pods=1, preemption=Preemption()).pods(0)
    scene.vpod("low", 10, {0: 10}, min_available=10).vpod("high", 1, priority=HIGH)
    assert {vpod.name: vpod.vreplicas for vpod in scene.pool.vpods.values()} == {
        "low": 0,
        "high": 1,
    }


def test_what_one_gives_back_is_lent_to_others():
    """Both have lost some of their six."""
    scene = Scene(replicas=1, slots=10, max_pods=1, preemption=Preemption()).pods(0)
    for name in "ab":
        scene.vpod(name, 6, {0: 5}, min_available=6, created_at="2026-01-01T00:00:00Z")
    assert {vpod.name: vpod.vreplicas for vpod in scene.pool.vpods.values()} == {"a": 5, "b": 5}


def test_one_that_has_been_lent_a_slot_keeps_it_when_a_younger_vpod_of_its_tenant_comes():
    scene = Scene(replicas=1, slots=10, max_pods=1, tenancy=Tenancy()).pods(0)
    scene.vpod("a", 4, {0: 4}, namespace="t0", min_available=4, created_at="2026-01-01T00:00:00Z")
    scene.vpod("b", 3, {0: 3}, namespace="t1").vpod("c", 3, {0: 3}, namespace="t2")
    scene.vpod("d", 3, namespace="t0", created_at="2026-01-02T00:00:00Z")
    counts = {vpod.name: vpod.vreplicas for vpod in scene.pool.vpods.values()}
    assert counts == {"a": 4, "b": 3, "c": 3, "d": 0}


def test_one_that_needs_more_together_than_before_keeps_what_it_has():
    scene = Scene(replicas=1, slots=10, max_pods=2, tenancy=Tenancy(default_limit=8)).pods(0)
    scene.vpod("a", 9, {0: 8}, min_available=100)
    assert scene.pool.vpods["tenant/a"].vreplicas == 8


def test_the_pool_does_not_grow_for_one_that_its_tenant_may_not_have():
    scene = Scene(replicas=1, slots=4, tenancy=Tenancy(default_limit=10)).pods(0)
    scene.vpod("a", 12, min_available=12)
    plan = plan_scale(scene.pool)
    assert plan is not None
    assert plan.wanted == 0
