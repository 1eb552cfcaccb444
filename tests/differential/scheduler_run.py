"""``python -m tests.differential scheduler``: the embedded kube-scheduler beside kube-scheduler
1.37 on generated clusters.

Each seed is a cluster (``scheduler_cases``). For every pending pod both say which nodes fit, why
the others do not, and what each plugin gives the ones that do; all three must be equal. What
differs is looked at a second time (informers may lag), then shrunk: objects and fields are taken
away as long as the same kind of difference stays. A seed that fails prints a line that replays it.

Exit code 0: no difference.
"""

import argparse
import asyncio
import json
import re
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.differential.scheduler_cases import (
    SchedulerCase,
    scheduler_case,
    unscored_pods,
)
from tests.differential.scheduler_compare import Mismatch, mismatches
from tests.differential.scheduler_embedded import embedded_verdicts
from tests.differential.scheduler_real import SEEN, RealScheduler
from tests.differential.scheduler_recordings import save
from tests.differential.scheduler_shrink import shrunk
from tests.e2e.build import BuildFailed, ControlPlaneUnavailable

CASES: Final = 500
PROGRESS_CASES: Final = 50
"""A line is written after so many clusters."""
FAILURES_MAX: Final = 5
"""A run stops after so many failing seeds."""


_NUMBER: Final = re.compile(r"(?<=-)\d+")
_COUNT: Final = re.compile(r"^\d+ ")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


@dataclass(slots=True)
class Tally:
    """What a run saw."""

    cases: int = 0
    pods: int = 0
    feasible: int = 0
    scored: int = 0
    scores: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    """kube-scheduler's reasons, each once for a pod."""
    failing: list[int] = field(default_factory=list)

    def line(self, seconds: float) -> str:
        """One line for people."""
        return (
            f"{self.cases} clusters, {self.pods} pods ({self.scored} scored on several nodes, "
            f"{self.feasible} feasible nodes, "
            f"{self.scores} scores) in {seconds:.0f} s: {len(self.failing)} clusters differ"
        )


def reasons_of(text: str) -> set[str]:
    """The reasons in a verdict's text, without the numbers of nodes and of names."""
    found = text.partition(": ")[2].partition(". preemption: ")[0].rstrip(".")
    return {_NUMBER.sub("N", _COUNT.sub("", reason)) for reason in found.split(", ")} - {SEEN}


async def differences(
    real: RealScheduler, case: SchedulerCase, tally: Tally | None = None
) -> list[Mismatch]:
    """What differs in a case. Pods whose claims wait are not scored there."""
    stored, theirs = await real.verdicts(case)
    ours = await embedded_verdicts(stored)
    if tally is not None:
        tally.cases += 1
        tally.pods += len(theirs)
        for verdict in theirs.values():
            tally.feasible += len(verdict.feasible)
            tally.scored += bool(verdict.scores)
            tally.scores += sum(map(len, verdict.scores.values()))
            tally.reasons.update(reasons_of(verdict.text))
    return mismatches(theirs, ours, unscored_pods(stored))


async def record(seeds: range, path: Path) -> None:
    """Write what kube-scheduler makes of these seeds to a file. Raises ControlPlaneUnavailable,
    BuildFailed.
    """
    with tempfile.TemporaryDirectory(prefix="differential-scheduler-") as folder:
        async with RealScheduler(Path(folder)).running() as real:
            save(path, [await real.verdicts(scheduler_case(seed)) for seed in seeds])


async def run(seeds: range, *, shrink: bool) -> Tally:
    """Compare these seeds on one control plane. Raises ControlPlaneUnavailable, BuildFailed."""
    tally, started = Tally(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="differential-scheduler-") as folder:
        async with RealScheduler(Path(folder)).running() as real:
            for seed in seeds:
                case = scheduler_case(seed)
                found = await differences(real, case, tally)
                if found and (found := await differences(real, case)):
                    tally.failing.append(seed)
                    await _report(real, case, found, shrink=shrink)
                    if len(tally.failing) == FAILURES_MAX:
                        break
                if tally.cases % PROGRESS_CASES == 0:
                    sys.stderr.write(f"{tally.line(time.monotonic() - started)}\n")
    return tally


async def _report(
    real: RealScheduler, case: SchedulerCase, found: list[Mismatch], *, shrink: bool
) -> None:
    _say(
        f"\n{case.name} differs; replay: python -m tests.differential scheduler --seed "
        f"{case.name.split()[-1]}"
    )
    for mismatch in found:
        _say(f"  {mismatch}")
    if not shrink:
        return

    async def fails(candidate: SchedulerCase) -> bool:
        return any(
            mismatch.kind == found[0].kind for mismatch in await differences(real, candidate)
        )

    first = found[0]
    narrowed = case.only_pending(first.pod)
    smallest = await shrunk(narrowed if await fails(narrowed) else case, fails)
    _say("  shrunk:")
    for mismatch in await differences(real, smallest):
        _say(f"    {mismatch}")
    for part in ("lookups", "nodes", "running", "pending"):
        for obj in getattr(smallest, part):
            _say(f"    {part}: {json.dumps(obj)}")
    if smallest.terminating:
        _say(f"    terminating: {sorted(smallest.terminating)}")


def main(arguments: list[str]) -> int:
    """The command; see the module."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.differential scheduler", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--cases", type=int, default=CASES, help="clusters (default %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="first seed (default %(default)s)")
    parser.add_argument("--seed", type=int, help="only this seed")
    parser.add_argument(
        "--no-shrink", action="store_true", help="print failing clusters as they are"
    )
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="only write what kube-scheduler decides"
    )
    options = parser.parse_args(arguments)
    seeds = range(options.first, options.first + options.cases)
    if options.seed is not None:
        seeds = range(options.seed, options.seed + 1)
    started = time.monotonic()
    try:
        if options.record is not None:
            asyncio.run(record(seeds, options.record))
            return 0
        tally = asyncio.run(run(seeds, shrink=not options.no_shrink))
    except (ControlPlaneUnavailable, BuildFailed) as error:
        sys.stderr.write(f"scheduler: {error}\n")
        return 2
    for reason, pods in tally.reasons.most_common():
        _say(f"{pods:6} pods: {reason}")
    _say(tally.line(time.monotonic() - started))
    return 1 if tally.failing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
