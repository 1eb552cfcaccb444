"""``LeastLoad``: new vreplicas go to pods with little load, and nothing moves because of it."""

import random
from collections.abc import Mapping
from typing import ClassVar

import pytest
from hypothesis import given, settings, strategies as st

from extender.engine.placing.grow import grow_by_plugins
from extender.engine.placing.select import better_place, gain
from extender.engine.pods.pod_loads import NO_LOADS, PodLoads, pod_loads
from extender.engine.policy.framework import MAX_SCORE, Weighted
from extender.engine.policy.least_load import LeastLoad
from extender.engine.policy.profile import Profile, Ties
from extender.engine.policy.profile_document import profile_from
from extender.engine.policy.profiles import BUILT_IN_PROFILES, SPREAD_PROFILE
from extender.engine.policy.spread import Candidate, Spread
from extender.engine.policy.spreading import PodSpread, ZoneSpread
from tests.engine.policy.shapes import Shape, shapes
from tests.engine.rebalance.loads import LoadedPool, a_loaded_pool, a_skewed_pool
from tests.support.builders import Scene, a_vpod

LEAST_LOAD = Profile(name="least-load", scores=(Weighted(LeastLoad(), 1),))


def looked(scene: Scene, loads: Mapping[int, float]) -> Scene:
    """The leader has just seen these loads."""
    held = {ordinal: pod.held for ordinal, pod in scene.pool.by_ordinal.items()}
    scene.pool.load = pod_loads(loads, held)
    return scene


def four_pods(loads: Mapping[int, float], held: int = 5) -> Scene:
    scene = Scene(replicas=4)
    for ordinal in range(4):
        scene.pod(ordinal, {"other/x": held}, ready=True)
    return looked(scene, loads)


def grown(scene: Scene, missing: int, profile: Profile = LEAST_LOAD, weight: int = 1):
    pool = scene.pool
    return grow_by_plugins(pool, a_vpod(weight=weight), {}, missing, pool.free_of, profile)[0]


def test_a_new_vreplica_goes_to_the_pod_with_the_least_load():
    assert grown(four_pods({0: 10.0, 1: 30.0, 2: 2.0, 3: 20.0}), 1) == {2: 1}


def test_a_batch_does_not_all_go_to_the_coldest_pod():
    added = grown(four_pods({0: 10.0, 1: 10.0, 2: 8.0, 3: 10.0}), 12)
    assert added.keys() == {0, 1, 2, 3}
    assert max(added.values()) <= 4


def test_what_earlier_decisions_have_reserved_counts_as_the_mean_slot():
    scene = four_pods({0: 10.0, 1: 10.0, 2: 7.0, 3: 10.0})
    assert grown(scene, 1) == {2: 1}
    scene.reserve("earlier", 2, 4)
    assert grown(scene, 1) == {0: 1}


def test_pods_that_differ_by_less_than_a_tenth_of_the_mean_are_alike():
    assert grown(four_pods({0: 10.4, 1: 10.2, 2: 10.1, 3: 10.3}), 1) == {0: 1}


def test_without_loads_all_pods_are_alike():
    scene = four_pods({})
    assert scene.pool.load is NO_LOADS
    assert grown(scene, 1) == {0: 1}


@settings(max_examples=100, deadline=None)
@given(shape=shapes(), missing=st.integers(1, 6))
def test_without_loads_a_profile_places_as_without_the_plugin(shape: Shape, missing: int):
    with_load = Profile(
        name="x",
        scores=(*SPREAD_PROFILE.scores, Weighted(LeastLoad(), 3)),
        ties=Ties.LOWEST_ORDINAL,
    )
    without = Profile(name="x", scores=SPREAD_PROFILE.scores, ties=Ties.LOWEST_ORDINAL)
    pool, vpod = shape.scene().pool, a_vpod(weight=shape.weight)
    found, expected = (
        grow_by_plugins(pool, vpod, shape.kept(), missing, pool.free_of, profile)
        for profile in (with_load, without)
    )
    assert found == expected


def by_hand(
    loads: list[float], held: list[int], slots: int, missing: int, weight: int
) -> dict[int, int]:
    """What the module says, with lists: each vreplica goes to the least tenth of the mean, then to
    the lowest ordinal; and each slot given counts as the mean slot.
    """
    per_slot, mean = sum(loads) / sum(held), sum(loads) / len(loads)
    given: dict[int, int] = {}
    for _ in range(missing):
        best = None
        for ordinal, load in enumerate(loads):
            taken = given.get(ordinal, 0) * weight
            if held[ordinal] + taken + weight > slots:
                continue
            tenths = int(10 * ((load + taken * per_slot) / mean) + 0.5)
            if best is None or tenths < best[0]:
                best = (tenths, ordinal)
        if best is None:
            break
        given[best[1]] = given.get(best[1], 0) + 1
    return given


@settings(max_examples=200, deadline=None)
@given(
    pods=st.lists(st.tuples(st.floats(0, 50), st.integers(1, 20)), min_size=1, max_size=8),
    missing=st.integers(1, 30),
    weight=st.integers(1, 3),
)
def test_a_decision_is_what_counting_by_hand_gives(pods, missing: int, weight: int):
    loads, held = [load for load, _ in pods], [slots for _, slots in pods]
    if not sum(loads):
        return
    scene = Scene(replicas=len(pods))
    for ordinal, slots in enumerate(held):
        scene.pod(ordinal, {"other/x": slots}, ready=True)
    looked(scene, dict(enumerate(loads)))
    assert grown(scene, missing, weight=weight) == by_hand(loads, held, 20, missing, weight)


def test_it_is_weighed_against_the_plugins_that_spread():
    """Pod 0 has one vreplica of the vpod, pod 1 has half a mean more load."""
    scene = Scene(replicas=2)
    scene.pod(0, {"tenant/a": 1, "other/x": 4}, ready=True).pod(1, {"other/x": 5}, ready=True)
    scene.vpod("a", 2, {0: 1})
    looked(scene, {0: 15.0, 1: 25.0})
    pool = scene.pool
    for weight, ordinal in ((1, 0), (10, 1)):
        profile = Profile(
            name="x", scores=(Weighted(PodSpread(), weight), Weighted(LeastLoad(), 1))
        )
        kept = {"dispatcher-0": 1}
        found, _ = grow_by_plugins(pool, pool.vpods["tenant/a"], kept, 1, pool.free_of, profile)
        assert found == {ordinal: 1}


class Mine:
    """A third party's plugin that prefers the last pod, and says that it moves nothing."""

    name: ClassVar[str] = "Mine"
    moves_nothing: ClassVar[bool] = True

    def score(self, candidate: Candidate, _spread: Spread) -> int:
        return candidate.ordinal


@pytest.mark.parametrize("plugin", [LeastLoad(), Mine()], ids=["ours", "a third party's"])
@pytest.mark.parametrize("filters", [(), (ZoneSpread(5),)], ids=["alone", "with a filter"])
def test_policy_moves_nothing_to_a_pod_with_less_load(plugin, filters):
    scene = Scene(replicas=3)
    scene.pod(0, {"tenant/a": 3}, ready=True).pod(1, {}, ready=True).pod(2, {}, ready=True)
    scene.vpod("a", 3, {0: 3})
    looked(scene, {0: 30.0, 1: 0.0, 2: 0.0})
    profile = Profile(name="x", filters=filters, scores=(Weighted(plugin, 1),))
    vpod, placed = scene.pool.vpods["tenant/a"], {"dispatcher-0": 3}
    assert better_place(scene.pool, vpod, placed, profile) is None
    assert gain(scene.pool, vpod, placed, ("dispatcher-0", "dispatcher-1"), profile) == 0


def test_policy_moves_by_the_other_scores_as_without_it():
    scene = Scene(replicas=3)
    scene.pod(0, {"tenant/a": 3}, ready=True).pod(1, {}, ready=True).pod(2, {}, ready=True)
    scene.vpod("a", 3, {0: 3})
    looked(scene, {0: 0.0, 1: 30.0, 2: 30.0})
    profile = Profile(name="x", scores=(Weighted(PodSpread(), 1), Weighted(LeastLoad(), 50)))
    vpod, placed = scene.pool.vpods["tenant/a"], {"dispatcher-0": 3}
    assert better_place(scene.pool, vpod, placed, profile) == ("dispatcher-0", "dispatcher-1")


@pytest.mark.parametrize("name", sorted(BUILT_IN_PROFILES))
def test_the_profiles_that_we_ship_do_not_use_it(name: str):
    profile = BUILT_IN_PROFILES[name]
    assert profile.for_moves is profile


def test_a_profile_names_it_with_a_weight():
    profile = profile_from({"name": "busy", "scores": [{"name": "LeastLoad", "weight": 4}]})
    (score,) = profile.scores
    assert (type(score.plugin), score.weight) == (LeastLoad, 4)


def test_a_score_is_no_less_than_0_and_no_more_than_the_best():
    scene = four_pods({0: 1.0, 1: 0.0, 2: 0.0, 3: 0.0})
    scene.pool.load = PodLoads({0: 1e300}, {}, 1e-300, 1.0)
    spread = Spread(scene.pool, scene.pool.free_of)
    assert LeastLoad().score(spread.candidate(0), spread) == MAX_SCORE - 10**6
    assert LeastLoad().score(spread.candidate(1), spread) < MAX_SCORE


def arrivals(pool: LoadedPool, profile: Profile, seed: int) -> float:
    """max/mean after a tenth more vreplicas have come, with loads as unlike as those there."""
    rng, state = random.Random(seed), pool.pool
    state.set_profile(profile)
    pool.live(60)
    view = pool.goal().view
    state.load = pod_loads(
        view.loads, {ordinal: pod.held for ordinal, pod in state.by_ordinal.items()}
    )
    loads = pool.loads()
    for index in range(len(loads)):
        rate = 20.0 ** rng.random()
        vpod = a_vpod(f"new{index}", vreplicas=2)
        added, left = grow_by_plugins(state, vpod, {}, 2, state.free_of, profile)
        assert not left
        for ordinal, count in added.items():
            pool.scene.reserve(f"new{index}", ordinal, count)
            loads[f"dispatcher-{ordinal}"] += count * rate
    return max(loads.values()) * len(loads) / sum(loads.values())


@pytest.mark.parametrize("seed", range(5))
def test_what_comes_makes_a_skewed_pool_more_even_and_not_less(seed: int):
    def a_pool() -> LoadedPool:
        return a_skewed_pool(random.Random(seed), pods=20)

    before = a_pool().ratio()
    with_it = arrivals(a_pool(), LEAST_LOAD, seed)
    without = arrivals(a_pool(), SPREAD_PROFILE, seed)
    assert with_it < before
    assert with_it < without


def test_a_pod_that_the_view_does_not_have_counts_its_slots():
    loads = PodLoads({0: 10.0}, {0: 5}, mean=10.0, per_slot=2.0)
    assert loads.expected(7, 5) == pytest.approx(1.0)
    assert loads.expected(0, 0) == 0.0, "not below"


def test_balancing_for_load_goes_on_under_the_plugin():
    pool = a_loaded_pool(
        {"a": {0: 1}, "b": {0: 1}, "c": {1: 1}, "d": {2: 1}},
        {"a": 5.0, "b": 5.0, "c": 1.0, "d": 1.0},
        pods=3,
    )
    pool.pool.set_profile(LEAST_LOAD)
    pool.unlimited = True
    pool.live(60)
    assert [(move.from_pod, str(move.reason)) for move in pool.plan()] == [("dispatcher-0", "Load")]
