"""``place(..., taken_back=True)``: a hand-over was taken back, so a vpod goes on from what it
publishes (DESIGN 5.1).
"""

import pytest

from extender.engine.placing.explain import Step
from extender.engine.placing.plan import Decision
from extender.model.moves import MoveReason
from tests.support.builders import Scene
from tests.support.placing import place

KEY = "tenant/a"


def decided(scene: Scene, *, taken_back: bool = True) -> Decision:
    return place(scene.pool, scene.pool.vpods[KEY], taken_back=taken_back)


def target(scene: Scene, *, taken_back: bool = True) -> dict[int, int]:
    found = decided(scene, taken_back=taken_back).target
    return {int(name.rpartition("-")[2]): count for name, count in found.items()}


def taken_back(published: dict[int, int], ledgers: dict[int, int], vreplicas: int = 2) -> Scene:
    """A pool of Ready pods where ledgers have a vpod's move, and its status does not."""
    scene = Scene()
    for ordinal in (0, 1, 2):
        count = ledgers.get(ordinal, 0)
        scene.pod(ordinal, {KEY: count} if count else {}, ready=True)
    return scene.vpod("a", vreplicas, published)


def test_a_move_that_is_reserved_still_is_given_up():
    scene = taken_back({0: 2}, {0: 2, 1: 2}).reserve("a", 0, 0).reserve("a", 1, 2)
    assert (target(scene), target(scene, taken_back=False)) == ({0: 2}, {1: 2})


def test_what_only_ledgers_have_is_placed_anew():
    scene = taken_back({0: 2}, {0: 2, 1: 2}, vreplicas=4)
    assert (target(scene), target(scene, taken_back=False)) == ({0: 2, 1: 1, 2: 1}, {0: 2, 1: 2})


def test_it_stays_on_a_pod_that_drains_and_serves_it():
    scene = taken_back({0: 2}, {0: 2}).pod(0, {KEY: 2}, ready=True, unschedulable=True)
    assert (target(scene), target(scene, taken_back=False)) == ({0: 2}, {1: 1, 2: 1})
    (step,) = decided(scene).explanation.steps
    assert (step.step, step.vreplicas, step.why) == (
        Step.STAYS,
        2,
        "no adapter was ready elsewhere",
    )


def test_it_leaves_a_pod_that_drains_and_is_not_ready():
    scene = taken_back({0: 2}, {0: 2}).pod(0, {KEY: 2}, unschedulable=True)
    assert target(scene) == {1: 1, 2: 1}
    assert {move.reason for move in decided(scene).moves} == {MoveReason.DRAIN}


@pytest.mark.parametrize(
    ("vreplicas", "expected"),
    [
        pytest.param(3, {0: 2, 1: 1}, id="more are wanted: they go to another pod"),
        pytest.param(1, {0: 1}, id="fewer are wanted"),
        pytest.param(0, {}, id="none is wanted"),
    ],
)
def test_it_grows_and_shrinks_all_the_same(vreplicas: int, expected: dict[int, int]):
    scene = taken_back({0: 2}, {0: 2}, vreplicas).pod(0, {KEY: 2}, ready=True, unschedulable=True)
    assert target(scene) == expected


def test_what_overcommits_the_pod_does_not_stay():
    scene = taken_back({0: 2}, {0: 2}).pod(0, {KEY: 2}, ready=True, unschedulable=True, slots=1)
    assert target(scene) == {0: 1, 1: 1}
