"""Families of metrics as they are declared: what both programs export, and what ``docs/metrics.md``
is made of.

Every family is declared in the code that fills it, with its help text, the values that its labels
can have, and how stable its name is. A label has a *closed set* of values, or it names things that
operators create (``names``), and then there is a limit to how many. What comes as another value is
counted as ``other``: a series costs memory here and in Prometheus for weeks, so no text of a
tenant's object, and no text that grows without limit, may become one.

Two ways to fill a family: a counter or histogram of ``prometheus_client`` that is touched when
something happens; or a function that is read when somebody scrapes (``read``), so that nothing has
to keep a gauge up to date.
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
"""Stands for every value of a label that is not in its closed set."""
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Kind(StrEnum):
    """Prometheus' type of a family."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Stability(StrEnum):
    """Kubernetes' levels: what may become of a name.

    https://kubernetes.io/docs/concepts/cluster-administration/system-metrics/#metric-lifecycle
    """

    ALPHA = "ALPHA"
    """May change or go with any version."""
    BETA = "BETA"
    """Labels may come, none go; a name goes only a version after it was told."""
    STABLE = "STABLE"
    """Name, labels and buckets stay while the API group's version does."""


@dataclass(frozen=True, slots=True)
class Label:
    """A label: ``values`` is its closed set; empty, the values are names that operators give, which
    ``names`` tells.
    """

    name: str
    values: tuple[str, ...] = ()
    names: str = ""

    def value(self, text: str) -> str:
        """``text``, or ``other`` where it is none of the closed set."""
        return text if not self.values or text in self.values else OTHER


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One declared family. ``like``: the metric of kube-scheduler, or of client-go, that it is
    modelled on.
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
        """As prometheus_client takes them."""
        return [label.name for label in self.labels]


class More(TypedDict, total=False):
    """What a declaration may say besides, as ``Family`` has it."""

    stability: Stability
    like: str


def family_of(
    kind: Kind, name: str, documentation: str, labels: Iterable[Label] = (), **more: Unpack[More]
) -> Family:
    """A ``Family`` without buckets."""
    return Family(name=name, kind=kind, documentation=documentation, labels=tuple(labels), **more)


ReadMany = Callable[[], Mapping[tuple[str, ...], float]]
"""Values in the order of the labels -> amount."""


class _Scraped(Collector):
    """Families that are read when scraped."""

    def __init__(self) -> None:
        self.sources: list[tuple[Family, ReadMany]] = []

    def collect(self) -> list[GaugeMetricFamily | CounterMetricFamily]:
        """One family a source."""
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
    """All values together; none where a label has no closed set, or there are no labels."""
    if labels and all(label.values for label in labels):
        yield from product(*(label.values for label in labels))


class Exposition:
    """The families of one program. One registry each, so that several can live in one process."""

    def __init__(self, prefix: str) -> None:
        self.registry = CollectorRegistry()
        self._prefix = prefix
        self._scraped = _Scraped()
        self.registry.register(self._scraped)
        self._families: dict[str, Family] = {}

    @property
    def families(self) -> list[Family]:
        """All that are declared, by name."""
        return [self._families[name] for name in sorted(self._families)]

    def add_counter(
        self, name: str, documentation: str, labels: Iterable[Label] = (), **more: Unpack[More]
    ) -> Counter:
        """Declare a counter; ``name`` is without the prefix and without ``_total``.

        With labels of closed sets it says 0 from the start, each: of a series that begins with 1
        Prometheus's increase() is 0, so an alert would miss the first of what must never happen.
        """
        family = self._declare(family_of(Kind.COUNTER, name, documentation, labels, **more))
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
        **more: Unpack[More],
    ) -> Histogram:
        """Declare a histogram."""
        family = family_of(Kind.HISTOGRAM, name, documentation, labels, **more)
        family = self._declare(replace(family, buckets=tuple(buckets)))
        return Histogram(
            family.name,
            family.documentation,
            family.label_names,
            buckets=family.buckets,
            registry=self.registry,
        )

    def add_gauge(
        self, name: str, documentation: str, labels: Iterable[Label] = (), **more: Unpack[More]
    ) -> Gauge:
        """Declare a gauge that somebody sets."""
        family = self._declare(family_of(Kind.GAUGE, name, documentation, labels, **more))
        return Gauge(family.name, family.documentation, family.label_names, registry=self.registry)

    def read(self, family: Family, read: ReadMany) -> None:
        """Declare a family whose amounts ``read`` gives at each scrape; its name is without prefix
        and ``_total``.
        """
        self._scraped.sources.append((self._declare(family), read))

    def add_process(self) -> None:
        """Which program this is, and ``process_*`` and ``python_gc_*``: once, where the process is
        one program alone.
        """
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        family = Family(
            name="build_info",
            kind=Kind.GAUGE,
            documentation="1, with the versions that run",
            labels=(
                Label("version", names="of this program"),
                Label("python_version", names="of Python"),
            ),
            like="kubernetes_build_info",
        )
        self.read(family, lambda: {(__version__, platform.python_version()): 1.0})

    def render(self) -> bytes:
        """The text format."""
        return generate_latest(self.registry)

    def _declare(self, family: Family) -> Family:
        """With its whole name, and its stability before the help text, as Kubernetes has it. Raises
        ValueError for one declared twice.
        """
        name = f"{self._prefix}_{family.name}"
        if name in self._families:
            raise ValueError(f"metric {name} is declared twice")
        told = f"[{family.stability}] {family.documentation}"
        whole = replace(family, name=name, documentation=told)
        self._families[name] = whole
        return whole
