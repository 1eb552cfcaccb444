"""``better_place``: one move at a time to where the profile would rather have a vreplica, and an
end to it.
"""

from hypothesis import given, settings

from extender.engine.placing.pick import refusal
from extender.engine.placing.select import better_place, spread_of
from extender.engine.policy.availability import AvailabilityZonePriority
from extender.engine.policy.framework import Weighted
from extender.engine.policy.profile import DEFAULT_PROFILE, Profile
from extender.engine.policy.profiles import HA_PROFILE, PACK_PROFILE, SPREAD_PROFILE
from extender.engine.policy.spreading import NodeSpread, PodSpread
from extender.model.ledger import Share
from extender.model.objects import VPod
from tests.engine.policy.shapes import Shape, by_zone, profiles, shapes
from tests.support.builders import Scene, a_node, a_vpod

MOVES_MAX = 200


def on_three_zones(*own: int, slots: int = 20) -> Scene:
    scene = Scene(replicas=len(own), slots=slots)
    scene.state.node_changed(a_node(), None)
    for ordinal, count in enumerate(own):
        scene.node(a_node(f"n{ordinal}", f"z{ordinal % 3}"))
        scene.pod(ordinal, {"tenant/a": count} if count else None, node=f"n{ordinal}")
    return scene


def moved(scene: Scene, vpod: VPod, profile: Profile) -> tuple[dict[str, int], int]:
    """The placement after doing as told until there is nothing more to do, and how many moves that
    took.
    """
    placed = scene.pool.decided_of(vpod.key)
    for moves in range(MOVES_MAX):
        found = better_place(scene.pool, vpod, placed, profile)
        if found is None:
            return placed, moves
        source, to = found
        placed = {**placed, source: placed[source] - 1, to: placed.get(to, 0) + 1}
        shares = {name: Share(count, vpod.weight) for name, count in placed.items()}
        scene.state.reserve("moves", vpod.pool, vpod.key, shares, expires_at=1e9)
        # The move is over once the source's ledger no longer has it; until then both ends hold the
        # slots.
        for name in (source, to):
            ordinal, old = scene.pool.pods[name].ordinal, scene.pool.pods[name].pod
            assert ordinal is not None
            assert old is not None
            ledger = {**old.ledger, vpod.key: Share(placed[name], vpod.weight)}
            scene.pod(
                ordinal,
                {key: share for key, share in ledger.items() if share.vreplicas},
                node=old.node,
                unschedulable=old.unschedulable,
            )
    raise AssertionError(f"no end after {MOVES_MAX} moves")


@settings(max_examples=80, deadline=None)
@given(shapes(), profiles())
def test_moving_as_told_ends(shape: Shape, profile: Profile):
    vpod = a_vpod(weight=1)
    shape.weight = 1
    scene = shape.scene()
    before = sum(scene.pool.decided_of(vpod.key).values())
    placed, _ = moved(scene, vpod, profile)
    assert sum(placed.values()) == before


@settings(max_examples=80, deadline=None)
@given(shapes(), profiles())
def test_the_destination_has_room_and_the_filters_hold_there(shape: Shape, profile: Profile):
    pool = shape.scene().pool
    vpod = a_vpod(weight=shape.weight)
    placed = shape.kept()
    found = better_place(pool, vpod, placed, profile)
    if found is None:
        return
    source, to = (pool.pods[name] for name in found)
    assert placed[source.name]
    assert source.schedulable
    assert source is not to
    assert to.ordinal is not None
    spread = spread_of(pool, placed, weight=vpod.weight)
    spread.remove(source)
    assert spread.fits(to.ordinal)
    assert pool.room >> to.ordinal & 1
    assert not refusal(spread.candidate(to.ordinal), spread, profile.filters)


def test_spread_levels_the_zones():
    scene = on_three_zones(6, 0, 0)
    placed, moves = moved(scene, a_vpod(), SPREAD_PROFILE)
    assert by_zone(scene.pool, placed) == {"z0": 2, "z1": 2, "z2": 2}
    assert moves == 4


def test_a_level_placement_stays():
    assert better_place(on_three_zones(2, 2, 1).pool, a_vpod(), {"dispatcher-0": 2}, SPREAD_PROFILE)
    scene = on_three_zones(2, 2, 1)
    assert (
        better_place(scene.pool, a_vpod(), scene.pool.decided_of("tenant/a"), SPREAD_PROFILE)
        is None
    )


def test_pack_moves_down():
    scene = on_three_zones(1, 0, 2, slots=3)
    assert moved(scene, a_vpod(), PACK_PROFILE) == ({"dispatcher-0": 3, "dispatcher-2": 0}, 2)


def test_ha_fills_a_zone_that_has_come_back():
    scene = on_three_zones(3, 3, 0)
    placed, _ = moved(scene, a_vpod(), HA_PROFILE)
    assert by_zone(scene.pool, placed) == {"z0": 2, "z1": 2, "z2": 2}


def test_a_profile_without_plugins_moves_nothing():
    scene = on_three_zones(6, 0, 0)
    assert better_place(scene.pool, a_vpod(), {"dispatcher-0": 6}, DEFAULT_PROFILE) is None


def test_nothing_leaves_a_pod_that_is_not_schedulable():
    scene = on_three_zones(6, 0, 0).node(a_node("n0", "z0", cordoned=True))
    assert better_place(scene.pool, a_vpod(), {"dispatcher-0": 6}, SPREAD_PROFILE) is None


def test_nothing_moves_where_the_better_pod_is_full():
    scene = on_three_zones(6, 0, slots=6).pod(1, {"tenant/other": 6}, node="n1")
    assert better_place(scene.pool, a_vpod(), {"dispatcher-0": 6}, SPREAD_PROFILE) is None


def test_scores_that_would_send_a_vreplica_round_in_a_circle_come_to_an_end():
    """Knative's sums of differences are no measure of a whole placement: following them alone
    repeats itself here.
    """
    shape = Shape(
        zones=[3, 2, 1],
        slots=50,
        nodes=[5, 0, 3, 2, 3, 3, 1],
        others=[49, 50, 0, 0, 0, 49, 50],
        own=[0, 5, 3, 3, 3, 5, 1],
    )
    scores = (
        Weighted(NodeSpread(), 10),
        Weighted(AvailabilityZonePriority(), 10),
        Weighted(PodSpread(), 1),
    )
    profile = Profile(name="x", scores=scores)
    pool, placed = shape.scene().pool, shape.kept()
    seen = [placed]
    while (found := better_place(pool, a_vpod(), placed, profile)) is not None:
        source, to = found
        placed = {**placed, source: placed[source] - 1, to: placed.get(to, 0) + 1}
        placed = {name: count for name, count in placed.items() if count}
        assert placed not in seen
        seen.append(placed)
    assert len(seen) > 1
