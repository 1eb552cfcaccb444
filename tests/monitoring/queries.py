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


def rate(metric: str, by: str = "", where: str = "") -> Query:
    """Events a second."""
    selected = f"{metric}{{{where}}}" if where else metric
    grouped = f" by ({by})" if by else ""
    return Query(f"sum{grouped} (rate({selected}[{RATE}]))", f"{{{{{by}}}}}" if by else "")
