"""``spec.placement.maxPerPod``: a pod gets no more of a vpod's vreplicas than that."""

from dataclasses import replace

import pytest

from extender.engine.placing.refused import AT_MOST, NO_SLOTS
from extender.engine.policy.profiles import BUILT_IN_PROFILES
from extender.engine.rebalance.move_plan import Limits, can_place
from extender.engine.rebalance.relocation import relocate
from extender.engine.scaling.scale_down import ordinals_to_close
from extender.engine.scaling.size import anyone, plan_scale
from extender.model.ledger import Share
from extender.model.moves import Move, MoveReason
from extender.model.reasons import ConflictReason
from extender.node.bind_ledger import bind_ledger_of
from tests.support.builders import Scene, a_node
from tests.support.placing import place

OWN_PROFILES = ["default", "ha", "pack", "spread"]
"""Those that follow Knative's rules place as Knative does, and keep the limit, too."""


def a_scene(replicas: int = 3, *, slots: int = 20, profile: str = "default", **fields) -> Scene:
    """Pods on three nodes, each in a zone of its own."""
    scene = Scene(replicas=replicas, slots=slots, profile=profile, **fields)
    scene.pool.set_profile(BUILT_IN_PROFILES[profile])
    for number in range(3):
        scene.node(a_node(f"n{number}", f"z{number}"))
    for ordinal in range(replicas):
        scene.pod(ordinal, node=f"n{ordinal % 3}")
    return scene


def decide(scene: Scene, name: str = "a"):
    return place(scene.pool, scene.pool.vpods[f"tenant/{name}"])


@pytest.mark.parametrize("profile", sorted(BUILT_IN_PROFILES))
def test_under_each_profile_a_pod_gets_no_more_than_the_limit(profile: str):
    scene = a_scene(profile=profile).vpod("a", 6, max_per_pod=2)
    decision = decide(scene)
    assert sorted(decision.target.values()) == [2, 2, 2]
    assert not decision.pending


def test_what_has_no_pod_left_waits_and_each_pod_says_why():
    decision = decide(a_scene().vpod("a", 7, max_per_pod=2))
    assert (sum(decision.target.values()), decision.pending) == (6, 1)
    assert decision.explanation.refused == ((AT_MOST, 3),)
    assert decision.explanation.reason is ConflictReason.INSUFFICIENT_SLOTS


def test_a_full_pod_says_so_if_it_has_fewer_than_the_limit():
    scene = a_scene(1, slots=3).vpod("a", 4, max_per_pod=4)
    assert decide(scene).explanation.refused == ((NO_SLOTS, 1),)


def test_what_a_pod_has_when_the_limit_is_lowered_stays_and_gets_nothing_more():
    scene = a_scene().pod(0, {"tenant/a": 5}, node="n0").vpod("a", 9, {0: 5}, max_per_pod=2)
    decision = decide(scene)
    assert decision.target == {"dispatcher-0": 5, "dispatcher-1": 2, "dispatcher-2": 2}
    assert not decision.moves


@pytest.mark.parametrize("profile", OWN_PROFILES)
def test_a_pool_has_as_many_pods_as_the_limit_needs(profile: str):
    scene = a_scene(1, profile=profile).vpod("a", 9, max_per_pod=2)
    plan = plan_scale(scene.pool)
    assert plan is not None
    assert (plan.wanted, plan.unschedulable) == (6 if profile == "ha" else 5, True)


def test_a_pool_of_a_million_asked_for_is_sized_at_once():
    scene = a_scene(1, profile="ha").vpod("a", 1_000_000, max_per_pod=1)
    plan = plan_scale(scene.pool)
    assert plan is not None
    assert plan.wanted == 10_000


def test_pods_that_the_limit_needs_are_not_closed_though_fewer_have_the_slots():
    scene = a_scene(4)
    for ordinal in range(4):
        scene.pod(ordinal, {"tenant/a": 2}, node=f"n{ordinal % 3}")
    scene.vpod("a", 8, dict.fromkeys(range(4), 2), max_per_pod=2)
    plan = plan_scale(scene.pool)
    assert plan is not None
    assert ordinals_to_close(scene.pool, plan) == 0
    scene.vpod("a", 8, dict.fromkeys(range(4), 2))
    assert ordinals_to_close(scene.pool, plan) == 0b1110


def test_pods_that_hold_more_than_the_limit_lets_others_take_are_not_closed():
    scene = a_scene(5).pod(2, {"tenant/a": 1}, node="n2").pod(4, {"tenant/a": 2}, node="n1")
    scene.vpod("a", 2, {2: 1, 4: 2}, max_per_pod=1)
    plan = plan_scale(scene.pool)
    assert plan is not None
    assert ordinals_to_close(scene.pool, plan) == 0b11000, "pods 0 and 1 take one each"


def test_a_move_that_would_break_the_limit_is_not_carried_out():
    scene = a_scene(2).pod(0, {"tenant/a": 3}, node="n0").pod(1, {"tenant/a": 1}, node="n1")
    scene.vpod("a", 4, {0: 3, 1: 1}, max_per_pod=3)
    move = Move("tenant/a", "dispatcher-0", "dispatcher-1", 3, MoveReason.COMPACTION)
    decision = relocate(scene.pool, scene.pool.vpods["tenant/a"], [move])
    assert decision is not None
    assert decision.target == {"dispatcher-0": 1, "dispatcher-1": 3}


def test_no_room_is_made_on_a_pod_that_has_the_limit():
    scene = a_scene(2, slots=4, max_pods=2)
    for ordinal in (0, 1):
        scene.pod(ordinal, {"tenant/a": Share(1, 2), "tenant/b": 1}, node=f"n{ordinal}")
    each = {0: 1, 1: 1}
    scene.vpod("b", 2, each)
    for limit, has_room in ((0, True), (2, True), (1, False)):
        scene.vpod("a", 3, each, weight=2, max_per_pod=limit)
        assert can_place(scene.pool, ["tenant/a"], Limits(budget=9)) is has_room


def test_what_makes_way_does_not_go_to_a_pod_that_has_the_limit_of_it():
    scene = a_scene(2, slots=2, max_pods=2)
    for ordinal in (0, 1):
        scene.pod(ordinal, {"tenant/b": 1}, node=f"n{ordinal}")
    scene.vpod("a", 1, weight=2)
    for limit, has_room in ((0, True), (2, True), (1, False)):
        scene.vpod("b", 2, {0: 1, 1: 1}, max_per_pod=limit)
        assert can_place(scene.pool, ["tenant/a"], Limits(budget=9)) is has_room


def test_what_needs_more_pods_together_than_there_may_be_can_never_be_placed():
    scene = a_scene(2, max_pods=2)
    scene.vpod("a", 6, max_per_pod=2, min_available=5)
    decision = decide(scene)
    assert decision.explanation.reason is ConflictReason.UNSATISFIABLE
    assert "5 vreplicas (spec.minAvailable) need 3 pods" in decision.explanation.outcome()


def test_a_pod_that_is_bound_does_not_take_more_than_the_limit():
    """The leader gives it what waits, once it is bound."""
    scene = a_scene(1).vpod("a", 9, max_per_pod=2).vpod("b", 30)
    scene.stateful_set(2).pod(1, node="")
    pending = scene.pool.by_ordinal[1].pod
    assert pending is not None
    bound = bind_ledger_of(scene.pool, pending, slots=20, with_added=True, allows=anyone)
    assert bound.ledger.keys() == {"tenant/b"}


def test_a_limit_that_is_lifted_has_the_vpod_decided_again():
    scene = a_scene(1).vpod("a", 4, {0: 2}, max_per_pod=2)
    before = scene.pool.asks_revision
    scene.vpod("a", 4, {0: 2})
    assert scene.pool.asks_revision > before
    assert decide(scene).target == {"dispatcher-0": 4}
    assert replace(scene.pool.vpods["tenant/a"], max_per_pod=3).slots_beside(2, 20) == 1
