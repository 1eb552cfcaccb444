"""A vpod's explanation: it says what ``place`` does, of every pod, and in words that a person on
call can use.
"""

from typing import Any

import orjson
import pytest
from hypothesis import given, settings

from extender.model.counted import EXACT_MAX
from extender.model.ledger import Share
from extender.model.objects import Condition, LabelSelector
from extender.model.reading import COUNT_MAX
from extender.whatif.explanation import UnknownObject, explain_vpod, history_from_conditions
from extender.whatif.snapshot import Snapshot
from tests.support.builders import NS, POOL, Scene, a_node
from tests.support.placing import place
from tests.whatif.scenes import KEY, scenes


def explained(scene: Scene, key: str = KEY) -> Any:
    return explain_vpod(Snapshot.of(scene.state, list(scene.state.pools)).state(), key)


@settings(max_examples=40, deadline=None)
@given(scenes())
def test_it_says_what_place_does(scene):
    decision = place(scene.pool, scene.pool.vpods[KEY])
    answer: Any = explain_vpod(Snapshot.of(scene.state, [POOL]).state(), KEY, expired=lambda: True)
    assert (answer["target"], answer["left"]) == (decision.target, decision.pending)
    chosen = {
        row["pod"]: row["vreplicas"] for row in answer["candidates"] if row["verdict"] == "chosen"
    }
    assert chosen == decision.target
    if (
        decision.pending
        and not decision.explanation.detail
        and str(decision.explanation.reason) == "InsufficientSlots"
    ):
        assert answer["refusals"] == dict(decision.explanation.refused)
        assert not [row for row in answer["candidates"] if row["verdict"] == "fits"]


@pytest.mark.parametrize(
    ("profile", "said"),
    [
        pytest.param(
            "default",
            "one vreplica to each pod with room in turn, by ascending ordinal",
            id="no plugins",
        ),
        pytest.param(
            "knative-maxfillup", "pods with room are filled one after the other", id="to the letter"
        ),
        pytest.param(
            "pack",
            "the best score of LowestOrdinalPriority x1; of equals the lowest ordinal",
            id="scores",
        ),
        pytest.param(
            "ha",
            "only where ZoneSpread (MaxSkew 1) allow it; the best score of ZoneSpread x100",
            id="filters",
        ),
    ],
)
def test_the_rule_by_which_pods_are_chosen_is_said(profile, said):
    assert explained(Scene(profile=profile).pods(0).vpod("a", 1))["rule"].startswith(said)


def test_every_pod_with_its_verdict():
    scene = Scene(replicas=5, slots=4).node(a_node("bad", "z1", cordoned=True))
    scene.pod(0).pod(1, {"tenant/b": 4}).pod(2, node="bad").pod(3, unschedulable=True).vpod(
        "b", 4, {1: 4}
    ).vpod("a", 2)
    answer = explained(scene)
    assert [
        (row["pod"], row["verdict"], row["vreplicas"], row["reason"], row["text"])
        for row in answer["candidates"]
    ] == [
        ("dispatcher-0", "chosen", 2, "", ""),
        ("dispatcher-1", "refused", 0, "InsufficientSlots", "no free slots"),
        ("dispatcher-2", "refused", 0, "NodeUnschedulable", "node cordoned"),
        ("dispatcher-3", "refused", 0, "PodUnschedulable", "marked unschedulable"),
        ("dispatcher-4", "refused", 0, "PodUnschedulable", "does not exist"),
    ]
    assert answer["candidates"][0]["freeSlots"] == 2, "beside what is decided for it"


def test_a_pods_verdict_names_the_dimension_that_lacks():
    scene = Scene(replicas=2, capacities=(("cpu", 4),)).pod(0)
    scene.pod(1, {"tenant/b": Share(1, 1, (("cpu", 3),))}).vpod("a", 3, per_vreplica=(("cpu", 2),))
    answer = explained(scene)
    assert (answer["perVReplica"], answer["size"]["capacities"]) == ({"cpu": 2}, {"cpu": 4})
    assert [
        (row["verdict"], row["vreplicas"], row["reason"], row["text"])
        for row in answer["candidates"]
    ] == [
        ("chosen", 2, "InsufficientSlots", "not enough cpu"),
        ("refused", 0, "InsufficientSlots", "not enough cpu"),
    ]
    assert "one pod more" in [fix["change"] for fix in answer["fixes"]]


def test_where_the_pool_lacks_the_dimension_every_pod_says_so():
    scene = Scene(replicas=1, capacities=(("cpu", 4),)).pod(0).vpod("a", 1, per_vreplica=GPU)
    (row,) = explained(scene)["candidates"]
    assert (row["reason"], row["text"]) == ("Unsatisfiable", "not enough gpu")


GPU = (("gpu", 1),)


def test_scores_are_the_profiles_own():
    scene = Scene(replicas=3, slots=9, profile="spread").node(a_node("n1", "z1"))
    scene.pod(0).pod(1).pod(2, node="n1").vpod("a", 3)
    rows = {
        row["pod"]: (row["vreplicas"], row["score"], row["cost"])
        for row in explained(scene)["candidates"]
    }
    # Two in z0 on one node, one in z1: the next one goes to z1.
    assert rows["dispatcher-2"] == (1, 100, 111)
    assert rows["dispatcher-0"][1:] == (0, 221)


def test_without_plugins_there_are_no_scores():
    assert {
        row["score"] for row in explained(Scene().pods(0, 1, 2).vpod("a", 2))["candidates"]
    } == {None}


@pytest.mark.parametrize(
    ("build", "said"),
    [
        pytest.param(
            lambda s: s.vpod("a", 2, pool=f"{NS}/gone"),
            f"AdapterPool {NS}/gone does not exist",
            id="no pool",
        ),
        pytest.param(
            lambda s: s.vpod("a", 2).state.stateful_set_changed(s.pool.stateful_set, None),
            f"StatefulSet {NS}/dispatcher of AdapterPool {POOL} does not exist",
            id="no StatefulSet",
        ),
        pytest.param(
            lambda s: s.vpod("a", 1, weight=21),
            "one vreplica takes 21 slots, a pod of",
            id="too heavy",
        ),
        pytest.param(
            lambda s: s.vpod("a", 1, per_vreplica=(("cpu", 2),)),
            f"one vreplica takes cpu (spec.perVReplica), but AdapterPool {POOL} has no cpu",
            id="a dimension that the pool lacks",
        ),
        pytest.param(
            lambda s: s.vpod("a", 99),
            "39 of 99 vreplicas are not placed (InsufficientSlots): 0/3",
            id="no room",
        ),
        pytest.param(lambda s: s.vpod("a", 0), "it asks for no vreplicas", id="nothing"),
    ],
)
def test_the_outcome_names_what_is_wrong(build, said):
    scene = Scene().pods(0, 1, 2)
    build(scene)
    assert said in explained(scene)["outcome"]


def test_a_closed_pool_names_the_namespace_and_refuses_on_every_pod():
    scene = (
        Scene(replicas=1, namespace_selector=LabelSelector(match_labels={"a": "b"}))
        .pods(0)
        .vpod("a", 1)
    )
    answer = explained(scene)
    assert f"AdapterPool {POOL} does not select namespace tenant" in answer["outcome"]
    assert [(row["verdict"], row["reason"]) for row in answer["candidates"]] == [
        ("refused", "TenantNotAllowed")
    ]


def test_what_a_zones_loss_costs():
    scene = Scene(replicas=3).node(a_node("n1", "z1")).pod(0).pod(1).pod(2, node="n1")
    scene.vpod("a", 4, {0: 1, 1: 1, 2: 2})
    assert explained(scene)["zoneLoss"] == {"z0": 2, "z1": 2}


def test_a_raised_target_is_told():
    scene = Scene(min_pods_per_vpod=3).pods(0, 1, 2).vpod("a", 1)
    assert explained(scene)["steps"][0] == "wants 1, raised by 2 to minPodsPerVPod"


def test_others_that_wait_and_the_pools_size_are_told():
    scene = Scene(replicas=1, slots=4, max_pods=1).pods(0).vpod("b", 3, weight=2).vpod("a", 9)
    answer = explained(scene)
    assert answer["waiting"] == {"vpods": 1, "vreplicas": 3, "slots": 6}
    assert (answer["size"]["wanted"], answer["size"]["unlimited"], answer["size"]["maxPods"]) == (
        1,
        4,
        1,
    )


def test_others_that_ask_for_more_slots_than_json_has_are_told_as_very_many():
    scene = Scene().pods(0).vpod("a", 1)
    for number in range(5):
        scene.vpod(f"huge-{number}", COUNT_MAX, weight=COUNT_MAX)
    assert orjson.loads(orjson.dumps(explained(scene)))["waiting"] == {
        "vpods": 5,
        "vreplicas": 5 * COUNT_MAX,
        "slots": EXACT_MAX,
    }


def test_its_own_conditions_are_its_history_where_nobody_remembers():
    told = Condition(
        "Scheduled", "True", "AllPlaced", "all 2 vreplicas are placed", "2026-01-02T03:04:05Z"
    )
    scene = Scene().pods(0).vpod("a", 2, conditions=(told,))
    (condition,) = explained(scene)["conditions"]
    assert (condition["type"], condition["lastTransitionTime"]) == (
        "Scheduled",
        "2026-01-02T03:04:05Z",
    )


@pytest.mark.parametrize(
    ("key", "said"),
    [
        pytest.param("tenant/order", "known are tenant/orders", id="a beginning"),
        pytest.param("other/orders", "known are tenant/orders", id="another namespace"),
        pytest.param(
            "tenant/zzz", "known are tenant/billing, tenant/orders", id="others beside it"
        ),
        pytest.param("nobody/zzz", "2 others do, none in that namespace", id="an empty namespace"),
    ],
)
def test_a_name_that_is_not_known_gets_the_nearest(key, said):
    scene = Scene().vpod("orders", 1).vpod("billing", 1)
    with pytest.raises(UnknownObject, match=said):
        explained(scene, key)


def test_one_that_is_gone_and_still_in_ledgers_says_so():
    scene = Scene().pod(0, {"tenant/a": 3})
    with pytest.raises(UnknownObject, match="3 of its vreplicas are still in the ledgers"):
        explained(scene)


def test_a_conditions_message_is_told_as_what_it_is_now_and_not_as_of_its_last_change():
    condition = Condition(
        "Scheduled", "False", "InsufficientSlots", "2 pods are full", "2026-01-02T03:04:05Z"
    )
    scene = Scene().pods(0).vpod("a", 90, conditions=(condition,))
    (told,) = history_from_conditions(scene.pool.vpods[KEY])
    assert (told.at, told.why) == (
        "2026-01-02T03:04:05Z",
        "its condition Scheduled has been False since then",
    )
    assert told.text == "as it stands now, InsufficientSlots: 2 pods are full"


def test_where_the_pool_is_deleted_no_profile_and_no_ordinal_is_blamed():
    scene = Scene().pods(0, 1, 2).vpod("a", 2, {0: 2})
    scene.state.adapter_pool_changed(scene.pool.adapter_pool, None)
    answer = explained(scene)
    assert (answer["profile"], answer["rule"]) == ("", "")
    assert {row["text"] for row in answer["candidates"]} == {"its AdapterPool does not exist"}
