"""The scheduler's events (events.k8s.io/v1). ``record`` does not wait; a task writes them.

As in client-go's recorder, equal events of the same pod become one object with a series count. So a
pod that is refused repeatedly has one FailedScheduling event for each distinct message. Events that
the writer cannot keep up with are dropped and counted.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from extender.kube.api import EVENTS, Api, ApiError, Obj, PatchType
from extender.lab.scheduler.types import PodInfo
from extender.model.timestamps import micro_time

log = logging.getLogger(__name__)

QUEUE_ITEMS_MAX: Final = 1000
SERIES_ITEMS_MAX: Final = 4096
"""Distinct events that are remembered. The least recent is dropped first."""
SERIES_IDLE_S: Final = 360.0
"""An event that repeats after more than this time starts a new series."""
NOTE_BYTES_MAX: Final = 1024


@dataclass(frozen=True, slots=True)
class Event:
    """One event. ``kind`` is Normal or Warning. ``related`` is another pod that it concerns."""

    kind: str
    reason: str
    action: str
    note: str
    regarding: PodInfo
    related: PodInfo | None = None


@dataclass(slots=True)
class _Series:
    name: str
    count: int
    last_s: float


class EventRecorder:
    """Records events under one reporting controller."""

    def __init__(
        self, api: Api, *, now: Callable[[], float], clock: Callable[[], float], instance: str
    ) -> None:
        """``now`` returns epoch seconds, ``clock`` monotonic seconds."""
        self._api = api
        self._now = now
        self._clock = clock
        self._instance = instance
        self._queue: asyncio.Queue[Event] = asyncio.Queue(QUEUE_ITEMS_MAX)
        self._series: OrderedDict[tuple[str, ...], _Series] = OrderedDict()
        self._number = 0
        self.dropped = 0

    def record(self, event: Event) -> None:
        """Queue an event. It is dropped if the writer is too far behind."""
        try:
            self._queue.put_nowait(event)
        except asyncio.QueueFull:
            self.dropped += 1

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            event = await self._queue.get()
            try:
                await self._write(event)
            except ApiError as error:
                log.info(
                    "event %s of pod %s not written: %s", event.reason, event.regarding.key, error
                )

    async def _write(self, event: Event) -> None:
        key = (event.regarding.uid, event.kind, event.reason, event.action, event.note)
        known = self._series.get(key)
        if known is not None and self._clock() - known.last_s <= SERIES_IDLE_S:
            known.count += 1
            known.last_s = self._clock()
            self._series.move_to_end(key)
            series = {"series": {"count": known.count, "lastObservedTime": micro_time(self._now())}}
            namespace = event.regarding.namespace
            await self._api.patch(EVENTS, namespace, known.name, series, patch_type=PatchType.MERGE)
            return
        obj = self._object(event)
        self._series[key] = _Series(obj["metadata"]["name"], 1, self._clock())
        if len(self._series) > SERIES_ITEMS_MAX:
            self._series.popitem(last=False)
        await self._api.create(EVENTS, event.regarding.namespace, obj)

    def _object(self, event: Event) -> Obj:
        self._number += 1
        regarding, now = event.regarding, self._now()
        obj: Obj = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {
                "name": f"{regarding.name}.{int(now * 1e9):x}{self._number:04x}",
                "namespace": regarding.namespace,
            },
            "eventTime": micro_time(now),
            "reportingController": regarding.scheduler_name,
            "reportingInstance": f"{regarding.scheduler_name}-{self._instance}",
            "action": event.action,
            "reason": event.reason,
            "type": event.kind,
            "note": truncated_note(event.note),
            "regarding": _reference(regarding),
        }
        if event.related is not None:
            obj["related"] = _reference(event.related)
        return obj


def truncated_note(note: str) -> str:
    """Return the note, cut to 1 KiB."""
    raw = note.encode()
    if len(raw) <= NOTE_BYTES_MAX:
        return note
    return raw[: NOTE_BYTES_MAX - 4].decode(errors="ignore") + " ..."


def _reference(pod: PodInfo) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": pod.namespace,
        "name": pod.name,
        "uid": pod.uid,
        "resourceVersion": pod.resource_version,
    }
