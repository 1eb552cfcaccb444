"""``POST /v1/load``: takes reports of load, by which a pool's vreplicas are balanced.

.. code-block:: text

    {"pool": "knative-eventing/dispatcher", "metric": "requests_per_second",
     "reports": [{"vpod": "team-a/orders", "pod": "dispatcher-0", "load": 12.5}]}
    -> {"kept": 1, "refused": []}
    -> {"kept": 0, "refused": [{"vpod": .., "pod": .., "why": "Negative"}]}

``load`` is what all of the vpod's vreplicas on the pod cause together. The pool names the metric in
``spec.rebalance.load``; reports of another one are refused, so two units never mix. A pool with a
``spec.loadSource`` takes none. ``refused`` has
at most ``REFUSED_LISTED``; ``refusedNotListed`` counts the rest. They count as the mean.

Only the pool's leader keeps reports, in memory. Other replicas answer 503 and name the leader, as
for ``/v1/schedule``. The same two listeners serve it, to the same callers.
"""

import asyncio
import re
from typing import Final

import orjson

from extender.model.errors import InvalidObject
from extender.model.safe_repr import safe_repr
from extender.service.binding.verbs import SUCCESS
from extender.service.http.schedule import (
    KnowsWhoLeads,
    ScheduleRefused,
    read_request,
    refuse_unless_leading,
    section,
)
from extender.service.pools.load_reports import LoadReports, Report
from extender.service.watching.caches import Caches

BODY_BYTES_MAX: Final = 1024 * 1024
REPORTS_MAX: Final = 5_000
"""In one request."""
SLICE_REPORTS: Final = 500
"""Taken without a pause, some milliseconds."""
REFUSED_LISTED: Final = 20

_SUBJECT: Final = "request"
_NAME: Final = r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"
_POOL: Final = re.compile(rf"{_NAME}/{_NAME}")
_VPOD: Final = re.compile(rf"{_NAME}/{_NAME}(@[-a-z0-9.]{{1,320}})?")
_POD: Final = re.compile(_NAME)
_METRIC: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,62}")
_REPORT_FIELDS: Final = frozenset({"vpod", "pod", "load"})


class LoadVerb:
    """The endpoint, from body to body."""

    def __init__(self, caches: Caches, reports: LoadReports, *, leadership: KnowsWhoLeads) -> None:
        self._caches = caches
        self._reports = reports
        self._leadership = leadership

    async def take(self, body: bytes) -> tuple[bytes, str]:
        """Answer one request: (body, status for the metrics). Raises WireError: 400, 404, 409, 413,
        503.
        """
        pool, metric, reports = reports_of_request(body)
        refused = await self.take_reports(pool, metric, reports)
        answer: dict[str, object] = {
            "kept": len(reports) - len(refused),
            "refused": [
                {"vpod": report.vpod, "pod": report.pod, "why": why}
                for report, why in refused[:REFUSED_LISTED]
            ],
        }
        if len(refused) > REFUSED_LISTED:
            answer["refusedNotListed"] = len(refused) - REFUSED_LISTED
        return orjson.dumps(answer), SUCCESS

    async def take_reports(
        self, pool: str, metric: str | None, reports: list[Report]
    ) -> list[tuple[Report, str]]:
        """Keep reports of a pool (key). Return those that do not count, each with the reason.

        ``metric``: None for the pool's own. Raises ScheduleRefused.
        """
        refused: list[tuple[Report, str]] = []
        for start in range(0, max(1, len(reports)), SLICE_REPORTS):
            if start:
                await asyncio.sleep(0)
            refused += self._take(pool, metric, reports[start : start + SLICE_REPORTS])
        return refused

    def _take(
        self, key: str, metric: str | None, reports: list[Report]
    ) -> list[tuple[Report, str]]:
        refuse_unless_leading(self._caches, self._leadership, key)
        pool, state = self._caches.pools.get(key), self._caches.state.pools.get(key)
        if pool is None or state is None:
            raise ScheduleRefused(f"AdapterPool {key} does not exist", 404)
        if pool.load is None:
            raise ScheduleRefused(
                f"AdapterPool {key} does not balance load: set its spec.rebalance.load", 409
            )
        if pool.load_source:
            raise ScheduleRefused(
                f"AdapterPool {key} takes its load from {safe_repr(pool.load_source, 80)} "
                "(spec.loadSource), not from reports",
                409,
            )
        if metric not in {None, pool.load.metric}:
            raise ScheduleRefused(
                f"AdapterPool {key} balances by {pool.load.metric}, not by {metric} "
                "(spec.rebalance.load.metric)",
                409,
            )
        return self._reports.take(state, pool.load, reports)


def reports_of_request(body: bytes) -> tuple[str, str, list[Report]]:
    """The pool's key, the metric and the reports. Raises WireError, which names the field."""
    return read_request(body, BODY_BYTES_MAX, _request)


def _request(root: object) -> tuple[str, str, list[Report]]:
    top = section(root, "", frozenset({"pool", "metric", "reports"}))
    listed = top.get("reports")
    if not isinstance(listed, list):
        raise InvalidObject(_SUBJECT, "reports", "must be a list of reports")
    if len(listed) > REPORTS_MAX:
        raise InvalidObject(
            _SUBJECT, "reports", f"has {len(listed)} entries, and the limit is {REPORTS_MAX}"
        )
    pool = _matching(top.get("pool"), "pool", _POOL)
    metric = _matching(top.get("metric"), "metric", _METRIC)
    return pool, metric, [_report(one, index) for index, one in enumerate(listed)]


def _report(value: object, index: int) -> Report:
    where = f"reports[{index}]"
    found = section(value, where, _REPORT_FIELDS)
    load = found.get("load")
    if isinstance(load, bool) or not isinstance(load, int | float):
        raise InvalidObject(_SUBJECT, f"{where}.load", f"is no number: {safe_repr(load, 80)}")
    return Report(
        _matching(found.get("vpod"), f"{where}.vpod", _VPOD),
        _matching(found.get("pod"), f"{where}.pod", _POD),
        float(load),
    )


def _matching(value: object, field: str, form: "re.Pattern[str]") -> str:
    if not isinstance(value, str) or not form.fullmatch(value):
        raise InvalidObject(
            _SUBJECT,
            field,
            "is required" if value is None else f"is not valid: {safe_repr(value, 80)}",
        )
    return value
