"""How the benches measure, and what they make of several measurements of the same thing.

Work that waits for nothing is measured in seconds of this process's CPU: on a core of its own they
are seconds on the wall, and what the neighbours on a shared machine take does not count. What they
do to caches and clock rates still does, so variants that are compared take turns, and ratios are of
neighbours in time.

The garbage collector runs as it does in the service, which leaves it at Python's defaults. What was
made for the measurement itself is collected before each stretch, so that it is not billed to it.
"""

import gc
import time
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


YARDSTICK_ROUNDS = 20


def yardstick_s() -> float:
    """CPU seconds of a fixed piece of Python: dictionaries, tuples and calls, as decisions are made
    of; the median of some rounds. It belongs beside what is compared with it: a neighbour on the
    machine may slow down one second and not the next.
    """
    names = [f"dispatcher-{index}" for index in range(64)]
    rounds: list[float] = []
    for _ in range(YARDSTICK_ROUNDS):
        started = time.process_time()
        loads: dict[str, tuple[int, int]] = {}
        for turn in range(8):
            for name in names:
                count, weight = loads.get(name, (0, 1))
                loads[name] = (count + turn, weight)
        min(loads.items(), key=lambda item: (item[1][0], item[0]))
        rounds.append(time.process_time() - started)
    return median(rounds)


class Stopwatch:
    """Adds up stretches of work: ``cpu_s`` and ``wall_s``, seconds."""

    def __init__(self) -> None:
        self.cpu_s = 0.0
        self.wall_s = 0.0

    def run(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Do some work on the clock."""
        gc.collect()
        wall, cpu = time.perf_counter(), time.process_time()
        result = work(*args, **kwargs)
        self.cpu_s += time.process_time() - cpu
        self.wall_s += time.perf_counter() - wall
        return result


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least ``percent`` of them do not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[max(0, int(-(-len(ordered) * percent // 100)) - 1)] if ordered else 0.0


def median(values: Sequence[float]) -> float:
    """The middle one, the lower of two; 0 of none."""
    return percentile(values, 50)
