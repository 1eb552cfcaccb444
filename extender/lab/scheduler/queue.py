"""kube-scheduler's scheduling queue.

      add ------------> active ----- pop -----> in flight ---- done (bound, deleted)
                        ^    ^ ^                    |
     backoff over (1/s) |    | | event, not backing off   add_unschedulable
                        |    | |                    |
            backoff ----+    | +---- unschedulable <+-- nothing happened since it was popped
               ^   (also popped when active is empty)   |
               +------------------ event, still backing off, or an event came in flight, or an error

Active pods are ordered by priority, then by the time when they were added. Backoff starts at 1 s,
doubles to 10 s, and ends at a whole second of the clock. Pods that failed with an error back off in
a separate queue, which is not popped early. A pod that waits 5 minutes without an event is tried
again.

Events that come while a pod is in flight are kept for it, because its cycle may have decided on an
older state. The queue also keeps nominated pods, which wait for the end of their victims.
"""

import asyncio
import heapq
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from extender.lab.scheduler.cluster_events import (
    ClusterEvent,
    force_activate,
    pod_change_events,
    unschedulable_timeout,
)
from extender.lab.scheduler.queueing_hints import may_help, may_open
from extender.lab.scheduler.types import PodInfo

UNSCHEDULABLE_FLUSH_S: Final = 30.0
"""How often ``run`` looks for pods that waited too long."""
UNSCHEDULABLE_MAX_S: Final = 300.0
BACKOFF_WINDOW_S: Final = 1.0
EVENTS_IN_FLIGHT_MAX: Final = 10_000
"""Events kept for pods in flight. A pod whose first events are dropped is tried again."""


@dataclass(slots=True, eq=False)
class QueuedPod:
    """A pending pod and the results of its attempts. Times are monotonic seconds."""

    pod: PodInfo
    timestamp_s: float
    attempts: int = 0
    unschedulable_count: int = 0
    consecutive_errors: int = 0
    refused_by: set[str] = field(default_factory=set)
    """Plugins that refused it in its last attempt; empty after an error."""
    gated_by: str = ""
    backoff_ends_s: float | None = None

    @property
    def uid(self) -> str:
        """The pod's UID."""
        return self.pod.uid


Order = Callable[[QueuedPod], tuple[float, ...]]


class _Heap:
    """A heap of pods, each at most once. A pod can be removed by UID."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._pods: dict[str, tuple[int, QueuedPod]] = {}
        self._entries: list[tuple[tuple[float, ...], int, str]] = []
        self._tickets = count()

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def __iter__(self) -> Iterator[QueuedPod]:
        return (queued for _, queued in self._pods.values())

    def get(self, uid: str) -> QueuedPod | None:
        found = self._pods.get(uid)
        return found[1] if found else None

    def put(self, queued: QueuedPod) -> None:
        ticket = next(self._tickets)
        self._pods[queued.uid] = (ticket, queued)
        heapq.heappush(self._entries, (self._order(queued), ticket, queued.uid))

    def remove(self, uid: str) -> QueuedPod | None:
        found = self._pods.pop(uid, None)
        return found[1] if found else None

    def first(self) -> QueuedPod | None:
        while self._entries:
            _, ticket, uid = self._entries[0]
            found = self._pods.get(uid)
            if found is not None and found[0] == ticket:
                return found[1]
            heapq.heappop(self._entries)
        return None

    def pop(self) -> QueuedPod | None:
        first = self.first()
        return self.remove(first.uid) if first is not None else None


def _active_order(queued: QueuedPod) -> tuple[float, ...]:
    return (-queued.pod.priority, queued.timestamp_s)


class SchedulingQueue:
    """The queue. Only ``pop`` and ``run`` await."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        initial_backoff_s: float = 1.0,
        max_backoff_s: float = 10.0,
        gate: Callable[[PodInfo], str] = lambda _pod: "",
    ) -> None:
        """``clock`` returns monotonic seconds. ``gate`` returns the PreEnqueue plugin that holds a
        pod back, "" if none.
        """
        self._clock = clock
        self._initial_backoff_s = initial_backoff_s
        self._max_backoff_s = max_backoff_s
        self._gate = gate
        self._active = _Heap(_active_order)
        self._backoff = _Heap(lambda queued: (self._backoff_end(queued), *_active_order(queued)))
        self._error_backoff = _Heap(lambda queued: (self._backoff_end(queued),))
        self._unschedulable: dict[str, QueuedPod] = {}
        self._in_flight: dict[str, int] = {}
        self._events: deque[tuple[int, ClusterEvent]] = deque(maxlen=EVENTS_IN_FLIGHT_MAX)
        self._event_numbers = count(1)
        self._last_event = 0
        self._wake = asyncio.Event()
        self._nominated: dict[str, tuple[str, PodInfo]] = {}

    # Popping

    async def pop(self) -> QueuedPod:
        """Return the next pod to try. Wait if there is none."""
        while True:
            queued = self._active.pop() or self._backoff.pop()
            if queued is not None:
                queued.attempts += 1
                self._in_flight[queued.uid] = self._last_event
                return queued
            self._wake.clear()
            await self._wake.wait()

    def done(self, uid: str) -> None:
        """The pod is no longer in flight."""
        self._in_flight.pop(uid, None)
        if not self._in_flight:
            self._events.clear()
        else:
            oldest = min(self._in_flight.values())
            while self._events and self._events[0][0] <= oldest:
                self._events.popleft()

    # The pods

    def add(self, pod: PodInfo) -> None:
        """Add a new pending pod."""
        self._to_active(QueuedPod(pod, self._clock()))
        self.nominate(pod)

    def update(self, old: PodInfo, new: PodInfo) -> None:
        """Record a change of a pending pod, which may have waited for just this change."""
        events = pod_change_events(old, new)
        if new.uid in self._in_flight:
            self._remember(events)
            return
        for queue in (self._active, self._backoff, self._error_backoff):
            queued = queue.remove(new.uid)
            if queued is not None:
                queued.pod = new
                queue.put(queued)
                self._update_nominated(old, new)
                return
        queued = self._unschedulable.get(new.uid)
        if queued is None:
            self.add(new)
            return
        queued.pod = new
        self._update_nominated(old, new)
        for event in events:
            if may_help(new, queued.refused_by, event) and self._requeue(queued):
                return

    def delete(self, uid: str) -> None:
        """Drop a pod that was deleted or bound."""
        self.forget_nomination(uid)
        for queue in (self._active, self._backoff, self._error_backoff):
            queue.remove(uid)
        self._unschedulable.pop(uid, None)

    def add_unschedulable(self, queued: QueuedPod, pod: PodInfo) -> None:
        """Take back a pod after a failed attempt. ``pod`` is its newest version. ``refused_by`` of
        ``queued`` says why it failed.
        """
        uid = pod.uid
        if (
            uid in self._active
            or uid in self._backoff
            or uid in self._error_backoff
            or uid in self._unschedulable
        ):
            self.done(uid)
            return
        queued.pod = pod
        if queued.refused_by:
            queued.unschedulable_count += 1
            queued.consecutive_errors = 0
        else:
            queued.consecutive_errors += 1
        queued.timestamp_s = self._clock()
        queued.backoff_ends_s = None
        if self._something_happened(queued):
            self._requeue(queued)
        else:
            self._unschedulable[uid] = queued
        self.done(uid)

    def _something_happened(self, queued: QueuedPod) -> bool:
        """Return whether the pod failed with an error, or an event that may help came while it was
        in flight.
        """
        if not queued.refused_by or queued.uid not in self._in_flight:
            return True
        since = self._in_flight[queued.uid]
        if len(self._events) == EVENTS_IN_FLIGHT_MAX and self._events[0][0] > since + 1:
            return True
        return any(
            may_help(queued.pod, queued.refused_by, event)
            for number, event in self._events
            if number > since
        )

    # Events

    def move_all(
        self, event: ClusterEvent, concerns: Callable[[PodInfo], bool] | None = None
    ) -> None:
        """Move the unschedulable pods that a cluster event may help."""
        for queued in list(self._unschedulable.values()):
            if concerns is None or concerns(queued.pod):
                self._move(queued, event)
        self._remember([event])

    def _move(self, queued: QueuedPod, event: ClusterEvent) -> None:
        if queued.gated_by and not may_open(queued.gated_by, event):
            return
        if may_help(queued.pod, queued.refused_by, event):
            self._requeue(queued)

    def activate(self, pod: PodInfo) -> None:
        """Try that pod again at once."""
        queued = (
            self._unschedulable.get(pod.uid)
            or self._backoff.remove(pod.uid)
            or self._error_backoff.remove(pod.uid)
        )
        if queued is not None:
            self._to_active(queued)
        elif pod.uid in self._in_flight:
            self._remember([force_activate(pod)])

    def _remember(self, events: Iterable[ClusterEvent]) -> None:
        if self._in_flight:
            for event in events:
                self._last_event = next(self._event_numbers)
                self._events.append((self._last_event, event))

    # Moving

    def _requeue(self, queued: QueuedPod) -> bool:
        """Move a pod to backoff or active unless a gate holds it back. Return whether it moved."""
        if not self._backing_off(queued):
            return self._to_active(queued)
        if self._held_back(queued):
            return False
        self._unschedulable.pop(queued.uid, None)
        (self._backoff if queued.refused_by else self._error_backoff).put(queued)
        self._wake.set()
        return True

    def _to_active(self, queued: QueuedPod) -> bool:
        if self._held_back(queued):
            return False
        self._unschedulable.pop(queued.uid, None)
        self._active.put(queued)
        self._wake.set()
        return True

    def _held_back(self, queued: QueuedPod) -> bool:
        queued.gated_by = self._gate(queued.pod)
        if not queued.gated_by:
            return False
        queued.refused_by.add(queued.gated_by)
        self._unschedulable[queued.uid] = queued
        return True

    # Backoff

    def _backoff_end(self, queued: QueuedPod) -> float:
        failures = queued.consecutive_errors or queued.unschedulable_count
        if not failures or not self._max_backoff_s:
            return -math.inf
        if queued.backoff_ends_s is None:
            # The limit avoids an overflow. The result reaches the maximum long before.
            pause_s = min(self._initial_backoff_s * 2 ** min(failures - 1, 64), self._max_backoff_s)
            queued.backoff_ends_s = _window(queued.timestamp_s + pause_s)
        return queued.backoff_ends_s

    def _backing_off(self, queued: QueuedPod) -> bool:
        return self._backoff_end(queued) >= _window(self._clock())

    async def run(self) -> None:
        """End backoffs at whole seconds, and move pods that waited too long; until cancelled."""
        next_flush_s = self._clock() + UNSCHEDULABLE_FLUSH_S
        while True:
            await asyncio.sleep(_window(self._clock()) + BACKOFF_WINDOW_S - self._clock())
            self.flush_backoff()
            if self._clock() >= next_flush_s:
                next_flush_s += UNSCHEDULABLE_FLUSH_S
                self.flush_unschedulable()

    def flush_backoff(self) -> None:
        """Make pods active whose backoff is over."""
        for queue in (self._backoff, self._error_backoff):
            while (queued := queue.first()) is not None and not self._backing_off(queued):
                queue.remove(queued.uid)
                self._active.put(queued)
                self._wake.set()

    def flush_unschedulable(self) -> None:
        """Try the pods again that waited 5 minutes."""
        for queued in list(self._unschedulable.values()):
            if self._clock() - queued.timestamp_s > UNSCHEDULABLE_MAX_S:
                self._move(queued, unschedulable_timeout())

    # Nominations

    def nominate(self, pod: PodInfo, node: str | None = None) -> None:
        """Record that a pod waits for room on ``node`` ("": not; None: as its status says)."""
        self.forget_nomination(pod.uid)
        chosen = pod.nominated_node if node is None else node
        if chosen or node is not None:
            self._nominated[pod.uid] = (chosen, pod)

    def _update_nominated(self, old: PodInfo, new: PodInfo) -> None:
        # The status may not show the scheduler's decision yet. Until it does, keep the queue's
        # record.
        known = self._nominated.get(new.uid)
        if known is not None and not old.nominated_node and not new.nominated_node:
            self._nominated[new.uid] = (known[0], new)
        else:
            self.nominate(new)

    def forget_nomination(self, uid: str) -> None:
        """Drop the nomination of a pod."""
        self._nominated.pop(uid, None)

    def nominated_pods(self, node: str) -> list[PodInfo]:
        """Return the pods that wait for room on that node."""
        return [pod for where, pod in self._nominated.values() if where == node]

    # Inspecting

    def pending(self) -> dict[str, int]:
        """Return the number of pods in each part, under kube-scheduler's names."""
        return {
            "active": len(self._active),
            "backoff": len(self._backoff) + len(self._error_backoff),
            "unschedulable": len(self._unschedulable),
            "in_flight": len(self._in_flight),
        }


def _window(moment_s: float) -> float:
    return math.floor(moment_s / BACKOFF_WINDOW_S) * BACKOFF_WINDOW_S
