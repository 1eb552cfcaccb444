"""Runs a folder of upstream case files (each a JSON list of cases) against our code.

Which file is checked by what is in ``SUITES``, by file name; any folder with files of those names
and shapes will do, also with cases never seen before. A case agrees, differs by a named rule, or
fails. A suite that raises has failed that case: a case that cannot be read must not pass for one
that agrees. Named differences are for the few cases that have to differ: where they are more than a
third of a file, the file fails too.
"""

import json
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from extender.model.errors import VReplicaError
from tests.conformance.result import Case, Check, Difference

SUITE_MODULES = (
    "tests.conformance.assumecache_cases",
    "tests.conformance.schedule_cases",
    "tests.conformance.schedule_old_cases",
    "tests.conformance.state_cases",
    "tests.conformance.extender_cases",
    "tests.conformance.autoscaler_cases",
    "tests.conformance.helpers_cases",
    "tests.conformance.plugin_cases",
)
_SUITE_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
    VReplicaError,
)
"""What a case of unexpected shape, or a defect of ours, makes a suite raise."""
NAMED_SHARE_MAX = 1 / 3
NAMED_SHARE_CASES_MIN = 9
"""In a file of fewer cases a share says nothing."""
FAILURES_SHOWN_MAX = 20
FAILURE_CHARS_MAX = 2_000


@dataclass
class FileReport:
    """The outcomes of one file. ``differences``: rule -> cases; ``reasons``: rule -> why.

    ``agreed`` counts also those that agree with an ``offered`` option (rule and option -> cases);
    ``differences`` also those that are ``outside`` of what we do.
    """

    name: str
    agreed: int = 0
    outside: int = 0
    offered: Counter[tuple[str, str]] = field(default_factory=Counter)
    differences: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, str] = field(default_factory=dict)
    failures: list[tuple[str, str]] = field(default_factory=list)

    @property
    def differed(self) -> int:
        return self.differences.total()

    @property
    def comparable(self) -> int:
        """Cases that are about something we do."""
        return self.agreed + self.differed - self.outside + len(self.failures)

    @property
    def named_share(self) -> float:
        """The share of comparable cases that differ on purpose."""
        return (self.differed - self.outside) / self.comparable if self.comparable else 0.0


@dataclass
class Report:
    """The outcomes of one folder. ``without_suite``: files that nothing here checks."""

    files: list[FileReport] = field(default_factory=list)
    without_suite: list[str] = field(default_factory=list)
    reason: str = ""
    """Why there is nothing to run, "" if there is."""

    @property
    def passed(self) -> int:
        return sum(report.agreed for report in self.files)

    @property
    def failed(self) -> int:
        return sum(len(report.failures) for report in self.files)

    @property
    def skipped(self) -> int:
        return sum(report.differed for report in self.files)


def suites() -> dict[str, Check]:
    """File name -> check, from all suite modules that are there."""
    found: dict[str, Check] = {}
    for module in SUITE_MODULES:
        if find_spec(module) is not None:
            found.update(import_module(module).FILES)
    return found


def run_folder(folder: Path | None, checks: Mapping[str, Check]) -> Report:
    """Check every case in every ``*.json`` of ``folder``."""
    if folder is None:
        return Report(reason="no folder of cases is given")
    if not folder.is_dir():
        return Report(reason=f"{folder} is not a folder")
    paths = sorted(folder.glob("*.json"))
    if not paths:
        return Report(reason=f"{folder} has no case files (*.json)")
    report = Report()
    for path in paths:
        if path.name in checks:
            report.files.append(run_file(path, checks[path.name]))
        else:
            report.without_suite.append(path.name)
    return report


def run_file(path: Path, check: Check) -> FileReport:
    """Check every case of one file; a file that is no list of cases is one failure."""
    report = FileReport(path.name)
    try:
        cases = json.loads(path.read_bytes())
    except ValueError as error:
        cases = f"not JSON: {error}"
    if not isinstance(cases, list):
        report.failures.append(
            ("(the file)", f"expected a JSON list of cases, found {str(cases)[:200]}")
        )
        return report
    for number, case in enumerate(cases):
        _count(report, *_outcome(check, number, case))
    if report.comparable >= NAMED_SHARE_CASES_MIN and report.named_share > NAMED_SHARE_MAX:
        text = (
            f"{report.named_share:.0%} of the cases are named differences, more than a third: "
            f"offer the old behaviour"
        )
        report.failures.append(("(the file)", text))
    return report


def _outcome(check: Check, number: int, case: object) -> tuple[str, str | Difference | None]:
    if not isinstance(case, dict):
        return f"#{number}", f"expected an object, found {str(case)[:200]}"
    return str(case.get("id", f"#{number}")), _guarded(check, case)


def _guarded(check: Check, case: Case) -> str | Difference | None:
    try:
        return check(case)
    except _SUITE_ERRORS:
        return traceback.format_exc(limit=-4)


def _count(report: FileReport, case_id: str, outcome: str | Difference | None) -> None:
    match outcome:
        case None:
            report.agreed += 1
        case Difference():
            report.reasons[outcome.rule] = outcome.reason
            if outcome.offered:
                report.agreed += 1
                report.offered[outcome.rule, outcome.offered] += 1
            else:
                report.differences[outcome.rule] += 1
                report.outside += outcome.outside
        case _:
            report.failures.append((case_id, outcome))


def lines(report: Report) -> Iterator[str]:
    """The report as text; the last line is ``N passed, N failed, N skipped`` (skipped: named
    differences).
    """
    if report.reason:
        yield f"nothing to run: {report.reason}"
    for file in report.files:
        share = f" ({file.named_share:.0%})" if file.differed else ""
        if file.outside:
            share = f" ({file.named_share:.0%} without {file.outside} of what we do not do)"
        yield (
            f"{file.name}: {file.agreed} agree, {file.differed} named difference{share}, "
            f"{len(file.failures)} fail"
        )
        for (rule, option), count in sorted(file.offered.items()):
            yield f"    {count:4} agree with {option}; by default: {rule}"
        for rule, count in sorted(file.differences.items()):
            yield f"    {count:4} {rule}: {file.reasons[rule]}"
    for name in report.without_suite:
        yield f"{name}: no suite yet, not counted"
    failures = [(file.name, *failure) for file in report.files for failure in file.failures]
    for name, case_id, text in failures[:FAILURES_SHOWN_MAX]:
        yield f"FAIL {name} {case_id}"
        yield from (f"    {line}" for line in text[:FAILURE_CHARS_MAX].splitlines())
    if len(failures) > FAILURES_SHOWN_MAX:
        yield f"... and {len(failures) - FAILURES_SHOWN_MAX} more failures"
    yield f"{report.passed} passed, {report.failed} failed, {report.skipped} skipped"


def main(arguments: list[str], write: Callable[[str], object] = print) -> int:
    """``python -m tests.conformance [DIR]``: 0, or 1 where a case fails."""
    folder = Path(arguments[0]) if arguments and arguments[0] else None
    report = run_folder(folder, suites())
    for line in lines(report):
        write(line)
    return 1 if report.failed else 0
