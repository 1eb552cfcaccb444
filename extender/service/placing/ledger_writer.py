"""``LedgerWriter``: writes a pod's ledger by one compare-and-swap patch, and finds out what became
of it if no reply comes.

The patch compares the pod's UID and the whole annotation with the text from which it was made: the
newest in the cache (I1). (Of a pod without the annotation it compares the resourceVersion.)
If it is unknown whether a patch arrived, the writer reads the pod. But the patch may still be under
way and change the ledger after that. Until it can no longer arrive, nothing new is published
because of that ledger (I2, ``ledger_confirmations``).
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

from extender.kube.api import (
    PODS,
    Api,
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Obj,
    OutcomeUnknown,
    PatchType,
)
from extender.model.amounts import NO_AMOUNTS, Amounts
from extender.model.decode import pod_from
from extender.model.errors import LedgerTooLarge
from extender.model.ledger import Ledger, Share
from extender.model.names import ASSIGNMENT_ANNOTATION
from extender.model.objects import AdapterPod
from extender.model.reasons import ConflictReason
from extender.node.bind_ledger import ledger_of
from extender.node.verbs import slots_of
from extender.service.placing.annotation_patch import same_text
from extender.service.placing.batch import Batch
from extender.service.placing.ledger_confirmations import LedgerConfirmations
from extender.service.placing.ledger_patch import covers, ledger_patch, merged, written_text
from extender.service.placing.write_refusals import WriteRefusals
from extender.service.watching.caches import Caches
from extender.service.watching.own_writes import OwnWrites
from extender.service.watching.pods_behind import PodsBehind
from extender.telemetry.metrics import Metrics
from extender.telemetry.tracing import span


class LedgerWriter:
    """Writes the ledgers of one committer, at most as many at once as ``in_flight`` allows."""

    def __init__(  # noqa: PLR0913 (each is a different collaborator)
        self,
        api: Api,
        caches: Caches,
        *,
        clock: Callable[[], float],
        in_flight: asyncio.Semaphore,
        refusals: WriteRefusals,
        request_pods: Callable[[], None],
        metrics: Metrics,
    ) -> None:
        self._api = api
        self._caches = caches
        self._clock = clock
        self._in_flight = in_flight
        self.ledger_confirmations = LedgerConfirmations(clock)
        self.own_writes = OwnWrites()
        self._pods_behind = PodsBehind(caches, clock, request_pods)
        self._refusals = refusals
        self._metrics = metrics
        caches.pods.add_event_handler(self._pod_changed)

    def _pod_changed(self, old: AdapterPod | None, new: AdapterPod | None) -> None:
        """Forget what is remembered of a pod that is gone."""
        if old is not None and (new is None or new.uid != old.uid):
            self.own_writes.forget(old.uid)
            self.ledger_confirmations.forget(old.uid)
        self._pods_behind.pod_changed(old, new)

    async def write(self, pod_key: str, batch: Batch, change: Mapping[str, Share]) -> None:
        """Patch one pod's ledger. ``change``: vpod key -> its new share. Failures are recorded in
        ``batch``.
        """
        pod = self._caches.pods.latest(pod_key)
        if pod is None or not pod.node or not self._caches.state.counts(pod):
            why = "the pod is gone, has no node, or is not its StatefulSet's"
            batch.fall_short(change, why)
            return
        if batch.assignment_at_check.get(pod.name, pod.assignment_text) != pod.assignment_text:
            batch.fall_short(change, "its adapter is told something else by now")
            return
        state = self._caches.state
        slots, pool = slots_of(state, pod), state.pools.get(pod.pool)
        ledger = (
            pod.ledger
            if pool is None
            else ledger_of(pool, pod, slots, state.placements_from_former_pool(pod.pool, pod.name))
        )
        capacities = pool.capacities if pool is not None else NO_AMOUNTS
        change, patch = self._patch(batch, pod, ledger, change, slots, capacities)
        if not change:
            return
        if pod.name in batch.assignment_at_check:
            patch.insert(1, same_text(pod, ASSIGNMENT_ANNOTATION, pod.assignment_text))
        text = written_text(patch)
        try:
            with (
                span("write_ledger", pod=pod_key, vpods=len(change)),
                self.own_writes.sending(pod.uid, text),
            ):
                async with self._in_flight:
                    sent_at = self._clock()
                    reply = await self._api.patch(
                        PODS, pod.namespace, pod.name, patch, patch_type=PatchType.JSON
                    )
                self._take_reply(reply, sent_at)
            if text != pod.ledger_text:
                self.ledger_confirmations.changed(pod.uid, sent_at)
        except ApiError as error:
            await self._failed(pod, batch, change, error)
            if isinstance(error, OutcomeUnknown) and text != pod.ledger_text:
                # The write may still be under way. While the ledger has the text that the write
                # compares with, no reply proves that the text will stay.
                self.ledger_confirmations.late(pod.uid, pod.ledger_text)

    def _patch(
        self,
        batch: Batch,
        pod: AdapterPod,
        ledger: Ledger,
        change: Mapping[str, Share],
        slots: int,
        capacities: Amounts,
    ) -> tuple[Mapping[str, Share], list[Obj]]:
        """What is written of a change, and the patch for that. What does not fit is recorded in
        ``batch``.

        Unchanged shares are written only to confirm the ledger. They must not fail together with
        shares that do not fit, because they may be the ones that have to leave first.
        """
        unchanged = {key: share for key, share in change.items() if ledger.get(key) == share}
        try:
            return change, ledger_patch(pod, merged(ledger, change), slots, capacities)
        except (LedgerTooLarge, OverflowError) as error:
            if isinstance(error, LedgerTooLarge):
                self._metrics.refused(str(ConflictReason.LEDGER_TOO_LARGE))
            why = str(error)
        if len(unchanged) < len(change):
            others = {key: share for key, share in change.items() if key not in unchanged}
            batch.fall_short(others, why)
            with suppress(LedgerTooLarge, OverflowError):
                return unchanged, ledger_patch(pod, ledger, slots, capacities)
        # Even unchanged shares may not fit: the statuses that name a pod without a readable ledger
        # may say more than it can hold.
        batch.fall_short(unchanged, why)
        return {}, []

    async def _failed(
        self, pod: AdapterPod, batch: Batch, change: Mapping[str, Share], error: ApiError
    ) -> None:
        """Find out what the ledger is after a failed write."""
        known: AdapterPod | None = None
        if isinstance(error, Forbidden):
            vpods = [self._caches.vpods.latest(key) for key in change]
            batch.refused.update(dict.fromkeys(change, self._refusals.ledger(pod, vpods, error)))
        if isinstance(error, (Invalid, Conflict)):
            self._metrics.ledger_conflicts.inc()
        if isinstance(error, (Invalid, Conflict, OutcomeUnknown)):
            # This write may have arrived, or somebody else's.
            try:
                sent_at = self._clock()
                known = self._take_reply(
                    await self._api.get(PODS, pod.namespace, pod.name), sent_at
                )
                self._pods_behind.read(pod.key, known)
            except NotFound:
                self._pods_behind.read(pod.key, None)
            except ApiError:
                if isinstance(error, OutcomeUnknown):
                    batch.unknown.update(change)
        if known is None or known.uid != pod.uid or not covers(known.ledger, change):
            batch.fall_short(change, str(error))

    def _take_reply(self, reply: Obj, sent_at: float) -> AdapterPod:
        pod = pod_from(reply)
        self._caches.pods.written(pod)
        self.ledger_confirmations.note(pod.uid, sent_at)
        return pod
