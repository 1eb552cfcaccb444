"""``PodEvictions``: how the leader evicts an adapter pod, for the descheduler and for rollouts.

The pod is evicted and not deleted, so the API server checks its PodDisruptionBudgets. If it
refuses (429), the next try waits twice as long as the last, up to ``BACKOFF_MAX_S``. Where shares
are handed over, our own webhook refuses until others serve what the pod carries
(``model.eviction``): each look tries again. The eviction is of that very pod, in the version that
was decided on.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from extender.kube.api import (
    ApiError,
    Conflict,
    Forbidden,
    NotFound,
    OutcomeUnknown,
    Preconditions,
    TooManyRequests,
)
from extender.kube.events import EventRecorder, ObjectReference
from extender.kube.fence import NotLeading, PoolApi
from extender.model.event_reasons import EventReason
from extender.model.names import API_VERSION, EVICTION_WEBHOOK_NAME
from extender.model.objects import AdapterPod, AdapterPool
from extender.telemetry.metrics import Metrics

log: Final = logging.getLogger(__name__)

HANDING_OVER: Final = "HandingOver"
BACKOFF_S: Final = 10.0
BACKOFF_MAX_S: Final = 300.0


@dataclass(slots=True)
class EvictionPace:
    """When a pool's next eviction may be tried (event loop's time, seconds), and the back-off.

    ``refused``: reason and note of the last try, if it was refused.
    """

    next_at: float
    backoff_s: float = BACKOFF_S
    refused: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class WhyEvicted:
    """Why a pod is evicted. ``note`` is for the event ``told``, and ``should`` says the same as a
    clause about the pod, for the event ``refused``. ``right``: the chart's value that grants it.
    """

    note: str
    should: str
    told: EventReason
    refused: EventReason
    right: str


class PodEvictions:
    """Evicts pods of the pools that this replica leads."""

    def __init__(self, fenced: PoolApi, recorder: EventRecorder, metrics: Metrics) -> None:
        self._fenced = fenced
        self._recorder = recorder
        self._metrics = metrics

    async def evict(
        self,
        pool: AdapterPool,
        pod: AdapterPod,
        why: WhyEvicted,
        pace: EvictionPace,
        pause_s: float,
    ) -> bool:
        """Evict the pod. Return whether it is known to be evicted. ``pause_s``: the next eviction
        comes so long after this one.
        """
        loop_time = asyncio.get_running_loop().time
        try:
            await self._fenced(pool.key).evict(
                pod.namespace,
                pod.name,
                preconditions=Preconditions(pod.uid, pod.resource_version),
            )
        except (Conflict, NotFound, NotLeading) as error:
            # The pod has changed since, or another replica leads. The next look decides again.
            log.info("pod %s is not evicted: %s", pod.key, error, extra={"pod": pod.key})
            return False
        except OutcomeUnknown as error:
            self._metrics.pods_evicted.labels("error").inc()
            pace.next_at, pace.refused = loop_time() + pause_s, None
            log.warning("pod %s: eviction: %s", pod.key, error, extra={"pod": pod.key})
            return False
        except ApiError as error:
            if isinstance(error, TooManyRequests) and EVICTION_WEBHOOK_NAME in str(error):
                pace.refused = HANDING_OVER, f"{pod.name} hands over what it serves first"
                return False
            pace.next_at = loop_time() + max(pace.backoff_s, error.retry_after_s or 0.0)
            pace.backoff_s = min(2 * pace.backoff_s, BACKOFF_MAX_S)
            pace.refused = self._refused(pool, pod, why, error)
            return False
        pace.next_at, pace.backoff_s = loop_time() + pause_s, BACKOFF_S
        pace.refused = None
        self._metrics.pods_evicted.labels("success").inc()
        log.info(
            "pod %s is evicted: %s", pod.key, why.note, extra={"pod": pod.key, "pool": pool.key}
        )
        self._recorder.event(
            ObjectReference("v1", "Pod", pod.namespace, pod.name, pod.uid),
            reason=why.told,
            note=why.note,
        )
        return True

    def _refused(
        self, pool: AdapterPool, pod: AdapterPod, why: WhyEvicted, error: ApiError
    ) -> tuple[str, str]:
        """Report a refusal. Return reason and note for the condition."""
        self._metrics.pods_evicted.labels("refused").inc()
        note = f"{pod.name} {why.should}, and is not evicted: {error}"
        log.warning("pool %s: %s", pool.key, note, extra={"pool": pool.key})
        self._recorder.event(
            ObjectReference(API_VERSION, "AdapterPool", pool.namespace, pool.name, pool.uid),
            reason=why.refused,
            note=note,
            cause=error.reason,
        )
        if isinstance(error, Forbidden):
            return "EvictionForbidden", f"{error}. The chart's {why.right} grants the right"
        # The API server also answers 429 if it is busy. The message tells these apart.
        reason = "DisruptionBudget" if isinstance(error, TooManyRequests) else "EvictionRefused"
        return reason, str(error)
