"""Latencies of several peers, interleaved: A B C, A B C, so that whatever else the machine does hits all alike."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.bench.result import Value

OURS: Final = "ours"
WARM_UP_MAX: Final = 20


@dataclass
class Sample:
    """Seconds of one peer's requests."""

    seconds: list[float] = field(default_factory=list)

    def percentile_ms(self, percent: float) -> float:
        """Nearest rank, in milliseconds."""
        return percentile(self.seconds, percent) * 1000


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that is not below ``percent`` percent of them (nearest rank); nan of none."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, int(rank) - 1)]


def interleaved(
    asks: Mapping[str, Callable[[], Sequence[float]]], *, rounds: int, seconds_max: float
) -> dict[str, Sample]:
    """Ask each peer in turn, ``rounds`` times or for ``seconds_max``; an ask returns seconds, one for each request.

    The first rounds warm everybody up and do not count.
    """
    samples = {name: Sample() for name in asks}
    for _ in range(min(WARM_UP_MAX, max(1, rounds // 10))):
        for ask in asks.values():
            ask()
    until = time.monotonic() + seconds_max
    for _ in range(rounds):
        for name, ask in asks.items():
            samples[name].seconds += ask()
        if time.monotonic() > until:
            break
    return samples


def figures(samples: Mapping[str, Sample]) -> dict[str, Value]:
    """Ours plain, the peers' with their names, and ours by theirs."""
    ours = samples[OURS]
    named: dict[str, Value] = {"requests": len(ours.seconds)}
    named |= {"p50Ms": ours.percentile_ms(50), "p99Ms": ours.percentile_ms(99)}
    peers = {name: sample for name, sample in samples.items() if name != OURS}
    for name, sample in peers.items():
        named |= {f"{name}P50Ms": sample.percentile_ms(50), f"{name}P99Ms": sample.percentile_ms(99)}
    for name, sample in peers.items():
        for percent in (50, 99):
            ratio = ours.percentile_ms(percent) / sample.percentile_ms(percent)
            named[f"p{percent}To{name.capitalize()}Ratio"] = ratio
    return named
