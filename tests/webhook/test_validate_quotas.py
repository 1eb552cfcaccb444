"""What admission refuses about tenants, with the field and the figure."""

from typing import Any

import pytest

from extender.kube.api import Obj
from tests.webhook.builders import (
    NS,
    a_namespace,
    a_pool_object,
    a_quota_object,
    a_vpod_object,
    caches,
    request,
)
from webhook.caches import WebhookCaches
from webhook.review import Verdict
from webhook.validate import DEFAULT_RULES, validate

TEN_PODS = a_pool_object(slots=20, maxPods=10, tenancy={"defaultLimit": 50})


def view_of(*quotas: Obj, pool: Obj = TEN_PODS, **more: Any) -> WebhookCaches:
    return caches(pools=[pool], quotas=quotas, **more)


def judged(new: Obj, view: WebhookCaches, old: Obj | None = None) -> Verdict:
    kind = {"VReplicaQuota": "vreplicaquotas", "VPod": "vpods", "AdapterPool": "adapterpools"}
    return validate(request(new, old, resource=kind[new["kind"]]), view, DEFAULT_RULES)


def test_a_quota_that_can_be_kept_passes():
    view = view_of(a_quota_object("tenant-b", guarantee=100))
    assert judged(a_quota_object(guarantee=100, limit=150), view) == Verdict()


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"guarantee": -1}, "spec.guarantee"),
        ({"guarantee": 30, "limit": 20}, "must not be more than limit, which is 20"),
        ({"limit": "many"}, "spec.limit"),
    ],
)
def test_a_quota_that_makes_no_sense_is_refused(spec, says):
    got = judged(a_quota_object(**spec), view_of())
    assert (got.allowed, got.code) == (False, 422)
    assert says in got.message


def test_a_guarantee_beyond_the_pools_default_limit_passes_with_a_warning():
    got = judged(a_quota_object(guarantee=100), view_of())
    assert got.allowed
    [warning] = got.warnings
    assert "tenancy.defaultLimit of AdapterPool" in warning
    assert judged(a_quota_object(guarantee=50), view_of()) == Verdict()


def test_a_second_quota_for_a_tenant_is_refused():
    got = judged(a_quota_object(name="more"), view_of(a_quota_object()))
    assert not got.allowed
    assert "VReplicaQuota tenant-a/quota is for the same tenant (tenant-a) and pool" in got.message


def test_a_quota_may_be_changed_and_another_pool_may_have_its_own():
    its = a_quota_object(limit=5)
    assert judged(a_quota_object(limit=6), view_of(its), its).allowed
    assert judged(a_quota_object(name="more"), view_of(a_quota_object(pool="other"))).allowed


def test_namespaces_of_one_team_are_one_tenant():
    pool = a_pool_object(tenancy={"tenantLabel": "team"})
    namespaces = [a_namespace("tenant-a", team="x"), a_namespace("tenant-b", team="x")]
    view = view_of(a_quota_object("tenant-b"), pool=pool, namespaces=namespaces)
    got = judged(a_quota_object(), view)
    assert "VReplicaQuota tenant-b/quota is for the same tenant (x)" in got.message


def test_a_guarantee_that_the_pool_can_never_keep_is_refused():
    got = judged(a_quota_object(guarantee=101), view_of(a_quota_object("tenant-b", guarantee=100)))
    assert not got.allowed
    assert (
        f"spec.guarantee 101 cannot be kept: AdapterPool {NS}/dispatcher has at most 200 slots, of "
        "which 100 are guaranteed to other tenants"
    ) in got.message


def test_a_guarantee_that_stands_may_be_lowered_although_it_is_too_much():
    old = a_quota_object(guarantee=150)
    view = view_of(a_quota_object("tenant-b", guarantee=100), old)
    assert judged(a_quota_object(guarantee=140), view, old).allowed
    assert not judged(a_quota_object(guarantee=160), view, old).allowed


@pytest.mark.parametrize(
    ("pool", "says"),
    [
        pytest.param(a_pool_object("other"), "does not exist", id="no pool"),
        pytest.param(a_pool_object(), "has no spec.tenancy", id="no tenancy"),
    ],
)
def test_a_quota_that_limits_nobody_passes_with_a_warning(pool, says):
    got = judged(a_quota_object(), view_of(pool=pool))
    assert got.allowed
    [warning] = got.warnings
    assert says in warning


@pytest.mark.parametrize(
    ("quotas", "weight", "says"),
    [
        pytest.param([], 20, "", id="within the default limit"),
        pytest.param([a_quota_object(limit=7)], 7, "", id="within its limit"),
        pytest.param([a_quota_object(limit=7)], 8, "the limit of its tenant", id="too heavy"),
        pytest.param([a_quota_object("tenant-b", limit=7)], 8, "", id="another tenant's limit"),
        pytest.param([a_quota_object(guarantee=7)], 20, "", id="its quota has no limit"),
    ],
)
def test_a_vpod_of_which_the_limit_allows_no_vreplica_is_refused(quotas, weight, says):
    got = judged(a_vpod_object(weight=weight), view_of(*quotas))
    assert got.allowed is not bool(says)
    assert says in got.message


def test_a_greedy_vpod_passes_and_waits():
    greedy = a_vpod_object()
    greedy["spec"]["vreplicas"] = 2**31 - 1
    assert judged(greedy, view_of(a_quota_object(limit=7))).allowed


def test_a_pool_that_shrinks_below_its_guarantees_passes_with_a_warning():
    view = view_of(a_quota_object(guarantee=120), a_quota_object("tenant-b", guarantee=60))
    smaller = a_pool_object(slots=20, maxPods=5, tenancy={"defaultLimit": 50})
    got = judged(smaller, view, TEN_PODS)
    assert got.allowed
    assert got.warnings == (
        "180 slots are guaranteed by VReplicaQuotas, and the pool has at most 100: guarantees "
        "shrink in proportion",
    )


@pytest.mark.parametrize(
    ("tenancy", "says"),
    [
        ({"defaultGuarantee": -1}, "spec.tenancy.defaultGuarantee"),
        ({"defaultGuarantee": 9, "defaultLimit": 8}, "must not be more than defaultLimit"),
        ({"weights": {"a": 0}}, "spec.tenancy.weights['a']"),
    ],
)
def test_a_tenancy_that_makes_no_sense_is_refused(tenancy, says):
    got = judged(a_pool_object(tenancy=tenancy), view_of())
    assert not got.allowed
    assert says in got.message


def test_a_namespace_that_the_pool_does_not_select_learns_neither_its_size_nor_its_quotas():
    teams = {"matchLabels": {"team": "yes"}}
    pool = a_pool_object(
        slots=20, maxPods=10, tenancy={"tenantLabel": "customer"}, namespaceSelector=teams
    )
    view = view_of(
        a_quota_object("tenant-b", guarantee=150),
        pool=pool,
        namespaces=[
            a_namespace("tenant-a", customer="acme"),
            a_namespace("tenant-b", customer="acme", team="yes"),
        ],
    )
    got = judged(a_quota_object("tenant-a", guarantee=100), view)
    assert got.allowed
    [warning] = got.warnings
    assert "does not select namespace tenant-a" in warning
    assert "tenant-b" not in warning
