"""What would let a node take an adapter pod that none takes: each change is tried, and the least of
it is named.
"""

from dataclasses import replace
from typing import Any

import pytest

from extender.model.node_fit import NodeFit, Taint
from extender.model.objects import Node
from extender.whatif.fix import Fixes
from extender.whatif.node_verdicts import NodeVerdicts
from extender.whatif.pod_explanation import explain_pod, find_pod
from extender.whatif.pod_fixes import find_pod_fixes
from tests.support.builders import NS, Scene, a_node


def fixes_of(scene: Scene, ordinal: int = 0, **more: Any) -> Fixes:
    pool, known = find_pod(scene.state, f"{NS}/dispatcher-{ordinal}")
    assert known.pod is not None
    return find_pod_fixes(
        scene.state, pool, known, NodeVerdicts(scene.state, pool, known.pod), **more
    )


def explained(scene: Scene) -> Any:
    return explain_pod(scene.state, f"{NS}/dispatcher-0")


def changes(scene: Scene, ordinal: int = 0) -> dict[str, tuple[str, ...]]:
    return {fix.change: fix.nodes for fix in fixes_of(scene, ordinal).found}


def waiting(*nodes: Node, profile: str = "default") -> Scene:
    """dispatcher-0 waits, and these are the cluster."""
    scene = Scene(replicas=1, profile=profile)
    for node in list(scene.state.nodes.values()):
        scene.state.node_changed(node, None)
    for node in nodes:
        scene.node(node)
    return scene.pod(0, node="")


def test_a_cordon_that_would_be_enough_is_named_with_the_node():
    found = changes(waiting(a_node("n1", "z1", cordoned=True)))
    assert found["uncordon n1"] == ("n1",)


def test_a_node_that_is_away_helps_once_it_is_back():
    found = changes(
        waiting(a_node("n1", "z1", ready=False), a_node("n2", "z2", ready=False, cordoned=True))
    )
    assert found["n1 is Ready again"] == ("n1",)
    assert found["n2 is Ready again and uncordoned"] == ("n2",)


def test_slots_that_a_node_declares_are_raised_by_the_least_that_is_enough():
    """20 are needed, 7 are declared: with 19 it would still refuse."""
    scene = waiting(a_node("n1", "z1", slots=7))
    (fix,) = [fix for fix in fixes_of(scene).found if fix.field.startswith("status.allocatable")]
    assert (fix.before, fix.after, fix.nodes) == (7, 20, ("n1",))
    scene.node(a_node("n1", "z1", slots=19))
    assert explained(scene)["candidates"][0]["verdict"] == "refused"


def test_what_other_pods_take_of_a_nodes_slots_is_counted():
    scene = waiting(a_node("n1", "z1", slots=30))
    scene.stateful_set(2).pod(1, {}, node="n1")
    (fix,) = [fix for fix in fixes_of(scene).found if fix.field.startswith("status.allocatable")]
    assert (fix.before, fix.after) == (30, 40)


def test_labels_and_taints_that_are_in_the_way_are_named():
    taint = Taint("gpu", "", "NoSchedule")
    scene = waiting(
        a_node("n1", "z1", labels={"disk": "hdd"}),
        a_node("n2", "z2", labels={"disk": "ssd"}, taints=(taint,)),
    )
    scene.stateful_set(1, fit=NodeFit(selector=(("disk", "ssd"),)))
    found = changes(scene)
    assert found["n1 with the label disk=ssd"] == ("n1",)
    assert found["n2 without the taint gpu:NoSchedule"] == ("n2",)


def test_where_the_zone_rule_keeps_it_out_a_node_in_another_zone_or_more_skew_lets_it_in():
    scene = (
        Scene(replicas=2, profile="ha")
        .node(a_node("n1", "z1", cordoned=True))
        .pod(0, {"tenant/a": 1})
        .pod(1, {}, node="")
        .vpod("a", 2, {0: 1, 1: 1})
    )
    found = changes(scene, 1)
    assert found["uncordon n1"] == ("n1",)
    assert found["one node more in zone z1, like n1"] == ()
    assert found["zone skew 1 to 2"] == ("node-0",)
    assert "one node more in zone z0, like node-0" not in found, "that zone has its part"


@pytest.mark.parametrize(
    "scene",
    [
        pytest.param(lambda: Scene(replicas=1).pod(0, {}), id="it is bound"),
        pytest.param(lambda: waiting(a_node("n1", "z1")), id="a node takes it"),
        pytest.param(
            lambda: waiting(a_node("n1", "z1", cordoned=True)).pod(0, node="", deleting=True),
            id="it goes",
        ),
    ],
)
def test_nothing_is_tried_where_no_node_is_what_it_waits_for(scene: Any):
    assert fixes_of(scene()) == Fixes()


def test_what_was_tried_is_taken_back():
    scene = waiting(
        a_node("n1", "z1", cordoned=True),
        a_node("n2", "z2", ready=False),
        a_node("n3", "z3", slots=1),
    )
    before = dict(scene.state.nodes)
    profile = scene.pool.profile
    assert fixes_of(scene).tried > 3
    assert scene.state.nodes == before
    assert scene.pool.profile is profile


def test_when_time_is_up_what_was_found_is_the_answer():
    scene = waiting(*(a_node(f"n{index}", "z1", cordoned=True) for index in range(5)))
    asked = iter([False, False, True, True])
    found = fixes_of(scene, expired=lambda: next(asked))
    assert found.cut_short
    assert [fix.change for fix in found.found] == ["uncordon n0", "uncordon n1"]


def test_the_explanation_has_them_in_json():
    answer = explained(waiting(a_node("n1", "z1", cordoned=True)))
    first = answer["fixes"][0]
    assert (first["change"], first["object"], first["from"], first["to"], first["nodes"]) == (
        "uncordon n1", "Node n1", True, False, ["n1"],
    )  # fmt: skip
    assert not answer["fixesCutShort"]


def test_a_new_node_is_not_counted_before_it_is_there():
    scene = waiting(replace(a_node("n1", "z1"), cordoned=True))
    fixes_of(scene)
    assert sorted(scene.state.nodes) == ["n1"]
