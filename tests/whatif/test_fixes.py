"""Every change that is named does what it says, and one less does not: made by hand, on another
state, each time.
"""

from dataclasses import replace

import pytest
from hypothesis import given, settings

from extender.engine.placing.plan import Decision
from extender.engine.policy.profiles import BUILT_IN_PROFILES
from extender.engine.scaling.size import plan_scale
from extender.model.amounts import Amounts
from extender.model.ledger import Share
from extender.model.node_fit import NodeFit
from extender.model.objects import LabelSelector, Scaling, ScalingMode, SelectorRequirement
from extender.whatif.fix import Fix
from extender.whatif.fixes import find_fixes
from extender.whatif.lift import labels_selected
from extender.whatif.snapshot import Snapshot
from tests.support.builders import NS, POOL, Scene, a_node, a_pool
from tests.support.placing import place
from tests.whatif.scenes import KEY, after, scenes

DRAWN = settings(max_examples=25, deadline=None)


def fixes_of(scene: Scene, key: str = KEY) -> list[Fix]:
    state = Snapshot.of(scene.state, list(scene.state.pools)).state()
    pool = next(pool for pool in state.pools.values() if key in pool.vpods)
    return list(find_fixes(state, pool, key).found)


def told(scene: Scene) -> dict[str, tuple[int, int]]:
    """Change -> (places, left)."""
    return {fix.change: (fix.places, fix.left) for fix in fixes_of(scene)}


def waits(scene: Scene) -> bool:
    pool = scene.pool
    return place(pool, pool.vpods[KEY]).pending > 0


def test_of_a_vpod_with_max_per_pod_more_pods_or_a_greater_limit_place_all():
    scene = Scene(replicas=2, slots=20, max_pods=9).pods(0, 1)
    scene.vpod("a", 10, max_per_pod=2, generation=1)
    assert {"maxPerPod 2 to 5", "3 pods more"} <= told(scene).keys()
    assert told(scene)["maxPerPod 2 to 5"] == (6, 0)


@DRAWN
@given(scenes())
def test_a_fix_that_is_made_leaves_what_it_says(scene):
    if not waits(scene):
        return
    for fix in fixes_of(scene):
        decision = after(scene, fix, fix.after)
        assert decision is not None, fix
        assert decision.pending == fix.left, fix


@DRAWN
@given(scenes())
def test_a_number_is_the_smallest_that_is_enough(scene):
    if not waits(scene):
        return
    for fix in fixes_of(scene):
        if (
            isinstance(fix.before, int)
            and isinstance(fix.after, int)
            and not isinstance(fix.after, bool)
        ):
            one_less = fix.after - 1 if fix.after > fix.before else fix.after + 1
            if one_less == fix.before:
                continue
            decision = after(scene, fix, one_less)
            assert decision is None or decision.pending, fix


@DRAWN
@given(scenes())
def test_trying_leaves_the_state_as_it_was(scene):
    state = Snapshot.of(scene.state, [POOL]).state()
    before, places = state.digest(), {n: p.last_location for n, p in state.pool(POOL).pods.items()}
    turns = list(state.pool(POOL).vpods_with_pending)
    find_fixes(state, state.pool(POOL), KEY)
    assert state.digest() == before
    assert {n: p.last_location for n, p in state.pool(POOL).pods.items()} == places
    assert list(state.pool(POOL).vpods_with_pending) == turns, (
        "who has waited longest is served first"
    )


def test_one_pod_more():
    scene = Scene(replicas=2, slots=4).pods(0, 1).vpod("a", 10)
    assert told(scene) == {
        "one pod more": (2, 0),
        "slotsPerPod 4 to 5": (2, 0),
        "ask for 2 less": (0, 0),
    }


def test_moves_that_make_room_leave_nothing_where_the_rest_fits_without_a_move():
    scene = Scene(replicas=2, slots=10, max_pods=2).pods(0, 1)
    scene.vpod("left", 2, {0: 2}).vpod("right", 6, {1: 6}).vpod("a", 2, weight=5)
    assert told(scene)["1 move of other vpods would make room"] == (1, 0)


@pytest.mark.parametrize(("replicas", "waits"), [(2, False), (3, True)])
def test_moves_wait_a_period_for_a_pod_on_its_way(replicas: int, waits: bool):
    scene = Scene(replicas=replicas, slots=10, max_pods=replicas).pods(0, 1)
    scene.vpod("left", 6, {0: 6}).vpod("right", 6, {1: 6}).vpod("a", 1, weight=5)
    fixes = {fix.change: fix for fix in fixes_of(scene)}
    note = fixes["1 move of other vpods would make room"].note
    assert note.endswith("do not come within 100 s") is waits


NO_CPU = "'0/1 nodes are available: 1 Insufficient cpu.'"


def test_a_pod_that_kube_scheduler_refuses_does_not_come_by_itself_nor_does_one_like_it():
    scene = Scene(replicas=2, slots=4).pod(0).pod(1, node="", refusal=NO_CPU).vpod("a", 12)
    fixes = {fix.change: fix for fix in fixes_of(scene)}
    bound, more = fixes["dispatcher-1 is bound to a node"], fixes["2 pods more"]
    assert not bound.by_itself
    assert bound.note == f"kube-scheduler finds no node for dispatcher-1: {NO_CPU}"
    assert not more.by_itself


def test_a_pod_more_that_the_autoscaler_asks_for_is_refused_like_the_one_that_waits():
    scene = (
        Scene(replicas=2, slots=4, min_pods=3).pod(0).pod(1, node="", refusal=NO_CPU).vpod("a", 8)
    )
    fix = next(fix for fix in fixes_of(scene) if fix.field == "spec.replicas")
    assert not fix.by_itself
    assert fix.note.endswith(f"kube-scheduler finds no node for dispatcher-1 either: {NO_CPU}")


def test_a_pod_more_than_the_autoscaler_wants_does_not_come_by_itself():
    scene = Scene(replicas=2, slots=4).pod(0).pod(1, node="").vpod("a", 8)
    fixes = {fix.change: fix for fix in fixes_of(scene)}
    assert fixes["dispatcher-1 is bound to a node"].by_itself
    more = fixes["one pod more"]
    assert not more.by_itself
    assert "the autoscaler adds none" in more.note


@pytest.mark.parametrize(
    ("mode", "note"),
    [
        (
            ScalingMode.EXTERNAL,
            "others decide how many pods there are (scaling.mode is External)",
        ),
        (
            ScalingMode.ADVISE,
            "others decide how many pods there are (scaling.mode is Advise), and should follow "
            "status.desiredPods",
        ),
    ],
)
def test_a_pod_more_in_a_pool_that_others_size_does_not_come_by_itself(
    mode: ScalingMode, note: str
):
    scene = Scene(replicas=1, slots=4, scaling=Scaling(mode=mode)).pod(0).vpod("a", 8)
    more = next(fix for fix in fixes_of(scene) if fix.field == "spec.replicas")
    assert (more.by_itself, more.note) == (False, note)


def test_a_pod_of_another_scheduler_does_not_come_by_itself():
    scene = (
        Scene(replicas=2, slots=4)
        .pod(0)
        .pod(1, node="", scheduler_name="default-scheduler")
        .vpod("a", 8)
    )
    fix = fixes_of(scene)[0]
    assert not fix.by_itself
    assert "dispatcher-1 waits for 'default-scheduler'" in fix.note


@DRAWN
@given(scenes())
def test_pods_that_come_by_themselves_are_no_more_than_the_autoscaler_asks_for(scene):
    if not waits(scene):
        return
    plan = plan_scale(scene.pool)
    for fix in fixes_of(scene):
        if fix.field == "spec.replicas" and fix.by_itself:
            assert plan is not None
            assert isinstance(fix.after, int)
            assert fix.after <= plan.wanted


def test_as_many_pods_as_it_takes():
    scene = Scene(replicas=1, slots=4).pods(0).vpod("a", 30)
    assert "7 pods more" in told(scene)


def test_where_maxpods_forbids_more_it_is_maxpods_that_has_to_grow():
    scene = Scene(replicas=3, slots=4, max_pods=3).pods(0, 1, 2).vpod("a", 20)
    assert "maxPods 3 to 5" in told(scene)
    assert "2 pods more" not in told(scene)


def test_no_pod_is_promised_where_no_node_would_take_it():
    scene = Scene(replicas=1, slots=4).pods(0).vpod("a", 8)
    scene.stateful_set(1, fit=NodeFit(selector=(("disk", "ssd"),)))
    assert not [change for change in told(scene) if "more" in change]


def test_a_node_that_declares_slots_limits_larger_pods_and_more_of_them():
    scene = Scene(replicas=1, slots=4).node(a_node(slots=6))
    scene.pod(0, {}, slots=4, slots_request=4).vpod("a", 6)
    assert told(scene) == {"slotsPerPod 4 to 6": (2, 0), "ask for 2 less": (0, 0)}
    scene.vpod("a", 7)
    assert told(scene) == {"ask for 3 less": (0, 0), "slotsPerPod 4 to 6": (2, 1)}


def test_a_cordon_to_be_lifted():
    scene = Scene(replicas=2, slots=4, max_pods=2).node(a_node("n1", "z1", cordoned=True))
    scene.pod(0).pod(1, node="n1").vpod("a", 8)
    fix = fixes_of(scene)[0]
    assert (fix.change, fix.subject, fix.places, fix.left) == ("uncordon n1", "Node n1", 4, 0)


def test_of_two_cordons_both_where_one_is_not_enough():
    scene = Scene(replicas=3, slots=4, max_pods=3)
    for index in (1, 2):
        scene.node(a_node(f"n{index}", cordoned=True)).pod(index, node=f"n{index}")
    scene.pod(0).vpod("a", 12)
    fixes = fixes_of(scene)
    assert fixes[0].change == "uncordon n1 and n2"
    assert [(fix.change, fix.left) for fix in fixes if fix.left] == [
        ("uncordon n1", 4),
        ("uncordon n2", 4),
    ]


def test_a_cordon_to_be_lifted_is_worth_the_pods_that_come_then():
    scene = (
        Scene(replicas=2, slots=4, max_pods=20)
        .node(a_node(cordoned=True))
        .node(a_node("n1", cordoned=True))
    )
    scene.pod(0, {"tenant/a": 4}).pod(1, {"tenant/a": 4}, node="n1").vpod("a", 40, {0: 4, 1: 4})
    assert told(scene)["uncordon node-0"] == (32, 0)


def test_larger_pods_need_no_more_than_one_vreplica_where_the_pool_may_grow():
    scene = Scene(replicas=1, slots=4, max_pods=10).pods(0).vpod("a", 2, weight=5)
    assert told(scene) == {"slotsPerPod 4 to 5": (2, 0), "slotsPerVReplica 5 to 4": (2, 0)}


def test_where_nothing_is_enough_what_places_most_is_told():
    scene = Scene(replicas=1, slots=4, max_pods=1).node(a_node(slots=5))
    scene.pod(0, {}, slots=4, slots_request=4).vpod("a", 2, weight=5)
    assert told(scene)["slotsPerPod 4 to 5"] == (1, 1)


def test_what_a_pool_does_by_itself_makes_no_change_a_fix():
    scene = Scene(replicas=1, slots=4).pods(0).vpod("a", 12)
    assert told(scene) == {
        "2 pods more": (8, 0),
        "slotsPerPod 4 to 12": (8, 0),
        "ask for 8 less": (0, 0),
    }


def test_a_node_that_is_away():
    scene = (
        Scene(replicas=2, slots=4)
        .node(a_node("n1", ready=False))
        .pod(0)
        .pod(1, node="n1")
        .vpod("a", 8)
    )
    assert "n1 is Ready again" in told(scene)


def test_a_cordoned_node_that_a_waiting_pod_could_go_to():
    scene = (
        Scene(replicas=2, slots=4, max_pods=2)
        .node(a_node(slots=4))
        .node(a_node("spare", "z1", cordoned=True))
    )
    scene.pod(0, {}, slots=4, slots_request=4).pod(1, node="", slots=4, slots_request=4).vpod(
        "a", 8
    )
    fix = fixes_of(scene)[0]
    assert (fix.change, fix.left) == ("uncordon spare", 0)
    assert "wait for a node" in fix.note


def test_a_mark_to_be_lifted():
    scene = Scene(replicas=2, slots=4).pod(0).pod(1, unschedulable=True).vpod("a", 8)
    fix = fixes_of(scene)[0]
    assert fix.change == "lift vreplica.dev/unschedulable from dispatcher-1"
    assert fix.subject == f"Pod {NS}/dispatcher-1"


def test_pods_that_come_by_themselves_are_told_first():
    scene = Scene(replicas=3, slots=4).pod(0).pod(1, node="").vpod("a", 10)
    fix = fixes_of(scene)[0]
    assert (fix.change, fix.by_itself, fix.left) == (
        "dispatcher-1 and dispatcher-2 are bound to a node",
        True,
        0,
    )


def test_a_zone_rule_to_be_loosened():
    scene = Scene(replicas=2, slots=10, profile="ha", max_pods=2)
    scene.node(a_node("n1", "z1")).pod(0, {"tenant/b": 9}).pod(1, {}, node="n1").vpod(
        "b", 9, {0: 9}
    ).vpod("a", 4)
    assert (
        told(scene)
        == {
            "zone skew 1 to 2": (2, 0),
            "profile ha to default": (2, 0),
            "profile ha to pack": (2, 0),
            "profile ha to spread": (2, 0),
        }
        or told(scene)["zone skew 1 to 2"][1] == 0
    )


def test_a_namespace_to_be_labelled():
    selector = LabelSelector(match_labels={"tier": "gold"})
    scene = Scene(replicas=1, slots=4, namespace_selector=selector, generation=1).pods(0)
    scene.namespace("tenant", tier="silver").vpod("a", 2)
    fix = fixes_of(scene)[0]
    assert fix.change == "allow the namespace: label tenant with tier=gold"
    assert (fix.field, fix.before, fix.after, fix.left) == (
        "metadata.labels[tier]",
        "silver",
        "gold",
        0,
    )


def test_a_pool_that_was_misspelt():
    scene = Scene(replicas=1, slots=4).pods(0).vpod("a", 2, pool=f"{NS}/dispatchr")
    (fix,) = fixes_of(scene)
    assert (fix.change, fix.after) == (
        f"ask for AdapterPool {POOL} instead of {NS}/dispatchr",
        POOL,
    )


def test_a_vreplica_that_is_too_heavy_for_any_pod():
    scene = Scene(replicas=2, slots=4).pods(0, 1).vpod("a", 2, weight=5)
    assert told(scene) == {"slotsPerPod 4 to 5": (2, 0), "slotsPerVReplica 5 to 4": (2, 0)}


def test_a_pod_keeps_the_slots_that_it_was_stamped_with():
    scene = Scene(replicas=1, slots=4, max_pods=1).pod(0, {}, slots=4, slots_request=4).vpod("a", 6)
    (fix,) = [fix for fix in fixes_of(scene) if fix.field == "spec.slotsPerPod"]
    assert "restarted" in fix.note


def test_others_that_wait_are_served_first():
    scene = Scene(replicas=1, slots=4).pods(0).vpod("b", 4).vpod("a", 5)
    assert told(scene)["2 pods more"] == (1, 0), "b takes a pod"


def test_a_change_that_is_enough_only_before_others_says_so():
    scene = (
        Scene(replicas=2, slots=4, max_pods=2).pod(0, {"tenant/c": 4}).pod(1, unschedulable=True)
    )
    scene.vpod("c", 4, {0: 4}).vpod("b", 4).vpod("a", 4)
    lifted = [fix for fix in fixes_of(scene) if fix.change.startswith("lift")]
    assert [(fix.left, fix.alone) for fix in lifted] == [(0, True)]


def test_what_is_being_emptied_opens_again_by_itself():
    scene = Scene(replicas=2, slots=4).pods(0, 1).vpod("a", 8)
    scene.pool.set_closed(0b10)
    fix = fixes_of(scene)[0]
    assert (fix.change, fix.by_itself, fix.left) == ("dispatcher-1 is open again", True, 0)


def test_the_time_may_be_up():
    scene = Scene(replicas=2, slots=4).pods(0, 1).vpod("a", 10)
    state = Snapshot.of(scene.state, [POOL]).state()
    calls = iter([False] * 10)
    found = find_fixes(state, state.pool(POOL), KEY, expired=lambda: next(calls, True))
    assert found.cut_short
    assert found.tried < 10


@pytest.mark.parametrize(
    ("selector", "labels", "wanted"),
    [
        pytest.param({"match_labels": {"a": "1"}}, {"b": "2"}, {"a": "1", "b": "2"}, id="a label"),
        pytest.param(
            {
                "match_expressions": (
                    SelectorRequirement(key="a", operator="In", values=("x", "y")),
                )
            },
            {"a": "z"},
            {"a": "x"},
            id="one of some",
        ),
        pytest.param(
            {"match_expressions": (SelectorRequirement(key="a", operator="DoesNotExist"),)},
            {"a": "z", "b": "1"},
            {"b": "1"},
            id="one too many",
        ),
        pytest.param(
            {
                "match_labels": {"a": "1"},
                "match_expressions": (SelectorRequirement(key="a", operator="DoesNotExist"),),
            },
            {},
            None,
            id="what nothing can meet",
        ),
    ],
)
def test_the_nearest_labels_that_are_selected(selector, labels, wanted):
    assert labels_selected(LabelSelector(**selector), labels) == wanted


def test_a_profile_of_ones_own_is_offered_and_knatives_rules_are_not():
    profiles = {**BUILT_IN_PROFILES, "mine": replace(BUILT_IN_PROFILES["spread"], name="mine")}
    scene = Scene(replicas=2, slots=10, profile="ha", max_pods=2)
    scene.state.profiles = profiles
    scene.state.adapter_pool_changed(
        scene.pool.adapter_pool, a_pool(10, profile="ha", max_pods=2, generation=2)
    )
    scene.node(a_node("n1", "z1")).node(a_node("n2", "z2")).pod(0, {}).pod(1, {}, node="n1").vpod(
        "a", 4
    )
    offered = [fix.after for fix in fixes_of(scene) if fix.field == "spec.profile"]
    assert offered == ["default", "pack", "spread", "mine"]


class TestDimensions:
    """One pod of 20 slots has 10 of memory, of which 6 are taken. The pool may not grow."""

    def scene(self, **amounts: int) -> Scene:
        scene = Scene(replicas=1, max_pods=1, capacities=(("cpu", 9), ("memory", 10)))
        scene.pod(0, {"tenant/b": Share(1, 1, (("memory", 6),))})
        scene.vpod("b", 1, {0: 1}, per_vreplica=(("memory", 6),))
        return scene.vpod("a", 2, per_vreplica=tuple(sorted(amounts.items())))

    def test_the_missing_dimension_is_named_with_the_least_that_is_enough(self):
        scene = self.scene(cpu=1, memory=3)
        (fix,) = [fix for fix in fixes_of(scene) if fix.field.startswith("spec.capacities")]
        assert (fix.change, fix.left) == ("capacities.memory 10 to 12", 0)
        assert (fix.field, fix.before, fix.after) == ("spec.capacities.memory", 10, 12)
        assert "slotsPerPod" not in " ".join(told(scene))
        decision = after_capacities(scene, (("cpu", 9), ("memory", 11)))
        assert decision.pending == 1
        assert after_capacities(scene, (("cpu", 9), ("memory", 12))).pending == 0

    def test_a_vreplica_larger_than_any_pod_wants_a_greater_capacity(self):
        assert "capacities.memory 10 to 30" in told(self.scene(memory=12))

    def test_a_dimension_that_the_pool_lacks_is_to_be_added(self):
        assert "capacities.gpu 2, which the pool lacks" in told(self.scene(gpu=1))

    def test_where_slots_are_missing_no_capacity_is_named(self):
        scene = self.scene(cpu=1).vpod("a", 2, weight=19, per_vreplica=(("cpu", 1),))
        assert not [change for change in told(scene) if change.startswith("capacities")]


def after_capacities(scene: Scene, capacities: Amounts) -> Decision:
    """The decision about ``a`` with these capacities."""
    spec = scene.pool.adapter_pool
    assert spec is not None
    new = replace(spec, capacities=capacities)
    scene.state.adapter_pool_changed(spec, new)
    decision = place(scene.pool, scene.pool.vpods[KEY])
    scene.state.adapter_pool_changed(new, spec)
    return decision
