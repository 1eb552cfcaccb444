"""``Evictor``: the leader's loop that moves vreplicas, period by period (DESIGN 5.5).

Each pool has one task. It looks at the pool in each *period* (scaleDownPeriodSeconds) and whenever
it is triggered. A *look* makes one plan after the other (``PoolMoves.turns``): ``plan_moves`` says
what should move where. The mover, which is the placer, makes those moves that are still possible,
between two of its batches. Each pool sets the limits:

- *budget*: at most movesPerPeriod vreplicas per period, for whatever reason, and however often the
  pool is looked at;
- *cool-down*: moves that make room, compact, balance load or suit the profile do not touch a vpod
  that was moved less than cooldownSeconds ago. The ``Moved`` condition has the time, so a new
  leader knows it too. For objects of foreign kinds without a place for conditions, the time is only
  in memory;
- *load*: looked at once in each period, and never in the first one of a leader. At most 9 % of the
  pool's vreplicas move for it in a period (``rebalance.balance``);
- *dryRun*: moves are planned, counted and reported (event ``WouldMove``), but not made.

The autoscaler closes the ordinals that it wants to remove, and triggers the evictor then. It also
does so if vreplicas have no place and the pool does not grow for them. The evictor triggers the
autoscaler after a move. If it has made room, or balanced load, it looks again at once: the first
moves may have given room to the next ones, and one plan moves only so many vreplicas for load
(``balance.MOVES_AT_ONCE_MAX``). A move that the mover refuses is left out the next time, so that it
does not use up the budget each time. A plan never awaits. So one plan examines only some vpods for
``Policy``, and the extender's verbs answer between plans.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

from extender.engine.pods.pod_loads import NO_LOADS
from extender.engine.rebalance.balance import LoadGoal
from extender.engine.rebalance.move_plan import Limits
from extender.engine.rebalance.moves import Advice, plan_moves
from extender.engine.rebalance.relocation import is_published
from extender.engine.scaling.size import awaits_pods, plan_scale, waiting_without_growth
from extender.engine.state.pool_state import PoolState
from extender.kube.api import ApiError
from extender.kube.timers import TIMER_RESOLUTION_S
from extender.model.bucket import WHOLE, Bucket
from extender.model.moves import Move, MoveReason
from extender.model.objects import AdapterPool
from extender.service.placing.placer import ScaleTrigger
from extender.service.placing.vpod_events import VPodEvents
from extender.service.pools.load_reports import LoadReports
from extender.service.pools.pool_moves import PoolMoves
from extender.service.watching.caches import Caches
from extender.telemetry.metrics import Metrics

log: Final = logging.getLogger(__name__)


class Mover(Protocol):
    """Carries out moves, for one task per pool."""

    async def move(self, pool: str, moves: Sequence[Move]) -> list[Move]:
        """Make those moves of a pool that are still possible. Return those that were written,
        perhaps with fewer vreplicas, or were begun and wait for
        adapters.

        Does not overlap with the pool's placing. Order of writes: destination ledger, status,
        source ledger.
        """
        ...


class Evictor:
    """Moves vreplicas until cancelled. ``now``: epoch seconds.

    The name is Knative's. It evicts no pod: ``PodEvictions`` does.
    """

    def __init__(  # noqa: PLR0913 (each is a different collaborator)
        self,
        caches: Caches,
        mover: Mover,
        autoscaler: ScaleTrigger,
        *,
        vpod_events: VPodEvents,
        metrics: Metrics,
        now: Callable[[], float],
        load: LoadReports | None = None,
    ) -> None:
        """``load``: what is reported; None if nothing can be."""
        self._load = load
        self._caches = caches
        self._mover = mover
        self._autoscaler = autoscaler
        self._vpod_events = vpod_events
        self._metrics = metrics
        self._now = now
        self._pools: dict[str, PoolMoves] = {}
        self._changed = asyncio.Event()
        caches.pools.add_event_handler(self._pool_changed)

    def _pool_changed(self, old: AdapterPool | None, new: AdapterPool | None) -> None:
        """A pool came or went, or its period or limits may have changed."""
        pool = new or old
        if pool is not None and (old is None or new is None or old.generation != new.generation):
            self._changed.set()
            self.trigger(pool.key)

    def trigger(self, pool: str) -> None:
        """Look at this pool now. The budget of the period does not change."""
        if (pool_moves := self._pools.get(pool)) is not None:
            pool_moves.wake.set()

    # -- the loop ----------------------------------------------------------------------------------

    async def run(self, bucket: Bucket = WHOLE) -> None:
        """Move vreplicas in the bucket's pools until cancelled. A new leader waits one period
        unless something triggers it. Load always waits that long.
        """
        self._forget(bucket)
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    for pool in self._caches.pools.list():
                        if pool.key not in self._pools and bucket.has(pool.key):
                            self._pools[pool.key] = PoolMoves()
                            tasks.create_task(self._run_pool(pool.key), name=f"evictor {pool.key}")
                    self._changed.clear()
                    await self._changed.wait()
        finally:
            self._forget(bucket)

    def _forget(self, bucket: Bucket) -> None:
        for key in [key for key in self._pools if bucket.has(key)]:
            del self._pools[key]
        for state in self._caches.state.pools.values():
            if bucket.has(state.key):
                state.load = NO_LOADS
        if self._load is not None:
            self._load.forget(bucket)

    async def _run_pool(self, key: str) -> None:
        pool_moves = self._pools[key]
        clock = asyncio.get_running_loop().time
        pool_moves.begin_period(clock())
        while (pool := self._caches.pools.get(key)) is not None:
            due = pool_moves.period_began + pool.scale_down_period_s
            try:
                async with asyncio.timeout_at(due):
                    await pool_moves.wake.wait()
            except TimeoutError:
                pass
            pool_moves.wake.clear()
            # Checked after every wake-up: frequent triggers must not prolong a period.
            if clock() >= due - TIMER_RESOLUTION_S:
                pool_moves.begin_period(clock())
                pool_moves.load_due = True
            await self.rebalance(key)
        del self._pools[key]
        if self._load is not None:
            self._load.drop(key)
        self._changed.set()  # the pool may be back already

    async def rebalance(self, key: str) -> list[Move]:
        """Plan the pool's moves with the rest of the period's budget, and make them. Return those
        that were made.
        """
        pool_moves = self._pools.setdefault(key, PoolMoves())
        pool_moves.begin_look()
        load = await self._look_at_load(key) if pool_moves.load_due else None
        pool_moves.load_due = False
        state = self._caches.state.pools.get(key)
        done: list[Move] = []
        for vpods in pool_moves.turns(state) if state is not None else ():
            pool = state.adapter_pool if state is not None else None
            if state is None or pool is None or pool.deleting or state.stateful_set is None:
                break
            if pool_moves.spent >= pool.moves_per_period:
                break
            moves = self._plan(pool_moves, state, pool, vpods, load)
            load = None  # after these moves, the pods have other loads
            if pool.move_dry_run:
                self._would_move(pool_moves, state, moves)
            else:
                pool_moves.end_dry_run()
                done += await self._make(pool_moves, state, moves)
            await asyncio.sleep(0)
            state = self._caches.state.pools.get(key)
        reasons = {move.reason for move in done}
        pool_moves.load_due = MoveReason.LOAD in reasons
        if pool_moves.load_due or MoveReason.MAKE_ROOM in reasons:
            pool_moves.wake.set()
        if done:
            log.info(
                "pool %s: %s",
                key,
                "; ".join(f"{move.vpod}: {move.sentence()}" for move in done[:20]),
                extra={"pool": key},
            )
            self._autoscaler.trigger(key)
        return done

    async def _look_at_load(self, key: str) -> LoadGoal | None:
        state = self._caches.state.pools.get(key)
        if self._load is None or state is None:
            return None
        return await self._load.look(state)

    def _plan(
        self,
        pool_moves: PoolMoves,
        state: PoolState,
        pool: AdapterPool,
        vpods: Sequence[str],
        load: LoadGoal | None,
    ) -> list[Move]:
        if pool_moves.waiting is None:
            pool_moves.waiting = self._waiting(pool_moves, state, pool)
        cooling = pool_moves.cooling(state, pool.move_cooldown_s, self._now())
        pool_moves.left_behind.look(state)
        limits = Limits(
            budget=pool.moves_per_period - pool_moves.spent,
            cooling=cooling,
            fixed=lambda key: pool_moves.refused(key) or not is_published(state, key),
        )
        advice = Advice(
            returns=lambda key, placements: pool_moves.left_behind.returns(
                state.vpods[key], placements
            ),
            vpods=[key for key in vpods if self._may_improve(state, key)],
            waiting=pool_moves.in_turn(pool_moves.waiting),
            load=_left_of(load, pool_moves.spent_for_load),
        )
        return plan_moves(state, limits, advice)

    def _waiting(self, pool_moves: PoolMoves, state: PoolState, pool: AdapterPool) -> list[str]:
        """Keys of the vpods for which room may be made. While pods on their way have room for all
        of them, they wait one period for these pods.
        """
        allows = partial(self._caches.state.selects, state.key)
        plan = plan_scale(state, allows) if state.vpods_with_pending else None
        waiting = waiting_without_growth(state, allows, plan) if plan is not None else []
        awaiting = waiting if plan is not None and awaits_pods(state, plan) else []
        now = asyncio.get_running_loop().time()
        waited = pool_moves.waited(awaiting, pool.scale_down_period_s, now)
        return waited if awaiting else waiting

    def _may_improve(self, state: PoolState, key: str) -> bool:
        vpod = state.vpods.get(key)
        return vpod is not None and self._caches.state.selects(state.key, vpod)

    async def _make(
        self, pool_moves: PoolMoves, state: PoolState, moves: Sequence[Move]
    ) -> list[Move]:
        if not moves:
            return []
        self._count_planned(moves)
        before = {
            move.vpod: (state.vpods[move.vpod], state.decided_of(move.vpod)) for move in moves
        }
        try:
            done = await self._mover.move(state.key, moves)
        except ApiError as error:
            log.warning(
                "pool %s: moves failed and are planned again: %s",
                state.key,
                error,
                extra={"pool": state.key},
            )
            done = []
        pool_moves.settle(moves, done, before, self._now())
        return done

    # -- reporting ---------------------------------------------------------------------------------

    def _count_planned(self, moves: Sequence[Move]) -> None:
        for move in moves:
            self._metrics.moves_planned.labels(str(move.reason)).inc(move.vreplicas)

    def _would_move(self, pool_moves: PoolMoves, state: PoolState, moves: list[Move]) -> None:
        """Dry run: report moves that have not been reported yet."""
        new = pool_moves.not_reported_yet(moves, state.vpods)
        self._count_planned(new)
        notes: dict[str, list[str]] = {}
        for move in new:
            notes.setdefault(move.vpod, []).append(move.sentence("would move"))
        for key, lines in notes.items():
            note = "; ".join(lines)
            log.info(
                "pool %s, dry run: %s: %s",
                state.key,
                key,
                note,
                extra={"pool": state.key, "vpod": key},
            )
            self._vpod_events.would_move(state.vpods[key], note)


def _left_of(load: LoadGoal | None, spent: int) -> LoadGoal | None:
    """What is left to balance after ``spent`` vreplicas have moved for it in this period."""
    return replace(load, budget=load.budget - spent, begun=spent > 0) if load is not None else None
