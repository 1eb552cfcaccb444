"""Pods that carry a pool's label and are not its StatefulSet's: they count nowhere (by the
controller's UID).
"""

from typing import Any

import pytest

from extender.engine.pods.node_index import NodeIndex
from extender.engine.state.cluster_state import ClusterState
from extender.model.objects import AdapterPool, StatefulSet
from extender.node.verbs import pod_problem
from tests.support.builders import POOL, Scene, a_node, a_pod, a_pool, a_stateful_set, a_vpod

OWNED: dict[str, Any] = {"owner_uid": "sts"}
UNOWNED: dict[str, dict[str, Any]] = {
    "no controller": {"owner": "", "owner_uid": ""},
    "the controller's name alone": {"owner_uid": "another"},
    "another StatefulSet's": {"owner": "other", "owner_uid": "other"},
}


def scene(**fields) -> Scene:
    """A pool with a StatefulSet of UID ``sts``, one pod of its own, and an unowned pod in the place
    of the next.
    """
    made = Scene(replicas=2).stateful_set(2, uid="sts").pod(0, {}, **OWNED)
    return made.pod(1, {"tenant/ghost": 3}, uid="unowned", **fields)


@pytest.mark.parametrize(
    "fields", [pytest.param(fields, id=what) for what, fields in UNOWNED.items()]
)
def test_an_unowned_pod_takes_no_work_has_no_room_and_its_ledger_says_nothing(fields):
    pool = scene(**fields).pool
    assert pool.schedulable == pool.room == 0b01
    assert pool.claims_of("tenant/ghost") == {}
    assert pool.slot_counts().total == 20
    assert pool.overcommitted() == []
    assert "dispatcher-1" not in pool.pods


@pytest.mark.parametrize(
    "fields", [pytest.param(fields, id=what) for what, fields in UNOWNED.items()]
)
def test_an_unowned_pod_with_all_the_slots_in_the_world_takes_none_of_its_node(fields):
    made = scene(slots=2**31 - 1, slots_request=2**31 - 1, **fields)
    made.node(a_node(slots=40))
    assert set(made.state.pods_on_node["node-0"]) == {f"{POOL.rpartition('/')[0]}/dispatcher-0"}
    index: NodeIndex = made.state.node_index
    assert index.full_for(20, lambda _pod: 20) == set()


@pytest.mark.parametrize(
    "fields", [pytest.param(fields, id=what) for what, fields in UNOWNED.items()]
)
def test_no_verb_takes_an_unowned_pod_for_an_adapter(fields):
    made = scene(node="", **fields)
    unowned = a_pod(1, node="", uid="unowned", **fields)
    assert pod_problem(made.state, unowned) == "StatefulSetNotFound"
    assert pod_problem(made.state, a_pod(1, node="", **OWNED)) is None


def test_what_a_vpod_publishes_on_an_ordinal_stays_while_an_unowned_pod_is_in_its_place():
    made = scene(**UNOWNED["no controller"]).vpod("a", 4, {0: 2, 1: 2})
    assert made.pool.decided_of("tenant/a") == {"dispatcher-0": 2, "dispatcher-1": 2}
    assert list(made.pool.vpods_with_pending) == []


def test_a_pod_counts_from_when_its_stateful_set_adopts_it_until_it_lets_it_go():
    made = scene(**UNOWNED["no controller"])
    made.pod(1, {"tenant/a": 3}, uid="unowned", **OWNED)
    assert made.pool.schedulable == 0b11
    assert made.pool.decided_of("tenant/a") == {"dispatcher-1": 3}
    made.pod(1, {"tenant/a": 3}, uid="unowned", **UNOWNED["no controller"])
    assert made.pool.schedulable == 0b01
    assert made.pool.decided_of("tenant/a") == {}


def test_pods_of_a_stateful_set_that_is_made_anew_count_once_it_has_adopted_them():
    made = (
        Scene(replicas=1)
        .stateful_set(1, uid="old")
        .pod(0, {"tenant/a": 3}, owner_uid="old")
        .vpod("a", 3, {0: 3})
    )
    made.stateful_set(1, uid="new")
    assert made.pool.schedulable == 0
    assert made.pool.decided_of("tenant/a") == {"dispatcher-0": 3}, (
        "the ordinal is there: nothing moves"
    )
    made.pod(0, {"tenant/a": 3}, owner_uid="new")
    assert made.pool.schedulable == 0b1
    assert made.pool.decided_of("tenant/a") == {"dispatcher-0": 3}


@pytest.mark.parametrize(
    "order", [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]]
)
def test_it_does_not_matter_what_is_known_first(order):
    state = ClusterState()
    state.node_changed(None, a_node())
    pods = [
        a_pod(0, {"tenant/a": 1}, **OWNED),
        a_pod(1, {"tenant/ghost": 1}, owner="", owner_uid=""),
    ]

    def told(obj) -> None:
        match obj:
            case StatefulSet():
                state.stateful_set_changed(None, obj)
            case list():
                for pod in obj:
                    state.pod_changed(None, pod)
            case AdapterPool():
                state.adapter_pool_changed(None, obj)

    stateful_set = a_stateful_set(2, uid="sts")
    facts: list[Any] = [stateful_set, a_pool(), pods]
    for index in order:
        told(facts[index])
    assert state.pool(POOL).schedulable == 0b01
    assert set(state.pool(POOL).pods) == {"dispatcher-0"}
    unowned = pods[1]
    state.pod_changed(unowned, None)
    state.stateful_set_changed(stateful_set, None)
    state.vpod_changed(None, a_vpod("a", 1, {0: 1}))
    assert set(state.pool(POOL).pods) == {"dispatcher-0"}
