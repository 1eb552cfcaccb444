"""A trial that fails: the line that runs it again, and a shorter trial that fails in the
same way.
"""

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from extender.cli.commands.simulate import trials_of
from extender.cli.main import new_parser
from extender.cli.simulation.seeds import read_profile
from extender.lab.simulation.run import Outcome, Trial, as_ranges, simulate
from extender.lab.simulation.shrink import shrink
from extender.lab.simulation.world.profile import ACT_KINDS, FaultProfile
from extender.service.placing import committer

pytestmark = [pytest.mark.sim, pytest.mark.timeout(120)]


def fails_with(events: set[int], faults: set[str]) -> "FakeRun":
    return FakeRun(frozenset(events), frozenset(faults))


class FakeRun:
    """A run that fails if these events and these faults are in it."""

    def __init__(self, events: frozenset[int], faults: frozenset[str]) -> None:
        self.events = events
        self.faults = faults
        self.trials = 0

    def __call__(self, trial: Trial) -> Outcome:
        self.trials += 1
        events = range(trial.events) if trial.only is None else sorted(trial.only)
        faults = (
            {"slow", "conflict", "killReplica", "watchHung"}
            if trial.faults is None
            else set(trial.faults)
        )
        outcome = Outcome(trial, events=list(events), tried=trial.events)
        outcome.faults.update(faults)
        if self.events <= set(events) and self.faults <= faults:
            outcome.problems.append("at 3.000 s: I2: uncovered")
        return outcome


def test_a_failing_trial_is_shrunk_to_what_makes_it_fail():
    outcome = shrink(Trial(1, events=100), run=fails_with({7, 61}, {"conflict"}))
    assert outcome is not None
    assert (outcome.trial.only, outcome.trial.faults) == (
        frozenset({7, 61}),
        frozenset({"conflict"}),
    )


def test_shrinking_ends_at_its_limit_with_the_shortest_so_far():
    run = fails_with({7, 61}, {"conflict"})
    outcome = shrink(Trial(1, events=1000), run=run, trials_max=9)
    assert outcome is not None
    assert run.trials == 10
    assert outcome.trial.only is not None
    assert {7, 61} <= outcome.trial.only


def test_a_trial_that_passes_is_not_shrunk():
    assert shrink(Trial(1), run=fails_with({7}, {"no such fault"})) is None


def test_a_failing_trial_is_told_as_one_line_to_run_again():
    trial = Trial(9, only=frozenset({3, 4, 5, 9}), faults=frozenset({"slow", "conflict"}))
    assert trial.command() == "--seed 9 --seeds 1 --only 3-5,9 --only-faults conflict,slow"
    assert as_ranges([]) == "none"


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, id="a seed"),
        pytest.param({"events": 60, "plain": True}, id="plain"),
        pytest.param({"only": frozenset({0, 1, 7}), "faults": frozenset({"slow"})}, id="shrunk"),
        pytest.param({"only": frozenset(), "faults": frozenset()}, id="nothing is left"),
    ],
)
@pytest.mark.parametrize("with_profile", [False, True])
def test_the_line_that_is_told_is_the_trial_that_failed(fields, with_profile: bool, tmp_path: Path):
    file = tmp_path / "a profile.yaml"
    file.write_text("faults: {slow: 0.5}\nothers: none\n")
    trial = Trial(9, profile=read_profile(str(file) if with_profile else ""), **fields)
    options = new_parser().parse_args(["simulate", *shlex.split(trial.command())])
    assert trials_of(options) == (trial,)
    assert ("--profile" in trial.command()) is with_profile


def acts_of(trial: Trial) -> dict[str, str]:
    """What each event of a run was, by its number."""
    acts: dict[str, str] = {}
    for line in simulate(trial, keep_trace=True).trace:
        number, found, name = line.partition(" event ")[2].partition(": ")
        if found:
            acts.setdefault(
                number, name
            )  # what it was; a second line is the error that it ended with
    return acts


def test_the_events_that_stay_are_what_they_were_when_a_kind_is_left_out():
    whole = Trial(8, events=60, profile=FaultProfile(others="all", parts=frozenset()))
    outcome = simulate(whole)
    acts = {kind.name for kind in ACT_KINDS} & outcome.faults.keys()
    assert len(acts) >= 2
    only = frozenset(range(outcome.tried))
    shorter = replace(whole, only=only, faults=frozenset(outcome.faults) - acts)
    assert acts_of(shorter) == acts_of(whole)


def test_a_service_that_is_broken_on_purpose_is_shown_by_a_few_events(
    monkeypatch: pytest.MonkeyPatch,
):
    """Statuses publish what is decided, whatever the ledgers have."""
    monkeypatch.setattr(
        committer, "publishable", lambda target, _confirmed, _published: dict(target)
    )
    failing = next(
        trial
        for trial in (
            Trial(seed, events=30, profile=FaultProfile(parts=frozenset()))
            for seed in range(90, 110)
        )
        if any("I2" in problem for problem in simulate(trial).problems)
    )
    shorter = shrink(failing, trials_max=60)
    assert shorter is not None
    assert any("I2" in problem for problem in shorter.problems)
    assert len(shorter.events) <= 10
    assert simulate(shorter.trial).problems == shorter.problems, (
        "the line that is told runs it again"
    )
