"""Single plugins on small pools: what Knative's recorded cases do not reach, and our own
spreading.
"""

import pytest

from extender.engine.placing.grow import grow_by_plugins
from extender.engine.placing.select import shrink, spread_of
from extender.engine.policy.even_pod_spread import EvenPodSpread
from extender.engine.policy.framework import MAX_SCORE, PlaceUnknown, Weighted
from extender.engine.policy.ordinals import LowestOrdinalPriority
from extender.engine.policy.profile import Profile, Ties
from extender.engine.policy.spread import Spread
from extender.engine.policy.spreading import NODE_SKEW, POD_SKEW, NodeSpread, PodSpread, ZoneSpread
from tests.support.builders import Scene, a_node, a_vpod


def on(*nodes: str, slots: int = 20) -> Scene:
    """One pod on each of ``nodes``; the first letter of a node is its zone. There is a node a9
    without pods.
    """
    scene = Scene(replicas=len(nodes), slots=slots)
    scene.state.node_changed(a_node(), None)
    for name in sorted({*nodes, "a9"}):
        scene.node(a_node(name, name[0]))
    for ordinal, node in enumerate(nodes):
        scene.pod(ordinal, node=node)
    return scene


def spread(scene: Scene, *own: int) -> Spread:
    return spread_of(
        scene.pool, {f"dispatcher-{ordinal}": count for ordinal, count in enumerate(own)}
    )


@pytest.mark.parametrize(
    ("plugin", "own", "ordinal", "why"),
    [
        pytest.param(NodeSpread(1), (1, 1), 0, "", id="node as full as the other"),
        pytest.param(NodeSpread(1), (1, 0), 0, NODE_SKEW, id="node would hold two more"),
        pytest.param(NodeSpread(2), (1, 0), 0, "", id="node may hold two more"),
        pytest.param(
            NodeSpread(1, count_empty=True), (1, 1), 0, NODE_SKEW, id="a node without pods counts"
        ),
        pytest.param(PodSpread(1), (1, 1), 1, "", id="pod as full as the other"),
        pytest.param(PodSpread(1), (1, 0), 0, POD_SKEW, id="another pod is empty"),
        pytest.param(PodSpread(1), (3, 2), 0, POD_SKEW, id="another pod has less"),
        pytest.param(PodSpread(2), (3, 2), 0, "", id="pod may hold two more"),
    ],
)
def test_a_hard_rule_refuses_what_would_be_too_much(
    plugin, own: tuple[int, ...], ordinal: int, why: str
):
    there = spread(on("a0", "b0"), *own)
    assert plugin.filter(there.candidate(ordinal), there) == why


def test_a_full_pod_holds_no_other_back():
    scene = on("a0", "b0", slots=3).pod(1, {"tenant/other": 2, "tenant/a": 1}, node="b0")
    there = spread(scene, 2, 1)
    assert PodSpread(1).filter(there.candidate(0), there) == ""


def test_an_overcommitted_pod_without_any_counts_for_the_score_and_not_for_the_predicate():
    scene = on("a0", "a0", slots=2).pod(1, {"tenant/other": 3}, node="a0")
    there = spread(scene, 0, 0)
    assert EvenPodSpread(0).score(there.candidate(0), there) == MAX_SCORE - 1
    assert EvenPodSpread(0).filter(there.candidate(0), there) == ""


def test_a_pod_that_is_exactly_full_counts_for_neither():
    scene = on("a0", "a0", slots=2).pod(1, {"tenant/other": 2}, node="a0")
    there = spread(scene, 0, 0)
    assert EvenPodSpread(0).score(there.candidate(0), there) == MAX_SCORE


def test_what_stands_on_a_pod_that_is_not_schedulable_counts_for_its_node():
    scene = on("a0", "a0", "a1").pod(0, {"tenant/a": 3}, node="a0", unschedulable=True)
    profile = Profile(name="x", scores=(Weighted(NodeSpread(), 1),))
    pool = scene.pool
    assert grow_by_plugins(pool, a_vpod(), {"dispatcher-0": 3}, 2, pool.free_of, profile) == (
        {2: 2},
        0,
    )


def test_of_equal_pods_the_one_on_the_fuller_node_loses():
    scene = on("a0", "b0", "b0").pod(1, {"tenant/a": 1}, node="b0", unschedulable=True)
    scene.pod(0, {"tenant/a": 2}, node="a0").pod(2, {"tenant/a": 2}, node="b0")
    profile = Profile(name="x", deschedulers=(Weighted(NodeSpread(), 10), Weighted(PodSpread(), 1)))
    kept = {"dispatcher-0": 2, "dispatcher-1": 1, "dispatcher-2": 2}
    assert shrink(scene.pool, a_vpod(), kept, 1, profile) == {"dispatcher-2": 1}


def test_of_two_nodes_in_one_zone_the_one_with_more_on_lost_pods_loses():
    scene = on("a0", "a0", "a1").pod(0, {"tenant/a": 1}, node="a0", unschedulable=True)
    scene.pod(1, {"tenant/a": 2}, node="a0").pod(2, {"tenant/a": 2}, node="a1")
    profile = Profile(name="x", deschedulers=(Weighted(NodeSpread(), 10), Weighted(PodSpread(), 1)))
    kept = {"dispatcher-0": 1, "dispatcher-1": 2, "dispatcher-2": 2}
    assert shrink(scene.pool, a_vpod(), kept, 1, profile) == {"dispatcher-1": 1}


def test_the_lowest_ordinal_is_lowest_wherever_ties_begin():
    pool = Scene(replicas=50).pods(*range(50)).pool
    profile = Profile(
        name="x", scores=(Weighted(LowestOrdinalPriority(), 1),), ties=Ties.ROUND_ROBIN
    )
    pool.next_start_ordinal = 7
    assert grow_by_plugins(pool, a_vpod(), {}, 1, pool.free_of, profile) == ({0: 1}, 0)


def test_a_closed_pod_gets_no_room_back_by_losing_one():
    scene = on("a0", "a0").pod(0, {"tenant/a": 1}, node="a0")
    scene.pool.set_closed(0b1)
    there = spread(scene, 1)
    there.remove(scene.pool.by_ordinal[0])
    assert there.room == 0b10


@pytest.mark.parametrize("plugin", [ZoneSpread(), NodeSpread()])
def test_a_pod_that_stands_nowhere_has_no_place_to_count(plugin):
    scene = on("a0", "b0").pod(0, {"tenant/a": 1}, node="")
    there = spread(scene, 1)
    with pytest.raises(PlaceUnknown):
        plugin.deschedule(there.candidate_of(scene.pool.pods["dispatcher-0"]), there)
