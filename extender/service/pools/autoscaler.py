"""``Autoscaler``: the leader's loop that keeps each pool's StatefulSet as large as necessary, and
no larger (DESIGN 5.4).

*Up* at once: it is triggered when vreplicas have no place, and also looks at each pool each period.
*Down* only once in each pool's own period, whatever triggers come in between: it closes ordinals
that are not needed, so that nothing new is placed there, and removes those that hold nothing, from
the top (``engine.scaling.scale_down``). The evictor empties the others, and then triggers the
autoscaler. Closed ordinals are opened as soon as they are needed, and when this replica no longer
leads.

Replicas are read and written through a ``ScaleCache``. A write has the version that was read as its
precondition. So it never overwrites another writer's number unseen: it fails as a Conflict, and the
pool is looked at again. A number that somebody else has written is reported, stands until the
pool's needs change or its next period, and is then replaced (``engine.scaling.replica_writes``).

Each pool is looked at in its own task, so a broken pool does not delay others. After errors it
retries with growing, jittered delays.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Final

from extender.config.model import ScaleCacheConfig
from extender.kube.api import Api, ApiError, Conflict, NotFound
from extender.kube.events import EventRecorder
from extender.kube.fence import PoolApi
from extender.kube.timers import TIMER_RESOLUTION_S
from extender.model.bucket import WHOLE, Bucket
from extender.model.objects import AdapterPool, StatefulSet
from extender.service.pools.pool_scaler import PoolScaler, ScalerContext, now
from extender.service.pools.scale_cache import ScaleCache
from extender.service.watching.caches import Caches
from extender.telemetry.metrics import Metrics

log: Final = logging.getLogger(__name__)

SETTLE_S: Final = 0.1
"""Pause after a trigger, so that a burst of vpods becomes one change of replicas."""


class Autoscaler:
    """Looks at triggered pools at once, and at all pools each period.

    ``on_opened``: called with the key of a pool whose closed pods take new vreplicas again.
    ``on_closed``: called with the key of a pool that has pods to empty. ``on_waiting``: called with
    the key of a pool in which vreplicas have no place, and which does not grow for them now.
    """

    def __init__(  # noqa: PLR0913 (each is a different collaborator)
        self,
        api: Api,
        caches: Caches,
        *,
        fenced: PoolApi,
        recorder: EventRecorder,
        metrics: Metrics,
        rng: random.Random,
        no_predecessor_writes: Callable[[str], bool],
        scale_cache: ScaleCacheConfig,
    ) -> None:
        """``api`` is for reads, ``fenced`` for writes. ``no_predecessor_writes``: see
        ``PoolLeadership``.
        """
        self._caches = caches
        self.on_opened: Callable[[str], None] = lambda _pool: None
        self.on_closed: Callable[[str], None] = lambda _pool: None
        self.on_waiting: Callable[[str], None] = lambda _pool: None
        self.scales = ScaleCache(api, clock=now, config=scale_cache)
        self._context = ScalerContext(
            caches,
            self.scales,
            fenced,
            recorder,
            metrics,
            rng,
            self._closed_changed,
            self._waiting,
            no_predecessor_writes,
        )
        self._pools: dict[str, PoolScaler] = {}
        self._triggered: dict[str, None] = {}
        self._running: set[str] = set()
        self._wake = asyncio.Event()
        self._led: list[Bucket] = []
        caches.pools.add_event_handler(self._pool_changed)
        caches.stateful_sets.add_event_handler(self.scales.stateful_set_changed)
        caches.stateful_sets.add_event_handler(self._stateful_set_changed)

    @property
    def limited(self) -> set[str]:
        """Keys of pools that need more pods than maxPods allows."""
        return {key for key, pool in self._pools.items() if pool.limited_at}

    @property
    def desired(self) -> dict[str, int]:
        """Pool key -> the pods that it should have now."""
        return {key: pool.desired for key, pool in self._pools.items() if pool.desired is not None}

    @property
    def foreign(self) -> dict[str, int]:
        """Pool key -> replicas that somebody else has asked for, while that number stands."""
        numbers = {key: pool.writes.foreign for key, pool in self._pools.items()}
        return {key: number for key, number in numbers.items() if number is not None}

    @property
    def refused(self) -> dict[str, str]:
        """Pool key -> why it cannot be scaled, for pools for which that has failed repeatedly."""
        return {
            key: pool.refused
            for key, pool in self._pools.items()
            if pool.refused and pool.held_back
        }

    # -- triggers ----------------------------------------------------------------------------------

    def trigger(self, pool: str) -> None:
        """Look at this pool now. Does not delay its scale-down period."""
        self._triggered.setdefault(pool)
        self._wake.set()

    def _pool_changed(self, old: AdapterPool | None, new: AdapterPool | None) -> None:
        """Limits, slots or period of the pool may have changed, or which pool has its
        StatefulSet.
        """
        if old is None or new is None or old.generation != new.generation:
            for key in self._caches.state.stateful_set_index.naming_the_same(old, new):
                self.trigger(key)
        if new is None:
            if old is not None:
                self._triggered.pop(old.key, None)
            return
        known = self._pools.get(new.key)
        if (
            known is not None
            and old is not None
            and old.scale_down_period_s != new.scale_down_period_s
        ):
            known.period_changed(new.scale_down_period_s)

    def _stateful_set_changed(self, old: StatefulSet | None, new: StatefulSet | None) -> None:
        """A StatefulSet came, perhaps after its pool, or its replicas changed."""
        if new is None:
            return
        if (
            old is not None
            and (old.ordinals, old.uid) == (new.ordinals, new.uid)
            and old.template_pool == new.template_pool
        ):
            self._version_changed(new)
            return
        for pool in self._caches.pools.list():
            if pool.stateful_set_key != new.key:
                continue
            known = self._pools.get(pool.key)
            if self._caches.state.pool(pool.key).taken_by:
                known = None  # another pool scales this StatefulSet
            if known is not None and any(bucket.has(pool.key) for bucket in self._led):
                known.replicas_changed(old, new)
            self.trigger(pool.key)

    def _version_changed(self, stateful_set: StatefulSet) -> None:
        """A newer version of a StatefulSet may show that no scale-down is still under way."""
        for key, known in self._pools.items():
            pool = self._caches.pools.get(key) if known.closed.doubts else None
            if pool is not None and pool.stateful_set_key == stateful_set.key:
                self.trigger(key)

    def _closed_changed(self, pool: str, *, opened: bool) -> None:
        tell = self.on_opened if opened else self.on_closed
        tell(pool)

    def _waiting(self, pool: str) -> None:
        self.on_waiting(pool)

    # -- the loop ----------------------------------------------------------------------------------

    def take_over(self, bucket: Bucket) -> None:
        """Forget former knowledge of the bucket's pools, and close the ordinals that another
        leader's scale-down may still remove. Must run before anything is placed.
        """
        self.scales.reset()
        for key in [key for key in self._pools if bucket.has(key)]:
            del self._pools[key]
            self._running.discard(key)
        for pool in self._caches.pools.list():
            if bucket.has(pool.key):
                self._keep(pool)

    def _keep(self, pool: AdapterPool) -> None:
        """Begin to scale the pool."""
        self._pools[pool.key] = PoolScaler(
            pool.key, self._context, period_s=pool.scale_down_period_s
        )

    async def run(self, bucket: Bucket = WHOLE) -> None:
        """Scale the bucket's pools, after ``take_over``, until cancelled. Then open what is
        closed.
        """
        self._led.append(bucket)
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    for key in self._due(bucket):
                        self._running.add(key)
                        tasks.create_task(self._look(self._pools[key]), name=f"autoscaler {key}")
                    await self._sleep(bucket)
        finally:
            self._led.remove(bucket)
            for key in [key for key in self._pools if bucket.has(key)]:
                self._pools.pop(key).closed.open_all()
                self._running.discard(key)

    async def _sleep(self, bucket: Bucket) -> None:
        """Wait until a pool is triggered or due."""
        waiting = (
            pool
            for key, pool in self._pools.items()
            if key not in self._running and bucket.has(key)
        )
        due_at = min((pool.due_at for pool in waiting), default=None)
        try:
            async with asyncio.timeout_at(due_at):
                await self._wake.wait()
        except TimeoutError:
            return
        await asyncio.sleep(SETTLE_S)
        self._wake.clear()

    def _due(self, bucket: Bucket) -> list[str]:
        """The pools to look at now. A pool that is triggered while a look at it runs stays
        triggered.
        """
        pools = {pool.key: pool for pool in self._caches.pools.list() if bucket.has(pool.key)}
        gone = [key for key in self._pools if bucket.has(key) and key not in pools]
        for key in gone:
            if key not in self._running:
                del self._pools[key]
        for key, pool in pools.items():
            if key not in self._pools:
                self._keep(pool)
        due = [
            key
            for key, known in self._pools.items()
            if key not in self._running
            and bucket.has(key)
            and (
                known.due_at - TIMER_RESOLUTION_S <= now()
                or (key in self._triggered and not known.held_back)
            )
        ]
        self._triggered = {
            key: None for key in self._triggered if key in self._running or not bucket.has(key)
        }
        return due

    async def _look(self, pool: PoolScaler) -> None:
        try:
            await pool.look()
        except NotFound:
            log.info("pool %s has no StatefulSet to scale", pool.key, extra={"pool": pool.key})
        except Conflict:
            log.info(
                "replicas of pool %s were changed by somebody else; looking again",
                pool.key,
                extra={"pool": pool.key},
            )
            pool.retry(None)
        except ApiError as error:
            log.warning(
                "pool %s was not scaled, trying again: %s",
                pool.key,
                error,
                extra={"pool": pool.key},
            )
            pool.refused = str(error)
            pool.retry(error.retry_after_s)
        finally:
            self._running.discard(pool.key)
            self._wake.set()
