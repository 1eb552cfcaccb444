"""``EventRecorder``: writes events.k8s.io/v1 events about what the service does, and never delays
that.

``event()`` only touches memory: it creates or finds an entry and puts it into a bounded queue. If
the queue is full, an event is dropped and counted. ``run()`` writes entries, those of one namespace
one after the other, and retries failures that may pass (as client-go: 12 tries, 10 s apart). Each
namespace waits by itself (``namespace_queues``). A namespace whose quota, admission webhook or
aggregated API refuses events delays no other, and makes room for others in a full queue.

A namespace that does not answer holds a writer for ``QUICK_S``; then that write has failed. At most
``DOUBTFUL_WRITES_MAX`` writers serve such namespaces. After ``QUICK_TRIES`` failures a try may take
all the time that the client allows, so that events get through even if each takes seconds.

Aggregation follows client-go's events broadcaster. Events with equal reason, regarding and cause
are one series while less than six minutes lie between them. (Type and action follow from the
reason, ``model.event_reasons``.) A reason in ``HAPPENED`` reports something that happened once:
another note is another event. Otherwise a place that was given at noon would be read as given at
the series' last time. The other reasons report what goes on: their series keep the first note. The
cause is a word of a fixed set, such as a ``ConflictReason``. For example, a vpod waits for room
and then its pool is deleted: that is another cause, and not the old series.

.. code-block:: text

    first              created
    second             patched with series {count: 2, lastObservedTime}
    third and later    counted in memory
    every 30 min       each series is patched, which also renews its life on the server
    6 min quiet        the last count is patched, and the entry forgotten (a single one is just
                       forgotten)

Unlike client-go's, our references have no resourceVersion. With it, events of an object that
changes with each attempt, such as a VPod whose status we write, would never aggregate.

Notes carry tenants' text. Line breaks and other control and formatting characters (terminal
escapes, text direction overrides) are replaced. A note ends at a character border within the 1024
bytes that the API allows.
"""

import asyncio
import logging
import random
import re
import unicodedata
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from extender.kube.api import (
    EVENTS,
    AlreadyExists,
    Api,
    ApiError,
    Forbidden,
    NotFound,
    Obj,
    OutcomeUnknown,
    PatchType,
)
from extender.kube.namespace_queues import NamespaceQueue, NamespaceQueues
from extender.kube.timers import TIMER_RESOLUTION_S
from extender.model.bounded import put_bounded
from extender.model.event_reasons import EVENTS as EVENT_KINDS, HAPPENED, EventReason
from extender.model.names import COMPONENT, DEFAULT_NAMESPACE, NAME_CHARS_MAX
from extender.model.timestamps import micro_time

NOTE_BYTES_MAX: Final = 1024
WORD_CHARS_MAX: Final = 128
"""The API's limit for reportingInstance."""
SERIES_FINISH_S: Final = 360.0
SERIES_REFRESH_S: Final = 1800.0
TRIES_MAX: Final = 12
RETRY_S: Final = 10.0
RETRY_MAX_S: Final = 60.0
WRITES_MAX: Final = 12
"""Writes at once, each into another namespace."""
DOUBTFUL_WRITES_MAX: Final = 4
"""Of these, writes into namespaces whose last write failed or was slow."""
QUICK_S: Final = 2.0
"""A longer write is slow. Twice what Kubernetes' SLO allows for 99% of mutating calls."""
QUICK_TRIES: Final = 2
"""After so many failures in a row a try may be slow."""
CACHE_ITEMS_MAX: Final = 4096

_NOT_DNS: Final = re.compile(r"[^a-z0-9.-]+")
_UNSAFE_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """A core/v1 ObjectReference; ``namespace`` "" if there is none."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str

    def to_json(self) -> Obj:
        """Its JSON in an event, without empty fields."""
        wanted = {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
        }
        return {key: value for key, value in wanted.items() if value}


@dataclass(frozen=True, slots=True)
class _Key:
    """What makes two events the same series."""

    reason: EventReason
    regarding: ObjectReference
    cause: str
    note: str
    """Empty if the note makes no difference."""


@dataclass(slots=True)
class _Entry:
    """One event or series: as it is on the server and as it should be."""

    key: _Key
    note: str
    name: str
    first_s: float
    last_s: float
    count: int = 1
    queued: bool = True
    created: bool = False
    attempted: bool = False
    """Whether a create was sent, whose answer may be lost."""

    @property
    def namespace(self) -> str:
        """Where the event is written."""
        return self.key.regarding.namespace or DEFAULT_NAMESPACE


class EventRecorder:
    """Records events. Call ``event`` anywhere on the loop, and run ``run`` in one task."""

    def __init__(
        self,
        api: Api,
        *,
        reporting_instance: str,
        now: Callable[[], float],
        queue_items_max: int = 1000,
        rng: random.Random | None = None,
    ) -> None:
        self.written = 0
        """Creates and patches that succeeded."""
        self.dropped = 0
        """Events lost because the queue was full."""
        self.failed: Counter[str] = Counter()
        """Events given up, by the error's class. Forbidden mostly means that the namespace is being
        deleted.
        """
        self._api = api
        self._reporting_instance = _word(reporting_instance)
        self._now = now
        self._rng = rng
        self._queues: NamespaceQueues[_Entry] = NamespaceQueues(
            queue_items_max,
            TRIES_MAX,
            DOUBTFUL_WRITES_MAX,
            _loop_time,
        )
        self._writing = 0
        self._entries: OrderedDict[_Key, _Entry] = OrderedDict()
        self._last_stamp = 0

    def event(
        self,
        regarding: ObjectReference,
        *,
        reason: EventReason,
        note: str,
        cause: str = "",
    ) -> None:
        """Record one event; never blocks. Raises only ValueError, for a reason outside the closed
        set.

        ``cause``: one of a few constant strings. Another cause begins another series.
        """
        told_apart = clean_note(note) if reason in HAPPENED else ""
        key = _Key(EventReason(reason), regarding, cause, told_apart)
        now_s = self._now()
        entry = self._entries.get(key)
        if entry is not None:
            entry.count += 1
            entry.last_s = now_s
            # A lone event becomes a series at once; a series' count is written with the next
            # refresh.
            if entry.count == 2:
                self._enqueue(entry)
            return
        entry = _Entry(
            key,
            told_apart or clean_note(note),
            self._name(regarding.name, now_s),
            now_s,
            now_s,
            queued=False,
        )
        if not self._enqueue(entry):
            self.dropped += 1
            return
        put_bounded(self._entries, key, entry, CACHE_ITEMS_MAX)

    async def run(self) -> None:
        """Write what is recorded until cancelled. What is still queued then is lost (see
        ``drain``).
        """
        loop, queues = asyncio.get_running_loop(), self._queues
        finish_at, refresh_at = loop.time() + SERIES_FINISH_S, loop.time() + SERIES_REFRESH_S
        async with asyncio.TaskGroup() as writes:
            while True:
                if loop.time() >= refresh_at - TIMER_RESOLUTION_S:
                    refresh_at += SERIES_REFRESH_S
                    self._refresh()
                if loop.time() >= finish_at - TIMER_RESOLUTION_S:
                    finish_at += SERIES_FINISH_S
                    self._finish()
                queues.wake.clear()
                while self._writing < WRITES_MAX and (queue := queues.take()) is not None:
                    self._writing += 1
                    writes.create_task(self._record(queue), name=f"event in {queue.namespace}")
                # At the limit only the end of a write helps, so the time of a waiting queue does
                # not wake us.
                next_at = queues.next_at if self._writing < WRITES_MAX else finish_at
                try:
                    async with asyncio.timeout_at(min(finish_at, refresh_at, next_at)):
                        await queues.wake.wait()
                except TimeoutError:
                    continue

    async def drain(self, timeout_s: float) -> bool:
        """Wait until everything queued is written or given up; False after ``timeout_s``. ``run``
        must be running.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._queues.idle.wait()
        except TimeoutError:
            return False
        return True

    def _enqueue(self, entry: _Entry) -> bool:
        if entry.queued:
            return True
        left = self._queues.put(entry.namespace, entry)
        entry.queued = left is not entry
        if left is not None and entry.queued:
            self._made_room(left)
        return entry.queued

    def _made_room(self, entry: _Entry) -> None:
        entry.queued = False
        if entry.created:
            # It is on the server. Its count is written later, even if it was just forgotten as
            # quiet.
            self._entries.setdefault(entry.key, entry)
        else:
            self.dropped += 1
            self._forget(entry)

    def _refresh(self) -> None:
        """Write every series again, so that the server does not forget it (events live an hour
        there).
        """
        for entry in list(self._entries.values()):
            if entry.count > 1:
                self._enqueue(entry)

    def _finish(self) -> None:
        """Forget entries that have been quiet; of a series, write the last count first."""
        quiet_since = self._now() - SERIES_FINISH_S
        for key, entry in list(self._entries.items()):
            if entry.last_s < quiet_since and (entry.count == 1 or self._enqueue(entry)):
                self._entries.pop(key, None)

    async def _record(self, queue: NamespaceQueue[_Entry]) -> None:
        """Write a queue's entry as it is now. A failure that may pass makes the queue wait."""
        entry = queue.item
        # Cleared before the write: an event that comes during it queues the entry anew.
        entry.queued = False
        slow_at = _loop_time() + QUICK_S
        try:
            await self._write_within(QUICK_S if queue.failures < QUICK_TRIES else None, entry)
        except ApiError as error:
            if _may_pass(error):
                self._wait(queue, error)
            else:
                self._queues.done(queue, failures=_failures(slow_at))
                self._give_up(entry, error)
        else:
            self.written += 1
            self._queues.done(queue, failures=_failures(slow_at))
        finally:
            self._writing -= 1

    def _wait(self, queue: NamespaceQueue[_Entry], error: ApiError) -> None:
        # Still to be written: keep it from being queued twice meanwhile.
        queue.item.queued = True
        for entry in self._queues.failed(queue, _loop_time() + self._wait_s(error)):
            entry.queued = False
            self._give_up(entry, error)

    def _wait_s(self, error: ApiError) -> float:
        jitter = 0.25 * self._rng.random() if self._rng is not None else 0.0
        return max(RETRY_S * (1.0 + jitter), min(error.retry_after_s or 0.0, RETRY_MAX_S))

    async def _write_within(self, timeout_s: float | None, entry: _Entry) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._write(entry)
        except TimeoutError as error:
            raise OutcomeUnknown(0, "Timeout", f"no answer within {timeout_s} s") from error

    async def _write(self, entry: _Entry) -> None:
        namespace = entry.namespace
        if entry.created:
            try:
                patch = {"series": _series(entry)}
                await self._api.patch(
                    EVENTS, namespace, entry.name, patch, patch_type=PatchType.MERGE
                )
            except NotFound:
                # It has outlived its hour: create it anew, with the count so far.
                entry.created = False
            else:
                return
        attempted, entry.attempted = entry.attempted, True
        try:
            await self._api.create(EVENTS, namespace, self._to_json(entry, namespace))
        except AlreadyExists:
            if not attempted:
                raise
            # An earlier try, whose answer was lost, has created it.
        entry.created = True

    def _give_up(self, entry: _Entry, error: ApiError) -> None:
        self.failed[type(error).__name__] += 1
        self._forget(entry)
        level = logging.DEBUG if isinstance(error, Forbidden | NotFound) else logging.WARNING
        _log.log(
            level,
            "event %s about %s not written: %s",
            entry.key.reason,
            entry.key.regarding.name,
            error,
        )

    def _forget(self, entry: _Entry) -> None:
        """Make the next event like it begin anew."""
        if self._entries.get(entry.key) is entry:
            del self._entries[entry.key]

    def _name(self, regarding: str, now_s: float) -> str:
        """``name.nanoseconds`` as client-go names events, DNS safe, and never the same twice in
        this process.
        """
        self._last_stamp = max(self._last_stamp + 1, int(now_s * 1e9))
        suffix = f".{self._last_stamp:x}"
        stem = _NOT_DNS.sub("-", regarding.lower())[: NAME_CHARS_MAX - len(suffix)]
        # Each label between dots must begin and end with a letter or digit.
        labels = [label.strip("-") for label in stem.split(".")]
        return (".".join(label for label in labels if label) or "event") + suffix

    def _to_json(self, entry: _Entry, namespace: str) -> Obj:
        key, kind = entry.key, EVENT_KINDS[entry.key.reason]
        event: Obj = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": entry.name, "namespace": namespace},
            "eventTime": micro_time(entry.first_s),
            "type": kind.type.value,
            "reason": key.reason.value,
            "action": kind.action,
            "note": entry.note,
            "regarding": key.regarding.to_json(),
            "reportingController": COMPONENT,
            "reportingInstance": self._reporting_instance,
        }
        if entry.count > 1:
            event["series"] = _series(entry)
        return event


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


def _failures(slow_at: float) -> int:
    """How many failures its namespace counts as having, after a write that has just ended."""
    return QUICK_TRIES if _loop_time() >= slow_at else 0


def _may_pass(error: ApiError) -> bool:
    # 429 also says that the lane was paused, so nothing was sent.
    return isinstance(error, OutcomeUnknown) or error.status == 429 or error.status >= 500


def clean_note(note: str) -> str:
    """``note`` on one line, without control and formatting characters, in at most
    ``NOTE_BYTES_MAX`` bytes of UTF-8.
    """
    # Cut first: a character takes a byte at least, and a tenant's text may be long.
    note = note[:NOTE_BYTES_MAX]
    if not note.isprintable():
        note = "".join(_shown(char) for char in note)
    return note.encode("utf-8", "replace")[:NOTE_BYTES_MAX].decode("utf-8", "ignore")


def _shown(char: str) -> str:
    if char in "\r\n\t\v\f":
        return " "
    return "\ufffd" if unicodedata.category(char) in _UNSAFE_CATEGORIES else char


def _word(text: str) -> str:
    """An instance's name as the API accepts it: not empty, not too long, printable."""
    return clean_note(text)[:WORD_CHARS_MAX] or "Unknown"


def _series(entry: _Entry) -> Obj:
    return {"count": entry.count, "lastObservedTime": micro_time(entry.last_s)}
