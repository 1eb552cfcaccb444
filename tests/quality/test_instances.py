"""Instances are as their page says, and what the engine does with them breaks no rule."""

import pytest

from tests.quality.bounds import BOUNDS
from tests.quality.instances import (
    SLOTS,
    WEIGHT_MAX,
    ZONES,
    Ask,
    Instance,
    blocked,
    deleting,
    even,
    full,
    heavy,
    unequal,
)
from tests.quality.ours import Ours
from tests.quality.row import Pair, Row
from tests.quality.rows import ROWS, moves_for_room
from tests.quality.table import HEADER, Bound, Figures, aligned, broken, line, measured

DRAWS = (full, heavy, deleting, blocked, unequal)


@pytest.mark.parametrize("draw", DRAWS)
def test_a_seed_draws_the_same_instance_and_fills_the_pool(draw):
    for seed in range(30):
        instance = draw(seed)
        assert instance == draw(seed)
        assert {*instance.zone_of_pod} <= {*ZONES}
        assert all(1 <= ask.weight <= WEIGHT_MAX and ask.vreplicas for ask in instance.asks)
        room = instance.max_pods * SLOTS
        assert 0.8 * room - WEIGHT_MAX <= sum(ask.slots for ask in instance.asks) <= room
        assert len(instance.left) == len(instance.asks) - len(instance.deleted)


def put(profile: str, wanted: list[Ask], zone_of_pod: tuple[str, ...]) -> Ours:
    ours = Ours(profile, zone_of_pod, max_pods=len(zone_of_pod))
    ours.arrive(wanted)
    ours.bring_up()
    return ours


class TestOurs:
    def test_one_of_three_fits_beside_twenty_of_one(self):
        singles = [Ask(f"one{number}", 1, 1) for number in range(20)]
        for profile in ("default", "pack", "spread", "ha"):
            assert not put(profile, [*singles, Ask("three", 3, 1)], even(3)).waiting

    def test_the_twelves_are_deleted_and_at_least_six_pods_stay(self):
        twelves = [Ask(f"twelve{number}", 1, 12) for number in range(11)]
        wanted = [*twelves, Ask("thirteen", 1, 13), Ask("ones", 95, 1)]
        ours = put("default", wanted, even(12))
        assert not ours.waiting
        ours.delete([ask.name for ask in twelves])
        ours.settle()
        assert not ours.waiting
        assert 6 <= ours.pods <= 12
        assert sum(map(sum, (pods.values() for pods in ours.placed.values()))) == 96

    def test_six_and_six_are_free_where_seven_are_asked(self):
        ours = put("default", [Ask("ones", 28, 1)], even(2))
        assert ours.placed == {"ones": {0: 14, 1: 14}}
        ours.arrive([Ask("seven", 1, 7)])
        ours.bring_up()
        assert (ours.waiting, ours.pods) == (1, 2)

    @pytest.mark.parametrize("profile", ["default", "pack", "spread", "ha"])
    @pytest.mark.parametrize("seed", range(3))
    def test_nothing_is_overcommitted_and_no_rule_is_broken(self, profile, seed):
        instance = deleting(seed)
        ours = Ours(profile, max_pods=instance.max_pods)
        ours.arrive(instance.asks)
        ours.bring_up()
        ours.delete(instance.deleted)
        ours.settle()
        assert ours.pods <= instance.max_pods
        held = [0] * ours.pods
        for ask in instance.left:
            there = ours.placed[ask.name]
            assert sum(there.values()) <= ask.vreplicas
            zones = dict.fromkeys(ZONES, 0)
            for ordinal, count in there.items():
                held[ordinal] += count * ask.weight
                zones[ours.zone_of_pod[ordinal]] += count
            assert profile != "ha" or max(zones.values()) - min(zones.values()) <= 1
        assert max(held) <= SLOTS


class TestRows:
    def test_what_compaction_moves_later_is_not_for_room(self):
        assert moves_for_room("default")(full(9)) == Pair(2, 2)


class TestTable:
    def test_each_row_has_a_bound_and_a_name_of_its_own(self):
        assert [row.name for row in ROWS] == list(BOUNDS)

    def test_a_row_counts_its_instances(self):
        row = Row("half", "pods", full, lambda instance: Pair(instance.seed % 2, 0), fitting=False)
        figures = measured(row, 3, 4)
        assert line(figures) == (
            "half (pods)", "4", "0", "2", "0.50", "1", "1",
            "0", "0.00", "+2", "+1", "seed 3", "3-6",
        )  # fmt: skip
        assert len(aligned([HEADER, line(figures)]).splitlines()) == 2

    def test_what_is_not_proven_is_counted_and_not_hidden(self):
        def measure(instance: Instance) -> Pair:
            if instance.seed == 1:
                raise TimeoutError
            return Pair(2, 1, proven=instance.seed != 2)

        figures = measured(Row("row", "pods", full, measure, fitting=False), 0, 4)
        assert (len(figures.pairs), figures.unproven) == (3, 2)
        bounds = {"row": Bound(1.0, 1)}
        assert list(broken(figures, bounds, 0.5)) == ["row: 2 unproven"]

    def test_a_bound_that_is_broken_names_the_seed(self):
        row = Row("row", "pods", full, lambda instance: Pair(instance.seed, 0), fitting=False)
        figures = measured(row, 0, 3)
        assert list(broken(figures, {"row": Bound(1.0, 2)}, 0)) == []
        assert list(broken(figures, {"row": Bound(0.9, 1)}, 0)) == [
            "row: mean difference 1.00, at most 0.90",
            "row: difference 2 in seed 2, at most 1",
        ]
        assert list(broken(figures, {}, 0)) == ["row: no bound"]

    def test_what_fails_names_its_row_and_seed(self):
        def measure(instance: Instance) -> Pair:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError) as failure:
            measured(Row("row", "pods", full, measure, fitting=False), 7, 1)
        assert failure.value.__notes__ == ["row, seed 7"]

    def test_a_row_without_instances_has_a_line(self):
        figures = Figures(Row("none", "pods", full, lambda _: None), seeds=range(2))
        assert line(figures)[1:5] == ("0", "0", "0", "-")
