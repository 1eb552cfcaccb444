"""Results as lines of JSON and as tables, and what the command line says."""

import json

import pytest

from tests.bench.options import Options, options_from
from tests.bench.registry import BENCHES
from tests.bench.result import Result, table
from tests.bench.timing import Stopwatch, median, percentile


def test_a_line_of_json_has_the_bench_the_case_and_the_figures_side_by_side():
    result = Result(
        "engine", {"profile": "default", "pods": 1000}, {"vpodsPerSecond": 0.5, "peer": None}
    )
    assert json.loads(result.json_line()) == {
        "bench": "engine",
        "profile": "default",
        "pods": 1000,
        "vpodsPerSecond": 0.5,
        "peer": None,
    }


def test_rows_with_the_same_columns_stand_under_one_heading():
    rows = [
        Result("engine", {"profile": "default"}, {"each": 12_345.6}),
        Result("engine", {"profile": "ha"}, {"each": None}),
        Result("engine", {"profile": "ha"}, {"other": 3}),
    ]
    assert table(rows).split("\n") == [
        "engine  profile    each",
        "        default  12,346",
        "             ha       -",
        "",
        "engine  profile  other",
        "             ha      3",
    ]


def test_options_name_benches_that_there_are(capsys):
    assert options_from(
        ["--only", "engine", "--short", "--format", "json"], tuple(BENCHES)
    ) == Options(("engine",), short=True, json_lines=True)
    with pytest.raises(SystemExit, match="2"):
        options_from(["--only", "engines"], tuple(BENCHES))
    assert "there is no bench 'engines'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("values", "percent", "found"),
    [([], 99, 0.0), ([3.0], 99, 3.0), ([4.0, 1.0, 3.0, 2.0], 50, 2.0), ([*range(1, 101)], 99, 99)],
)
def test_a_percentile_is_one_of_the_values(values, percent, found):
    assert percentile(values, percent) == found
    assert median([1.0, 9.0, 2.0]) == 2.0


def test_a_stopwatch_adds_up_and_gives_what_the_work_gave():
    watch = Stopwatch()
    assert watch.run(sum, [1, 2]) == 3
    once_s = watch.wall_s
    watch.run(sum, [1, 2])
    assert watch.wall_s > once_s > 0
