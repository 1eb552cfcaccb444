"""What a replica remembers of its decisions, and what it takes for their cause."""

import pytest

from extender.engine.placing.explain import Explanation, Reasoning, Step
from extender.model.moves import MoveReason
from extender.model.reasons import ConflictReason
from extender.model.timestamps import timestamp
from extender.service.placing import decision_history as memories
from extender.service.placing.decision_history import (
    NEW,
    POOL_CHANGED,
    TOOK_OVER,
    WAITED,
    DecisionHistory,
)
from tests.support.builders import a_vpod

KEY = "tenant/a"
ALL = Explanation(2, (), 0, None)
PLACED = Explanation(2, (Reasoning(Step.ADDED, "d-0", 2),), 0, None)
WAITS = Explanation(2, (), 2, ConflictReason.INSUFFICIENT_SLOTS, (("no free slots", 1),))
MOVED = Explanation(
    2,
    (Reasoning(Step.DROPPED, "d-0", 2, "", MoveReason.DRAIN), Reasoning(Step.ADDED, "d-1", 2)),
    0,
    None,
)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


@pytest.fixture
def memory() -> DecisionHistory:
    return DecisionHistory("replica-1", Clock())


def test_a_decision_is_told_with_its_time_its_maker_its_cause_and_its_steps(memory):
    memory.note(KEY, PLACED, why=NEW, generation=1)
    (told,) = memory.history(KEY)
    assert (told.at, told.by, told.why) == ("1970-01-01T00:00:01Z", "replica-1", NEW)
    assert told.text == "all 2 vreplicas are placed; added: 2 on d-0"


def test_the_last_one_is_told_first(memory):
    memory.note(KEY, WAITS, why=NEW, generation=1)
    memory.note(KEY, PLACED, why=WAITED, generation=1)
    assert [one.why for one in memory.history(KEY)] == [WAITED, NEW]


def test_one_that_says_the_same_again_is_counted(memory):
    for _ in range(5):
        memory.note(KEY, WAITS, why=NEW, generation=1)
    (told,) = memory.history(KEY)
    assert told.text.endswith("(said 5 times, last at 1970-01-01T00:00:05Z)")
    assert told.at == "1970-01-01T00:00:01Z"


def test_one_that_leaves_all_where_it_is_does_not_hide_how_it_came_there(memory):
    memory.note(KEY, PLACED, why=NEW, generation=1)
    memory.note(KEY, ALL, why=POOL_CHANGED, generation=1)
    (told,) = memory.history(KEY)
    assert "added: 2 on d-0" in told.text


def test_the_same_for_another_generation_is_another(memory):
    memory.note(KEY, WAITS, why=NEW, generation=1)
    memory.note(KEY, WAITS, why="its spec changed", generation=2)
    assert len(memory.history(KEY)) == 2


def test_one_that_was_not_written_says_so(memory):
    memory.note(KEY, PLACED, why=NEW, generation=1, error="409")
    assert memory.history(KEY)[0].text.endswith("(not written: 409)")
    assert memory.why(KEY, a_vpod(generation=1), PLACED) == "the last decision could not be written"


def test_only_the_last_ones_are_kept(memory):
    for generation in range(20):
        memory.note(KEY, PLACED, why=str(generation), generation=generation)
    assert [one.why for one in memory.history(KEY)] == [str(n) for n in range(19, 11, -1)]


def test_of_too_many_vpods_those_decided_longest_ago_are_forgotten(memory, monkeypatch):
    monkeypatch.setattr(memories, "VPODS_MAX", 2)
    for name in ("a", "b"):
        memory.note(name, WAITS, why=NEW)
    memory.note("a", PLACED, why=WAITED)
    memory.note("c", PLACED, why=NEW)
    assert [bool(memory.history(name)) for name in ("a", "b", "c")] == [True, False, True]


def test_one_that_is_gone_is_forgotten(memory):
    memory.note(KEY, PLACED, why=NEW)
    memory.forget(KEY)
    memory.forget("never known")
    assert memory.history(KEY) == []


def test_a_long_story_is_cut(memory):
    steps = tuple(Reasoning(Step.ADDED, f"d-{index}", 1) for index in range(30))
    memory.note(KEY, Explanation(30, steps, 0, None), why=NEW)
    assert memory.history(KEY)[0].text.endswith("and 10 steps more")


@pytest.mark.parametrize(
    ("before", "generation", "now", "why"),
    [
        pytest.param(None, 1, PLACED, NEW, id="all of it comes"),
        pytest.param(None, 1, WAITS, NEW, id="all of it waits"),
        pytest.param(None, 1, ALL, TOOK_OVER, id="it is there already"),
        pytest.param(PLACED, 2, PLACED, "its spec changed (generation 2)", id="another generation"),
        pytest.param(WAITS, 1, PLACED, WAITED, id="it waited"),
        pytest.param(PLACED, 1, ALL, POOL_CHANGED, id="nothing of its own"),
        pytest.param(PLACED, 1, MOVED, "what it had could not stay (Drain)", id="a drain"),
    ],
)
def test_the_cause_as_far_as_it_can_be_told(memory, before, generation, now, why):
    if before is not None:
        memory.note(KEY, before, why=NEW, generation=1)
    assert memory.why(KEY, a_vpod(generation=generation), now) == why


def test_times_are_as_the_api_writes_them():
    assert timestamp(1_800_000_000.9) == "2027-01-15T08:00:00Z"
