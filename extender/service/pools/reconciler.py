"""``Reconciler``: the leader's loop that repairs what no event repairs, each period and on events
(DESIGN 4, last paragraph).

- A pod that bypassed the webhook, or was bound by another scheduler, has no slots annotation and no
  ledger: it gets both, with what vpods already publish there.
- A ledger that is unreadable or was removed is rewritten from the statuses.
- A slots annotation that differs from the pod's request, which nobody can change, is rewritten from
  the request.
- A ledger that another writer has changed, or that differs when this replica begins to lead, is
  reported (``UnexpectedWrites``), and its vpods are decided again.
- A vpod whose ledger and status differ, or that is gone and still has a claim, is decided again.
- A reservation that no write confirmed is dropped.
- An eviction that nobody has tried again for a while is given up: the pod takes vreplicas again.

Every repair is counted, and an event reports it. A drain annotation that is no boolean is only
reported, because its meaning is unknown.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from extender.engine.state.availability import is_outdated
from extender.engine.state.pool_state import PoolState
from extender.kube.api import PODS, ApiError, PatchType
from extender.kube.fence import PoolApi
from extender.model.bucket import WHOLE, Bucket
from extender.model.decode import pod_from
from extender.model.errors import LedgerTooLarge
from extender.model.event_reasons import EventReason
from extender.model.names import PLACEMENTS_ANNOTATION, SLOTS_ANNOTATION
from extender.model.objects import AdapterPod, AdapterPool, StatefulSet, VPod, has_same_pods
from extender.node.bind_ledger import ledger_of
from extender.node.verbs import slots_of
from extender.service.placing.ledger_patch import ledger_patch, written_text
from extender.service.placing.queue import VPodQueues
from extender.service.placing.vpod_status import SCHEDULED
from extender.service.pools.evictions import EvictionMarks, give_up_evictions
from extender.service.watching.caches import Caches
from extender.service.watching.unexpected_writes import UnexpectedWrites
from extender.telemetry.metrics import Metrics

log: Final = logging.getLogger(__name__)

PERIOD_S: Final = 60.0
EXPIRY_PERIOD_S: Final = 5.0
SETTLE_S: Final = 0.2
"""Pause after an event, because events often come together."""
SLICE_VPODS: Final = 1_000
"""vpods examined without a pause, in some 10 ms: the extender's verbs must answer in between."""


class Reconciler:
    """Repairs pods and vpods until cancelled."""

    def __init__(  # noqa: PLR0913 (each is a different collaborator)
        self,
        fenced: PoolApi,
        caches: Caches,
        queues: VPodQueues,
        *,
        unexpected_writes: UnexpectedWrites,
        metrics: Metrics,
        clock: Callable[[], float],
        marks: EvictionMarks,
        on_expiry: Sequence[Callable[[], None]] = (),
    ) -> None:
        """``on_expiry``: called each ``EXPIRY_PERIOD_S`` on every replica, to forget old data."""
        self._fenced = fenced
        self._caches = caches
        self._queues = queues
        self._metrics = metrics
        self._clock = clock
        self._marks = marks
        self._running: dict[Bucket, asyncio.Event] = {}
        """Buckets whose pools are reconciled -> what wakes their loop."""
        self._unexpected_writes = unexpected_writes
        self._on_expiry = on_expiry
        self._broken: dict[str, AdapterPod] = {}
        """UID -> a pod in need of repair, as last seen. The placer may repair it first, while
        placing.
        """
        self._invalid_annotations: dict[str, tuple[str, ...]] = {}
        """UID -> what was reported of a pod's drain annotations that are no booleans."""
        caches.pods.add_event_handler(self._pod_changed)
        caches.pools.add_event_handler(self._pool_changed)
        caches.stateful_sets.add_event_handler(self._stateful_set_changed)

    def _pod_changed(self, old: AdapterPod | None, new: AdapterPod | None) -> None:
        if new is None:
            if old is not None:
                self._invalid_annotations.pop(old.uid, None)
            return
        broken = self._needs_repair(new)
        if (
            not broken
            and new.uid not in self._broken
            and not self._has_new_invalid_annotations(new)
        ):
            return
        for bucket, wake in self._running.items():
            if bucket.has(new.pool):
                # Wake also when the pod has just been repaired, perhaps by the placer while this
                # repair failed: that must be reported.
                wake.set()
                if broken:
                    self._broken[new.uid] = new

    def _pool_changed(self, old: AdapterPool | None, new: AdapterPool | None) -> None:
        """Wake for changes of the spec. The status is this service's own write."""
        if old is None or new is None or old.generation != new.generation:
            self._wake_all()

    def _stateful_set_changed(self, old: StatefulSet | None, new: StatefulSet | None) -> None:
        changed = new or old
        if changed is None or has_same_pods(old, new):
            return
        # Pools name it, or have named it before.
        if any(pool.namespace == changed.namespace for pool in self._caches.pools.list()):
            self._wake_all()

    def _wake_all(self) -> None:
        for wake in self._running.values():
            wake.set()

    async def run(self, bucket: Bucket = WHOLE) -> None:
        """Reconcile the bucket's pools, on events and each period, until cancelled."""
        wake = self._running[bucket] = asyncio.Event()
        try:
            await self._unexpected_writes.begin(bucket)
            while True:
                wake.clear()
                await self.reconcile(bucket)
                try:
                    async with asyncio.timeout(PERIOD_S):
                        await wake.wait()
                except TimeoutError:
                    continue
                await asyncio.sleep(SETTLE_S)
        finally:
            del self._running[bucket]
            self._unexpected_writes.end(bucket)
            for uid in [uid for uid, pod in self._broken.items() if bucket.has(pod.pool)]:
                del self._broken[uid]
            for pod in self._caches.pods.list():
                if bucket.has(pod.pool):
                    self._invalid_annotations.pop(pod.uid, None)

    async def run_expiry(self) -> None:
        """Drop expired reservations until cancelled, on every replica: a former leader may have
        left some (I5).

        Also forget data about pods, vpods and pools that are gone.
        """
        while True:
            await asyncio.sleep(EXPIRY_PERIOD_S)
            self.expire_reservations()
            self._queues.look_again(self._caches.state.pools)
            for forget in self._on_expiry:
                forget()

    def expire_reservations(self) -> None:
        """Drop reservations that no write has confirmed in time, and decide their vpods again."""
        for pool, key in self._caches.state.expire(self._clock()):
            self._metrics.repairs.labels("ReservationExpired").inc()
            self._queues.add(pool, key)

    async def reconcile(self, bucket: Bucket = WHOLE) -> None:
        """Make one pass over the bucket's pools."""
        self.expire_reservations()
        await self._requeue_differences(bucket)
        for pod in self._caches.pods.list():
            if bucket.has(pod.pool) and self._has_new_invalid_annotations(pod):
                self._report_invalid_annotations(pod)
        for pod in list(self._caches.pods.list()):
            if bucket.has(pod.pool) and self._needs_repair(pod):
                self._broken[pod.uid] = pod
                await self._repair_pod(pod)
        self._report_repaired(bucket)
        await give_up_evictions(self._caches, self._fenced, bucket, self._marks)

    def _has_new_invalid_annotations(self, pod: AdapterPod) -> bool:
        return pod.invalid_annotations != self._invalid_annotations.get(pod.uid, ())

    def _report_invalid_annotations(self, pod: AdapterPod) -> None:
        """Report, once per value and leader, that the pod is not drained: its annotator believes
        that it is.
        """
        if not pod.invalid_annotations:
            del self._invalid_annotations[pod.uid]
            return
        self._invalid_annotations[pod.uid] = pod.invalid_annotations
        note = f"annotation {'; '.join(pod.invalid_annotations)}: the pod is not drained"
        self._unexpected_writes.warn(pod, EventReason.ANNOTATION_UNREADABLE, note)

    async def _requeue_differences(self, bucket: Bucket) -> None:
        """Queue vpods whose records differ. Works in slices; later differences come as events."""
        for pool in [pool for key, pool in self._caches.state.pools.items() if bucket.has(key)]:
            for count, (key, claims) in enumerate(list(pool.claims_by_vpod.items()), 1):
                if count % SLICE_VPODS == 0:
                    await asyncio.sleep(0)
                apart = any(
                    claim.reserved is None and claim.ledger != claim.status
                    for name, claim in claims.items()
                    if pool.pods[name].bound
                )
                if apart or key not in pool.vpods:
                    self._queues.add(pool.key, key)
            for key in list(pool.vpods_with_pending):
                self._queues.add(pool.key, key)
            for count, (key, vpod) in enumerate(list(pool.vpods.items()), 1):
                if count % SLICE_VPODS == 0:
                    await asyncio.sleep(0)
                if _conditions_disagree(pool, vpod):
                    self._queues.add(pool.key, key)

    async def _repair_pod(self, pod: AdapterPod) -> None:
        pool = self._caches.state.pools.get(pod.pool)
        if (
            pool is None
            or pool.adapter_pool is None
            or pool.stateful_set is None
            or not pool.counts(pod)
            or not self._is_there(pod)
        ):
            return
        state = self._caches.state
        slots = slots_of(state, pod)
        ledger = ledger_of(pool, pod, slots, state.placements_from_former_pool(pool.key, pod.name))
        stamped = (
            pod if pod.slots is None or not self._slots_differ(pod) else replace(pod, slots=None)
        )
        try:
            patch = ledger_patch(stamped, ledger, pod.slots_request or slots, pool.capacities)
            with self._unexpected_writes.own.sending(pod.uid, written_text(patch)):
                reply = await self._fenced(pod.pool).patch(
                    PODS, pod.namespace, pod.name, patch, patch_type=PatchType.JSON
                )
                self._caches.pods.written(pod_from(reply))
        except (ApiError, LedgerTooLarge, OverflowError) as error:
            log.warning(
                "pod %s was not repaired, trying again: %s",
                pod.key,
                error,
                extra={"pod": pod.key, "pool": pod.pool},
            )

    def _report_repaired(self, bucket: Bucket) -> None:
        for uid, pod in [item for item in self._broken.items() if bucket.has(item[1].pool)]:
            known = self._caches.pods.get(pod.key)
            if known is None or known.uid != uid:
                del self._broken[uid]
            elif not self._needs_repair(known):
                del self._broken[uid]
                self._report_repair(pod, len(known.ledger))

    def _report_repair(self, pod: AdapterPod, vpods: int) -> None:
        kind, why = self._what_was_wrong(pod)
        self._unexpected_writes.report_repair(
            pod, kind, f"annotations written again with {vpods} vpods' placements; {why}"
        )

    def _is_there(self, pod: AdapterPod) -> bool:
        known = self._caches.pods.latest(pod.key)
        return known is not None and known.uid == pod.uid

    def _needs_repair(self, pod: AdapterPod) -> bool:
        """Whether a bound pod's annotations are not as a bind writes them."""
        if (
            not pod.node
            or pod.assumed
            or pod.finished
            or pod.deleting
            or not self._caches.state.counts(pod)
        ):
            return False
        return (
            pod.slots is None
            or pod.ledger_text is None
            or bool(pod.ledger_error)
            or self._slots_differ(pod)
        )

    def _slots_differ(self, pod: AdapterPod) -> bool:
        """Whether the slots annotation is neither what the pod requests nor the pool's slotsPerPod,
        if that is lower.
        """
        if not pod.slots_request or pod.slots == pod.slots_request:
            return False
        pool = self._caches.state.pools.get(pod.pool)
        per_pod = (
            pool.adapter_pool.slots_per_pod
            if pool is not None and pool.adapter_pool is not None
            else None
        )
        return pod.slots is None or pod.slots > pod.slots_request or pod.slots != per_pod

    def _what_was_wrong(self, pod: AdapterPod) -> tuple[EventReason, str]:
        """(reason, explanation). A pod that requests slots has passed the webhook, because nobody
        can add the request later.
        """
        if pod.ledger_error:
            return EventReason.LEDGER_UNREADABLE, pod.ledger_error
        if self._slots_differ(pod):
            said = "is missing" if pod.slots is None else f"said {pod.slots}"
            return (
                EventReason.SLOTS_MISMATCH,
                f"annotation {SLOTS_ANNOTATION} {said}, and the pod requests {pod.slots_request}",
            )
        if pod.slots_request and pod.ledger_text is None:
            return (
                EventReason.FOREIGN_WRITE,
                f"annotation {PLACEMENTS_ANNOTATION} was taken away by another writer",
            )
        return (
            EventReason.WEBHOOK_BYPASSED,
            f"the pod was bound by {pod.scheduler_name} without passing through the webhook",
        )


def _conditions_disagree(pool: PoolState, vpod: VPod) -> bool:
    """Whether a vpod's conditions disagree with its placements and pods: another writer has changed
    one of them.
    """
    if is_outdated(pool, vpod):
        return True
    scheduled = next(
        (item.status == "True" for item in vpod.conditions if item.type == SCHEDULED), None
    )
    return scheduled is not None and scheduled is not (
        sum(vpod.placements.values()) >= vpod.vreplicas
    )
