"""``Rollouts``: the leader's loop that replaces the pods of an old revision, one or several at a
time, in pools with ``spec.rollout.strategy: HandedOver``.

``engine.scaling.rollout`` says which pods are next, from what is stored. This loop marks them, and
evicts each once it carries nothing or its deadline has passed. In between, the placer hands its
shares over, and the autoscaler makes room. The loop remembers only its pace after a refusal and
since when it waits, so any next leader goes on.

In all pools that hand shares over, the loop also gives the evictions of others their turns. So one
task alone decides which pods go, and none is counted twice or forgotten.

Each look decides the pool's condition ``RollingOut``, as the descheduler does ``PodsMisplaced``. A
pool that has not opted in has no such condition. If the same thing holds a rollout up for
``STUCK_S``, an event says so.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from extender.engine.scaling.rollout import (
    ROLLING_OUT,
    Replaced,
    RolloutReason,
    RolloutStep,
    next_step,
)
from extender.engine.scaling.size import plan_scale
from extender.engine.state.pool_state import PoolState
from extender.kube.events import EventRecorder, ObjectReference, clean_note
from extender.kube.fence import PoolApi
from extender.model.bucket import WHOLE, Bucket
from extender.model.counted import counted_are
from extender.model.event_reasons import EventReason
from extender.model.eviction import Eviction, eviction_of
from extender.model.moves import MoveReason
from extender.model.names import API_VERSION
from extender.model.objects import AdapterPod, AdapterPool, StatefulSet
from extender.service.placing.placer import ScaleTrigger
from extender.service.pools.evictions import EvictionMarks, give_turns, write_mark
from extender.service.pools.pod_evictions import EvictionPace, PodEvictions, WhyEvicted
from extender.service.watching.caches import Caches
from extender.service.watching.sources import PoolCondition
from extender.telemetry.metrics import Metrics

log: Final = logging.getLogger(__name__)

LOOK_S: Final = 10.0
"""How often a pool is looked at, if nothing about it changes."""
SETTLE_S: Final = 0.1
"""Pause after a change, so that a burst of changes becomes one look."""
STUCK_S: Final = 300.0


def _turn_facts(pod: AdapterPod | None) -> tuple[object, ...]:
    """What of a pod may give an eviction its turn."""
    return (pod.uid, pod.evicting_text, pod.ready, pod.deleting) if pod is not None else ()


@dataclass(slots=True)
class _Pace(EvictionPace):
    """``waits``: the reason and note of the last look. ``since``: when they came (event loop's
    time). ``told``: whether an event has said so.
    """

    waits: tuple[str, str] = ("", "")
    since: float = 0.0
    told: bool = False


class Rollouts:
    """Replaces pods until cancelled. ``now``: epoch seconds."""

    def __init__(  # noqa: PLR0913 (each is a different collaborator)
        self,
        caches: Caches,
        autoscaler: ScaleTrigger,
        *,
        fenced: PoolApi,
        recorder: EventRecorder,
        metrics: Metrics,
        now: Callable[[], float],
        marks: EvictionMarks,
    ) -> None:
        self._caches = caches
        self._marks = marks
        self._autoscaler = autoscaler
        self._fenced = fenced
        self._recorder = recorder
        self._evictions = PodEvictions(fenced, recorder, metrics)
        self._now = now
        self._paces: dict[str, _Pace] = {}
        """By pool key, for pools that have opted in."""
        self._conditions: dict[str, PoolCondition] = {}
        self._handing_over: set[str] = set()
        """Keys of the pools that hand shares over: evictions wait for their turn."""
        self._changed: dict[Bucket, asyncio.Event] = {}
        """One for each loop: a loop that clears it must not take a change from the others."""
        caches.pods.add_event_handler(self._pod_changed)
        caches.stateful_sets.add_event_handler(self._stateful_set_changed)
        caches.pools.add_event_handler(self._pool_changed)

    def condition(self, key: str) -> PoolCondition | None:
        """The condition RollingOut of a pool as of the last look; None if it has not opted in."""
        return self._conditions.get(key)

    def _pod_changed(self, old: AdapterPod | None, new: AdapterPod | None) -> None:
        pod = new or old
        if pod is None:
            return
        if pod.pool in self._paces or (
            pod.pool in self._handing_over and _turn_facts(old) != _turn_facts(new)
        ):
            self._wake()

    def _stateful_set_changed(self, _old: StatefulSet | None, _new: StatefulSet | None) -> None:
        if self._paces or self._handing_over:
            self._wake()

    def _pool_changed(self, _old: AdapterPool | None, new: AdapterPool | None) -> None:
        opts_in = new is not None and new.hands_over
        if self._paces or self._handing_over or opts_in:
            self._wake()

    def _wake(self) -> None:
        for changed in self._changed.values():
            changed.set()

    async def run(self, bucket: Bucket = WHOLE) -> None:
        """Look at the bucket's pools whenever something changes, until cancelled."""
        changed = self._changed[bucket] = asyncio.Event()
        try:
            while True:
                changed.clear()
                known = {*self._caches.state.pools, *self._paces, *self._handing_over}
                for key in sorted(key for key in known if bucket.has(key)):
                    await self._look(key)
                try:
                    async with asyncio.timeout(LOOK_S):
                        await changed.wait()
                except TimeoutError:
                    continue
                await asyncio.sleep(SETTLE_S)
        finally:
            del self._changed[bucket]
            for key in [key for key in (*self._paces, *self._handing_over) if bucket.has(key)]:
                self._forget(key)
                self._handing_over.discard(key)

    def _forget(self, key: str) -> None:
        self._paces.pop(key, None)
        self._conditions.pop(key, None)

    async def _look(self, key: str) -> None:
        state = self._caches.state.pools.get(key)
        pool = state.adapter_pool if state is not None else None
        if state is None or pool is None or pool.deleting or state.taken_by:
            self._forget(key)
            self._handing_over.discard(key)
            return
        if pool.hands_over:
            self._handing_over.add(key)
            if not await give_turns(self._caches, self._fenced, state, self._now(), self._marks):
                return
        else:
            self._handing_over.discard(key)
        if not pool.rolls_out:
            self._forget(key)
            return
        clock = asyncio.get_running_loop().time
        pace = self._paces.setdefault(key, _Pace(clock()))
        step = self._with_room(state, next_step(state, self._now()))
        for pod in (*step.again, *step.mark):
            if not await self._mark(pod):
                return  # the next look knows more, as for turns
        for replaced in step.evict:
            if clock() >= pace.next_at and self._still_evicts(key, replaced):
                await self._evict(pool, replaced, pace)
        if not step.evict:
            pace.refused = None
        self._tell(pool, step, pace)

    def _still_evicts(self, key: str, replaced: Replaced) -> bool:
        """Whether the next step, as of now, evicts the pod, too: while another one was evicted, a
        pod may have failed, or the rollout may have been switched off.
        """
        state = self._caches.state.pools.get(key)
        pool = state.adapter_pool if state is not None else None
        if state is None or pool is None or not pool.rolls_out:
            return False
        uids = {one.pod.uid for one in next_step(state, self._now()).evict}
        return replaced.pod.uid in uids

    def _with_room(self, state: PoolState, step: RolloutStep) -> RolloutStep:
        """The step, or the wait for the pool to grow before more pods are handed over."""
        if not step.mark:
            return step
        plan = plan_scale(state, partial(self._caches.state.selects, state.key))
        replicas = state.stateful_set.replicas if state.stateful_set is not None else 0
        if plan is None or plan.wanted <= replicas:
            return step
        self._autoscaler.trigger(state.key)
        note = f"waits: {counted_are(plan.wanted, 'pod')} needed, to have room for a pod's shares"
        waits = RolloutStep(RolloutReason.WAITING_FOR_ROOM, note)
        return replace(waits, again=step.again, evict=step.evict)

    async def _mark(self, pod: AdapterPod) -> bool:
        """Write that a rollout replaces the pod. Return what ``write_mark`` does."""
        now_s, known = self._now(), eviction_of(pod)
        goes_on = known is not None and known.reason is MoveReason.ROLLOUT
        # A former leader's clock may have been ahead.
        first_s = min(known.first_s, now_s) if known is not None and goes_on else now_s
        mark = Eviction(first_s, now_s, MoveReason.ROLLOUT)
        return await write_mark(self._caches, self._fenced, pod, mark)

    async def _evict(self, pool: AdapterPool, replaced: Replaced, pace: _Pace) -> None:
        note = "it is of an old revision"
        if replaced.overdue:
            note += "; what it still has was not handed over in time, and is down until it is back"
        why = WhyEvicted(
            note,
            "is of an old revision",
            EventReason.ROLLED_OUT_UNSERVED if replaced.overdue else EventReason.ROLLED_OUT,
            EventReason.ROLLOUT_REFUSED,
            "rbac.rollouts",
        )
        await self._evictions.evict(pool, replaced.pod, why, pace, 0.0)

    def _tell(self, pool: AdapterPool, step: RolloutStep, pace: _Pace) -> None:
        """Note the condition, and send an event if the rollout is stuck."""
        reason, note = str(step.reason), step.note
        if pace.refused is not None:
            reason, note = pace.refused[0], f"{note}; not evicted: {pace.refused[1]}"
        under_way = step.reason is not RolloutReason.UP_TO_DATE
        self._conditions[pool.key] = (ROLLING_OUT, under_way, reason, clean_note(note))
        now = asyncio.get_running_loop().time()
        if pace.waits != (reason, note):
            pace.waits, pace.since, pace.told = (reason, note), now, False
        if under_way and not pace.told and now - pace.since >= STUCK_S:
            pace.told = True
            self._recorder.event(
                ObjectReference(API_VERSION, "AdapterPool", pool.namespace, pool.name, pool.uid),
                reason=EventReason.ROLLOUT_WAITS,
                note=note,
                cause=reason,
            )
