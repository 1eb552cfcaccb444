"""``PoolScaler``: computes and writes one pool's size (DESIGN 5.4). The ``Autoscaler`` says when.

In a pool that others size (``spec.scaling``), a look writes nothing: ``desired`` is the advice.

A look has these steps. It opens closed ordinals that are needed again. It leaves a number that
somebody else has written, for now. It adds pods at once if more are needed, unless the pool's owner
wants room to be made by moves first. Otherwise it removes
closed and empty pods. Once per period it first closes what is not needed (``closed_ordinals``).
"""

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from extender.engine.rebalance.move_plan import placed_by_moves
from extender.engine.scaling.packing import to_replace
from extender.engine.scaling.replica_writes import ReplicaWrites
from extender.engine.scaling.scale_down import advised_count, count_without_empty, lasting_count
from extender.engine.scaling.size import ScalePlan, plan_scale, waiting_without_growth
from extender.engine.state.pool_state import PoolState
from extender.kube.api import ApiError, OutcomeUnknown
from extender.kube.events import EventRecorder, ObjectReference
from extender.kube.fence import PoolApi
from extender.kube.timers import TIMER_RESOLUTION_S
from extender.model.counted import counted
from extender.model.event_reasons import EventReason
from extender.model.names import API_VERSION
from extender.model.objects import AdapterPool, StatefulSet, VPod
from extender.service.pools.closed_ordinals import (
    REOPENED_MAX,
    ClosedChanged,
    ClosedOrdinals,
)
from extender.service.pools.scale_cache import Scale, ScaleCache
from extender.service.watching.caches import Caches
from extender.telemetry.metrics import Metrics

log: Final = logging.getLogger(__name__)

PERIOD_S: Final = 10.0
RETRY_S: Final = 1.0
RETRY_MAX_S: Final = 60.0
"""The longest delay, after any number of failures and for any Retry-After."""


@dataclass(frozen=True, slots=True)
class ScalerContext:
    """What the scalers of all pools share.

    ``closed_changed``: called after ordinals of a pool were opened or closed. ``waiting``: called
    for a pool in which vreplicas have no place, and which does not grow for them now.
    ``no_predecessor_writes``: whether every write of another leader of a pool has arrived or never
    will.
    """

    caches: Caches
    scales: ScaleCache
    fenced: PoolApi
    recorder: EventRecorder
    metrics: Metrics
    rng: random.Random
    closed_changed: ClosedChanged
    waiting: Callable[[str], None]
    no_predecessor_writes: Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class _View:
    """The pool at this moment."""

    state: PoolState
    pool: AdapterPool
    stateful_set: StatefulSet
    allows: Callable[[VPod], bool]
    plan: ScalePlan

    @property
    def needs(self) -> tuple[int, int]:
        """(pods' worth of expected slots, generation of the pool). Somebody else's number stands
        until these change.
        """
        return -(-self.plan.expected_slots // self.pool.slots_per_pod), self.pool.generation

    @property
    def desired(self) -> int:
        """The pods that the pool should have if it does not grow, and none is empty and closed."""
        if not self.plan.external:
            return self.stateful_set.replicas
        return advised_count(self.state, self.plan, self.allows)


class PoolScaler:
    """Scales the StatefulSet of pool ``key``, in one task at a time. Times are the event loop's, in
    seconds.
    """

    def __init__(self, key: str, context: ScalerContext, *, period_s: float) -> None:
        self.key = key
        self._context = context
        self._look_at = now()
        self._down_at = self._look_at + period_s * self._jitter()
        self._failures = 0
        self._shrunk_for: tuple[int, int] | None = None
        """Expected slots and generation of the pool when it was last made smaller; None after it
        has grown again.
        """
        self._regrown = 0
        """How often the pool was made smaller and had to grow again for the same slots
        (``_regrown_for``).
        """
        self._regrown_for: tuple[int, int] | None = None
        self._grow_from: float | None = None
        """When the pool grows although moves could make room; None while nothing wants it to grow.
        """
        self._needs: tuple[int, int] | None = None
        """The needs when somebody else's number was first seen."""
        self.refused = ""
        """What the last look has failed with; "" if it has not."""
        self.writes = ReplicaWrites()
        self.limited_at = 0
        """Pods that are needed, if the pool may not have so many; otherwise 0."""
        self.desired: int | None = None
        """Pods that the pool should have now (status.desiredPods); None while that is unknown."""
        self.closed = ClosedOrdinals(
            key,
            context.caches,
            clock=now,
            changed=context.closed_changed,
            no_predecessor_writes=context.no_predecessor_writes,
        )

    @property
    def due_at(self) -> float:
        """When to look next if nothing happens."""
        return min(self._down_at, self._look_at)

    @property
    def held_back(self) -> bool:
        """Whether it has failed more than once in a row: then triggers do not shorten the delay."""
        return self._failures > 1

    def period_changed(self, period_s: float) -> None:
        """The pool has another scale-down period. A shorter one counts from now."""
        self._down_at = min(self._down_at, now() + period_s)

    def replicas_changed(self, old: StatefulSet | None, new: StatefulSet) -> None:
        """The watch shows another number of replicas. If somebody else wrote it, report that."""
        if old is None or old.uid != new.uid:
            self.writes = ReplicaWrites()
            return
        if not self._writes_replicas or not self.writes.seen(old.replicas, new.replicas, now()):
            return
        self._needs = None
        note = f"somebody else changed replicas from {old.replicas} to {new.replicas}"
        log.info("pool %s: %s", self.key, note, extra={"pool": self.key})
        self._event(EventReason.REPLICAS_CHANGED, note)

    @property
    def _writes_replicas(self) -> bool:
        pool = self._context.caches.pools.get(self.key)
        return pool is None or pool.writes_replicas

    def retry(self, after_s: float | None) -> None:
        """After a failure: look again after a growing delay, or when the server asked for it."""
        delay = min(after_s or RETRY_S * 2 ** min(self._failures, 10), RETRY_MAX_S)
        self._failures += 1
        self._look_at = now() + delay * self._jitter()

    async def look(self) -> None:
        """Scale up, down or not at all. Raises ApiError; NotFound if there is no StatefulSet."""
        self._look_at = now() + PERIOD_S * self._jitter()
        await self._decide()
        self._failures, self.refused = 0, ""

    def _jitter(self) -> float:
        return self._context.rng.uniform(0.9, 1.1)

    def _view(self) -> _View | None:
        state = self._context.caches.state.pools.get(self.key)
        allows = partial(self._context.caches.state.selects, self.key)
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
            # There is no StatefulSet, or another pool has it: notes about the last one do not apply
            # to the next.
            self.writes, self.limited_at, self.desired = ReplicaWrites(), 0, None
            return
        if not view.pool.writes_replicas:
            self.writes.settle()
        due = self._down_at - TIMER_RESOLUTION_S <= now()
        if due:
            period_s = view.pool.scale_down_period_s * self.writes.patience
            self._down_at = now() + period_s * self._jitter()
        self._mark_limited(view.plan)
        again_at = self.closed.reopen(
            view.state, view.plan, view.allows, view.pool.scale_down_period_s
        )
        self._look_at = min(self._look_at, again_at)
        if self._backs_off() or (self._keeps_foreign_number(view) and not due):
            return
        grows = view.plan.wanted > view.stateful_set.replicas
        self.desired = view.desired
        if view.state.vpods_with_pending and (not grows or self._makes_room_first(view)):
            self._context.waiting(self.key)
        elif grows:
            await self._scale_up(view)
        if grows:
            return
        self._grow_from = None
        if due or view.plan.external:
            self.closed.close(view.state, view.plan, view.allows)
        if not (self.closed.only_in_doubt or view.plan.external):
            await self._scale_down(view)

    def _makes_room_first(self, view: _View) -> bool:
        """Whether the pool does not grow yet, because its owner wants moves to be tried first, and
        some are known that would place all that waits. They have one period.
        """
        pool = view.pool
        if not (pool.make_room_before_growing and pool.moves_to_shrink):
            return False
        if self._grow_from is None:
            self._grow_from = now() + pool.scale_down_period_s
        if now() >= self._grow_from - TIMER_RESOLUTION_S:
            return False
        waiting = waiting_without_growth(view.state, view.allows, view.plan)
        if not placed_by_moves(view.state, waiting):
            return False
        self._look_at = min(self._look_at, self._grow_from)
        return True

    def _keeps_foreign_number(self, view: _View) -> bool:
        """Whether somebody else's number stays for now."""
        if self.writes.foreign is None:
            return False
        self._needs = self._needs or view.needs
        if view.plan.wanted == view.stateful_set.replicas or self._needs != view.needs:
            self.writes.settle()
            return False
        return not (view.plan.unschedulable and view.plan.wanted > view.stateful_set.replicas)

    def _backs_off(self) -> bool:
        """Whether somebody else has undone this pool's writes so often that even vreplicas without
        a place wait.
        """
        if self.writes.foreign is None or self.writes.back_off_until - TIMER_RESOLUTION_S <= now():
            return False
        self._look_at = min(self._look_at, self.writes.back_off_until)
        return True

    # -- writing -----------------------------------------------------------------------------------

    async def _scale_up(self, view: _View) -> None:
        self.desired = wanted = view.plan.wanted
        if not view.pool.writes_replicas:
            return
        scale = await self._context.scales.get_scale(view.pool.namespace, view.pool.stateful_set)
        if wanted <= scale.replicas:
            return  # the cached StatefulSet lags behind an earlier scale-up
        again = self._view()
        if again is None or not again.pool.writes_replicas or again.plan.wanted < wanted:
            self._look_at = now() + RETRY_S  # the pool has changed while the scale was read
            return
        await self._write(scale, wanted)
        asked_for = (view.plan.expected_slots, view.pool.generation)
        if to_replace(view.state):
            # It grows for pods that leave, so making it smaller before was right
            # (simulation seed 321000208).
            self._shrunk_for = None
        elif self._shrunk_for == asked_for:
            # Fewer pods had room for all, but not where the profile needs it. Another attempt would
            # move vreplicas for nothing.
            self._regrown = min(self._regrown + 1, REOPENED_MAX)
            self.closed.keep_open(view.pool.scale_down_period_s * 2**self._regrown)
            self._shrunk_for, self._regrown_for = None, asked_for
        elif self._regrown_for != asked_for:
            self._regrown = 0
        self._scaled(
            EventReason.SCALED_UP,
            scale.replicas,
            wanted,
            f"vpods expect {counted(view.plan.expected_slots, 'slot')}",
        )

    async def _scale_down(self, view: _View) -> None:
        state = self._context.caches.state
        if count_without_empty(view.state, state) >= view.stateful_set.replicas:
            return
        scale = await self._context.scales.get_scale(view.pool.namespace, view.pool.stateful_set)
        again = self._view()
        if again is None:
            return
        if scale.resource_version != again.stateful_set.resource_version:
            # The watch lags behind, so the cached ordinals (their number and start) may be wrong.
            self._context.scales.forget(scale.key)
            self._look_at = now() + RETRY_S
            return
        # Look again: vreplicas may have been placed or requested while the scale was read. From
        # here to the write nothing is placed on the removed ordinals, because they are closed.
        count = max(again.plan.wanted, count_without_empty(again.state, state))
        count = lasting_count(again.state, count, again.allows)
        if count >= scale.replicas:
            return
        self.desired = count
        if not again.pool.writes_replicas:
            # Others may follow this advice even after it has changed.
            self.closed.may_still_shrink(scale, count)
            return
        await self._write(scale, count)
        self.closed.removed()
        self._shrunk_for = (again.plan.expected_slots, again.pool.generation)
        self._scaled(EventReason.SCALED_DOWN, scale.replicas, count, "the others held nothing")

    async def _write(self, scale: Scale, replicas: int) -> None:
        self.writes.asked(scale.replicas, replicas)
        try:
            await self._context.scales.update_scale(
                scale, replicas, via=self._context.fenced(self.key)
            )
        except OutcomeUnknown:
            self.closed.may_still_shrink(scale, replicas)
            raise
        except ApiError:
            self.writes.refused(replicas)
            raise
        self.writes.settle()

    # -- reporting ---------------------------------------------------------------------------------

    def _mark_limited(self, plan: ScalePlan) -> None:
        limited_at = plan.needed if plan.falls_short else 0
        if limited_at not in {0, self.limited_at}:
            self._event(EventReason.SCALING_LIMITED, plan.limit_text)
        self.limited_at = limited_at

    def _scaled(self, reason: EventReason, old: int, new: int, why: str) -> None:
        log.info(
            "pool %s scaled from %d to %d pods: %s",
            self.key,
            old,
            new,
            why,
            extra={"pool": self.key, "reason": reason},
        )
        self._context.metrics.scalings.labels("up" if new > old else "down").inc()
        self._event(reason, f"scaled from {old} to {counted(new, 'pod')}: {why}")

    def _event(self, reason: EventReason, note: str) -> None:
        pool = self._context.caches.pools.get(self.key)
        namespace, _, name = self.key.partition("/")
        uid = pool.uid if pool is not None else ""
        regarding = ObjectReference(API_VERSION, "AdapterPool", namespace, name, uid)
        self._context.recorder.event(regarding, reason=reason, note=note)


def now() -> float:
    """The event loop's time, in seconds."""
    return asyncio.get_running_loop().time()
