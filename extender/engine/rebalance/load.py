"""``PoolLoad``: what adapters report of one pool's load, smoothed. Pure.

A report says how much load one vpod causes on one pod, in any unit: requests or bytes a second, or
CPU. It is kept as the load of one vreplica there. So the load of a share follows its number of
vreplicas, and a move takes the load with it in proportion.

- *Smoothed*: the first reports are averaged. After that, a report's weight depends on the time
  since the last one, as in an exponential average with the time constant ``SMOOTHING_S``.
- *Counted as the mean*: a share whose report is negative, not a number, absurd, or older than
  ``SILENT_S``. It counts as its vpod's other shares do, else as the pool's mean vreplica.
  ``LoadView`` says how many these are, and ``PoolLoad.share`` says why.
- *Absurd*: over ``ABSURD`` times the median, and over ``DWARFS`` times all smaller loads together.
  A wrong unit is both. An honest heavy tail is not: under Zipf's law, the hottest of 20,000 tenants
  has 10,000 times the median, and a tenth of all load.

Only shares that exist are kept, and those that existed within ``SILENT_S``. Times are seconds of
one clock that never jumps. The caller gives them.
"""

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import exp, isfinite
from typing import Final

from extender.engine.state.pool_state import PoolState

SMOOTHING_S: Final = 60.0
"""A change is seen by 63 % after this time, and reports every 10 s lose two thirds of their
noise.
"""
SILENT_S: Final = 300.0
"""As long as Prometheus uses a sample."""
ABSURD: Final = 1000.0
"""Times the median load of one vreplica."""
DWARFS: Final = 2.0
"""Times the sum of all smaller loads, one vreplica of each share."""
LOAD_MAX: Final = 1e18
"""Sums of loads stay finite, and exact enough."""
ENOUGH: Final = 0.5
"""The part of a pool's vreplicas that must have reports before anything is moved for them."""
STEP_PODS: Final = 50
"""Pods of one step."""
SAMPLED_MAX: Final = 1024
"""Shares of which the median is taken: it only has to be right within a factor."""


class Refused(StrEnum):
    """Why a report does not count."""

    NEGATIVE = "Negative"
    NOT_FINITE = "NotFinite"
    ABSURD = "Absurd"


SILENT: Final = "Silent"
"""Beside ``Refused``: why a share counts as the mean."""


class _Share:
    """``rate``: the smoothed load of one vreplica. ``last``: that of the last finite report, even
    if it is absurd. ``at``: time of the last report. ``reports``: how many are smoothed.
    """

    __slots__ = ("at", "last", "rate", "refused", "reports")

    def __init__(self, rate: float, at: float) -> None:
        self.rate = self.last = rate
        self.at = at
        self.reports = 0
        self.refused: Refused | None = None

    def smooth(self, rate: float, now: float) -> None:
        """Take a good report."""
        self.reports += 1
        by_time = 1.0 - exp(-max(0.0, now - self.at) / SMOOTHING_S)
        self.rate += max(by_time, 1.0 / self.reports) * (rate - self.rate)
        self.at, self.refused = now, None


@dataclass(slots=True)
class _Mean:
    """Of one vpod's shares: summed loads and vreplicas, and the newest report."""

    load: float = 0.0
    vreplicas: int = 0
    at: float = 0.0

    @property
    def rate(self) -> float:
        return self.load / self.vreplicas


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadView:
    """A pool's load at one time. ``loads``: by ordinal, of all pods that the StatefulSet has.

    ``measured``: vreplicas of ``vreplicas`` whose own reports count. ``refused``: shares whose last
    report does not count.
    """

    loads: Mapping[int, float]
    vreplicas: int
    measured: int
    refused: int

    @property
    def silent(self) -> int:
        """Vreplicas without a report that counts."""
        return self.vreplicas - self.measured

    @property
    def is_enough(self) -> bool:
        """Whether enough vreplicas have reports to move something for them."""
        return self.measured > 0 and self.measured >= ENOUGH * self.vreplicas


class PoolLoad:
    """One pool's reports, of one metric."""

    def __init__(self, metric: str) -> None:
        self.metric = metric
        self._shares: dict[str, dict[str, _Share]] = {}
        """Pod name -> vpod key -> share."""
        self._means: dict[str, _Mean] = {}
        """By vpod key, as of the last view."""
        self._absurd_from = float("inf")
        """As of the last view."""

    def __len__(self) -> int:
        return sum(map(len, self._shares.values()))

    def report(
        self, vpod: str, pod: str, load: float, vreplicas: int, now: float
    ) -> Refused | None:
        """Take the load of ``vreplicas`` (at least 1) of a vpod (key) on a pod (name). Return why
        it does not count; None if it does.
        """
        rate = load / vreplicas
        refused = self._why_refused(rate)
        shares = self._shares.setdefault(pod, {})
        share = shares.get(vpod)
        if share is None:
            share = shares[vpod] = self._new(vpod, rate if isfinite(rate) else 0.0, now)
        if isfinite(rate):
            share.last = rate
        if refused is None:
            share.smooth(rate, now)
        else:
            share.refused = refused
        return refused

    def _new(self, vpod: str, rate: float, now: float) -> _Share:
        """A share that has just been seen. One that a move has made begins with what is known of
        its vpod: an adapter that measures over a minute reports too little at first.
        """
        if (known := self._means.get(vpod)) is None:
            return _Share(rate, now)
        share = _Share(known.rate, now)
        share.reports = 1
        return share

    def _why_refused(self, rate: float) -> Refused | None:
        if not isfinite(rate):
            return Refused.NOT_FINITE
        if rate < 0:
            return Refused.NEGATIVE
        return Refused.ABSURD if rate > min(self._absurd_from, LOAD_MAX) else None

    def share(self, vpod: str, pod: str, now: float) -> tuple[float | None, str]:
        """The load of one vreplica of a vpod (key) on a pod (name), None if it is not measured; and
        why it counts as the mean, "" if it does not.
        """
        share = self._shares.get(pod, {}).get(vpod)
        why = SILENT if share is None or share.at < now - SILENT_S else str(share.refused or "")
        if share is not None and not why:
            return share.rate, ""
        mean = self._means.get(vpod)
        return (mean.rate if mean is not None else None), why

    def view(self, pool: PoolState, now: float) -> LoadView:
        """The load of each pod. It also forgets what is gone, and decides what is absurd from now
        on.
        """
        steps = self.view_steps(pool, now)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                found: LoadView = done.value
                return found

    def view_steps(self, pool: PoolState, now: float) -> Generator[None, None, LoadView]:
        """The same, in steps of a few milliseconds between which the state may change."""
        self._forget(pool, now)
        yield
        self._judge()
        yield
        oldest, nothing = now - SILENT_S, dict[str, _Share]()
        loads: dict[int, float] = {}
        means: dict[str, _Mean] = {}
        unknown: list[tuple[int, str, int]] = []
        all_load, vreplicas, measured = 0.0, 0, 0
        for index, pod in enumerate(list(pool.members())):
            if index % STEP_PODS == STEP_PODS - 1:
                yield
            shares, load = self._shares.get(pod.name, nothing), 0.0
            ordinal = pod.ordinal
            if ordinal is None:
                continue
            for key, claim in pod.claims.items():
                if not (count := claim.decided.vreplicas):
                    continue
                vreplicas += count
                share = shares.get(key)
                if share is None or not share.reports or share.refused or share.at < oldest:
                    unknown.append((ordinal, key, count))
                    continue
                part = share.rate * count
                load += part
                measured += count
                mean = means.get(key)
                if mean is None:
                    means[key] = _Mean(part, count, share.at)
                else:
                    mean.load += part
                    mean.vreplicas += count
                    mean.at = max(mean.at, share.at)
            loads[ordinal] = load
            all_load += load
        self._fill(loads, means, unknown, all_load / measured if measured else 0.0, oldest)
        self._means = means
        refused = sum(
            1 for shares in self._shares.values() for share in shares.values() if share.refused
        )
        return LoadView(loads=loads, vreplicas=vreplicas, measured=measured, refused=refused)

    def _fill(
        self,
        loads: dict[int, float],
        means: dict[str, _Mean],
        unknown: Iterable[tuple[int, str, int]],
        mean: float,
        oldest: float,
    ) -> None:
        """Add the shares that are not measured (ordinal, vpod key, vreplicas). The mean of the last
        view counts for a vpod without any other, if it is no older than ``oldest``.
        """
        for ordinal, key, count in unknown:
            known, before = means.get(key), self._means.get(key)
            if known is None and before is not None and before.at >= oldest:
                known = means[key] = before
            loads[ordinal] += (known.rate if known is not None else mean) * count

    def _judge(self) -> None:
        """Decide from which load of one vreplica on a report is absurd. If all grow, it grows with
        them.
        """
        rates = [
            share.last
            for shares in self._shares.values()
            for share in shares.values()
            if share.last > 0
        ]
        limit = _absurd_from(rates)
        self._absurd_from = limit
        for shares in self._shares.values():
            for share in shares.values():
                if share.last > limit:
                    share.refused = Refused.ABSURD
                if share.rate > limit:
                    share.reports = 0  # the next good report replaces it

    def _forget(self, pool: PoolState, now: float) -> None:
        oldest = now - SILENT_S
        for name, shares in list(self._shares.items()):
            known = pool.pods.get(name)
            gone = shares.keys() - known.claims.keys() if known is not None else [*shares]
            for key in [key for key in gone if shares[key].at < oldest]:
                del shares[key]
            if not shares:
                del self._shares[name]


def _absurd_from(rates: list[float]) -> float:
    """The greatest load that is not absurd beside these, which are positive."""
    if not rates:
        return float("inf")
    sample = sorted(rates[:: 1 + len(rates) // SAMPLED_MAX])
    likely = ABSURD * sample[len(sample) // 2]
    smaller = sum(rate for rate in rates if rate <= likely)
    for rate in sorted(rate for rate in rates if rate > likely):
        if rate > DWARFS * smaller:
            break
        smaller += rate
    return max(likely, DWARFS * smaller)
