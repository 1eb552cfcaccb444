"""``LoadReports``: the reported load of the pools that this replica leads (``POST /v1/load``).

It is only in memory. A new leader has none, and moves nothing for load until enough reports have
come (``engine.rebalance.load``). A pool's reports are forgotten if the pool balances by another
metric, or not at all. So the memory grows with the vreplicas of pools that balance, and with
nothing else. ``look`` is called once in each period, and sums them up; status, metrics and answers
show the last summary.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, NamedTuple

from extender.engine.pods.pod_loads import NO_LOADS, PodLoads, pod_loads
from extender.engine.rebalance.balance import LoadGoal, budget_of, counted_loads
from extender.engine.rebalance.load import LoadView, PoolLoad, Refused
from extender.engine.state.pool_state import PoolState
from extender.kube.serving.readers import in_steps
from extender.model.bucket import Bucket
from extender.model.objects import AdapterPool, LoadTarget

PODS_TOLD_MAX: Final = 50
"""Of one vpod."""
SUMMARY_S: Final = 60.0
"""A summary is not replaced sooner. So a pool's status is written no more often for its load."""
NOISE: Final = 0.05
"""The part of a pod's load by which noise changes it: three standard deviations, once reports every
10 s with a noise of 10 % are smoothed.
"""
NOT_PLACED: Final = "NotPlaced"
"""The report is about a share that the pool does not have."""
RESULTS: Final = ("kept", NOT_PLACED, *map(str, Refused))
"""What becomes of a report."""


class Report(NamedTuple):
    """``load`` of the vpod with the key ``vpod`` on the pod with the name ``pod``."""

    vpod: str
    pod: str
    load: float


@dataclass(frozen=True, slots=True)
class LoadSummary:
    """A pool's load at one look. ``max_to_mean``: of the pods' loads, rounded, 0 if there is none;
    ``hottest_pod`` has the most. ``silent``: vreplicas without a report that counts.
    ``loads``: by pod name; ``mean`` of them.
    """

    metric: str
    at: float
    max_to_mean: float
    hottest_pod: str
    silent: int
    loads: Mapping[str, float]
    mean: float

    def beside(self, last: "LoadSummary") -> "LoadSummary":
        """The same, but with the ratio and the hottest pod of the last summary while they differ
        from the present ones by noise only.
        """
        if last.metric != self.metric or not self.mean:
            return self
        changed = abs(self.max_to_mean - last.max_to_mean) > NOISE * last.max_to_mean
        known = self.loads.get(last.hottest_pod, 0.0)
        # The last one was named at the top of its noise, and may be at the bottom now.
        if changed or known < (1 - 2 * NOISE) * self.loads[self.hottest_pod]:
            return self
        return replace(self, max_to_mean=last.max_to_mean, hottest_pod=last.hottest_pod)

    def to_status(self) -> dict[str, object]:
        """``status.load`` of the pool."""
        return {
            "metric": self.metric,
            "maxToMean": self.max_to_mean,
            "hottestPod": self.hottest_pod,
            "silentVReplicas": self.silent,
        }


class LoadReports:
    """By pool key. ``clock``: seconds that never jump."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._pools: dict[str, PoolLoad] = {}
        self._summaries: dict[str, LoadSummary] = {}
        self.counted: Counter[str] = Counter()
        """Reports by ``RESULTS``."""

    def forget(self, bucket: Bucket) -> None:
        """Forget the bucket's pools: this replica begins or ends to lead them."""
        for key in [key for key in self._pools.keys() | self._summaries if bucket.has(key)]:
            self.drop(key)

    def drop(self, key: str) -> None:
        """Forget a pool, which is gone."""
        self._pools.pop(key, None)
        self._summaries.pop(key, None)

    def take(
        self, state: PoolState, target: LoadTarget, reports: Iterable[Report]
    ) -> list[tuple[Report, str]]:
        """Keep reports of the pool. Return those that do not count, each with the reason."""
        load = self._of(state.key, target)
        now, refused = self._clock(), []
        for report in reports:
            pod = state.pods.get(report.pod)
            claim = pod.claims.get(report.vpod) if pod is not None else None
            count = claim.decided.vreplicas if claim is not None else 0
            why = (
                load.report(report.vpod, report.pod, report.load, count, now)
                if count
                else NOT_PLACED
            )
            self.counted[str(why) if why else "kept"] += 1
            if why:
                refused.append((report, str(why)))
        return refused

    def _of(self, key: str, target: LoadTarget) -> PoolLoad:
        known = self._pools.get(key)
        if known is None or known.metric != target.metric:
            self.drop(key)
            known = self._pools[key] = PoolLoad(target.metric)
        return known

    async def look(self, state: PoolState) -> LoadGoal | None:
        """Sum up the pool's load, in steps between which other tasks run. Return what to balance,
        with the budget of a whole period; None if it is not balanced, or nothing is reported.
        """
        target = state.adapter_pool.load if state.adapter_pool is not None else None
        known = self._pools.get(state.key)
        if target is None or known is None or known.metric != target.metric:
            self.drop(state.key)
            state.load = NO_LOADS
            return None
        view = await in_steps(known.view_steps(state, self._clock()))
        if self._pools.get(state.key) is not known:
            return None  # another replica leads, or the metric is another one
        state.load = _loads_of(state, view)
        now = self._clock()
        last = self._summaries.get(state.key)
        if last is None or now - last.at >= SUMMARY_S:
            new = _summary(state, target.metric, view, now)
            self._summaries[state.key] = new if last is None else new.beside(last)
        return LoadGoal(
            view=view,
            rate=lambda vpod, pod: known.share(vpod, pod, now)[0],
            target=target.target,
            budget=budget_of(view.vreplicas),
        )

    def summary(self, pool: AdapterPool) -> LoadSummary | None:
        """The last summary; None if there is none, or the pool is not balanced any more."""
        known = self._summaries.get(pool.key)
        if pool.load is None or known is None or known.metric != pool.load.metric:
            return None
        return known

    def shares(self) -> int:
        """How many shares are kept."""
        return sum(map(len, self._pools.values()))

    # -- answers ---------------------------------------------------------------------------------

    def of_pools(self) -> dict[str, dict[str, object]]:
        """Pool key -> its last summary, as in its status."""
        return {key: summary.to_status() for key, summary in self._summaries.items()}

    def of_pod(self, pool: str, pod: str) -> list[str]:
        """Sentences about the load of a pod (name) of a pool (key); none if nothing is known."""
        known = self._summaries.get(pool)
        if known is None or pod not in known.loads or not known.mean:
            return []
        load, ago = known.loads[pod], max(0.0, self._clock() - known.at)
        return [
            f"load: {load:.4g} {known.metric}, {load / known.mean:.2f} times the pods' mean, "
            f"{ago:.0f} s ago"
        ]

    def of_vpod(self, state: PoolState, vpod: str) -> list[str]:
        """Sentences about the load of a vpod (key) on its pods; none if nothing is known."""
        known = self._pools.get(state.key)
        if known is None:
            return []
        now, found = self._clock(), []
        for name, count in islice(state.decided_of(vpod).items(), PODS_TOLD_MAX):
            rate, why = known.share(vpod, name, now)
            load = f"{rate * count:.4g} {known.metric}" if rate is not None else "not known"
            counts = f", which counts as the mean ({why})" if why else ""
            found.append(f"load on {name}: {load}{counts}")
        return found


def _loads_of(state: PoolState, view: LoadView) -> PodLoads:
    """What new placements may go by. Of pods that are being emptied nothing is asked."""
    if not view.is_enough:
        return NO_LOADS
    loads = counted_loads(state, view, state.closed)
    return pod_loads(loads, {ordinal: state.by_ordinal[ordinal].held for ordinal in loads})


def _summary(state: PoolState, metric: str, view: LoadView, now: float) -> LoadSummary:
    loads = {
        state.by_ordinal[ordinal].name: load
        for ordinal, load in sorted(counted_loads(state, view, state.closed).items())
    }
    hottest = max(loads, key=loads.__getitem__, default="")  # the lowest of equal ones
    mean = sum(loads.values()) / len(loads) if loads else 0.0
    return LoadSummary(
        metric=metric,
        at=now,
        max_to_mean=round(loads[hottest] / mean, 2) if mean else 0.0,
        hottest_pod=hottest if mean else "",
        silent=view.silent,
        loads=loads,
        mean=mean,
    )
