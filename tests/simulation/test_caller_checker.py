"""The checker of what callers of ``/v1/schedule`` publish: what it finds, and what it lets pass (no
engine, no service).
"""

from dataclasses import replace

import pytest

from extender.lab.simulation.world.callers import external_vpod_key
from extender.lab.simulation.world.facts import VPod
from extender.model.names import UNSCHEDULABLE_ANNOTATION
from tests.simulation.checker_scene import (
    PERSON,
    REPLICA,
    CheckerScene,
    in_virtual_time,
    later,
    pod_object,
)

pytestmark = [pytest.mark.sim, pytest.mark.timeout(60)]

KEY = external_vpod_key("t", "c")
OTHER = "replica-2"


def a_caller(wanted: int = 2) -> VPod:
    return VPod(KEY, "", "a", 1, wanted, 1, 0, {}, 0, ("", ""), ("", "", ""), by_caller=True)


class CallerScene(CheckerScene):
    """With one caller, which has been answered {a-0: 2} by ``REPLICA``."""

    def __init__(self, **of_checkers) -> None:
        super().__init__(**of_checkers)
        self.caller = a_caller()
        self.pool()
        self.checkers.callers.wished(None, self.caller)
        self.pod("a-0", {KEY: 2})
        self.pod("a-1", {})
        self.answer({"a-0": 2})

    def answer(self, placements: dict[str, int], *, left: int = 0, by: str = REPLICA) -> None:
        asked, self.caller = (
            self.caller,
            replace(
                self.caller,
                observed=self.caller.generation,
                placements=placements,
                scheduled=sum(placements.values()),
                condition=("False" if left else "True", ""),
            ),
        )
        self.checkers.callers.answered(asked, self.caller, by)

    def replace_pod(self, ledger: dict[str, int], actor: str) -> None:
        """a-0 is deleted, and the next one bound by ``actor`` with this ledger."""
        self.write("pods", "a-0", None)
        self.pod("a-0", None, node="", uid="2")
        self.pod("a-0", ledger, actor=actor, uid="2")


@in_virtual_time
async def test_an_answer_that_ledgers_cover_is_fine_and_settles():
    scene = CallerScene()
    assert scene.found == []
    assert scene.checkers.differences() == []


@in_virtual_time
async def test_an_answer_that_no_ledger_covers_is_found():
    scene = CallerScene()
    scene.answer({"a-0": 2, "a-1": 1})
    (found,) = scene.found
    assert found.startswith("I2: replica-1 answered t/c@broker.x.dev")


@in_virtual_time
async def test_a_ledger_that_is_lowered_below_what_a_caller_publishes_is_found():
    scene = CallerScene()
    scene.pod("a-0", {KEY: 1})
    assert [line[:3] for line in scene.found] == ["I2:"]


@in_virtual_time
async def test_all_placed_is_not_told_of_fewer():
    scene = CallerScene()
    scene.caller = replace(scene.caller, wanted=5)
    scene.answer({"a-0": 2})
    assert scene.found == ["replica-1 told t/c@broker.x.dev that all 5 are placed: {'a-0': 2}"]


@in_virtual_time
async def test_a_move_for_no_reason_is_found():
    scene = CallerScene()
    await later(61.0)  # the pool is new no longer
    scene.pod("a-1", {KEY: 2})
    scene.answer({"a-1": 2})
    (found,) = scene.found
    assert found.startswith(
        "I4: replica-1 took 2 of t/c@broker.x.dev (wants 2) off a-0 for no reason"
    )


@in_virtual_time
async def test_what_others_of_a_higher_priority_take_is_a_reason():
    """Seed 510000094 (500 events)."""
    scene = CallerScene()
    scene.pool(preemption={"patienceSeconds": 0})
    scene.vpod("important", 8, {}, actor=PERSON)
    await later(61.0)  # the pool is new no longer
    scene.answer({})
    assert [line for line in scene.found if "for no reason" in line] == []


@in_virtual_time
async def test_a_move_off_a_marked_pod_and_fewer_that_are_wanted_are_reasons():
    scene = CallerScene()
    marked = pod_object("a-0", {KEY: 2})
    marked["metadata"]["annotations"][UNSCHEDULABLE_ANNOTATION] = "true"
    scene.write("pods", "a-0", marked, "")
    scene.pod("a-1", {KEY: 2})
    scene.answer({"a-1": 2})
    scene.caller = replace(scene.caller, wanted=1)
    scene.answer({"a-1": 1})
    assert scene.found == []


@in_virtual_time
async def test_who_has_seen_the_last_pod_gives_the_next_one_what_callers_had():
    scene = CallerScene(listed_at=lambda _actor: 0.0)
    await later(5.0)
    scene.replace_pod({}, OTHER)
    assert [line[:3] for line in scene.found] == ["I2:"]


@in_virtual_time
async def test_who_has_listed_pods_since_may_know_nothing_of_it_until_the_caller_asks_again():
    scene = CallerScene(listed_at=lambda _actor: 9.0)
    await later(5.0)
    scene.replace_pod({}, OTHER)
    assert scene.found == []
    assert scene.checkers.differences() != []
    scene.pod("a-0", {KEY: 2}, uid="2")
    await later(20.0)
    scene.pod("a-0", {KEY: 1}, uid="2")
    assert [line[:3] for line in scene.found] == ["I2:"]


@in_virtual_time
async def test_who_has_answered_the_caller_and_led_since_knows_it_also_after_a_list():
    scene = CallerScene(listed_at=lambda _actor: 9.0)
    await later(5.0)
    scene.replace_pod({}, REPLICA)
    assert [line[:3] for line in scene.found] == ["I2:"]


@in_virtual_time
async def test_a_pod_that_a_caller_is_on_is_not_to_be_scaled_away():
    scene = CallerScene()
    scene.write("statefulsets", "a", {"metadata": {"name": "a"}, "spec": {"replicas": 0}})
    assert scene.found == ["I3: replica-1 removed a-0, which t/c@broker.x.dev is on"]


@in_virtual_time
async def test_what_is_given_back_is_to_leave_the_ledgers():
    scene = CallerScene()
    scene.checkers.callers.wished(scene.caller, None)
    assert [line[:3] for line in scene.checkers.differences()] == ["I3:"]
    scene.pod("a-0", {})
    assert scene.checkers.differences() == []
