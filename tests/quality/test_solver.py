"""The solver's models, on cases that are small enough to see or to count out."""

import itertools
import random
from collections import Counter

import pytest

from tests.quality import solver
from tests.quality.instances import ZONES, Ask, counts, even
from tests.quality.solver import Answer

PROVEN = {"proven": True}


def asks(*sizes: tuple[int, int]) -> list[Ask]:
    return [Ask(f"v{index}", vreplicas, weight) for index, (vreplicas, weight) in enumerate(sizes)]


def layouts(load: list[int], pods: int) -> list[tuple[int, ...]]:
    """The pod of each vreplica, for all ways to place vreplicas of these weights."""
    return [
        there
        for there in itertools.product(range(pods), repeat=len(load))
        if all(sum(w for w, p in zip(load, there, strict=True) if p == pod) <= 20 for pod in there)
    ]


class TestPods:
    def test_the_twelves_are_gone_and_six_pods_would_do(self):
        assert solver.least_pods({13: 1, 1: 95}) == Answer(6, **PROVEN)

    def test_what_is_heavier_than_half_a_pod_needs_a_pod_of_its_own(self):
        assert solver.least_pods({11: 3, 13: 2}) == Answer(5, **PROVEN)
        assert not solver.fits({11: 3, 13: 2}, 4)

    def test_no_load_needs_no_pod(self):
        assert solver.least_pods({}) == Answer(0, **PROVEN)

    @pytest.mark.parametrize("seed", range(8))
    def test_the_fewest_pods_are_those_with_a_layout(self, seed):
        load = random.Random(seed).choices(range(1, 14), k=6)
        fewest = next(pods for pods in range(1, 7) if layouts(load, pods))
        assert solver.least_pods(Counter(load)) == Answer(fewest, **PROVEN)

    def test_patterns_leave_no_room_for_one_more(self):
        found = solver.patterns((13, 7, 3))
        assert sorted(found) == [(0, 0, 6), (0, 1, 4), (0, 2, 2), (1, 0, 2), (1, 1, 0)]


class TestHa:
    def test_one_of_three_fits_beside_twenty_of_one(self):
        assert solver.fits_ha(asks(*[(1, 1)] * 20, (3, 1)), even(3))

    def test_each_zone_has_its_part(self):
        # By slots, one pod would hold this.
        assert solver.least_pods_ha(asks((3, 5))) == Answer(3, **PROVEN)
        assert not solver.fits_ha(asks((3, 5)), ("a", "a", "b"))

    def test_a_full_zone_refuses_all_zones(self):
        assert solver.fits_ha(asks((6, 10)), even(3))
        assert not solver.fits_ha(asks((6, 10), (1, 1)), even(3))
        assert not solver.fits_ha(asks((7, 10)), even(3))

    @pytest.mark.parametrize("seed", range(6))
    def test_it_fits_if_and_only_if_there_is_a_layout(self, seed):
        rng = random.Random(seed)
        wanted = asks(*((rng.randint(1, 3), rng.randint(3, 11)) for _ in range(3)))
        zone_of_pod = ("a", "b", "c", rng.choice(ZONES))
        load = [ask.weight for ask in wanted for _ in range(ask.vreplicas)]
        names = [ask.name for ask in wanted for _ in range(ask.vreplicas)]

        def even_enough(there: tuple[int, ...]) -> bool:
            for ask in wanted:
                mine = [
                    zone_of_pod[pod] for pod, n in zip(there, names, strict=True) if n == ask.name
                ]
                numbers = [mine.count(zone) for zone in ZONES]
                if max(numbers) - min(numbers) > 1:
                    return False
            return True

        assert solver.fits_ha(wanted, zone_of_pod) == any(map(even_enough, layouts(load, 4)))

    @pytest.mark.parametrize("seed", range(4))
    def test_the_fewest_pods_fit_in_some_zones_and_one_less_in_none(self, seed):
        rng = random.Random(seed)
        wanted = asks(*((rng.randint(1, 8), rng.randint(1, 13)) for _ in range(5)))
        found = solver.least_pods_ha(wanted).value
        assert found is not None

        def some(pods: int) -> bool:
            choices = itertools.combinations_with_replacement(ZONES, pods)
            return any(solver.fits_ha(wanted, zones) for zones in choices)

        assert some(found)
        assert not some(found - 1)


class TestMoves:
    @pytest.mark.parametrize("seed", range(8))
    def test_the_fewest_moves_are_those_to_the_nearest_layout(self, seed):
        rng = random.Random(seed)
        load = rng.choices(range(2, 12), k=6)
        found = layouts(load, 4)
        start = rng.choice(found)
        pods = next(pods for pods in range(1, 5) if layouts(load, pods))
        before = [
            Counter(w for w, there in zip(load, start, strict=True) if there == pod)
            for pod in range(4)
        ]
        fewest = min(
            sum(old != new for old, new in zip(start, there, strict=True))
            for there in layouts(load, pods)
        )
        assert solver.least_moves(before, Counter(load), pods) == Answer(fewest, **PROVEN)

    def test_one_move_makes_room_for_seven_where_six_and_six_are_free(self):
        before = [{1: 14}, {1: 14}]
        assert solver.most_placed([6, 6], {7: 1}) == Answer(0, **PROVEN)
        assert solver.least_moves(before, {1: 28, 7: 1}, 2) == Answer(1, **PROVEN)

    def test_what_stands_above_moves_and_makes_room_below(self):
        # 13 goes to the lower pod once seven of its fourteen have gone to the middle one.
        before = [{1: 14}, {12: 1}, {13: 1}]
        assert solver.least_moves(before, {1: 14, 12: 1, 13: 1}, 2) == Answer(8, **PROVEN)

    def test_what_does_not_fit_has_no_answer(self):
        assert solver.least_moves([{13: 1}, {13: 1}], {13: 2}, 1) == Answer(None, **PROVEN)

    def test_as_many_as_possible_find_a_place(self):
        assert solver.most_placed([10, 4], {10: 1, 4: 1}) == Answer(2, **PROVEN)
        assert solver.most_placed([10, 4], {10: 1, 4: 3}) == Answer(3, **PROVEN)

    def test_an_answer_that_is_not_proven_is_no_answer(self, monkeypatch):
        monkeypatch.setattr(solver, "LIMIT", 0.0)
        with pytest.raises(TimeoutError):
            solver.fits(dict.fromkeys(range(1, 14), 5), 23)


class TestSpread:
    def test_a_zone_with_little_room_makes_a_skew(self):
        wanted = asks((6, 5))
        assert solver.least_skew(wanted, ("a", "b", "c")) == Answer(0, **PROVEN)
        assert solver.least_skew(wanted, ("a", "a", "b")) == Answer(3, **PROVEN)
        assert solver.least_skew(asks((4, 20)), ("a", "a", "b", "c")) == Answer(1, **PROVEN)

    def test_the_fewest_changes_of_zone(self):
        wanted = asks((3, 5))
        before = {"v0": {"a": 3}}
        assert solver.least_zone_changes(wanted, even(3), before, {"v0": 3}) == Answer(0, **PROVEN)
        assert solver.least_zone_changes(wanted, even(3), before, {"v0": 2}) == Answer(1, **PROVEN)
        assert solver.least_zone_changes(wanted, even(3), before, {"v0": 0}) == Answer(2, **PROVEN)


def test_loads_are_counted_by_weight():
    held = solver.loads({"v0": {0: 2, 1: 1}, "v1": {1: 3}}, asks((3, 2), (3, 2)), 3)
    assert held == [{2: 2}, {2: 4}, {}]
    assert counts(asks((3, 2), (3, 2), (1, 7))) == {2: 6, 7: 1}
