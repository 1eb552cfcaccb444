"""``Lanes``: a bounded queue in which who cannot be served delays nobody else. Pure memory, no task of its own.

.. code-block:: text

    put --> lane of that name --> ready --take--> busy --done--> ready, or forgotten when empty
                                    ^               '--failed--> failing: waits until its time, then one item is tried
                                    '------------------------------'

Of a lane one item is served at a time, so its order stays. The item that failed goes behind the others of its lane, and each
failure counts against all that wait there: one item that always fails keeps the others of its lane for one wait only, and a
lane that always fails keeps each for as many as a single item would get.

A lane that is failing holds a tenth of the queue at most, all of them together half of it.
"""

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from extender.timers import TIMER_RESOLUTION_S

T = TypeVar("T")


@dataclass(slots=True)
class _Held(Generic[T]):
    item: T
    failures: int = 0


@dataclass(slots=True, eq=False)
class Lane(Generic[T]):
    """What waits under one name."""

    name: str
    items: "deque[_Held[T]]" = field(default_factory=deque)
    busy: "_Held[T] | None" = None
    """Being served."""
    failing: bool = False

    @property
    def item(self) -> T:
        """What is to be served now."""
        assert self.busy is not None
        return self.busy.item


class Left(NamedTuple, Generic[T]):
    """Items that wait no longer: they have had all their tries, or there was no room for them."""

    given_up: list[T]
    dropped: list[T]


class Lanes(Generic[T]):
    """``now``: the event loop's time, s. ``failures_max``: after so many an item is given up."""

    def __init__(self, items_max: int, failures_max: int, now: Callable[[], float]) -> None:
        self._items_max = items_max
        self._failures_max = failures_max
        self._now = now
        self._lanes: dict[str, Lane[T]] = {}
        self._ready: deque[Lane[T]] = deque()
        self._failing: list[tuple[float, int, Lane[T]]] = []
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

    def put(self, name: str, item: T) -> bool:
        """Behind all of that name; False where there is no room."""
        lane = self._lanes.get(name)
        if self._items >= self._items_max or (lane is not None and lane.failing and self._is_full(lane, 1)):
            return False
        if lane is None:
            lane = self._lanes[name] = Lane(name)
        lane.items.append(_Held(item))
        self._items += 1
        self.idle.clear()
        if len(lane.items) == 1 and lane.busy is None and not lane.failing:
            self._ready.append(lane)
        self.wake.set()
        return True

    def take(self) -> Lane[T] | None:
        """A lane whose ``item`` is to be served now; then tell ``done`` or ``failed``. None: none is."""
        while self._failing and self._failing[0][0] - TIMER_RESOLUTION_S <= self._now():
            self._ready.append(heapq.heappop(self._failing)[2])
        if not self._ready:
            return None
        lane = self._ready.popleft()
        lane.busy = lane.items.popleft()
        return lane

    @property
    def next_at(self) -> float:
        """When a failing lane is to be tried again, in the loop's time; infinity for none."""
        return self._failing[0][0] if self._failing else float("inf")

    def done(self, lane: Lane[T]) -> None:
        """Its item is served, or will never be; the lane is open."""
        lane.busy, lane.failing = None, False
        self._leave(1)
        if lane.items:
            self._ready.append(lane)
        else:
            del self._lanes[lane.name]
        self.wake.set()

    def failed(self, lane: Lane[T], again_at: float) -> Left[T]:
        """Its item could not be served: nothing of the lane is tried before ``again_at``, in the loop's time."""
        assert lane.busy is not None
        lane.items.append(lane.busy)
        lane.busy, lane.failing = None, True
        for held in lane.items:
            held.failures += 1
        left: Left[T] = Left([held.item for held in lane.items if held.failures >= self._failures_max], [])
        lane.items = deque(held for held in lane.items if held.failures < self._failures_max)
        while lane.items and self._is_full(lane, 0):
            left.dropped.append(lane.items.pop().item)
        self._leave(len(left.given_up) + len(left.dropped))
        if lane.items:
            heapq.heappush(self._failing, (again_at, next(self._order), lane))
        else:
            del self._lanes[lane.name]
        self.wake.set()
        return left

    def _is_full(self, lane: Lane[T], more: int) -> bool:
        """Whether a failing lane with so many more holds more than it may."""
        held = sum(len(each.items) for each in self._lanes.values() if each.failing)
        return len(lane.items) + more > max(1, self._items_max // 10) or held + more > max(
            1, self._items_max // 2
        )

    def _leave(self, items: int) -> None:
        self._items -= items
        if not self._items:
            self.idle.set()
