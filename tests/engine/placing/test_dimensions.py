"""A pool with dimensions beside slots: one situation a test. The random ones are in
``test_plan_properties``.
"""

from dataclasses import replace

import pytest

from extender.engine.policy.profiles import BUILT_IN_PROFILES
from extender.engine.rebalance.move_plan import Limits
from extender.engine.rebalance.moves import plan_moves
from extender.engine.scaling.scale_down import waits_for_closed
from extender.engine.scaling.size import plan_scale
from extender.model.ledger import Share
from extender.model.moves import MoveReason
from extender.model.reasons import ConflictReason
from tests.support.builders import Scene, a_node
from tests.support.placing import place

CAPACITIES = (("cpu", 4), ("memory", 10))
HUNGRY, LARGE = (("cpu", 2),), (("memory", 5),)


def a_scene(*ordinals: int, slots: int = 20, replicas: int | None = None) -> Scene:
    pods = len(ordinals) if replicas is None else replicas
    return Scene(slots=slots, replicas=pods, capacities=CAPACITIES).pods(*ordinals)


def target(scene: Scene, name: str = "a") -> dict[int, int]:
    decision = place(scene.pool, scene.pool.vpods[f"tenant/{name}"])
    return {int(pod.rpartition("-")[2]): count for pod, count in decision.target.items()}


@pytest.mark.parametrize("profile", ["default", "pack", "spread", "ha", "knative-maxfillup"])
def test_no_profile_gives_a_pod_more_than_it_has_of_a_dimension(profile):
    scene = (
        a_scene(slots=20, replicas=3)
        .node(a_node("n0", "z0"))
        .node(a_node("n1", "z1"))
        .node(a_node("n2", "z2"))
        .pod(0, node="n0")
        .pod(1, node="n1")
        .pod(2, node="n2")
        .vpod("a", 7, per_vreplica=HUNGRY)
    )
    scene.pool.set_profile(BUILT_IN_PROFILES[profile])
    decision = place(scene.pool, scene.pool.vpods["tenant/a"])
    assert dict(decision.target) == {f"dispatcher-{ordinal}": 2 for ordinal in range(3)}
    assert decision.pending == 1


def test_each_pods_answer_names_the_dimension_that_lacks():
    scene = a_scene(0, 1, replicas=3, slots=9).vpod(
        "a", 6, per_vreplica=(("cpu", 1), ("memory", 4))
    )
    scene.pod(1, {"tenant/b": Share(3, 3)}).vpod("b", 3, {1: 3}, weight=3)
    outcome = place(scene.pool, scene.pool.vpods["tenant/a"]).explanation.outcome()
    assert outcome == (
        "4 of 6 vreplicas are not placed (InsufficientSlots): 0/3 pods have room: 1 does not "
        "exist, 1 no free slots, 1 not enough memory"
    )


def test_vpods_that_need_different_things_share_a_pod():
    scene = a_scene(0).vpod("a", 2, {0: 2}, per_vreplica=HUNGRY).vpod("b", 3, per_vreplica=LARGE)
    scene.pod(0, {"tenant/a": Share(2, 1, HUNGRY)})
    assert target(scene, "b") == {0: 2}
    assert scene.pool.pods["dispatcher-0"].dimensions() == {
        "cpu": {"capacity": 4, "used": 4},
        "memory": {"capacity": 10, "used": 0},
    }


def test_what_a_ledger_has_counts_even_if_no_vpod_is_known():
    scene = a_scene(0).pod(0, {"tenant/gone": Share(1, 1, (("cpu", 3),))})
    assert target(scene.vpod("a", 1, per_vreplica=HUNGRY)) == {}


def test_a_reservation_counts_before_it_is_written():
    scene = a_scene(0).vpod("a", 1, per_vreplica=HUNGRY)
    share = {"dispatcher-0": Share(2, 1, (("cpu", 2),))}
    scene.state.reserve("test", scene.pool.key, "tenant/b", share, expires_at=30.0)
    assert target(scene) == {}
    scene.state.release("test", scene.pool.key, "tenant/b")
    assert target(scene) == {0: 1}


def test_a_lowered_capacity_trims_and_says_so():
    scene = a_scene(0, 1).pod(0, {"tenant/a": Share(2, 1, HUNGRY)})
    scene.vpod("a", 2, {0: 2}, per_vreplica=HUNGRY)
    before = scene.pool.adapter_pool
    assert before is not None
    scene.state.adapter_pool_changed(before, replace(before, capacities=(("cpu", 3),)))
    assert [pod.name for pod in scene.pool.overcommitted()] == ["dispatcher-0"]
    decision = place(scene.pool, scene.pool.vpods["tenant/a"])
    assert dict(decision.target) == {"dispatcher-0": 1, "dispatcher-1": 1}
    assert [move.reason for move in decision.moves] == [MoveReason.OVERCOMMIT]


def test_what_is_only_reserved_of_a_dimension_pushes_nobody_out():
    scene = a_scene(0).pod(0, {"tenant/a": Share(2, 1, HUNGRY)})
    scene.vpod("a", 2, {0: 2}, per_vreplica=HUNGRY)
    share = {"dispatcher-0": Share(1, 1, (("cpu", 1),))}
    scene.state.reserve("test", scene.pool.key, "tenant/b", share, expires_at=30.0)
    assert target(scene) == {0: 2}


def test_a_dimension_that_the_pool_lacks_leaves_what_is_placed_and_gives_nothing_more():
    needs_gpu = (("gpu", 1),)
    scene = a_scene(0, 1).pod(0, {"tenant/a": Share(2, 1, needs_gpu)})
    scene.vpod("a", 3, {0: 2}, per_vreplica=needs_gpu)
    decision = place(scene.pool, scene.pool.vpods["tenant/a"])
    assert (dict(decision.target), decision.pending) == ({"dispatcher-0": 2}, 1)
    assert decision.explanation.reason is ConflictReason.UNSATISFIABLE
    assert "one vreplica takes gpu (spec.perVReplica)" in decision.explanation.outcome()
    scene.pod(0, {"tenant/a": Share(2, 1, needs_gpu)}, unschedulable=True)
    drained = place(scene.pool, scene.pool.vpods["tenant/a"])
    assert (dict(drained.target), drained.pending) == ({"dispatcher-0": 2}, 3), (
        "it stays until there is room elsewhere, and counts as without a place"
    )


def test_what_takes_a_dimension_that_the_pool_lacks_is_not_moved_either():
    needs_gpu = (("gpu", 1),)
    scene = a_scene(0, 1).pod(1, {"tenant/a": Share(1, 1, needs_gpu)})
    scene.vpod("a", 1, {1: 1}, per_vreplica=needs_gpu)
    scene.pool.set_closed(0b10)
    assert plan_moves(scene.pool, Limits(budget=9)) == []
    assert waits_for_closed(scene.vpod("b", 1, per_vreplica=needs_gpu).pool) is None


def test_more_than_any_pod_has_is_unsatisfiable():
    scene = a_scene(0).vpod("a", 1, per_vreplica=(("cpu", 5),))
    decision = place(scene.pool, scene.pool.vpods["tenant/a"])
    assert decision.explanation.reason is ConflictReason.UNSATISFIABLE
    plan = plan_scale(scene.pool)
    assert plan is not None
    assert plan.wanted == 0, "no pod would help"


@pytest.mark.parametrize(
    ("vpods", "pods"),
    [
        pytest.param({"a": (8, ())}, 1, id="slots alone"),
        pytest.param({"a": (8, HUNGRY)}, 4, id="two a pod by cpu"),
        pytest.param({"a": (8, HUNGRY), "b": (6, LARGE)}, 4, id="they share the pods"),
        pytest.param({"a": (3, (("cpu", 3),)), "b": (1, HUNGRY)}, 4, id="holes are not filled"),
    ],
)
def test_a_pool_is_as_large_as_the_dimension_that_needs_most(vpods, pods):
    scene = a_scene(replicas=0)
    for name, (vreplicas, amounts) in vpods.items():
        scene.vpod(name, vreplicas, per_vreplica=amounts)
    plan = plan_scale(scene.pool)
    assert plan is not None
    assert plan.wanted == pods
