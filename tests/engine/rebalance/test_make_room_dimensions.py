"""Room in a pool with ``capacities``: what waits needs all of them, and so does what makes way.

``python -m tests.engine.rebalance.test_make_room_dimensions`` tells how often the search finds
what a brute force finds, and how long a plan for 1,000 pods takes.
"""

import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from extender.engine.policy.profiles import SPREAD_PROFILE
from extender.engine.rebalance.make_room import Room
from extender.engine.rebalance.move_plan import Limits, MovePlan
from extender.engine.rebalance.moves import Advice, plan_moves
from extender.model.amounts import Amounts
from extender.model.ledger import Share
from tests.engine.rebalance.crowded import PROFILES, SLOTS, Crowded, Vpod, a_plan, crowded
from tests.engine.rebalance.recorded_plans import SEEDS, plan_of, recorded
from tests.support.builders import Scene, a_node

CAPACITIES: Amounts = (("cpu", 10), ("memory", 30))
MOVES_MAX = 3


def a_pool_of(*pods: Mapping[str, tuple[int, int, int]], waits: tuple[int, int, int]) -> Crowded:
    """Pods with vpods of one vreplica, and one that waits: (slots, cpu, memory) of each."""
    vpods = [
        _vpod(name, takes, placed={ordinal: 1})
        for ordinal, named in enumerate(pods)
        for name, takes in named.items()
    ]
    vpods.append(_vpod("waiting", waits, waits=1))
    return Crowded(pods=len(pods), capacities=CAPACITIES, vpods=tuple(vpods))


def _vpod(name: str, takes: tuple[int, int, int], **fields) -> Vpod:
    slots, cpu, memory = takes
    amounts = tuple((what, amount) for what, amount in (("cpu", cpu), ("memory", memory)) if amount)
    return Vpod(name=name, weight=slots, amounts=amounts, placed=fields.pop("placed", {}), **fields)


def told(instance: Crowded, **limits) -> list[tuple[str, int, int]]:
    """(vpod, from, to) of one period's plan."""
    plan = a_plan(instance.pool(), instance, **limits)
    return [
        (move.vpod.partition("/")[2], int(move.from_pod[-1]), int(move.to_pod[-1])) for move in plan
    ]


@pytest.mark.parametrize(
    ("pods", "waits", "expected"),
    [
        pytest.param(
            ({"a": (1, 2, 25), "b": (1, 2, 5)}, {"c": (1, 2, 20)}),
            (1, 1, 10),
            [],
            id="what has room needs no moves",
        ),
        pytest.param(
            ({"a": (1, 2, 20), "b": (1, 2, 5)}, {"c": (1, 2, 25)}),
            (1, 1, 10),
            [("b", 0, 1)],
            id="memory is missing, and slots are not",
        ),
        pytest.param(
            ({"a": (1, 2, 20), "b": (9, 2, 0)}, {"c": (1, 2, 25)}),
            (1, 1, 15),
            [],
            id="who takes none of what is missing does not make way",
        ),
        pytest.param(
            ({"a": (1, 2, 20), "b": (1, 4, 5)}, {"c": (1, 7, 25)}, {"d": (9, 2, 21)}),
            (1, 1, 10),
            [("b", 0, 2)],
            id="who makes way needs room in every dimension",
        ),
        pytest.param(
            (
                {"a": (1, 2, 16), "b": (1, 1, 9), "c": (1, 7, 5)},
                {"d": (1, 8, 20)},
                {"e": (1, 2, 25)},
            ),
            (1, 5, 13),
            [("b", 0, 1), ("c", 0, 2)],
            id="cpu and memory are missing, and one vreplica for each makes way",
        ),
        pytest.param(
            ({"a": (12, 1, 1), "b": (1, 8, 25)}, {"c": (12, 1, 1), "d": (1, 2, 25)}),
            (12, 0, 0),
            [],
            id="slots are missing, and no slots are free elsewhere",
        ),
        pytest.param(
            ({"a": (1, 2, 20)}, {"c": (1, 2, 20)}), (1, 1, 31), [], id="no pod could ever hold it"
        ),
    ],
)
def test_what_makes_way(pods, waits, expected):
    assert sorted(told(a_pool_of(*pods, waits=waits))) == expected


def test_a_chain_frees_memory_where_another_chain_pod_has_none():
    """Five of memory leave pod 1 for pod 2. The ten of pod 0 get that room."""
    pods = (
        {"a": (1, 1, 15), "b": (1, 1, 10)},
        {"c": (1, 1, 20), "d": (1, 1, 5)},
        {"e": (1, 1, 24)},
    )
    assert told(a_pool_of(*pods, waits=(1, 1, 14))) == [("d", 1, 2)]


def test_a_vpod_that_takes_a_dimension_that_the_pool_lacks_moves_nobody():
    instance = a_pool_of({"a": (9, 1, 1), "b": (9, 1, 1)}, {"c": (9, 1, 1)}, waits=(1, 0, 0))
    needs_gpu = replace(instance.vpods[-1], amounts=(("gpu", 1),))
    assert told(replace(instance, vpods=(*instance.vpods[:-1], needs_gpu))) == []


def test_compaction_empties_a_pod_whose_memory_fits_below_after_a_move():
    pods = (
        {"a": (1, 1, 10), "b": (1, 1, 9)},
        {"c": (1, 1, 18)},
        {"last": (1, 1, 13)},
    )
    instance = a_pool_of(*pods, waits=(1, 0, 0))
    settled = replace(instance, vpods=instance.vpods[:-1])
    assert told(settled, emptying=0b100) == [("b", 0, 1)]


def test_policy_makes_a_vreplica_of_enough_memory_make_way():
    """``v`` is in zone a alone. In zone b there are slots, but no memory, until ``single`` goes."""
    memory = {"v": 6, "single": 6, "light": 4, "filler": 20}
    weight = {"v": 1, "single": 1, "light": 1, "filler": 2}
    scene = Scene(slots=20, replicas=3, max_pods=3, capacities=(("memory", 30),))
    for name, zone in (("n0", "a"), ("n1", "a"), ("n2", "b")):
        scene.node(a_node(name, zone=zone))
    scene.pool.set_profile(SPREAD_PROFILE)
    placed = {0: ("v",), 1: ("v",), 2: ("single", "light", "filler")}
    for ordinal, names in placed.items():
        ledger = {
            f"tenant/{name}": Share(1, weight[name], (("memory", memory[name]),)) for name in names
        }
        scene.pod(ordinal, ledger, node=f"n{ordinal}", ready=True)
    for name, amount in memory.items():
        there = {ordinal: 1 for ordinal, names in placed.items() if name in names}
        amounts = (("memory", amount),)
        scene.vpod(name, len(there), there, weight=weight[name], per_vreplica=amounts)
    (move,) = plan_moves(scene.pool, Limits(budget=9), Advice(vpods=["tenant/v"]))
    assert (move.vpod, move.from_pod) == ("tenant/single", "dispatcher-2")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_pool_without_capacities_gets_the_plan_that_it_always_got(seed: int):
    assert plan_of(seed) == recorded()[str(seed)]


def test_capacities_of_which_enough_is_left_change_next_to_nothing():
    """They forbid a move beyond those that are counted, which ends some chains without them."""
    differ = []
    for seed in range(64):
        instance = crowded(seed, 3 + seed % 11, profile=PROFILES[seed % len(PROFILES)])
        plenty = replace(
            instance,
            capacities=(("cpu", 10**6), ("memory", 10**6)),
            vpods=tuple(replace(vpod, amounts=(("cpu", 1),)) for vpod in instance.vpods),
        )
        if a_plan(plenty.pool(), plenty) != a_plan(instance.pool(), instance):
            differ.append(seed)
    assert len(differ) <= 3, differ


# -- whatever the pool is like ---------------------------------------------------------------------

sizes = st.dictionaries(
    st.sampled_from(["cpu", "gpu", "memory"]), st.integers(2, 40), min_size=1, max_size=3
)


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    pods=st.integers(2, 9),
    capacities=sizes,
    budget=st.integers(0, 9),
    empties=st.booleans(),
    profile=st.sampled_from(PROFILES),
)
def test_a_plan_keeps_its_budget_and_overcommits_nothing(
    seed, pods, capacities, budget, empties, profile
):
    most = tuple(sorted(capacities.items()))
    instance = crowded(seed, pods, capacities=most, profile=profile, misses=2 if empties else None)
    emptying = 1 << pods - 1 if empties else 0
    plan = a_plan(instance.pool(), instance, budget=budget, emptying=emptying)
    assert sum(move.vreplicas for move in plan) <= budget
    rest = Rest(instance)
    for move in plan:
        vpod = instance.named(move.vpod)
        rest.put(vpod, int(move.to_pod.rpartition("-")[2]), move.vreplicas)
        assert rest.least() >= 0, "room that a move frees does not count before it is free"


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    pods=st.integers(2, 9),
    capacities=sizes,
    budget=st.integers(1, 9),
)
def test_after_its_moves_there_is_the_room_that_it_promises(seed, pods, capacities, budget):
    instance = crowded(seed, pods, capacities=tuple(sorted(capacities.items())))
    for vpod in instance.vpods:
        if vpod.waits:
            for room in rooms(instance, vpod, budget):
                rest = Rest(instance)
                assert len(room.moves) <= min(4, budget)
                for move in room.moves:
                    mover = instance.named(move.vpod.key)
                    assert move.now == Rest(instance).has(mover, move.to) or not move.now
                    assert rest.has(mover, move.to), room
                    rest.put(mover, move.to, 1)
                    rest.put(mover, int(move.source.name.rpartition("-")[2]), -1)
                assert rest.has(vpod, room.ordinal), room


class Rest:
    """What each pod has left, counted afresh: ordinal -> slots and dimensions."""

    def __init__(self, instance: Crowded) -> None:
        self.left = [{"slots": SLOTS, **dict(instance.capacities)} for _ in range(instance.pods)]
        for vpod in instance.vpods:
            for ordinal, count in vpod.placed.items():
                self.put(vpod, ordinal, count)

    def put(self, vpod: Vpod, ordinal: int, count: int) -> None:
        for what, amount in takes(vpod):
            self.left[ordinal][what] -= amount * count

    def has(self, vpod: Vpod, ordinal: int) -> bool:
        return all(self.left[ordinal][what] >= amount for what, amount in takes(vpod))

    def least(self) -> int:
        return min(amount for pod in self.left for amount in pod.values())


def takes(vpod: Vpod) -> Iterator[tuple[str, int]]:
    yield "slots", vpod.weight
    yield from vpod.amounts


def rooms(instance: Crowded, vpod: Vpod, budget: int) -> list[Room]:
    plan = MovePlan(instance.pool(), Limits(budget=budget))
    return plan.rooms_for(f"tenant/{vpod.name}")[0]


# -- beside a brute force --------------------------------------------------------------------------


def fewest_moves(instance: Crowded, guest: Vpod, moves_max: int) -> int | None:
    """The fewest moves, one after the other, after which ``guest`` has room; None: more."""
    movers = [
        (vpod, ordinal)
        for vpod in instance.vpods
        for ordinal, count in vpod.placed.items()
        for _ in range(count)
    ]
    start = tuple(ordinal for _, ordinal in movers)
    reached, known = [start], {start}
    for moves in range(moves_max + 1):
        following: list[tuple[int, ...]] = []
        for where in reached:
            rest = Rest(replace(instance, vpods=()))
            for (vpod, _), ordinal in zip(movers, where, strict=True):
                rest.put(vpod, ordinal, 1)
            if any(rest.has(guest, ordinal) for ordinal in range(instance.pods)):
                return moves
            for index, (vpod, _) in enumerate(movers):
                for to in range(instance.pods):
                    then = (*where[:index], to, *where[index + 1 :])
                    if to != where[index] and then not in known and rest.has(vpod, to):
                        known.add(then)
                        following.append(then)
        reached = following
    return None


def beside_brute_force(seeds: range) -> dict[str, int]:
    """How many instances of 2 to 4 pods have a way with at most ``MOVES_MAX`` moves, how often the
    search finds one, and how often with more moves than are needed.
    """
    counts = {"possible": 0, "found": 0, "more moves": 0}
    for seed in seeds:
        instance = crowded(seed, 2 + seed % 3, capacities=CAPACITIES, waiting=1)
        guest = instance.vpods[-1]
        fewest = fewest_moves(instance, guest, MOVES_MAX)
        found = rooms(instance, guest, MOVES_MAX)
        assert not (found and fewest is None), f"seed {seed}: the brute force missed it"
        if fewest:
            counts["possible"] += 1
            counts["found"] += bool(found)
            counts["more moves"] += bool(found and len(found[0].moves) > fewest)
    return counts


def test_the_search_finds_nearly_all_that_a_brute_force_finds():
    counts = beside_brute_force(range(1000, 1240))
    assert counts["possible"] >= 20
    assert counts["found"] >= 0.9 * counts["possible"], counts
    assert counts["more moves"] <= 0.1 * counts["possible"], counts


def plan_times_ms(plans: int) -> list[float]:
    """Processor time of plans for 1,000 pods with four vpods that wait, in ascending order."""
    times: list[float] = []
    for seed in range(plans):
        capacities = (("cpu", 4000), ("memory", 16000))
        instance = crowded(seed, 1000, capacities=capacities, waiting=4)
        pool = instance.pool()
        started = time.process_time()
        a_plan(pool, instance)
        times.append(1000 * (time.process_time() - started))
    return sorted(times)


if __name__ == "__main__":
    found = plan_times_ms(100)
    sys.stdout.write(
        f"{beside_brute_force(range(10_000, 13_000))}\n"
        f"plan for 1,000 pods: median {found[50]:.1f} ms, p99 {found[98]:.1f} ms\n"
    )
