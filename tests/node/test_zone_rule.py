"""Where a pod may come back under a hard zone rule: as a bound volume's node affinity, but never
wedged (DESIGN 5.7).
"""

import pytest
from hypothesis import given, settings, strategies as st

from extender.model.ledger import Share
from extender.model.node_fit import NodeFit
from extender.node.zone_rule import ZoneRule, elsewhere
from tests.support.builders import Scene, a_node

ZONES = ("z0", "z1", "z2")


def three_zones() -> Scene:
    """One node a zone: node-0 in z0, node-1 in z1, node-2 in z2."""
    return Scene(replicas=20).node(a_node("node-1", "z1")).node(a_node("node-2", "z2"))


def rule(scene: Scene, ordinal: int, max_skew: int = 1, **carried: int) -> ZoneRule:
    ledger = {f"tenant/{name}": Share(count) for name, count in carried.items()}
    return ZoneRule(scene.pool, f"dispatcher-{ordinal}", ledger, max_skew)


def allowed(scene: Scene, ordinal: int, offered=ZONES, **carried: int) -> set[str]:
    return set(rule(scene, ordinal, **carried).allowed(offered))


def stood(scene: Scene, ordinal: int, vreplicas: int, node: str) -> Scene:
    """The ordinal's pod stood there with ``vreplicas`` of vpod a, and has been deleted."""
    return scene.pod(ordinal, {"tenant/a": vreplicas}, node=node).no_pod(ordinal)


def test_a_pod_of_a_failed_zone_waits_for_its_zone():
    scene = three_zones().pod(0, node="node-0").pod(1, node="node-1")
    scene.vpod("a", 9, {0: 3, 1: 3, 2: 2, 3: 1})
    stood(stood(scene, 2, 2, "node-2"), 3, 1, "node-2").node(a_node("node-2", "z2", ready=False))
    assert allowed(scene, 2, ("z0", "z1"), a=2) == set()
    assert allowed(scene, 3, ("z0", "z1"), a=1) == set()
    assert allowed(scene, 2, ZONES, a=2) == {"z2"}


def test_a_zone_that_a_vpod_has_left_for_good_does_not_keep_its_other_pods_from_coming_back():
    scene = three_zones().node(a_node("node-2", "z2", ready=False))
    scene.vpod("a", 10, {0: 2, 1: 5, 2: 3}).pod(1, node="node-1").pod(2, node="node-0")
    stood(scene, 0, 2, "node-0")
    assert allowed(scene, 0, ("z0", "z1"), a=2) == {"z0"}, "5 and 5, not waiting for 3, 5 and 2"


def test_a_zone_that_is_down_counts_while_some_of_the_vpod_may_belong_there():
    scene = three_zones().node(a_node("node-2", "z2", ready=False))
    scene.vpod("a", 7, {0: 3, 1: 3, 2: 1}).pod(0, node="node-0").pod(1, node="node-1")
    assert allowed(scene, 2, ("z0", "z1"), a=1) == set(), (
        "after a restart nobody knows where the pod stood"
    )


def test_a_zone_that_is_removed_keeps_nobody_waiting():
    scene = (
        three_zones().pod(0, node="node-0").pod(1, node="node-1").vpod("a", 9, {0: 3, 1: 3, 2: 3})
    )
    stood(scene, 2, 3, "node-2")
    scene.state.node_changed(scene.state.nodes["node-2"], None)
    assert allowed(scene, 2, ("z0", "z1"), a=3) == {"z0", "z1"}


def test_a_pool_that_restarts_as_a_whole_comes_back_as_it_was():
    scene = three_zones().vpod("a", 9, {0: 3, 1: 3, 2: 3})
    for ordinal in (0, 1, 2):
        stood(scene, ordinal, 3, f"node-{ordinal}")
    assert [allowed(scene, ordinal, a=3) for ordinal in (0, 1, 2)] == [{"z0"}, {"z1"}, {"z2"}]


def test_every_vpod_of_the_pod_counts():
    scene = three_zones().pod(0, node="node-0").pod(1, node="node-1")
    scene.vpod("a", 2, {0: 1, 5: 1}).vpod("b", 2, {1: 1, 5: 1})
    assert allowed(scene, 5, a=1) == {"z1", "z2"}
    assert allowed(scene, 5, b=1) == {"z0", "z2"}
    assert allowed(scene, 5, a=1, b=1) == {"z2"}


def test_of_zones_where_it_holds_nowhere_the_least_bad_on_offer_passes():
    scene = three_zones().vpod("a", 30, {0: 9, 1: 5, 2: 7, 5: 9})
    for ordinal in (0, 1, 2):
        scene.pod(ordinal, node=f"node-{ordinal}")
    assert allowed(scene, 5, a=9) == {"z1"}
    assert allowed(scene, 5, ("z0", "z2"), a=9) == {"z2"}, (
        "a pod does not wait for what is bad as well"
    )


def test_where_it_holds_in_a_zone_that_is_not_on_offer_the_pod_waits():
    scene = (
        three_zones().vpod("a", 3, {0: 1, 1: 1, 5: 1}).pod(0, node="node-0").pod(1, node="node-1")
    )
    assert allowed(scene, 5, ("z0", "z1"), a=1) == set()


@pytest.mark.parametrize(
    ("max_skew", "zones"), [(1, {"z2"}), (2, {"z1", "z2"}), (3, {"z0", "z1", "z2"})]
)
def test_max_skew(max_skew: int, zones: set[str]):
    scene = (
        three_zones().vpod("a", 4, {0: 2, 1: 1, 5: 1}).pod(0, node="node-0").pod(1, node="node-1")
    )
    assert set(rule(scene, 5, max_skew, a=1).allowed(ZONES)) == zones


def test_elsewhere_leaves_the_pod_out_and_counts_those_away_where_they_stood():
    scene = (
        three_zones()
        .vpod("a", 10, {0: 1, 1: 2, 2: 3, 3: 4})
        .pod(0, node="node-0")
        .pod(1, node="node-0")
    )
    stood(scene, 2, 3, "node-2")
    found = elsewhere(scene.pool, "tenant/a", "dispatcher-0")
    assert (found.zones, found.nodes) == ({"z0": 2, "z2": 3}, {"node-0": 2, "node-2": 3})
    assert (found.total, found.astray) == (9, 4)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 6)), max_size=6),
    st.integers(1, 6),
    st.integers(1, 3),
    st.sets(st.sampled_from(ZONES), min_size=1),
)
def test_it_is_the_rule_by_definition(standing, here, max_skew, offered):
    scene = three_zones()
    for ordinal, (zone, _) in enumerate(standing):
        scene.pod(ordinal, node=f"node-{zone}")
    scene.vpod(
        "a", 99, {**{ordinal: count for ordinal, (_, count) in enumerate(standing)}, 9: here}
    )
    skews: dict[str, int] = {}
    for zone in ZONES:
        after = {z: sum(count for at, count in standing if f"z{at}" == z) for z in ZONES}
        after[zone] += here
        skews[zone] = after[zone] - min(after.values())
    holding = {zone for zone in ZONES if skews[zone] <= max_skew}
    expected = (
        holding & offered
        if holding
        else {z for z in offered if skews[z] == min(skews[z] for z in offered)}
    )
    assert set(rule(scene, 9, max_skew, a=here).allowed(offered)) == expected


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_pool_that_keeps_the_rule_comes_back_to_it_in_any_order(data: st.DataObject):
    """All pods restart one after the other or all at once; every one ends in a zone where the rule
    holds.
    """
    counts = data.draw(st.integers(0, 20))
    scene = three_zones()
    even = {zone: counts // 3 + (zone < counts % 3) for zone in range(3)}
    placements: dict[int, int] = {}
    for zone, count in even.items():
        split = data.draw(st.integers(0, count))
        placements |= {2 * zone: split, 2 * zone + 1: count - split}
    scene.vpod("a", counts, {o: n for o, n in placements.items() if n})
    for ordinal, count in placements.items():
        scene.pod(ordinal, {"tenant/a": count} if count else {}, node=f"node-{ordinal // 2}")
    away = data.draw(st.sets(st.sampled_from(sorted(placements))))
    for ordinal in sorted(away):
        scene.no_pod(ordinal)
    for ordinal in data.draw(st.permutations(sorted(away))):
        scene.pod(ordinal, node="", uid=f"next-{ordinal}")
        zones = (
            allowed(scene, ordinal, a=placements[ordinal]) if placements[ordinal] else set(ZONES)
        )
        assert zones, "somewhere it may go"
        chosen = data.draw(st.sampled_from(sorted(zones)))
        scene.pod(
            ordinal,
            {"tenant/a": placements[ordinal]},
            node=f"node-{chosen[1:]}",
            uid=f"next-{ordinal}",
        )
    found = elsewhere(scene.pool, "tenant/a", "nobody").zones
    assert max(found.values(), default=0) - min(found.get(zone, 0) for zone in ZONES) <= 1


SSD = NodeFit(selector=(("disk", "ssd"),))


def ssd_in(*zones: int) -> Scene:
    """``three_zones``, where only nodes of these zones have an ssd, which the pool's pods must
    have.
    """
    scene = Scene(replicas=20).stateful_set(20, fit=SSD)
    for zone in range(3):
        scene.node(
            a_node(f"node-{zone}", f"z{zone}", labels={"disk": "ssd" if zone in zones else "hdd"})
        )
    return scene


def test_a_zone_where_the_pool_could_not_stand_keeps_nobody_waiting():
    scene = ssd_in(0, 1).pod(0, node="node-0").vpod("a", 4, {0: 2, 5: 2})
    assert allowed(scene, 5, ("z0", "z1"), a=2) == {"z1"}
    scene.vpod("a", 8, {0: 2, 1: 3, 5: 3}).pod(1, node="node-1")
    assert allowed(scene, 5, ("z0", "z1"), a=3) == {"z0"}, (
        "5 and 3: the least bad, as z2 cannot be waited for"
    )


def test_a_zone_where_it_could_stand_counts_also_while_it_is_down():
    scene = (
        ssd_in(0, 1, 2).pod(0, node="node-0").pod(1, node="node-1").vpod("a", 9, {0: 3, 1: 3, 2: 3})
    )
    scene.pod(2, {"tenant/a": 3}, node="node-2").no_pod(2)
    scene.node(a_node("node-2", "z2", labels={"disk": "ssd"}, ready=False))
    assert allowed(scene, 2, ("z0", "z1"), a=3) == set()


def test_a_zone_that_the_template_has_left_does_not_call_its_pods_back():
    scene = (
        ssd_in(0, 1).vpod("a", 6, {0: 2, 1: 2, 2: 2}).pod(0, node="node-0").pod(1, node="node-1")
    )
    stood(scene, 2, 2, "node-2")
    assert allowed(scene, 2, ("z0", "z1"), a=2) == {"z0", "z1"}


def test_a_zone_that_the_template_has_left_counts_while_a_pod_of_the_pool_is_still_there():
    scene = ssd_in(0, 1).vpod("a", 3, {0: 2, 5: 1}).pod(0, node="node-0").pod(1, node="node-1")
    assert rule(scene, 5, 2, a=1).excess("z0") == 1, "z0 3, z1 0"
    scene.vpod("a", 4, {0: 2, 1: 1, 5: 1})
    assert rule(scene, 5, 1, a=1).excess("z0") == 1, "z0 3, z1 1"
    scene.pod(2, node="node-2")
    assert rule(scene, 5, 1, a=1).excess("z0") == 2, "z0 3, z2 0"
