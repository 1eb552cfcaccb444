"""``shrink``: vreplicas leave by the profile's deschedulers, never more than are there."""

from hypothesis import given, settings, strategies as st

from extender.engine.placing.select import shrink, spread_of
from extender.engine.policy.availability import (
    RemoveWithAvailabilityNodePriority,
    RemoveWithAvailabilityZonePriority,
)
from extender.engine.policy.even_pod_spread import RemoveWithEvenPodSpreadPriority
from extender.engine.policy.framework import DeschedulePlugin, PlaceUnknown, Weighted
from extender.engine.policy.ordinals import RemoveWithHighestOrdinalPriority
from extender.engine.policy.profile import DEFAULT_PROFILE, Profile
from extender.engine.policy.profiles import HA_PROFILE, PACK_PROFILE, SPREAD_PROFILE
from extender.engine.policy.resources import PodFitsResources
from extender.engine.policy.spreading import NodeSpread, PodSpread, ZoneSpread
from extender.model.objects import placement_order
from tests.engine.policy.shapes import Shape, shapes
from tests.support.builders import Scene, a_node, a_vpod

DESCHEDULERS = (
    RemoveWithAvailabilityNodePriority(),
    RemoveWithAvailabilityZonePriority(),
    RemoveWithEvenPodSpreadPriority(),
    RemoveWithHighestOrdinalPriority(),
    ZoneSpread(),
    NodeSpread(),
    PodSpread(),
)


def removing(*weighted: tuple[DeschedulePlugin, int], **fields) -> Profile:
    return Profile(name="x", deschedulers=tuple(Weighted(*one) for one in weighted), **fields)


def one_at_a_time(pool, kept: dict[str, int], surplus: int, profile: Profile) -> dict[str, int]:
    """The plain meaning of ``shrink``, for vpods that have published nothing: every pod asked for
    every vreplica.
    """
    left, removed = dict(kept), dict[str, int]()
    spread = spread_of(pool, kept)

    def value(name: str) -> tuple[bool, int, int]:
        candidate = spread.candidate_of(pool.pods[name])
        try:
            total = sum(
                one.weight * one.plugin.deschedule(candidate, spread)
                for one in profile.deschedulers
            )
        except PlaceUnknown:
            return True, 0, placement_order(name)[0]
        return False, total, placement_order(name)[0]

    for _ in range(min(surplus, sum(kept.values()))):
        able = [name for name, count in left.items() if count]
        passing = [
            name
            for name in able
            if not any(
                one.filter(spread.candidate_of(pool.pods[name]), spread)
                for one in profile.deschedule_filters
            )
        ]
        chosen = max(passing or able, key=value)
        spread.remove(pool.pods[chosen])
        left[chosen] -= 1
        removed[chosen] = removed.get(chosen, 0) + 1
    return removed


@settings(max_examples=120, deadline=None)
@given(
    shapes(),
    st.lists(
        st.builds(Weighted, st.sampled_from(DESCHEDULERS), st.sampled_from([1, 10])),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from([(), (), (PodFitsResources(),)]),
    st.integers(1, 12),
)
def test_kinds_of_pods_give_what_asking_every_pod_gives(
    shape: Shape, deschedulers, filters, surplus: int
):
    pool = shape.scene().pool
    profile = Profile(name="drawn", deschedulers=tuple(deschedulers), deschedule_filters=filters)
    expected = one_at_a_time(pool, shape.kept(), surplus, profile)
    assert shrink(pool, a_vpod(), shape.kept(), surplus, profile) == expected


def three_zones(*own: int, published: bool = False, **pod_fields) -> Scene:
    """One pod a zone, by ordinal, with so many vreplicas of ``a`` in its ledger."""
    scene = Scene(replicas=len(own))
    for ordinal, count in enumerate(own):
        scene.node(a_node(f"n{ordinal}", f"z{ordinal}"))
        scene.pod(ordinal, {"tenant/a": count}, node=f"n{ordinal}", **pod_fields)
    placements = dict(enumerate(own)) if published else {}
    return scene.vpod("a", sum(own), placements)


def shrunk(scene: Scene, profile: Profile, surplus: int) -> dict[str, int]:
    pool = scene.pool
    return shrink(pool, a_vpod(), pool.decided_of("tenant/a"), surplus, profile)


@settings(max_examples=80, deadline=None)
@given(
    shapes(),
    st.lists(
        st.builds(Weighted, st.sampled_from(DESCHEDULERS), st.sampled_from([1, 10])), max_size=3
    ),
    st.integers(1, 12),
)
def test_exactly_the_surplus_is_removed_as_far_as_it_is_there(
    shape: Shape, deschedulers, surplus: int
):
    pool = shape.scene().pool
    kept = shape.kept()
    profile = Profile(name="drawn", deschedulers=tuple(deschedulers))
    removed = shrink(pool, a_vpod(weight=shape.weight), kept, surplus, profile)
    assert sum(removed.values()) == min(surplus, sum(kept.values()))
    assert all(0 < count <= kept[name] for name, count in removed.items())


def test_the_highest_ordinal_goes_first_without_deschedulers():
    assert shrunk(three_zones(2, 2, 2), DEFAULT_PROFILE, 3) == {
        "dispatcher-2": 2,
        "dispatcher-1": 1,
    }


def test_pack_empties_the_highest_ordinal_first():
    assert shrunk(three_zones(2, 2, 2), PACK_PROFILE, 3) == {"dispatcher-2": 2, "dispatcher-1": 1}


def test_spread_takes_from_the_fullest_zone():
    assert shrunk(three_zones(5, 1, 2), SPREAD_PROFILE, 3) == {"dispatcher-0": 3}


def test_equal_pods_lose_from_the_highest_ordinal_down():
    assert shrunk(three_zones(2, 2, 2), SPREAD_PROFILE, 2) == {"dispatcher-2": 1, "dispatcher-1": 1}


def test_what_no_status_has_published_goes_first():
    scene = three_zones(2, 2, 2).vpod("a", 4, {0: 2, 2: 2})
    assert shrunk(scene, PACK_PROFILE, 3) == {"dispatcher-1": 2, "dispatcher-2": 1}


def test_a_pod_that_stands_nowhere_loses_first():
    scene = three_zones(3, 1, 1, published=True)
    scene.no_pod(1)
    assert shrunk(scene, SPREAD_PROFILE, 1) == {"dispatcher-1": 1}


def test_knatives_priority_loses_first_what_is_on_a_node_that_takes_no_work():
    scene = three_zones(3, 1, 3).node(a_node("n1", "z1", cordoned=True))
    assert shrunk(scene, removing((RemoveWithAvailabilityZonePriority(), 1)), 1) == {
        "dispatcher-1": 1
    }


def test_a_zone_that_is_down_keeps_its_share():
    scene = three_zones(3, 1, 3).node(a_node("n1", "z1", ready=False))
    assert shrunk(scene, HA_PROFILE, 2) == {"dispatcher-2": 1, "dispatcher-0": 1}


def test_an_emptied_pod_is_no_candidate_any_more():
    """Knative picks pods that it has emptied before, and ends with too many vreplicas and
    no error.
    """
    assert shrunk(three_zones(5, 5), removing((RemoveWithHighestOrdinalPriority(), 1)), 6) == {
        "dispatcher-1": 5,
        "dispatcher-0": 1,
    }


def test_weighted_sums_do_not_wrap():
    """In Knative the sum of these wraps around 2^64, and pod 0 loses instead of pod 2."""
    profile = removing(
        (RemoveWithEvenPodSpreadPriority(), 1), (RemoveWithHighestOrdinalPriority(), 20)
    )
    assert shrunk(three_zones(5, 5, 5), profile, 1) == {"dispatcher-2": 1}


def test_descheduler_filters_say_which_pods_may_lose():
    scene = three_zones(4, 20, 4)
    profile = removing((PodSpread(), 1), deschedule_filters=(PodFitsResources(),))
    assert shrunk(scene, profile, 1) == {"dispatcher-2": 1}


def test_descheduler_filters_that_refuse_every_pod_do_not_keep_a_surplus():
    profile = removing((PodSpread(), 1), deschedule_filters=(PodFitsResources(),))
    assert shrunk(three_zones(20), profile, 2) == {"dispatcher-0": 2}


def test_without_a_stateful_set_the_highest_ordinal_still_goes_first():
    scene = three_zones(2, 2)
    scene.state.stateful_set_changed(scene.pool.stateful_set, None)
    assert shrunk(scene, SPREAD_PROFILE, 1) == {"dispatcher-1": 1}
