"""The service's metrics, with kube-scheduler's names (our prefix), labels and buckets.

Labels have closed sets of values: results, verbs, reasons, queue parts. Nothing from a tenant's object is a label.
"""

from collections.abc import Callable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

PREFIX: Final = "vreplica_scheduler"
_ATTEMPT_BUCKETS: Final = tuple(0.001 * 2**i for i in range(15))
"""kube-scheduler: ExponentialBuckets(0.001, 2, 15), seconds."""
_EXTENSION_POINT_BUCKETS: Final = tuple(0.0001 * 2**i for i in range(12))
"""kube-scheduler: ExponentialBuckets(0.0001, 2, 12), seconds."""


Family = type[GaugeMetricFamily] | type[CounterMetricFamily]


class _Scraped(Collector):
    """Gauges and counters that are read when scraped, so that nothing has to keep them up to date."""

    def __init__(self) -> None:
        self.sources: list[tuple[Family, str, str, str, Callable[[], Mapping[str, float]]]] = []

    def collect(self) -> list[GaugeMetricFamily | CounterMetricFamily]:
        """One family a source."""
        families = []
        for kind, name, documentation, label, read in self.sources:
            family = kind(f"{PREFIX}_{name}", documentation, labels=[label] if label else [])
            for value, amount in read().items():
                family.add_metric([value] if label else [], amount)
            families.append(family)
        return families


class Metrics:
    """One registry a service, so that several can live in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._scraped = _Scraped()
        self.registry.register(self._scraped)
        self._attempts = self._counter("schedule_attempts", "Attempts to place vpods, by result", ["result"])
        self._attempt_duration = self._histogram(
            "scheduling_attempt_duration_seconds",
            "Decision and writes of a vpod's batch",
            _ATTEMPT_BUCKETS,
            ["result"],
        )
        self._of_result: dict[str, tuple[Counter, Histogram]] = {}
        self.scheduling_algorithm_duration = self._histogram(
            "scheduling_algorithm_duration_seconds", "Decisions of a batch, without writes", _ATTEMPT_BUCKETS
        )
        self._verb_duration = self._histogram(
            "framework_extension_point_duration_seconds",
            "Extender verbs",
            _EXTENSION_POINT_BUCKETS,
            ["extension_point", "status"],
        )
        self._refusals = self._counter("refusals", "Nodes, binds and writes refused, by reason", ["reason"])
        self.repairs = self._counter("repairs", "What the reconciler has put right, by kind", ["kind"])
        self.ledger_conflicts = self._counter(
            "ledger_conflicts", "Ledger writes that lost their compare-and-swap"
        )
        self.moves = self._counter("moves", "vreplicas that were moved, by reason", ["reason"])
        self.moves_planned = self._counter(
            "moves_planned", "vreplicas that the evictor would move, made or not, by reason", ["reason"]
        )
        self.scalings = self._counter("scalings", "Changes of a pool's replicas", ["direction"])
        self.leader = Gauge(
            "leader_election_master_status", "1 while this replica leads", ["name"], registry=self.registry
        )

    def _counter(self, name: str, documentation: str, labels: list[str] | None = None) -> Counter:
        return Counter(f"{PREFIX}_{name}", documentation, labels or [], registry=self.registry)

    def _histogram(
        self, name: str, documentation: str, buckets: tuple[float, ...], labels: list[str] | None = None
    ) -> Histogram:
        return Histogram(
            f"{PREFIX}_{name}", documentation, labels or [], buckets=buckets, registry=self.registry
        )

    def gauge(
        self, name: str, documentation: str, label: str, read: Callable[[], Mapping[str, float]]
    ) -> None:
        """Add a gauge read at scrape time: label value -> amount (label "" with key "" for a plain one)."""
        self._scraped.sources.append((GaugeMetricFamily, name, documentation, label, read))

    def counter(
        self, name: str, documentation: str, label: str, read: Callable[[], Mapping[str, float]]
    ) -> None:
        """Add a counter that something else counts, read at scrape time as a gauge is."""
        self._scraped.sources.append((CounterMetricFamily, name, documentation, label, read))

    def schedule_attempt(self, result: str, duration_s: float) -> None:
        """A vpod was decided and written: ``result`` is scheduled, unschedulable or error."""
        found = self._of_result.get(result)
        if found is None:
            # Looking a label up takes a lock and makes tuples, at each decision.
            found = self._attempts.labels(result), self._attempt_duration.labels(result)
            self._of_result[result] = found
        found[0].inc()
        found[1].observe(duration_s)

    def verb(self, extension_point: str, status: str, duration_s: float) -> None:
        """An extender verb was answered: ``status`` is Success, Unschedulable or Error."""
        self._verb_duration.labels(extension_point, status).observe(duration_s)

    def refused(self, reason: str, count: int = 1) -> None:
        """Nodes, or a bind, were refused."""
        self._refusals.labels(reason).inc(count)

    def render(self) -> bytes:
        """The text format."""
        return generate_latest(self.registry)
