"""``SimulatedPrometheus``: it knows what adapters measure, and answers the replicas' queries (the
part ``loadSource``).

It answers in Prometheus' own format, which the service reads as it reads a real answer. The
network's time counts. An exchange over HTTP is not simulated.
"""

import asyncio
from typing import Any, Final

import orjson

from extender.config.load_sources import LoadSource
from extender.lab.faults import Faults
from extender.lab.simulation.world.load import AdapterLoads
from extender.service.pools.prometheus import Answer, LoadTrouble, QueryFailed, reports_of_answer

FAILURES: Final = (
    b"upstream connect error",
    b'{"status": "error", "errorType": "timeout", "error": "query timed out"}',
    b'{"status": "success", "data": {"resultType": "matrix", "result": []}}',
)


class SimulatedPrometheus:
    """One server for all sources and replicas."""

    def __init__(self, loads: AdapterLoads, faults: Faults) -> None:
        self._loads = loads
        self._faults = faults

    def server(self, source: LoadSource) -> "SimulatedServer":
        """Return what a replica asks for the load of one source."""
        return SimulatedServer(self, source)

    async def exchange(self, query: str) -> bytes:
        """Return the body of the answer. Raises QueryFailed."""
        faults = self._faults
        await faults.delay()
        if faults.hits("load_query_hangs"):
            await asyncio.Event().wait()
        if faults.hits("load_query_fails"):
            body = faults.rng.choice((b"", *FAILURES))
            if not body:
                raise QueryFailed(LoadTrouble.FAILED, "the server fails (HTTP 503)")
        elif faults.hits("load_query_empty"):
            body = _vector([])
        else:
            body = _vector([_series(report) for report in self._loads.reports().get(query, ())])
        await faults.delay()
        return body


class SimulatedServer:
    """A ``LoadServer``."""

    def __init__(self, prometheus: SimulatedPrometheus, source: LoadSource) -> None:
        self._prometheus = prometheus
        self._source = source

    async def ask(self, query: str) -> Answer:
        """``LoadServer.ask``."""
        try:
            async with asyncio.timeout(self._source.timeout_s):
                body = await self._prometheus.exchange(query)
        except TimeoutError as error:
            raise QueryFailed(LoadTrouble.TIMED_OUT, "no answer in time") from error
        return reports_of_answer(body, self._source.labels)


def _vector(series: list[dict[str, Any]]) -> bytes:
    return orjson.dumps({"status": "success", "data": {"resultType": "vector", "result": series}})


def _series(report: dict[str, Any]) -> dict[str, Any]:
    namespace, _, vpod = report["vpod"].partition("/")
    metric = {"vpod_namespace": namespace, "vpod": vpod, "pod": report["pod"]}
    return {"metric": metric, "value": [0, repr(report["load"])]}
