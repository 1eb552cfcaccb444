"""Policy gets a vreplica into a zone without room: another one, which can as well be elsewhere,
makes way first.
"""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from extender.engine.policy.framework import Weighted
from extender.engine.policy.least_allocated import LeastAllocated
from extender.engine.policy.profiles import SPREAD_PROFILE
from extender.engine.rebalance.move_plan import Limits
from extender.engine.rebalance.moves import Advice, plan_moves
from extender.model.ledger import Share
from extender.model.moves import Move
from tests.support.builders import Scene, a_node

V = "tenant/v"
"""A vpod of weight 6. It is in zone a alone."""


def pools(zone_b: Mapping[str, Share], **placements: Mapping[int, int]) -> Scene:
    """Two pods of 20 slots in zone a and one in zone b, which holds ``zone_b``. ``v`` has two
    vreplicas, on pod 0 and pod 1. ``placements``: of the other vpods.
    """
    scene = Scene(slots=20, replicas=3, max_pods=3)
    for name, zone in (("n0", "a"), ("n1", "a"), ("n2", "b")):
        scene.node(a_node(name, zone=zone))
    scene.pool.set_profile(SPREAD_PROFILE)
    ledgers: list[dict[str, Share]] = [{V: Share(1, 6)}, {V: Share(1, 6)}, dict(zone_b)]
    for name, there in placements.items():
        for ordinal, count in there.items():
            share = zone_b.get(f"tenant/{name}", Share(1, 4))
            ledgers[ordinal][f"tenant/{name}"] = Share(count, share.weight)
    for ordinal, ledger in enumerate(ledgers):
        scene.pod(ordinal, ledger, node=f"n{ordinal}", ready=True)
    scene.vpod("v", 2, {0: 1, 1: 1}, weight=6)
    for name, there in placements.items():
        weight = ledgers[next(iter(there))][f"tenant/{name}"].weight
        scene.vpod(name, sum(there.values()), there, weight=weight)
    return scene


def plan(scene: Scene, *vpods: str, **limits) -> list[tuple[str, str, str, str]]:
    moves = plan_moves(scene.pool, Limits(**{"budget": 10, **limits}), Advice(vpods=[*vpods]))
    return [_told(move) for move in moves]


def _told(move: Move) -> tuple[str, str, str, str]:
    return move.vpod.partition("/")[2], move.from_pod[-1], move.to_pod[-1], str(move.reason)


def single_and_filler(single: int = 6) -> Scene:
    """Zone b is full: one vreplica of a vpod that has no other, and a filler."""
    return pools(
        {"tenant/single": Share(1, single), "tenant/filler": Share(1, 20 - single)},
        single={2: 1},
        filler={2: 1},
    )


def test_what_can_as_well_be_elsewhere_makes_way():
    assert plan(single_and_filler(), V) == [("single", "2", "0", "MakeRoom")]


def test_policy_moves_the_other_one_once_there_is_room():
    scene = single_and_filler()
    scene.pod(0, {V: Share(1, 6), "tenant/single": Share(1, 6)}, node="n0", ready=True)
    scene.pod(2, {"tenant/filler": Share(1, 14)}, node="n2", ready=True)
    scene.vpod("single", 1, {0: 1}, weight=6)
    assert [move[1:] for move in plan(scene, V)] in (
        [("0", "2", "Policy")],
        [("1", "2", "Policy")],
    )


def test_nothing_makes_way_that_loses_as_much_as_is_gained():
    """``other`` is as even as ``v`` would be afterwards."""
    scene = pools({"tenant/other": Share(1, 6), "tenant/big": Share(1, 14)}, other={0: 1, 2: 1})
    scene.vpod("big", 1, {2: 1}, weight=14)
    moved = [move for move in plan(scene, V) if move[0] == "other"]
    assert moved == []


def test_nothing_makes_way_where_the_profile_compares_pods():
    """Seed 107235951: one swap followed the other for over an hour."""
    scene = single_and_filler()
    compares = Weighted(LeastAllocated("slots"), 1)
    scene.pool.set_profile(
        replace(
            SPREAD_PROFILE,
            scores=(*SPREAD_PROFILE.scores, compares),
            deschedulers=(*SPREAD_PROFILE.deschedulers, compares),
        )
    )
    assert plan(scene, V) == []


def test_nothing_makes_way_that_is_too_light_to_be_enough():
    assert plan(single_and_filler(single=5), V) == []


def test_nothing_makes_way_in_its_cool_down_or_for_a_budget_of_one():
    others = {"tenant/single", "tenant/filler"}
    assert plan(single_and_filler(), V, cooling=others.__contains__) == []
    assert plan(single_and_filler(), V, budget=1) == []


def test_a_vpod_that_is_well_placed_moves_nobody():
    assert plan(single_and_filler(), "tenant/single", "tenant/filler") == []


@pytest.mark.parametrize(("name_chars", "slots"), [(250, 400), (250, 240), (3, 240)])
def test_nothing_makes_way_on_a_pod_whose_ledger_is_full(name_chars: int, slots: int):
    """Seed 590002711: one vreplica after the other left it, and the ledger stayed full. If only its
    slots are taken, one of them makes room.
    """
    scene = Scene(slots=slots, replicas=3, max_pods=3)
    for name, zone in (("n0", "a"), ("n1", "a"), ("n2", "b")):
        scene.node(a_node(name, zone=zone))
    scene.pool.set_profile(SPREAD_PROFILE)
    crowd = [f"{number:0{name_chars}}" for number in range(240)]
    scene.pod(0, {V: Share(1, 1)}, node="n0", ready=True)
    scene.pod(1, {V: Share(1, 1)}, node="n1", ready=True)
    scene.pod(2, {f"tenant/{name}": Share(1, 1) for name in crowd}, node="n2", ready=True)
    scene.vpod("v", 2, {0: 1, 1: 1})
    for name in crowd:
        scene.vpod(name, 1, {2: 1})
    assert bool(plan(scene, V)) == (name_chars == 3)
