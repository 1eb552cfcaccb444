"""``Reconciler``: puts right what no event will (DESIGN 4, last paragraph). The leader's, each period and on events.

- a pod that slipped past the webhook, or was bound by another scheduler: it has no slots annotation and no ledger;
  it gets both, with what vpods already publish there;
- a ledger that cannot be read: rewritten from the statuses;
- a ledger and a status that differ, a claim of a vpod that is gone: the vpod is decided again;
- a reservation that no write confirmed: dropped.

Every repair is counted and told in an event.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from extender.core.decode import pod_from
from extender.core.errors import LedgerTooLarge
from extender.core.model import AdapterPod, AdapterPool, StatefulSet
from extender.core.node_level.carry import standing_of
from extender.core.reasons import ConflictReason
from extender.core.verbs import slots_of
from extender.kube.api import PODS, Api, ApiError, PatchType
from extender.kube.events import EventRecorder, EventType, ObjectReference
from extender.metrics import Metrics
from extender.service.caches import Caches
from extender.service.ledger_patch import ledger_patch
from extender.service.queue import VPodQueues

log: Final = logging.getLogger(__name__)

PERIOD_S: Final = 60.0
EXPIRY_PERIOD_S: Final = 5.0
SETTLE_S: Final = 0.2
"""How long after an event: several come together."""


class Reconciler:
    """Repairs until cancelled."""

    def __init__(
        self,
        api: Api,
        caches: Caches,
        queues: VPodQueues,
        *,
        recorder: EventRecorder,
        metrics: Metrics,
        clock: Callable[[], float],
    ) -> None:
        self._api = api
        self._caches = caches
        self._queues = queues
        self._recorder = recorder
        self._metrics = metrics
        self._clock = clock
        self._wake = asyncio.Event()
        self._running = False
        self._broken: dict[str, AdapterPod] = {}
        """UID -> a pod in need of repair as we saw it. The placer may be faster, as a part of placing."""
        caches.pods.add_event_handler(self._pod_changed)
        caches.pools.add_event_handler(self._pool_changed)
        caches.stateful_sets.add_event_handler(self._stateful_set_changed)

    def _pod_changed(self, _old: AdapterPod | None, new: AdapterPod | None) -> None:
        if new is not None and _needs_repair(new):
            self._wake.set()
            if self._running:
                self._broken[new.uid] = new

    def _pool_changed(self, old: AdapterPool | None, new: AdapterPool | None) -> None:
        """Its spec, that is: its status we write ourselves."""
        if old is None or new is None or old.generation != new.generation:
            self._wake.set()

    def _stateful_set_changed(self, old: StatefulSet | None, new: StatefulSet | None) -> None:
        if old is None or new is None or old.ordinals != new.ordinals:
            self._wake.set()

    async def run(self) -> None:
        """Reconcile on events and each period, until cancelled."""
        self._running = True
        try:
            while True:
                await self.reconcile()
                try:
                    async with asyncio.timeout(PERIOD_S):
                        await self._wake.wait()
                except TimeoutError:
                    continue
                await asyncio.sleep(SETTLE_S)
        finally:
            self._running = False
            self._broken.clear()

    async def run_expiry(self) -> None:
        """Drop reservations in time until cancelled, on every replica: one that led may have left some behind (I5)."""
        while True:
            await asyncio.sleep(EXPIRY_PERIOD_S)
            self.expire_reservations()

    def expire_reservations(self) -> None:
        """Drop what no write has confirmed in time; its vpods are decided again."""
        for pool, key in self._caches.state.expire(self._clock()):
            self._metrics.repairs.labels("ReservationExpired").inc()
            self._queues.of(pool).add(key)

    async def reconcile(self) -> None:
        """One pass over everything."""
        self._wake.clear()
        self.expire_reservations()
        self._requeue_differences()
        for pod in list(self._caches.pods.list()):
            if _needs_repair(pod):
                self._broken[pod.uid] = pod
                await self._repair_pod(pod)
        self._tell_repaired()

    def _requeue_differences(self) -> None:
        for pool in list(self._caches.state.pools.values()):
            for key, claims in list(pool.placements.items()):
                apart = any(
                    claim.reserved is None and claim.ledger != claim.status
                    for name, claim in claims.items()
                    if pool.pods[name].bound
                )
                if apart or key not in pool.vpods:
                    self._queues.of(pool.key).add(key)
            for key in list(pool.unplaced):
                self._queues.of(pool.key).add(key)

    async def _repair_pod(self, pod: AdapterPod) -> None:
        pool = self._caches.state.pools.get(pod.pool)
        if (
            pool is None
            or pool.pool is None
            or pool.stateful_set is None
            or pod.owner != pool.stateful_set.name
        ):
            return
        slots = slots_of(self._caches.state, pod)
        standing = standing_of(pool, pod.name, slots)
        ledger = standing if pod.ledger_error or pod.ledger_text is None else dict(pod.ledger)
        try:
            patch = ledger_patch(pod, ledger, slots)
            self._caches.pods.written(
                pod_from(
                    await self._api.patch(PODS, pod.namespace, pod.name, patch, patch_type=PatchType.JSON)
                )
            )
        except (ApiError, LedgerTooLarge, OverflowError) as error:
            log.warning("pod %s was not repaired, trying again: %s", pod.key, error)

    def _tell_repaired(self) -> None:
        for uid, pod in list(self._broken.items()):
            known = self._caches.pods.get(pod.key)
            if known is None or known.uid != uid:
                del self._broken[uid]
            elif not _needs_repair(known):
                del self._broken[uid]
                self._tell(pod, len(known.ledger))

    def _tell(self, pod: AdapterPod, vpods: int) -> None:
        kind = str(ConflictReason.LEDGER_UNREADABLE) if pod.ledger_error else "WebhookBypassed"
        self._metrics.repairs.labels(kind).inc()
        log.info("pod %s repaired: %s", pod.key, kind)
        self._recorder.event(
            ObjectReference("v1", "Pod", pod.namespace, pod.name, pod.uid),
            type=EventType.WARNING,
            reason=kind,
            action="Repairing",
            note=f"annotations written again with {vpods} vpods' placements; "
            + (
                pod.ledger_error
                or f"the pod was bound by {pod.scheduler_name} without passing through the webhook"
            ),
        )


def _needs_repair(pod: AdapterPod) -> bool:
    """Whether a bound pod's annotations are not as our bind writes them."""
    standing = bool(pod.node) and not (pod.assumed or pod.finished or pod.deleting)
    return standing and (pod.slots is None or pod.ledger_text is None or bool(pod.ledger_error))
