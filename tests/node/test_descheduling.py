"""Which pods should leave their nodes, and which may be evicted."""

from typing import Any

import pytest

from extender.engine.state.cluster_state import ClusterState
from extender.model.node_fit import NodeFit, Taint, Toleration
from extender.model.timestamps import timestamp
from extender.node.descheduling import misplaced_pods, why_no_pod, why_not
from tests.support.builders import POOL, a_node, a_pod, a_pool, a_stateful_set, a_vpod

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


def verdict(state: ClusterState) -> list[tuple[str, str, str]]:
    """(Pod, reason, why it may not be evicted)."""
    pool = state.pool(POOL)
    return [
        (one.pod.name, str(one.reason), why_not(state, pool, one, NOW_S))
        for one in misplaced_pods(state, pool)
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
        pytest.param({}, "", id="all are Ready"),
        pytest.param({"ready": False}, "dispatcher-0 is not Ready", id="one is not Ready"),
        pytest.param({"deleting": True}, "dispatcher-0 is not Ready", id="one is leaving"),
        pytest.param(
            {"stateful_set": {"update_revision": "b"}, "revision": "a"},
            "an update is under way",
            id="an older revision",
        ),
        pytest.param(
            {"stateful_set": {"is_observed": False}}, "has not seen", id="a change just now"
        ),
    ],
)
def test_no_pod_is_evicted_while_the_pool_is_not_whole(fields, why):
    blocked = why_no_pod(a_cluster(**fields).pool(POOL))
    assert why in blocked
    assert bool(why) is bool(blocked)


def test_the_pod_with_fewer_vreplicas_goes_first():
    state = a_cluster({"taints": (TAINT,)}, {"taints": (TAINT,)})
    state.vpod_changed(None, a_vpod("a", 3, {0: 1, 1: 2}))
    assert [name for name, *_ in verdict(state)] == ["dispatcher-0", "dispatcher-1"]
