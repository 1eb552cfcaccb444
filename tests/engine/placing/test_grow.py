"""``grow_by_plugins``: one vreplica at a time to the best pod; and that classes of equal pods give
what scoring every pod gives.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import pytest
from hypothesis import given, settings, strategies as st

from extender.engine.placing.grow import grow_by_plugins
from extender.engine.placing.pick import best_of_all
from extender.engine.placing.replace_all import replace_all
from extender.engine.placing.select import refusals, spread_of
from extender.engine.policy.framework import Scope, Weighted
from extender.engine.policy.ordinals import LowestOrdinalPriority
from extender.engine.policy.profile import DEFAULT_PROFILE, Profile, Ties
from extender.engine.policy.profiles import (
    BUILT_IN_PROFILES,
    HA_PROFILE,
    PACK_PROFILE,
    SPREAD_PROFILE,
)
from extender.engine.policy.spread import Candidate, Spread
from extender.engine.policy.spreading import ZONE_SKEW, NodeSpread, ZoneSpread
from extender.whatif.trial import Trial
from tests.engine.policy.shapes import Shape, profiles, shapes, spreading_profiles
from tests.support.builders import Scene, a_node, a_vpod
from tests.support.placing import place


def grown(
    scene: Scene, profile: Profile, missing: int, kept=None, vpod=None
) -> tuple[dict[int, int], int]:
    pool = scene.pool
    return grow_by_plugins(pool, vpod or a_vpod(), kept or {}, missing, pool.free_of, profile)


def two_zones(*nodes: str, slots: int = 20) -> Scene:
    """Nodes a0, a1 in zone a and b0 in zone b; one pod on each of ``nodes``."""
    scene = Scene(replicas=len(nodes), slots=slots)
    scene.state.node_changed(a_node(), None)
    for name in ("a0", "a1", "b0"):
        scene.node(a_node(name, name[0]))
    for ordinal, node in enumerate(nodes):
        scene.pod(ordinal, node=node)
    return scene


def one_at_a_time(shape: Shape, profile: Profile, missing: int) -> tuple[dict[int, int], int]:
    """Every pod scored for each vreplica: what growing means."""
    pool, vpod = shape.scene().pool, a_vpod(weight=shape.weight)
    spread = spread_of(pool, shape.kept(), weight=vpod.weight)
    start = pool.next_start_ordinal if profile.ties is Ties.ROUND_ROBIN else 0
    added: dict[int, int] = {}
    while missing and (ordinal := best_of_all(spread, profile, start)) is not None:
        spread.add(ordinal)
        added[ordinal] = added.get(ordinal, 0) + 1
        missing -= 1
    return added, missing


@settings(max_examples=200, deadline=None)
@given(shapes(), profiles(ties=tuple(Ties)), st.integers(1, 9))
def test_classes_of_pods_give_what_scoring_every_pod_gives(
    shape: Shape, profile: Profile, missing: int
):
    pool = shape.scene().pool
    found = grow_by_plugins(
        pool, a_vpod(weight=shape.weight), shape.kept(), missing, pool.free_of, profile
    )
    assert found == one_at_a_time(shape, profile, missing)


@settings(max_examples=300, deadline=None)
@given(shapes(pods_max=12), spreading_profiles(), st.integers(1, 20))
def test_counting_gives_what_scoring_every_pod_gives(shape: Shape, profile: Profile, missing: int):
    pool = shape.scene().pool
    assert profile.costs is not None
    found = grow_by_plugins(
        pool, a_vpod(weight=shape.weight), shape.kept(), missing, pool.free_of, profile
    )
    assert found == one_at_a_time(shape, profile, missing)


@settings(max_examples=200, deadline=None)
@given(shapes(), st.sampled_from(Ties), st.integers(1, 20))
def test_filling_the_lowest_gives_what_scoring_every_pod_gives(
    shape: Shape, ties: Ties, missing: int
):
    pool, profile = shape.scene().pool, replace(PACK_PROFILE, ties=ties)
    assert profile.fills_lowest
    found = grow_by_plugins(
        pool, a_vpod(weight=shape.weight), shape.kept(), missing, pool.free_of, profile
    )
    assert found == one_at_a_time(shape, profile, missing)


def test_only_what_fills_the_lowest_and_asks_nothing_else_does_so_without_asking():
    assert [profile.name for profile in BUILT_IN_PROFILES.values() if profile.fills_lowest] == [
        "pack"
    ]
    lowest = Weighted(LowestOrdinalPriority(), 1)
    for other in (
        Profile(name="", scores=(lowest, Weighted(NodeSpread(), 1))),
        Profile(name="", scores=(lowest,), filters=(ZoneSpread(),)),
        Profile(name="", scores=(Weighted(LowestOrdinalPriority(), 0),)),
    ):
        assert not other.fills_lowest


def test_only_what_spreads_and_nothing_else_is_counted():
    assert [profile.name for profile in BUILT_IN_PROFILES.values() if profile.costs] == [
        "spread",
        "ha",
    ]
    node = (Weighted(NodeSpread(), 1),)
    for other in (
        Profile(name="", filters=(NodeSpread(),), scores=node),
        Profile(name="", filters=(ZoneSpread(), ZoneSpread(2)), scores=node),
        Profile(name="", scores=(*node, Weighted(LowestOrdinalPriority(), 1))),
        Profile(name="", scores=(Weighted(ZoneSpread(), 1),)),
        Profile(name="", scores=node, ties=Ties.ROUND_ROBIN),
    ):
        assert other.costs is None


@settings(max_examples=80, deadline=None)
@given(shapes(), profiles(), st.integers(1, 9))
def test_no_pod_gets_more_than_it_has_room_for(shape: Shape, profile: Profile, missing: int):
    pool = shape.scene().pool
    vpod = a_vpod(weight=shape.weight)
    added, left = grow_by_plugins(pool, vpod, shape.kept(), missing, pool.free_of, profile)
    assert sum(added.values()) + left == missing
    for ordinal, count in added.items():
        assert pool.room >> ordinal & 1
        assert count * shape.weight <= pool.free_of(ordinal)


@settings(max_examples=50, deadline=None)
@given(shapes(), profiles(ties=tuple(Ties)), st.integers(1, 5))
def test_growing_changes_no_state(shape: Shape, profile: Profile, missing: int):
    scene = shape.scene()
    before = scene.state.digest()
    grow_by_plugins(scene.pool, a_vpod(), shape.kept(), missing, scene.pool.free_of, profile)
    assert scene.state.digest() == before


def test_pack_fills_the_lowest_ordinal_first():
    assert grown(two_zones("b0", "a0", "a1", slots=3), PACK_PROFILE, 4) == ({0: 3, 1: 1}, 0)


def test_spread_takes_the_emptier_zone_before_the_lower_ordinal():
    assert grown(two_zones("a0", "a1", "b0"), SPREAD_PROFILE, 2) == ({0: 1, 2: 1}, 0)


@pytest.mark.parametrize("profile", [SPREAD_PROFILE, HA_PROFILE], ids=lambda one: one.name)
def test_small_vpods_fill_equal_zones_evenly_so_that_a_heavy_one_still_finds_room(profile: Profile):
    scene = Scene(replicas=3, slots=8)
    scene.state.node_changed(a_node(), None)
    for ordinal, zone in enumerate("abc"):
        scene.node(a_node(zone, zone)).pod(ordinal, node=zone)
    scene.pool.set_profile(profile)
    for name in map(str, range(9)):
        scene.vpod(name, 1)
        (pod,) = place(scene.pool, scene.pool.vpods[f"tenant/{name}"]).target
        scene.reserve(name, scene.pool.pods[pod].ordinal or 0, 1)
    assert scene.pool.free_by_zone == {"a": 5, "b": 5, "c": 5}
    assert place(scene.pool, a_vpod("heavy", 3, weight=5)).pending == 0


def test_spread_within_a_zone_takes_the_emptier_node():
    scene = two_zones("a0", "a0", "a1", "b0")
    assert grown(scene, SPREAD_PROFILE, 4) == ({0: 1, 2: 1, 3: 2}, 0)


def test_spread_waits_for_nothing_where_one_zone_is_full():
    scene = two_zones("a0", "b0", slots=4).pod(1, {"tenant/other": 4}, node="b0")
    assert grown(scene, SPREAD_PROFILE, 4) == ({0: 4}, 0)


def test_ha_leaves_vreplicas_over_where_one_zone_is_full():
    scene = two_zones("a0", "b0", slots=4).pod(1, {"tenant/other": 3}, node="b0")
    pool = scene.pool
    assert grown(scene, HA_PROFILE, 4) == ({0: 2, 1: 1}, 1)
    kept = {"dispatcher-0": 2, "dispatcher-1": 1}
    free = {0: 2, 1: 0}.__getitem__
    assert refusals(pool, a_vpod(), kept, free, HA_PROFILE) == {0: ZONE_SKEW}


def test_ha_waits_for_a_pod_in_a_zone_that_has_none():
    assert grown(two_zones("a0"), HA_PROFILE, 3) == ({0: 1}, 2)


def test_a_zone_rule_told_to_count_only_zones_with_pods_does_not_wait():
    profile = Profile(name="x", filters=(ZoneSpread(1, count_empty=False),))
    assert grown(two_zones("a0"), profile, 3) == ({0: 3}, 0)


def test_a_single_zone_never_refuses():
    scene = Scene().pods(0, 1, 2)
    assert grown(scene, HA_PROFILE, 6) == ({0: 2, 1: 2, 2: 2}, 0)


def test_a_zone_whose_nodes_take_no_work_does_not_hold_the_others_up():
    scene = two_zones("a0", "b0").node(a_node("b0", "b", ready=False))
    assert grown(scene, HA_PROFILE, 5) == ({0: 5}, 0)


def test_what_stands_on_a_pod_that_is_not_schedulable_counts_for_its_zone():
    scene = two_zones("a0", "a1", "b0").pod(0, {"tenant/a": 3}, node="a0", unschedulable=True)
    added, _ = grown(scene, SPREAD_PROFILE, 3, kept={"dispatcher-0": 3})
    assert added == {2: 3}


def test_filters_alone_choose_the_pod_with_the_fewest():
    profile = Profile(name="x", filters=(NodeSpread(5),))
    assert grown(two_zones("a0", "a1", "b0"), profile, 4, {"dispatcher-0": 1}) == (
        {0: 1, 1: 2, 2: 1},
        0,
    )


def test_a_heavy_vreplica_passes_over_pods_with_too_little_room():
    scene = two_zones("a0", "a1", "b0", slots=3).pod(0, {"tenant/other": 2}, node="a0")
    assert grown(scene, PACK_PROFILE, 3, vpod=a_vpod(weight=2)) == ({1: 1, 2: 1}, 1)


@pytest.mark.parametrize("profile", [HA_PROFILE, SPREAD_PROFILE, PACK_PROFILE, DEFAULT_PROFILE])
def test_nothing_is_added_without_any_pod(profile: Profile):
    assert grown(Scene(replicas=0), profile, 3) == ({}, 3)


ROUND_ROBIN = Profile(name="x", scores=(Weighted(NodeSpread(), 1),), ties=Ties.ROUND_ROBIN)


def decide(scene: Scene, name: str, vreplicas: int, **fields) -> list[int]:
    """Decide for a new vpod and reserve that. Return the ordinals that it got."""
    scene.vpod(name, vreplicas, **fields)
    decision = place(scene.pool, scene.pool.vpods[f"tenant/{name}"])
    scene.pool.reserve("test", decision.vpod, decision.shares({}), expires_at=30.0)
    return [int(name.rpartition("-")[2]) for name in decision.target]


def pods_in_turn(replicas: int, **fields) -> Scene:
    """Each pod on a node of its own, all equal."""
    scene = Scene(replicas=replicas, **fields)
    for ordinal in range(replicas):
        scene.node(a_node(f"n{ordinal}", "z")).pod(ordinal, node=f"n{ordinal}")
    scene.pool.set_profile(ROUND_ROBIN)
    return scene


@pytest.mark.parametrize(
    ("wanted", "turns"),
    [
        pytest.param([1, 1, 1, 1], [[0], [1], [2], [0]], id="one after the other, and around"),
        pytest.param([2, 2], [[0, 1], [0, 2]], id="after the last that got something"),
        pytest.param([3, 1], [[0, 1, 2], [0]], id="after a whole round"),
    ],
)
def test_equal_pods_take_turns_from_decision_to_decision(wanted, turns):
    scene = pods_in_turn(3)
    assert [decide(scene, f"v{index}", count) for index, count in enumerate(wanted)] == turns


def test_a_decision_that_gives_nothing_does_not_take_a_turn():
    scene = pods_in_turn(3)
    decide(scene, "a", 1)
    scene.vpod("a", 1, {0: 1})
    assert place(scene.pool, scene.pool.vpods["tenant/a"]).target == {"dispatcher-0": 1}
    decide(scene, "too-heavy", 1, weight=21)
    assert decide(scene, "b", 1) == [1]


def test_a_full_pod_loses_its_turn():
    scene = pods_in_turn(3, slots=1)
    scene.vpod("full", 1, {1: 1})
    assert [decide(scene, name, 1) for name in ("a", "b")] == [[0], [2]]


def test_an_undone_trial_leaves_the_turn_as_it_was():
    scene = pods_in_turn(3)
    scene.vpod("a", 1)
    with Trial(scene.state) as trial:
        trial.decide(scene.pool, scene.pool.vpods["tenant/a"])
        assert scene.pool.next_start_ordinal == 1
    assert scene.pool.next_start_ordinal == 0


def test_what_is_placed_afresh_takes_no_turns():
    """With another start each time, every decision would move vreplicas."""
    scene = pods_in_turn(3).vpod("a", 2)
    scene.pool.next_start_ordinal = 2
    placed, left = replace_all(scene.pool, a_vpod("a", 2), [], 2, scene.pool.free_of)
    assert (placed, left) == ({"dispatcher-0": 1, "dispatcher-1": 1}, 0)


class EvenOrdinalsOnly:
    """A third party's plugin, which knows nothing of scopes: every pod is scored."""

    name: ClassVar[str] = "EvenOrdinalsOnly"
    asked = 0

    def filter(self, candidate: Candidate, _spread: Spread) -> str:
        self.asked += 1
        return "ordinal is odd" if candidate.ordinal % 2 else ""

    def score(self, candidate: Candidate, _spread: Spread) -> int:
        return candidate.ordinal


class Inverted(EvenOrdinalsOnly):
    """Turns its scores around once it has seen all of them."""

    scope: ClassVar[Scope] = Scope.COUNT

    def normalize(self, scores: Sequence[int]) -> Sequence[int]:
        return [max(scores) - score for score in scores]


def test_a_plugin_without_a_scope_is_asked_about_every_pod():
    plugin = EvenOrdinalsOnly()
    scene = Scene(replicas=5).pods(*range(5))
    profile = Profile(name="x", filters=(plugin,), scores=(Weighted(plugin, 1),))
    assert grown(scene, profile, 1) == ({4: 1}, 0)
    assert plugin.asked == 5


def test_a_plugin_that_normalizes_sees_the_scores_of_all_pods():
    scene = Scene(replicas=5).pods(*range(5))
    profile = Profile(name="x", scores=(Weighted(Inverted(), 3),))
    assert grown(scene, profile, 1) == ({0: 1}, 0)
