"""``Rescheduler``: gives up pods that were not Ready for rescheduleAfterSeconds, and takes them
back.

When a pod, its node or its pool changes, it determines which ordinals are absent and since when
(``Absences``), and again when the next of them is due. It does not poll. Every replica observes
absences (``watch``) by its own clock, so that the next leader continues from there. Only the leader
gives pods up (``run``), by ``PoolState.set_abandoned``. Placing then moves what such a pod holds,
as far as there is room, and the evictor moves the rest when there is room. Both give the reason
``Reschedule``. A pool with rescheduleAfterSeconds null gives up nothing: its ordinals come back
with what they had.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from extender.engine.rebalance.absence import Absences
from extender.engine.state.pool_state import PoolState
from extender.kube.events import EventRecorder, ObjectReference
from extender.model.bucket import WHOLE, Bucket
from extender.model.counted import first_of
from extender.model.event_reasons import EventReason
from extender.model.names import API_VERSION
from extender.model.objects import AdapterPod, AdapterPool, Node, StatefulSet, has_same_pods
from extender.service.watching.caches import Caches

log: Final = logging.getLogger(__name__)

SETTLE_S: Final = 0.1
"""Pause after an event: a failing node affects many pods."""
NAMED_PODS_MAX: Final = 10
"""Pods named in an event."""


class Rescheduler:
    """Observes all pools. ``activate``: decides a pool's vpods again. Times are the event loop's,
    in seconds.
    """

    def __init__(
        self,
        caches: Caches,
        *,
        activate: Callable[[str], None],
        recorder: EventRecorder,
    ) -> None:
        self._caches = caches
        self._activate = activate
        self._recorder = recorder
        self._absences: dict[str, Absences] = {}
        self._wake = asyncio.Event()
        self._led: list[Bucket] = []
        caches.pods.add_event_handler(self._pod_changed)
        caches.nodes.add_event_handler(self._node_changed)
        caches.pools.add_event_handler(self._pool_changed)
        caches.stateful_sets.add_event_handler(self._stateful_set_changed)

    # -- events of the caches ----------------------------------------------------------------------

    def _pod_changed(self, old: AdapterPod | None, new: AdapterPod | None) -> None:
        if old is None or new is None or _of_absence(old) != _of_absence(new):
            self._wake.set()

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if old is None or new is None or old.ready != new.ready:
            self._wake.set()

    def _pool_changed(self, old: AdapterPool | None, new: AdapterPool | None) -> None:
        if (
            old is None
            or new is None
            or (old.reschedule_after_s, old.stateful_set)
            != (new.reschedule_after_s, new.stateful_set)
        ):
            self._wake.set()

    def _stateful_set_changed(self, old: StatefulSet | None, new: StatefulSet | None) -> None:
        if not has_same_pods(old, new):
            self._wake.set()

    # -- the loops ---------------------------------------------------------------------------------

    async def watch(self) -> None:
        """Observe the absent pods of all pools until cancelled. ``run`` does so in pools that are
        led here.
        """
        while True:
            self._wake.clear()
            self._note()
            await self._wake.wait()
            await asyncio.sleep(SETTLE_S)

    def _note(self) -> None:
        pools, now = self._caches.state.pools, _now()
        for key in self._absences.keys() - pools.keys():
            del self._absences[key]
        for key, state in pools.items():
            if not any(bucket.has(key) for bucket in self._led):
                self._absences.setdefault(key, Absences()).note(state, now)

    async def run(self, bucket: Bucket = WHOLE) -> None:
        """Give up and take back pods in the bucket's pools until cancelled. Then nothing is given
        up: only the leader does that.
        """
        self._led.append(bucket)
        try:
            while True:
                self._wake.clear()
                due = self.look(bucket)
                try:
                    async with asyncio.timeout_at(due):
                        await self._wake.wait()
                except TimeoutError:
                    pass
                else:
                    await asyncio.sleep(SETTLE_S)
        finally:
            self._led.remove(bucket)
            for key, state in self._caches.state.pools.items():
                if bucket.has(key):
                    state.set_abandoned(frozenset())

    def look(self, bucket: Bucket = WHOLE) -> float | None:
        """Update the bucket's pools. Return the time of the next look; None: when something
        changes.
        """
        pools = [state for key, state in self._caches.state.pools.items() if bucket.has(key)]
        return min(
            (at for state in pools if (at := self._look_at(state)) is not None), default=None
        )

    def _look_at(self, state: PoolState) -> float | None:
        absences = self._absences.setdefault(state.key, Absences())
        abandoned, due = absences.look(state, _now())
        if abandoned != state.abandoned:
            gone, back = abandoned - state.abandoned, state.abandoned - abandoned
            state.set_abandoned(abandoned)
            self._report(state, gone, back)
            self._activate(state.key)
        return due

    def _report(self, state: PoolState, gone: frozenset[str], back: frozenset[str]) -> None:
        if back:
            log.info(
                "pool %s takes back %s",
                state.key,
                ", ".join(sorted(back)),
                extra={"pool": state.key},
            )
        pool = state.adapter_pool
        if not gone or pool is None:
            return
        note = (
            f"not Ready for {pool.reschedule_after_s} s, what they hold is placed elsewhere: "
            f"{first_of(sorted(gone), NAMED_PODS_MAX)}"
        )
        log.warning(
            "pool %s: %s",
            state.key,
            note,
            extra={"pool": state.key, "reason": EventReason.PODS_ABANDONED},
        )
        self._recorder.event(
            ObjectReference(API_VERSION, "AdapterPool", pool.namespace, pool.name, pool.uid),
            reason=EventReason.PODS_ABANDONED,
            note=note,
        )


def _now() -> float:
    return asyncio.get_running_loop().time()


def _of_absence(pod: AdapterPod) -> tuple[object, ...]:
    """The fields of a pod that decide whether it is absent, and since when."""
    return pod.uid, pod.pool, pod.ready, pod.ready_since, pod.node, pod.finished
