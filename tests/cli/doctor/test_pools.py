"""Of pools: their StatefulSets, who names them, and what waits for room."""

from dataclasses import replace
from typing import Any

import pytest

from extender.cli.doctor.checks.facts import Listed
from extender.cli.doctor.checks.verdict import CheckResult, Verdict
from extender.cli.doctor.examine import examine
from extender.model.names import POOL_LABEL
from tests.cli.doctor.breaking import (
    BROKEN,
    E,
    U,
    W,
    add,
    assert_found_alone,
    set_on_first,
    unbound,
)
from tests.cli.doctor.scene import NS, POOL, Scene, a_vpod, named

REFUSED = "0/6 nodes are available: 5 Insufficient cpu."

ROWS = [
    pytest.param(
        set_on_first("pods", "status", "conditions", value=[{"type": "Ready", "status": "False"}]),
        "served",
        E,
        "knative-eventing/dispatcher-0: the pod is not Ready, and 3 vreplicas on it",
        id="a pod that is not Ready",
    ),
    pytest.param(
        set_on_first(
            "nodes", "status", "conditions", value=[{"type": "Ready", "status": "Unknown"}]
        ),
        "served",
        E,
        "node node-0 is not Ready, and 3 vreplicas on it",
        id="a node that is lost",
    ),
    pytest.param(
        set_on_first("statefulsets", "spec", "template", value={}),
        "pools",
        E,
        "in its pod template is missing",
        id="a template without the label",
    ),
    pytest.param(
        add("adapterpools", named("two", NS, spec={"statefulSet": POOL, "slotsPerPod": 1})),
        "pools",
        E,
        "both name StatefulSet",
        id="one StatefulSet, two pools",
    ),
    pytest.param(
        add("adapterpools", named("two", NS, spec={"statefulSet": "gone", "slotsPerPod": 1})),
        "pools",
        E,
        "there is no StatefulSet",
        id="no StatefulSet",
    ),
    pytest.param(
        add("vpods", named("b", "tenant", spec={"poolRef": {"name": "x"}, "vreplicas": 0})),
        "pool-names",
        E,
        "asks for AdapterPool tenant/x",
        id="no such pool",
    ),
    pytest.param(
        set_on_first("pods", "metadata", "labels", POOL_LABEL, value="y"),
        "pool-names",
        E,
        "AdapterPool knative-eventing/y",
        id="a pod of no pool",
    ),
    pytest.param(
        set_on_first("adapterpools", "spec", "profile", value="mine"),
        "profiles",
        U,
        "'mine'",
        id="a profile of their own",
    ),
    pytest.param(
        add("vpods", named("b", "tenant", spec={"poolRef": {"name": "x"}, "vreplicas": 3})),
        "capacity",
        E,
        "AdapterPool tenant/x is not there, and 3 vreplicas of 1 vpod (tenant/b) wait",
        id="no pool to wait for",
    ),
    pytest.param(
        add("vpods", a_vpod("b", 9, {})),
        "capacity",
        W,
        "has its maxPods 2 already",
        id="maxPods is in the way",
    ),
    pytest.param(
        add("vpods", a_vpod("b", 1, {}, slotsPerVReplica=30)),
        "capacity",
        E,
        "over slotsPerPod 20",
        id="too heavy for any pod",
    ),
]


@pytest.mark.parametrize(BROKEN, ROWS)
def test_one_thing_that_is_wrong_is_found_by_its_check(broken, name, verdict, says):
    assert_found_alone(broken, name, verdict, says)


def beyond(scene: Scene, plural: str, read: int = 0) -> dict[str, CheckResult]:
    """Results if only so many objects of a kind were read, and there are more."""
    facts = scene.facts()
    cut = Listed(facts.of(plural).items[:read], truncated=True)
    facts = replace(facts, listed={**facts.listed, plural: cut})
    return {one.check.name: one.result for one in examine(facts)}


@pytest.mark.parametrize("plural", ["pods", "nodes"])
def test_a_pod_or_node_beyond_the_limit_of_what_is_read_is_not_taken_for_lost(plural):
    served = beyond(Scene(), plural)["served"]
    assert (served.verdict, served.summary) == (Verdict.UNKNOWN, f"not all {plural} were read")


@pytest.mark.parametrize(
    ("plural", "names", "says"),
    [
        ("adapterpools", ("pool-names", "capacity"), "not all adapterpools were read"),
        ("vpods", ("pool-names", "capacity", "served"), "not all vpods were read"),
        ("statefulsets", ("pools",), "not all statefulsets were read"),
    ],
)
def test_what_is_beyond_the_limit_of_what_is_read_is_neither_missing_nor_well(plural, names, says):
    results = beyond(Scene(), plural)
    for name in names:
        assert results[name].verdict is Verdict.UNKNOWN
        assert says in results[name].summary
        assert results[name].fix


def test_what_is_wrong_is_still_told_where_not_all_was_read():
    scene = Scene()
    scene.items("vpods").insert(0, a_vpod("b", 9, {}, poolRef={"namespace": NS, "name": "gone"}))
    found = beyond(scene, "vpods", read=1)
    assert (found["pool-names"].verdict, found["capacity"].verdict) == (Verdict.ERROR,) * 2
    assert "correct the name" in found["pool-names"].fix


def test_pods_that_kube_scheduler_refuses_are_told_in_its_words_and_not_as_a_limit():
    scene = Scene()
    del scene.first("adapterpools")["spec"]["maxPods"]
    condition = {"type": "PodScheduled", "status": "False", "message": REFUSED}
    scene.items("pods").append(unbound(60, conditions=[condition]))
    scene.items("vpods").append(a_vpod("b", 9, {}))
    results = scene.results()
    assert REFUSED in results["capacity"].summary
    assert "maxPods" not in results["capacity"].fix
    assert REFUSED in results["kube-scheduler"].evidence[0]
    assert "Run a kube-scheduler" not in results["kube-scheduler"].fix


def of_consumer_groups(pending: int, **spec: Any) -> Scene:
    """An installation without any VPod."""
    scene = Scene()
    scene.items("vpods").clear()
    pool = scene.first("adapterpools")
    pool["spec"] |= {"sources": [{"preset": "knative-consumergroup"}], **spec}
    pool["status"] = {"pendingVReplicas": pending}
    return scene


@pytest.mark.parametrize(
    ("scene", "verdict", "says"),
    [
        pytest.param(of_consumer_groups(0), Verdict.OK, "everything", id="nothing waits"),
        pytest.param(
            of_consumer_groups(5), W, "5 vreplicas wait, and it has its maxPods 2", id="at maxPods"
        ),
        pytest.param(
            of_consumer_groups(5, maxPods=9),
            W,
            "5 vreplicas of objects of other kinds wait, says its status",
            id="without a limit",
        ),
        pytest.param(of_consumer_groups(5, sources=[]), Verdict.SKIPPED, "no vpods", id="no kinds"),
    ],
)
def test_what_waits_of_foreign_kinds_is_known_by_the_status_of_the_pool(scene, verdict, says):
    found = scene.results()["capacity"]
    assert found.verdict is verdict
    assert says in found.summary


def test_what_waits_without_any_limit_is_a_question_for_explain():
    scene = Scene()
    del scene.first("adapterpools")["spec"]["maxPods"]
    scene.items("vpods").append(a_vpod("b", 9, {}))
    assert scene.results()["capacity"].fix.startswith("`vreplica explain VPOD`")
