"""What leaves where it is, and where to: drains, failures, overcommit, compaction and policy
(DESIGN 5.5).
"""

from collections.abc import Callable, Iterable, Mapping

import pytest

from extender.engine.policy.profiles import SPREAD_PROFILE
from extender.engine.rebalance.move_plan import Limits
from extender.engine.rebalance.moves import Advice, plan_moves
from extender.engine.state.pool_state import PoolState
from extender.model.ledger import Share
from extender.model.moves import Move
from extender.model.objects import VPod
from tests.engine.rebalance.loads import as_rows
from tests.engine.scaling.plans import closed_by_autoscaler
from tests.support.builders import Scene, a_node


def planned(scene: Scene, budget: int = 100, **more) -> list[Move]:
    """The plan with the surplus pods closed, as the autoscaler leaves them."""
    advice = Advice(
        **{
            name: more.pop(name)
            for name in ("better", "vpods", "returns", "waiting")
            if name in more
        }
    )
    scene.pool.set_closed(closed_by_autoscaler(scene.pool))
    return plan_moves(scene.pool, Limits(budget=budget, **more), advice)


def moves(scene: Scene, budget: int = 100, **more) -> list[tuple[str, int, int, int, str]]:
    return as_rows(planned(scene, budget, **more))


def loaded(replicas: int, load: Mapping[int, int], **fields) -> Scene:
    """A pool of 5-slot pods with one vpod ``v<ordinal>`` of so many vreplicas on each ordinal."""
    scene = Scene(slots=5, replicas=replicas, **fields).pods(*range(replicas))
    for ordinal, count in load.items():
        scene.pod(ordinal, {f"tenant/v{ordinal}": count}).vpod(
            f"v{ordinal}", count, {ordinal: count}
        )
    return scene


def these(*names: str) -> Callable[[str], bool]:
    return {f"tenant/{name}" for name in names}.__contains__


class TestCompaction:
    def test_the_highest_pod_is_emptied_into_room_below(self):
        assert moves(loaded(3, {0: 3, 1: 4, 2: 1})) == [("v2", 2, 0, 1, "Compaction")]

    def test_several_pods_from_the_highest_down(self):
        assert moves(loaded(3, {0: 1, 1: 1, 2: 1})) == [
            ("v2", 2, 0, 1, "Compaction"),
            ("v1", 1, 0, 1, "Compaction"),
        ]

    def test_one_vpod_is_spread_over_the_room_below_as_placing_would(self):
        scene = (
            Scene(slots=6, replicas=3, min_pods=2).pods(0, 1).pod(2, {"tenant/a": 4, "tenant/b": 2})
        )
        scene.vpod("a", 4, {2: 4}).vpod("b", 2, {2: 2})
        assert moves(scene) == [
            ("b", 2, 0, 1, "Compaction"),
            ("b", 2, 1, 1, "Compaction"),
            ("a", 2, 0, 2, "Compaction"),
            ("a", 2, 1, 2, "Compaction"),
        ]

    def test_first_to_pods_that_do_not_carry_the_vpod_yet(self):
        scene = Scene(slots=5, replicas=3).pod(0, {"tenant/a": 1}).pod(1, {"tenant/b": 4})
        scene.pod(2, {"tenant/a": 1}).vpod("a", 2, {0: 1, 2: 1}).vpod("b", 4, {1: 4})
        assert moves(scene) == [("a", 2, 1, 1, "Compaction")]

    def test_a_pod_that_cannot_be_emptied_is_not_begun_and_neither_are_those_below(self):
        scene = Scene(slots=5, replicas=4).pod(0, {"tenant/a": 4}).pods(1)
        scene.pod(2, {"tenant/c": 1}).pod(3, {"tenant/d": 3}, slots=5)
        scene.vpod("a", 4, {0: 4}).vpod("c", 1, {2: 1}).vpod("d", 3, {3: 3}, weight=1)
        assert moves(scene, fixed=these("d")) == []

    def test_heavy_vreplicas_that_fit_no_pod_below_keep_their_pod(self):
        scene = Scene(slots=5, replicas=3)
        scene.pod(0, {"tenant/a": Share(1, 3)}).pod(1, {"tenant/b": Share(1, 3)})
        scene.pod(2, {"tenant/c": Share(1, 3)})
        scene.vpod("a", 1, {0: 1}, weight=3).vpod("b", 1, {1: 1}, weight=3)
        scene.vpod("c", 1, {2: 1}, weight=3)
        scene.pool.set_closed(0b100)
        assert plan_moves(scene.pool, Limits(budget=100)) == []

    def test_a_light_vreplica_makes_way_below_for_a_heavy_one(self):
        """First the light one. The heavy one follows once there is room."""
        scene = Scene(slots=5, replicas=3).pod(0, {"tenant/a": 3}).pod(1, {"tenant/b": 3})
        scene.pod(2, {"tenant/c": Share(1, 3)})
        scene.vpod("a", 3, {0: 3}).vpod("b", 3, {1: 3}).vpod("c", 1, {2: 1}, weight=3)
        assert moves(scene) == [("a", 0, 1, 1, "MakeRoom")]
        scene.pod(0, {"tenant/a": 2}).pod(1, {"tenant/a": 1, "tenant/b": 3})
        scene.vpod("a", 3, {0: 2, 1: 1})
        assert moves(scene) == [("c", 2, 0, 1, "Compaction")]

    def test_nobody_makes_way_while_something_waits_for_a_place(self):
        """The autoscaler closes nothing for it then: a vreplica that waits comes first."""
        scene = Scene(slots=5, replicas=3, max_pods=3)
        scene.pod(0, {"tenant/a": 3}).pod(1, {"tenant/b": 3}).pod(2, {"tenant/c": Share(1, 3)})
        scene.vpod("a", 3, {0: 3}).vpod("b", 3, {1: 3}).vpod("c", 1, {2: 1}, weight=3)
        scene.vpod("waiting", 1, weight=4)
        assert moves(scene) == []

    def test_heavy_vreplicas_find_room_before_light_ones(self):
        scene = Scene(slots=5, replicas=3).pod(0, {"tenant/a": 1}).pod(1, {"tenant/a": 4})
        scene.pod(2, {"tenant/light": 1, "tenant/heavy": Share(1, 4)})
        scene.vpod("a", 5, {0: 1, 1: 4}).vpod("light", 1, {2: 1}).vpod("heavy", 1, {2: 1}, weight=4)
        assert moves(scene) == [("light", 2, 1, 1, "Compaction"), ("heavy", 2, 0, 1, "Compaction")]

    def test_no_more_than_the_budget(self):
        assert moves(loaded(2, {0: 1, 1: 4}), budget=3) == [("v1", 1, 0, 3, "Compaction")]
        assert moves(loaded(2, {0: 1, 1: 4}), budget=0) == []

    def test_the_smallest_shares_first(self):
        scene = (
            Scene(slots=9, replicas=2).pods(0).pod(1, {"tenant/a": 3, "tenant/b": 1, "tenant/c": 2})
        )
        scene.vpod("a", 3, {1: 3}).vpod("b", 1, {1: 1}).vpod("c", 2, {1: 2})
        assert [(m[0], m[3]) for m in moves(scene, budget=4)] == [("b", 1), ("c", 2), ("a", 1)]

    def test_a_vpod_that_cools_down_waits_and_keeps_its_room(self):
        scene = Scene(slots=5, replicas=3).pod(0, {"tenant/a": 2}).pod(1, {"tenant/b": 2})
        scene.pod(2, {"tenant/c": 1}).vpod("a", 2, {0: 2}).vpod("b", 2, {1: 2}).vpod("c", 1, {2: 1})
        assert moves(scene, cooling=these("c")) == [("b", 1, 0, 2, "Compaction")]
        scene.pod(0, {"tenant/a": 3}).vpod("a", 3, {0: 3})
        scene.pool.set_closed(0b110)
        assert plan_moves(scene.pool, Limits(budget=9, cooling=these("c"))) == [], (
            "b and c do not both fit"
        )

    def test_not_below_the_floor_of_the_pool(self):
        assert moves(loaded(3, {0: 1, 1: 1, 2: 1}, min_pods=2)) == [("v2", 2, 0, 1, "Compaction")]

    def test_not_below_the_pods_that_are_wanted_anyway(self):
        scene = Scene(slots=2, replicas=3, min_pods_per_vpod=3).pods(0, 1, 2)
        for ordinal, name in ((0, "a"), (1, "a"), (2, "a")):
            scene.pod(ordinal, {f"tenant/{name}": 1})
        scene.vpod("a", 1, {0: 1, 1: 1, 2: 1}).vpod("b", 2)
        assert moves(scene) == [], "raised targets would go back to where they came from"

    def test_only_what_is_closed_is_emptied(self):
        scene = loaded(3, {0: 1, 1: 1, 2: 1})
        assert plan_moves(scene.pool, Limits(budget=9)) == [], "placing would bring it back"

    def test_ordinals_start_is_honoured(self):
        scene = (
            Scene(slots=5, replicas=2, start=7).pod(7).pod(8, {"tenant/a": 2}).vpod("a", 2, {8: 2})
        )
        assert moves(scene) == [("a", 8, 7, 2, "Compaction")]

    def test_a_pod_that_takes_no_work_receives_nothing(self):
        scene = loaded(2, {1: 2}).node(a_node("bad", ready=False)).pod(0, node="bad")
        scene.pool.set_closed(0b10)
        assert plan_moves(scene.pool, Limits(budget=9)) == []

    def test_a_vpod_that_is_being_deleted_goes_by_itself(self):
        scene = loaded(2, {1: 2}).vpod("v1", 2, {1: 2}, deleting=True)
        scene.pod(1, {"tenant/v1": 2, "tenant/b": 1}).vpod("b", 1, {1: 1})
        assert moves(scene) == [("b", 1, 0, 1, "Compaction")]

    @pytest.mark.parametrize(
        "spoil",
        [
            pytest.param(
                lambda scene: scene.no_vpod("v1"), id="whose vpod is gone or not known yet"
            ),
            pytest.param(
                lambda scene: scene.vpod("v1", 2, {1: 2}, weight=2), id="whose weight has changed"
            ),
        ],
    )
    def test_a_pod_with_a_share_that_placing_has_to_decide_first_is_not_begun(self, spoil):
        scene = loaded(2, {1: 2})
        scene.pod(1, {"tenant/v1": 2, "tenant/b": 1}).vpod("b", 1, {1: 1})
        spoil(scene)
        scene.pool.set_closed(0b10)
        assert plan_moves(scene.pool, Limits(budget=9)) == []

    def test_a_share_that_its_caller_keeps_is_not_moved(self):
        scene = Scene(slots=5, replicas=2).pods(0).pod(1, {"tenant/a@job.batch": 1})
        scene.vpod("a", 1, {1: 1}, source="job.batch")
        scene.pool.set_closed(0b10)
        assert plan_moves(scene.pool, Limits(budget=9)) == []


class TestDrain:
    def test_a_pod_in_the_middle_goes_to_either_side(self):
        scene = (
            loaded(3, {0: 4, 2: 4}).pod(1, {"tenant/a": 2}, unschedulable=True).vpod("a", 2, {1: 2})
        )
        assert moves(scene) == [("a", 1, 0, 1, "Drain"), ("a", 1, 2, 1, "Drain")]

    def test_only_what_has_room_elsewhere_leaves(self):
        scene = loaded(2, {0: 4}).pod(1, {"tenant/a": 3}, unschedulable=True).vpod("a", 3, {1: 3})
        assert moves(scene) == [("a", 1, 0, 1, "Drain")]

    def test_a_full_pool_gives_no_moves(self):
        scene = loaded(2, {0: 5}).pod(1, {"tenant/a": 3}, unschedulable=True).vpod("a", 3, {1: 3})
        assert moves(scene) == []

    def test_no_cool_down_but_the_budget(self):
        scene = loaded(2, {0: 1}).pod(1, {"tenant/a": 3}, unschedulable=True).vpod("a", 3, {1: 3})
        assert moves(scene, budget=2, cooling=these("a")) == [("a", 1, 0, 2, "Drain")]

    def test_the_cheapest_pod_first(self):
        scene = (
            loaded(3, {0: 2})
            .pod(1, {"tenant/a": 3}, unschedulable=True)
            .pod(2, {"tenant/b": 1}, unschedulable=True)
        )
        scene.vpod("a", 3, {1: 3}).vpod("b", 1, {2: 1})
        assert [move[:2] for move in moves(scene)] == [("b", 2), ("a", 1)]

    def test_it_comes_before_compaction(self):
        scene = (
            loaded(4, {0: 3, 2: 1, 3: 1})
            .pod(1, {"tenant/a": 2}, unschedulable=True)
            .vpod("a", 2, {1: 2})
        )
        scene.pool.set_closed(0b1000)
        plan = plan_moves(scene.pool, Limits(budget=9))
        assert [m.reason.value for m in plan][-1] == "Compaction"
        assert {m.reason.value for m in plan[:-1]} == {"Drain"}

    def test_nothing_goes_to_a_pod_that_is_being_emptied(self):
        scene = loaded(3, {0: 5}).pod(1, {"tenant/a": 2}, unschedulable=True).vpod("a", 2, {1: 2})
        scene.pool.set_closed(0b100)
        assert plan_moves(scene.pool, Limits(budget=9)) == []

    def test_nothing_goes_to_what_would_be_emptied_where_no_autoscaler_closes_it(self):
        scene = loaded(3, {0: 5}).pod(1, {"tenant/a": 2}, unschedulable=True).vpod("a", 2, {1: 2})
        assert plan_moves(scene.pool, Limits(budget=9, emptying=0b100)) == []

    def test_an_ordinal_that_is_gone_is_named_as_such(self):
        assert moves(loaded(2, {0: 1}).pod(5, {"tenant/a": 2}).vpod("a", 2, {5: 2}))[0] == (
            "a",
            5,
            0,
            2,
            "OrdinalGone",
        )

    def test_an_abandoned_pod_is_left_whether_or_not_it_exists(self):
        scene = loaded(3, {0: 1}, min_pods=3).no_pod(1).vpod("a", 2, {1: 2})
        scene.pool.set_abandoned(frozenset({"dispatcher-1"}))
        assert moves(scene, cooling=these("a")) == [
            ("a", 1, 0, 1, "Reschedule"),
            ("a", 1, 2, 1, "Reschedule"),
        ]


class TestOvercommit:
    def test_only_what_is_over_leaves(self):
        scene = loaded(2, {}, min_pods=2).pod(1, {"tenant/a": 4, "tenant/b": 3})
        scene.vpod("a", 4, {1: 4}).vpod("b", 3, {1: 3})
        assert moves(scene) == [("a", 1, 0, 2, "Overcommit")]

    def test_as_few_vreplicas_as_do_it(self):
        scene = loaded(2, {}, min_pods=2).pod(1, {"tenant/light": 4, "tenant/heavy": Share(2, 2)})
        scene.vpod("light", 4, {1: 4}).vpod("heavy", 2, {1: 2}, weight=2)
        assert moves(scene) == [("heavy", 1, 0, 2, "Overcommit")]

    def test_a_vreplica_that_is_heavier_than_what_is_over_where_there_is_no_lighter(self):
        scene = loaded(2, {}, min_pods=2).pod(1, {"tenant/heavy": Share(2, 3)})
        scene.vpod("heavy", 2, {1: 2}, weight=3)
        assert moves(scene) == [("heavy", 1, 0, 1, "Overcommit")]

    def test_what_is_only_reserved_is_not_over(self):
        scene = loaded(2, {}, min_pods=2).pod(1, {"tenant/a": 4}).vpod("a", 4, {1: 4})
        scene.pool.reserve("t", "tenant/b", {"dispatcher-1": Share(2)}, expires_at=1.0)
        assert moves(scene) == []


def to_the_lowest(
    pool: PoolState, vpod: VPod, placements: Mapping[str, int]
) -> tuple[str, str] | None:
    """A profile that wants all of a vpod on ordinal 0."""
    above = [name for name in placements if name != "dispatcher-0"]
    return (above[-1], "dispatcher-0") if above else None


class TestPolicy:
    def two_pods(self, **fields) -> Scene:
        scene = (
            Scene(slots=5, replicas=2, min_pods=2).pod(0, {"tenant/a": 1}).pod(1, {"tenant/a": 3})
        )
        return scene.vpod("a", 4, {0: 1, 1: 3}, **fields)

    def advise(
        self, scene: Scene, better=to_the_lowest, vpods: Iterable[str] = ("tenant/a",), **more
    ):
        return moves(scene, better=better, vpods=list(vpods), **more)

    def test_vreplicas_go_where_the_profile_prefers_them(self):
        assert self.advise(self.two_pods()) == [("a", 1, 0, 3, "Policy")]

    def test_one_at_a_time_within_the_budget(self):
        assert self.advise(self.two_pods(), budget=2) == [("a", 1, 0, 2, "Policy")]

    def test_as_far_as_there_is_room(self):
        scene = self.two_pods().pod(0, {"tenant/a": 1, "tenant/b": 2}).vpod("b", 2, {0: 2})
        assert self.advise(scene) == [("a", 1, 0, 2, "Policy")]

    def test_room_that_an_earlier_move_takes_is_not_there_any_more(self):
        scene = self.two_pods().pod(0, {"tenant/a": 1, "tenant/b": 3}).vpod("b", 3, {0: 3})
        scene.pod(1, {"tenant/a": 3, "tenant/c": 1}).vpod("c", 1, {1: 1})
        both = ["tenant/c", "tenant/a"]
        assert self.advise(scene, vpods=both) == [("c", 1, 0, 1, "Policy")]

    @pytest.mark.parametrize("waiting", [[], ["tenant/a"]])
    def test_not_while_the_plan_gives_it_vreplicas(self, waiting: list[str]):
        """What the profile prefers may be another pod once they are placed (seed 260869562)."""
        scene = self.two_pods().vpod("a", 5, {0: 1, 1: 3})
        expected = [] if waiting else [("a", 1, 0, 3, "Policy")]
        assert self.advise(scene, waiting=waiting) == expected

    def test_not_while_the_vpod_cools_down(self):
        assert self.advise(self.two_pods(), cooling=these("a")) == []

    def test_only_vpods_that_are_to_be_looked_at(self):
        assert self.advise(self.two_pods(), vpods=[]) == []

    def test_not_back_to_placements_that_the_vpod_has_left(self):
        left = {"dispatcher-0": 3, "dispatcher-1": 1}
        returns = lambda key, placements: (key, dict(placements)) == ("tenant/a", left)  # noqa: E731
        assert self.advise(self.two_pods(), returns=returns) == [("a", 1, 0, 1, "Policy")]

    def test_a_profile_that_cannot_make_up_its_mind_moves_a_vreplica_once(self):
        def there_and_back(pool, vpod, placements):
            return (
                ("dispatcher-0", "dispatcher-1")
                if placements.get("dispatcher-0")
                else ("dispatcher-1", "dispatcher-0")
            )

        assert self.advise(self.two_pods(), better=there_and_back) == [("a", 0, 1, 1, "Policy")]

    @pytest.mark.parametrize(
        ("source", "target"),
        [
            pytest.param("dispatcher-1", "dispatcher-7", id="to a pod that is not there"),
            pytest.param("dispatcher-7", "dispatcher-0", id="from a pod that it is not on"),
            pytest.param("dispatcher-1", "dispatcher-1", id="to where it is"),
            pytest.param("dispatcher-1", "dispatcher-2", id="to a pod that takes no work"),
        ],
    )
    def test_advice_that_makes_no_sense_is_not_taken(self, source, target):
        scene = self.two_pods().stateful_set(3).pod(2, unschedulable=True)
        assert self.advise(scene, better=lambda *_: (source, target)) == []

    def test_nothing_goes_to_a_closed_pod_whatever_a_profile_says(self):
        scene = self.two_pods()
        scene.pool.set_closed(0b01)
        advice = Advice(better=to_the_lowest, vpods=["tenant/a"])
        assert plan_moves(scene.pool, Limits(budget=9), advice) == []

    def test_what_is_drained_anyway_is_not_policys_business(self):
        scene = self.two_pods().pod(1, {"tenant/a": 3}, unschedulable=True).stateful_set(3)
        assert self.advise(scene) == [("a", 1, 0, 3, "Drain")]
        scene.pod(0, {"tenant/a": 1, "tenant/b": 4}).vpod("b", 4, {0: 4}).pods(2)
        assert {m[4] for m in self.advise(scene)} == {"Drain"}


class TestPodsThatAreDown:
    """Three pods of 20 slots; pod 0 is not Ready, its node fine."""

    def a_scene(self, *, ready: Iterable[int] = (1, 2), **fields) -> Scene:
        scene = Scene(replicas=3, **fields)
        for ordinal in range(3):
            scene.node(a_node(f"node-{ordinal}", f"z{ordinal}"))
            ledger = {"tenant/a": 2}
            scene.pod(ordinal, ledger, node=f"node-{ordinal}", ready=ordinal in ready)
        return scene.vpod("a", 6, {0: 2, 1: 2, 2: 2})

    def test_what_is_served_is_compacted_onto_pods_that_serve(self):
        scene = self.a_scene()
        scene.pool.set_closed(0b110)
        assert plan_moves(scene.pool, Limits(budget=100)) == [], "pod 2 would fit on pod 0 alone"
        scene.pool.set_closed(0b100)
        assert [move.to_pod for move in plan_moves(scene.pool, Limits(budget=100))] == [
            "dispatcher-1"
        ]

    def test_what_is_not_served_either_is_compacted_as_before(self):
        scene = self.a_scene(ready=())
        scene.pool.set_closed(0b110)
        found = plan_moves(scene.pool, Limits(budget=100))
        assert {(move.from_pod, move.to_pod) for move in found} == {
            ("dispatcher-2", "dispatcher-0"),
            ("dispatcher-1", "dispatcher-0"),
        }

    def test_all_goes_on_once_the_pod_is_ready_again(self):
        scene = self.a_scene(ready=(0, 1, 2))
        scene.pool.set_closed(0b110)
        assert {move.to_pod for move in plan_moves(scene.pool, Limits(budget=100))} == {
            "dispatcher-0"
        }

    def test_a_pod_that_is_excused_may_get_something(self):
        scene = self.a_scene(ready=(0, 1, 2)).pod(0, {"tenant/a": 2}, node="node-0", ready=False)
        scene.pool.set_closed(0b110)
        assert {move.to_pod for move in plan_moves(scene.pool, Limits(budget=100))} == {
            "dispatcher-0"
        }
        scene.pool.end_excuse("dispatcher-0")
        assert plan_moves(scene.pool, Limits(budget=100)) == []

    def test_policy_moves_nothing_that_is_served_to_one(self):
        scene = Scene(replicas=3)
        scene.pool.set_profile(SPREAD_PROFILE)
        for ordinal in range(3):
            ledger = {"tenant/a": 4} if ordinal == 2 else {}
            scene.pod(ordinal, ledger, ready=ordinal != 0)
        scene.vpod("a", 4, {2: 4})
        advice = Advice(vpods=["tenant/a"])
        found = plan_moves(scene.pool, Limits(budget=100), advice)
        assert [(move.from_pod, move.to_pod, move.vreplicas) for move in found] == [
            ("dispatcher-2", "dispatcher-1", 2)
        ]

    def test_a_profile_of_others_does_not_either(self):
        scene = self.a_scene()
        advice = Advice(better=lambda *_: ("dispatcher-1", "dispatcher-0"), vpods=["tenant/a"])
        assert plan_moves(scene.pool, Limits(budget=100), advice) == []

    def test_a_drain_is_a_persons_order(self):
        scene = self.a_scene(ready=(2,)).pod(
            2, {"tenant/a": 2}, node="node-2", ready=True, unschedulable=True
        )
        assert {move.reason.value for move in plan_moves(scene.pool, Limits(budget=100))} == {
            "Drain"
        }
