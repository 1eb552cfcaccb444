"""What ``top`` shows of a state: each row in one situation, and never more than so many."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from extender.engine.state.cluster_state import ClusterState
from extender.model.assignment import AssignedShare, Assignment, ShareState, encode_assignment
from extender.model.ledger import Share
from extender.model.objects import Condition
from extender.whatif import overview as module
from extender.whatif.overview import Overview
from tests.support.builders import POOL, Scene

TO_DRAIN = encode_assignment(
    Assignment(4, "n/p", "uid", {"tenant/a": AssignedShare(1, 1, 1, 7, ShareState.DRAIN)})
)


def overview(state: ClusterState) -> Any:
    made = Overview(state)
    for _ in made.steps():
        pass
    return made.to_json()


def waiting(since: str, message: str = "no free slots") -> tuple[Condition, ...]:
    return (Condition("Scheduled", "False", "InsufficientSlots", message, since),)


def test_a_pool_in_numbers():
    scene = Scene(replicas=4, slots=10).pods(0, 1).pod(2, {"tenant/a": 4}, unschedulable=True)
    scene.vpod("a", 9, {2: 4})
    scene.pool.set_closed(0b10)
    (row,) = overview(scene.state)["pools"]
    assert row == {
        "name": POOL,
        "found": True,
        "profile": "default",
        "pods": 3,
        "schedulablePods": 2,
        "slots": 30,
        "usedSlots": 4,
        "freeSlots": 10,
        "closedSlots": 16,
        "pendingVReplicas": 5,
        "unservedVReplicas": 4,
        "vpods": 1,
        "closedPods": 1,
        "drainingPods": 1,
        "overcommittedPods": 0,
    }


def test_a_pod_of_a_pool_with_dimensions_says_what_is_used_of_them():
    scene = Scene(replicas=2, capacities=(("cpu", 4),))
    scene.pod(0, {"tenant/a": Share(1, 1, (("cpu", 3),))})
    scene.pod(1, {"tenant/a": Share(2, 1, (("cpu", 3),))})
    rows = {row["name"]: row for row in overview(scene.state)["pods"]}
    assert rows["dispatcher-0"]["dimensions"] == {"cpu": {"capacity": 4, "used": 3}}
    assert [row["state"] for row in rows.values()] == ["overcommitted", ""]


@pytest.mark.parametrize(
    ("pod", "state"),
    [
        pytest.param({}, "", id="nothing special"),
        pytest.param({"ledger": {"tenant/a": 21}}, "overcommitted", id="over its slots"),
        pytest.param({"unschedulable": True}, "draining", id="drained"),
        pytest.param({"node": ""}, "not bound", id="on no node"),
        pytest.param({"node": "node-9"}, "node unknown", id="on a node that we do not know"),
        pytest.param({"deleting": True}, "being deleted", id="deleted"),
    ],
)
def test_what_is_special_about_a_pod(pod: dict[str, object], state: str):
    scene = Scene(slots=20).pod(0, **pod)  # type: ignore[arg-type]
    (row,) = overview(scene.state)["pods"]
    assert (row["name"], row["state"]) == ("dispatcher-0", state)


def test_a_pod_whose_adapter_has_still_something_to_do_says_so():
    scene = Scene(replicas=2).pod(0, assignment_text=TO_DRAIN).pod(1)
    rows = {row["name"]: row for row in overview(scene.state)["pods"]}
    assert rows["dispatcher-0"]["handOver"] == "1 to drain, unacknowledged"
    assert "handOver" not in rows["dispatcher-1"]


def test_given_up_closed_and_strange_pods_are_told():
    scene = Scene(replicas=2).pods(0, 1, 5)
    scene.pool.set_closed(0b1)
    scene.pool.set_abandoned(frozenset({"dispatcher-1"}))
    states = {row["name"]: row["state"] for row in overview(scene.state)["pods"]}
    assert states == {
        "dispatcher-0": "closed",
        "dispatcher-1": "given up",
        "dispatcher-5": "not of its StatefulSet",
    }


def test_pods_come_by_urgency_and_then_by_how_full_they_are():
    scene = Scene(replicas=5, slots=4).pod(0, {"tenant/a": 1}).pod(1, {"tenant/a": 5})
    scene.pod(2, unschedulable=True).pod(3, {"tenant/a": 4}).pod(4)
    names = [row["name"] for row in overview(scene.state)["pods"]]
    assert names == [f"dispatcher-{ordinal}" for ordinal in (1, 2, 3, 0, 4)]


def test_vpods_wait_in_the_order_of_time_and_say_why():
    scene = Scene(replicas=1).pod(0)
    scene.vpod("new", 30).vpod("late", 30, conditions=waiting("2026-01-01T00:00:09Z"))
    scene.vpod("early", 30, conditions=waiting("2026-01-01T00:00:03Z", "x" * 1000))
    rows = overview(scene.state)["waiting"]
    assert [row["vpod"] for row in rows] == ["tenant/early", "tenant/late", "tenant/new"]
    assert rows[0] == {
        "vpod": "tenant/early",
        "pool": POOL,
        "vreplicas": 30,
        "pending": 30,
        "since": "2026-01-01T00:00:03Z",
        "reason": "InsufficientSlots",
        "message": "x" * 300,
    }
    assert (rows[2]["since"], rows[2]["reason"]) == ("", "")


def test_of_many_so_many_are_listed_and_all_are_counted(monkeypatch: pytest.MonkeyPatch):
    for name in ("PODS_LISTED_MAX", "WAITING_LISTED_MAX", "STEP_OBJECTS"):
        monkeypatch.setattr(module, name, 2)
    scene = Scene(replicas=9, slots=4).pods(*range(5))
    scene.pod(7, {"tenant/a": 3})
    for name in "bcdef":
        scene.vpod(name, 50)
    found = overview(scene.state)
    assert [row["name"] for row in found["pods"]] == ["dispatcher-7", "dispatcher-0"]
    assert (found["podsNotListed"], found["waitingNotListed"]) == (4, 3)
    (row,) = found["pools"]
    assert (row["pods"], row["pendingVReplicas"]) == (6, 250)


def test_it_is_made_in_steps_between_which_others_may_run(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "STEP_OBJECTS", 10)
    scene = Scene(replicas=100).pods(*range(100))
    steps = Overview(scene.state).steps()
    next(steps)
    scene.no_pod(99)
    assert sum(1 for _ in steps) >= 9


def test_a_pool_that_only_vpods_speak_of_is_told_as_one_that_is_not_there():
    scene = Scene().vpod("a", 1, pool="ns/none")
    found = overview(scene.state)
    assert [(row["name"], row["found"]) for row in found["pools"]] == [
        (POOL, True),
        ("ns/none", False),
    ]
    assert (found["pools"][1]["pendingVReplicas"], found["pools"][1]["vpods"]) == (1, 1)
    assert [
        (row["vpod"], row["pool"], row["pending"], row["reason"]) for row in found["waiting"]
    ] == [("tenant/a", "ns/none", 1, "PoolNotFound")]


def test_vpods_whose_pool_has_been_deleted_are_told_although_all_of_them_is_placed():
    scene = Scene(replicas=2).pod(0, {"tenant/a": 2}, ready=True).pod(1, {"tenant/a": 1})
    scene.vpod("a", 3, {0: 2, 1: 1}).vpod("none", 0)
    scene.state.adapter_pool_changed(scene.pool.adapter_pool, None)
    found = overview(scene.state)
    (pool,) = found["pools"]
    assert (pool["found"], pool["unservedVReplicas"], pool["overcommittedPods"]) == (False, 1, 0)
    assert [(row["name"], row["unserved"], row["state"]) for row in found["pods"]] == [
        ("dispatcher-1", 1, "the pod is not Ready"),
        ("dispatcher-0", 0, "its AdapterPool does not exist"),
    ]
    assert [(row["vpod"], row["pending"], row["reason"]) for row in found["waiting"]] == [
        ("tenant/a", 0, "PoolNotFound"),
        ("tenant/none", 0, "PoolNotFound"),
    ]


def test_a_pool_that_is_not_there_keeps_no_pool_that_is_there_out_of_the_list(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(module, "POOLS_LISTED_MAX", 1)
    monkeypatch.setattr(module, "WAITING_LISTED_MAX", 1)
    scene = Scene().vpod("b", 5)
    for name in "acde":
        scene.vpod(name, 900, pool=f"ns/{name}").vpod(f"{name}0", 0, pool=f"ns/{name}")
    found = overview(scene.state)
    assert ([row["name"] for row in found["pools"]], found["poolsNotListed"]) == ([POOL], 4)
    assert (len(found["waiting"]), found["waitingNotListed"]) == (1, 8)
    assert found["waiting"][0]["pending"] == 900, (
        "before those that wait for nothing but their pool"
    )


def test_pods_that_do_not_exist_are_listed_while_something_is_published_on_them():
    scene = Scene(replicas=2).pod(0, {"tenant/a": 1}, ready=True).vpod("a", 8, {0: 1, 1: 5, 7: 2})
    scene.vpod("b", 1).reserve("b", 1, 1)
    rows = overview(scene.state)["pods"]
    assert [(row["name"], row["unserved"], row["state"]) for row in rows] == [
        ("dispatcher-1", 5, "the pod is not there"),
        ("dispatcher-7", 2, "the pod is not there"),
        ("dispatcher-0", 0, ""),
    ]
    (pool,) = overview(scene.state)["pools"]
    assert (pool["pods"], pool["unservedVReplicas"]) == (1, 7), "they are no pods"


def test_without_its_statefulset_a_pool_lists_the_pods_that_were():
    scene = Scene(replicas=2).vpod("a", 8, {0: 3, 1: 5})
    scene.state.stateful_set_changed(scene.pool.stateful_set, None)
    rows = overview(scene.state)["pods"]
    assert [(row["name"], row["unserved"]) for row in rows] == [
        ("dispatcher-1", 5),
        ("dispatcher-0", 3),
    ]


def test_pods_that_serve_nobody_come_first_and_those_alike_by_ordinal():
    scene = Scene(replicas=12)
    for ordinal in range(12):
        scene.pod(ordinal, {}, ready=ordinal not in {2, 10, 11})
    scene.vpod("a", 7, {0: 1, 2: 2, 10: 2, 11: 3})
    pods = overview(scene.state)["pods"]
    assert isinstance(pods, list)
    assert [(pod["name"], pod["unserved"]) for pod in pods[:4]] == [
        ("dispatcher-11", 3),
        ("dispatcher-2", 2),
        ("dispatcher-10", 2),
        ("dispatcher-0", 0),
    ]


def test_used_free_and_closed_slots_are_all_slots():
    """The figures that a person could not add up: 40 used and 7 free of 60."""
    scene = Scene(replicas=3, slots=20).pod(0, {"tenant/a": 20}).pod(1, {"tenant/a": 13})
    scene.pod(2, {"tenant/a": 7}, unschedulable=True).vpod("a", 40, {0: 20, 1: 13, 2: 7})
    assert scene.pool.slot_counts() == (60, 40, 7, 13)


@given(
    st.lists(st.tuples(st.integers(0, 20), st.booleans(), st.booleans()), min_size=1, max_size=6),
    st.integers(0, 63),
)
def test_no_slot_is_counted_twice_or_left_out(pods: list[tuple[int, bool, bool]], closed: int):
    scene = Scene(replicas=len(pods), slots=20)
    for ordinal, (held, unschedulable, deleting) in enumerate(pods):
        scene.pod(
            ordinal,
            {"tenant/a": held} if held else {},
            unschedulable=unschedulable,
            deleting=deleting,
        )
    scene.vpod(
        "a",
        sum(held for held, _, _ in pods),
        {at: held for at, (held, _, _) in enumerate(pods) if held},
    )
    scene.pool.set_closed(closed & ((1 << len(pods)) - 1))
    counts = scene.pool.slot_counts()
    assert counts.used + counts.free + counts.closed == counts.total == 20 * len(pods)
    assert counts.free == scene.pool.free_slots()
