"""``Topology``: which nodes and zones could host a pool's pods, kept up to date without looking at
all nodes again.
"""

from dataclasses import replace

import pytest

from extender.engine.pods import topology as module
from extender.engine.pods.topology import Topology
from extender.model.node_fit import NodeFit, Taint
from extender.model.objects import Node
from tests.support.builders import a_node

SSD = NodeFit(selector=(("disk", "ssd"),))
ANYWHERE = NodeFit()
GPU = (Taint("gpu", "", "NoSchedule"),)


def a_topology(*nodes: Node) -> Topology:
    made = Topology()
    for node in nodes:
        made.node_changed(None, node)
    return made


@pytest.fixture
def asked(monkeypatch) -> list[str]:
    """Names of the nodes about which a template is asked."""
    names: list[str] = []
    fits = NodeFit.fits

    def counted(self, name, labels, taints):
        names.append(name)
        return fits(self, name, labels, taints)

    monkeypatch.setattr(NodeFit, "fits", counted)
    return names


def test_zones_that_no_pod_of_the_template_could_stand_in_do_not_count():
    made = a_topology(
        a_node("a", "z0", labels={"disk": "ssd"}),
        a_node("b", "z1"),
        a_node("c", "z2", labels={"disk": "ssd"}, taints=GPU),
        a_node("d", "z3", labels={"disk": "ssd"}, ready=False),
    )
    hosting = made.hosting(SSD)
    assert (hosting.zone_of, hosting.nodes_in) == ({"a": "z0"}, {"z0": 1})
    assert hosting.known_in == {"z0": 1, "z3": 1}
    assert made.zone_of == {"a": "z0", "b": "z1", "c": "z2"}


def test_where_nothing_is_known_of_the_template_all_zones_count():
    made = a_topology(a_node("a", "z0", taints=GPU))
    assert made.hosting(None).nodes_in == {"z0": 1}


def test_what_hosts_follows_labels_taints_zones_and_conditions():
    node = a_node("a", "z0")
    made = a_topology(node)
    assert made.hosting(SSD).nodes_in == {}
    for changed, expected in (
        (replace(node, labels={"disk": "ssd"}), {"z0": 1}),
        (replace(node, labels={"disk": "ssd"}, zone="z9"), {"z9": 1}),
        (replace(node, labels={"disk": "ssd"}, taints=GPU), {}),
        (replace(node, labels={"disk": "ssd"}), {"z0": 1}),
        (replace(node, labels={"disk": "ssd"}, cordoned=True), {}),
    ):
        made.node_changed(node, changed)
        node = changed
        assert made.hosting(SSD).nodes_in == expected
    assert made.hosting(SSD).known_in == {"z0": 1}
    made.node_changed(node, None)
    assert made.hosting(SSD).known_in == made.known_in == {}


def test_a_heartbeat_asks_nothing_and_a_change_asks_about_that_node_only(asked):
    nodes = [a_node(f"n{index}", "z0", labels={"disk": "ssd"}) for index in range(5)]
    made = a_topology(*nodes)
    made.hosting(SSD)
    asked.clear()
    beat = replace(nodes[3], resource_version="9", slots=7, labels={"disk": "ssd"})
    made.node_changed(nodes[3], beat)
    made.hosting(SSD)
    assert asked == []
    made.node_changed(beat, replace(beat, ready=False))
    assert made.hosting(SSD).nodes_in == {"z0": 4}
    assert asked == ["n3", "n3"]


def test_after_a_heartbeat_a_new_template_meets_the_node_as_it_is():
    node = a_node("a", "z0")
    made = a_topology(node)
    made.node_changed(node, replace(node, resource_version="2"))
    assert made.hosting(ANYWHERE).zone_of == {"a": "z0"}


def test_templates_that_say_the_same_share_one_view_and_few_are_kept(monkeypatch):
    monkeypatch.setattr(module, "HOSTINGS_MAX", 2)
    made = a_topology(a_node("a", "z0"))
    first = made.hosting(NodeFit())
    assert made.hosting(NodeFit()) is first
    made.hosting(SSD)
    made.hosting(NodeFit(selector=(("disk", "hdd"),)))
    assert made.hosting(NodeFit()) is not first, "the oldest was given up, and made anew"
    assert made.hosting(NodeFit()).zone_of == first.zone_of
