"""The table of ``make e2e-matrix``: what a run came to, and where it is written."""

import pytest

from tests.e2e.build import VERSIONS
from tests.e2e.matrix import END, HEAD, PAGE, START, NoTable, Outcome, main, read_report, with_rows

NEWEST = VERSIONS[-1]
OTHER = VERSIONS[0]


def outcome(version: str, *, passed: int = 10) -> Outcome:
    return Outcome(kubernetes=f"{version}.9", passed=passed, failed=0, skipped=1, seconds=90.0)


def report(**counts: int) -> bytes:
    text = " ".join(f'{name}="{count}"' for name, count in counts.items())
    return f'<testsuites><testsuite name="pytest" {text} time="120.4"/></testsuites>'.encode()


def test_failures_and_errors_are_failed_and_the_rest_has_passed():
    found = read_report(NEWEST, report(tests=20, failures=2, errors=1, skipped=4))
    assert (found.passed, found.failed, found.skipped, found.seconds) == (13, 3, 4, 120.4)
    assert found.kubernetes.startswith(f"{NEWEST}.")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"<testsuites/>", id="pytest did not start"),
        pytest.param(report(tests=0, failures=0, errors=0, skipped=0), id="no test was found"),
        pytest.param(report(tests=3, failures=0, errors=0, skipped=3), id="all were skipped"),
    ],
)
def test_a_run_that_tested_nothing_has_failed(text: bytes):
    assert read_report(NEWEST, text).failed == 1


def test_a_version_that_did_not_run_keeps_its_row():
    page = with_rows(f"a\n{START}\n{END}\nb\n", [outcome(NEWEST), outcome(OTHER)])
    again = with_rows(page, [outcome(OTHER, passed=11)])
    rows = f"| {NEWEST}.9 | 10 | 0 | 1 | 2 |\n| {OTHER}.9 | 11 | 0 | 1 | 2 |\n"
    assert again == f"a\n{START}\n{HEAD}{rows}{END}\nb\n"


def test_the_row_of_a_version_without_a_module_goes():
    page = f"{START}\n{HEAD}| 1.12.1 | 1 | 0 | 0 | 1 |\n{END}"
    assert with_rows(page, []) == f"{START}\n{HEAD}{END}"


def test_a_page_without_the_table_is_refused():
    with pytest.raises(NoTable):
        with_rows("a page", [outcome(NEWEST)])


def test_the_page_has_the_table():
    assert with_rows(PAGE.read_text(), [outcome(NEWEST)]) != PAGE.read_text()


def test_an_unknown_version_is_refused_before_anything_runs(capsys: pytest.CaptureFixture[str]):
    assert main(["1.12"]) == 2
    assert f"no module for 1.12; there are {', '.join(VERSIONS)}" in capsys.readouterr().err
