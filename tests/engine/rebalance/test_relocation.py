"""Planned moves, carried out on the state as it is by then."""

import pytest

from extender.engine.rebalance.relocation import relocate
from extender.model.ledger import Share
from extender.model.moves import Move, MoveReason
from tests.support.builders import Scene


def a_move(count: int = 1, to: int = 1) -> Move:
    return Move("tenant/a", "dispatcher-0", f"dispatcher-{to}", count, MoveReason.COMPACTION)


def a_scene(**vpod) -> Scene:
    scene = Scene(slots=5).pods(1, 2).pod(0, {"tenant/a": 3})
    return scene.vpod("a", 3, {0: 3}, **vpod)


def test_what_is_moved_leaves_one_pod_and_comes_to_the_other():
    scene = a_scene()
    decision = relocate(scene.pool, scene.pool.vpods["tenant/a"], [a_move(1), a_move(2, to=2)])
    assert decision is not None
    assert dict(decision.target) == {"dispatcher-1": 1, "dispatcher-2": 2}
    assert decision.moves == (a_move(1), a_move(2, to=2))


def test_as_many_are_moved_as_the_targets_dimensions_still_allow():
    cpu = (("cpu", 2),)
    scene = Scene(slots=9, capacities=(("cpu", 6),)).pods(1, 2)
    scene.pod(0, {"tenant/a": Share(3, 1, cpu)}).vpod("a", 3, {0: 3}, per_vreplica=cpu)
    scene.pod(1, {"tenant/b": Share(1, 1, (("cpu", 3),))})
    decision = relocate(scene.pool, scene.pool.vpods["tenant/a"], [a_move(3)])
    assert decision is not None
    assert dict(decision.target) == {"dispatcher-0": 2, "dispatcher-1": 1}
    assert decision.share(1) == Share(1, 1, cpu)


def test_what_has_no_place_yet_is_still_told_as_left():
    scene = a_scene().vpod("a", 5, {0: 3})
    decision = relocate(scene.pool, scene.pool.vpods["tenant/a"], [a_move()])
    assert decision is not None
    assert (decision.pending, decision.explanation.pending) == (2, 2)
    assert decision.explanation.outcome().startswith(
        "2 of 5 vreplicas are not placed (InsufficientSlots)"
    )


@pytest.mark.parametrize(
    ("prepare", "move"),
    [
        pytest.param(lambda scene: None, a_move(to=7), id="no such target"),
        pytest.param(lambda scene: scene.pod(1, node=""), a_move(), id="the target is not bound"),
        pytest.param(lambda scene: scene.pool.set_closed(2), a_move(), id="the target is closed"),
        pytest.param(
            lambda scene: scene.pod(1, {"tenant/b": 5}).vpod("b", 5, {1: 5}),
            a_move(),
            id="it is full",
        ),
        pytest.param(
            lambda scene: scene.vpod("a", 3, {0: 3}, deleting=True), a_move(), id="the vpod goes"
        ),
        pytest.param(
            lambda scene: scene.vpod("a", 3, {0: 3}, weight=2),
            a_move(),
            id="its weight has changed",
        ),
        pytest.param(
            lambda scene: scene.vpod("a", 2, {0: 3}),
            a_move(),
            id="fewer are wanted: placing is first",
        ),
        pytest.param(
            lambda scene: scene.pod(0, {"tenant/a": 4}),
            a_move(),
            id="more is placed than published: placing is first",
        ),
    ],
)
def test_what_is_no_longer_possible_is_left_out(prepare, move):
    scene = a_scene()
    prepare(scene)
    assert relocate(scene.pool, scene.pool.vpods["tenant/a"], [move]) is None


def named(source: int, to: int, count: int = 1, reason: MoveReason = MoveReason.POLICY) -> Move:
    return Move("tenant/a", f"dispatcher-{source}", f"dispatcher-{to}", count, reason)


@pytest.mark.parametrize(
    ("moves", "made"),
    [
        pytest.param([named(1, 2), named(0, 1)], [named(0, 2)], id="one leaves where one comes"),
        pytest.param([named(0, 1), named(1, 2)], [named(0, 2)], id="one goes on"),
        pytest.param([named(0, 1), named(1, 0)], [], id="one comes back"),
        pytest.param(
            [named(1, 2), named(0, 1, 2)], [named(0, 2), named(0, 1)], id="one leaves, two come"
        ),
        pytest.param(
            [named(1, 2), named(0, 1, reason=MoveReason.MAKE_ROOM)],
            [named(0, 2, reason=MoveReason.MAKE_ROOM)],
            id="the reason is that of the pod which is left",
        ),
        pytest.param([named(0, 1), named(0, 2)], [named(0, 1), named(0, 2)], id="they are apart"),
    ],
)
def test_no_pod_is_left_by_one_vreplica_and_gets_another_of_the_same_vpod(
    moves: list[Move], made: list[Move]
):
    """Seed 590001071: the vpod's status named a pod to which nothing had been moved."""
    scene = Scene(slots=5).pods(2).pod(0, {"tenant/a": 2}).pod(1, {"tenant/a": 1})
    scene.vpod("a", 3, {0: 2, 1: 1})
    decision = relocate(scene.pool, scene.pool.vpods["tenant/a"], moves)
    assert (list(decision.moves) if decision is not None else []) == made
