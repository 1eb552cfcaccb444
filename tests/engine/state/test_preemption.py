"""Vpods of a higher priority get a pool's slots first, and take them from others where the pool
preempts.
"""

from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from extender.engine.scaling.size import plan_scale
from extender.engine.state.admission import Wanted, admitted_within
from extender.engine.state.patience import Patience
from extender.model.reasons import ConflictReason
from extender.model.tenancy import Preemption, Tenancy
from tests.support.builders import Scene, a_pool
from tests.support.placing import place

LOW, HIGH = 10, 1000


def a_scene(max_pods: int | None = 1, **fields) -> Scene:
    """A pool of one pod with ten slots that preempts."""
    return Scene(
        replicas=1, slots=10, max_pods=max_pods, **{"preemption": Preemption(), **fields}
    ).pods(0)


def ask(scene: Scene, name: str, vreplicas: int, used: int = 0, **fields) -> Scene:
    """The vpod ``name`` wants so many vreplicas, and has ``used`` on the first pod."""
    return scene.vpod(name, vreplicas, {0: used} if used else None, **fields)


def wanted(now: int, used: int = 0, *, priority: int = LOW) -> Wanted:
    return Wanted(now, now, used, weight=1, priority=priority, preempts=True)


def counts_within(allowance: int, vpods: list[Wanted], used: list[int], **fields) -> list[int]:
    return list(admitted_within(allowance, vpods, used, preempts=True, **fields).vreplicas)


def admitted(scene: Scene) -> dict[str, int]:
    return {vpod.name: vpod.vreplicas for vpod in scene.pool.vpods.values()}


def test_who_is_more_important_takes_what_others_have():
    scene = ask(a_scene(), "low", 10, 10, priority=LOW)
    ask(scene, "high", 4, priority=HIGH)
    assert admitted(scene) == {"low": 6, "high": 4}


def test_it_takes_from_the_least_important_first_and_among_equals_from_the_youngest():
    scene = a_scene()
    ask(scene, "least", 2, 2)
    ask(scene, "old", 4, 4, priority=LOW, created_at="2026-01-01T00:00:00Z")
    ask(scene, "young", 4, 4, priority=LOW, created_at="2026-01-02T00:00:00Z")
    ask(scene, "high", 5, priority=HIGH)
    assert admitted(scene) == {"least": 0, "old": 4, "young": 1, "high": 5}


def test_nothing_is_taken_from_equals():
    scene = ask(a_scene(), "young", 10, 10, priority=HIGH, created_at="2026-01-02T00:00:00Z")
    ask(scene, "old", 4, priority=HIGH, created_at="2026-01-01T00:00:00Z")
    assert admitted(scene) == {"young": 10, "old": 0}


def test_who_never_preempts_is_first_for_what_is_free_and_takes_nothing():
    scene = ask(a_scene(), "low", 10, 8, priority=LOW)
    ask(scene, "high", 4, priority=HIGH, preempts=False)
    assert admitted(scene) == {"low": 8, "high": 2}


def test_without_preemption_the_more_important_is_first_within_its_tenant_and_takes_nothing():
    scene = a_scene(tenancy=Tenancy(), preemption=None)
    ask(scene, "low", 10, 8, priority=LOW)
    assert admitted(ask(scene, "high", 4, priority=HIGH)) == {"low": 8, "high": 2}


def test_nobody_loses_anything_to_another_tenant():
    scene = a_scene(tenancy=Tenancy())
    ask(scene, "low", 10, 5, priority=LOW, namespace="a")
    ask(scene, "high", 10, 5, priority=HIGH, namespace="b")
    assert admitted(scene) == {"low": 5, "high": 5}


def test_no_more_is_taken_than_is_missing_even_of_heavy_vreplicas():
    scene = ask(a_scene(), "low", 3, 3, priority=LOW, weight=3)
    ask(scene, "high", 3, priority=HIGH)
    assert admitted(scene) == {"low": 2, "high": 3}


def test_nothing_is_taken_for_a_vreplica_that_has_no_room_even_then():
    scene = ask(a_scene(), "other", 6, 6, priority=HIGH)
    ask(scene, "low", 4, 4, priority=LOW)
    ask(scene, "high", 1, priority=HIGH, weight=5)
    assert admitted(scene) == {"other": 6, "low": 4, "high": 0}


def test_what_leaves_in_any_case_is_waited_for():
    scene = ask(a_scene(), "shrinks", 2, 6, priority=LOW, created_at="2026-01-01T00:00:00Z")
    ask(scene, "low", 4, 4, priority=LOW, created_at="2026-01-02T00:00:00Z")
    ask(scene, "high", 5, priority=HIGH)
    assert admitted(scene) == {"shrinks": 2, "low": 3, "high": 5}, "one is missing, not five"


def test_nothing_is_taken_for_what_leaves_in_any_case():
    high, shrinks, low = wanted(5, priority=HIGH), wanted(2, 6), wanted(4, 4)
    assert counts_within(10, [high, shrinks, low], [0, 6, 4]) == [1, 2, 3]


def test_both_sides_say_why():
    scene = ask(a_scene(), "low", 10, 10, priority=LOW)
    ask(scene, "high", 12, priority=HIGH)
    low = place(scene.pool, scene.pool.vpods["tenant/low"]).explanation
    assert low.told_reason is ConflictReason.PREEMPTED
    assert low.outcome() == (
        "10 of 10 vreplicas are not admitted (Preempted): vpods of a higher priority come first in "
        "the pool's 10 slots"
    )
    high = place(scene.pool, scene.pool.vpods["tenant/high"]).explanation
    assert high.not_admitted is not None
    assert high.not_admitted.reason is ConflictReason.INSUFFICIENT_SLOTS
    assert (high.pending, high.asked) == (10, 12)


def test_a_pool_that_may_grow_waits_for_pods_and_then_counts_those_that_there_are():
    scene = ask(a_scene(max_pods=None), "low", 10, 10, priority=LOW)
    ask(scene, "high", 4, priority=HIGH)
    scene.state.expire(100.0)
    scene.state.expire(159.0)
    assert admitted(scene) == {"low": 10, "high": 4}
    scene.state.expire(160.0)
    assert admitted(scene) == {"low": 6, "high": 4}
    plan = plan_scale(scene.pool)
    assert plan is not None
    assert plan.wanted == 2, "it still asks for the pod"
    scene.stateful_set(2).pods(1)
    scene.state.expire(165.0)
    assert admitted(scene) == {"low": 10, "high": 4}


def test_a_pool_asks_for_as_many_pods_when_it_is_late_as_before():
    """Seed 320000094 with priorities: it wanted four pods more while it was patient, for ever."""
    scene = a_scene(max_pods=None, min_pods_per_vpod=3)
    ask(scene, "low", 1, 1, priority=LOW, weight=5)
    ask(scene, "high", 1, priority=HIGH, weight=5)
    ask(scene, "more", 1, priority=LOW, weight=5)
    sizes = []
    for now in (100.0, 160.0):
        scene.state.expire(now)
        plan = plan_scale(scene.pool)
        assert plan is not None
        sizes.append((bool(scene.pool.patience.overdue), plan.wanted))
    assert sizes == [(False, 5), (True, 5)]


def test_what_stands_on_a_pod_that_is_away_is_not_taken_from_others():
    scene = a_scene(max_pods=None).stateful_set(2).pods(1)
    scene.vpod("low", 10, {0: 10}, priority=LOW).vpod("high", 10, {1: 10}, priority=HIGH)
    scene.no_pod(1).vpod("more", 1, priority=HIGH)
    for now in (100.0, 160.0):
        scene.state.expire(now)
    assert admitted(scene) == {"low": 9, "high": 10, "more": 1}


def test_a_reservation_on_a_pod_that_is_away_changes_nothing_for_others():
    """Seed 600000307: the decision of a vpod that has become heavier admitted more, its release
    admitted less, and so one decision led to the next without end.
    """
    scene = a_scene(max_pods=None).stateful_set(2).pods(1)
    scene.vpod("low", 10, {0: 10}, priority=LOW).vpod("away", 5, {1: 5}, priority=HIGH)
    scene.no_pod(1).vpod("more", 1, priority=HIGH)
    for now in (100.0, 160.0):
        scene.state.expire(now)
    before = admitted(scene)
    assert before == {"low": 9, "away": 5, "more": 1}
    assert admitted(scene.reserve("away", 1, 5, weight=2)) == before


def test_nothing_is_taken_for_vreplicas_beyond_max_per_pod():
    scene = Scene(replicas=3, slots=10, max_pods=3, preemption=Preemption()).pods(0, 1, 2)
    scene.vpod("low", 30, dict.fromkeys(range(3), 10), priority=LOW)
    scene.vpod("high", 20, priority=HIGH, max_per_pod=1)
    assert admitted(scene) == {"low": 27, "high": 20}
    high = place(scene.pool, scene.pool.vpods["tenant/high"])
    assert high.explanation.not_admitted is None
    scene.state.adapter_pool_changed(
        scene.pool.adapter_pool, a_pool(10, max_pods=5, preemption=Preemption())
    )
    scene.stateful_set(5).pods(3, 4)
    assert admitted(scene) == {"low": 30, "high": 20}


def test_each_vpod_is_overdue_once_it_has_waited_itself():
    patience, both = Patience(), ["a", "b"]
    assert not patience.look(["a"], both, 60, 0.0)
    assert not patience.look(both, both, 60, 59.0)
    assert patience.look(both, both, 60, 60.0)
    assert patience.overdue == {"a"}
    assert patience.look(["b"], ["b"], 60, 100.0), "the other one has its slots"
    assert not patience.overdue
    assert patience.look(["b"], ["b"], 60, 119.0)
    assert patience.overdue == {"b"}
    assert patience.look(["b"], ["b"], 3600, 120.0), "the pool is more patient now"
    assert not patience.look([], [], 60, 130.0)
    assert not patience.look(["b"], ["b"], 60, 131.0), "it waits anew"


def test_who_has_taken_all_that_others_had_stays_overdue_while_it_waits():
    """Seed 340000037 with priorities: what was taken for a heavy vreplica, which had no room on a
    single pod even then, was given back and taken again for ever.
    """
    patience = Patience()
    assert patience.look(["heavy"], ["heavy"], 0, 10.0)
    assert not patience.look([], ["heavy"], 0, 15.0)
    assert patience.overdue == {"heavy"}
    assert patience.look([], [], 0, 20.0)


def test_nothing_is_taken_at_once_though_somebody_else_has_waited():
    scene = ask(a_scene(max_pods=None), "low", 10, 10, priority=LOW)
    ask(scene, "first", 2, priority=HIGH)
    scene.state.expire(100.0)
    ask(scene, "second", 2, priority=HIGH + 1)
    scene.state.expire(160.0)
    assert admitted(scene) == {"low": 8, "first": 2, "second": 0}
    scene.state.expire(220.0)
    assert admitted(scene) == {"low": 6, "first": 2, "second": 2}


def test_a_pool_whose_vpods_have_what_they_want_is_patient_again():
    scene = ask(a_scene(max_pods=None), "low", 10, 10, priority=LOW)
    ask(scene, "high", 4, priority=HIGH)
    for now in (100.0, 160.0):
        scene.state.expire(now)
    scene.no_vpod("high")
    scene.state.expire(165.0)
    ask(scene, "high", 4, priority=HIGH)
    assert admitted(scene) == {"low": 10, "high": 4}


@pytest.mark.parametrize("is_seen_to_go", [True, False], ids=["deleted", "replaced"])
@pytest.mark.parametrize(
    ("seen_at", "is_overdue"),
    [
        pytest.param(105.0, False, id="it has waited in part"),
        pytest.param(160.0, True, id="it is overdue"),
    ],
)
def test_who_is_made_anew_under_its_name_waits_anew(
    seen_at: float, is_overdue: bool, is_seen_to_go: bool
):
    scene = ask(a_scene(max_pods=None), "low", 10, 10, priority=LOW)
    ask(scene, "high", 4, priority=HIGH, uid="first")
    for now in (100.0, seen_at):
        scene.state.expire(now)
    assert (scene.pool.patience.overdue == {"tenant/high"}) is is_overdue
    if is_seen_to_go:
        scene.no_vpod("high")
    ask(scene, "high", 4, priority=HIGH, uid="second")
    assert admitted(scene) == {"low": 10, "high": 4}
    scene.state.expire(161.0)
    assert not scene.pool.patience.overdue
    assert admitted(scene) == {"low": 10, "high": 4}
    scene.state.expire(221.0)
    assert admitted(scene) == {"low": 6, "high": 4}


def test_who_waits_behind_nobody_makes_no_pool_impatient():
    """No pod is bound yet, or all that is used belongs to vpods as important."""
    scene = ask(a_scene(max_pods=None), "first", 10, 10, priority=HIGH)
    ask(scene, "second", 3, priority=HIGH)
    for now in (100.0, 160.0, 900.0):
        scene.state.expire(now)
    assert not scene.pool.patience.overdue


def test_a_pod_that_comes_and_goes_does_not_make_anybody_wait_anew():
    scene = ask(a_scene(max_pods=None).stateful_set(2), "low", 10, 10, priority=LOW)
    ask(scene, "high", 4, priority=HIGH)
    for now in range(100, 170, 10):
        scene.state.expire(float(now))
        scene.pod(1) if now % 20 else scene.no_pod(1)
    assert scene.pool.patience.overdue == {"tenant/high"}


def test_a_pool_that_no_longer_preempts_admits_everything():
    scene = ask(a_scene(max_pods=None), "low", 10, 10, priority=LOW)
    ask(scene, "high", 4, priority=HIGH)
    for now in (100.0, 160.0):
        scene.state.expire(now)
    old = scene.pool.adapter_pool
    assert old is not None
    scene.state.adapter_pool_changed(old, replace(old, preemption=None))
    assert admitted(scene) == {"low": 10, "high": 4}
    scene.state.adapter_pool_changed(replace(old, preemption=None), old)
    assert admitted(scene) == {"low": 10, "high": 4}, "it is patient"


def test_the_only_vpod_of_a_full_pool_is_preempted_by_nobody():
    scene = ask(a_scene(), "low", 12, 10, priority=-10)
    assert place(scene.pool, scene.pool.vpods["tenant/low"]).explanation.told_reason is (
        ConflictReason.INSUFFICIENT_SLOTS
    )


def test_what_is_leaving_serves_one_vpod_and_not_the_next_as_well():
    first, second = wanted(4, priority=HIGH + 1), wanted(4, priority=HIGH)
    shrinks, low = wanted(2, 6), wanted(4, 4)
    assert counts_within(10, [first, second, shrinks, low], [0, 0, 6, 4]) == [0, 4, 2, 0]
    crowded = [
        wanted(3, priority=HIGH + 2),
        wanted(1, priority=HIGH + 1),
        wanted(0, 5),
        wanted(1, 1),
    ]
    assert counts_within(5, crowded, [0, 0, 5, 1]) == [0, 0, 0, 1]


some_vpods = st.lists(
    st.tuples(
        st.integers(0, 12), st.integers(1, 4), st.integers(0, 3), st.integers(0, 2), st.booleans()
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=400)
@given(some_vpods)
def test_nobody_waits_for_what_less_important_ones_have(vpods):
    """Each is (vreplicas, weight, used, priority, preempts)."""
    scene = a_scene()
    for index, (vreplicas, weight, used, priority, preempts) in enumerate(vpods):
        fields = {"weight": weight, "priority": priority, "preempts": preempts}
        ask(scene, f"v{index}", vreplicas, min(used, vreplicas), **fields)
    known = scene.pool.vpods
    assert sum(vpod.vreplicas * vpod.weight for vpod in known.values()) <= 10
    free = 10 - sum(vpod.vreplicas * vpod.weight for vpod in known.values())
    for vpod in known.values():
        assert 0 <= vpod.vreplicas <= vpod.asked
        used = sum(vpod.placements.values())
        if vpod.vreplicas < vpod.asked and vpod.weight <= 10:
            lower = sum(
                one.vreplicas * one.weight
                for one in known.values()
                if one.priority < vpod.priority and vpod.preempts
            )
            assert free + lower < vpod.weight, vpod.key
        if vpod.vreplicas < used:
            assert any(one.priority > vpod.priority and one.preempts for one in known.values()) or (
                sum(min(v[2], v[0]) * v[1] for v in vpods) > 10
            )


# -- slotsPerPeriod --------------------------------------------------------------------------------


def give_way(scene: Scene) -> dict[str, int]:
    """Everybody has what is admitted now."""
    now = admitted(scene)
    for vpod in list(scene.pool.vpods.values()):
        stored = replace(vpod, vreplicas=vpod.asked, not_admitted=None)
        has = {"dispatcher-0": now[vpod.name]} if now[vpod.name] else {}
        scene.state.vpod_changed(stored, replace(stored, placements=has))
    return admitted(scene)


def test_so_many_slots_are_taken_in_a_period_and_no_more():
    scene = a_scene(preemption=Preemption(slots_per_period=2), scale_down_period_s=10)
    ask(scene, "low", 10, 10, priority=LOW)
    ask(scene, "high", 5, priority=HIGH)
    for now, low in ((100.0, 8), (105.0, 8), (109.9, 8), (110.0, 6), (115.0, 6), (121.0, 5)):
        scene.state.expire(now)
        assert give_way(scene) == {"low": low, "high": min(5, 10 - low)}, now


def test_what_is_not_given_back_yet_is_not_counted_twice():
    scene = a_scene(preemption=Preemption(slots_per_period=4), scale_down_period_s=10)
    ask(scene, "low", 10, 10, priority=LOW)
    ask(scene, "high", 2, priority=HIGH)
    assert admitted(scene) == {"low": 8, "high": 2}
    ask(scene, "other", 1, priority=LOW)
    assert admitted(scene) == {"low": 8, "high": 2, "other": 0}
    ask(scene, "more", 3, priority=HIGH)
    assert admitted(scene) == {"low": 6, "high": 2, "other": 0, "more": 2}


def test_what_is_taken_in_parts_for_a_heavy_vreplica_is_kept_for_it():
    scene = a_scene(preemption=Preemption(slots_per_period=2), scale_down_period_s=10)
    ask(scene, "low", 10, 10, priority=LOW)
    ask(scene, "heavy", 1, priority=HIGH, weight=5)
    parts = []
    for now in (100.0, 110.0, 120.0, 130.0):
        scene.state.expire(now)
        parts.append(give_way(scene))
    assert parts == [
        {"low": 8, "heavy": 0},
        {"low": 6, "heavy": 0},
        {"low": 5, "heavy": 1},
        {"low": 5, "heavy": 1},
    ]


def test_a_vreplica_that_has_more_slots_than_may_be_taken_goes_all_the_same():
    scene = a_scene(preemption=Preemption(slots_per_period=1), scale_down_period_s=10)
    ask(scene, "low", 2, 2, priority=LOW, weight=5)
    ask(scene, "high", 2, priority=HIGH)
    assert give_way(scene) == {"low": 1, "high": 2}


def test_a_pressure_that_ends_is_forgotten():
    scene = a_scene(preemption=Preemption(slots_per_period=2), scale_down_period_s=10)
    ask(scene, "low", 10, 10, priority=LOW)
    ask(scene, "high", 2, priority=HIGH)
    assert give_way(scene) == {"low": 8, "high": 2}
    scene.no_vpod("high")
    assert give_way(scene) == {"low": 10}
    ask(scene, "high", 2, priority=HIGH)
    assert give_way(scene) == {"low": 10, "high": 0}, "two were taken in this period already"
    for now in (100.0, 110.0):
        scene.state.expire(now)
    assert give_way(scene) == {"low": 8, "high": 2}


@settings(max_examples=300)
@given(some_vpods, st.integers(1, 6))
def test_a_budget_is_kept_in_each_period_and_changes_nothing_in_the_end(vpods, limit):
    preemption = Preemption(slots_per_period=limit)
    scene = a_scene(preemption=preemption, scale_down_period_s=10)
    left, heaviest = 10, max(weight for _, weight, *_ in vpods)
    for index, (vreplicas, weight, used, priority, preempts) in enumerate(vpods):
        fields = {"weight": weight, "priority": priority, "preempts": preempts}
        has = min(used, vreplicas, left // weight)
        left -= has * weight
        ask(scene, f"v{index}", vreplicas, has, **fields)
    weights = {vpod.name: vpod.weight for vpod in scene.pool.vpods.values()}
    had = {vpod.name: sum(vpod.placements.values()) for vpod in scene.pool.vpods.values()}
    for period in range(40):
        scene.state.expire(100.0 + 10 * period)
        before, taken = None, 0
        while before != had:
            before = had
            had = give_way(scene)
            taken += sum(max(0, before[name] - had[name]) * weights[name] for name in had)
        assert taken <= limit + heaviest - 1
    free = 10 - sum(had[name] * weights[name] for name in had)
    for vpod in scene.pool.vpods.values():
        lower = [one for one in scene.pool.vpods.values() if one.priority < vpod.priority]
        below = sum(had[one.name] * one.weight for one in lower) if vpod.preempts else 0
        if vpod.asked > had[vpod.name]:
            assert free + below < vpod.weight, (vpod.name, had)
