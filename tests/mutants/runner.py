"""Applying mutants one by one, each in a copy of the tree, and running what has to catch it there.

A copy holds what git lists (also what is not committed yet), in a temporary directory; each worker
has one of its own. The child process finds the copy before anything else (``PYTHONPATH``), which is
checked, since the package may be installed from the tree itself. Before any mutant everything that
is to catch one must pass on the copy as it is: a test that fails anyway catches nothing.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from tests.mutants.mutant import ROOT, DoesNotApply, Mutant

CATCHER_TIMEOUT_S: Final = 180.0
"""Of one command on one mutant. That it does not end is no proof."""
BASELINE_TIMEOUT_S: Final = 600.0
SOMETHING_FAILED: Final = 1
"""Exit code of pytest, and of ``vreplica simulate``, where something was wrong; others say that
nothing was found out.
"""
TOLD_LINES_MAX: Final = 30


class BaselineFails(Exception):
    """Something that is to catch mutants fails without any: nothing can be said."""


class Verdict(StrEnum):
    """What became of a mutant."""

    KILLED = "killed"
    HUNG = "HUNG"
    SURVIVED = "SURVIVED"
    DOES_NOT_APPLY = "does not apply"
    BROKEN = "not run"


@dataclass(frozen=True, slots=True)
class Outcome:
    """``said``: what has to be known where it was not killed."""

    mutant: Mutant
    verdict: Verdict
    took_s: float
    said: str = ""


class Copy:
    """The tree in a directory of its own."""

    def __init__(self, at: Path) -> None:
        self._at = at

    @classmethod
    def of_tree(cls, at: Path) -> "Copy":
        """What git lists. Raises BaselineFails where it is not what a child process would run."""
        listed = subprocess.run(
            ["git", "ls-files", "-z", "-co", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        )
        for name in listed.stdout.decode().split("\0"):
            if name and (ROOT / name).is_file():
                (at / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, at / name)
        copy = cls(at)
        found = copy._run(
            ["-c", "import extender; print(extender.__file__)"], timeout_s=60.0
        ).stdout.strip()
        if Path(found).resolve() != (at / "extender/__init__.py").resolve():
            raise BaselineFails(f"the copy in {at} is not what is run, but {found}")
        return copy

    def again(self, at: Path) -> "Copy":
        """One more, with all that has been compiled in this one."""
        shutil.copytree(self._at, at)
        return Copy(at)

    def check_baseline(self, mutants: Sequence[Mutant]) -> None:
        """Run every catcher on the tree as it is. Raises BaselineFails."""
        tests = sorted({node for mutant in mutants for node in mutant.tests})
        simulations = sorted({arguments for mutant in mutants for arguments in mutant.simulations})
        for command in _commands(tests, simulations):
            ended = self._run(command, timeout_s=BASELINE_TIMEOUT_S, compiles=True)
            if ended.returncode:
                raise BaselineFails(_last_lines(ended.stdout + ended.stderr))

    def try_mutant(self, mutant: Mutant) -> Outcome:
        """Apply it, run what has to catch it, and take it back."""
        began = time.monotonic()
        file = self._at / mutant.file
        text, stamp = file.read_text(), file.stat()
        try:
            file.write_text(mutant.applied_to(text))
            # By its time Python knows a compiled form that is not this file's; it keeps none of a
            # mutant.
            os.utime(file, (stamp.st_atime, stamp.st_mtime + 60))
            verdict, said = self._verdict(mutant)
        except DoesNotApply as error:
            verdict, said = Verdict.DOES_NOT_APPLY, str(error)
        finally:
            file.write_text(text)
            os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        return Outcome(mutant, verdict, time.monotonic() - began, said)

    def _verdict(self, mutant: Mutant) -> tuple[Verdict, str]:
        hung = False
        for command in _commands([*mutant.tests, "-x"] if mutant.tests else [], mutant.simulations):
            try:
                ended = self._run(command, timeout_s=CATCHER_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                hung = True
                continue
            if not ended.returncode:
                return Verdict.SURVIVED, f"passes: {' '.join(command)}"
            if ended.returncode != SOMETHING_FAILED:
                return Verdict.BROKEN, _last_lines(ended.stdout + ended.stderr)
        if hung:
            return Verdict.HUNG, f"its catcher did not end within {CATCHER_TIMEOUT_S:g} s"
        return Verdict.KILLED, ""

    def _run(
        self, command: Sequence[str], *, timeout_s: float, compiles: bool = False
    ) -> "subprocess.CompletedProcess[str]":
        keep = {} if compiles else {"PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(
            [sys.executable, *command],
            cwd=self._at,
            env={**os.environ, "PYTHONPATH": str(self._at), **keep},
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )


def run_mutants(mutants: Sequence[Mutant], *, jobs: int) -> Iterator[Outcome]:
    """Outcomes in the order of the mutants, as they come. Raises BaselineFails."""
    free: SimpleQueue[Copy] = SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        first = Copy.of_tree(Path(directory) / "0")
        first.check_baseline(mutants)
        free.put(first)
        for number in range(1, jobs):
            free.put(first.again(Path(directory) / str(number)))

        def attempt(mutant: Mutant) -> Outcome:
            mine = free.get()
            try:
                return mine.try_mutant(mutant)
            finally:
                free.put(mine)

        with ThreadPoolExecutor(jobs) as threads:
            yield from threads.map(attempt, mutants)


def _commands(tests: Sequence[str], simulations: Iterable[str]) -> Iterator[list[str]]:
    if tests:
        yield [
            "-m",
            "pytest",
            "-q",
            "-n",
            "0",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:randomly",
            *tests,
        ]
    for arguments in simulations:
        yield ["-m", "extender.cli.main", *arguments.split(), "--no-shrink", "--quiet"]


def _last_lines(output: str) -> str:
    return "\n".join(output.strip().splitlines()[-TOLD_LINES_MAX:])
