"""Of pods that should leave their nodes."""

import pytest

from extender.cli.doctor.checks.facts import MayEvict
from extender.cli.doctor.checks.verdict import Verdict
from tests.cli.doctor.breaking import BROKEN, Break, E, U, W, assert_found_alone
from tests.cli.doctor.scene import NS, POOL, Scene


def tell_misplaced(scene: Scene, reason: str) -> None:
    message = "1 pod stands on a node that it should have left: dispatcher-0 (NodeTaints)"
    condition = {"type": "PodsMisplaced", "status": "True", "reason": reason, "message": message}
    scene.first("adapterpools")["status"] = {"conditions": [condition]}


def misplaced(reason: str, may_evict: MayEvict | None) -> Break:
    """``reason``: of the pool's condition PodsMisplaced, "" for none. ``may_evict``: None if it was
    not asked.
    """

    def broken(scene: Scene) -> None:
        scene.first("adapterpools")["spec"].pop("rollout", None)
        if reason:
            tell_misplaced(scene, reason)
        scene.more.update(may_evict={} if may_evict is None else {NS: may_evict})

    return broken


def rolled_out(strategy: str, may_evict: MayEvict) -> Break:
    """The pool has opted in. ``strategy``: the StatefulSet's update strategy."""

    def broken(scene: Scene) -> None:
        scene.first("adapterpools")["spec"].pop("descheduling", None)
        scene.first("adapterpools")["spec"]["rollout"] = {"strategy": "HandedOver"}
        scene.first("statefulsets")["spec"]["updateStrategy"] = {"type": strategy}
        scene.more.update(may_evict={NS: may_evict})

    return broken


ROWS = [
    pytest.param(misplaced(reason, may_evict), "descheduling", verdict, says, id=f"pods: {says}")
    for reason, may_evict, verdict, says in (
        ("NoOtherNode", MayEvict(allowed=True), W, "dispatcher: NoOtherNode: 1 pod stands"),
        (
            "",
            MayEvict(allowed=False),
            E,
            "ServiceAccount vreplica-system/vreplica-scheduler may not create pods/eviction in "
            "namespace knative-eventing",
        ),
        ("", MayEvict(problem="no Deployment x/y"), U, "is not known: no Deployment x/y"),
        ("", None, U, "is not known: was not asked"),
    )
] + [
    pytest.param(rolled_out(strategy, may_evict), "rollouts", verdict, says, id=f"rollout: {says}")
    for strategy, may_evict, verdict, says in (
        ("RollingUpdate", MayEvict(allowed=True), E, "has spec.updateStrategy.type RollingUpdate"),
        ("OnDelete", MayEvict(allowed=False), E, "may not create pods/eviction"),
        ("OnDelete", MayEvict(problem="no answer"), U, "is not known: no answer"),
    )
]


@pytest.mark.parametrize(BROKEN, ROWS)
def test_one_thing_that_is_wrong_is_found_by_its_check(broken, name, verdict, says):
    assert_found_alone(broken, name, verdict, says)


def test_a_pod_that_is_evicted_next_is_no_problem():
    scene = Scene()
    tell_misplaced(scene, "EvictionDue")
    assert scene.results()["descheduling"].verdict is Verdict.OK


def test_pods_of_a_pool_that_has_not_opted_in_may_stay_and_are_told():
    scene = Scene()
    del scene.first("adapterpools")["spec"]["descheduling"]
    tell_misplaced(scene, "NotEnabled")
    found = scene.results()["descheduling"]
    assert found.verdict is Verdict.SKIPPED
    assert f"pods of {NS}/{POOL} stand on nodes that they should have left" in found.summary
