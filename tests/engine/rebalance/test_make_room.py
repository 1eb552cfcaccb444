"""Moves that give a place to a vreplica that fits nowhere, the fewest that do."""

import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from extender.engine.policy.profiles import HA_PROFILE
from extender.engine.rebalance import move_plan
from extender.engine.rebalance.make_room import STEPS_MAX, RoomSearch
from extender.engine.rebalance.move_plan import Limits, can_place
from extender.engine.rebalance.moves import Advice, plan_moves
from extender.engine.rebalance.repetition import LeftBehind
from extender.model.amounts import Amounts
from extender.model.ledger import Share
from extender.model.moves import Move, MoveReason
from tests.engine.rebalance.crowded import PROFILES, a_plan, crowded
from tests.support.builders import Scene, a_node

WAITING = "tenant/waiting"


class Pods:
    """A pool of 20-slot pods. Each pod is described by the weights of its vreplicas; each vreplica
    is one vpod, named by its pod and its place there.
    """

    def __init__(self, *loads: tuple[int, ...], needs: int, **fields) -> None:
        self.scene = Scene(slots=20, replicas=len(loads), max_pods=len(loads), **fields)
        for ordinal, load in enumerate(loads):
            named = {f"p{ordinal}v{index}": weight for index, weight in enumerate(load)}
            self.scene.pod(ordinal, {f"tenant/{n}": Share(1, w) for n, w in named.items()})
            for name, weight in named.items():
                self.scene.vpod(name, 1, {ordinal: 1}, weight=weight)
        self.scene.vpod("waiting", 1, weight=needs)

    def moves(self, **limits) -> list[Move]:
        """The moves of one plan."""
        advice = Advice(waiting=[WAITING], **_taken(limits, "returns"))
        return plan_moves(self.scene.pool, Limits(**{"budget": 10, **limits}), advice)

    def told(self, **limits) -> list[tuple[str, int, int]]:
        """(vpod, from, to) of the plan."""
        return [
            (
                move.vpod.partition("/")[2],
                int(move.from_pod.rpartition("-")[2]),
                int(move.to_pod.rpartition("-")[2]),
            )
            for move in self.moves(**limits)
        ]


def _taken(limits: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: limits.pop(name) for name in names if name in limits}


def these(*names: str) -> Callable[[str], bool]:
    return {f"tenant/{name}" for name in names}.__contains__


@pytest.mark.parametrize(
    ("loads", "needs", "expected"),
    [
        pytest.param(((14,), (13, 1)), 7, [("p1v1", 1, 0)], id="one move is enough"),
        pytest.param(((14, 1), (13, 5)), 6, [("p0v1", 0, 1)], id="the lightest that is enough"),
        pytest.param(
            ((12, 1, 1), (18,), (18, 1)),
            8,
            [("p0v1", 0, 2), ("p0v2", 0, 1)],
            id="two moves, each to the pod where it leaves the least room",
        ),
        pytest.param(((9, 6), (9, 6), (18,)), 7, [], id="nothing that may leave has room anywhere"),
        pytest.param(((14,), (14,)), 13, [], id="not enough slots are free in all"),
        pytest.param(((10, 4), (10,)), 6, [], id="what has room needs no moves"),
    ],
)
def test_the_fewest_moves(
    loads: tuple[tuple[int, ...], ...], needs: int, expected: list[tuple[str, int, int]]
):
    assert Pods(*loads, needs=needs).told() == expected


def test_each_move_has_the_reason_and_one_vreplica():
    (move,) = Pods((14,), (13, 1), needs=7).moves()
    assert (move.reason, move.vreplicas) == (MoveReason.MAKE_ROOM, 1)


class TestChains:
    """One slot leaves pod 1 for pod 2, the four of pod 0 get that room, and then eight are free."""

    LOADS = ((13, 4), (16, 1), (19,))

    def test_only_the_moves_with_room_now_are_made_now(self):
        assert Pods(*self.LOADS, needs=7).told() == [("p1v1", 1, 2)]

    def test_the_rest_follows_once_that_is_done(self):
        done = Pods((13, 4), (16,), (19, 1), needs=7)
        assert done.told() == [("p0v1", 0, 1)]

    def test_no_chain_is_begun_that_the_budget_cannot_end(self):
        assert Pods(*self.LOADS, needs=7).told(budget=1) == []


class TestNowAndLater:
    """Two vreplicas of four slots leave pod 0. One has room on pod 1, the other only once one slot
    has left pod 2 for pod 3.
    """

    LOADS = ((12, 4, 4), (16,), (16, 1), (19,))

    def test_two_vpods_leave_one_after_the_other(self):
        assert sorted(Pods(*self.LOADS, needs=8).told()) == [("p0v1", 0, 1), ("p2v1", 2, 3)]

    def test_one_vpod_does_not_since_it_would_be_in_its_cool_down_by_then(self):
        pods = Pods((12,), *self.LOADS[1:], needs=8)
        both = {"tenant/p0v0": Share(1, 12), "tenant/twice": Share(2, 4)}
        pods.scene.pod(0, both).vpod("twice", 2, {0: 2}, weight=4)
        assert pods.told() == []


@pytest.mark.parametrize(("together", "moves"), [(0, 1), (1, 1), (2, 0)])
def test_no_room_is_made_for_one_of_several_that_are_needed_together(together: int, moves: int):
    pods = Pods((14,), (13, 1), needs=7)
    pods.scene.vpod("waiting", 2, weight=7, min_available=together)
    assert len(pods.moves()) == moves


def test_nothing_moves_beyond_the_budget():
    assert Pods((12, 1, 1), (18,), (18, 1), needs=8).told(budget=1) == []


@pytest.mark.parametrize("limit", ["cooling", "fixed"])
def test_a_vpod_that_may_not_move_does_not_make_way(limit: str):
    pods = Pods((14, 1), (14, 2), needs=6)
    assert pods.told() == [("p0v1", 0, 1)]
    assert pods.told(**{limit: these("p0v1")}) == [("p1v1", 1, 0)]


def test_no_vpod_goes_back_to_placements_that_it_has_left():
    pods = Pods((14, 1), (14, 2), needs=6)

    def returns(key: str, placements: Mapping[str, int]) -> bool:
        return (key, dict(placements)) == ("tenant/p0v1", {"dispatcher-1": 1})

    assert pods.told(returns=returns) == [("p1v1", 1, 0)]


def test_a_vpod_that_made_way_makes_way_back_for_one_that_comes_later():
    made, memory = Pods((4, *[1] * 13), (14,), needs=7), LeftBehind()
    pool = made.scene.pool

    def told() -> list[tuple[str, int, int]]:
        memory.look(pool)
        return made.told(returns=lambda key, there: memory.returns(pool.vpods[key], there))

    assert told() == [("p0v0", 0, 1)]
    memory.leave(pool.vpods["tenant/p0v0"], pool.decided_of("tenant/p0v0"))
    made.scene.vpod("p0v0", 1, {1: 1}, weight=4)
    made.scene.pod(0, {f"tenant/p0v{index}": 1 for index in range(1, 14)})
    made.scene.no_vpod("p1v0").pod(1, {"tenant/p0v0": Share(1, 4)})
    made.scene.vpod("waiting", 1, weight=20)
    assert told() == [("p0v0", 1, 0)]


def test_the_vpod_that_waits_does_not_make_way_for_itself():
    scene = Scene(slots=20, replicas=2, max_pods=2)
    scene.pod(0, {"tenant/a": Share(2, 7)}).pod(1, {"tenant/b": Share(1, 14)})
    scene.vpod("a", 3, {0: 2}, weight=7).vpod("b", 1, {1: 1}, weight=14)
    assert plan_moves(scene.pool, Limits(budget=9), Advice(waiting=["tenant/a"])) == []


def test_nothing_that_is_served_goes_to_a_pod_that_is_down():
    pods = Pods((14,), (13, 1), needs=7)
    pods.scene.pod(1, {"tenant/p1v0": Share(1, 13), "tenant/p1v1": 1}, ready=True)
    assert pods.told() == []
    pods.scene.pod(0, {"tenant/p0v0": Share(1, 14)}, ready=True)
    assert pods.told() == [("p1v1", 1, 0)]


def test_a_closed_pod_neither_takes_part_nor_gets_room():
    pods = Pods((14,), (13, 1), needs=7)
    pods.scene.pool.set_closed(0b10)
    assert pods.told() == []


class TestZones:
    """Three pods, one a zone, under the hard rule of the profile ``ha``."""

    def pool(self) -> Scene:
        scene = Scene(slots=20, replicas=3, max_pods=3)
        for ordinal, zone in enumerate("abc"):
            scene.node(a_node(f"n{ordinal}", zone=zone))
        scene.pool.set_profile(HA_PROFILE)
        return scene

    def test_room_is_made_in_the_zone_that_the_rule_allows(self):
        scene = self.pool()
        scene.pod(0, {"tenant/big": Share(1, 10)}, node="n0")
        scene.pod(1, {"tenant/big": Share(1, 10)}, node="n1")
        scene.pod(2, {"tenant/x": Share(1, 8), "tenant/y": Share(1, 6)}, node="n2")
        scene.vpod("big", 3, {0: 1, 1: 1}, weight=10)
        scene.vpod("x", 1, {2: 1}, weight=8).vpod("y", 1, {2: 1}, weight=6)
        (move,) = plan_moves(scene.pool, Limits(budget=9), Advice(waiting=["tenant/big"]))
        assert (move.vpod, move.from_pod) == ("tenant/y", "dispatcher-2")

    def test_a_vpod_that_the_rule_holds_in_its_zone_does_not_make_way(self):
        scene = self.pool()
        spread = {f"tenant/{name}": Share(1, 6) for name in "xy"}
        scene.pod(0, {**spread}, node="n0").pod(1, {**spread}, node="n1")
        scene.pod(2, {**spread}, node="n2")
        for name in "xy":
            scene.vpod(name, 3, {0: 1, 1: 1, 2: 1}, weight=6)
        scene.vpod("waiting", 1, weight=9)
        assert plan_moves(scene.pool, Limits(budget=9), Advice(waiting=[WAITING])) == []


class TestCanPlace:
    def test_all_that_waits_or_not(self):
        pods = Pods((14,), (13, 1), needs=7)
        assert can_place(pods.scene.pool, [WAITING], Limits(budget=1))
        pods.scene.vpod("second", 1, weight=7)
        assert not can_place(pods.scene.pool, [WAITING, "tenant/second"], Limits(budget=9))


def test_a_search_gives_up_after_its_steps(monkeypatch: pytest.MonkeyPatch):
    """Each of twelve pods has a light vreplica, and that of the last pod alone may go elsewhere."""
    pods = Pods(*[(9, 8, 1)] * 12, needs=3)

    def told() -> list[tuple[str, int, int]]:
        return pods.told(returns=lambda key, _: key != "tenant/p11v2")

    assert told() == [("p11v2", 11, 0)]
    monkeypatch.setattr(move_plan, "ROOM_STEPS_MAX", 5)
    monkeypatch.setattr(move_plan, "STEPS_MAX", 5)
    assert told() == []


def test_what_all_free_slots_together_could_not_hold_costs_no_steps(
    monkeypatch: pytest.MonkeyPatch,
):
    """A search begins only with all of its steps, so one step less and nothing would move."""
    pods = Pods((14,), (13, 1), needs=7)
    pods.scene.vpod("large", 1, weight=13)
    monkeypatch.setattr(move_plan, "ROOM_STEPS_MAX", STEPS_MAX)
    advice = Advice(waiting=["tenant/large", WAITING])
    assert [move.vpod for move in plan_moves(pods.scene.pool, Limits(budget=10), advice)] == [
        "tenant/p1v1"
    ]


@pytest.mark.parametrize(
    "capacities", [(), (("cpu", 10), ("memory", 30))], ids=["slots", "amounts"]
)
@pytest.mark.parametrize("profile", PROFILES)
def test_what_is_left_out_would_have_failed(
    profile: str, capacities: Amounts, monkeypatch: pytest.MonkeyPatch
):
    """A search without end that tries every pod, and looks for every place anew, is the oracle."""
    monkeypatch.setattr(move_plan, "ROOM_STEPS_MAX", sys.maxsize)
    monkeypatch.setattr(move_plan, "STEPS_MAX", sys.maxsize)
    instances = [
        crowded(seed, 3 + seed % 6, capacities=capacities, profile=profile) for seed in range(40)
    ]
    found = [a_plan(instance.pool(), instance) for instance in instances]
    assert sum(map(bool, found)) > 5
    monkeypatch.setattr(RoomSearch, "_could_free", lambda *_: True)
    monkeypatch.setattr(RoomSearch, "_first_hole", RoomSearch._hole)
    for seed, (instance, plan) in enumerate(zip(instances, found, strict=True)):
        assert a_plan(instance.pool(), instance) == plan, f"seed {seed}"
