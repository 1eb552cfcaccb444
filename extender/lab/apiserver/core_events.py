"""Events in the form of the core group.

The API server stores an Event once, and serves it as v1 and as events.k8s.io/v1 with other field
names. kubectl reads the core form (``get events``, and the end of ``describe``). Here the core form
can be read and deleted, not written.
"""

from typing import Final

from extender.kube.api import ListOptions, Obj, Resource

CORE_EVENTS: Final = Resource("", "v1", "events", "Event")
_SAME: Final = ("eventTime", "series", "action", "related", "reason", "type")


def core_event(event: Obj) -> Obj:
    """Return the v1 form of an events.k8s.io/v1 Event."""
    series = event.get("series") or {}
    first = event.get("deprecatedFirstTimestamp") or event.get("eventTime")
    return {
        "kind": "Event",
        "apiVersion": "v1",
        "metadata": event["metadata"],
        "involvedObject": event.get("regarding") or {},
        "message": event.get("note") or "",
        "source": event.get("deprecatedSource")
        or {"component": event.get("reportingController", "")},
        "firstTimestamp": _whole_seconds(first),
        "lastTimestamp": _whole_seconds(
            series.get("lastObservedTime") or event.get("deprecatedLastTimestamp") or first
        ),
        "count": int(series.get("count") or event.get("deprecatedCount") or 1),
        "reportingComponent": event.get("reportingController") or "",
        "reportingInstance": event.get("reportingInstance") or "",
        **{field: event[field] for field in _SAME if field in event},
    }


def _whole_seconds(when: str | None) -> str | None:
    if not when:
        return None
    return when.partition(".")[0].removesuffix("Z") + "Z"


def core_event_options(options: ListOptions) -> ListOptions:
    """Translate the options of a request for core events to the field names of the stored form."""
    fields = options.field_selector.replace("involvedObject.", "regarding.")
    fields = fields.replace("reportingComponent", "reportingController")
    return ListOptions(options.namespace, options.label_selector, fields)
