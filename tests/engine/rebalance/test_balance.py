"""Vreplicas leave hot pods: which, where to, how many, and when none (``MoveReason.LOAD``)."""

import random

import pytest
from hypothesis import given, settings, strategies as st

from extender.engine.policy.profiles import BUILT_IN_PROFILES, SPREAD_PROFILE
from extender.engine.rebalance.balance import DEAD_BAND, MOVED_MAX, budget_of
from extender.engine.rebalance.move_plan import Limits
from extender.engine.rebalance.moves import Advice, plan_moves
from tests.engine.rebalance.loads import (
    LoadedPool,
    a_loaded_pool,
    a_skewed_pool,
    as_rows,
    count,
    noise,
)
from tests.support.builders import a_node


def one_hot_pod(**fields) -> LoadedPool:
    """Pod 0 has a load of 14, the others of 4: the mean is 6.5. ``hot`` has 2 x 4 there."""
    return a_loaded_pool(
        {"hot": {0: 2}, "a": {0: 6}, "b": {1: 4}, "c": {2: 4}, "d": {3: 4}},
        {"hot": 4.0, "a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0},
        pods=4,
        **fields,
    )


def reported(pool: LoadedPool, *, unlimited: bool = True) -> LoadedPool:
    """Adapters have reported for a minute, and any part of the vreplicas may move."""
    pool.live(60)
    pool.unlimited = unlimited
    return pool


class TestWhatMoves:
    def test_the_vreplica_that_takes_most_off_the_hot_pod_goes_to_the_coldest_one(self):
        """7.8 is allowed, and 14 is there."""
        plan = reported(one_hot_pod()).plan()
        assert as_rows(plan) == [("hot", 0, 1, 1, "Load"), ("hot", 0, 2, 1, "Load")]

    def test_nothing_while_the_hottest_pod_is_within_the_dead_band(self):
        pool = a_loaded_pool({"a": {0: 12}, "b": {1: 8}}, {"a": 1.0, "b": 1.0}, pods=2)
        reported(pool)
        assert pool.ratio() == 1.2
        assert pool.plan() == []
        pool.target = 1.2 - DEAD_BAND
        assert pool.plan() == []
        pool.target -= 0.01
        assert count(pool.plan()) == 1

    def test_without_reports_nothing_moves(self):
        assert one_hot_pod().plan() == []

    def test_while_half_of_the_vreplicas_are_silent_nothing_moves(self):
        pool = one_hot_pod()
        pool.load.report("tenant/hot", "dispatcher-0", 8.0, 2, pool.now)
        assert pool.plan() == []

    def test_a_share_that_is_not_measured_stays(self):
        pool = reported(one_hot_pod())
        pool.load.report("tenant/hot", "dispatcher-0", -1.0, 2, pool.now)
        assert "tenant/hot" not in {move.vpod for move in pool.plan()}

    def test_a_vreplica_too_hot_for_any_pod_stays_where_it_is(self):
        pool = a_loaded_pool(
            {"hot": {0: 1}, "b": {1: 4}, "c": {2: 4}},
            {"hot": 20.0, "b": 1.0, "c": 1.0},
            pods=3,
        )
        assert reported(pool).plan() == []

    def test_what_is_cold_beside_it_makes_way(self):
        pool = a_loaded_pool(
            {"hot": {0: 1}, "a": {0: 2}, "b": {1: 4}, "c": {2: 4}},
            {"hot": 6.0, "a": 1.0, "b": 1.0, "c": 1.0},
            pods=3,
        )
        assert as_rows(reported(pool).plan()) == [
            ("a", 0, 1, 1, "Load"),
            ("a", 0, 2, 1, "Load"),
        ]

    def test_only_to_pods_with_slots(self):
        pool = reported(one_hot_pod(slots=8))
        pool.scene.pod(1, {"tenant/b": 4}, slots=4)
        assert {move.to_pod for move in pool.plan()} == {"dispatcher-2", "dispatcher-3"}

    def test_in_a_full_pool_nothing_moves(self):
        pool = a_loaded_pool({"a": {0: 4}, "b": {1: 4}}, {"a": 9.0, "b": 1.0}, pods=2, slots=4)
        assert reported(pool).plan() == []

    def test_the_slots_of_a_heavy_vreplica_count(self):
        pool = a_loaded_pool(
            {"hot": {0: 2}, "b": {1: 2}},
            {"hot": 4.0, "b": 1.0},
            pods=2,
            slots=6,
            weights={"hot": 3},
        )
        assert as_rows(reported(pool).plan()) == [("hot", 0, 1, 1, "Load")]
        pool.scene.pod(1, {"tenant/b": 2, "tenant/c": 2}).vpod("c", 2, {1: 2})
        assert pool.plan() == []

    def test_a_vpod_stands_on_no_fewer_pods_afterwards(self):
        where = {"a": {0: 1, 1: 1}, "b": {0: 4}, "c": {1: 1}, "d": {2: 8}}
        pool = a_loaded_pool(where, {"a": 4.0, "b": 2.0, "c": 0.1, "d": 1.0}, pods=3, slots=8)
        assert as_rows(reported(pool).plan()) == [("b", 0, 1, 2, "Load")], "``a`` would be better"

    def test_nothing_goes_to_a_pod_that_is_being_emptied_and_nothing_leaves_it_for_load(self):
        pool = reported(one_hot_pod())
        pool.pool.set_closed(0b1000)
        plan = [move for move in pool.plan() if move.reason == "Load"]
        assert plan
        assert {move.to_pod for move in plan} <= {"dispatcher-1", "dispatcher-2"}

    def test_nothing_goes_to_a_pod_that_is_not_ready(self):
        pool = reported(one_hot_pod())
        for ordinal, name in ((1, "b"), (2, "c")):
            pool.scene.pod(ordinal, {f"tenant/{name}": 4}, ready=False)
            pool.pool.end_excuse(f"dispatcher-{ordinal}")
        assert {move.to_pod for move in pool.plan()} == {"dispatcher-3"}


class TestLimits:
    def test_at_most_nine_percent_of_the_vreplicas_in_a_period(self):
        pool = reported(a_skewed_pool(random.Random(1), pods=10, skew=1000))
        total = sum(pool.shares().values())
        pool.unlimited = False
        made = pool.round()
        assert 0 < count(made) <= MOVED_MAX * total

    def test_a_small_pool_may_move_one(self):
        assert [budget_of(vreplicas) for vreplicas in (0, 1, 11, 12, 22, 23, 100)] == [
            *(1, 1, 1, 1, 1, 2, 9)
        ]

    def test_the_budget_of_all_moves_counts_too(self):
        assert count(reported(one_hot_pod()).plan(budget=1)) == 1
        assert reported(one_hot_pod()).plan(budget=0) == []

    def test_a_vpod_that_was_moved_lately_stays(self):
        pool = reported(one_hot_pod())
        plan = pool.plan(cooling={"tenant/hot"}.__contains__)
        assert {move.vpod for move in plan} == {"tenant/a"}

    def test_without_a_goal_the_plan_is_as_before(self):
        pool = reported(one_hot_pod())
        assert plan_moves(pool.pool, Limits(budget=100)) == []


def test_cold_pods_without_room_for_a_vreplica_do_not_hide_those_with_room():
    """100 pods have one slot left, and what leaves the hot pod takes two."""
    full, others, hot = range(100), range(100, 109), 109
    where = {f"full{n}": {n: 19} for n in full}
    where |= {f"v{n}": {n % 9 + 100: 1} for n in range(45)}
    where |= {f"hot{n}": {hot: 1} for n in range(9)}
    rates = {name: 0.01 if name.startswith("full") else 1.0 for name in where}
    weights = {name: 1 if name.startswith("full") else 2 for name in where}
    pool = reported(a_loaded_pool(where, rates, pods=110, weights=weights, target=11.0))
    moves = pool.plan()
    assert moves
    assert {move.to_pod for move in moves} <= {f"dispatcher-{ordinal}" for ordinal in others}


class TestProfiles:
    def zones(
        self, where: dict[str, dict[int, int]], rates: dict[str, float], pods: int = 4
    ) -> LoadedPool:
        """Half of the pods in each of two zones."""
        pool = a_loaded_pool(where, rates, pods=pods)
        for ordinal in range(pods):
            pool.scene.node(a_node(f"node-{ordinal}", f"z{ordinal % 2}"))
            ledger = {f"tenant/{name}": on[ordinal] for name, on in where.items() if ordinal in on}
            pool.scene.pod(ordinal, ledger, ready=True, node=f"node-{ordinal}")
        pool.pool.set_profile(SPREAD_PROFILE)
        return reported(pool)

    def test_a_move_that_policy_would_take_back_is_not_made(self):
        """``a`` is spread over the zones. It may only move within its zone."""
        pool = self.zones(
            {"a": {0: 1, 1: 1}, "b": {0: 1}, "c": {1: 1}, "d": {3: 1}},
            {"a": 3.0, "b": 3.0, "c": 1.0, "d": 1.0},
        )
        for move in pool.plan():
            if move.vpod == "tenant/a":
                assert (move.from_pod, move.to_pod) == ("dispatcher-0", "dispatcher-2")

    def test_cold_pods_of_another_zone_do_not_hide_those_of_its_own(self):
        """Each vpod has a vreplica in both zones. The ten coldest pods are in the other one."""
        where = {f"v{n}": {2 * (n % 10): 1, 2 * (n % 10) + 1: 1} for n in range(40)}
        pool = self.zones(where, dict.fromkeys(where, 1.0), pods=20)
        pool.now += 300
        for (key, pod), vreplicas in pool.shares().items():
            ordinal = int(pod.rpartition("-")[2])
            load = 1.5 if ordinal == 0 else (0.6, 0.5)[ordinal % 2]
            pool.load.report(key, pod, load * vreplicas, vreplicas, pool.now)
        moves = pool.plan()
        assert moves
        assert {move.from_pod for move in moves} == {"dispatcher-0"}
        assert all(int(move.to_pod.rpartition("-")[2]) % 2 == 0 for move in moves)

    def test_policy_has_nothing_to_improve_after_moves_for_load(self):
        pool = a_skewed_pool(random.Random(4), pods=20)
        pool.pool.set_profile(SPREAD_PROFILE)
        while plan_moves(pool.pool, Limits(budget=1000), Advice(vpods=sorted(pool.rates))):
            pool.make(plan_moves(pool.pool, Limits(budget=1000), Advice(vpods=sorted(pool.rates))))
        assert pool.round()
        assert plan_moves(pool.pool, Limits(budget=1000), Advice(vpods=sorted(pool.rates))) == []


def _pool(seed: int, pods: int, per_pod: int, skew: float, profile: str) -> LoadedPool:
    pool = a_skewed_pool(
        random.Random(seed), pods=pods, per_pod=per_pod, slots=per_pod + 2, skew=skew
    )
    pool.pool.set_profile(BUILT_IN_PROFILES[profile])
    return pool


pools = st.builds(
    _pool,
    seed=st.integers(0, 2**32),
    pods=st.integers(2, 8),
    per_pod=st.integers(2, 12),
    skew=st.sampled_from([1.0, 4.0, 20.0, 1000.0]),
    profile=st.sampled_from(sorted(BUILT_IN_PROFILES)),
)


@settings(max_examples=60, deadline=None)
@given(pool=pools)
def test_with_steady_loads_balancing_ends_overcommits_nothing_and_never_heats_the_hottest(pool):
    before = {key: pool.pool.decided_vreplicas(key) for key in pool.rates}
    for _ in range(60):
        loads = pool.loads()
        most, mean = max(loads.values()), sum(loads.values()) / len(loads)
        pool.live(60)
        plan = pool.plan()
        assert count(plan) <= budget_of(sum(before.values()))
        if not plan:
            break
        pool.make(plan)
        assert {key: pool.pool.decided_vreplicas(key) for key in pool.rates} == before
        assert all(pod.held <= pod.capacity for pod in pool.pool.pods.values())
        assert max(pool.loads().values()) <= max(most, pool.target * mean) + 1e-9
    else:
        pytest.fail(f"no end: {pool.loads()} {plan}")


@settings(max_examples=60, deadline=None)
@given(pool=pools, seed=st.integers(0, 2**32))
def test_steady_noise_of_ten_percent_moves_nothing_once_the_pool_is_balanced(pool, seed):
    for _ in range(60):
        if not pool.round():
            break
    if pool.ratio() > pool.target:
        return  # it cannot be balanced: see the next test
    pool.load = type(pool.load)("requests")  # a new leader
    spread = noise(random.Random(seed))
    assert [pool.round(spread) for _ in range(10)] == [[]] * 10


def test_noise_does_not_move_a_vreplica_from_one_hot_pod_to_the_next():
    """Found by the property below: each of several pods is hot with it, and no pod without."""
    pool = _pool(seed=93920, pods=7, per_pod=2, skew=1000.0, profile="default")
    spread = noise(random.Random(93920))
    for _ in range(10):
        pool.round(spread)
    assert [move for _ in range(100) for move in pool.round(spread)] == []


@settings(max_examples=60, deadline=None)
@given(pool=pools, seed=st.integers(0, 2**32))
def test_under_steady_noise_moves_come_to_an_end_in_any_pool(pool, seed):
    spread = noise(random.Random(seed))
    for _ in range(60):
        pool.round(spread)
    assert count([move for _ in range(10) for move in pool.round(spread)]) <= 2
