"""How many pods a pool needs (DESIGN 5.4)."""

from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st

from extender.engine.policy.availability import AvailabilityNodePriority, AvailabilityZonePriority
from extender.engine.policy.even_pod_spread import EvenPodSpread
from extender.engine.policy.framework import Weighted
from extender.engine.policy.ordinals import LowestOrdinalPriority
from extender.engine.policy.profile import KNATIVE_1_16_RULES, Profile
from extender.engine.policy.profiles import HA_PROFILE, KNATIVE_PROFILE
from extender.engine.policy.spreading import ZoneSpread
from extender.engine.scaling.size import plan_scale
from extender.engine.state.pool_state import PoolState
from extender.model.ledger import Share
from extender.model.objects import LabelSelector
from tests.engine.scaling.plans import plan_of
from tests.support.builders import POOL, Scene, a_node, a_pod, a_pool, a_stateful_set, a_vpod
from tests.support.placing import place
from tests.support.worlds import World


def wanted(scene: Scene) -> int:
    return plan_of(scene).wanted


@pytest.mark.parametrize(
    ("vpods", "pool", "expected"),
    [
        pytest.param([], {}, 0, id="no vpods, no pods"),
        pytest.param([], {"min_pods": 2}, 2, id="the floor"),
        pytest.param([8], {}, 2, id="what is expected, in whole pods"),
        pytest.param([5], {}, 1, id="to the last slot"),
        pytest.param([1], {"min_pods_per_vpod": 7}, 2, id="raised targets count"),
        pytest.param([0], {"min_pods_per_vpod": 7}, 0, id="of vpods that want anything"),
        pytest.param([50], {"max_pods": 3}, 3, id="no more than maxPods"),
    ],
)
def test_wanted_pods_of_five_slots(vpods, pool, expected):
    scene = Scene(slots=5, replicas=0, **pool)
    for index, vreplicas in enumerate(vpods):
        scene.vpod(f"v{index}", vreplicas)
    assert wanted(scene) == expected


def test_maxpods_below_what_is_needed_is_told():
    plan = plan_of(Scene(slots=5, replicas=0, max_pods=3).vpod("a", 50))
    assert (plan.wanted, plan.unlimited, plan.limited) == (3, 10, True)


def test_nothing_is_known_without_a_stateful_set():
    assert plan_scale(PoolState("x/y")) is None


def test_a_pod_being_drained_is_replaced():
    scene = (
        Scene(slots=5, replicas=1).pod(0, {"tenant/a": 5}, unschedulable=True).vpod("a", 5, {0: 5})
    )
    assert wanted(scene) == 2


def test_what_waits_on_a_draining_pod_needs_room_that_it_fits_into():
    scene = Scene(slots=8, replicas=4).pod(0, {"tenant/a": Share(1, 3)}, unschedulable=True)
    for ordinal in (1, 2, 3):
        scene.pod(ordinal, {"tenant/b": Share(1, 6)})
    scene.vpod("a", 1, {0: 1}, weight=3).vpod("b", 3, {1: 1, 2: 1, 3: 1}, weight=6)
    assert wanted(scene) == 5, "two slots are free on each of three pods, and none takes three"


def test_what_stands_on_a_failing_node_needs_no_second_place():
    scene = Scene(slots=5, replicas=1).node(a_node("bad", ready=False))
    scene.pod(0, {"tenant/a": 5}, node="bad").vpod("a", 5, {0: 5})
    assert wanted(scene) == 1


def test_free_slots_on_a_failing_node_are_unusable():
    scene = Scene(slots=5, replicas=2).node(a_node("bad", ready=False)).pods(1)
    scene.pod(0, {"tenant/a": 2}, node="bad").vpod("a", 10, {0: 2})
    assert wanted(scene) == 3


def test_heavy_vreplicas_leave_slots_that_nobody_can_use():
    scene = Scene(slots=5, replicas=2).pods(0, 1).vpod("a", 3, weight=3)
    assert wanted(scene) == 3, "9 slots are 2 pods' worth, but each pod takes only one"


def test_heavy_vreplicas_of_raised_targets_too():
    scene = Scene(slots=3, replicas=4, min_pods_per_vpod=3).pods(0, 1, 2, 3)
    for name in ("a", "b"):
        scene.vpod(name, 1, weight=2)
    settle(scene)
    assert wanted(scene) == 6, "6 vreplicas of 2 slots, one a pod"


def test_pods_from_before_slots_per_pod_was_raised_do_not_stand_in_the_way_of_growing():
    scene = Scene(slots=12, replicas=40)
    for ordinal in range(40):
        scene.pod(ordinal, {"tenant/a": 2}, slots=2)
    scene.vpod("a", 80, dict.fromkeys(range(40), 2)).vpod("heavy", 1, weight=3)
    assert wanted(scene) == 41, (
        "80 and 3 slots are 7 pods' worth, but no pod that is there takes three"
    )


def test_pods_still_to_come_are_counted_before_more_are_wanted():
    scene = Scene(slots=5, replicas=2).pods(0).pod(1, node="").vpod("a", 10)
    assert wanted(scene) == 2


def test_a_pod_whose_binding_is_under_way_is_still_to_come():
    """It takes no work yet. It counted as no room, and the pool got one pod too many."""
    scene = Scene(slots=5, replicas=2).pod(0, {"tenant/a": 5}).pod(1, {}, assumed=True)
    assert wanted(scene.vpod("a", 8, {0: 5})) == 2


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        ({}, 2),
        ({"node": "failing"}, 3),
        ({"unschedulable": True}, 3),
    ],
    ids=["it is soon made anew", "its node is not Ready", "it is drained"],
)
def test_a_pod_that_terminates_is_room_if_its_ordinal_comes_back(
    pod: dict[str, Any], expected: int
):
    """Found by review: a restart during a burst gave the pool one pod too many."""
    scene = Scene(slots=5, replicas=2).node(a_node("failing", ready=False))
    scene.pod(0, {"tenant/a": 5}, ready=True).pod(1, {}, deleting=True, **pod)
    assert wanted(scene.vpod("a", 8, {0: 5})) == expected


def test_an_object_that_is_being_deleted_asks_for_no_more_than_it_has():
    """Found by review: with a finalizer that hangs, the pool stayed as large as its spec."""
    scene = Scene(slots=5, replicas=2).pod(0, {"tenant/a": 5}).pods(1)
    scene.vpod("a", 5, {0: 5}).vpod("b", 20, deleting=True)
    assert wanted(scene) == 1


def test_a_vreplica_heavier_than_any_pod_asks_for_none():
    assert wanted(Scene(slots=5, replicas=0).vpod("a", 3, weight=6)) == 0


def test_a_tenant_that_the_pool_does_not_select_asks_for_none():
    selector = LabelSelector(match_labels={"team": "x"})
    scene = Scene(slots=5, replicas=0, namespace_selector=selector).vpod("a", 9)
    assert wanted(scene) == 0
    assert wanted(scene.namespace("tenant", team="x")) == 2


def test_a_vpod_that_may_not_have_any_more_keeps_the_pods_it_has():
    selector = LabelSelector(match_labels={"team": "x"})
    scene = Scene(slots=5, replicas=2, namespace_selector=selector).pods(0).pod(1, {"tenant/a": 6})
    assert wanted(scene.vpod("a", 90, {1: 6})) == 2


def settle(scene: Scene) -> None:
    for key, vpod in sorted(scene.pool.vpods.items()):
        decision = place(scene.pool, vpod)
        scene.pool.reserve("t", key, decision.shares(scene.pool.decided_of(key)), expires_at=1e9)


def ordinals_of(world: World) -> range:
    stateful_set = world.state.pool(POOL).stateful_set
    assert stateful_set is not None
    return stateful_set.ordinals


vpods = st.lists(st.tuples(st.integers(0, 12), st.integers(1, 4)), max_size=5)


@settings(max_examples=60, deadline=None)
@given(
    vpods,
    st.integers(1, 7),
    st.integers(0, 3),
    st.sampled_from([0, 0, 2, 3]),
    st.sampled_from([None, None, 4]),
    st.sets(st.integers(0, 2)),
)
def test_scaling_converges(wishes, slots, replicas, min_per_vpod, max_pods, unusable):
    world = World()
    world.put(a_node())
    world.put(a_node("bad", ready=False))
    world.put(a_stateful_set(replicas))
    world.put(a_pool(slots, min_pods_per_vpod=min_per_vpod, max_pods=max_pods))
    for index, (vreplicas, weight) in enumerate(wishes):
        world.put(a_vpod(f"v{index}", vreplicas, weight=weight))
    pool = world.state.pool(POOL)
    for _ in range(8):
        for ordinal in ordinals_of(world):
            if f"dispatcher-{ordinal}" not in {pod.name for pod in world.pods.values()}:
                world.put(a_pod(ordinal, {}, node="bad" if ordinal in unusable else "node-0"))
        decisions = []
        for key in sorted(world.vpods):
            decisions.append(place(pool, world.vpods[key]))
            world.write(decisions[-1])
        plan = plan_scale(pool)
        assert plan is not None
        if plan.wanted <= len(ordinals_of(world)):
            break
        world.put(a_stateful_set(plan.wanted))
    else:
        pytest.fail("wants to grow for ever")
    for decision in decisions:
        assert not decision.pending or plan.limited or decision.weight > slots


def test_a_pool_without_max_pods_asks_for_no_more_than_ten_thousand():
    scene = Scene(replicas=0).vpod("a", 2_000_000_000)
    plan = plan_scale(scene.pool)
    assert plan is not None
    assert (plan.wanted, plan.limited) == (10_000, True)
    assert "no pool may have more than 10000" in plan.limit_text


@pytest.mark.timeout(20)
def test_a_ceiling_that_is_none_does_not_keep_the_autoscaler_for_ever():
    """Found by fuzzing plans: pods were added to the count one by one, as many as maxPods
    allows.
    """
    scene = Scene(slots=10, replicas=1, max_pods=2_147_483_647).pods(0)
    scene.vpod("a", 2_147_483_647, weight=6)
    plan = plan_of(scene)
    assert plan.unschedulable
    assert plan.wanted == -(-2_147_483_647 * 6 // 10), (
        "what it needs at least; the rest is looked at when these are there"
    )


def test_room_that_another_vpod_is_giving_up_needs_no_new_pod():
    """Seen end to end: 5 vreplicas less here and 5 more there, at once, made a full pool grow."""
    scene = (
        Scene(replicas=1)
        .pod(0, {"tenant/a": 8, "tenant/b": 12})
        .vpod("a", 3, {0: 8})
        .vpod("b", 17, {0: 12})
    )
    scene.pool.reserve("placer", "tenant/a", {"dispatcher-0": Share(3)}, expires_at=30.0)
    plan = plan_scale(scene.pool)
    assert plan is not None
    assert plan.wanted == 1


# -- under a hard zone rule ------------------------------------------------------------------------


def in_zones(
    *pods: int, replicas: int | None = None, profile: Profile = HA_PROFILE, **fields
) -> Scene:
    """Three zones with one node each, and ``pods`` bound pods in each of them."""
    scene = Scene(slots=5, replicas=sum(pods) if replicas is None else replicas, **fields)
    for zone in range(3):
        scene.node(a_node(f"n{zone}", f"z{zone}"))
    ordinal = 0
    for zone, count in enumerate(pods):
        for _ in range(count):
            scene.pod(ordinal, node=f"n{zone}")
            ordinal += 1
    scene.pool.set_profile(profile)
    return scene


@pytest.mark.parametrize(
    ("scene", "expected", "unschedulable"),
    [
        pytest.param(lambda: in_zones(1, 1, 1).vpod("a", 15), 3, False, id="it fits"),
        pytest.param(
            lambda: in_zones(3, 0, 0).vpod("a", 9), 5, True, id="free slots, all in one zone"
        ),
        pytest.param(lambda: in_zones(2, 1, 1).vpod("a", 18), 6, True, id="two zones too small"),
        pytest.param(
            lambda: in_zones(0, 0, 0).vpod("a", 8), 3, True, id="from nothing, one a zone"
        ),
        pytest.param(lambda: in_zones(1, 1, 1).vpod("a", 16), 4, True, id="one more, in any zone"),
        pytest.param(
            lambda: in_zones(2, 1, 0, replicas=5).vpod("a", 9),
            2,
            False,
            id="pending pods are the missing ones",
        ),
        pytest.param(
            lambda: in_zones(3, 0, 0, max_pods=4).vpod("a", 9), 4, True, id="no more than maxPods"
        ),
        pytest.param(
            lambda: in_zones(1, 1, 1).vpod("a", 1).vpod("b", 1), 1, False, id="any zone will do"
        ),
    ],
)
def test_pods_of_five_slots_in_three_zones(scene, expected, unschedulable):
    plan = plan_of(scene())
    assert (plan.wanted, plan.unschedulable) == (expected, unschedulable)


@pytest.mark.parametrize("per_pod", [2, 4, 8])
def test_what_a_drained_pod_has_counts_once_in_its_zone(per_pod: int):
    """Found by review: the pool grew although placing found room."""
    slots = 2 * per_pod
    scene = Scene(slots=slots, replicas=3).node(a_node("n0", "z0")).node(a_node("n1", "z1"))
    scene.pool.set_profile(HA_PROFILE)
    scene.pod(0, {"tenant/a": per_pod}, node="n0", unschedulable=True).pod(2, {}, node="n0")
    scene.pod(1, {"tenant/a": per_pod, "tenant/b": per_pod}, node="n1")
    scene.vpod("a", 2 * per_pod, {0: per_pod, 1: per_pod}).vpod("b", per_pod, {1: per_pod})
    assert place(scene.pool, scene.pool.vpods["tenant/a"]).pending == 0
    assert wanted(scene) == 3


def test_a_zone_without_machines_does_not_make_the_pool_grow_for_ever():
    """Each new pod lands in a zone that has room for pods, and never in the one that lacks them."""
    scene = in_zones(1, 1, 0).vpod("a", 9)
    sizes: list[int] = []
    for _ in range(20):
        plan = plan_of(scene)
        sizes.append(plan.wanted)
        replicas = len(scene.pool.by_ordinal)
        if plan.wanted <= replicas:
            break
        scene.stateful_set(plan.wanted)
        for ordinal in range(replicas, plan.wanted):
            scene.pod(ordinal, node=f"n{ordinal % 2}")
    assert sizes[-1] <= 6, "one pod a zone more than each needs"
    assert plan_of(scene).unschedulable, "what has no place waits"


def test_two_vreplicas_more_in_a_zone_are_room_where_the_rule_allows_it():
    skewed = Profile(name="skewed", filters=(ZoneSpread(max_skew=3),))
    scene = in_zones(1, 0, 0, profile=skewed).vpod("a", 3)
    assert wanted(scene) == 1
    assert wanted(scene.vpod("a", 4)) == 2


def test_zones_in_which_the_pool_has_no_pod_count_only_where_the_rule_says_so():
    without_empty = Profile(name="x", filters=(ZoneSpread(count_empty=False),))
    assert wanted(in_zones(2, 0, 0, profile=without_empty).vpod("a", 9)) == 2


def test_a_single_zone_refuses_nothing():
    scene = Scene(slots=5, replicas=2).pods(0, 1).vpod("a", 9)
    scene.pool.set_profile(HA_PROFILE)
    assert (plan_of(scene).wanted, plan_of(scene).unschedulable) == (2, False)


def test_what_stands_in_a_zone_that_is_down_counts_there():
    scene = in_zones(2, 1, 1).vpod("a", 3, {0: 1, 2: 1, 3: 1}).node(a_node("n2", "z2", ready=False))
    assert not plan_of(scene.vpod("a", 9, {0: 1, 2: 1, 3: 1})).unschedulable, (
        "two zones take work, and are even"
    )


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(1, 3)), max_size=6),
    st.lists(st.sampled_from([0, 1, 2]), min_size=40, max_size=40),
)
@example([(8, 2), (12, 2), (11, 2), (2, 2), (2, 2), (6, 2)], [0] * 40)  # 21 pods, 5 slots, 4 used
def test_growing_under_a_hard_zone_rule_ends_and_places_all_where_pods_go_round(wishes, luck):
    scene = in_zones(0, 0, 0)
    for index, (vreplicas, weight) in enumerate(wishes):
        scene.vpod(f"v{index}", vreplicas, weight=weight)
    for _ in range(12):
        settle(scene)
        plan = plan_of(scene)
        replicas = len(scene.pool.by_ordinal)
        if plan.wanted <= replicas:
            break
        scene.stateful_set(plan.wanted)
        for ordinal in range(replicas, plan.wanted):
            # In each round of three every zone gets one, in any order.
            zones = sorted(range(3), key=lambda zone: luck[(ordinal // 3 * 3 + zone) % len(luck)])
            scene.pod(ordinal, node=f"n{zones[ordinal % 3]}")
    else:
        pytest.fail("wants to grow for ever")
    assert not plan.unschedulable
    assert not scene.pool.vpods_with_pending


# -- by Knative's formulas -------------------------------------------------------------------------


def test_knatives_formula_counts_vreplicas_and_nothing_else():
    scene = (
        Scene(slots=5, replicas=1, min_pods_per_vpod=3)
        .pod(0, unschedulable=True)
        .vpod("a", 6)
        .vpod("b", 1)
    )
    assert wanted(scene) == 3, "the drained pod is lost, and b is raised to 3: 9 slots"
    scene.pool.set_profile(KNATIVE_PROFILE)
    assert wanted(scene) == 2
    assert wanted(Scene(slots=5, replicas=1, min_pods=4, max_pods=3)) == 3


def by_policy(*scores, filters=()) -> Profile:
    weighted = tuple(Weighted(score, 1) for score in scores)
    return Profile(name="imported", rules=KNATIVE_1_16_RULES, filters=filters, scores=weighted)


@pytest.mark.parametrize("start", [0, 5])
def test_knatives_formula_counts_pods_from_the_first_ordinal(start: int):
    """Found by review: with spec.ordinals.start each look added as many pods."""
    scene = Scene(slots=5, replicas=2, start=start)
    scores = (Weighted(AvailabilityZonePriority(), 1),)
    scene.pool.set_profile(Profile(name="imported", rules=KNATIVE_1_16_RULES, scores=scores))
    for ordinal in (start, start + 1):
        scene.pod(ordinal, {})
    assert wanted(scene) == 2


@pytest.mark.parametrize(
    ("profile", "pending", "expected"),
    [
        pytest.param(
            by_policy(LowestOrdinalPriority()), 0, 2, id="never below the highest schedulable pod"
        ),
        pytest.param(
            by_policy(LowestOrdinalPriority()), 1, 3, id="pending adds pods although there is room"
        ),
        pytest.param(by_policy(LowestOrdinalPriority()), 6, 4, id="as many as they fill"),
        pytest.param(by_policy(AvailabilityZonePriority()), 1, 5, id="in multiples of the zones"),
        pytest.param(
            by_policy(AvailabilityZonePriority(), AvailabilityNodePriority()),
            1,
            6,
            id="of the nodes, if both",
        ),
        pytest.param(
            by_policy(LowestOrdinalPriority(), filters=(EvenPodSpread(max_skew=1),)),
            4,
            4,
            id="by least room",
        ),
    ],
)
def test_knatives_formula_with_policies(profile, pending, expected):
    scene = Scene(slots=5, replicas=2)
    for zone in range(3):
        scene.node(a_node(f"n{zone}", f"z{zone}"))
    scene.pod(0, node="n0").pod(1, node="n1").vpod("b", 3, {0: 3})
    scene.pool.set_profile(profile)
    assert wanted(scene.vpod("a", pending)) == expected


def test_without_a_node_that_takes_work_the_factor_is_one():
    scene = Scene(slots=5, replicas=1).node(a_node(ready=False)).vpod("a", 6)
    scene.pool.set_profile(by_policy(AvailabilityNodePriority()))
    assert wanted(scene) == 2


class TestPodsTakenForLost:
    """Not Ready for rescheduleAfterSeconds: what they hold needs another place, as long as that can
    help.
    """

    def test_what_a_lost_pod_holds_needs_a_pod(self):
        scene = (
            Scene(replicas=2, slots=20)
            .pod(0, {"tenant/a": 20})
            .pod(1, {"tenant/a": 20}, ready=False)
        )
        scene.vpod("a", 40, {0: 20, 1: 20})
        assert plan_of(scene).wanted == 2
        scene.pool.set_abandoned(frozenset({"dispatcher-1"}))
        assert plan_of(scene).wanted == 3

    @pytest.mark.parametrize("there", [True, False], ids=["pending", "not there yet"])
    def test_one_that_is_not_bound_is_still_to_come_for_a_further_one_would_wait_beside_it(
        self, there
    ):
        scene = Scene(replicas=2, slots=20).pods(0).vpod("a", 40, {0: 20, 1: 20})
        if there:
            scene.pod(1, node="")
        scene.pool.set_abandoned(frozenset({"dispatcher-1"}))
        assert plan_of(scene).wanted == 2

    def test_all_pods_of_a_lost_node_need_a_place_also_where_fewer_are_at_work(self):
        """A lost pod that holds nothing is no room for what the others hold."""
        scene = Scene(replicas=4, slots=20).node(a_node("gone", ready=False))
        scene.pod(0, {"tenant/a": 20}, node="gone").pod(1, {"tenant/a": 20}, node="gone")
        scene.pod(2, {"tenant/a": 20}).pod(3, node="gone", ready=False).vpod(
            "a", 60, {0: 20, 1: 20, 2: 20}
        )
        assert plan_of(scene).wanted == 4
        scene.pool.set_abandoned(frozenset({"dispatcher-0", "dispatcher-1", "dispatcher-3"}))
        assert plan_of(scene).wanted == 6

    def test_pods_to_come_are_enough_for_a_lost_node_however_long_they_wait(self):
        scene = Scene(replicas=2, slots=20).node(a_node("gone", ready=False))
        scene.pod(0, {"tenant/a": 20}, node="gone").pod(1, {"tenant/a": 20}, node="gone")
        scene.vpod("a", 40, {0: 20, 1: 20})
        scene.pool.set_abandoned(frozenset({"dispatcher-0", "dispatcher-1"}))
        assert plan_of(scene).wanted == 4
        scene.stateful_set(4).pod(2, node="").pod(3, node="")
        assert plan_of(scene).wanted == 4

    def test_the_only_pod_of_a_pool_is_replaced_too(self):
        """On a node that is Ready, and nothing at work beside it (seed 195993238)."""
        scene = (
            Scene(replicas=1, slots=20).pod(0, {"tenant/a": 20}, ready=False).vpod("a", 20, {0: 20})
        )
        scene.pool.set_abandoned(frozenset({"dispatcher-0"}))
        assert plan_of(scene).wanted == 2

    def test_adapters_that_never_get_ready_get_one_pod_more_and_no_further_one(self):
        scene = Scene(replicas=0, slots=20).vpod("a", 40)
        for _ in range(20):
            wanted = plan_of(scene).wanted
            scene.stateful_set(wanted)
            for ordinal in range(wanted):
                scene.pod(ordinal, ready=False)
            scene.pool.set_abandoned(
                frozenset(f"dispatcher-{ordinal}" for ordinal in range(wanted))
            )
        assert wanted == 3

    @pytest.mark.parametrize("pods", [4, 20])
    def test_a_pod_that_has_not_been_given_up_yet_and_is_not_ready_is_not_at_work(self, pods: int):
        """Found by review: the extra pod counted as one that works, until it was given up itself.
        So the pool doubled.
        """
        scene = Scene(replicas=pods + 1, slots=5)
        for ordinal in range(pods + 1):
            scene.pod(ordinal, {"tenant/a": 5} if ordinal < pods else {}, ready=False)
        scene.vpod("a", 5 * pods, dict.fromkeys(range(pods), 5))
        scene.pool.set_abandoned(frozenset(f"dispatcher-{ordinal}" for ordinal in range(pods)))
        assert plan_of(scene).wanted == pods + 1


def test_room_that_a_vpod_keeps_because_it_was_made_heavier_is_no_room():
    """It may not use the pool any more, so its ledgers stay as they are; placing keeps the room
    from others all the same.
    """
    scene = (
        Scene(replicas=2, slots=10)
        .pod(0, {"tenant/a": 1}, slots=10)
        .pod(1, {"tenant/a": 1}, slots=10)
    )
    scene.vpod("a", 2, {0: 1, 1: 1}, weight=5).vpod("b", 1, weight=6)
    plan = plan_scale(scene.pool, lambda vpod: vpod.key != "tenant/a")
    assert plan is not None
    assert (plan.expected_slots, plan.wanted) == (16, 3)


def test_what_runs_without_its_ordinal_needs_another_place():
    scene = Scene(replicas=3, slots=3).vpod("a", 3, {0: 1, 1: 1, 2: 1}, weight=2)
    for ordinal in range(3):
        scene.pod(ordinal, {"tenant/a": Share(1, 2)})
    assert wanted(scene.stateful_set(2, 5)) == 3, (
        "two pods have the slots, and no room for the third"
    )
