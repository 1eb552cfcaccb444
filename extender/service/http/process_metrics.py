"""Metrics that only a real process has: the event loop's lag, and the API client's requests and
waits.

``Exposition.add_process`` has the others. The embedded cluster and simulations have none of them:
they run several services in one process, in virtual time.
"""

import asyncio
from typing import Final

from extender.kube.client import KubeApi
from extender.telemetry.exposition import Family, Kind, Label
from extender.telemetry.metrics import LANE_VALUES, METHOD_VALUES, Metrics

LAG_PERIOD_S: Final = 0.25
_LAG_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


def watch_client(metrics: Metrics, api: KubeApi) -> None:
    """Declare metrics of the requests to the API server, their status codes, and the waits for the
    client's own limit, by lane.
    """
    budget, lane = api.budget, Label("lane", LANE_VALUES)
    api.observe_latency(metrics.requested)
    metrics.read(
        Family(
            name="rest_client_requests",
            kind=Kind.COUNTER,
            documentation="Requests to the API server, by method and status code, or `<error>` for "
            "no answer",
            labels=(
                Label("method", METHOD_VALUES),
                Label("code", description="HTTP status codes, and `<error>`"),
            ),
            like="rest_client_requests_total",
        ),
        lambda: {(method, code): float(count) for (method, code), count in api.requests.items()},
    )
    metrics.counter("api_requests", "Requests to the API server", lane, lambda: budget.requests)
    metrics.counter(
        "api_wait_seconds",
        "Time that requests waited for their lane before they were sent",
        lane,
        budget.waited_s,
        like="rest_client_rate_limiter_duration_seconds",
    )
    metrics.counter(
        "api_pauses",
        "Times that a Retry-After of the API server paused a lane",
        lane,
        lambda: budget.pauses,
    )
    metrics.gauge("api_waiting", "Requests that wait for their lane", lane, budget.waiting)


class LoopLag:
    """Measures how late the event loop is, because one callback may delay all others.

    Verbs are answered and Leases are renewed on this loop.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._lag = metrics.add_histogram(
            "event_loop_lag_seconds",
            f"By how much a timer of the event loop was late, each {LAG_PERIOD_S:g} s",
            _LAG_BUCKETS,
        )

    async def run(self) -> None:
        """Measure until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_PERIOD_S
            await asyncio.sleep(LAG_PERIOD_S)
            self._lag.observe(max(0.0, loop.time() - due))
