"""What leaves where it is: drains, gone ordinals and compaction (DESIGN 5.5)."""

import pytest
from hypothesis import given, settings, strategies as st

from extender.core.compaction import plan_compaction
from extender.core.plan import place
from extender.core.scaling import plan_scale
from tests.support import worlds
from tests.support.builders import POOL, Scene, a_node, a_pod, a_pool, a_stateful_set, a_vpod
from tests.support.worlds import Naive, World


def moves(scene: Scene, budget: int = 100) -> list[tuple[str, int, int, str]]:
    """(vpod name, ordinal, vreplicas, reason)."""
    return [
        (m.vpod.partition("/")[2], int(m.pod_name.rpartition("-")[2]), m.vreplicas, m.reason.value)
        for m in plan_compaction(scene.pool, budget=budget)
    ]


def loaded(replicas: int, load: dict[int, int], **fields) -> Scene:
    """A pool of 5-slot pods with one vpod ``v<ordinal>`` of so many vreplicas on each ordinal."""
    scene = Scene(slots=5, replicas=replicas, **fields).pods(*range(replicas))
    for ordinal, count in load.items():
        scene.pod(ordinal, {f"tenant/v{ordinal}": count}).vpod(f"v{ordinal}", count, {ordinal: count})
    return scene


class TestCompaction:
    def test_the_highest_pod_is_emptied_into_room_below(self):
        assert moves(loaded(3, {0: 3, 1: 3, 2: 2})) == [("v2", 2, 2, "Compaction")]

    def test_several_pods_from_the_highest_down(self):
        assert moves(loaded(3, {0: 1, 1: 1, 2: 1})) == [
            ("v2", 2, 1, "Compaction"),
            ("v1", 1, 1, "Compaction"),
        ]

    def test_a_pod_that_cannot_be_emptied_is_left_alone(self):
        assert moves(loaded(3, {0: 4, 1: 4, 2: 3})) == []

    def test_no_more_than_the_budget(self):
        assert moves(loaded(2, {0: 1, 1: 4}), budget=3) == [("v1", 1, 3, "Compaction")]
        assert moves(loaded(2, {0: 1, 1: 4}), budget=0) == []

    def test_not_below_the_floor_of_the_pool(self):
        assert moves(loaded(3, {0: 1, 1: 1, 2: 1}, min_pods=2)) == [("v2", 2, 1, "Compaction")]

    def test_not_below_the_pods_that_are_wanted_anyway(self):
        scene = Scene(slots=2, replicas=3, min_pods_per_vpod=3).pods(0, 1, 2)
        for ordinal, name in ((0, "a"), (1, "a"), (2, "a")):
            scene.pod(ordinal, {f"tenant/{name}": 1})
        scene.vpod("a", 1, {0: 1, 1: 1, 2: 1}).vpod("b", 2)
        assert moves(scene) == [], "raised targets would go back to where they came from"

    def test_ordinals_start_is_honoured(self):
        scene = Scene(slots=5, replicas=2, start=7).pod(7).pod(8, {"tenant/a": 2}).vpod("a", 2, {8: 2})
        assert moves(scene) == [("a", 8, 2, "Compaction")]

    def test_a_pod_that_takes_no_work_receives_nothing(self):
        scene = loaded(2, {1: 2}).node(a_node("bad", ready=False)).pod(0, node="bad")
        assert moves(scene) == []


class TestDrain:
    def test_a_pod_in_the_middle_goes_to_either_side(self):
        scene = loaded(3, {0: 4, 2: 4}).pod(1, {"tenant/a": 2}, unschedulable=True).vpod("a", 2, {1: 2})
        assert moves(scene)[0] == ("a", 1, 2, "Drain")

    def test_only_what_has_room_elsewhere_leaves(self):
        scene = loaded(2, {0: 4}).pod(1, {"tenant/a": 3}, unschedulable=True).vpod("a", 3, {1: 3})
        assert moves(scene) == [("a", 1, 1, "Drain")]

    def test_the_cheapest_pod_first(self):
        scene = (
            loaded(3, {0: 2})
            .pod(1, {"tenant/a": 3}, unschedulable=True)
            .pod(2, {"tenant/b": 1}, unschedulable=True)
        )
        scene.vpod("a", 3, {1: 3}).vpod("b", 1, {2: 1})
        assert [move[:2] for move in moves(scene)] == [("b", 2), ("a", 1)]

    def test_an_ordinal_that_is_gone_is_named_as_such(self):
        assert moves(loaded(2, {0: 1}).pod(5, {"tenant/a": 2}).vpod("a", 2, {5: 2}))[0] == (
            "a",
            5,
            2,
            "OrdinalGone",
        )


@settings(max_examples=60, deadline=None)
@given(worlds.worlds(weights=False, tidy=True), st.integers(0, 6))
def test_nothing_is_evicted_beyond_the_budget_or_without_room(world, budget):
    pool, naive = world.state.pool(POOL), Naive(world, POOL)
    plan = plan_compaction(pool, budget=budget)
    assert sum(move.vreplicas for move in plan) <= budget
    taken: dict[tuple[str, str], int] = {}
    for move in plan:
        assert move.vreplicas > 0
        key = (move.vpod, move.pod_name)
        taken[key] = taken.get(key, 0) + move.vreplicas
    assert all(count <= naive.placed_of(vpod).get(name, 0) for (vpod, name), count in taken.items())
    sources = {move.pod_name for move in plan}
    receivers = [name for name in naive.names if naive.schedulable(name) and name not in sources]
    room = sum(max(0, naive.capacity(name) - naive.held(name)) for name in receivers)
    assert sum(move.vreplicas for move in plan) <= room


def a_settled_world(counts: list[int], slots: int, replicas: int) -> World:
    world = World()
    world.put(a_node())
    world.put(a_stateful_set(replicas))
    world.put(a_pool(slots))
    for ordinal in range(replicas):
        world.put(a_pod(ordinal, {}))
    for index, count in enumerate(counts):
        world.put(a_vpod(f"v{index}", count))
    place_all(world)
    return world


def ordinals_of(world: World) -> range:
    stateful_set = world.state.pool(POOL).stateful_set
    assert stateful_set is not None
    return stateful_set.ordinals


def place_all(world: World) -> int:
    left = 0
    for key in sorted(world.vpods):
        decision = place(world.state.pool(POOL), world.vpods[key])
        world.write(decision)
        left += decision.left
    return left


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 9), max_size=5), st.integers(2, 6), st.integers(1, 6))
def test_rounds_of_compaction_and_scaling_down_end_and_lose_nothing(counts, slots, replicas):
    world = a_settled_world(counts, slots, replicas)
    pool = world.state.pool(POOL)
    total = sum(sum(pool.placed_of(key).values()) for key in world.vpods)
    for _ in range(replicas + 1):
        evictions = plan_compaction(pool, budget=1000)
        if not evictions:
            break
        for name in sorted({move.pod_name for move in evictions}):
            world.put(
                a_pod(
                    int(name.rpartition("-")[2]),
                    world.pods[f"{POOL.partition('/')[0]}/{name}"].ledger,
                    unschedulable=True,
                )
            )
        place_all(world)
        assert sum(sum(pool.placed_of(key).values()) for key in world.vpods) == total, "nothing is lost"
        empty_from = max((o + 1 for o in ordinals_of(world) if pool.by_ordinal[o].placed), default=0)
        for ordinal in range(empty_from, len(ordinals_of(world))):
            world.remove(type(a_pod(0)), a_pod(ordinal).key)
        world.put(a_stateful_set(empty_from))
    else:
        pytest.fail("oscillates")
    assert place_all(world) == 0 or sum(counts) > slots * replicas
    plan = plan_scale(pool)
    assert plan is not None
    assert sum(counts) > slots * replicas or plan.wanted <= len(ordinals_of(world))
