"""Ledgers and statuses, and placements on pods that are gone."""

from dataclasses import replace

import pytest

from extender.cli.doctor.checks.facts import Listed
from extender.cli.doctor.checks.ledgers import LEDGERS
from extender.cli.doctor.checks.verdict import Verdict
from extender.model.assignment import AssignedShare, Assignment, ShareState, encode_assignment
from extender.model.names import (
    ACKNOWLEDGED_ANNOTATION,
    ASSIGNMENT_ANNOTATION,
    PLACEMENTS_ANNOTATION,
)
from tests.cli.doctor.breaking import BROKEN, E, W, add, assert_found_alone, empty, set_on_first
from tests.cli.doctor.scene import NS, Obj, Scene, a_pod, a_vpod, stamp

ROWS = [
    pytest.param(
        set_on_first(
            "pods", "metadata", "annotations", PLACEMENTS_ANNOTATION, value='{"tenant/a":1}'
        ),
        "ledger-drift",
        E,
        "publishes 3 on dispatcher-0, the ledger of knative-eventing/dispatcher-0 has 1",
        id="I2 is broken",
    ),
    pytest.param(
        set_on_first(
            "pods", "metadata", "annotations", PLACEMENTS_ANNOTATION, value='{"tenant/a":4}'
        ),
        "ledger-drift",
        W,
        "has 4 of tenant/a, VPod tenant/a publishes 3",
        id="more than is published",
    ),
    pytest.param(
        set_on_first(
            "pods",
            "metadata",
            "annotations",
            PLACEMENTS_ANNOTATION,
            value='{"tenant/a":3,"tenant/b":1}',
        ),
        "ledger-drift",
        W,
        "there is no VPod tenant/b",
        id="a share of nobody",
    ),
    pytest.param(
        add("vpods", a_vpod("b", 1, {7: 1})),
        "placements-gone",
        E,
        "publishes 1 on dispatcher-7",
        id="an ordinal that is gone",
    ),
    pytest.param(
        lambda s: (empty("statefulsets")(s), empty("pods")(s)),
        "placements-gone",
        E,
        "VPod tenant/a publishes 3 on dispatcher-0, and there is no StatefulSet "
        "knative-eventing/dispatcher",
        id="no StatefulSet and no pods",
    ),
    pytest.param(
        lambda s: (empty("adapterpools")(s), empty("pods")(s)),
        "placements-gone",
        E,
        "VPod tenant/a publishes 2 on dispatcher-1, and there is no AdapterPool "
        "knative-eventing/dispatcher",
        id="no pool and no pods",
    ),
]


@pytest.mark.parametrize(BROKEN, ROWS)
def test_one_thing_that_is_wrong_is_found_by_its_check(broken, name, verdict, says):
    assert_found_alone(broken, name, verdict, says)


def test_a_write_that_was_under_way_is_no_drift():
    scene = Scene()
    scene.first("pods")["metadata"]["annotations"][PLACEMENTS_ANNOTATION] = '{"tenant/a":1}'
    scene.again = {
        "pods": [a_pod(0, {"tenant/a": 3}), a_pod(1, {"tenant/a": 2})],
        "vpods": scene.items("vpods"),
    }
    assert scene.results()["ledger-drift"].verdict is Verdict.OK
    scene.again["pods"] = scene.items("pods")
    assert scene.results()["ledger-drift"].verdict is Verdict.ERROR


def test_a_vpod_beyond_the_limit_of_what_is_read_is_not_taken_for_gone():
    scene = Scene()
    scene.listed["pods"] = [a_pod(0, {"tenant/a": 3}), a_pod(1, {"tenant/a": 2, "tenant/z": 1})]
    facts = scene.facts()
    vpods = Listed(facts.of("vpods").items, truncated=True)
    (drift,) = (check for check in LEDGERS if check.name == "ledger-drift")
    found = drift.run(replace(facts, listed={**facts.listed, "vpods": vpods}))
    assert (found.verdict, found.summary) == (Verdict.UNKNOWN, "not all vpods were read")
    scene.listed["pods"] = [a_pod(0, {"tenant/a": 3}), a_pod(1, {"tenant/a": 4, "tenant/z": 1})]
    found = drift.run(replace(scene.facts(), listed={**scene.facts().listed, "vpods": vpods}))
    assert (found.verdict, len(found.evidence)) == (Verdict.WARNING, 2)
    assert "has 4 of tenant/a" in found.evidence[0]


def told(
    ordinal: int,
    vreplicas: int,
    state: ShareState,
    *,
    done: bool = True,
    deadline: str = "",
    exclusive: int = 0,
) -> Obj:
    """A pod with so many vreplicas of tenant/a in its ledger, and in its assignment. ``done``:
    whether its adapter has done what it is told. ``exclusive``: how many its lease allows.
    """
    share = AssignedShare(exclusive or vreplicas, 1, 5, 7, state, deadline=deadline)
    pod, shares = f"{NS}/dispatcher-{ordinal}", {"tenant/a": share}
    assignment = Assignment(3, pod, "u", shares, lease_s=30 if exclusive else 0)
    said = '{"generation":3,"serving":1}' if done else '{"generation":2,"serving":1}'
    annotations = {ASSIGNMENT_ANNOTATION: encode_assignment(assignment)}
    found = a_pod(
        ordinal, {"tenant/a": vreplicas}, **annotations, **{ACKNOWLEDGED_ANNOTATION: said}
    )
    found["metadata"]["uid"] = "u"
    return found


PREPARE, SERVE, DRAIN = ShareState
SOON, LONG_AGO = stamp(-5), stamp(61)
BEFORE, SOME, AFTER = {0: 5}, {0: 3, 1: 2}, {1: 5}
"""What is published."""


@pytest.mark.parametrize(
    ("placements", "pods", "says"),
    [
        pytest.param(BEFORE, [told(0, 5, SERVE), told(1, 5, PREPARE)], "", id="is prepared"),
        pytest.param(
            BEFORE, [told(0, 5, SERVE), told(1, 5, SERVE)], "dispatcher-1 has 5", id="not"
        ),
        pytest.param(
            AFTER, [told(0, 5, DRAIN, deadline=SOON), told(1, 5, SERVE)], "", id="lets go"
        ),
        pytest.param(
            AFTER,
            [told(0, 5, DRAIN, deadline=LONG_AGO), told(1, 5, SERVE)],
            "dispatcher-0 has 5",
            id="should have let go long ago",
        ),
        pytest.param(
            SOME, [told(0, 3, SERVE), told(1, 5, SERVE, done=False)], "", id="gets more to serve"
        ),
        pytest.param(
            SOME,
            [told(0, 3, SERVE), told(1, 5, SERVE, done=False, exclusive=2)],
            "",
            id="gets more than its lease allows yet",
        ),
        pytest.param(
            SOME, [told(0, 3, SERVE), told(1, 5, SERVE)], "dispatcher-1 has 5", id="serves too many"
        ),
        pytest.param(
            AFTER,
            [told(0, 5, SERVE), told(1, 5, SERVE, done=False)],
            "",
            id="goes on until the other one serves",
        ),
    ],
)
def test_what_is_handed_over_is_no_drift(placements, pods, says):
    scene = Scene()
    scene.listed |= {"vpods": [a_vpod("a", 5, placements)], "pods": pods}
    found = scene.results()["ledger-drift"]
    assert found.verdict is (Verdict.WARNING if says else Verdict.OK)
    assert says in str(found.evidence)


def test_a_hand_over_explains_no_more_than_its_assignment_says():
    scene = Scene()
    scene.listed["vpods"] = [a_vpod("a", 5, {0: 5})]
    getting = told(1, 5, PREPARE)
    scene.listed["pods"] = [told(0, 5, SERVE), getting]
    annotations = getting["metadata"]["annotations"]
    annotations[PLACEMENTS_ANNOTATION] = '{"tenant/a":6}'
    assert "dispatcher-1 has 6" in str(scene.results()["ledger-drift"].evidence)
    annotations[PLACEMENTS_ANNOTATION] = '{"tenant/a":5,"tenant/b":1}'
    scene.items("vpods").append(a_vpod("b", 1, {0: 0}))
    (only,) = scene.results()["ledger-drift"].evidence
    assert "dispatcher-1 has 1 of tenant/b" in only
    scene.items("vpods").pop(0)
    found = scene.results()["ledger-drift"].evidence
    assert any("there is no VPod tenant/a" in line for line in found)


def test_shares_whose_status_is_elsewhere_are_no_drift():
    scene = Scene()
    ledger = '{"tenant/a":3,"tenant/g@consumergroup.internal.kafka.eventing.knative.dev":1}'
    scene.first("pods")["metadata"]["annotations"][PLACEMENTS_ANNOTATION] = ledger
    assert scene.results()["ledger-drift"].verdict is Verdict.OK


def test_a_pod_that_is_away_keeps_its_placements_and_is_no_drift():
    scene = Scene()
    scene.items("pods").pop()
    results = scene.results()
    assert {results[name].verdict for name in ("ledger-drift", "placements-gone")} == {Verdict.OK}


def test_pods_that_run_on_without_their_statefulset_are_not_gone():
    scene = Scene()
    scene.items("statefulsets").clear()
    results = scene.results()
    assert results["pools"].verdict is Verdict.ERROR
    assert (results["placements-gone"].verdict, results["placements-gone"].summary) == (
        Verdict.OK,
        "every placement is on a pod that is there, or that its StatefulSet has",
    )


def test_a_statefulset_that_cannot_be_read_makes_it_unknown_whether_placements_are_gone():
    scene = Scene()
    scene.first("statefulsets")["spec"]["replicas"] = "many"
    scene.items("pods").clear()
    assert scene.results()["placements-gone"].verdict is Verdict.UNKNOWN
