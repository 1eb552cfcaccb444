"""What the state collector says of a pool and its vpods (compared with Knative's State in
tests/conformance).
"""

import pytest

from extender.engine.state.collector import CollectedPool, CollectedVPod, collect, collect_vpod
from tests.support.builders import POOL, Scene, a_node


def pool_of(scene: Scene) -> CollectedPool:
    return collect(scene.state.pools[POOL])


def vpod_of(scene: Scene, name: str = "a") -> CollectedVPod:
    return collect_vpod(scene.state.pools[POOL], f"tenant/{name}")


def three_zones(**fields) -> Scene:
    """Three pods of 20 slots, each on a node in a zone of its own."""
    scene = Scene(replicas=3, **fields)
    for index in range(3):
        scene.node(a_node(f"node-{index}", f"z{index}"))
        scene.pod(index, node=f"node-{index}")
    return scene


def test_a_pool_of_nothing_is_empty_and_not_broken():
    found = pool_of(Scene(replicas=0))
    assert (found.replicas, found.schedulable_pods, found.last_ordinal) == (0, (), -1)
    assert (found.free_list(), found.free_capacity, found.unschedulable, found.missing_pods) == (
        [],
        0,
        {},
        0,
    )


def test_the_spread_of_a_vpod_is_counted_over_pods_nodes_and_zones():
    scene = three_zones()
    scene.node(a_node("node-2", "z1")).vpod("a", 9, {0: 1, 1: 3, 2: 5})
    found = vpod_of(scene)
    assert found.pod_spread == {"dispatcher-0": 1, "dispatcher-1": 3, "dispatcher-2": 5}
    assert found.node_spread == {"node-0": 1, "node-1": 3, "node-2": 5}
    assert found.zone_spread == {"z0": 1, "z1": 8}
    assert (found.expected, found.pending, found.elsewhere) == (9, 0, {})


def test_free_slots_are_those_that_nobody_holds_and_negative_where_a_pod_is_overcommitted():
    scene = three_zones(slots=4)
    scene.vpod("a", 3, {0: 3}).vpod("b", 6, {0: 3, 1: 1}, weight=2)
    found = pool_of(scene)
    assert found.free_list() == [4 - 3 - 6, 2, 4]
    assert found.free_capacity == -5 + 2 + 4
    assert (found.capacity, found.schedulable_pods, found.last_ordinal) == (4, (0, 1, 2), 2)


def test_what_is_decided_counts_before_it_is_committed():
    scene = three_zones(slots=4).vpod("a", 3, {0: 1}).reserve("a", 1, 2)
    assert pool_of(scene).free_list() == [3, 2, 4]
    found = vpod_of(scene)
    assert found.pod_spread == {"dispatcher-0": 1, "dispatcher-1": 2}
    assert found.reserved == {"dispatcher-1": 2}
    assert found.pending == 2, "the status does not say it yet"
    scene.vpod("a", 3, {0: 1, 1: 2})
    assert (vpod_of(scene).reserved, vpod_of(scene).pending) == ({}, 0)


@pytest.mark.parametrize(
    ("pod", "node", "why"),
    [
        pytest.param({"unschedulable": True}, {}, "marked unschedulable", id="annotated"),
        pytest.param({"node": ""}, {}, "not bound", id="pending"),
        pytest.param({"deleting": True}, {}, "being deleted", id="deleting"),
        pytest.param({}, {"cordoned": True}, "node cordoned", id="cordoned"),
        pytest.param({}, {"ready": False}, "node not ready", id="not-ready-or-unreachable"),
        pytest.param({"node": "gone"}, {}, "node unknown", id="unknown-node"),
    ],
)
def test_a_pod_that_takes_no_work_says_why_and_what_it_has_is_elsewhere(pod, node, why):
    scene = three_zones()
    scene.node(a_node("node-1", "z1", **node)).pod(1, **{"node": "node-1", **pod})
    scene.vpod("a", 3, {0: 1, 1: 2})
    found = pool_of(scene)
    assert found.unschedulable == {"dispatcher-1": why}
    assert found.schedulable_pods == (0, 2)
    assert found.free_list() == [19, 18, 20], "its slots are taken all the same"
    assert vpod_of(scene).pod_spread == {"dispatcher-0": 1}
    assert vpod_of(scene).elsewhere == {"dispatcher-1": 2}
    assert vpod_of(scene).zone_spread == {"z0": 1}


def test_a_pod_that_was_not_ready_for_too_long_says_so():
    scene = three_zones().vpod("a", 1, {2: 1})
    scene.state.pools[POOL].set_abandoned(frozenset({"dispatcher-2"}))
    assert pool_of(scene).unschedulable == {"dispatcher-2": "not Ready for too long"}


def test_an_ordinal_that_is_gone_is_named_while_something_stands_there():
    scene = three_zones().vpod("a", 1, {2: 1}).stateful_set(2)
    found = pool_of(scene)
    assert found.unschedulable == {"dispatcher-2": "ordinal is gone"}
    assert (found.replicas, found.last_ordinal, found.missing_pods) == (2, 2, 0)


def test_ordinals_without_a_pod_are_counted():
    scene = Scene(replicas=4).pods(0, 1).vpod("a", 2, {3: 2})
    found = pool_of(scene)
    assert found.missing_pods == 2
    assert found.unschedulable == {"dispatcher-3": "does not exist"}


def test_ordinals_need_not_start_at_0():
    scene = Scene(replicas=2, start=5, slots=4).pods(5, 6).vpod("a", 1, {6: 1})
    found = pool_of(scene)
    assert (found.schedulable_pods, found.free_slots, found.free_capacity) == (
        (5, 6),
        {5: 4, 6: 3},
        7,
    )


def test_nodes_that_take_no_work_are_in_no_zone():
    scene = three_zones()
    scene.node(a_node("node-2", "z2", cordoned=True))
    assert pool_of(scene).zone_of == {"node-0": "z0", "node-1": "z1"}
