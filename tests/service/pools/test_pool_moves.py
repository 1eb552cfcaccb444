"""Whose turn it is when a plan has no time for all that waits."""

from itertools import islice

import pytest

from extender.engine.rebalance.move_plan import Limits
from extender.engine.rebalance.moves import Advice, plan_moves
from extender.model.ledger import Share
from extender.model.moves import Move, MoveReason
from extender.service.pools.pool_moves import PoolMoves
from tests.support.builders import Scene


@pytest.mark.parametrize("number", range(1, 41))
@pytest.mark.parametrize("tried", [1, 2, 3, 10])
def test_each_waiting_vpod_is_tried_once_in_a_round(number: int, tried: int):
    """In as many plans as it takes to try ``tried`` of them in each."""
    waiting = [f"v{index}" for index in range(number)]
    moves = PoolMoves()
    seen = [key for _ in range(-(-number // tried)) for key in took(moves, waiting, tried)]
    assert {*seen} == {*waiting}


def took(moves: PoolMoves, waiting: list[str], most: int) -> list[str]:
    """What a look tries in one plan that has time for ``most`` of them. It asks for one more before
    it ends.
    """
    moves.begin_look()
    asked = list(islice(moves.in_turn(waiting), most + 1))
    return asked[:most]


def test_a_round_goes_on_when_others_wait():
    moves = PoolMoves()
    assert took(moves, ["a", "b", "c", "d"], 3) == ["a", "b", "c"]
    assert took(moves, ["a", "b", "c"], 1) == ["a"]
    assert took(moves, [], 1) == []
    assert took(moves, ["a", "b", "c"], 1) == ["b"]


def test_one_look_tries_each_of_them_once_in_however_many_plans():
    moves, waiting = PoolMoves(), ["a", "b", "c"]
    assert list(islice(moves.in_turn(waiting), 2)) == ["a", "b"]
    assert list(moves.in_turn(waiting)) == ["b", "c"], "b was only asked for"
    assert list(moves.in_turn(waiting)) == []
    moves.begin_look()
    assert list(moves.in_turn(waiting)) == waiting


def test_a_vpod_waits_a_period_for_pods_on_their_way_and_anew_if_it_did_not_wait_between():
    moves = PoolMoves()
    assert moves.waited(["a"], 100, 0) == []
    assert moves.waited(["a", "b"], 100, 99) == []
    assert moves.waited(["a", "b"], 100, 100) == ["a"]
    assert moves.waited(["b"], 100, 198) == []
    assert moves.waited(["a", "b"], 100, 199) == ["b"]


HEAVY = 13


@pytest.mark.parametrize("hopeless", [4, 5, 9, 10])
def test_what_one_move_would_place_has_its_turn_beside_heavier_ones_for_which_there_is_no_way(
    hopeless: int,
):
    pool = crowded(hopeless).pool
    moves, waiting = PoolMoves(), [*(f"tenant/heavy{index}" for index in range(hopeless))]
    waiting.append("tenant/light")

    def plan() -> list[Move]:
        moves.begin_look()
        return plan_moves(pool, Limits(budget=10), Advice(waiting=moves.in_turn(waiting)))

    found = [plan() for _ in waiting]
    assert any(found)
    assert not all(found), "there is time for all of them in each plan"


def crowded(hopeless: int, pods: int = 60) -> Scene:
    """All pods have 2 or 3 slots left. One move gives ``light`` four."""
    scene = Scene(slots=20, replicas=pods, max_pods=pods)
    for ordinal in range(pods):
        vreplicas, weight = (6, 3) if ordinal < pods - 2 else (17, 1)
        name = f"placed{ordinal}"
        scene.vpod(name, vreplicas, {ordinal: vreplicas}, weight=weight)
        scene.pod(ordinal, {f"tenant/{name}": Share(vreplicas, weight)})
    for index in range(hopeless):
        scene.vpod(f"heavy{index}", 1, weight=HEAVY)
    return scene.vpod("light", 1, weight=4)


def test_a_vpod_that_is_made_anew_does_not_cool_down_for_its_predecessor():
    scene = Scene(replicas=2).pods(0, 1).vpod("a", 1, {0: 1}, uid="old")
    moves, key = PoolMoves(), "tenant/a"
    move = Move(key, "dispatcher-0", "dispatcher-1", 1, MoveReason.COMPACTION)
    before = {key: (scene.pool.vpods[key], {"dispatcher-0": 1})}
    moves.settle([move], [move], before, 1000.0)
    assert moves.cooling(scene.pool, 300, 1001.0)(key)
    scene.no_vpod("a").vpod("a", 1, {0: 1}, uid="new")
    assert not moves.cooling(scene.pool, 300, 1001.0)(key)
