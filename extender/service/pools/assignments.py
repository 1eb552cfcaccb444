"""``AssignmentWriter``: the leader's loop that tells the adapters of pools with spec.handoff what
they carry (``model.assignment``).

.. code-block:: text

    ledger of a pod, or vreplicas of a vpod on it, change
        -> the pod is due -> SETTLE_S -> compare with its assignment annotation -> patch

The assignment follows the ledger: the patch compares the ledger and the assignment from which it
was made, so an assignment is never ahead of its ledger, and two leaders never write different ones.
The patch with a pod's first assignment also removes an acknowledgement that the pod has already: it
came with the pod's template, or is about an assignment that somebody has removed.
The loop looks at what is stored, not at what it has done before. So after a crash the next leader
continues, and a pod whose assignment is right costs no write. A pool without spec.handoff costs
nothing; if spec.handoff is removed, so are the annotations.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from extender.kube.api import PODS, ApiError, NotFound, Obj, PatchType
from extender.kube.events import EventRecorder, ObjectReference
from extender.kube.fence import PoolApi
from extender.kube.ratelimit import Backoff
from extender.model.assignment import (
    Assignment,
    Epochs,
    decode_assignment,
    encode_assignment,
    fitting,
    next_assignment,
)
from extender.model.bucket import WHOLE, Bucket
from extender.model.counted import counted
from extender.model.decode import pod_from
from extender.model.event_reasons import EventReason
from extender.model.names import (
    ACKNOWLEDGED_ANNOTATION,
    ASSIGNMENT_ANNOTATION,
    ASSIGNMENT_BYTES_MAX,
    PLACEMENTS_ANNOTATION,
)
from extender.model.objects import AdapterPod, AdapterPool, VPod
from extender.model.resource_versions import parse_version
from extender.service.placing.annotation_patch import (
    remove_text,
    same_pod,
    same_text,
    set_text,
)
from extender.service.placing.handovers import HandOvers
from extender.service.watching.caches import Caches

log: Final = logging.getLogger(__name__)

SETTLE_S: Final = 0.02
"""How long (s) a pod waits after it is due, so that the changes of a burst are told together."""
IN_FLIGHT_MAX: Final = 32
SLICE_PODS: Final = 10
"""Assignments read without a pause. It takes some milliseconds if they are of the greatest size."""


class AssignmentWriter:
    """Writes assignments until cancelled. ``seen_version``: for ``Epochs``."""

    def __init__(
        self,
        caches: Caches,
        *,
        fenced: PoolApi,
        hand_overs: HandOvers,
        recorder: EventRecorder,
        seen_version: Callable[[], int],
        rng: random.Random,
    ) -> None:
        self._caches = caches
        self._hand_overs = hand_overs
        hand_overs.request_assignment = self._vpod_due
        self._fenced = fenced
        self._recorder = recorder
        self._epochs = Epochs(seen_version)
        self._rng = rng
        self._due: dict[Bucket, _Due] = {}
        """Of the buckets that this replica leads."""
        caches.pods.add_event_handler(self._pod_changed)
        caches.vpods.add_event_handler(self.vpod_changed)
        caches.pools.add_event_handler(self._pool_changed)

    # -- what is due -------------------------------------------------------------------------------

    def _pod_changed(self, old: AdapterPod | None, new: AdapterPod | None) -> None:
        if not self._due or new is None or not new.node or new.assumed:
            return
        if old is not None and _facts(old) == _facts(new):
            return
        if tells_adapters(self._caches, new.pool) or new.assignment_text is not None:
            self._add(new.pool, (new.key,))

    def vpod_changed(self, old: VPod | None, new: VPod | None) -> None:
        """Tell the vpod's pods how many vreplicas it asks for, and what of it is published."""
        known = old or new
        if not self._due or known is None:
            return
        # A caller's vpod may be new to this leader only: pods have it already (seed 10189482).
        if _told_of(old) != _told_of(new):
            self._vpod_due(known.pool, known.key)

    def _vpod_due(self, pool: str, vpod: str) -> None:
        state = self._caches.state.pools.get(pool)
        if state is not None and tells_adapters(self._caches, pool):
            namespace = pool.partition("/")[0]
            self._add(pool, [f"{namespace}/{name}" for name in state.claims_of(vpod)])

    def _pool_changed(self, old: AdapterPool | None, new: AdapterPool | None) -> None:
        pool = new or old
        told_before = old.handoff if old is not None else None
        if pool is not None and told_before != (new.handoff if new is not None else None):
            self._add(pool.key, self._pods_of(pool.key))

    def _pods_of(self, pool: str) -> list[str]:
        state = self._caches.state.pools.get(pool)
        if state is None:
            return []
        return [pod.pod.key for pod in state.pods.values() if pod.pod is not None]

    def _add(self, pool: str, pods: Iterable[str]) -> None:
        for bucket, due in self._due.items():
            if bucket.has(pool):
                due.add(pods)

    # -- the loop ----------------------------------------------------------------------------------

    async def run(self, bucket: Bucket = WHOLE) -> None:
        """Tell the adapters of the bucket's pools until cancelled."""
        due = self._due[bucket] = _Due(self._rng)
        try:
            for key in [key for key in self._caches.state.pools if bucket.has(key)]:
                due.add(self._pods_of(key))
            await self._note_epochs(list(due.pods))
            async with asyncio.TaskGroup() as writing:
                in_flight = asyncio.Semaphore(IN_FLIGHT_MAX)
                while True:
                    await due.wait()
                    await asyncio.sleep(SETTLE_S)
                    for pod in due.take():
                        await in_flight.acquire()
                        task = writing.create_task(self._tell(due, pod), name="assignment")
                        task.add_done_callback(lambda _task: in_flight.release())
        finally:
            due.close()
            del self._due[bucket]

    async def _note_epochs(self, pods: Sequence[str]) -> None:
        for count, key in enumerate(pods, 1):
            if count % SLICE_PODS == 0:
                await asyncio.sleep(0)
            if (pod := self._caches.pods.latest(key)) is not None:
                self._note_epochs_of(pod)

    def _note_epochs_of(self, pod: AdapterPod) -> None:
        if (known := own_assignment(pod)) is not None:
            self._epochs.note(known)

    async def _tell(self, due: "_Due", key: str) -> None:
        """Write a pod's assignment if it is not right; after a failure, again later."""
        pod = self._caches.pods.latest(key)
        if pod is None or not pod.node or not self._caches.state.counts(pod):
            due.done(key)
            return
        try:
            if patch := self._patch(pod):
                reply = await self._fenced(pod.pool).patch(
                    PODS, pod.namespace, pod.name, patch, patch_type=PatchType.JSON
                )
                written = pod_from(reply)
                self._caches.pods.written(written)
                self._note_epochs_of(written)
        except NotFound:
            pass
        except ApiError as error:
            # Most often the ledger has changed, and the newest pod is on its way here. Or this
            # replica does not lead at this moment: if that lasts, the loop ends (seed 260861382).
            log.debug("assignment of pod %s: %s", key, error)
            due.again(key)
            return
        finally:
            self._hand_overs.indexed.answered(pod)
        due.done(key)

    def _patch(self, pod: AdapterPod) -> list[Obj]:
        """The JSON patch of the pod's annotations; empty if they are right."""
        if not tells_adapters(self._caches, pod.pool):
            return _removal(pod)
        if pod.ledger_text is None or pod.ledger_error:
            return []  # the reconciler writes the ledger first
        before, pool = own_assignment(pod), self._caches.pools.get(pod.pool)
        vpods = self._caches.state.pool(pod.pool).vpods
        after = next_assignment(
            before,
            (pod.key, pod.uid),
            pod.ledger,
            {key: vpods[key].asked for key in pod.ledger if key in vpods},
            partial(self._epochs.next, parse_version(pod.resource_version) or 0),
            partial(self._hand_overs.instruct, pod),
            lease_s=pool.lease_s if pool is not None else 0,
        )
        views = self._hand_overs.views
        if after is None:
            views.leave_out(pod, frozenset())
            return []
        whole, after = after, fitting(after, before.shares if before is not None else {})
        left_out = frozenset(whole.shares.keys() - after.shares.keys())
        views.leave_out(pod, left_out)
        if after is not whole:
            if left_out:
                self._report(pod, len(left_out))
            if before is not None and (after.shares, after.lease_s) == (
                before.shares,
                before.lease_s,
            ):
                return []
        self._hand_overs.exclusive.asked(pod, before, after)
        self._hand_overs.indexed.asked(pod, after)
        change = _change(pod, after)
        if before is None and pod.acknowledged_text is not None:
            # It comes with the pod's template, or is about what somebody has removed.
            change.append(remove_text(ACKNOWLEDGED_ANNOTATION))
        return change

    def _report(self, pod: AdapterPod, left_out: int) -> None:
        note = (
            f"the adapter is not told of {counted(left_out, 'vpod')}: the assignment may have "
            f"{ASSIGNMENT_BYTES_MAX} bytes"
        )
        log.warning("pod %s: %s", pod.key, note, extra={"pod": pod.key, "pool": pod.pool})
        self._recorder.event(
            ObjectReference("v1", "Pod", pod.namespace, pod.name, pod.uid),
            reason=EventReason.ASSIGNMENT_TOO_LARGE,
            note=note,
        )


def _told_of(vpod: VPod | None) -> tuple[object, ...] | None:
    """What of a vpod its pods' assignments depend on."""
    return (vpod.vreplicas, vpod.placements) if vpod is not None else None


def _facts(pod: AdapterPod) -> tuple[object, ...]:
    """What an assignment is made from. An assumed pod is not on its node yet, whatever it says."""
    return pod.uid, pod.node, pod.assumed, pod.ledger_text, pod.assignment_text


def tells_adapters(caches: Caches, pool: str) -> bool:
    """Whether a pool (by key) has spec.handoff."""
    known = caches.pools.get(pool)
    return known is not None and known.handoff is not None


def own_assignment(pod: AdapterPod) -> Assignment | None:
    """What the pod is told; None if nothing is written for it."""
    return decode_assignment(pod.assignment_text, pod.uid)


def same_assignment(pod: AdapterPod) -> list[Obj]:
    """The patch applies only to this pod, with this assignment."""
    return [same_pod(pod), same_text(pod, ASSIGNMENT_ANNOTATION, pod.assignment_text)]


def _change(pod: AdapterPod, assignment: Assignment) -> list[Obj]:
    ledger = same_text(pod, PLACEMENTS_ANNOTATION, pod.ledger_text)
    text = set_text(ASSIGNMENT_ANNOTATION, encode_assignment(assignment))
    return [*same_assignment(pod), ledger, text]


def _removal(pod: AdapterPod) -> list[Obj]:
    present = [
        annotation
        for annotation, text in (
            (ASSIGNMENT_ANNOTATION, pod.assignment_text),
            (ACKNOWLEDGED_ANNOTATION, pod.acknowledged_text),
        )
        if text is not None
    ]
    return [*same_assignment(pod), *map(remove_text, present)] if present else []


class _Due:
    """The pods of one bucket to look at, and those to look at again after a failure."""

    def __init__(self, rng: random.Random) -> None:
        self.pods: dict[str, None] = {}
        """Keys, in the order in which they became due."""
        self._rng = rng
        self._wake = asyncio.Event()
        self._under_way: set[str] = set()
        self._failing: dict[str, tuple[Backoff, asyncio.TimerHandle]] = {}

    def add(self, pods: Iterable[str]) -> None:
        """Look at ``pods`` soon; at those that are being written, once they are."""
        self.pods.update(dict.fromkeys(pods))
        self._wake.set()

    async def wait(self) -> None:
        """Wait until there may be something in ``pods``."""
        await self._wake.wait()

    def take(self) -> list[str]:
        """Take the due pods, except those that are being written now."""
        self._wake.clear()
        taken = [pod for pod in self.pods if pod not in self._under_way]
        for pod in taken:
            del self.pods[pod]
        self._under_way.update(taken)
        return taken

    def again(self, pod: str) -> None:
        """``pod`` has failed: look at it once more, after its back-off."""
        loop = asyncio.get_running_loop()
        known = self._failing.get(pod)
        backoff = known[0] if known is not None else Backoff(self._rng)
        if known is not None:
            known[1].cancel()
        timer = loop.call_later(backoff.next_s(loop.time()), self.add, (pod,))
        self._failing[pod] = (backoff, timer)
        self._end(pod)

    def done(self, pod: str) -> None:
        """``pod`` is as it should be, or no longer ours."""
        if (known := self._failing.pop(pod, None)) is not None:
            known[1].cancel()
        self._end(pod)

    def _end(self, pod: str) -> None:
        self._under_way.discard(pod)
        if pod in self.pods:
            self._wake.set()

    def close(self) -> None:
        """Forget the back-offs."""
        for _, timer in self._failing.values():
            timer.cancel()
