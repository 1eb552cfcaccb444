"""Placing as Knative did up to 1.16, where a profile's rules ask for it."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from extender.engine.placing.plan import Decision
from extender.engine.policy.framework import Weighted
from extender.engine.policy.ordinals import LowestOrdinalPriority, RemoveWithHighestOrdinalPriority
from extender.engine.policy.profile import KNATIVE_1_16_RULES, Profile
from extender.engine.policy.profiles import KNATIVE_MAXFILLUP_PROFILE
from extender.engine.policy.resources import NoMaxResourceCount, PodFitsResources
from extender.engine.policy.spreading import ZoneSpread
from extender.model.moves import Move, MoveReason
from tests.support.builders import Scene, a_node
from tests.support.placing import place

LOWEST_FIRST = Profile(
    name="lowest-first",
    rules=KNATIVE_1_16_RULES,
    filters=(PodFitsResources(),),
    scores=(Weighted(LowestOrdinalPriority(), 1),),
)
WITH_DESCHEDULER = replace(
    LOWEST_FIRST,
    deschedulers=(Weighted(RemoveWithHighestOrdinalPriority(), 1),),
    name="with-descheduler",
)
OVER_ZONES = replace(
    LOWEST_FIRST, filters=(), scores=(Weighted(ZoneSpread(), 1),), name="over-zones"
)


def decide(scene: Scene, profile: Profile) -> Decision:
    scene.pool.set_profile(profile)
    return place(scene.pool, scene.pool.vpods["tenant/a"])


def by_ordinal(target: Mapping[str, int]) -> dict[int, int]:
    return {int(pod.rpartition("-")[2]): count for pod, count in target.items()}


def standing(scene: Scene, vreplicas: int, placed: Mapping[int, int]) -> Scene:
    """The vpod as its status and the ledgers have it."""
    for ordinal, count in placed.items():
        scene.pod(ordinal, {"tenant/a": count})
    return scene.vpod("a", vreplicas, placed)


@pytest.mark.parametrize(
    ("vreplicas", "placed", "expected", "left"),
    [
        pytest.param(7, {}, {0: 5, 1: 2}, 0, id="one pod after the other"),
        pytest.param(8, {2: 1}, {0: 3, 2: 5}, 0, id="its own pods first"),
        pytest.param(
            5, {1: 4, 2: 3}, {1: 4, 2: 1}, 0, id="fewer are taken from the highest ordinal down"
        ),
        pytest.param(20, {}, {0: 5, 1: 5, 2: 5}, 5, id="what fits is placed though not all does"),
    ],
)
def test_maxfillup_on_three_pods_of_five_slots(vreplicas, placed, expected, left):
    scene = standing(Scene(slots=5).pods(0, 1, 2), vreplicas, placed)
    decision = decide(scene, KNATIVE_MAXFILLUP_PROFILE)
    assert (by_ordinal(decision.target), decision.pending) == (expected, left)


def test_what_is_published_on_a_pod_that_nobody_knows_any_more_is_placed_anew():
    """Found by review: the error ended the service. Such an object is watched, and its controller
    asks for it, too.
    """
    scene = Scene(slots=5).pods(0, 1, 2).vpod("a", 4)
    vpod = replace(scene.pool.vpods["tenant/a"], placements={"dispatcher-0": 2, "dispatcher-9": 2})
    scene.pool.set_profile(KNATIVE_MAXFILLUP_PROFILE)
    decision = place(scene.pool, vpod)
    assert (sum(decision.target.values()), decision.pending) == (4, 0)
    assert "dispatcher-9" not in decision.target


def test_maxfillup_fills_no_pod_that_takes_no_work():
    scene = Scene(slots=5).pods(1).pod(0, node="").pod(2, unschedulable=True).vpod("a", 8)
    decision = decide(scene, KNATIVE_MAXFILLUP_PROFILE)
    assert (by_ordinal(decision.target), decision.pending) == ({1: 5}, 3)


def test_maxfillup_gives_heavy_vreplicas_only_where_a_whole_one_fits():
    scene = Scene(slots=5).pods(0, 1, 2).vpod("a", 5, weight=2)
    decision = decide(scene, KNATIVE_MAXFILLUP_PROFILE)
    assert by_ordinal(decision.target) == {0: 2, 1: 2, 2: 1}


def test_growth_places_the_whole_vpod_afresh_and_says_what_moves():
    scene = standing(Scene(slots=5).pods(0, 1, 2), 4, {2: 3})
    decision = decide(scene, LOWEST_FIRST)
    assert by_ordinal(decision.target) == {0: 4}
    assert decision.moves == (
        Move("tenant/a", "dispatcher-2", "dispatcher-0", 3, MoveReason.POLICY),
    )


def test_growth_may_use_the_slots_that_the_vpod_has_itself():
    scene = standing(Scene(slots=5, replicas=2).pods(0, 1), 8, {0: 5})
    assert by_ordinal(decide(scene, LOWEST_FIRST).target) == {0: 5, 1: 3}


def test_growth_without_room_for_all_changes_nothing():
    scene = standing(Scene(slots=5, replicas=2).pods(0, 1), 11, {0: 1, 1: 4})
    decision = decide(scene, LOWEST_FIRST)
    assert (by_ordinal(decision.target), decision.pending, decision.moves) == ({0: 1, 1: 4}, 1, ())


def test_growth_without_room_for_all_leaves_also_what_would_be_dropped():
    scene = standing(Scene(slots=5, replicas=3).pods(0, 1), 6, {0: 1}).pod(
        2, {"tenant/a": 2}, node=""
    )
    scene.pod(1, unschedulable=True).vpod("a", 6, {0: 1, 2: 2})
    decision = decide(scene, LOWEST_FIRST)
    assert (by_ordinal(decision.target), decision.pending) == ({0: 1, 2: 2}, 1)


def test_fewer_are_placed_afresh_too_where_nothing_deschedules():
    scene = standing(Scene(slots=5).pods(0, 1, 2), 3, {1: 2, 2: 2})
    assert by_ordinal(decide(scene, LOWEST_FIRST).target) == {0: 3}
    assert by_ordinal(decide(scene, WITH_DESCHEDULER).target) == {1: 2, 2: 1}


def test_enough_is_left_where_it_is():
    scene = standing(Scene(slots=5).pods(0, 1, 2), 4, {1: 2, 2: 2})
    assert by_ordinal(decide(scene, LOWEST_FIRST).target) == {1: 2, 2: 2}


def test_pods_that_the_vpod_leaves_count_as_pods_in_use():
    profile = replace(LOWEST_FIRST, filters=(NoMaxResourceCount(2),))
    scene = standing(Scene(slots=5).pods(0, 1, 2), 6, {1: 1, 2: 1})
    assert by_ordinal(decide(scene, profile).target) == {1: 5, 2: 1}


def test_a_pod_named_with_no_vreplicas_counts_as_a_pod_in_use():
    profile = replace(LOWEST_FIRST, filters=(NoMaxResourceCount(1),))
    scene = Scene(slots=5).pods(0, 1, 2).vpod("a", 2, {1: 0})
    assert by_ordinal(decide(scene, profile).target) == {1: 2}


def test_a_decision_starts_from_the_status_and_not_from_the_one_before():
    scene = standing(Scene(slots=5).pods(0, 1, 2), 3, {0: 3}).reserve("a", 1, 3).reserve("a", 0, 0)
    assert by_ordinal(decide(scene, LOWEST_FIRST).target) == {0: 3}
    ours = replace(LOWEST_FIRST, rules=replace(KNATIVE_1_16_RULES, start_from_decided=True))
    assert by_ordinal(decide(scene, ours).target) == {1: 3}


def test_a_vpod_that_is_being_deleted_is_not_placed_afresh():
    scene = standing(Scene(slots=5).pods(0, 1, 2), 4, {2: 3}).vpod("a", 4, {2: 3}, deleting=True)
    assert by_ordinal(decide(scene, LOWEST_FIRST).target) == {2: 3}


@given(
    placed=st.dictionaries(st.integers(0, 4), st.integers(1, 4)),
    others=st.dictionaries(st.integers(0, 4), st.integers(1, 4)),
    vreplicas=st.integers(0, 16),
    profile=st.sampled_from(
        [KNATIVE_MAXFILLUP_PROFILE, LOWEST_FIRST, WITH_DESCHEDULER, OVER_ZONES]
    ),
)
@settings(max_examples=200, deadline=None)
def test_a_decision_stays_within_the_slots_and_once_published_stands(
    placed, others, vreplicas, profile
):
    scene = Scene(slots=8, replicas=5)
    for zone in ("z1", "z2"):
        scene.node(a_node(f"node-{zone}", zone))
    nodes = ["node-0", "node-z1", "node-z2", "node-z1", "node-z2"]

    def seen(mine: Mapping[int, int]) -> None:
        for ordinal, node in enumerate(nodes):
            ledger = {"tenant/a": mine.get(ordinal, 0), "tenant/b": others.get(ordinal, 0)}
            scene.pod(ordinal, {key: count for key, count in ledger.items() if count}, node=node)
        scene.vpod("b", sum(others.values()), others).vpod("a", vreplicas, mine)

    seen(placed)
    first = by_ordinal(decide(scene, profile).target)
    assert all(count + others.get(ordinal, 0) <= 8 for ordinal, count in first.items())
    seen(first)
    assert by_ordinal(decide(scene, profile).target) == first


def test_a_vpods_own_reservation_does_not_take_its_room_from_it():
    """Deciding again before the status is seen gives the same answer."""
    scene = Scene(slots=5, replicas=2, profile="knative-maxfillup").pods(0, 1).vpod("a", 5)
    first = place(scene.pool, scene.pool.vpods["tenant/a"])
    assert dict(first.target) == {"dispatcher-0": 5}
    scene.reserve("a", 0, 5)
    assert place(scene.pool, scene.pool.vpods["tenant/a"]).target == first.target
