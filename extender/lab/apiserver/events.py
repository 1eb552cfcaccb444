"""Validation of Events: first the checks of the older core group, then those that events.k8s.io/v1
adds.

kube-apiserver stores one kind for both groups, so its error messages name the core group's fields:
involvedObject, message.
"""

from collections.abc import Iterator
from typing import Final

from extender.kube.api import Obj
from extender.lab.apiserver.field_errors import IMMUTABLE, NAME_PART, invalid, required
from extender.lab.apiserver.names import is_qualified
from extender.lab.apiserver.store import identical

NOTE_BYTES_MAX: Final = 1024
TEXT_CHARACTERS_MAX: Final = 128
_FIXED: Final = {
    "regarding": "involvedObject",
    "related": "related",
    "note": "message",
    "reason": "reason",
    "action": "action",
    "type": "type",
    "reportingController": "reportingController",
    "reportingInstance": "reportingInstance",
    "eventTime": "eventTime",
}
"""Field -> its name in error messages."""


def problems(event: Obj) -> Iterator[str]:
    """Yield the problems of a new event."""
    yield from _either_group(event)
    yield from _series(event)
    if not event.get("eventTime"):
        yield required("eventTime")
    if event.get("type") not in ("Normal", "Warning"):
        yield invalid("type", "", f"has invalid value: {event.get('type') or ''}")


def _either_group(event: Obj) -> Iterator[str]:
    regarding, where = (
        (event.get("regarding") or {}).get("namespace", ""),
        event["metadata"].get("namespace"),
    )
    mismatch = invalid("involvedObject.namespace", "", "does not match event.namespace")
    if not event.get("eventTime"):
        if regarding != where and (regarding or where != "default"):
            yield mismatch
        return
    if not regarding and where not in {"default", "kube-system"}:
        yield mismatch
    for field in ("reportingController", "reportingInstance", "action", "reason"):
        value = event.get(field) or ""
        if not value:
            yield required(field)
        elif field != "reportingController" and len(value) > TEXT_CHARACTERS_MAX:
            yield invalid(field, "", f"can have at most {TEXT_CHARACTERS_MAX} characters")
    if event.get("reportingController") and not is_qualified(event["reportingController"]):
        yield invalid("reportingController", event["reportingController"], NAME_PART)
    if len((event.get("note") or "").encode()) > NOTE_BYTES_MAX:
        yield invalid("message", "", f"can have at most {NOTE_BYTES_MAX} characters")


def _series(event: Obj) -> Iterator[str]:
    series = event.get("series")
    if series is None:
        return
    if (series.get("count") or 0) < 2:
        yield invalid("series.count", "", "should be at least 2")
    if not series.get("lastObservedTime"):
        yield required("series.lastObservedTime")


def change_problems(old: Obj, new: Obj) -> Iterator[str]:
    """Yield the problems of an update: only the series may change."""
    yield from _either_group(new)
    if not identical(old.get("series"), new.get("series")):
        yield from _series(new)
    for field, called in _FIXED.items():
        if not identical(old.get(field), new.get(field)):
            yield invalid(called, new.get(field), IMMUTABLE)
