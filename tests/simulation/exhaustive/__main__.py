"""``python -m tests.simulation.exhaustive [--depth D] [--faults F] [--situation NAME] [--seconds S]
[--jobs N]``.

Every order of steps with at most D changes of priority, for each situation, once with watches up to
date and once with late ones; exit 1 where something is wrong, else 2 where the time did not suffice
for all. ``--replay N,N,...`` runs one order and prints it.
"""

import argparse
import logging
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from tests.simulation.exhaustive.check import Bounds, Explored, Failure, explore, play
from tests.simulation.exhaustive.situations import SITUATIONS


class Job(NamedTuple):
    """One exploration."""

    situation: str
    bounds: Bounds
    depth: int
    seconds: float

    def __str__(self) -> str:
        watches = "late watches" if self.bounds.late_events else "watches up to date"
        faults = f", {self.bounds.faults} lost answers" if self.bounds.faults else ""
        return f"{self.situation}, {watches}{faults}, depth {self.depth}"


def run(job: Job) -> tuple[Job, Explored, float]:
    """Explore with fewer changes first, for at most ``seconds``."""
    logging.disable(logging.CRITICAL)
    started = time.monotonic()
    depth, found = 0, explore(job.situation, job.bounds, depth=0, seconds=job.seconds)
    while depth < job.depth and found.complete and not found.failures:
        depth += 1
        left_s = job.seconds - (time.monotonic() - started)
        found = explore(job.situation, job.bounds, depth=depth, seconds=left_s)
    return job._replace(depth=depth), found, time.monotonic() - started


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def report(job: Job, found: Explored, seconds: float) -> None:
    state = "all" if found.complete else "not all"
    say(
        f"{job}: {found.runs} runs ({state}), {found.states} states, {found.merged} merged, "
        f"{found.steps} steps, {len(found.failures)} failed, {seconds:.0f} s"
    )
    for failure in sorted(found.failures, key=lambda failure: len(failure.steps))[:1]:
        show(failure)


def show(failure: Failure) -> None:
    for problem in failure.problems:
        say(f"  {problem}")
    for number, step in enumerate(failure.steps, 1):
        say(f"    {number}. {step}")
    say(f"  --replay {','.join(map(str, failure.choices))}")


def replay(situation: str, bounds: Bounds, choices: str) -> int:
    logging.disable(logging.CRITICAL)
    chosen = [int(number) for number in choices.split(",") if number]
    trail, problems = play(situation, bounds, choices=chosen)
    show(Failure(problems, trail.chosen, trail.steps))
    return 1 if problems else 0


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.exhaustive", description=__doc__
    )
    parser.add_argument(
        "--depth", type=int, default=2, metavar="D", help="changes of priority a run"
    )
    parser.add_argument("--faults", type=int, default=0, metavar="F", help="lost answers a run")
    parser.add_argument("--situation", choices=sorted(SITUATIONS), action="append")
    parser.add_argument(
        "--seconds", type=float, default=3600.0, help="for each exploration, at most"
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes")
    parser.add_argument(
        "--late", action=argparse.BooleanOptionalAction, help="watches; both if not given"
    )
    parser.add_argument("--replay", metavar="N,N,...", help="one run of one situation, printed")
    options = parser.parse_args(arguments)
    both = (False, True) if options.late is None else (options.late,)
    if options.replay is not None:
        return replay(options.situation[0], Bounds(both[0], options.faults), options.replay)
    jobs = [
        Job(name, Bounds(late, options.faults), options.depth, options.seconds)
        for name in options.situation or SITUATIONS
        for late in both
    ]
    failed = runs = states = 0
    complete = True
    with multiprocessing.Pool(options.jobs) as pool:
        for job, found, seconds in pool.imap(run, jobs):
            report(job, found, seconds)
            failed, runs, states = (
                failed + len(found.failures),
                runs + found.runs,
                states + found.states,
            )
            complete = complete and found.complete
    say(
        f"{runs} runs, {states} states, {failed} "
        f"failed{'' if complete else ', not all that there are'}"
    )
    return 1 if failed else 0 if complete else 2


def run_into(printed: Path, arguments: Sequence[str]) -> NoReturn:
    """``main`` as a process that prints into a file."""
    with printed.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.exit(main(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
