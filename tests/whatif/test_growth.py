"""Pods that are to come go where kube-scheduler would put them, as far as is known here."""

from collections import Counter

import pytest

from extender.model.ledger import Share
from extender.model.node_fit import NodeFit, Taint, Toleration
from extender.whatif.growth import add_pods, autoscale, bind_missing
from extender.whatif.snapshot import Snapshot
from extender.whatif.trial import OutOfTime, Trial
from tests.support.builders import NS, POOL, Scene, a_node, a_vpod


def copied(scene: Scene) -> Trial:
    return Trial(Snapshot.of(scene.state, [POOL]).state())


def grown(scene: Scene, count: int) -> list[str]:
    """Nodes of the pods that were added."""
    trial = copied(scene)
    return [pod.node for pod in add_pods(trial, trial.state.pool(POOL), count)]


def test_a_new_pod_holds_what_vpods_of_another_pool_still_publish_on_it():
    scene = Scene(replicas=0, slots=4).vpod("b", 4)
    other = f"{NS}/other"
    scene.state.vpod_changed(None, a_vpod("a", 3, {0: 3}, pool=other))
    trial = Trial(Snapshot.of(scene.state, [POOL, other]).state())
    (pod,) = add_pods(trial, trial.state.pool(POOL), 1)
    assert pod.ledger == {"tenant/a": Share(3)}, "as the bind of that pod writes it"
    assert trial.state.pool(POOL).pods[pod.name].free == 1


def test_pods_spread_over_zones_and_then_over_nodes():
    scene = Scene(replicas=0)
    for index, zone in enumerate(("z1", "z1", "z2")):
        scene.node(a_node(f"n{index}", zone))
    assert grown(scene, 6) == ["n0", "n2", "node-0", "n1", "n2", "node-0"]


def test_where_vpods_wait_a_pod_goes_to_the_zone_that_has_least_of_them():
    scene = (
        Scene(replicas=1, slots=4, profile="ha").node(a_node("n1", "z1")).pod(0, {"tenant/a": 2})
    )
    scene.vpod("a", 4, {0: 2})
    assert grown(scene, 1) == ["n1"]


@pytest.mark.parametrize("profile", ["default", "spread", "ha"])
def test_pods_that_share_what_waits_go_to_all_zones_though_one_has_less_of_it_now(profile):
    scene = Scene(replicas=3, slots=4, profile=profile)
    for index, there in enumerate((4, 4, 3)):
        scene.node(a_node(f"node-{index}", f"z{index}")).pod(
            index, {"tenant/a": there}, node=f"node-{index}"
        )
    scene.vpod("a", 50, {0: 4, 1: 4, 2: 3})
    assert Counter(grown(scene, 9)) == {"node-0": 3, "node-1": 3, "node-2": 3}


@pytest.mark.parametrize(
    "node",
    [
        pytest.param({"cordoned": True}, id="cordoned"),
        pytest.param({"ready": False}, id="not ready"),
        pytest.param({"taints": (Taint("gpu", "", "NoSchedule"),)}, id="tainted"),
        pytest.param({"slots": 3}, id="without slots left"),
    ],
)
def test_a_node_that_takes_no_such_pod_gets_none(node):
    scene = Scene(replicas=0, slots=4).stateful_set(0, fit=NodeFit())
    scene.node(a_node(**node))
    assert grown(scene, 1) == []


def test_what_the_template_tolerates_counts():
    scene = Scene(replicas=0, slots=4).stateful_set(
        0, fit=NodeFit((Toleration(operator="Exists"),))
    )
    scene.node(a_node(taints=(Taint("gpu", "", "NoSchedule"),)))
    assert grown(scene, 1) == ["node-0"]


def test_nodes_that_declare_slots_are_filled_and_no_more():
    scene = Scene(replicas=0, slots=4).node(a_node(slots=8)).node(a_node("n1", "z1", slots=4))
    assert sorted(grown(scene, 5)) == ["n1", "node-0", "node-0"]


def test_a_pod_whose_placements_no_ledger_holds_gets_no_node_and_the_others_do():
    scene = Scene(replicas=2, slots=10_000).node(a_node("n0", "z0"))
    for index in range(560):
        scene.vpod(f"{index:04}" + "x" * 230, 1, {0: 1})
    with Trial(scene.state) as trial:
        found = bind_missing(trial, scene.pool)
    assert [pod.name for pod in found] == ["dispatcher-1"]


def test_an_ordinal_comes_back_to_its_node_with_what_it_held():
    scene = (
        Scene(replicas=2)
        .node(a_node("n1", "z0"))
        .pod(0)
        .pod(1, {"tenant/a": 3}, node="n1")
        .vpod("a", 3, {1: 3})
    )
    scene.no_pod(1)
    trial = copied(scene)
    (pod,) = bind_missing(trial, trial.state.pool(POOL))
    assert (pod.name, pod.node, dict(pod.ledger)) == ("dispatcher-1", "n1", {"tenant/a": Share(3)})


def test_a_pod_that_is_going_is_replaced_and_keeps_nothing_of_its_mark():
    scene = (
        Scene(replicas=1)
        .pod(0, {"tenant/a": 1}, deleting=True, unschedulable=True)
        .vpod("a", 1, {0: 1})
    )
    trial = copied(scene)
    (pod,) = bind_missing(trial, trial.state.pool(POOL))
    assert (pod.unschedulable, dict(pod.ledger)) == (False, {"tenant/a": Share(1)})


def test_the_autoscaler_adds_what_is_needed_within_maxpods():
    for most, replicas in ((None, 3), (2, 2)):
        scene = Scene(replicas=1, slots=4, max_pods=most).pods(0).vpod("a", 12)
        trial = copied(scene)
        pool = trial.state.pool(POOL)
        trial.decide(pool, pool.vpods["tenant/a"])
        autoscale(trial, pool, ["tenant/a"])
        assert pool.stateful_set is not None
        assert pool.stateful_set.replicas == replicas
        assert pool.decided_vreplicas("tenant/a") == 4 * replicas


def test_the_autoscaler_stops_where_no_node_is_left():
    scene = (
        Scene(replicas=1, slots=4)
        .node(a_node(slots=4))
        .pod(0, {}, slots=4, slots_request=4)
        .vpod("a", 9)
    )
    trial = copied(scene)
    assert not autoscale(trial, trial.state.pool(POOL), ["tenant/a"])


def test_the_autoscaler_adds_no_more_pods_than_it_may_though_some_find_no_node():
    # One node takes one pod. Both that are added are replicas, whether they find a node or not.
    scene = Scene(replicas=0, slots=4).node(a_node(slots=4)).vpod("a", 40)
    trial = copied(scene)
    pool = trial.state.pool(POOL)
    autoscale(trial, pool, ["tenant/a"], most=2)
    assert pool.stateful_set is not None
    assert pool.stateful_set.replicas == 2


def test_growing_ends_when_the_time_is_up():
    scene = Scene(replicas=0)
    trial = Trial(Snapshot.of(scene.state, [POOL]).state(), expired=lambda: True)
    with pytest.raises(OutOfTime):
        add_pods(trial, trial.state.pool(POOL), 1)
