"""A run that ends with an error is a failed seed with its replay line, whatever the error, and the
other seeds run all the same.
"""

import asyncio

import pytest

from extender.cli.simulation import seeds
from extender.cli.simulation.seeds import SimulateOptions, run_simulation, trials
from extender.lab.faults import Crashed
from extender.lab.simulation import run
from extender.lab.simulation.run import Trial, simulate
from extender.lab.simulation.workload import Workload

pytestmark = pytest.mark.sim


def ends_with(monkeypatch: pytest.MonkeyPatch, error: BaseException, seed: int = 1) -> None:
    async def broken(trial: Trial, outcome: run.Outcome, *, keep_trace: bool) -> None:
        await asyncio.sleep(0)
        if trial.seed == seed:
            raise error

    monkeypatch.setattr(run, "_run", broken)


@pytest.mark.parametrize(
    "error",
    [KeyError("no such pod"), ExceptionGroup("tasks", [ValueError("x")]), Crashed("replica-1")],
    ids=repr,
)
def test_any_error_that_ends_a_run_is_a_problem_of_its_seed(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
):
    ends_with(monkeypatch, error)
    (problem,) = simulate(1).problems
    assert problem.startswith(f"{type(error).__name__}: ")
    assert "raised in broken, test_outcome.py:" in problem


def test_a_run_in_which_something_is_waited_for_without_end_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
):
    async def never(_workload: Workload) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Workload, "calm_down", never)
    monkeypatch.setattr(run, "RUN_MAX_S", 100.0)
    (problem,) = simulate(Trial(1, events=1)).problems
    assert "something is waited for that never comes" in problem


def test_a_person_who_interrupts_ends_all_seeds(monkeypatch: pytest.MonkeyPatch):
    ends_with(monkeypatch, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        simulate(1)


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_other_seeds_run_all_the_same_and_the_replay_line_is_told(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], jobs: int
):
    ends_with(monkeypatch, KeyError("no such pod"), seed=2)
    monkeypatch.setattr(
        seeds, "_prepare_process", lambda: None
    )  # it is not ours: no logs, no collection
    assert run_simulation(SimulateOptions(trials=trials(range(1, 4)), jobs=jobs, shrink=False)) == 1
    out = capfd.readouterr().out
    assert "replay: vreplica simulate --seed 2 --seeds 1 --trace" in out
    assert "2 passed, 1 failed" in out
