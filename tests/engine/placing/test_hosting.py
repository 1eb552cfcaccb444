"""Hard rules and places where the pool's pods could never stand, or stand no longer."""

from dataclasses import replace

from extender.engine.placing.grow import grow_by_plugins
from extender.engine.policy.profile import Profile
from extender.engine.policy.profiles import HA_PROFILE
from extender.engine.policy.spreading import NodeSpread
from extender.model.node_fit import NodeFit, Taint, Toleration
from tests.support.builders import Scene, a_node, a_vpod

CONTROL_PLANE = (Taint("node-role.kubernetes.io/control-plane", "", "NoSchedule"),)
SSD = NodeFit(selector=(("disk", "ssd"),))


def two_zones(fit: NodeFit | None, **third) -> Scene:
    """Pods 0 and 1 in z0 and z1, whose nodes have an ssd, and a node in a third zone
    without any.
    """
    scene = Scene(replicas=2).stateful_set(2, fit=fit)
    scene.node(a_node("node-0", "z0", labels={"disk": "ssd"}))
    scene.node(a_node("node-1", "z1", labels={"disk": "ssd"}))
    scene.node(a_node("node-2", "unknown", **third))
    return scene.pod(0, node="node-0").pod(1, node="node-1")


def grown(
    scene: Scene, missing: int, profile: Profile = HA_PROFILE, **kept: int
) -> tuple[dict[int, int], int]:
    standing = {f"dispatcher-{name[1:]}": count for name, count in kept.items()}
    return grow_by_plugins(scene.pool, a_vpod(), standing, missing, scene.pool.free_of, profile)


def test_a_zone_of_tainted_nodes_does_not_hold_growth_back():
    assert grown(two_zones(NodeFit(), taints=CONTROL_PLANE), 6) == ({0: 3, 1: 3}, 0)


def test_a_zone_that_the_node_selector_excludes_does_not_hold_growth_back():
    assert grown(two_zones(SSD), 6) == ({0: 3, 1: 3}, 0)


def test_a_zone_whose_taint_is_tolerated_waits_for_its_pod():
    tolerant = NodeFit((Toleration(operator="Exists"),))
    assert grown(two_zones(tolerant, taints=CONTROL_PLANE), 6) == ({0: 1, 1: 1}, 4)


def test_every_zone_counts_where_nothing_is_known_of_the_template():
    assert grown(two_zones(None, taints=CONTROL_PLANE), 6) == ({0: 1, 1: 1}, 4)


def test_a_zone_where_a_pod_of_the_pool_stands_counts_though_no_other_could_come():
    scene = two_zones(SSD).stateful_set(3, fit=SSD).pod(2, {"tenant/other": 20}, node="node-2")
    assert grown(scene, 6) == ({0: 1, 1: 1}, 4)


def test_a_new_template_counts_from_the_next_decision_on():
    scene = two_zones(NodeFit(), labels={"disk": "hdd"})
    assert grown(scene, 6) == ({0: 1, 1: 1}, 4)
    assert grown(scene.stateful_set(2, fit=SSD), 6) == ({0: 3, 1: 3}, 0)


def test_nodes_where_no_pod_could_stand_do_not_hold_growth_back():
    by_node = Profile(name="x", filters=(NodeSpread(1, count_empty=True),))
    assert grown(two_zones(NodeFit(), taints=CONTROL_PLANE), 6, by_node) == ({0: 3, 1: 3}, 0)
    assert grown(two_zones(NodeFit()), 6, by_node) == ({0: 1, 1: 1}, 4)


def test_a_pod_that_is_being_created_again_counts_where_it_last_stood():
    scene = two_zones(SSD).vpod("a", 5, {0: 3, 1: 2})
    scene.pod(0, {"tenant/a": 3}, node="node-0").pod(1, {"tenant/a": 2}, node="node-1")
    scene.stateful_set(3, fit=SSD).pod(2, node="node-0")
    scene.no_pod(0)
    assert grown(scene, 3, o0=3, o1=2) == ({1: 2, 2: 1}, 0), "4 and 4 once it is back"


def test_a_pod_that_waits_for_a_node_counts_where_it_last_stood():
    scene = two_zones(SSD).vpod("a", 3, {0: 3}).pod(0, {"tenant/a": 3}, node="node-0").no_pod(0)
    scene.pod(0, node="", uid="next")
    assert grown(scene, 9, o0=3) == ({1: 4}, 5)


def test_a_node_that_is_lost_with_its_zone_is_no_zone_to_count():
    scene = two_zones(SSD).vpod("a", 2, {0: 1, 1: 1}).pod(0, {"tenant/a": 1}, node="node-0")
    node = scene.state.nodes["node-0"]
    scene.node(replace(node, ready=False))
    assert grown(scene, 3, o0=1, o1=1) == ({1: 3}, 0)
