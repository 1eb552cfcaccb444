"""``VPodQueue``: the vpods of one pool that wait to be placed, in three parts as in kube-scheduler.

- *active*: to be decided now;
- *backoff*: a write failed. The vpod returns to active after 1 s, doubling to 10 s;
- *parked*: placed as far as there is room. Events that may help (``activate``) return all parked
  vpods to active at once.

A vpod's wait begins when it first comes in and ends when it is ``done``, over all attempts
(``Wait``).

Of the active vpods, those of the highest priority come first. Of one priority, the heaviest
vreplicas come first: light ones fit into what they leave, but not the other way round. Only vpods
whose wait began within the same ``BURST_S`` seconds are ordered like that. Those that have waited
longer come before. So a light vpod never waits behind an endless stream of heavy ones.

Tenants take turns. In a round each tenant has one, of up to ``TURN_VPODS`` of its vpods, and the
vpods of all turns are ordered together. A tenant that comes during a round joins it. So one with
thousands of vpods does not delay one with three.

A key is in at most one part. ``pop_batch`` hands it out, and it is in flight until ``done``,
``park`` or ``retry``. Events meanwhile are remembered (``Meanwhile``), and may return it to active
when the flight ends. Only ``pop_batch`` waits; everything else is synchronous.
"""

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import partial
from itertools import islice
from typing import Final

from extender.engine.pods.claims import tenant_of
from extender.kube.timers import TIMER_RESOLUTION_S
from extender.model.bucket import Bucket

ACTIVE, BACKOFF, UNSCHEDULABLE = "active", "backoff", "unschedulable"
BACKOFF_INITIAL_S: Final = 1.0
BACKOFF_MAX_S: Final = 10.0
BURST_S: Final = 30.0
"""A heavier vpod that came more than so many seconds later is decided later."""
ORDERED_VPODS_MAX: Final = 4096
"""Vpods that are ordered together: of one tenant, or of all turns. A round of many tenants has
shorter turns.
"""
TURN_VPODS: Final = 64


class Meanwhile(IntEnum):
    """The most important event of a key in flight."""

    NOTHING = 0
    DIVERGED = 1
    """One of its ledgers, or what it publishes, has changed. This does not matter if both are as
    decided in the end.
    """
    CHANGED = 2


class QueueEvent(StrEnum):
    """What puts a vpod into a part of its queue, in kube-scheduler's words where it has one."""

    VPOD_UPDATE = "VPodUpdate"
    """The vpod has changed, or something else requires a new decision for it."""
    DIVERGED = "Diverged"
    """What it publishes differs from its ledgers."""
    CLUSTER_EVENT = "ClusterEvent"
    """A change may give room."""
    BACKOFF_COMPLETE = "BackoffComplete"
    SCHEDULE_ATTEMPT_FAILURE = "ScheduleAttemptFailure"


@dataclass(slots=True)
class Wait:
    """A vpod's wait to be placed: since when (event loop's time, seconds), and how often it was
    decided.
    """

    since: float
    attempts: int = 0


Incoming = Counter[tuple[QueueEvent, str]]
"""(event, part of the queue) -> number of vpods that came into it."""


class VPodQueue:
    """A queue of vpod keys. ``clock``: the event loop's time, in seconds. ``rank``: a vpod's
    priority, and the slots of one vreplica.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        rank: Callable[[str], tuple[int, int]],
        incoming: Incoming,
    ) -> None:
        self._clock = clock
        self._rank = rank
        self._incoming = incoming
        self._waits: dict[str, Wait] = {}
        """All vpods that are not done, the longest waiting first."""
        self._waiting: dict[str, dict[str, None]] = {}
        """By tenant, that of the next turn first: active vpods that have no turn yet."""
        self._ordered: dict[str, list[str]] = {}
        """Tenant -> the next of these in their order, the next one last."""
        self._turns: dict[str, None] = {}
        """Active vpods that have their turn."""
        self._round: list[str] = []
        """These in their order, the next one last. Like ``_ordered``, it may have keys that are not
        active any more.
        """
        self._outranked = False
        """Whether a vpod of a higher priority than those in the round has come."""
        self._had_turn: set[str] = set()
        """Tenants, in this round."""
        self._backoff: list[tuple[float, str]] = []
        self._backing_off: dict[str, float] = {}
        self._parked: dict[str, None] = {}
        self._in_flight: dict[str, Meanwhile] = {}
        self._activated = False
        """Whether ``activate`` was called since the batch in flight was taken."""
        self._attempts: dict[str, int] = {}
        self._wake = asyncio.Event()

    @property
    def sizes(self) -> dict[str, int]:
        """Number of vpods by part, as in kube-scheduler's pending_pods metric."""
        return {
            ACTIVE: len(self._turns) + sum(map(len, self._waiting.values())),
            BACKOFF: len(self._backing_off),
            UNSCHEDULABLE: len(self._parked),
        }

    @property
    def oldest(self) -> float | None:
        """The event loop's time since when the longest-waiting vpod has waited; None for none."""
        return next((wait.since for wait in self._waits.values()), None)

    @property
    def parked(self) -> Iterable[str]:
        """Keys of the vpods that wait for an event that may help."""
        return self._parked.keys()

    @property
    def empty(self) -> bool:
        """Whether no vpod is in any part or in flight."""
        return not (self._any_active or self._backing_off or self._parked or self._in_flight)

    def add(self, key: str, event: QueueEvent = QueueEvent.VPOD_UPDATE) -> None:
        """Decide this vpod now, because it has changed."""
        if self._is_active(key):
            return
        if key in self._in_flight:
            self._in_flight[key] = Meanwhile.CHANGED
            return
        self._parked.pop(key, None)
        self._backing_off.pop(key, None)
        self._set_active(key)
        if key not in self._waits:
            self._waits[key] = Wait(self._clock())
        self._incoming[event, ACTIVE] += 1
        self._wake.set()

    def diverged(self, key: str) -> None:
        """Decide this vpod now, because what it publishes differs from its ledgers. If it is in
        flight, its writes are the usual cause.
        """
        if key in self._in_flight:
            if self._in_flight[key] is Meanwhile.NOTHING:
                self._in_flight[key] = Meanwhile.DIVERGED
        else:
            self.add(key, QueueEvent.DIVERGED)

    def activate(self) -> None:
        """A change may give room: return all parked vpods to active."""
        self._activated = True
        if self._parked:
            self._incoming[QueueEvent.CLUSTER_EVENT, ACTIVE] += len(self._parked)
            for key in self._parked:
                self._set_active(key)
            self._parked.clear()
            self._wake.set()

    def done(self, key: str, *, agrees: bool = False) -> Wait | None:
        """The vpod is placed and written. ``agrees``: its ledgers, and what it publishes, are as
        decided. Return how long it has waited.
        """
        self._attempts.pop(key, None)
        waited = self._waits.pop(key, None)
        self._finish(key, Meanwhile.CHANGED if agrees else Meanwhile.DIVERGED)
        return waited

    def park(self, key: str) -> None:
        """Part of the vpod has no place: wait for an event that may help."""
        self._attempts.pop(key, None)
        if not self._finish(key, Meanwhile.NOTHING if self._activated else Meanwhile.DIVERGED):
            self._parked.setdefault(key)
            self._incoming[QueueEvent.SCHEDULE_ATTEMPT_FAILURE, UNSCHEDULABLE] += 1

    def retry(self, key: str) -> None:
        """A write failed: decide the vpod again after a backoff, or at once if it has changed."""
        meanwhile = self._in_flight.pop(key, None)
        attempts = self._attempts[key] = self._attempts.get(key, 0) + 1
        if meanwhile is Meanwhile.CHANGED:
            self.add(key)
            return
        delay = min(BACKOFF_INITIAL_S * 2 ** min(attempts - 1, 30), BACKOFF_MAX_S)
        self._unset_active(key)
        self._parked.pop(key, None)
        self._backing_off[key] = self._clock() + delay
        heapq.heappush(self._backoff, (self._backing_off[key], key))
        self._incoming[QueueEvent.SCHEDULE_ATTEMPT_FAILURE, BACKOFF] += 1
        self._wake.set()

    def forget(self, key: str) -> None:
        """Forget a vpod that has left the pool."""
        self._unset_active(key)
        for part in (self._parked, self._backing_off, self._attempts, self._waits):
            part.pop(key, None)
        self._wake.set()

    def wake(self) -> None:
        """Make ``pop_batch`` check whether there is anything left to wait for."""
        self._wake.set()

    async def pop_batch(self, keys_max: int) -> list[str]:
        """Wait until vpods are active, and return up to ``keys_max`` keys, now in flight. Return []
        once the queue is empty.

        For one consumer, which ends the flight of every key before the next call. Keys still in
        flight belong to a cancelled batch, and are decided again first.
        """
        if self._in_flight:
            self._turns |= dict.fromkeys(self._in_flight)
            self._round += reversed(self._in_flight)
            self._in_flight.clear()
        while True:
            self._flush_backoff()
            if self._any_active:
                batch = self._next(keys_max)
                self._activated = False
                for key in batch:
                    self._in_flight[key] = Meanwhile.NOTHING
                    if (wait := self._waits.get(key)) is not None:
                        wait.attempts += 1
                return batch
            self._wake.clear()
            delay = max(0.0, self._backoff[0][0] - self._clock()) if self._backoff else None
            try:
                async with asyncio.timeout(delay):
                    await self._wake.wait()
            except TimeoutError:
                continue
            if self.empty:
                return []

    def _next(self, keys_max: int) -> list[str]:
        """Take up to ``keys_max`` keys from active."""
        batch: list[str] = []
        while len(batch) < keys_max and self._any_active:
            if self._outranked or not (self._round and self._waiting.keys() <= self._had_turn):
                self._give_turns()
            while self._round and len(batch) < keys_max:
                key = self._round.pop()
                if key in self._turns:
                    del self._turns[key]
                    batch.append(key)
        return batch

    def _give_turns(self) -> None:
        """Let the tenants that have had no turn join the round, or begin the next one. Only vpods
        of the highest priority have turns. If that is higher than the priority of those in the
        round, the round ends.
        """
        if self._outranked:
            self._end_round()
        if not self._round:
            self._had_turn.clear()
        heads = {tenant: self._rank(self._order_of(tenant)[-1])[0] for tenant in self._waiting}
        highest = max(heads.values(), default=0)
        joining = [
            tenant
            for tenant, priority in heads.items()
            if priority == highest and tenant not in self._had_turn
        ]
        if not joining:
            return
        given: list[str] = []
        turn_vpods = min(TURN_VPODS, max(1, ORDERED_VPODS_MAX // len(joining)))
        for tenant in joining[:ORDERED_VPODS_MAX]:
            self._had_turn.add(tenant)
            for _ in range(turn_vpods):
                key = self._order_of(tenant)[-1]
                if self._rank(key)[0] < highest:
                    break
                self._unset_active(key)
                given.append(key)
                if tenant not in self._waiting:
                    break
            else:
                self._waiting[tenant] = self._waiting.pop(tenant)  # others come first the next time
        self._turns |= dict.fromkeys(given)
        self._round = sorted([*reversed(self._round), *given], key=self._place)[::-1]

    def _end_round(self) -> None:
        """Return those that have their turn to the others of their tenants, before these."""
        self._outranked = False
        back: dict[str, dict[str, None]] = {}
        for key in reversed(self._round):
            if key in self._turns:
                back.setdefault(tenant_of(key), {})[key] = None
        self._turns.clear()
        self._round.clear()
        for tenant, keys in back.items():
            self._waiting[tenant] = keys | self._waiting.get(tenant, {})
            self._ordered.pop(tenant, None)

    def _order_of(self, tenant: str) -> list[str]:
        """The next vpods of a tenant that waits, the next one last."""
        ordered, waiting = self._ordered.get(tenant, []), self._waiting[tenant]
        while ordered and ordered[-1] not in waiting:
            ordered.pop()
        if not ordered:
            ordered = sorted(islice(waiting, ORDERED_VPODS_MAX), key=self._place)[::-1]
            self._ordered[tenant] = ordered
        return ordered

    @property
    def _any_active(self) -> bool:
        return bool(self._turns or self._waiting)

    def _is_active(self, key: str) -> bool:
        return key in self._turns or key in self._waiting.get(tenant_of(key), ())

    def _set_active(self, key: str) -> None:
        if key in self._turns:
            return
        tenant = tenant_of(key)
        self._waiting.setdefault(tenant, {}).setdefault(key)
        priority, ordered = self._rank(key)[0], self._ordered.get(tenant)
        if ordered and priority > self._rank(ordered[-1])[0]:
            del self._ordered[tenant]  # it comes before all of these
        if self._round and priority > self._rank(self._round[-1])[0]:
            self._outranked = True

    def _unset_active(self, key: str) -> None:
        tenant = tenant_of(key)
        waiting = self._waiting.get(tenant, {})
        waiting.pop(key, None)
        self._turns.pop(key, None)
        if not waiting and self._waiting.pop(tenant, None) is not None:
            self._ordered.pop(tenant, None)

    def age(self, key: str) -> int:
        """The number of the burst, of ``BURST_S`` seconds, in which the vpod's wait began."""
        wait = self._waits.get(key)
        since = wait.since if wait is not None else self._clock()
        return int(since // BURST_S)

    def _place(self, key: str) -> tuple[int, int, int]:
        priority, weight = self._rank(key)
        return -priority, self.age(key), -weight

    def _finish(self, key: str, at_least: Meanwhile) -> bool:
        """End a flight. If an event at least as important as ``at_least`` came meanwhile, return
        the key to active, and return True.
        """
        meanwhile = self._in_flight.pop(key, None)
        again = meanwhile is not None and meanwhile >= at_least
        if again:
            self.add(key)
        return again

    def _flush_backoff(self) -> None:
        now = self._clock() + TIMER_RESOLUTION_S
        while self._backoff and self._backoff[0][0] <= now:
            due, key = heapq.heappop(self._backoff)
            if self._backing_off.get(key) == due:
                del self._backing_off[key]
                self._set_active(key)
                self._incoming[QueueEvent.BACKOFF_COMPLETE, ACTIVE] += 1


class VPodQueues:
    """The queues of the pools that this replica leads, each made on first use. A new one sets
    ``changed``.

    Only the leader of a bucket has queues for its pools (``begin``, ``end``). A leader begins with
    all vpods, so it needs no earlier events; in a follower the queues would grow without limit. So
    ``add`` and ``activate`` do nothing for a pool that is not led here.
    """

    def __init__(
        self, clock: Callable[[], float], *, rank: Callable[[str, str], tuple[int, int]]
    ) -> None:
        """``rank``: (pool, vpod) -> its priority, and the slots of one vreplica."""
        self._clock = clock
        self._rank = rank
        self._led: list[Bucket] = []
        self._queues: dict[str, VPodQueue] = {}
        self.incoming: Incoming = Counter()
        """Of all pools together."""
        self.changed = asyncio.Event()

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._queues))

    def __len__(self) -> int:
        return len(self._queues)

    def values(self) -> list[VPodQueue]:
        """All queues."""
        return list(self._queues.values())

    def begin(self, bucket: Bucket) -> None:
        """Begin to keep queues for the pools of a bucket."""
        self._led.append(bucket)

    def end(self, bucket: Bucket) -> None:
        """Drop the queues of a bucket. Its next leader decides what waits."""
        self._led.remove(bucket)
        for pool in [pool for pool in self._queues if bucket.has(pool)]:
            del self._queues[pool]

    def leads(self, pool: str) -> bool:
        """Whether this replica leads the pool, and so has a queue for it."""
        return any(bucket.has(pool) for bucket in self._led)

    def of(self, pool: str) -> VPodQueue:
        """The queue of a pool. For a pool that is not led here, an empty queue that nobody reads
        and that is not kept: the batch of a former leader may end after ``end``.
        """
        queue = self._led_queue(pool)
        return queue if queue is not None else self._new(pool, Counter())

    def add(self, pool: str, key: str) -> None:
        """Decide this vpod of the pool now."""
        if (queue := self._led_queue(pool)) is not None:
            queue.add(key)

    def activate(self, pool: str) -> None:
        """A change may give room in the pool: decide all its parked vpods again."""
        if (queue := self._led_queue(pool)) is not None:
            queue.activate()

    def _led_queue(self, pool: str) -> VPodQueue | None:
        """The queue of a pool, perhaps a new one. None if the pool is not led here."""
        queue = self._queues.get(pool)
        if queue is None and self.leads(pool):
            queue = self._queues[pool] = self._new(pool, self.incoming)
            self.changed.set()
        return queue

    def _new(self, pool: str, incoming: Incoming) -> VPodQueue:
        return VPodQueue(self._clock, rank=partial(self._rank, pool), incoming=incoming)

    def look_again(self, pools: Container[str]) -> None:
        """Wake the tasks of pools that are not among ``pools``: nothing refers to those, so no
        event will.
        """
        for pool, queue in self._queues.items():
            if pool not in pools:
                queue.wake()

    def forget(self, pool: str) -> None:
        """Drop a queue without a task. The next use makes a new one."""
        self._queues.pop(pool, None)

    def sizes(self, of: Callable[[str], bool] = lambda _pool: True) -> dict[str, int]:
        """Number of vpods by part, over all pools for which ``of`` is true."""
        sizes = {ACTIVE: 0, BACKOFF: 0, UNSCHEDULABLE: 0}
        for queue in [queue for pool, queue in self._queues.items() if of(pool)]:
            for part, size in queue.sizes.items():
                sizes[part] += size
        return sizes
