"""What only a real process has: the lag of the event loop, the client's requests and waits (and
``Exposition.add_process``).

The embedded cluster and a simulation, which run several services in one process and in virtual
time, have none of it.
"""

import asyncio
from typing import Final

from extender.kube.client import KubeApi
from extender.telemetry.exposition import Family, Kind, Label
from extender.telemetry.metrics import LANE_VALUES, METHOD_VALUES, Metrics

LAG_PERIOD_S: Final = 0.25
_LAG_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


def watch_client(metrics: Metrics, api: KubeApi) -> None:
    """What is asked of the API server, how it answers, and what our own limit makes wait,
    by lane.
    """
    budget, lane = api.budget, Label("lane", LANE_VALUES)
    api.tell_answers(metrics.requested)
    metrics.read(
        Family(
            name="rest_client_requests",
            kind=Kind.COUNTER,
            documentation="Requests to the API server, by method and status code, or `<error>` for "
            "no answer",
            labels=(
                Label("method", METHOD_VALUES),
                Label("code", names="HTTP status codes, and `<error>`"),
            ),
            like="rest_client_requests_total",
        ),
        lambda: {(method, code): float(count) for (method, code), count in api.requests.items()},
    )
    metrics.counter("api_requests", "Requests to the API server", lane, budget.requests)
    metrics.counter(
        "api_wait_seconds",
        "Time that requests waited for their lane before they were sent",
        lane,
        budget.waited_s,
        like="rest_client_rate_limiter_duration_seconds",
    )
    metrics.counter(
        "api_pauses",
        "Times that a Retry-After of the API server closed a lane",
        lane,
        budget.pauses,
    )
    metrics.gauge("api_waiting", "Requests that wait for their lane", lane, budget.waiting)


class LoopLag:
    """Measures by how much the event loop is late: a callback of ours may keep it from all others.

    kube-scheduler waits for a verb's answer on this loop, the API server's leases are renewed on
    it.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._lag = metrics.add_histogram(
            "event_loop_lag_seconds",
            f"By how much a timer of the event loop was late, each {LAG_PERIOD_S:g} s",
            _LAG_BUCKETS,
        )

    async def run(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_PERIOD_S
            await asyncio.sleep(LAG_PERIOD_S)
            self._lag.observe(max(0.0, loop.time() - due))
