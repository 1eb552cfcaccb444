"""``UnexpectedWrites``: reports ledgers that somebody else has written. Placing and reconciling
repair them.

The admission policy keeps other writers from the ledger. But the policy may be missing for a while,
or somebody may write to etcd. The wrong ledger cannot overcommit a pod: a pod over its slots takes
nothing new and is trimmed, and statuses say what is right. But a person has to hear of it. The
leader alone reports two cases:

- ``ForeignWrite``, at once: the ledger of a bound pod changes to a text that this service did not
  write (``OwnWrites``);
- ``LedgerDiffers``, when this replica begins to lead: the ledger has an entry that no vpod accounts
  for, or less than is published, or more than the pod's slots. A crash of the former leader can
  leave such entries too, so the report says what differs, not who wrote it.

Each report is a Warning event on the pod, a count in the metric of repairs, and a log line.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from extender.engine.pods.claims import PodClaims
from extender.engine.state.external_vpods import may_exist_unseen
from extender.engine.state.pool_state import PoolState
from extender.kube.events import EventRecorder, ObjectReference
from extender.model.bucket import WHOLE, Bucket
from extender.model.counted import counted
from extender.model.event_reasons import EventReason
from extender.model.ledger import Share, ledger_slots
from extender.model.objects import AdapterPod
from extender.service.watching.caches import Caches
from extender.service.watching.own_writes import OwnWrites
from extender.telemetry.metrics import Metrics

log: Final = logging.getLogger(__name__)

REMEDY: Final = (
    "it is put right; only the scheduler service may write it: check that the "
    "ValidatingAdmissionPolicy vreplica-ledger is installed and bound, and that no other "
    "installation serves this pool (pools.namespaces)"
)
ENTRIES_NAMED_MAX: Final = 5
SLICE_PODS: Final = 250
"""Pods examined without a pause, in some 10 ms: the extender's verbs must answer in between."""
KEY_CHARS_MAX: Final = 120


class UnexpectedWrites:
    """Reports changes of ledgers in the pools of each bucket that is led, from ``begin`` to
    ``end``.
    """

    def __init__(
        self,
        caches: Caches,
        own: OwnWrites,
        *,
        recorder: EventRecorder,
        metrics: Metrics,
    ) -> None:
        self._caches = caches
        self.own = own
        """Where ledger writes are announced."""
        self._led: list[Bucket] = []
        self._recorder = recorder
        self._metrics = metrics
        caches.pods.add_event_handler(self._pod_changed)

    def _pod_changed(self, old: AdapterPod | None, new: AdapterPod | None) -> None:
        if old is None or new is None or not _same_bound_pod(old, new):
            return
        if not any(bucket.has(new.pool) for bucket in self._led) or not self._caches.state.counts(
            new
        ):
            return
        if old.ledger_text != new.ledger_text and not self.own.is_ours(new.uid, new.ledger_text):
            what = (
                f"unreadable now ({new.ledger_error})"
                if new.ledger_error
                else _listed(_changes(old.ledger, new.ledger))
                or "the same entries, written otherwise"
            )
            self.report_repair(
                new,
                EventReason.FOREIGN_WRITE,
                f"another writer than the scheduler service changed the ledger: {what}; {REMEDY}",
            )

    async def begin(self, bucket: Bucket = WHOLE) -> None:
        """Begin for a bucket that is led: report what is wrong in its ledgers, and from now on what
        others write there.
        """
        self._led.append(bucket)
        for pool in [pool for key, pool in self._caches.state.pools.items() if bucket.has(key)]:
            for count, known in enumerate(list(pool.pods.values()), 1):
                if count % SLICE_PODS == 0:
                    await asyncio.sleep(0)
                pod = known.pod
                if pod is None or not known.bound or pod.assumed or not pool.is_member(known):
                    continue
                if found := _listed(differences(pool, known, pod)):
                    note = f"the ledger differs from what the vpods say: {found}; {REMEDY}"
                    self.report_repair(pod, EventReason.LEDGER_DIFFERS, note)

    def end(self, bucket: Bucket = WHOLE) -> None:
        """End for a bucket that is no longer led."""
        self._led.remove(bucket)

    def report_repair(self, pod: AdapterPod, kind: EventReason, note: str) -> None:
        """Count a repair of a pod's annotations, and report it as ``warn`` does."""
        self._metrics.repairs.labels(kind).inc()
        self.warn(pod, kind, note)

    def warn(self, pod: AdapterPod, kind: EventReason, note: str) -> None:
        """Report in the log and in a Warning event on the pod."""
        log.warning(
            "pod %s: %s: %s",
            pod.key,
            kind,
            note,
            extra={"pod": pod.key, "pool": pod.pool, "reason": kind},
        )
        self._recorder.event(
            ObjectReference("v1", "Pod", pod.namespace, pod.name, pod.uid),
            reason=kind,
            note=note,
        )


def differences(pool: PoolState, known: PodClaims, pod: AdapterPod) -> Iterator[str]:
    """Each difference between a bound pod's ledger and its vpods, in a few words. Nothing if the
    ledger is missing or unreadable.
    """
    if pod.ledger_text is None or pod.ledger_error:
        return
    if pod.slots is not None and (total := ledger_slots(pod.ledger)) > pod.slots:
        yield f"{counted(total, 'slot')} in a pod of {pod.slots}"
    for key, claim in known.claims.items():
        vpod, there = pool.vpods.get(key), claim.ledger.vreplicas
        if claim.reserved is not None:
            continue
        if vpod is None:
            if there and not may_exist_unseen(pool, key):
                yield f"{there} of {_short(key)}, which does not exist"
        elif there < claim.published:
            yield f"{there} of {_short(key)}, which publishes {claim.published}"
        elif there > max(claim.published, vpod.vreplicas):
            yield f"{there} of {_short(key)}, which wants {vpod.vreplicas}"


def _same_bound_pod(old: AdapterPod, new: AdapterPod) -> bool:
    """Whether only the leader may have written the ledger in between; a bind, by any replica,
    writes it too.
    """
    return old.uid == new.uid and bool(old.node) and not (old.assumed or new.assumed)


def _changes(old: Mapping[str, Share], new: Mapping[str, Share]) -> Iterator[str]:
    for key in sorted({*old, *new}):
        before, after = old.get(key, Share(0)), new.get(key, Share(0))
        if before != after:
            yield f"{_short(key)} {before.vreplicas} -> {after.vreplicas}"


def _listed(entries: Iterator[str]) -> str:
    found = list(islice(entries, ENTRIES_NAMED_MAX))
    more = sum(1 for _ in entries)
    return ", ".join(found) + (f" and {more} more" if more else "")


def _short(key: str) -> str:
    """A key as it is shown in a sentence. The text may be forged."""
    shown = key if len(key) <= KEY_CHARS_MAX else key[:KEY_CHARS_MAX] + "..."
    return ascii(shown)[1:-1]
