"""Queries that several panels ask in the same form."""

from tests.monitoring.grafana import Query

S, W = "vreplica_scheduler", "vreplica_webhook"
RATE = "$__rate_interval"
POOL = 'pool=~"$pool"'


def quantiles(metric: str, *, by: str = "", where: str = "") -> tuple[Query, ...]:
    """Median and 99th percentile of a histogram."""
    grouped = f"le, {by}" if by else "le"
    name = f" {{{{{by}}}}}" if by else ""
    buckets = f"{metric}_bucket{{{where}}}" if where else f"{metric}_bucket"
    return tuple(
        Query(
            f"histogram_quantile({quantile}, sum by ({grouped}) (rate({buckets}[{RATE}])))",
            f"p{round(quantile * 100)}{name}",
        )
        for quantile in (0.5, 0.99)
    )


def rate(metric: str, by: str = "", where: str = "", *, in_s: int = 1) -> Query:
    """Events in so many seconds."""
    selected = f"{metric}{{{where}}}" if where else metric
    times = f"{in_s} * " if in_s != 1 else ""
    return Query(f"{times}sum{_grouped(by)} (rate({selected}[{RATE}]))", _legend(by))


def total(metric: str, by: str) -> Query:
    """The sum over what has the same label ``by``."""
    return Query(f"sum{_grouped(by)} ({metric})", _legend(by))


def largest(metric: str, by: str) -> Query:
    """The greatest of what has the same label ``by``."""
    return Query(f"max{_grouped(by)} ({metric})", _legend(by))


def _grouped(by: str) -> str:
    return f" by ({by})" if by else ""


def _legend(by: str) -> str:
    return f"{{{{{by}}}}}" if by else ""
