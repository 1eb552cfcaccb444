"""What a process holds, once a round, and the rule that says whether it stays flat.

The rule. Samples are taken when the faults are over and everything has settled. Of those of the
second half of the run, the trend is the median of the slopes between all pairs of samples
(Theil-Sen: one outlier, or one step, does not make a trend). It must be below ``LIMITS`` per ten
minutes, or rise in all by no more than ``NOISE``: two connections more or less are no trend. A half
that is shorter than ``JUDGED_MIN_S`` is not judged: a process that has just started grows by
filling its caches. What depends on leading (tasks, sockets) is judged apart for the samples in
which the replica led and for those in which it followed.
"""

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Final

from extender.service.http.map_sizes import MAP_VALUES
from tests.e2e.processes import Process
from tests.e2e.replica import Replica

MIB: Final = 1024 * 1024
JUDGED_MIN_S: Final = 300.0
SAMPLES_MIN: Final = 5
TEN_MINUTES_S: Final = 600.0
KEPT: Final = frozenset(f"kept_{name}" for name in MAP_VALUES)
"""Of how many objects something is kept. What a load of this size has at once may come and go;
queues are the leader's.
"""
LIMITS: Final[dict[str, float]] = {
    "rss_mib": 2.0,
    "fds": 1.0,
    "sockets": 1.0,
    "tasks": 1.0,
    "reservations": 0.5,
}
"""Growth in ten minutes, by what is measured."""
NOISE: Final[dict[str, float]] = {
    "rss_mib": 1.0,
    "fds": 4.0,
    "sockets": 4.0,
    "tasks": 4.0,
    "reservations": 0.0,
}
"""What may come and go within the second half."""
BY_ROLE: Final = frozenset({"fds", "sockets", "tasks"}) | KEPT


@dataclass(frozen=True, slots=True)
class Sample:
    """One process at one moment, ``at_s`` since the start. ``leading`` None: it has no such
    role.
    """

    at_s: float
    leading: bool | None
    values: dict[str, float]


def of_process(process: Process) -> dict[str, float]:
    """Resident memory in MiB, open file descriptors, and how many of them are sockets, by Linux'
    /proc.
    """
    folder = Path("/proc") / str(process.pid)
    found = re.search(r"VmRSS:\s+(\d+) kB", (folder / "status").read_text())
    links = [_target(path) for path in (folder / "fd").iterdir()]
    return {
        "rss_mib": round(int(found[1]) / 1024, 2) if found else 0.0,
        "fds": float(len(links)),
        "sockets": float(sum(link.startswith("socket:") for link in links)),
    }


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except FileNotFoundError:  # closed since
        return ""


async def of_replica(replica: Replica) -> tuple[bool, dict[str, float]]:
    """Whether it leads, its asyncio tasks, what its caches hold, and reserved vreplicas that no
    status shows.
    """
    state = await replica.state()
    _, text = await replica.get("/metrics")
    values = {"tasks": metric(text, "vreplica_scheduler_asyncio_tasks")}
    for kind in ("pods", "vpods"):
        values[f"cached_{kind}"] = metric(text, f'vreplica_scheduler_cache_size{{type="{kind}"}}')
    for kind in MAP_VALUES:
        values[f"kept_{kind}"] = metric(text, f'vreplica_scheduler_kept_entries{{map="{kind}"}}')
    values["reservations"] = float(
        sum(sum(vpod["reserved"].values()) for pool in state["pools"] for vpod in pool["vpodList"])
    )
    return bool(state["leading"]), values


def metric(text: str, name: str) -> float:
    """The value of one series in Prometheus' text format. Raises KeyError."""
    for line in text.splitlines():
        if line.startswith(f"{name} "):
            return float(line.rpartition(" ")[2])
    raise KeyError(name)


@dataclass(frozen=True, slots=True)
class Trend:
    """Of one number of one process in the second half. ``growth`` is per ten minutes, None where it
    is not judged.
    """

    name: str
    growth: float | None
    limit: float
    first: float
    last: float
    samples: int
    rise: float = 0.0
    """The trend's, from the first of these samples to the last."""
    noise: float = 0.0

    @property
    def flat(self) -> bool:
        """Whether it passes."""
        return self.growth is None or self.growth < self.limit or self.rise <= self.noise


def trends(samples: Sequence[Sample], end_s: float) -> list[Trend]:
    """All that ``LIMITS`` names and the samples have, of the second half of a run of ``end_s``."""
    late = [sample for sample in samples if sample.at_s >= end_s / 2]
    found: list[Trend] = []
    for what, limit in LIMITS.items():
        having = [sample for sample in late if what in sample.values]
        roles = (
            (True, False)
            if what in BY_ROLE and having and having[0].leading is not None
            else (None,)
        )
        for role in roles:
            series = [(s.at_s, s.values[what]) for s in having if role is None or s.leading is role]
            if series:
                name = what if role is None else f"{what} {'leading' if role else 'following'}"
                found.append(_trend(name, series, limit, NOISE[what]))
    return found


def _trend(name: str, series: Sequence[tuple[float, float]], limit: float, noise: float) -> Trend:
    span_s = series[-1][0] - series[0][0]
    growth, rise = None, 0.0
    if span_s >= JUDGED_MIN_S * 0.8 and len(series) >= SAMPLES_MIN:
        slopes = [(v - u) / (t - s) for (s, u), (t, v) in combinations(series, 2) if t > s]
        slope = statistics.median(slopes)
        growth, rise = round(slope * TEN_MINUTES_S, 3), round(slope * span_s, 3)
    return Trend(name, growth, limit, series[0][1], series[-1][1], len(series), rise, noise)
