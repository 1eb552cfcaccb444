"""How many cases of a file may be named differences, and what counts as one."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conformance.result import Case, Difference
from tests.conformance.runner import Report, lines, run_folder

RULE = Difference("a rule", "its reason")
ANSWERS: dict[str, str | Difference | None] = {
    "agrees": None,
    "differs": RULE,
    "offered": replace(RULE, offered="profile p"),
    "outside": replace(RULE, outside=True),
    "fails": "no match",
}


def report_of(folder: Path, **answers: int) -> Report:
    cases: list[Case] = [
        {"answer": answer} for answer, count in answers.items() for _ in range(count)
    ]
    (folder / "a.json").write_text(json.dumps(cases))
    return run_folder(folder, {"a.json": lambda case: ANSWERS[case["answer"]]})


@pytest.mark.parametrize(
    ("answers", "failed"),
    [
        pytest.param({"agrees": 6, "differs": 3}, 0, id="a third"),
        pytest.param({"agrees": 6, "differs": 4}, 1, id="more than a third"),
        pytest.param(
            {"agrees": 2, "differs": 6}, 0, id="a few cases, of which a share says nothing"
        ),
        pytest.param({"agrees": 5, "differs": 3, "offered": 2}, 0, id="some agree with an option"),
        pytest.param(
            {"agrees": 6, "differs": 3, "outside": 20}, 0, id="others are not about what we do"
        ),
        pytest.param(
            {"agrees": 4, "differs": 4, "outside": 20}, 0, id="too few are about what we do"
        ),
        pytest.param(
            {"agrees": 5, "differs": 3, "fails": 1}, 1, id="a failure is no named difference"
        ),
    ],
)
def test_a_file_fails_where_more_than_a_third_of_it_is_named(tmp_path: Path, answers, failed):
    assert report_of(tmp_path, **answers).failed == failed


def test_too_many_named_differences_are_told_as_a_failure_of_the_file(tmp_path: Path):
    output = list(lines(report_of(tmp_path, agrees=5, differs=5)))
    assert output[-3:-1] == [
        "FAIL a.json (the file)",
        "    50% of the cases are named differences, more than a third: offer the old behaviour",
    ]
    assert output[-1] == "5 passed, 1 failed, 5 skipped"


def test_a_case_that_agrees_with_an_option_passes_and_says_so(tmp_path: Path):
    assert list(lines(report_of(tmp_path, agrees=1, offered=2))) == [
        "a.json: 3 agree, 0 named difference, 0 fail",
        "       2 agree with profile p; by default: a rule",
        "3 passed, 0 failed, 0 skipped",
    ]


def test_what_we_do_not_do_is_skipped_and_in_no_share(tmp_path: Path):
    assert next(iter(lines(report_of(tmp_path, agrees=1, outside=2)))) == (
        "a.json: 1 agree, 2 named difference (0% without 2 of what we do not do), 0 fail"
    )
