"""``python -m tests.differential api``: generated operations on the embedded API server and on a
real one.

Theory of operation. A sequence is a list of operations (``api_operations``) made from its seed
alone (``api_generator``). It runs on a fresh namespace of the real server and on a fresh embedded
cluster, both through ``Api``, operation by operation; each pair of outcomes is normalised and
compared (``api_compare``). A difference that no row of ``api_differences`` describes fails the
sequence. A failing sequence is made shorter by leaving out operations as long as the same place
differs; what is left is printed with the line that runs it again.
"""

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final

from extender.kube.api import Api
from tests.differential.api_compare import Leaf, Normaliser, leaves
from tests.differential.api_differences import DIFFERENCES, Context, excuse
from tests.differential.api_generator import sequence
from tests.differential.api_operations import Operation, Side
from tests.differential.api_sides import embedded_api, new_namespace, real_api
from tests.e2e.build import ControlPlaneUnavailable, ready_binaries

LENGTH: Final = 30
SHRINKS_MAX: Final = 150
"""Runs spent on making one failing sequence shorter."""
_RUN: Final = f"{int(time.time()):x}"[-6:]
_numbers = count(1)


@dataclass(slots=True)
class Verdict:
    """What comparing one sequence has shown."""

    seed: int
    kept: list[int]
    """Places of the operations that ran, in the whole sequence of the seed."""
    problems: list[tuple[int, Operation, Leaf]] = field(default_factory=list)
    excused: Counter[str] = field(default_factory=Counter)
    compared: int = 0
    succeeded: int = 0

    @property
    def signature(self) -> tuple[str, str, str]:
        """What must stay the same while the sequence is made shorter."""
        if not self.problems:
            return ("", "", "")
        _, operation, leaf = self.problems[0]
        return (operation.verb, operation.kind, leaf.path.partition("[")[0])

    def lines(self) -> list[str]:
        """For people: the operations, the differences, the replay."""
        operations = sequence(self.seed, max(self.kept, default=0) + 1)
        shown = [f"  {place:3} {operations[place]}" for place in self.kept]
        shown += [f"  DIFFERS at {place}: {leaf}" for place, _, leaf in self.problems[:8]]
        only = ",".join(map(str, self.kept))
        shown.append(
            f"  replay: python -m tests.differential api --seed {self.seed} --sequences 1 --only "
            f"{only}"
        )
        return shown


async def compare(real: Api, seed: int, kept: Sequence[int], length: int) -> Verdict:
    """Runs the operations of a seed that ``kept`` names on both sides; ends at the first
    difference.
    """
    operations = sequence(seed, length)
    verdict = Verdict(seed, list(kept))
    namespace = f"d{_RUN}-{next(_numbers)}"
    embedded = await embedded_api(seed)
    sides = [Side(embedded, namespace), Side(real, namespace)]
    normalisers = [Normaliser(namespace, time.time()) for _ in sides]
    for side in sides:
        await new_namespace(side.api, namespace)
        await side.prepare({operations[place].kind for place in kept})
    for place in kept:
        operation = operations[place]
        outcomes = await asyncio.gather(*(side.perform(operation) for side in sides))
        left, right = (
            normaliser.outcome(outcome, operation)
            for normaliser, outcome in zip(normalisers, outcomes, strict=True)
        )
        verdict.compared += 1
        verdict.succeeded += not outcomes[1].error
        rows = [(leaf, excuse(Context(operation, leaf, *outcomes))) for leaf in leaves(left, right)]
        verdict.problems = [(place, operation, leaf) for leaf, row in rows if row is None]
        found = {row.name: row for _, row in rows if row is not None}
        verdict.excused.update(found.keys())
        if verdict.problems or any(row.parting for row in found.values()):
            break
    return verdict


async def shrunk(real: Api, failed: Verdict, length: int) -> Verdict:
    """The failing sequence without the operations that it does not take."""
    best, runs = failed, 0
    last = failed.problems[0][0]
    kept = [place for place in failed.kept if place <= last]
    size = max(1, len(kept) // 2)
    while runs < SHRINKS_MAX:
        start, shorter = 0, False
        while start < len(kept) - 1 and runs < SHRINKS_MAX:
            attempt = kept[:start] + kept[min(start + size, len(kept) - 1) :]
            verdict = await compare(real, failed.seed, attempt, length)
            runs += 1
            if verdict.signature == failed.signature:
                best, kept, shorter = verdict, attempt, True
            else:
                start += size
        if size == 1 and not shorter:
            break
        size = max(1, size // 2)
    return best


@dataclass(slots=True)
class Totals:
    """Over all sequences."""

    failed: list[Verdict] = field(default_factory=list)
    excused: Counter[str] = field(default_factory=Counter)
    sequences: int = 0
    compared: int = 0
    succeeded: int = 0

    def add(self, verdict: Verdict) -> None:
        """One more."""
        self.sequences += 1
        self.compared += verdict.compared
        self.succeeded += verdict.succeeded
        self.excused.update(verdict.excused)
        if verdict.problems:
            self.failed.append(verdict)


async def compare_all(
    real: Api, seeds: Sequence[int], *, length: int = LENGTH, workers: int = 4
) -> Totals:
    """Every seed's whole sequence, ``workers`` at a time."""
    totals, waiting = Totals(), iter(seeds)

    async def work() -> None:
        for seed in waiting:
            totals.add(await compare(real, seed, range(length), length))

    await asyncio.gather(*(work() for _ in range(workers)))
    totals.failed.sort(key=lambda verdict: verdict.seed)
    return totals


def say(line: str) -> None:
    """One line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def run(options: argparse.Namespace) -> int:
    """All that the command line asks for; 1 where something unexplained differs."""
    with tempfile.TemporaryDirectory(prefix="differential-") as folder:
        async with real_api(ready_binaries(), Path(folder)) as real:
            began_s = time.monotonic()
            if options.only:
                kept = [int(place) for place in options.only.split(",")]
                totals = Totals()
                totals.add(await compare(real, options.seed, kept, max(kept) + 1))
            else:
                seeds = range(options.seed, options.seed + options.sequences)
                totals = await compare_all(
                    real, seeds, length=options.length, workers=options.workers
                )
            took_s = time.monotonic() - began_s
            signatures: set[tuple[str, str, str]] = set()
            for failed in totals.failed:
                if failed.signature in signatures and not options.all:
                    continue
                signatures.add(failed.signature)
                say(f"seed {failed.seed} {failed.signature}")
                shorter = (
                    failed
                    if options.only or options.whole
                    else await shrunk(real, failed, options.length)
                )
                say("\n".join(shorter.lines()))
    report(totals, took_s)
    return 1 if totals.failed else 0


def report(totals: Totals, took_s: float) -> None:
    """What was compared, what was excused by which row, what failed."""
    for row in DIFFERENCES:
        if times := totals.excused[row.name]:
            say(f"listed: {row.name} ({times} operations): {row.reason}")
    say(
        f"{totals.sequences} sequences, {totals.compared} operations ({totals.succeeded} "
        f"succeeded) in {took_s:.1f} s: "
        f"{len(totals.failed)} sequences with an unexplained difference"
    )


def main(arguments: list[str]) -> int:
    """Entry of ``python -m tests.differential api``."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.differential api", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("--sequences", type=int, default=300, metavar="N", help="how many")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="the first seed")
    parser.add_argument(
        "--length", type=int, default=LENGTH, metavar="N", help="operations in a sequence"
    )
    parser.add_argument(
        "--only", default="", metavar="I,J", help="only these operations of the seed's sequence"
    )
    parser.add_argument("--workers", type=int, default=4, metavar="N", help="sequences at a time")
    parser.add_argument(
        "--all", action="store_true", help="show each failing sequence, not one of each sort"
    )
    parser.add_argument(
        "--whole", action="store_true", help="do not make failing sequences shorter"
    )
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    try:
        return asyncio.run(run(options))
    except ControlPlaneUnavailable as reason:
        say(f"skipped: {reason}")
        return 0
