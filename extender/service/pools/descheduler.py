"""``Descheduler``: the leader's loop that evicts adapter pods from nodes that they should have
left.

``node.descheduling`` says which pods these are. Pools opt in by spec.descheduling.reasons. The
limits of each pool:

- one pod at a time: only while all pods are Ready, and no change of the StatefulSet is under way;
- one eviction per scaleDownPeriodSeconds. A new leader waits one period first;
- the pods' PodDisruptionBudgets. The API server checks them, because the pod is evicted and not
  deleted. If it refuses (429), the next try waits twice as long as the last, up to
  ``BACKOFF_MAX_S``.

movesPerPeriod does not count: an eviction changes no placement. An eviction without an answer
counts as made: if it was, the pod is not Ready, and nothing else is evicted.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from extender.engine.state.pool_state import PoolState
from extender.kube.api import ApiError, Conflict, NotFound, OutcomeUnknown, Preconditions
from extender.kube.events import EventRecorder, ObjectReference
from extender.kube.fence import PoolApi
from extender.model.bucket import WHOLE, Bucket
from extender.model.event_reasons import EventReason
from extender.model.names import API_VERSION
from extender.model.objects import AdapterPool
from extender.node.descheduling import Misplaced, misplaced_pods, why_no_pod, why_not
from extender.service.watching.caches import Caches
from extender.telemetry.metrics import Metrics

log: Final = logging.getLogger(__name__)

LOOK_S: Final = 10.0
"""How often pools that have opted in are examined."""
BACKOFF_S: Final = 10.0
BACKOFF_MAX_S: Final = 300.0


@dataclass(slots=True)
class _Pace:
    """When a pool's next eviction may be tried (event loop's time, seconds), and the back-off."""

    next_at: float
    backoff_s: float = BACKOFF_S


class Descheduler:
    """Evicts pods until cancelled. ``now``: epoch seconds."""

    def __init__(
        self,
        caches: Caches,
        *,
        fenced: PoolApi,
        recorder: EventRecorder,
        metrics: Metrics,
        now: Callable[[], float],
    ) -> None:
        self._caches = caches
        self._fenced = fenced
        self._recorder = recorder
        self._metrics = metrics
        self._now = now
        self._paces: dict[str, _Pace] = {}
        """By pool key, for pools that have opted in."""

    async def run(self, bucket: Bucket = WHOLE) -> None:
        """Examine the bucket's pools until cancelled."""
        try:
            while True:
                for key in [key for key in self._caches.state.pools if bucket.has(key)]:
                    await self._look(key)
                await asyncio.sleep(LOOK_S)
        finally:
            for key in [key for key in self._paces if bucket.has(key)]:
                del self._paces[key]

    async def _look(self, key: str) -> None:
        state = self._caches.state.pools.get(key)
        pool = state.adapter_pool if state is not None else None
        if state is None or pool is None or pool.deleting or not pool.descheduling:
            self._paces.pop(key, None)
            return
        now = asyncio.get_running_loop().time()
        pace = self._paces.setdefault(key, _Pace(now + pool.scale_down_period_s))
        if now < pace.next_at or (chosen := self._choose(state)) is None:
            return
        await self._evict(pool, chosen, pace)

    def _choose(self, state: PoolState) -> Misplaced | None:
        """The pod to evict now, None for none."""
        if why_no_pod(state):
            return None
        cluster, now_s = self._caches.state, self._now()
        return next(
            (
                one
                for one in misplaced_pods(cluster, state)
                if not why_not(cluster, state, one, now_s)
            ),
            None,
        )

    async def _evict(self, pool: AdapterPool, chosen: Misplaced, pace: _Pace) -> None:
        """Evict that very pod, in the version that was decided on."""
        pod = chosen.pod
        loop_time = asyncio.get_running_loop().time
        try:
            await self._fenced(pool.key).evict(
                pod.namespace,
                pod.name,
                preconditions=Preconditions(pod.uid, pod.resource_version),
            )
        except (Conflict, NotFound) as error:
            # The pod has changed since. The next look decides again.
            log.info("pod %s is not evicted: %s", pod.key, error, extra={"pod": pod.key})
            return
        except OutcomeUnknown as error:
            self._metrics.pods_evicted.labels("error").inc()
            pace.next_at = loop_time() + pool.scale_down_period_s
            log.warning("pod %s: eviction: %s", pod.key, error, extra={"pod": pod.key})
            return
        except ApiError as error:
            pace.next_at = loop_time() + max(pace.backoff_s, error.retry_after_s or 0.0)
            pace.backoff_s = min(2 * pace.backoff_s, BACKOFF_MAX_S)
            self._refused(pool, chosen, error)
            return
        pace.next_at, pace.backoff_s = loop_time() + pool.scale_down_period_s, BACKOFF_S
        self._metrics.pods_evicted.labels("success").inc()
        note = f"{chosen.reason}: {chosen.note}"
        log.info("pod %s is evicted: %s", pod.key, note, extra={"pod": pod.key, "pool": pool.key})
        self._recorder.event(
            ObjectReference("v1", "Pod", pod.namespace, pod.name, pod.uid),
            reason=EventReason.DESCHEDULED,
            note=note,
        )

    def _refused(self, pool: AdapterPool, chosen: Misplaced, error: ApiError) -> None:
        self._metrics.pods_evicted.labels("refused").inc()
        note = f"{chosen.pod.name} should leave ({chosen.note}), and is not evicted: {error}"
        log.warning("pool %s: %s", pool.key, note, extra={"pool": pool.key})
        self._recorder.event(
            ObjectReference(API_VERSION, "AdapterPool", pool.namespace, pool.name, pool.uid),
            reason=EventReason.DESCHEDULING_REFUSED,
            note=note,
            cause=error.reason,
        )
