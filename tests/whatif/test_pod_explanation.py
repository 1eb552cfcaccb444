"""An adapter pod's explanation: why it waits, what nodes say, who loses what with it."""

from typing import Any

import pytest

from extender.model.eviction import Eviction, encode_eviction
from extender.model.max_unavailable import MaxUnavailable
from extender.model.node_fit import NodeFit
from extender.model.objects import Handoff, HandoffMode
from extender.whatif.explanation import UnknownObject
from extender.whatif.pod_explanation import explain_pod
from tests.support.builders import NS, Scene, a_node


def explained(scene: Scene, ordinal: int = 0) -> Any:
    return explain_pod(scene.state, f"{NS}/dispatcher-{ordinal}")


def test_a_bound_pod_says_where_it_stands_and_what_it_carries():
    scene = (
        Scene(replicas=2)
        .node(a_node("n1", "z1"))
        .pod(0, {"tenant/a": 3, "tenant/b": 1})
        .pod(1, {"tenant/a": 1}, node="n1")
    )
    scene.vpod("a", 4, {0: 3, 1: 1}).vpod("b", 1, {0: 1})
    answer = explained(scene)
    assert answer["outcome"] == "it stands on node node-0 in zone z0; 16 of 20 slots are free"
    assert [(row["vpod"], row["vreplicas"], row["of"]) for row in answer["carries"]] == [
        ("tenant/a", 3, 4),
        ("tenant/b", 1, 1),
    ]
    assert answer["loss"]["zone"] == [
        {"vpod": "tenant/b", "lost": 1, "of": 1, "percent": 100},
        {"vpod": "tenant/a", "lost": 3, "of": 4, "percent": 75},
    ]


def test_a_pod_that_is_only_in_doubt_is_not_said_to_be_emptied():
    scene = Scene(replicas=3).pods(0, 1, 2)
    scene.pool.set_closed(0b110, in_doubt=0b100)
    emptied, doubted = ("; ".join(explained(scene, ordinal)["steps"]) for ordinal in (1, 2))
    assert "the autoscaler empties it" in emptied
    assert "empties" not in doubted
    assert "it gets nothing new, and keeps what it has: closed while an earlier" in doubted


def test_a_pending_pod_that_every_node_refuses_says_why():
    scene = (
        Scene(replicas=3, profile="ha")
        .node(a_node("n1", "z1", cordoned=True))
        .node(a_node("n2", "z2", ready=False))
    )
    scene.pod(0, {"tenant/a": 1}).pod(1, {}, node="").vpod("a", 2, {0: 1, 1: 1})
    answer = explained(scene, 1)
    assert answer["outcome"].startswith("Pending: 0/3 nodes take it: ")
    assert {row["node"]: row["reason"] for row in answer["candidates"]} == {
        "node-0": "ZoneSkewExceeded",
        "n1": "NodeUnschedulable",
        "n2": "NodeNotReady",
    }


def test_a_pending_pod_that_nodes_would_take_points_at_kube_scheduler():
    scene = Scene(replicas=1, slots=5).node(a_node("gpu", "z1")).pod(0, node="").vpod("a", 9)
    scene.stateful_set(1, fit=NodeFit(selector=(("disk", "ssd"),)))
    scene.node(a_node("disk", "z2", labels={"disk": "ssd"}))
    answer = explained(scene)
    assert "1 of 3 nodes would take it" in answer["outcome"]
    assert "kubectl describe pod" in answer["outcome"]
    assert (answer["candidates"][0]["node"], answer["candidates"][0]["score"]) == ("disk", 10)
    assert answer["planned"] == {"tenant/a": 5}
    assert {row["reason"] for row in answer["candidates"][1:]} == {"NodeUnfit"}


def test_a_pending_pod_that_kube_scheduler_refuses_says_what_that_one_says():
    scene = Scene(replicas=1).pod(
        0, node="", refusal="'0/1 nodes are available: 1 Insufficient cpu.'"
    )
    assert explained(scene)["outcome"] == (
        "Pending: 1 of 1 node would take it as far as is known here, but kube-scheduler finds "
        "none: "
        "'0/1 nodes are available: 1 Insufficient cpu.'"
    )


def test_a_pending_pod_of_another_scheduler_says_whose_it_is():
    answer = explained(Scene(replicas=1).pod(0, node="", scheduler_name="default-scheduler"))
    assert "it waits for 'default-scheduler' to bind it" in answer["outcome"]
    assert any("that one must be running" in step for step in answer["steps"])


def test_scores_of_nodes_are_prioritizes():
    scene = (
        Scene(replicas=2)
        .node(a_node("n1", "z1"))
        .pod(0, {"tenant/a": 2})
        .pod(1, node="")
        .vpod("a", 4, {0: 2, 1: 2})
    )
    answer = explained(scene, 1)
    assert [(row["node"], row["score"]) for row in answer["candidates"]] == [
        ("n1", 10),
        ("node-0", 0),
    ]


@pytest.mark.parametrize(
    ("build", "said"),
    [
        pytest.param({"slots": 20, "slots_request": 5}, "Pending (SlotsMismatch)", id="slots"),
        pytest.param({"owner": "other"}, "Pending (StatefulSetNotFound)", id="owner"),
        pytest.param(
            {"owner": "other", "node": "node-0"},
            "it stands on node node-0 in zone z0; it counts nowhere: it is not controlled by the "
            "StatefulSet",
            id="owner, bound",
        ),
        pytest.param({"finished": True}, "it has ended", id="finished"),
    ],
)
def test_what_is_wrong_with_the_pod_itself(build, said):
    pod = {"node": "", **build}
    scene = Scene(replicas=1)
    scene.pod(0, **pod)
    assert said in explained(scene)["outcome"]


def test_where_the_pool_is_deleted_a_pod_takes_nothing_and_has_no_profile():
    scene = Scene().pods(0).vpod("a", 2, {0: 2})
    scene.state.adapter_pool_changed(scene.pool.adapter_pool, None)
    answer = explained(scene)
    assert answer["profile"] == ""
    assert answer["why"] == "its AdapterPool does not exist"
    assert answer["outcome"].endswith("takes no new vreplicas: its AdapterPool does not exist")


def test_a_pod_beyond_the_replicas_takes_nothing_for_its_ordinal_is_gone():
    answer = explained(Scene(replicas=1).pods(0).pod(1), 1)
    assert answer["outcome"].endswith("takes no new vreplicas: ordinal is gone")


def test_a_pending_pod_whose_placements_no_ledger_holds_says_so():
    scene = Scene(replicas=1, slots=10_000).pod(0, node="")
    for index in range(560):
        scene.vpod(f"{index:04}" + "x" * 230, 1, {0: 1})
    answer = explained(scene)
    assert answer["outcome"] == (
        "Pending (LedgerTooLarge): the placements on its ordinal do not fit into a ledger, which "
        "has 128 KiB"
    )
    assert answer["fixes"] == []


def test_a_pod_that_does_not_exist_and_is_waited_for():
    scene = Scene(replicas=1).vpod("a", 3, {0: 3})
    assert explained(scene)["outcome"] == (
        "the pod does not exist; the StatefulSet is to create it. 3 slots of vreplicas wait for it."
    )


def test_steps_tell_what_a_person_did():
    scene = Scene(replicas=1).pod(
        0, unschedulable=True, scheduler_name="default-scheduler", ledger_error="not JSON"
    )
    steps = explained(scene)["steps"]
    assert "it is drained: what it carries goes wherever there is room" in steps
    assert "its ledger cannot be read: not JSON" in steps


def test_an_eviction_that_waits_for_its_turn_is_told():
    handoff = Handoff(mode=HandoffMode.OVERLAP, max_unavailable=MaxUnavailable())
    mark = encode_eviction(Eviction(1.0, 2.0), "uid-0")
    scene = Scene(replicas=1, handoff=handoff).pod(0, ready=True, evicting_text=mark)
    steps = explained(scene)["steps"]
    assert "somebody evicts it: it waits for its turn (spec.handoff.maxUnavailable)" in steps
    assert not any("it carries goes" in step for step in steps)


def test_a_name_that_is_not_known():
    with pytest.raises(UnknownObject, match=f"known are {NS}/dispatcher-0"):
        explained(Scene(replicas=1).pods(0), 7)
