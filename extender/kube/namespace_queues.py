"""``NamespaceQueues``: a bounded queue for each namespace. A namespace that cannot be served delays
no other. Pure memory, without a task of its own.

.. code-block:: text

    put --> the namespace's queue --> ready --take--> busy --done--> ready, or forgotten when empty
                                        ^              '--failed--> waits until its time, then one
                                        |                              | item is tried
                                        '------------------------------'

One item of a queue is served at a time, so its items stay in order. An item that failed goes behind
the others of its queue, and each failure counts against all items that wait there. So an item that
always fails delays the others of its queue by one wait only. In a queue that always fails, each
item waits as often as a single item would.

A queue is *doubtful* from a failure until one of its items is served quickly. At most
``doubtful_max`` items of doubtful queues are served at once, first of queues with the fewest
failures in a row. So a queue that never answers delays neither healthy queues for long nor a queue
that failed once.

While there is room, a queue may take all of it. If there is none, the newest item of the longest
queue makes room for one of a shorter queue, and doubtful queues make room for the others until they
hold half of all items. A limit for doubtful queues alone would come too late, because a queue that
hangs is known only after its first item. A limit for every queue would cut bursts that can be
served.
"""

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from extender.kube.timers import TIMER_RESOLUTION_S

T = TypeVar("T")


@dataclass(slots=True)
class _Held(Generic[T]):
    item: T
    failures: int = 0


@dataclass(slots=True, eq=False)
class NamespaceQueue(Generic[T]):
    """The items of one namespace."""

    namespace: str
    items: "deque[_Held[T]]" = field(default_factory=deque)
    busy: "_Held[T] | None" = None
    """The item that is being served."""
    waits: bool = False
    """Whether it waits for its turn, or for the time of its next try."""
    failures: int = 0
    """In a row. Above 0 the queue is doubtful."""

    @property
    def item(self) -> T:
        """The item to serve now."""
        assert self.busy is not None
        return self.busy.item


class NamespaceQueues(Generic[T]):
    """``clock``: the event loop's time, s. An item is given up after ``failures_max`` failures."""

    def __init__(
        self, items_max: int, failures_max: int, doubtful_max: int, clock: Callable[[], float]
    ) -> None:
        self._items_max = items_max
        self._failures_max = failures_max
        self._doubtful_max = doubtful_max
        self._clock = clock
        self._queues: dict[str, NamespaceQueue[T]] = {}
        self._ready: deque[NamespaceQueue[T]] = deque()
        self._doubtful: list[tuple[int, int, NamespaceQueue[T]]] = []
        """Doubtful queues that are ready: a heap by failures."""
        self._doubtful_busy = 0
        self._later: list[tuple[float, int, NamespaceQueue[T]]] = []
        """A heap by the time of the next try."""
        self._order = itertools.count()
        self._items = 0
        self.wake = asyncio.Event()
        """Set when there may be something to take."""
        self.idle = asyncio.Event()
        """Set while nothing waits and nothing is being served."""
        self.idle.set()

    def __len__(self) -> int:
        """Number of queues."""
        return len(self._queues)

    def put(self, namespace: str, item: T) -> T | None:
        """Add an item behind the others of that namespace. Return the item that has no room:
        ``item``, another one, or None.
        """
        queue = self._queues.get(namespace) or NamespaceQueue(namespace)
        left: T | None = None
        if self._items >= self._items_max:
            if (longer := self._makes_room_for(queue)) is None:
                return item
            left = longer.items.pop().item
            self._items -= 1
        self._queues[namespace] = queue
        queue.items.append(_Held(item))
        self._items += 1
        self.idle.clear()
        if queue.busy is None and not queue.waits:
            self._is_ready(queue)
        self.wake.set()
        return left

    def take(self) -> NamespaceQueue[T] | None:
        """Return a queue whose ``item`` is to be served now; then call ``done`` or ``failed``. None
        if there is none.
        """
        while self._later and self._later[0][0] - TIMER_RESOLUTION_S <= self._clock():
            self._is_ready(heapq.heappop(self._later)[2])
        while queue := self._next():
            queue.waits = False
            if queue.items:
                queue.busy = queue.items.popleft()
                self._doubtful_busy += queue.failures > 0
                return queue
            del self._queues[queue.namespace]  # all its items made room for others
        return None

    @property
    def next_at(self) -> float:
        """The loop's time at which the next waiting queue is to be tried again; infinity if none
        waits.
        """
        return self._later[0][0] if self._later else float("inf")

    def done(self, queue: NamespaceQueue[T], *, failures: int = 0) -> None:
        """The queue's item is served, or never will be.

        ``failures``: the item was slow, so the queue counts as failed that many times in a row.
        """
        self._end(queue)
        queue.failures = failures
        self._leave(1)
        if queue.items:
            self._is_ready(queue)
        else:
            del self._queues[queue.namespace]
        self.wake.set()

    def failed(self, queue: NamespaceQueue[T], again_at: float) -> list[T]:
        """The queue's item could not be served: the queue is not tried before the loop's
        ``again_at``.

        Returns the items that have had all their tries.
        """
        queue.items.append(self._end(queue))
        queue.failures += 1
        for held in queue.items:
            held.failures += 1
        given_up = [held.item for held in queue.items if held.failures >= self._failures_max]
        queue.items = deque(held for held in queue.items if held.failures < self._failures_max)
        self._leave(len(given_up))
        if queue.items:
            queue.waits = True
            heapq.heappush(self._later, (again_at, next(self._order), queue))
        else:
            del self._queues[queue.namespace]
        self.wake.set()
        return given_up

    def _is_ready(self, queue: NamespaceQueue[T]) -> None:
        queue.waits = True
        if queue.failures:
            heapq.heappush(self._doubtful, (queue.failures, next(self._order), queue))
        else:
            self._ready.append(queue)

    def _next(self) -> NamespaceQueue[T] | None:
        if self._doubtful and self._doubtful_busy < self._doubtful_max:
            return heapq.heappop(self._doubtful)[2]
        return self._ready.popleft() if self._ready else None

    def _end(self, queue: NamespaceQueue[T]) -> _Held[T]:
        assert queue.busy is not None
        held, queue.busy = queue.busy, None
        self._doubtful_busy -= queue.failures > 0
        return held

    def _makes_room_for(self, queue: NamespaceQueue[T]) -> NamespaceQueue[T] | None:
        """The queue that gives up its newest item for ``queue`` while there is no room; None if no
        queue does.
        """
        doubtful = [each for each in self._queues.values() if each.failures and each.items]
        if not queue.failures and sum(len(each.items) for each in doubtful) > self._items_max // 2:
            return max(doubtful, key=_length)
        others = doubtful if queue.failures else self._queues.values()
        longest = max(others, key=_length, default=queue)
        return longest if _length(longest) > _length(queue) + 1 else None

    def _leave(self, items: int) -> None:
        self._items -= items
        if not self._items:
            self.idle.set()


def _length(queue: NamespaceQueue[T]) -> int:
    return len(queue.items)
