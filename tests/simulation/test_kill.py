"""SIGKILL at the service's await points: whatever was half done, it settles, and nothing is overcommitted, lost or moved.

Here the first time at each await expression in each phase of a call, and some others; ``python -m tests.simulation.await_points``
kills at every place, the first, second and last time that it is reached.
"""

import random
from functools import cache
from typing import Final

import pytest

from tests.simulation.await_points import (
    CHECKED,
    SEED,
    UNREACHED,
    Kill,
    Result,
    every_kill,
    expressions,
    play,
    reason_of,
    sample,
    unreached,
)
from tests.simulation.kill_scenarios import SCENARIOS

pytestmark = [
    pytest.mark.sim,
    # What a killed process was about to begin is never begun.
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

OTHERS: Final = 15


@cache
def reference(name: str) -> Result:
    return play(name)


@cache
def kills() -> list[Kill]:
    every = every_kill({name: reference(name) for name in SCENARIOS})
    return sample(every, OTHERS, random.Random(SEED))


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_passes_and_moves_what_it_asks_for_without_a_kill(name: str):
    assert reference(name).problems == []
    assert set(reference(name).moves) <= SCENARIOS[name].moves
    assert bool(reference(name).moves) is bool(SCENARIOS[name].moves)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_is_lost_or_moved_wherever_a_replica_is_killed(name: str):
    found = {
        str(kill): play(name, kill, reference(name)).problems for kill in kills() if kill.scenario == name
    }
    assert {kill: problems for kill, problems in found.items() if problems} == {}


def test_every_await_expression_is_reached_by_a_scenario_or_has_a_reason_why_not():
    assert unreached(reference(name) for name in SCENARIOS) == {}


def test_every_reason_is_about_an_expression_that_there_is():
    texts = [(expression, text) for file in CHECKED for expression, text in expressions(file).items()]
    used = {reason_of(expression, text) for expression, text in texts}
    assert used - {""} == set(UNREACHED.values())
