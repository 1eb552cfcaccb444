"""``python -m tests.e2e.matrix [VERSION ...]``: the end-to-end suite on each version of Kubernetes,
and the table of docs/install.md.

Each version has its own run of ``make e2e``, one after another. A version that is not named keeps
its row. The table stands between two comments of the page. The command ends with 1 when a scenario
failed anywhere.
"""

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from tests.e2e.build import VERSION_VARIABLE, VERSIONS, Module

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "install.md"
START: Final = "<!-- the table of make e2e-matrix -->"
END: Final = "<!-- its end -->"
HEAD: Final = "| Kubernetes | tests passed | failed | skipped | minutes |\n|---|---|---|---|---|\n"
RUN_TIMEOUT_S: Final = 3 * 3600.0
"""Of one version: its build when cold, and its tests."""

_ROW: Final = re.compile(r"^\| (?P<version>\d+\.\d+)\.\d+ \|.*$", re.MULTILINE)


class NoTable(Exception):
    """The page lacks the two comments."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one version's run came to. ``seconds`` is that of pytest, without the build."""

    kubernetes: str
    """As 1.36.3."""
    passed: int
    failed: int
    skipped: int
    seconds: float

    @property
    def row(self) -> str:
        """Its line of the table."""
        figures = (self.passed, self.failed, self.skipped, round(self.seconds / 60))
        return f"| {self.kubernetes} | {' | '.join(map(str, figures))} |"


def read_report(version: str, report: bytes) -> Outcome:
    """The outcome in pytest's JUnit report. A run that tested nothing counts as one failure."""
    suite = ElementTree.fromstring(report).find("testsuite")
    counts = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    if suite is not None:
        counts = {name: int(suite.get(name, "0")) for name in counts}
    failed = counts["failures"] + counts["errors"]
    passed = counts["tests"] - failed - counts["skipped"]
    seconds = float(suite.get("time", "0")) if suite is not None else 0.0
    kubernetes = Module(version, ()).kubernetes.removeprefix("v")
    return Outcome(kubernetes, passed, failed or int(passed == 0), counts["skipped"], seconds)


def with_rows(page: str, outcomes: list[Outcome]) -> str:
    """The page with these rows in its table, newest version first; other versions' rows stay.
    Raises NoTable.
    """
    before, start, rest = page.partition(START)
    table, end, after = rest.partition(END)
    if not start or not end:
        raise NoTable(f"no table between {START} and {END}")
    rows = {found["version"]: found[0] for found in _ROW.finditer(table)}
    rows |= {outcome.kubernetes.rpartition(".")[0]: outcome.row for outcome in outcomes}
    lines = "".join(f"{rows[version]}\n" for version in reversed(VERSIONS) if version in rows)
    return f"{before}{START}\n{HEAD}{lines}{END}{after}"


def run(version: str) -> Outcome:
    """``make e2e`` on this version."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        subprocess.run(
            ["make", "e2e", f"ARGS=--junitxml={report}"],
            cwd=ROOT,
            env={**os.environ, VERSION_VARIABLE: version},
            check=False,
            timeout=RUN_TIMEOUT_S,
        )
        return read_report(version, report.read_bytes() if report.exists() else b"<testsuites/>")


def main(versions: list[str]) -> int:
    """Runs the suite on these versions, all without a name."""
    if unknown := sorted(set(versions) - set(VERSIONS)):
        sys.stderr.write(
            f"e2e-matrix: no module for {', '.join(unknown)}; there are {', '.join(VERSIONS)}\n"
        )
        return 2
    failed = False
    for version in versions or reversed(VERSIONS):
        outcome = run(version)
        # Written after each: hours may pass until the last one.
        PAGE.write_text(with_rows(PAGE.read_text(), [outcome]))
        sys.stdout.write(f"e2e-matrix: {outcome.row}\n")
        failed = failed or outcome.failed > 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
