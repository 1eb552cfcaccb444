"""SIGKILL at the service's await points: whatever was half done, it settles, and nothing is
overcommitted, lost or moved.

Here the first time at each await expression in each phase of a call, and some others; ``python -m
tests.simulation.await_points`` kills at every place, the first, second and last time that it is
reached.
"""

import random
import re
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.simulation.await_points import (
    SEED,
    UNREACHED,
    Kill,
    Result,
    every_kill,
    expressions,
    play,
    sample,
    unreached,
)
from tests.simulation.awaiting_modules import CHECKED, NOT_CHECKED, watched
from tests.simulation.kill_scenarios import SCENARIOS
from tests.simulation.suspensions import ROOT

pytestmark = [
    pytest.mark.sim,
    # What a killed process was about to begin is never begun.
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

OTHERS: Final = 15
PAGE: Final = ROOT / "docs" / "reliability.md"


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
        str(kill): play(name, kill, reference(name)).problems
        for kill in kills()
        if kill.scenario == name
    }
    assert {kill: problems for kill, problems in found.items() if problems} == {}


def test_the_page_says_about_how_many_kills_there_are():
    count = sum(1 for _ in every_kill({name: reference(name) for name in SCENARIOS}))
    (told,) = re.findall(r"about ([\d,]+) kills", PAGE.read_text())
    assert int(told.replace(",", "")) == pytest.approx(count, rel=0.1)


def test_every_await_expression_is_reached_by_a_scenario_or_has_a_reason_why_not():
    assert unreached(reference(name) for name in SCENARIOS) == {}


def test_every_reason_is_about_an_expression_that_there_is():
    texts = [(Path(file).name, text) for file in CHECKED for text in expressions(file).values()]
    about = {
        key
        for key in UNREACHED
        for name, text in texts
        if name == key[0] and text.startswith(key[1])
    }
    assert about == UNREACHED.keys()


def test_every_module_that_awaits_is_checked_or_has_a_reason_why_not():
    awaiting = [file for file in watched() if expressions(file)]
    assert sorted([*CHECKED, *NOT_CHECKED]) == sorted(awaiting)
