"""Latencies of several peers, interleaved: A B C, A B C, so that whatever else the machine does
hits all alike.

On a machine that is busy otherwise a longer answer is interrupted more often, so ratios of
latencies grow with that load. The processors' time that each peer has used for an answer
(``cpu_seconds``) does not, and is told beside them.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.bench import timing
from tests.bench.result import Value

OURS: Final = "ours"
WARM_UP_MAX: Final = 20
_CPUCLOCK_SCHED: Final = 2
"""linux/posix-timers.h."""


@dataclass
class Sample:
    """Seconds of one peer's requests; ``cpu_ms``: of the processors, milliseconds for each, None
    where that is not known.
    """

    seconds: list[float] = field(default_factory=list)
    cpu_ms: float | None = None

    def percentile_ms(self, percent: float) -> float:
        """Nearest rank, in milliseconds."""
        return percentile(self.seconds, percent) * 1000


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that is not below ``percent`` percent of them (nearest rank); nan
    of none.
    """
    return timing.percentile(values, percent) if values else float("nan")


def cpu_seconds(pid: int) -> float | None:
    """Time that processors have spent on a process so far, with all its threads; None where the
    system does not tell.

    By the process's own clock, as clock_getcpuclockid(3) names it: nanoseconds, where
    /proc/PID/stat has ticks of 10 ms.
    """
    try:
        return time.clock_gettime(~pid << 3 | _CPUCLOCK_SCHED)
    except OSError:
        return None


def interleaved(
    asks: Mapping[str, Callable[[], Sequence[float]]],
    *,
    rounds: int,
    seconds_max: float,
    pids: Mapping[str, int] | None = None,
) -> dict[str, Sample]:
    """Ask each peer in turn, ``rounds`` times or for ``seconds_max``; an ask returns seconds, one
    for each request.

    The first rounds warm everybody up and do not count. ``pids``: whose processors' time is told.
    """
    pids = pids or {}
    samples = {name: Sample() for name in asks}
    for _ in range(min(WARM_UP_MAX, max(1, rounds // 10))):
        for ask in asks.values():
            ask()
    used = {name: cpu_seconds(pid) for name, pid in pids.items()}
    until = time.monotonic() + seconds_max
    for _ in range(rounds):
        for name, ask in asks.items():
            samples[name].seconds += ask()
        if time.monotonic() > until:
            break
    for name, pid in pids.items():
        before, after = used[name], cpu_seconds(pid)
        if before is not None and after is not None:
            samples[name].cpu_ms = (after - before) * 1000 / len(samples[name].seconds)
    return samples


def figures(samples: Mapping[str, Sample]) -> dict[str, Value]:
    """Ours plain, the peers' with their names, and ours by theirs."""
    ours = samples[OURS]
    named: dict[str, Value] = {"requests": len(ours.seconds)}
    named |= {"p50Ms": ours.percentile_ms(50), "p99Ms": ours.percentile_ms(99)}
    peers = {name: sample for name, sample in samples.items() if name != OURS}
    for name, sample in peers.items():
        named |= {
            f"{name}P50Ms": sample.percentile_ms(50),
            f"{name}P99Ms": sample.percentile_ms(99),
        }
    for name, sample in peers.items():
        for percent in (50, 99):
            ratio = ours.percentile_ms(percent) / sample.percentile_ms(percent)
            named[f"p{percent}To{capitalized(name)}Ratio"] = ratio
    named["cpuMs"] = ours.cpu_ms
    named |= {f"{name}CpuMs": sample.cpu_ms for name, sample in peers.items()}
    for name, sample in peers.items():
        named[f"cpuTo{capitalized(name)}Ratio"] = _ratio(ours.cpu_ms, sample.cpu_ms)
    return named


def capitalized(name: str) -> str:
    """For the middle of a figure's name: ``goBinds`` -> ``GoBinds``."""
    return name[:1].upper() + name[1:]


def _ratio(value: float | None, other: float | None) -> float | None:
    return value / other if value is not None and other else None
