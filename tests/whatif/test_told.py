"""What is said of shares that are handed over, from the annotations of the pods alone."""

from typing import Any

from extender.model.assignment import (
    Acknowledged,
    AssignedShare,
    Assignment,
    ShareState,
    encode_acknowledged,
    encode_assignment,
)
from extender.model.objects import Handoff, HandoffMode
from extender.whatif.explanation import explain_vpod
from extender.whatif.pod_explanation import explain_pod
from tests.support.builders import NS, Scene, a_pod

KEY = "tenant/a"
PREPARE, SERVE, DRAIN = ShareState.PREPARE, ShareState.SERVE, ShareState.DRAIN


def a_scene(mode: HandoffMode = HandoffMode.OVERLAP) -> Scene:
    return Scene(replicas=2, handoff=Handoff(mode=mode)).vpod("a", 2, {0: 2})


def tell(scene: Scene, ordinal: int, state: ShareState, said: Acknowledged | None) -> None:
    deadline = "2026-12-01T10:00:30Z" if state is DRAIN else ""
    pod = a_pod(ordinal)
    assignment = Assignment(
        4, pod.key, pod.uid, {KEY: AssignedShare(2, 1, 2, 7, state, deadline=deadline)}
    )
    scene.pod(
        ordinal,
        {KEY: 2},
        ready=True,
        assignment_text=encode_assignment(assignment),
        acknowledged_text=encode_acknowledged(said) if said is not None else None,
    )


def told(scene: Scene) -> list[str]:
    answer: Any = explain_vpod(scene.state, KEY)
    return [line for line in answer["steps"] if " is told " in line]


def told_pod(scene: Scene, ordinal: int) -> list[str]:
    answer: Any = explain_pod(scene.state, f"{NS}/dispatcher-{ordinal}")
    return [line for line in answer["steps"] if " is told " in line]


def test_while_a_share_moves_it_is_said_what_each_adapter_is_told_and_has_not_acknowledged():
    scene = a_scene()
    tell(scene, 0, SERVE, Acknowledged(4, 1))
    tell(scene, 1, PREPARE, Acknowledged(3, 0))
    assert told(scene) == [
        "the adapter of dispatcher-0 is told Serve, and has acknowledged that",
        "the adapter of dispatcher-1 is told Prepare, and has not acknowledged that",
    ]
    assert told_pod(scene, 0) == []
    assert told_pod(scene, 1) == [
        "of tenant/a its adapter is told Prepare, and has not acknowledged that"
    ]


def test_until_when_a_share_is_to_be_let_go_is_said_and_what_is_busy_has_not_been_done():
    scene = a_scene()
    tell(scene, 0, DRAIN, Acknowledged(4, 0, frozenset({KEY})))
    assert told(scene) == [
        "the adapter of dispatcher-0 is told Drain until 2026-12-01T10:00:30Z, and has not "
        "acknowledged that"
    ]


def test_nothing_is_said_while_all_serve_as_they_are_told():
    scene = a_scene()
    tell(scene, 0, SERVE, Acknowledged(4, 1))
    assert (told(scene), told_pod(scene, 0)) == ([], [])


def test_nothing_is_said_in_a_pool_that_hands_nothing_over():
    scene = a_scene(HandoffMode.NONE)
    tell(scene, 0, SERVE, None)
    assert (told(scene), told_pod(scene, 0)) == ([], [])
