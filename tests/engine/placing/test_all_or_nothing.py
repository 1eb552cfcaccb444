"""minAvailable: a vpod has as many vreplicas as it needs together, or none."""

import random

import pytest

from extender.engine.placing.plan import Decision
from extender.engine.policy.profiles import BUILT_IN_PROFILES, HA_PROFILE
from extender.engine.scaling.scale_down import ordinals_to_close
from extender.engine.scaling.size import plan_scale
from extender.model.moves import Move, MoveReason
from extender.model.objects import Scaling, ScalingMode, VPod
from tests.support.builders import POOL, Scene, a_node
from tests.support.placing import place


def decided(scene: Scene, name: str = "a") -> Decision:
    return place(scene.pool, scene.pool.vpods[f"tenant/{name}"])


def two_pods(**pool) -> Scene:
    return Scene(replicas=2, slots=4, **pool).pods(0, 1)


@pytest.mark.parametrize(
    ("least", "placed"),
    [(0, 6), (1, 6), (5, 6), (6, 6), (7, 0), (9, 0)],
)
def test_it_gets_all_that_has_room_or_nothing(least: int, placed: int):
    """6 of its 9 vreplicas have room."""
    scene = two_pods().vpod("other", 2, {0: 2}).vpod("a", 9, min_available=least)
    decision = decided(scene)
    assert (decision.scheduled, decision.pending) == (placed, 9 - placed)


def test_it_says_how_many_have_room():
    story = decided(two_pods().vpod("a", 9, min_available=9)).explanation
    assert story.outcome() == (
        "9 of 9 vreplicas are not placed (InsufficientSlots): minAvailable is 9, and only 8 have "
        "room"
    )
    assert story.refused == (("no free slots", 2),)


def test_more_than_it_asks_for_is_all_that_it_asks_for():
    assert decided(two_pods().vpod("a", 3, min_available=100)).scheduled == 3


def test_vreplicas_beyond_what_it_needs_together_come_one_by_one():
    scene = Scene(replicas=2, slots=4).pod(0, {"tenant/a": 4}).pod(1, {"tenant/other": 3})
    scene.vpod("other", 3, {1: 3}).vpod("a", 9, {0: 4}, min_available=3)
    assert decided(scene).target == {"dispatcher-0": 4, "dispatcher-1": 1}


def test_if_too_few_are_left_it_gives_them_back_and_reports_what_was_lost():
    """The pod of three of its five vreplicas is gone, with its ordinal."""
    scene = Scene(replicas=1, slots=4).pod(0, {"tenant/a": 2, "tenant/other": 2})
    scene.vpod("other", 2, {0: 2}).vpod("a", 5, {0: 2, 1: 3}, min_available=4)
    decision = decided(scene)
    lost = Move("tenant/a", "dispatcher-1", "", 3, MoveReason.ORDINAL_GONE)
    assert (dict(decision.target), decision.pending, decision.moves) == ({}, 5, (lost,))


def test_one_that_needs_more_together_than_before_keeps_what_it_has_and_grows_as_others_do():
    scene = Scene(replicas=2, slots=4).pod(0, {"tenant/a": 4}).pod(1, {"tenant/other": 3})
    scene.vpod("other", 3, {1: 3}).vpod("a", 9, {0: 4}, min_available=100)
    assert decided(scene).target == {"dispatcher-0": 4, "dispatcher-1": 1}


def test_what_leaves_a_drained_pod_stays_there_and_counts_until_it_has_room():
    scene = Scene(replicas=2, slots=4).pod(0, {"tenant/a": 4}, unschedulable=True)
    scene.pod(1, {"tenant/other": 3}).vpod("other", 3, {1: 3})
    scene.vpod("a", 4, {0: 4}, min_available=4)
    decision = decided(scene)
    assert decision.target == {"dispatcher-0": 3, "dispatcher-1": 1}
    assert [move.reason for move in decision.moves] == [MoveReason.DRAIN]


def test_a_vpod_that_is_being_deleted_keeps_what_it_has():
    scene = Scene(replicas=1, slots=4).pod(0, {"tenant/a": 2})
    scene.vpod("a", 5, {0: 2}, min_available=4, deleting=True)
    assert decided(scene).target == {"dispatcher-0": 2}


def test_of_two_that_wait_for_each_other_one_is_placed():
    """A leader has crashed after the first half of each was in the ledgers."""
    scene = Scene(replicas=2, slots=4).pod(0, {"tenant/a": 4}).pod(1, {"tenant/b": 4})
    for name in "ab":
        scene.vpod(name, 6, min_available=6)
    first = decided(scene, "a")
    assert not first.target
    scene.pod(0, {})
    assert decided(scene, "b").scheduled == 6


class TestSize:
    """How many pods the pool needs."""

    @pytest.mark.parametrize(("most", "wanted"), [(None, 5), (5, 5), (4, 2)])
    def test_a_pool_grows_for_it_unless_it_may_not_grow_far_enough(
        self, most: int | None, wanted: int
    ):
        scene = two_pods(max_pods=most).vpod("other", 8, {0: 4, 1: 4})
        scene.pod(0, {"tenant/other": 4}).pod(1, {"tenant/other": 4})
        scene.vpod("a", 12, min_available=12)
        plan = plan_scale(scene.pool)
        assert plan is not None
        assert (plan.wanted, plan.unlimited) == (wanted, wanted)
        assert not plan.limited
        assert plan.falls_short is (most == 4)
        assert most != 4 or plan.limit_text == "5 pods are needed, and maxPods allows 4"

    def test_a_pool_that_is_limited_grows_for_the_smallest(self):
        scene = two_pods(max_pods=4).vpod("other", 8, {0: 4, 1: 4})
        scene.pod(0, {"tenant/other": 4}).pod(1, {"tenant/other": 4})
        scene.vpod("large", 9, min_available=9).vpod("small", 3, min_available=3)
        scene.vpod("heavy", 2, weight=4, min_available=2)
        plan = plan_scale(scene.pool)
        assert plan is not None
        assert (plan.wanted, plan.needed) == (3, 7)

    def test_one_that_has_no_room_does_not_keep_a_larger_one_from_getting_pods(self):
        scene = Scene(replicas=1, slots=4, max_pods=3).pod(0, {"tenant/other": 1})
        scene.vpod("other", 1, {0: 1}).vpod("heavy", 3, weight=3, min_available=3)
        scene.vpod("light", 11, min_available=11)
        plan = plan_scale(scene.pool)
        assert plan is not None
        assert plan.wanted == 3

    def test_a_hard_zone_rule_may_leave_no_room_for_it(self):
        scene = Scene(replicas=1, slots=4, max_pods=2).pod(0)
        scene.pool.set_profile(HA_PROFILE)
        for number in range(3):
            scene.node(a_node(f"node-{number}", zone=f"z{number}"))
        scene.vpod("a", 8, min_available=8)
        plan = plan_scale(scene.pool)
        assert plan is not None
        assert (plan.wanted, plan.falls_short) == (0, True)

    def test_others_who_wait_get_their_pods_beside_one_that_has_no_room(self):
        scene = two_pods(max_pods=4).vpod("other", 8, {0: 4, 1: 4})
        scene.pod(0, {"tenant/other": 4}).pod(1, {"tenant/other": 4})
        scene.vpod("a", 12, min_available=12).vpod("b", 1)
        plan = plan_scale(scene.pool)
        assert plan is not None
        assert (plan.wanted, plan.limited, plan.falls_short) == (3, False, True)
        assert not ordinals_to_close(scene.pool, plan)

    def test_what_max_pods_cannot_hold_any_more_counts_while_it_is_there(self):
        scene = Scene(replicas=2, slots=4, max_pods=1)
        scene.pod(0, {"tenant/a": 4}).pod(1, {"tenant/a": 4})
        scene.vpod("a", 8, {0: 4, 1: 4}, min_available=8)
        assert decided(scene).scheduled == 8
        plan = plan_scale(scene.pool)
        assert plan is not None
        assert (plan.wanted, plan.unlimited, plan.limited) == (1, 2, True)

    def test_a_pool_that_others_size_is_not_judged_by_max_pods(self):
        scaling = Scaling(mode=ScalingMode.EXTERNAL)
        scene = two_pods(max_pods=1, scaling=scaling).vpod("a", 8, min_available=8)
        assert decided(scene).scheduled == 8

    def test_a_pool_with_max_pods_could_never_hold_more_than_these_have(self):
        scene = two_pods(max_pods=3).vpod("a", 9, weight=2, min_available=7)
        decision = decided(scene)
        assert not decision.target
        assert decision.explanation.detail == (
            "7 vreplicas (spec.minAvailable) need 4 pods, but AdapterPool "
            f"{POOL} may have 3 (spec.maxPods); lower the former or raise the latter"
        )
        plan = plan_scale(scene.pool)
        assert plan is not None
        assert plan.wanted == 0


@pytest.mark.parametrize("seed", range(60))
def test_a_gang_gets_what_an_ordinary_vpod_would_get_if_that_is_enough(seed: int):
    rng = random.Random(seed)
    scene = Scene(replicas=4, slots=6)
    scene.pool.set_profile(rng.choice([*BUILT_IN_PROFILES.values()]))
    for ordinal in range(4):
        taken = rng.randrange(7)
        scene.pod(ordinal, {"tenant/other": taken} if taken else {})
    scene.vpod("other", 0)
    asks = rng.randrange(1, 16)
    weight, least = rng.choice([1, 1, 2, 3]), rng.randrange(1, 16)
    ordinary = decided(scene.vpod("a", asks, weight=weight))
    gang = decided(scene.vpod("a", asks, weight=weight, min_available=least))
    enough = ordinary.scheduled >= min(least, asks)
    assert gang.target == (ordinary.target if enough else {}), f"seed {seed}"


def test_least_is_what_it_asks_for_at_most():
    vpod = VPod(namespace="t", name="a", pool=POOL, vreplicas=3, min_available=5)
    assert vpod.least == 3
