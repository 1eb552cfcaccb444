"""The guard fails for what is much worse twice in a row, and for nothing else."""

import json

import pytest

from tests.bench import guard, registry
from tests.bench.guard import confirmed, losses, main, ratios_of
from tests.bench.population import Pool
from tests.bench.result import Result
from tests.bench.verb_cases import SHORT, cases

COST, GAIN = "engine pods=1 costRatio", "engine pods=1 rebuiltRatio"


def result(**figures: float | None) -> Result:
    return Result("engine", {"pods": 1}, figures)


def test_only_guarded_ratios_are_compared():
    found = ratios_of([result(costRatio=1.5, rebuiltRatio=9.0, p50Ms=3.0, p50ToGoRatio=2.0)])
    assert found == {COST: 1.5, GAIN: 9.0}
    assert ratios_of([result(costRatio=None)]) == {}


@pytest.mark.parametrize(
    ("stored", "found", "lost"),
    [
        pytest.param({COST: 1.0}, {COST: 1.9}, [], id="a cost a little higher"),
        pytest.param({COST: 1.0}, {COST: 2.1}, [COST], id="a cost much higher"),
        pytest.param({COST: 2.0}, {COST: 0.1}, [], id="a cost much lower"),
        pytest.param({GAIN: 10.0}, {GAIN: 4.9}, [GAIN], id="a gain much lower"),
        pytest.param({GAIN: 10.0}, {GAIN: 90.0}, [], id="a gain much higher"),
        pytest.param({}, {COST: 9.0}, [], id="not known"),
        pytest.param({COST: 1.0}, {}, [], id="not measured"),
        pytest.param(
            {COST: 1.0, GAIN: 9.0}, {COST: 3.0, GAIN: 1.0}, [GAIN, COST], id="the worst first"
        ),
    ],
)
def test_what_is_a_loss(stored, found, lost):
    assert [loss.what for loss in losses(stored, found)] == lost


def test_a_loss_counts_when_it_comes_twice():
    once, twice = (
        losses({COST: 1.0, GAIN: 9.0}, {COST: 3.0}),
        losses({COST: 1.0, GAIN: 9.0}, {COST: 3.0, GAIN: 1.0}),
    )
    assert [loss.what for loss in confirmed(once, twice)] == [COST]
    assert confirmed(once, []) == []


@pytest.mark.parametrize(
    ("runs", "status"),
    [([1.0], 0), ([3.0, 1.0], 0), ([3.0, 3.0], 1)],
    ids=["never", "once", "twice"],
)
def test_the_command(runs: list[float], status: int, monkeypatch, tmp_path, capsys):
    left = list(runs)
    monkeypatch.setattr(guard, "BASELINE", tmp_path / "baseline.json")
    guard.write({COST: 1.0})
    monkeypatch.setitem(
        registry.BENCHES, "engine", lambda _options: [result(costRatio=left.pop(0))]
    )
    for name in ("webhook", "verbs"):
        monkeypatch.setitem(registry.BENCHES, name, skipped)
    assert main([]) == status
    assert not left, "it is measured again where something is worse, and only then"
    assert "1 ratios compared" in capsys.readouterr().out


def test_a_stored_ratio_that_is_not_measured_any_more_is_a_failure(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(guard, "BASELINE", tmp_path / "baseline.json")
    guard.write({COST: 1.0, GAIN: 8.0})
    monkeypatch.setitem(registry.BENCHES, "engine", lambda _options: [result(costRatio=1.0)])
    for name in ("webhook", "verbs"):
        monkeypatch.setitem(registry.BENCHES, name, skipped)
    assert main([]) == 1
    told = capsys.readouterr().out
    assert f"{GAIN}: stored, not measured" in told
    assert COST not in told


def test_what_a_skipped_bench_would_have_measured_is_not_missing(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(guard, "BASELINE", tmp_path / "baseline.json")
    guard.write({COST: 1.0, "verbs verb=filter cpuToGoRatio": 1.0})
    monkeypatch.setitem(registry.BENCHES, "engine", lambda _options: [result(costRatio=1.0)])
    for name in ("webhook", "verbs"):
        monkeypatch.setitem(registry.BENCHES, name, skipped)
    assert main([]) == 0
    assert "1 ratios compared" in capsys.readouterr().out


def test_a_bench_that_is_not_guarded_is_missing(monkeypatch, tmp_path):
    monkeypatch.setattr(guard, "BASELINE", tmp_path / "baseline.json")
    guard.write({"memory pods=1 costRatio": 1.0})
    for name in guard.BENCHES:
        monkeypatch.setitem(registry.BENCHES, name, lambda _options: [])
    assert main([]) == 1


def skipped(_options: object) -> list[Result]:
    raise registry.Skipped("no Go")


def test_the_worse_of_two_runs_is_stored(monkeypatch, tmp_path):
    monkeypatch.setattr(guard, "BASELINE", tmp_path / "baseline.json")
    guard.write({COST: 1.0, GAIN: 8.0}, {COST: 1.5, GAIN: 9.0})
    assert json.loads(guard.BASELINE.read_text()) == {COST: 1.5, GAIN: 8.0}


def test_the_stored_ratios_are_guarded_ones():
    stored = json.loads(guard.BASELINE.read_text())
    assert stored
    assert {what.rpartition(" ")[2] for what in stored} <= guard.GUARDED


def test_each_row_of_the_verbs_that_is_measured_has_a_stored_ratio_and_no_other_has():
    stored = {what for what in json.loads(guard.BASELINE.read_text()) if what.startswith("verbs ")}
    rows = cases(SHORT, Pool("a", 2, 3, 1), Pool("b", 1, 2, 1, profile="ha"), seed=1)
    assert stored == set(
        ratios_of(Result("verbs", row.described(), {"cpuToGoRatio": 1.0}) for row in rows)
    )
