"""``AdapterLeases``: when each adapter of an exclusive pool has renewed its lease, and which leases
have run out although their pods are Ready.

A renewal is an acknowledgement that any replica answers (``http.adapters.acknowledge``). The leader
may not hear it. So a replica stores one renewal of each pod in every ``STORED_S``, in the field
``renewed`` of the annotation ``vreplica.dev/acknowledged``. An adapter renews its lease three times
in a lease. So if nothing has changed for ``STORED_S`` and a lease, the lease has run out, and the
adapter has stopped by itself. The leader then adds ``"expired": true``. From then on the pod counts
as not Ready: its vreplicas are unserved, and are placed elsewhere after rescheduleAfterSeconds. The
next acknowledgement removes the word. If the pool is exclusive no more, the leader does.

An adapter that has never had a lease may read its assignment from the file, and does not know yet
that it needs one. It has ``HEARS_S`` and a lease before its lease counts as run out.

The leader counts from when it has seen the last change, by its own clock, and at the earliest from
when it began to lead. Its write compares the annotation with what it has seen, so a leader whose
watch is behind marks no adapter that has renewed its lease. A replica stores the next renewal a
minute after it has seen the last one, or a minute after the time that is stored, whichever comes
first: its watch may be behind (seed 122428729), or its clock.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from extender.kube.api import PODS, ApiError, Obj, PatchType
from extender.kube.events import EventRecorder, ObjectReference
from extender.kube.fence import PoolApi
from extender.model.assignment import (
    NEVER_ACKNOWLEDGED,
    decode_acknowledged,
    encode_acknowledged,
    is_expired,
    is_renewed,
    lease_of,
)
from extender.model.bucket import WHOLE, Bucket
from extender.model.event_reasons import EventReason
from extender.model.names import ACKNOWLEDGED_ANNOTATION
from extender.model.objects import AdapterPod
from extender.model.timestamps import epoch_s, timestamp
from extender.service.placing.annotation_patch import remove_text, same_pod, same_text, set_text
from extender.service.watching.caches import Caches

log: Final = logging.getLogger(__name__)

STORED_S: Final = 60.0
"""One renewal of a pod is stored in this time."""
HEARS_S: Final = 90.0
"""A kubelet writes an annotation into a file within this time."""
LOOK_S: Final = 5.0


@dataclass(slots=True)
class _Lease:
    """Of one pod's adapter. Times are the event loop's.

    ``since``: when the adapter last renewed it, was first told of it, or became Ready, as seen
    here. ``lease_s``: the longest that it was told since. ``stored_at``: when the annotation
    changed here.
    """

    uid: str
    since: float
    lease_s: int
    stored_at: float = float("-inf")


class AdapterLeases:
    """``clock``: the event loop's time. ``now``: epoch seconds."""

    def __init__(
        self,
        caches: Caches,
        *,
        fenced: PoolApi,
        recorder: EventRecorder,
        clock: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        self._caches = caches
        self._fenced = fenced
        self._recorder = recorder
        self._clock = clock
        self._now = now
        self._leases: dict[str, _Lease] = {}
        """By the pod's key, of pods that are told of a lease."""
        self._led: list[Bucket] = []
        caches.pods.add_event_handler(self._pod_changed)

    def _pod_changed(self, old: AdapterPod | None, new: AdapterPod | None) -> None:
        if new is None:
            if old is not None:
                self._leases.pop(old.key, None)
            return
        told, known, now = lease_of(new.assignment_text), self._leases.get(new.key), self._clock()
        if not told:
            self._leases.pop(new.key, None)
        elif old is None or known is None or known.uid != new.uid:
            self._leases[new.key] = _Lease(new.uid, now, told)
        else:
            if old.assignment_text != new.assignment_text:
                # It may not know yet that its lease is shorter now.
                known.lease_s = max(known.lease_s, told)
            elif old.acknowledged_text != new.acknowledged_text:
                known.lease_s = told
            if old.acknowledged_text != new.acknowledged_text:
                known.since = known.stored_at = now
            elif new.ready and not old.ready:
                known.since = now
            if is_expired(new.acknowledged_text) and not is_expired(old.acknowledged_text):
                self._report(new)

    def renewed(self, pod: AdapterPod) -> str:
        """The time to store for a renewal that happens now. For ``STORED_S`` this is the time that
        is stored already, so nothing is written.
        """
        stored, known = decode_acknowledged(pod.acknowledged_text), self._leases.get(pod.key)
        if stored is None or not stored.renewed or known is None:
            return timestamp(self._now())
        stored_s_ago = self._now() - epoch_s(stored.renewed, 0.0)
        is_late = max(self._clock() - known.stored_at, stored_s_ago) >= STORED_S
        return timestamp(self._now()) if is_late else stored.renewed

    async def run(self, bucket: Bucket = WHOLE) -> None:
        """Mark the leases that have run out in the bucket's pools, until cancelled."""
        began = self._clock()
        self._led.append(bucket)
        try:
            while True:
                await asyncio.sleep(LOOK_S)
                for pod, expired in list(self._to_change(bucket, began)):
                    await self._write(pod, expired=expired)
        finally:
            self._led.remove(bucket)

    def _to_change(self, bucket: Bucket, began: float) -> Iterator[tuple[AdapterPod, bool]]:
        """The pods whose mark is wrong, and whether they are to have one. A leader has seen nothing
        before it ``began``.
        """
        for pool in self._caches.pools.list():
            state = self._caches.state.pools.get(pool.key)
            if state is None or not bucket.has(pool.key):
                continue
            # Also those whose ordinal is gone: they serve what they have until there is room.
            for known in list(state.pods.values()):
                pod = known.pod
                if pod is None:
                    continue
                if pool.is_exclusive and known.serving and self._has_run_out(pod, began):
                    yield pod, True
                elif not pool.is_exclusive and is_expired(pod.acknowledged_text):
                    yield pod, False

    def _has_run_out(self, pod: AdapterPod, began: float) -> bool:
        known = self._leases.get(pod.key)
        if known is None:
            return False
        unheard_s = STORED_S if is_renewed(pod.acknowledged_text) else HEARS_S
        return self._clock() >= max(known.since, began) + unheard_s + known.lease_s

    async def _write(self, pod: AdapterPod, *, expired: bool) -> None:
        try:
            await self._fenced(pod.pool).patch(
                PODS, pod.namespace, pod.name, _patch(pod, expired), patch_type=PatchType.JSON
            )
        except ApiError as error:
            # Most often the adapter has renewed its lease just now.
            log.debug("lease of pod %s: %s", pod.key, error)

    def _report(self, pod: AdapterPod) -> None:
        if not any(bucket.has(pod.pool) for bucket in self._led):
            return
        note = (
            f"the adapter has not renewed its lease of {lease_of(pod.assignment_text)} s, "
            f"so what it holds is not served"
        )
        log.warning("pod %s: %s", pod.key, note, extra={"pod": pod.key, "pool": pod.pool})
        self._recorder.event(
            ObjectReference("v1", "Pod", pod.namespace, pod.name, pod.uid),
            reason=EventReason.LEASE_EXPIRED,
            note=note,
        )


def _patch(pod: AdapterPod, expired: bool) -> list[Obj]:
    stored = decode_acknowledged(pod.acknowledged_text)
    same = same_text(pod, ACKNOWLEDGED_ANNOTATION, pod.acknowledged_text)
    if stored is None and not expired:
        return [same_pod(pod), same, remove_text(ACKNOWLEDGED_ANNOTATION)]
    text = encode_acknowledged(replace(stored or NEVER_ACKNOWLEDGED, expired=expired))
    return [same_pod(pod), same, set_text(ACKNOWLEDGED_ANNOTATION, text)]
