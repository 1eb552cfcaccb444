"""``Lanes``: a bounded queue with a lane for each name. A lane that cannot be served delays no
other. Pure memory, without a task of its own.

.. code-block:: text

    put --> lane of that name --> ready --take--> busy --done--> ready, or forgotten when empty
                                    ^               '--failed--> waits until its time, then one
                                    |                              | item is tried
                                    '------------------------------'

One item of a lane is served at a time, so its items stay in order. An item that failed goes behind
the others of its lane, and each failure counts against all items that wait there. So an item that
always fails delays the others of its lane by one wait only. In a lane that always fails, each item
waits as often as a single item would.

A lane is *doubtful* from a failure until one of its items is served quickly. At most
``doubtful_max`` items of doubtful lanes are served at once, first of lanes with the fewest failures
in a row. So a lane that never answers delays neither healthy lanes for long nor a lane that failed
once.

While there is room, a lane may take all of it. In a full queue the newest item of the longest lane
makes room for one of a shorter lane, and doubtful lanes make room for the others until they hold
half of the queue. A limit for doubtful lanes alone would come too late, because a lane that hangs
is known only after its first item. A limit for every lane would cut bursts that can be served.
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
class Lane(Generic[T]):
    """The items of one name."""

    name: str
    items: "deque[_Held[T]]" = field(default_factory=deque)
    busy: "_Held[T] | None" = None
    """The item that is being served."""
    waits: bool = False
    """Whether it waits for its turn, or for the time of its next try."""
    failures: int = 0
    """In a row. Above 0 the lane is doubtful."""

    @property
    def item(self) -> T:
        """The item to serve now."""
        assert self.busy is not None
        return self.busy.item


class Lanes(Generic[T]):
    """``now``: the event loop's time, s. An item is given up after ``failures_max`` failures."""

    def __init__(
        self, items_max: int, failures_max: int, doubtful_max: int, now: Callable[[], float]
    ) -> None:
        self._items_max = items_max
        self._failures_max = failures_max
        self._doubtful_max = doubtful_max
        self._now = now
        self._lanes: dict[str, Lane[T]] = {}
        self._ready: deque[Lane[T]] = deque()
        self._doubtful: list[tuple[int, int, Lane[T]]] = []
        """Doubtful lanes that are ready: a heap by failures."""
        self._doubtful_busy = 0
        self._later: list[tuple[float, int, Lane[T]]] = []
        """A heap by the time of the next try."""
        self._order = itertools.count()
        self._items = 0
        self.wake = asyncio.Event()
        """Set when there may be something to take."""
        self.idle = asyncio.Event()
        """Set while nothing waits and nothing is being served."""
        self.idle.set()

    def __len__(self) -> int:
        """Number of lanes."""
        return len(self._lanes)

    def put(self, name: str, item: T) -> T | None:
        """Add an item behind the others of that name. Return the item that has no room: ``item``,
        another one, or None.
        """
        lane = self._lanes.get(name) or Lane(name)
        left: T | None = None
        if self._items >= self._items_max:
            if (longer := self._makes_room_for(lane)) is None:
                return item
            left = longer.items.pop().item
            self._items -= 1
        self._lanes[name] = lane
        lane.items.append(_Held(item))
        self._items += 1
        self.idle.clear()
        if lane.busy is None and not lane.waits:
            self._is_ready(lane)
        self.wake.set()
        return left

    def take(self) -> Lane[T] | None:
        """Return a lane whose ``item`` is to be served now; then call ``done`` or ``failed``. None
        if there is none.
        """
        while self._later and self._later[0][0] - TIMER_RESOLUTION_S <= self._now():
            self._is_ready(heapq.heappop(self._later)[2])
        while lane := self._next():
            lane.waits = False
            if lane.items:
                lane.busy = lane.items.popleft()
                self._doubtful_busy += lane.failures > 0
                return lane
            del self._lanes[lane.name]  # all its items made room for others
        return None

    @property
    def next_at(self) -> float:
        """The loop's time at which the next waiting lane is to be tried again; infinity if none
        waits.
        """
        return self._later[0][0] if self._later else float("inf")

    def done(self, lane: Lane[T], *, failures: int = 0) -> None:
        """The lane's item is served, or never will be.

        ``failures``: the item was slow, so the lane counts as failed that many times in a row.
        """
        self._end(lane)
        lane.failures = failures
        self._leave(1)
        if lane.items:
            self._is_ready(lane)
        else:
            del self._lanes[lane.name]
        self.wake.set()

    def failed(self, lane: Lane[T], again_at: float) -> list[T]:
        """The lane's item could not be served: the lane is not tried before the loop's
        ``again_at``.

        Returns the items that have had all their tries.
        """
        lane.items.append(self._end(lane))
        lane.failures += 1
        for held in lane.items:
            held.failures += 1
        given_up = [held.item for held in lane.items if held.failures >= self._failures_max]
        lane.items = deque(held for held in lane.items if held.failures < self._failures_max)
        self._leave(len(given_up))
        if lane.items:
            lane.waits = True
            heapq.heappush(self._later, (again_at, next(self._order), lane))
        else:
            del self._lanes[lane.name]
        self.wake.set()
        return given_up

    def _is_ready(self, lane: Lane[T]) -> None:
        lane.waits = True
        if lane.failures:
            heapq.heappush(self._doubtful, (lane.failures, next(self._order), lane))
        else:
            self._ready.append(lane)

    def _next(self) -> Lane[T] | None:
        if self._doubtful and self._doubtful_busy < self._doubtful_max:
            return heapq.heappop(self._doubtful)[2]
        return self._ready.popleft() if self._ready else None

    def _end(self, lane: Lane[T]) -> _Held[T]:
        assert lane.busy is not None
        held, lane.busy = lane.busy, None
        self._doubtful_busy -= lane.failures > 0
        return held

    def _makes_room_for(self, lane: Lane[T]) -> Lane[T] | None:
        """The lane of a full queue that gives up its newest item for ``lane``; None if no lane
        does.
        """
        doubtful = [each for each in self._lanes.values() if each.failures and each.items]
        if not lane.failures and sum(len(each.items) for each in doubtful) > self._items_max // 2:
            return max(doubtful, key=_length)
        others = doubtful if lane.failures else self._lanes.values()
        longest = max(others, key=_length, default=lane)
        return longest if _length(longest) > _length(lane) + 1 else None

    def _leave(self, items: int) -> None:
        self._items -= items
        if not self._items:
            self.idle.set()


def _length(lane: Lane[T]) -> int:
    return len(lane.items)
