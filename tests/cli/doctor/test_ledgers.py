"""Ledgers and statuses, and placements on pods that are gone."""

import pytest

from extender.cli.doctor.checks.verdict import Verdict
from extender.model.names import PLACEMENTS_ANNOTATION
from tests.cli.doctor.breaking import BROKEN, E, W, add, assert_found_alone, empty, set_on_first
from tests.cli.doctor.scene import Scene, a_pod, a_vpod

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
