"""As much of PromQL as it takes to say which metrics and labels an expression names."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from extender.telemetry.exposition import Family, Kind

TARGET_LABELS: Final = frozenset({"job", "instance", "namespace", "pod"})
"""What Prometheus adds to every series of a target."""
WORDS: Final = frozenset(
    {
        *(
            "by",
            "without",
            "on",
            "ignoring",
            "and",
            "or",
            "unless",
            "bool",
            "group_left",
            "group_right",
            "offset",
        ),
        *(
            "sum",
            "min",
            "max",
            "avg",
            "count",
            "topk",
            "absent",
            "vector",
            "time",
            "abs",
            "clamp_min",
        ),
        *(
            "rate",
            "increase",
            "histogram_quantile",
            "min_over_time",
            "max_over_time",
            "avg_over_time",
        ),
    }
)
_TOKEN: Final = re.compile(
    r"""(?P<text>"(?:[^"\\]|\\.)*")|(?P<range>\[[^\]]*\])|(?P<name>[a-zA-Z_:$][a-zA-Z0-9_:]*)"""
    r"|(?P<number>\d+(?:\.\d+)?(?:e-?\d+)?)|(?P<sign>=~|!~|!=|==|>=|<=|[-+*/%^(){},=<>])"
    r"|(?P<space>\s+)",
    re.VERBOSE,
)


class Unknown(Exception):
    """An expression names what there is not; the text says what."""


def series_of(families: list[Family]) -> dict[str, frozenset[str]]:
    """Name of every series that the families export -> its labels, without those of the target."""
    series: dict[str, frozenset[str]] = {}
    for family in families:
        labels = frozenset(label.name for label in family.labels)
        if family.kind is Kind.COUNTER:
            series[f"{family.name}_total"] = labels
        elif family.kind is Kind.HISTOGRAM:
            series[f"{family.name}_bucket"] = labels | {"le"}
            series[f"{family.name}_count"] = series[f"{family.name}_sum"] = labels
        else:
            series[family.name] = labels
    return series


def values_of(families: list[Family]) -> dict[tuple[str, str], frozenset[str]]:
    """(series, label) -> its closed set, for those that have one."""
    series = series_of(families)
    closed = {
        (family.name, label.name): frozenset(label.values)
        for family in families
        for label in family.labels
        if label.values
    }
    return {
        (name, label): closed[family, label]
        for name, labels in series.items()
        for label in labels
        for family in [name, re.sub(r"_(total|bucket|count|sum)$", "", name)]
        if (family, label) in closed
    }


def check(expr: str, families: list[Family], others: Mapping[str, frozenset[str]]) -> None:
    """Raises Unknown unless ``expr`` names metrics, labels and values of labels that exist.

    ``others``: series that are no family of ours, with their labels.
    """
    series, closed = {**series_of(families), **others}, values_of(families)
    tokens = list(_tokens(expr))
    named: set[str] = set()
    grouped: set[str] = set()
    at = 0
    while at < len(tokens):
        kind, text = tokens[at]
        at += 1
        if kind != "name":
            continue
        if text in {"by", "without", "on", "ignoring"}:
            end = tokens.index(("sign", ")"), at)
            grouped |= {word for what, word in tokens[at:end] if what == "name"}
            at = end
        elif text in series:
            named.add(text)
            if tokens[at : at + 1] == [("sign", "{")]:
                end = tokens.index(("sign", "}"), at)
                _check_matchers(text, tokens[at + 1 : end], series[text], closed)
                at = end
        elif text not in WORDS:
            raise Unknown(f"{text} is no metric of ours, in {expr}")
    if not named:
        raise Unknown(f"no metric is named in {expr}")
    known = TARGET_LABELS.union(*(series[name] for name in named))
    if strange := grouped - known:
        raise Unknown(f"none of {sorted(named)} has the labels {sorted(strange)}, in {expr}")


def _check_matchers(
    name: str,
    tokens: list[tuple[str, str]],
    labels: frozenset[str],
    closed: Mapping[tuple[str, str], frozenset[str]],
) -> None:
    for (_, label), (_, operator), (_, text) in zip(
        tokens[::4], tokens[1::4], tokens[2::4], strict=True
    ):
        if label not in labels | TARGET_LABELS:
            raise Unknown(f"{name} has no label {label}")
        wanted, values = text.strip('"'), closed.get((name, label))
        if values is None or "$" in wanted:
            continue
        for value in wanted.split("|") if operator in {"=~", "!~"} else [wanted]:
            if value not in values:
                raise Unknown(f"{name} has no {label}={value}, but {sorted(values)}")


def _tokens(expr: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(expr):
        found = _TOKEN.match(expr, at)
        if found is None or found.lastgroup is None:
            raise Unknown(f"{expr[at:]!r} is not understood")
        at = found.end()
        if found.lastgroup != "space":
            yield found.lastgroup, found[0]
