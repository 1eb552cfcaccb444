"""``simulation``: how many seeds a minute one core simulates, the service in it with all its faults
and checkers.

Each is run as ``vreplica simulate`` runs it, in one process of its own, which collects garbage as
that command does (once a seed). Minutes are of CPU; ``milliseconds`` are of one event of a seed.
The peer is the smaller number of events: what a seed costs beside its events shows in the ratio.
"""

import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from extender.cli.simulation import seeds
from extender.lab.simulation.run import Trial
from tests.bench.options import Options
from tests.bench.result import Result

EVENTS: Final = (60, 500)
SEEDS: Final = {60: 10, 500: 6}
SEEDS_SHORT: Final = {60: 2, 500: 1}


@dataclass(frozen=True, slots=True)
class Simulated:
    """One seed: CPU seconds, whether it passed, and how much happened in it."""

    cpu_s: float
    passed: bool
    faults: int


def bench(options: Options) -> Iterator[Result]:
    """A line for each number of events."""
    wanted = SEEDS_SHORT if options.short else SEEDS
    found: dict[int, list[Simulated]] = {events: [] for events in EVENTS}
    with worker() as pool:
        for turn in range(max(wanted.values())):
            for events in EVENTS:
                if turn < wanted[events]:
                    found[events].append(
                        pool.submit(simulated, options.seed + turn, events).result()
                    )
    smallest = _each_s(found[EVENTS[0]])
    for events in EVENTS:
        each_s = _each_s(found[events])
        yield Result(
            "simulation",
            {"events": events, "seeds": len(found[events])},
            {
                "seedsPerMinute": round(60 / each_s, 2),
                "millisecondsPerEvent": round(each_s / events * 1e3, 3),
                "eventCostRatio": round(each_s / events / (smallest / EVENTS[0]), 3),
                "faultsPerSeed": sum(one.faults for one in found[events]) // len(found[events]),
                "passed": sum(one.passed for one in found[events]),
            },
        )


def _each_s(seeds: list[Simulated]) -> float:
    return sum(one.cpu_s for one in seeds) / len(seeds)


@contextmanager
def worker() -> Iterator[ProcessPoolExecutor]:
    """A process that has simulated a seed already: what is made once a process is not billed to the
    first that counts.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=seeds._prepare_process) as pool:
        pool.submit(simulated, 1, EVENTS[0]).result()
        yield pool


def simulated(seed: int, events: int) -> Simulated:
    """One seed, here."""
    started = time.process_time()
    outcome = seeds._simulate_one(Trial(seed, events=events))
    return Simulated(time.process_time() - started, outcome.passed, outcome.faults.total())
