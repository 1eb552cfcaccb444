"""``LoadPolling``: the leader's loop that asks Prometheus for the load of pools with a
``spec.loadSource``.

Each pool has one task. It asks at once, and then every ``periodSeconds`` of its source. After a
failure it waits longer from time to time, up to ``BACKOFF_MAX_S``. What an answer says is taken as
by ``POST /v1/load`` (``LoadReports.take``); such a pool takes no reports from callers. The pool's
condition ``LoadUnavailable`` tells of failures, with a reason of ``LoadTrouble``. While queries
fail, what is known becomes silent, and counts as the mean. An answer with warnings may lack a part
(Thanos, a remote read). What it has counts, and the condition and the log tell of it.

At most ``AT_ONCE_MAX`` queries of a source are under way, so a server that hangs holds few
connections, and delays no other source.
"""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from extender.config.load_sources import LoadSource
from extender.kube.ratelimit import Backoff, BackoffPolicy
from extender.model.bucket import WHOLE, Bucket
from extender.model.objects import AdapterPool
from extender.service.pools.load_reports import NOT_PLACED, LoadReports
from extender.service.pools.prometheus import Answer, LoadTrouble, Prometheus, QueryFailed
from extender.service.watching.caches import Caches
from extender.service.watching.sources import PoolCondition

log: Final = logging.getLogger(__name__)

LOAD_UNAVAILABLE: Final = "LoadUnavailable"
LOAD_KNOWN: Final = "LoadKnown"
LOAD_PARTIAL: Final = "LoadPartial"
"""Reasons of the condition where it does not hold."""
BACKOFF_MAX_S: Final = 120.0
"""Below the time after which shares are silent."""
AT_ONCE_MAX: Final = 4
SLICE_REPORTS: Final = 500
"""Taken without a pause, some milliseconds."""
ANSWERED: Final = "answered"
QUERY_RESULTS: Final = (ANSWERED, *map(str, LoadTrouble))
"""What becomes of a query."""


class LoadServer(Protocol):
    """Who answers the queries of one source."""

    async def ask(self, query: str) -> Answer:
        """The reports that the query brings. Raises QueryFailed."""
        ...


class LoadPolling:
    """Asks until cancelled. ``sources``: by name."""

    def __init__(
        self,
        caches: Caches,
        reports: LoadReports,
        sources: Mapping[str, LoadSource],
        *,
        rng: random.Random,
        server: Callable[[LoadSource], LoadServer] | None = None,
    ) -> None:
        self._caches = caches
        self._reports = reports
        self._sources = sources
        self._rng = rng
        make = server or Prometheus
        self._servers = {name: make(source) for name, source in sources.items()}
        self._wakes: dict[str, asyncio.Event] = {}
        """By pool key: set if the pool has changed. A pool with an entry has a task."""
        self._conditions: dict[str, PoolCondition] = {}
        """By pool key, as of the last query."""
        self._changed = asyncio.Event()
        self._at_once = {name: asyncio.Semaphore(AT_ONCE_MAX) for name in sources}
        self.counted: Counter[str] = Counter()
        """Queries by ``QUERY_RESULTS``."""
        caches.pools.add_event_handler(self._pool_changed)

    def condition(self, pool: AdapterPool) -> PoolCondition | None:
        """The condition LoadUnavailable; None if the pool has no source, or has not asked yet."""
        return self._conditions.get(pool.key) if _asks(pool) else None

    def _pool_changed(self, old: AdapterPool | None, new: AdapterPool | None) -> None:
        pool = new or old
        if pool is None or (old is not None and new is not None and _asked(old) == _asked(new)):
            return
        if (wake := self._wakes.get(pool.key)) is not None:
            wake.set()
        self._changed.set()

    async def run(self, bucket: Bucket = WHOLE) -> None:
        """Ask for the bucket's pools until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    self._changed.clear()
                    for pool in self._caches.pools.list():
                        if bucket.has(pool.key) and _asks(pool) and pool.key not in self._wakes:
                            self._wakes[pool.key] = asyncio.Event()
                            tasks.create_task(self._poll(pool.key), name=f"load of {pool.key}")
                    await self._changed.wait()
        finally:
            for key in [key for key in self._wakes.keys() | self._conditions if bucket.has(key)]:
                self._forget(key)

    def _forget(self, key: str) -> None:
        self._wakes.pop(key, None)
        self._conditions.pop(key, None)

    async def _poll(self, key: str) -> None:
        wake, clock = self._wakes[key], asyncio.get_running_loop().time
        backoff: Backoff | None = None
        while (pool := self._caches.pools.get(key)) is not None and _asks(pool):
            wake.clear()
            source = self._sources.get(pool.load_source)
            trouble = await self._ask(pool, source)
            wait_s = None if source is None else source.period_s
            if source is not None and trouble:
                backoff = backoff or _backoff(self._rng, source)
                wait_s = backoff.next_s(clock())
            elif not trouble:
                backoff = None
            try:
                async with asyncio.timeout(wait_s):
                    await wake.wait()
                backoff = None
            except TimeoutError:
                pass
        self._forget(key)
        self._changed.set()  # the pool may ask again already

    async def _ask(self, pool: AdapterPool, source: LoadSource | None) -> LoadTrouble | None:
        """Ask once, and tell what has become of it."""
        named = f"loadSource {pool.load_source}"
        try:
            answer = await self._answer(pool, source)
            await self._take(pool, answer)
        except QueryFailed as error:
            self.counted[str(error.trouble)] += 1
            text = f"{named}: {error.text}"
            self._tell(pool, (LOAD_UNAVAILABLE, True, str(error.trouble), text), error.detail)
            return error.trouble
        self.counted[ANSWERED] += 1
        if answer.warnings:
            text = f"{named} answers, but warns that something may be missing"
            self._tell(pool, (LOAD_UNAVAILABLE, False, LOAD_PARTIAL, text), answer.warnings)
        else:
            self._tell(pool, (LOAD_UNAVAILABLE, False, LOAD_KNOWN, f"{named} answers"), "")
        return None

    async def _answer(self, pool: AdapterPool, source: LoadSource | None) -> Answer:
        if source is None:
            raise QueryFailed(
                LoadTrouble.UNKNOWN_SOURCE,
                "the service's configuration has no such entry in loadSources",
            )
        async with self._at_once[pool.load_source]:
            return await self._servers[pool.load_source].ask(source.query_for(pool))

    async def _take(self, pool: AdapterPool, answer: Answer) -> None:
        """Keep the reports, in steps between which other tasks run. Raises QueryFailed."""
        about_it, refusals = 0, Counter[str]()
        for start in range(0, len(answer.reports), SLICE_REPORTS):
            if start:
                await asyncio.sleep(0)
            now, state = self._caches.pools.get(pool.key), self._caches.state.pools.get(pool.key)
            if now is None or state is None or now.load is None or _asked(now) != _asked(pool):
                return  # what was asked is not wanted any more
            part = answer.reports[start : start + SLICE_REPORTS]
            refused = self._reports.take(state, now.load, part)
            about_it += len(part) - sum(1 for _, why in refused if why == NOT_PLACED)
            refusals.update(why for _, why in refused if why != NOT_PLACED)
        if about_it and refusals.total() == about_it:
            raise QueryFailed(
                LoadTrouble.NO_USABLE_VALUE,
                "no series has a usable load: each is no number, negative or absurdly large",
                ", ".join(f"{why}: {count}" for why, count in sorted(refusals.items())),
            )
        state = self._caches.state.pools.get(pool.key)
        if (
            not about_it
            and state is not None
            and any(vpod.placements for vpod in state.vpods.values())
        ):
            of_them = f", {answer.unlabelled} lack a label" if answer.unlabelled else ""
            warns = f"; it warns: {answer.warnings}" if answer.warnings else ""
            raise QueryFailed(
                LoadTrouble.NO_SERIES,
                "no series is about a vreplica that the pool has placed",
                f"series: {len(answer.reports) + answer.unlabelled}{of_them}{warns}",
            )

    def _tell(self, pool: AdapterPool, new: PoolCondition, detail: str) -> None:
        """Keep the condition, and log it if it has changed. ``detail``: for the log alone."""
        before = self._conditions.get(pool.key)
        self._conditions[pool.key] = new
        is_well = new[2] == LOAD_KNOWN
        if new != before and not (is_well and before is None):
            log.log(
                logging.INFO if is_well else logging.WARNING,
                "pool %s: %s%s",
                pool.key,
                new[3],
                f" ({detail})" if detail else "",
                extra={"pool": pool.key},
            )


def _asked(pool: AdapterPool) -> tuple[object, ...]:
    """What a query depends on."""
    return (pool.uid, pool.load, pool.load_source, pool.stateful_set)


def _asks(pool: AdapterPool) -> bool:
    return bool(pool.load is not None and pool.load_source)


def _backoff(rng: random.Random, source: LoadSource) -> Backoff:
    policy = BackoffPolicy(
        base_s=source.period_s,
        cap_s=max(source.period_s, BACKOFF_MAX_S),
        jitter=0.2,
        reset_s=float("inf"),
    )
    return Backoff(rng, policy)
