"""Declares families of metrics. Both programs export them, and ``docs/metrics.md`` is made from
them.

The code that fills a family declares it, with its help text, the values of its labels and the
stability of its name. A label either has a *fixed set* of values, or its values are names that
operators create, up to a limit. A value outside a fixed set is counted as ``other``. A series
costs memory here and, for weeks, in Prometheus. So no text of a tenant's object, and no text
without a limit, may become a label value.

There are two ways to fill a family. A counter or histogram of ``prometheus_client`` is changed when
something happens. A function that is passed to ``read`` is called at each scrape, so that nothing
has to keep a gauge up to date.
"""

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import product
from typing import Final, TypedDict, Unpack

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from extender import __version__

OTHER: Final = "other"
"""Replaces every value that is not in a label's fixed set."""
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Kind(StrEnum):
    """Prometheus' type of a family."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Stability(StrEnum):
    """Kubernetes' levels of stability: how a metric's name may change.

    https://kubernetes.io/docs/concepts/cluster-administration/system-metrics/#metric-lifecycle
    """

    ALPHA = "ALPHA"
    """May change or disappear in any version."""
    BETA = "BETA"
    """Labels may be added, not removed. A name is announced one version before it is removed."""
    STABLE = "STABLE"
    """Name, labels and buckets stay as long as the API group's version."""


@dataclass(frozen=True, slots=True)
class Label:
    """A label. ``values`` is its fixed set. If that is empty, operators create the values, and
    ``description`` says what they are.
    """

    name: str
    values: tuple[str, ...] = ()
    description: str = ""

    def value(self, text: str) -> str:
        """Return ``text``, or ``other`` if it is not in the fixed set."""
        return text if not self.values or text in self.values else OTHER


@dataclass(frozen=True, slots=True)
class Family:
    """One declared family. ``like`` is the metric of another program, such as kube-scheduler, that
    it is modelled on.
    """

    name: str
    kind: Kind
    documentation: str
    labels: tuple[Label, ...] = ()
    stability: Stability = Stability.ALPHA
    like: str = ""
    buckets: tuple[float, ...] = ()

    @property
    def label_names(self) -> list[str]:
        """The labels' names, as prometheus_client takes them."""
        return [label.name for label in self.labels]


class FamilyOptions(TypedDict, total=False):
    """Optional parts of a declaration; ``Family`` explains them."""

    stability: Stability
    like: str


ReadMany = Callable[[], Mapping[tuple[str, ...], float]]
"""Label values, in the order of the labels -> amount."""
ReadByLabel = Callable[[], float | Mapping[str, float]]
"""For a family with one label: its value -> amount. For one without a label: the amount."""


class _Scraped(Collector):
    """Families whose amounts are read at each scrape."""

    def __init__(self) -> None:
        self.sources: list[tuple[Family, ReadMany]] = []

    def collect(self) -> list[GaugeMetricFamily | CounterMetricFamily]:
        """Return one family for each source."""
        return [_collected(family, read()) for family, read in self.sources]


def _collected(
    family: Family, amounts: Mapping[tuple[str, ...], float]
) -> GaugeMetricFamily | CounterMetricFamily:
    made = CounterMetricFamily if family.kind is Kind.COUNTER else GaugeMetricFamily
    collected = made(family.name, family.documentation, labels=family.label_names)
    summed: dict[tuple[str, ...], float] = {}
    if family.kind is Kind.COUNTER:
        summed |= dict.fromkeys(_closed(family.labels), 0.0)
    for values, amount in amounts.items():
        key = tuple(label.value(value) for label, value in zip(family.labels, values, strict=True))
        summed[key] = summed.get(key, 0.0) + amount
    for key, amount in summed.items():
        collected.add_metric(key, amount)
    return collected


def _closed(labels: Sequence[Label]) -> Iterator[tuple[str, ...]]:
    """Yield all combinations of values, or none if a label has no fixed set or there are no
    labels.
    """
    if labels and all(label.values for label in labels):
        yield from product(*(label.values for label in labels))


class Exposition:
    """The families of one program. It has its own registry, so one process can hold several
    programs.
    """

    def __init__(self, prefix: str) -> None:
        self.registry = CollectorRegistry()
        self._prefix = prefix
        self._scraped = _Scraped()
        self.registry.register(self._scraped)
        self._families: dict[str, Family] = {}

    @property
    def families(self) -> list[Family]:
        """All declared families, by name."""
        return [self._families[name] for name in sorted(self._families)]

    def add_counter(
        self,
        name: str,
        documentation: str,
        labels: Iterable[Label] = (),
        **options: Unpack[FamilyOptions],
    ) -> Counter:
        """Declare a counter; ``name`` is without the prefix and without ``_total``.

        If all labels have fixed sets, every series starts at 0. Prometheus' increase() of a series
        that starts at 1 is 0, so an alert would miss the first event.
        """
        family = self._declare(Family(name, Kind.COUNTER, documentation, tuple(labels), **options))
        counter = Counter(
            family.name, family.documentation, family.label_names, registry=self.registry
        )
        for values in _closed(family.labels):
            counter.labels(*values)
        return counter

    def add_histogram(
        self,
        name: str,
        documentation: str,
        buckets: Sequence[float],
        labels: Iterable[Label] = (),
        **options: Unpack[FamilyOptions],
    ) -> Histogram:
        """Declare a histogram."""
        family = Family(
            name,
            Kind.HISTOGRAM,
            documentation,
            tuple(labels),
            buckets=tuple(buckets),
            **options,
        )
        family = self._declare(family)
        return Histogram(
            family.name,
            family.documentation,
            family.label_names,
            buckets=family.buckets,
            registry=self.registry,
        )

    def add_gauge(
        self,
        name: str,
        documentation: str,
        labels: Iterable[Label] = (),
        **options: Unpack[FamilyOptions],
    ) -> Gauge:
        """Declare a gauge that somebody sets."""
        family = self._declare(Family(name, Kind.GAUGE, documentation, tuple(labels), **options))
        return Gauge(family.name, family.documentation, family.label_names, registry=self.registry)

    def gauge(
        self,
        name: str,
        documentation: str,
        label: Label | None,
        read: ReadByLabel,
        **options: Unpack[FamilyOptions],
    ) -> None:
        """Declare a gauge whose amounts ``read`` returns at each scrape."""
        self._read_by_label(Family(name, Kind.GAUGE, documentation, **options), label, read)

    def counter(
        self,
        name: str,
        documentation: str,
        label: Label | None,
        read: ReadByLabel,
        **options: Unpack[FamilyOptions],
    ) -> None:
        """Declare a counter that other code counts. ``read`` returns its amounts at each scrape."""
        self._read_by_label(Family(name, Kind.COUNTER, documentation, **options), label, read)

    def _read_by_label(self, family: Family, label: Label | None, read: ReadByLabel) -> None:
        def read_many() -> Mapping[tuple[str, ...], float]:
            amounts = read()
            if not isinstance(amounts, Mapping):
                return {(): amounts}
            return {(value,): amount for value, amount in amounts.items()}

        self.read(replace(family, labels=() if label is None else (label,)), read_many)

    def read(self, family: Family, read: ReadMany) -> None:
        """Declare a family whose amounts ``read`` returns at each scrape. Its name is without the
        prefix and without ``_total``.
        """
        self._scraped.sources.append((self._declare(family), read))

    def add_process(self) -> None:
        """Declare the version of this program, ``process_*`` and ``python_gc_*``. Call it once, and
        only if no other program runs in the process.
        """
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        family = Family(
            name="build_info",
            kind=Kind.GAUGE,
            documentation="1, with the versions that run",
            labels=(
                Label("version", description="of this program"),
                Label("python_version", description="of Python"),
            ),
            like="kubernetes_build_info",
        )
        self.read(family, lambda: {(__version__, platform.python_version()): 1.0})

    def render(self) -> bytes:
        """Return the text format."""
        return generate_latest(self.registry)

    def _declare(self, family: Family) -> Family:
        """Add the prefix to the name, and the stability to the help text as Kubernetes does. Raises
        ValueError for a family that is declared twice.
        """
        name = f"{self._prefix}_{family.name}"
        if name in self._families:
            raise ValueError(f"metric {name} is declared twice")
        told = f"[{family.stability}] {family.documentation}"
        whole = replace(family, name=name, documentation=told)
        self._families[name] = whole
        return whole
