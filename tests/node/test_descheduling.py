"""Which pods should leave their nodes, and which may be evicted."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from extender.engine.state.cluster_state import ClusterState
from extender.model.node_fit import NodeFit, Taint, Toleration
from extender.model.objects import Handoff, HandoffMode
from extender.model.timestamps import timestamp
from extender.node.descheduling import (
    Blocked,
    examination_steps,
    may_go,
    why_no_pod,
    why_not,
)
from extender.node.verbs import filter_nodes
from tests.support.builders import POOL, Scene, a_node, a_pod, a_pool, a_stateful_set, a_vpod
from tests.support.steps import result_of

NOW_S = 1_800_000_000.0
OLD = timestamp(NOW_S - 7200)
TAINT = Taint("dedicated", "batch", "NoSchedule")
ALL = ("NodeTaints", "NodeAffinity", "ZoneSpread")


def a_cluster(first=None, other=None, *, pool=None, stateful_set=None, **pod) -> ClusterState:
    """Two pods on two nodes: dispatcher-0 on node-0, with the fields of ``pod``, and dispatcher-1
    on node-1. ``first``, ``other``: fields of these nodes.
    """
    state = ClusterState()
    state.node_changed(None, a_node("node-0", "z0", **(first or {})))
    state.node_changed(None, a_node("node-1", "z1", **(other or {})))
    state.stateful_set_changed(None, a_stateful_set(2, **(stateful_set or {})))
    state.adapter_pool_changed(None, a_pool(**{"descheduling": ALL, **(pool or {})}))
    usual: dict[str, Any] = {"ready": True, "created_at": OLD, "fit": NodeFit()}
    state.pod_changed(None, a_pod(0, {}, **{**usual, **pod}))
    state.pod_changed(None, a_pod(1, {}, **{**usual, "node": "node-1"}))
    return state


def note_of(blocked: Blocked | None) -> str:
    return blocked.note if blocked is not None else ""


def examined(state: ClusterState):
    return result_of(examination_steps(state, state.pool(POOL), NOW_S))


def verdict(state: ClusterState) -> list[tuple[str, str, str]]:
    """(Pod, reason, why it may not be evicted)."""
    pool = state.pool(POOL)
    return [
        (one.pod.name, str(one.reason), note_of(why_not(state, pool, one, NOW_S)))
        for one in examined(state).misplaced
    ]


@pytest.mark.parametrize(
    ("node", "fit", "reason"),
    [
        pytest.param({"taints": (TAINT,)}, NodeFit(), "NodeTaints", id="a taint"),
        pytest.param(
            {"taints": (TAINT,)},
            NodeFit((Toleration("dedicated", "Exists"),)),
            None,
            id="a taint that the pod tolerates",
        ),
        pytest.param({}, NodeFit(selector=(("disk", "ssd"),)), "NodeAffinity", id="a label gone"),
        pytest.param(
            {"labels": {"disk": "ssd"}}, NodeFit(selector=(("disk", "ssd"),)), None, id="a label"
        ),
        pytest.param({"cordoned": True}, NodeFit(), None, id="a cordon is no reason"),
    ],
)
def test_a_pod_should_leave_a_node_that_no_longer_fits_it(node, fit, reason):
    state = a_cluster(node, {"labels": {"disk": "ssd"}}, fit=fit)
    expected = [("dispatcher-0", reason, "")] if reason else []
    assert verdict(state) == expected


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        pytest.param({"pool": {"descheduling": ()}}, "does not have NodeTaints", id="no opt-in"),
        pytest.param({"claims_volumes": True}, "volume claims", id="volumes"),
        pytest.param({"created_at": timestamp(NOW_S - 60)}, "younger", id="young"),
        pytest.param({"other": {"cordoned": True}}, "no other node", id="the other is cordoned"),
        pytest.param({"other": {"taints": (TAINT,)}}, "no other node", id="the other is tainted"),
        pytest.param({"other": {"slots": 20}}, "no other node", id="the other is full"),
    ],
)
def test_a_misplaced_pod_may_stay_for_a_reason(fields, why):
    state = a_cluster({"taints": (TAINT,)}, **fields)
    assert why in {name: blocked for name, _, blocked in verdict(state)}["dispatcher-0"]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        pytest.param({}, "", id="nothing is under way"),
        pytest.param(
            {"stateful_set": {"update_revision": "b"}, "revision": "a"},
            "an update is under way",
            id="an older revision",
        ),
        pytest.param(
            {"stateful_set": {"update_revision": "b", "updates_from": 2}, "revision": "a"},
            "",
            id="older revisions below the partition",
        ),
        pytest.param(
            {"stateful_set": {"update_revision": "b", "updates_from": None}, "revision": "a"},
            "",
            id="older revisions under OnDelete",
        ),
        pytest.param(
            {"stateful_set": {"is_observed": False}}, "has not seen", id="a change just now"
        ),
    ],
)
def test_no_pod_is_evicted_while_the_stateful_set_changes(fields, why):
    blocked = note_of(why_no_pod(a_cluster(**fields).pool(POOL)))
    assert why in blocked
    assert bool(why) is bool(blocked)


TAINTED = {"taints": (TAINT,)}


def chosen(state: ClusterState) -> tuple[str, str]:
    """The pod to evict now, or why there is none."""
    found = examined(state)
    return (found.chosen.pod.name if found.chosen else "", note_of(found.blocked))


@pytest.mark.parametrize("fields", [{"ready": False}, {"deleting": True}])
def test_a_pod_that_serves_stays_while_another_is_not_ready(fields):
    state = a_cluster({}, TAINTED, **fields)
    state.node_changed(None, a_node("node-2", "z2"))
    assert chosen(state) == ("", "pod dispatcher-0 is not Ready")


def test_a_pod_that_is_not_ready_itself_goes_first_however_much_it_holds():
    state = a_cluster(TAINTED, TAINTED, ready=False)
    state.node_changed(None, a_node("node-2", "z2"))
    state.vpod_changed(None, a_vpod("a", 3, {0: 2, 1: 1}))
    assert chosen(state) == ("dispatcher-0", "")
    state.node_changed(state.nodes["node-2"], None)
    assert chosen(state) == ("", "no other node would take it")


def test_pods_that_are_not_ready_do_not_wait_for_each_other():
    state = a_cluster(TAINTED, ready=False)
    other = state.pool(POOL).pods["dispatcher-1"].pod
    state.pod_changed(other, a_pod(1, {}, node="node-1", ready=False, created_at=OLD))
    assert chosen(state) == ("dispatcher-0", "")


MAINTAINED = {"descheduling": ("NodeMaintenance",)}
CORDON = Toleration("node.kubernetes.io/unschedulable", "Exists")


@pytest.mark.parametrize(
    ("pool", "pod", "found"),
    [
        pytest.param(
            MAINTAINED, {}, [("dispatcher-0", "NodeMaintenance", "")], id="its pool has opted in"
        ),
        pytest.param({"descheduling": ALL}, {}, [], id="its pool has not"),
        pytest.param(MAINTAINED, {"fit": NodeFit((CORDON,))}, [], id="it tolerates a cordon"),
        pytest.param(
            MAINTAINED,
            {"created_at": timestamp(NOW_S - 1)},
            [("dispatcher-0", "NodeMaintenance", "")],
            id="it is young, and maintenance goes on from node to node",
        ),
    ],
)
def test_a_pod_should_leave_a_cordoned_node(pool, pod, found):
    assert verdict(a_cluster({"cordoned": True}, pool=pool, **pod)) == found


def test_a_pod_of_a_node_under_maintenance_that_is_not_ready_stays():
    """The kubelet could not end it."""
    node = {"cordoned": True, "ready": False}
    handoff = Handoff(mode=HandoffMode.OVERLAP)
    state = a_cluster(node, pool={**MAINTAINED, "handoff": handoff}, ready=False)
    assert examined(state).chosen is None
    assert note_of(examined(state).blocked) == "node node-0 is not Ready"


def test_where_shares_are_handed_over_all_pods_of_a_node_may_go_and_wait_for_their_turns():
    for handoff, allowed in (
        (Handoff(mode=HandoffMode.OVERLAP), ["dispatcher-1", "dispatcher-0"]),
        (None, []),
    ):
        pool = {**MAINTAINED, "handoff": handoff}
        state = a_cluster({"cordoned": True}, pool=pool)
        state.stateful_set_changed(state.pool(POOL).stateful_set, a_stateful_set(3))
        beside = a_pod(1, {}, ready=True, created_at=OLD, fit=NodeFit())
        state.pod_changed(state.pool(POOL).pods["dispatcher-1"].pod, beside)
        assert [one.pod.name for one in examined(state).allowed] == allowed


def test_a_pod_of_a_node_that_is_not_ready_does_not_go_for_that():
    state = a_cluster({**TAINTED, "ready": False}, ready=False)
    assert chosen(state) == ("", "pod dispatcher-0 is not Ready")


def test_a_pod_that_has_become_ready_since_it_was_chosen_waits_for_the_others():
    state = a_cluster(TAINTED, ready=False)
    pool = state.pool(POOL)
    one = examined(state).chosen
    assert may_go(state, pool, one, NOW_S)
    other = pool.pods["dispatcher-1"].pod
    state.pod_changed(other, a_pod(1, {}, node="node-1", ready=False, created_at=OLD))
    assert may_go(state, pool, one, NOW_S)
    state.pod_changed(one.pod, replace(one.pod, ready=True))
    assert not may_go(state, pool, one, NOW_S)


def test_the_pod_with_fewer_vreplicas_goes_first():
    state = a_cluster({"taints": (TAINT,)}, {"taints": (TAINT,)})
    state.vpod_changed(None, a_vpod("a", 3, {0: 1, 1: 2}))
    assert [name for name, *_ in verdict(state)] == ["dispatcher-0", "dispatcher-1"]


def in_zones(*nodes: str, profile: str = "ha", **a: int) -> Scene:
    """Three zones with a node each, node-0 in z0 and so on. Pod i is on ``nodes[i]`` and has one
    vreplica of vpod a. ``a``: other numbers, by pod, such as p1=3.
    """
    counts = {i: a.get(f"p{i}", 1) for i in range(len(nodes))}
    scene = Scene(replicas=len(nodes), profile=profile, descheduling=("ZoneSpread",))
    scene.node(a_node("node-1", "z1")).node(a_node("node-2", "z2"))
    scene.vpod("a", sum(counts.values()), counts)
    for i, node in enumerate(nodes):
        stands(scene, i, node, {"tenant/a": counts[i]})
    return scene


def stands(scene: Scene, ordinal: int, node: str, ledger: dict[str, int]) -> None:
    fields: dict[str, Any] = {"ready": True, "created_at": OLD, "fit": NodeFit()}
    scene.pod(ordinal, ledger, node=node, **fields)


OVERFULL = ("node-0", "node-1", "node-0")
"""z2 was lost, and its pod has come back in z0."""


@pytest.mark.parametrize(
    ("scene", "leaving"),
    [
        pytest.param(
            in_zones(*OVERFULL).node(a_node("node-2", "z2", ready=False)),
            [],
            id="the zone is still lost",
        ),
        pytest.param(
            in_zones(*OVERFULL), ["dispatcher-2", "dispatcher-0"], id="the zone has recovered"
        ),
        pytest.param(in_zones("node-0", "node-1", "node-2"), [], id="each zone has its share"),
        pytest.param(in_zones("node-0", "node-1", "node-0", "node-1", p0=0, p1=0), [], id="empty"),
        pytest.param(in_zones(*OVERFULL, profile="spread"), [], id="a rule that is only a score"),
        pytest.param(
            in_zones(*OVERFULL).node(a_node("node-2", "z2", cordoned=True)),
            [],
            id="the other zone is cordoned",
        ),
        pytest.param(
            in_zones(*OVERFULL).node(a_node("node-2", "z2", slots=19)),
            [],
            id="the other zone is full",
        ),
        pytest.param(
            in_zones(*OVERFULL).node(a_node("node-2", "z2", taints=(TAINT,))),
            [],
            id="the other zone is for other pods",
        ),
        pytest.param(
            in_zones("node-0", "node-1", "node-2", p0=4),
            [],
            id="no zone could have so many",
        ),
        pytest.param(
            in_zones("node-0", "node-1", "node-0", p0=3),
            ["dispatcher-2"],
            id="only the pod that another zone can have",
        ),
    ],
)
def test_pods_of_an_overfull_zone_should_leave_if_another_zone_could_have_them(scene, leaving):
    found = [(name, reason) for name, reason, _ in verdict(scene.state)]
    assert found == [(name, "ZoneSpread") for name in leaving]


def comes_back(scene: Scene, ordinal: int) -> list[str]:
    """The pod is gone. The nodes that filter allows for its next pod."""
    known = scene.pool.pods[f"dispatcher-{ordinal}"].pod
    scene.no_pod(ordinal)
    pending = a_pod(ordinal, None, node="", created_at=OLD, uid="new", fit=NodeFit())
    assert known is not None
    nodes = scene.state.nodes
    return list(filter_nodes(scene.state, pending, sorted(nodes), nodes.get).passed)


def test_an_evicted_pod_comes_back_in_the_other_zone_and_stays_there():
    scene = in_zones(*OVERFULL)
    chosen = examined(scene.state).chosen
    assert chosen.pod.name == "dispatcher-2"
    assert comes_back(scene, 2) == ["node-2"]
    stands(scene, 2, "node-2", {"tenant/a": 1})
    assert verdict(scene.state) == []


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_evictions_for_the_zone_rule_end_wherever_kube_scheduler_puts_the_pods(data: st.DataObject):
    """Each lowers the sum of squares of a vpod's counts by zone, and raises that of none."""
    pods, vpods = range(data.draw(st.integers(2, 5))), ("a", "b")
    node = st.sampled_from(["node-0", "node-1", "node-2", "node-3"])
    ledgers: list[dict[str, int]] = [{} for _ in pods]
    scene = Scene(replicas=len(pods), profile="ha", descheduling=("ZoneSpread",))
    scene.node(a_node("node-1", "z1")).node(a_node("node-2", "z2")).node(a_node("node-3", "z2"))
    for name in vpods:
        counts = {i: n for i in pods if (n := data.draw(st.integers(0, 3)))}
        scene.vpod(name, sum(counts.values()), counts)
        for i, count in counts.items():
            ledgers[i][f"tenant/{name}"] = count
    for i in pods:
        stands(scene, i, data.draw(node), ledgers[i])
    for _ in range(100):
        if (chosen := examined(scene.state).chosen) is None:
            break
        ordinal = chosen.pod.ordinal
        there = data.draw(st.sampled_from(comes_back(scene, ordinal)))
        stands(scene, ordinal, there, ledgers[ordinal])
        assert chosen.pod.name not in [one.pod.name for one in examined(scene.state).misplaced]
    assert examined(scene.state).chosen is None
