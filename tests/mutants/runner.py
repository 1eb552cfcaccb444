"""Applying mutants one by one, each in a copy of the tree, and running what has to catch it there.

A copy holds what git lists (also what is not committed yet), in a temporary directory; each worker has one of its own. The
child process finds the copy before anything else (``PYTHONPATH``), which is checked, since the package may be installed from
the tree itself. Before any mutant everything that is to catch one must pass on the copy as it is: a test that fails anyway
catches nothing.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from tests.mutants.mutant import ROOT, DoesNotApply, Mutant

CATCHER_TIMEOUT_S: Final = 180.0
"""Of one mutant; one that never ends is as good as caught, for it would not pass."""
BASELINE_TIMEOUT_S: Final = 600.0
TESTS_FAILED: Final = 1
"""Exit code of pytest, and of ``vreplica simulate``, where something was wrong; others say that nothing was found out."""
TOLD_LINES_MAX: Final = 30


class BaselineFails(Exception):
    """Something that is to catch mutants fails without any: nothing can be said."""


class Verdict(StrEnum):
    """What became of a mutant."""

    KILLED = "killed"
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
        listed = subprocess.run(
            ["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
        )
        for name in listed.stdout.decode().split("\0"):
            if name and (ROOT / name).is_file():
                (at / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, at / name)
        found = self._run(["-c", "import extender; print(extender.__file__)"], timeout_s=60.0).stdout.strip()
        if Path(found).resolve() != (at / "extender/__init__.py").resolve():
            raise BaselineFails(f"the copy in {at} is not what is run, but {found}")

    def check_baseline(self, catchers: Iterable[tuple[str, ...]]) -> None:
        """Run every catcher on the tree as it is. Raises BaselineFails."""
        known = dict.fromkeys(catchers)
        tests = sorted(
            {node for caught_by in known for node in caught_by if not node.startswith("simulate ")}
        )
        commands = [_pytest(tests)] if tests else []
        commands += [_simulation(caught_by[0]) for caught_by in known if caught_by[0].startswith("simulate ")]
        for command in commands:
            ended = self._run(command, timeout_s=BASELINE_TIMEOUT_S)
            if ended.returncode:
                raise BaselineFails(_last_lines(ended.stdout + ended.stderr))

    def try_mutant(self, mutant: Mutant) -> Outcome:
        """Apply it, run what has to catch it, and take it back."""
        began = time.monotonic()
        file = self._at / mutant.file
        text = file.read_text()
        try:
            file.write_text(mutant.applied_to(text))
            # Of the same second and, perhaps, size: Python would take the compiled form for this file's.
            for compiled in file.parent.glob(f"__pycache__/{file.stem}.*.pyc"):
                compiled.unlink()
            verdict, said = self._verdict(mutant)
        except DoesNotApply as error:
            verdict, said = Verdict.DOES_NOT_APPLY, str(error)
        finally:
            file.write_text(text)
        return Outcome(mutant, verdict, time.monotonic() - began, said)

    def _verdict(self, mutant: Mutant) -> tuple[Verdict, str]:
        simulated = mutant.simulation
        command = _simulation(mutant.caught_by[0]) if simulated else _pytest([*mutant.caught_by, "-x"])
        try:
            ended = self._run(command, timeout_s=CATCHER_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return Verdict.KILLED, "never ended"
        if ended.returncode == TESTS_FAILED:
            return Verdict.KILLED, ""
        if not ended.returncode:
            return Verdict.SURVIVED, f"passes: {' '.join(mutant.caught_by)}"
        return Verdict.BROKEN, _last_lines(ended.stdout + ended.stderr)

    def _run(self, command: Sequence[str], *, timeout_s: float) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, *command],
            cwd=self._at,
            env={**os.environ, "PYTHONPATH": str(self._at), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )


def run_mutants(mutants: Sequence[Mutant], *, jobs: int) -> Iterator[Outcome]:
    """Outcomes in the order of the mutants, as they come. Raises BaselineFails."""
    with _copies(jobs) as free:
        copy = free.get()
        copy.check_baseline(mutant.caught_by for mutant in mutants)
        free.put(copy)

        def attempt(mutant: Mutant) -> Outcome:
            mine = free.get()
            try:
                return mine.try_mutant(mutant)
            finally:
                free.put(mine)

        with ThreadPoolExecutor(jobs) as threads:
            yield from threads.map(attempt, mutants)


@contextmanager
def _copies(jobs: int) -> Iterator["SimpleQueue[Copy]"]:
    free: SimpleQueue[Copy] = SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        for number in range(jobs):
            free.put(Copy(Path(directory) / str(number)))
        yield free


def _pytest(arguments: Sequence[str]) -> list[str]:
    return ["-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-p", "no:randomly", *arguments]


def _simulation(arguments: str) -> list[str]:
    return ["-m", "extender.cli", *arguments.split(), "--no-shrink", "--quiet"]


def _last_lines(output: str) -> str:
    return "\n".join(output.strip().splitlines()[-TOLD_LINES_MAX:])
