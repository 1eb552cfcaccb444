"""``PoolScaler``: one pool's size, decided and written (DESIGN 5.4). The ``Autoscaler`` says when.

A look goes: what is closed and wanted again is opened; a number that somebody else has written is
left alone for now; more pods are asked for at once; and, where nothing more is needed, pods that
are closed and empty are removed. Once a period what is not needed is closed first
(``draining_ordinals``).
"""

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from extender.engine.scaling.replica_writes import ReplicaWrites
from extender.engine.scaling.scale_down import count_without_empty, lasting_count
from extender.engine.scaling.size import ScalePlan, plan_scale
from extender.engine.state.pool_state import PoolState
from extender.kube.api import ApiError, OutcomeUnknown
from extender.kube.events import EventRecorder, ObjectReference
from extender.kube.fenced import PoolApi
from extender.kube.timers import TIMER_RESOLUTION_S
from extender.model.counted import counted, counted_are
from extender.model.event_reasons import EventReason
from extender.model.names import API_VERSION
from extender.model.objects import AdapterPool, StatefulSet, VPod
from extender.service.pools.draining_ordinals import (
    REOPENED_MAX,
    ClosedChanged,
    DrainingOrdinals,
)
from extender.service.pools.scale_cache import Scale, ScaleCache
from extender.service.watching.caches import Caches
from extender.telemetry.metrics import Metrics

log: Final = logging.getLogger(__name__)

PERIOD_S: Final = 10.0
RETRY_S: Final = 1.0
RETRY_MAX_S: Final = 60.0
"""However often it failed, and however long a Retry-After asks for."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all pools share.

    ``closed_changed``: told of a pool that pods were opened again, or that others were closed.
    ``no_predecessor_writes``: whether what another leader of a pool has sent has arrived by now, or
    never will.
    """

    caches: Caches
    scales: ScaleCache
    fenced: PoolApi
    recorder: EventRecorder
    metrics: Metrics
    rng: random.Random
    closed_changed: ClosedChanged
    no_predecessor_writes: Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class _View:
    """The pool, as it is at this moment."""

    state: PoolState
    pool: AdapterPool
    stateful_set: StatefulSet
    allows: Callable[[VPod], bool]
    plan: ScalePlan

    @property
    def needs(self) -> tuple[int, int]:
        """What must change before another one's number is questioned: pods' worth of slots, the
        pool's generation.
        """
        return -(-self.plan.expected_slots // self.pool.slots_per_pod), self.pool.generation


class PoolScaler:
    """Scales the StatefulSet of pool ``key``; for one task at a time. Times are the event loop's,
    in seconds.
    """

    def __init__(self, key: str, around: Surroundings, *, period_s: float) -> None:
        self.key = key
        self._around = around
        self._look_at = now()
        self._down_at = self._look_at + period_s * self._jitter()
        self._failures = 0
        self._shrunk_for: tuple[int, int] | None = None
        """Slots and generation of the pool when it was made smaller last, until it has grown again.
        """
        self._regrown = 0
        """Times that it was made smaller and had to grow again for the same needs,
        ``_regrown_for``.
        """
        self._regrown_for: tuple[int, int] | None = None
        self._needs: tuple[int, int] | None = None
        """When somebody else's number was first looked at."""
        self.writes = ReplicaWrites()
        self.limited_at = 0
        """Pods that are needed where maxPods allows fewer; else 0."""
        self.closed = DrainingOrdinals(
            key,
            around.caches,
            clock=now,
            changed=around.closed_changed,
            no_predecessor_writes=around.no_predecessor_writes,
        )

    @property
    def due_at(self) -> float:
        """When to look next, if nothing happens."""
        return min(self._down_at, self._look_at)

    @property
    def held_back(self) -> bool:
        """Whether it has failed again and again: then no trigger makes the delay shorter."""
        return self._failures > 1

    def period_changed(self, period_s: float) -> None:
        """The pool's scale-down period is another one: a shorter one counts from now."""
        self._down_at = min(self._down_at, now() + period_s)

    def replicas_changed(self, old: StatefulSet | None, new: StatefulSet) -> None:
        """The watch has seen other replicas: by our write, or by somebody else's, which is told."""
        if old is None or old.uid != new.uid:
            self.writes = ReplicaWrites()
            return
        if not self.writes.seen(old.replicas, new.replicas, now()):
            return
        self._needs = None
        note = f"somebody else changed replicas from {old.replicas} to {new.replicas}"
        log.info("pool %s: %s", self.key, note, extra={"pool": self.key})
        self._event(EventReason.REPLICAS_CHANGED, note)

    def retry(self, after_s: float | None) -> None:
        """It failed: look again after a growing delay, or when the server asked for it."""
        delay = min(after_s or RETRY_S * 2 ** min(self._failures, 10), RETRY_MAX_S)
        self._failures += 1
        self._look_at = now() + delay * self._jitter()

    async def look(self) -> None:
        """Scale up, down, or not at all. Raises ApiError, NotFound where there is no
        StatefulSet.
        """
        self._look_at = now() + PERIOD_S * self._jitter()
        await self._decide()
        self._failures = 0

    def _jitter(self) -> float:
        return self._around.rng.uniform(0.9, 1.1)

    def _view(self) -> _View | None:
        state = self._around.caches.state.pools.get(self.key)
        allows = partial(self._around.caches.state.selects, self.key)
        plan = plan_scale(state, allows) if state is not None else None
        if (
            state is None
            or plan is None
            or state.adapter_pool is None
            or state.stateful_set is None
        ):
            return None
        return _View(state, state.adapter_pool, state.stateful_set, allows, plan)

    async def _decide(self) -> None:
        view = self._view()
        if view is None:
            # No StatefulSet, or another pool's: what was noted of one has no meaning for the next.
            self.writes, self.limited_at = ReplicaWrites(), 0
            return
        due = self._down_at - TIMER_RESOLUTION_S <= now()
        if due:
            period_s = view.pool.scale_down_period_s * self.writes.patience
            self._down_at = now() + period_s * self._jitter()
        self._mark_limited(view.plan)
        again_at = self.closed.reopen(
            view.state, view.plan, view.allows, view.pool.scale_down_period_s
        )
        self._look_at = min(self._look_at, again_at)
        if self._backs_off() or (self._stands(view) and not due):
            return
        if view.plan.wanted > view.stateful_set.replicas:
            await self._scale_up(view)
            return
        if due:
            self.closed.close(view.state, view.plan, view.allows)
        if not self.closed.only_in_doubt:
            await self._scale_down(view)

    def _stands(self, view: _View) -> bool:
        """Whether somebody else's number stays for now."""
        if self.writes.foreign is None:
            return False
        self._needs = self._needs or view.needs
        if view.plan.wanted == view.stateful_set.replicas or self._needs != view.needs:
            self.writes.settle()
            return False
        return not (view.plan.homeless and view.plan.wanted > view.stateful_set.replicas)

    def _backs_off(self) -> bool:
        """Whether somebody else has undone our writes so often that even vreplicas without a place
        wait.
        """
        if self.writes.foreign is None or self.writes.back_off_until - TIMER_RESOLUTION_S <= now():
            return False
        self._look_at = min(self._look_at, self.writes.back_off_until)
        return True

    # -- writing -----------------------------------------------------------------------------------

    async def _scale_up(self, view: _View) -> None:
        scale = await self._around.scales.get_scale(view.pool.namespace, view.pool.stateful_set)
        wanted = view.plan.wanted
        if wanted <= scale.replicas:
            return  # our cache lags behind an earlier scale-up
        await self._write(scale, wanted)
        needs = (view.plan.expected_slots, view.pool.generation)
        if self._shrunk_for == needs:
            # All fitted into fewer pods, and not where the profile wants it: trying that again
            # moves things for nothing.
            self._regrown = min(self._regrown + 1, REOPENED_MAX)
            self.closed.keep_open(view.pool.scale_down_period_s * 2**self._regrown)
            self._shrunk_for, self._regrown_for = None, needs
        elif self._regrown_for != needs:
            self._regrown = 0
        self._told(
            EventReason.SCALED_UP,
            scale.replicas,
            wanted,
            f"vpods expect {counted(view.plan.expected_slots, 'slot')}",
        )

    async def _scale_down(self, view: _View) -> None:
        if count_without_empty(view.state, self._around.caches.state) >= view.stateful_set.replicas:
            return
        scale = await self._around.scales.get_scale(view.pool.namespace, view.pool.stateful_set)
        again = self._view()
        if again is None:
            return
        if scale.resource_version != again.stateful_set.resource_version:
            # The watch lags behind, and with it what we know of the ordinals: how many, and from
            # which on.
            self._around.scales.forget(scale.key)
            self._look_at = now() + RETRY_S
            return
        # A second look: something may have been placed or wanted while the scale was read. From
        # here on nothing is placed there until the write has happened, for what is removed is
        # closed.
        count = max(again.plan.wanted, count_without_empty(again.state, self._around.caches.state))
        count = lasting_count(again.state, count, again.allows)
        if count >= scale.replicas:
            return
        await self._write(scale, count)
        self.closed.removed()
        self._shrunk_for = (again.plan.expected_slots, again.pool.generation)
        self._told(EventReason.SCALED_DOWN, scale.replicas, count, "the others held nothing")

    async def _write(self, scale: Scale, replicas: int) -> None:
        self.writes.asked(scale.replicas, replicas)
        try:
            await self._around.scales.update_scale(
                scale, replicas, via=self._around.fenced(self.key)
            )
        except OutcomeUnknown:
            self.closed.may_still_shrink(scale, replicas)
            raise
        except ApiError:
            self.writes.refused(replicas)
            raise
        self.writes.settle()

    # -- what is told ------------------------------------------------------------------------------

    def _mark_limited(self, plan: ScalePlan) -> None:
        limited_at = plan.unlimited if plan.limited else 0
        if limited_at not in {0, self.limited_at}:
            note = f"{counted_are(plan.unlimited, 'pod')} needed, maxPods allows {plan.wanted}"
            self._event(EventReason.SCALING_LIMITED, note)
        self.limited_at = limited_at

    def _told(self, reason: EventReason, old: int, new: int, why: str) -> None:
        log.info(
            "pool %s scaled from %d to %d pods: %s",
            self.key,
            old,
            new,
            why,
            extra={"pool": self.key, "reason": reason},
        )
        self._around.metrics.scalings.labels("up" if new > old else "down").inc()
        self._event(reason, f"scaled from {old} to {counted(new, 'pod')}: {why}")

    def _event(self, reason: EventReason, note: str) -> None:
        pool = self._around.caches.pools.get(self.key)
        namespace, _, name = self.key.partition("/")
        uid = pool.uid if pool is not None else ""
        regarding = ObjectReference(API_VERSION, "AdapterPool", namespace, name, uid)
        self._around.recorder.event(regarding, reason=reason, note=note)


def now() -> float:
    """The event loop's time, in seconds."""
    return asyncio.get_running_loop().time()
