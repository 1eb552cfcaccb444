"""What users read about a decision."""

import pytest

from extender.engine.placing.explain import Explanation, Reasoning, Step
from extender.model.reasons import ConflictReason
from tests.support.builders import Scene, a_node
from tests.support.placing import place


def test_all_placed():
    assert Explanation(8, (), 0, None).outcome() == "all 8 vreplicas are placed"


def test_left_over_without_any_pod():
    story = Explanation(8, (), 8, ConflictReason.POOL_NOT_FOUND)
    assert story.outcome() == "8 of 8 vreplicas are not placed (PoolNotFound)"


def test_one_line_a_step_and_the_outcome_last():
    steps = (Reasoning(Step.REMOVED, "d-2", 1, "fewer are wanted"), Reasoning(Step.ADDED, "d-0", 2))
    assert list(Explanation(2, steps, 0, None).sentences()) == [
        "removed: 1 on d-2 (fewer are wanted)",
        "added: 2 on d-0",
        "all 2 vreplicas are placed",
    ]


def test_refusals_are_counted_by_their_text_the_most_frequent_first():
    scene = Scene(slots=1, replicas=4).node(a_node("bad", ready=False))
    scene.pod(0, {"tenant/b": 1}).pod(1, {"tenant/b": 1}).pod(2, node="bad").pod(3, node="")
    scene.vpod("b", 2, {0: 1, 1: 1}).vpod("a", 1)
    decision = place(scene.pool, scene.pool.vpods["tenant/a"])
    assert decision.explanation.outcome() == (
        "1 of 1 vreplica is not placed (InsufficientSlots): 0/4 pods have room: "
        "2 no free slots, 1 node not ready, 1 not bound"
    )


@pytest.mark.parametrize(
    ("reason", "build"),
    [
        pytest.param(ConflictReason.INSUFFICIENT_SLOTS, lambda s: s.vpod("a", 9), id="no room"),
        pytest.param(
            ConflictReason.UNSATISFIABLE,
            lambda s: s.vpod("a", 1, weight=9),
            id="heavier than a pod",
        ),
        pytest.param(
            ConflictReason.STATEFULSET_NOT_FOUND,
            lambda s: s.vpod("a", 1).state.stateful_set_changed(s.pool.stateful_set, None),
            id="no StatefulSet",
        ),
    ],
)
def test_reasons_of_what_is_left(reason, build):
    scene = Scene(slots=5, replicas=1).pods(0)
    build(scene)
    assert place(scene.pool, scene.pool.vpods["tenant/a"]).explanation.reason is reason
