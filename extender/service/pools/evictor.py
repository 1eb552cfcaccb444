"""``Evictor``: the leader's loop that moves vreplicas, period by period (DESIGN 5.5).

Each pool has one task. Each period (scaleDownPeriodSeconds), or when triggered, ``plan_moves`` says
what should move where. The mover, which is the placer, makes those moves that are still possible,
between two of its batches. Each pool sets the limits:

- *budget*: at most movesPerPeriod vreplicas per period, however often the pool is looked at;
- *cool-down*: compaction and policy do not move a vpod that was moved less than cooldownSeconds
  ago. The ``Moved`` condition has the time, so a new leader knows it too. For objects of foreign
  kinds without a place for conditions, the time is only in memory;
- *dryRun*: moves are planned, counted and reported (event ``WouldMove``), but not made.

The autoscaler closes the ordinals that it wants to remove. The evictor triggers it after a move. A
move that the mover refuses is left out the next time, so that it does not use up the budget each
time. A plan never awaits. So policy examines some vpods at a time, and the extender's verbs answer
in between.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from extender.engine.rebalance.moves import Advice, Limits, plan_moves
from extender.engine.rebalance.relocation import is_published
from extender.engine.state.pool_state import PoolState
from extender.kube.api import ApiError
from extender.model.bucket import WHOLE, Bucket
from extender.model.moves import Move
from extender.model.objects import AdapterPool
from extender.service.placing.placer import ScaleTrigger
from extender.service.placing.vpod_events import VPodEvents
from extender.service.pools.pool_moves import PoolMoves
from extender.service.watching.caches import Caches
from extender.telemetry.metrics import Metrics

log: Final = logging.getLogger(__name__)


class Mover(Protocol):
    """Carries out moves, for one task per pool."""

    async def move(self, pool: str, moves: Sequence[Move]) -> list[Move]:
        """Make those moves of a pool that are still possible. Return those that were written,
        perhaps with fewer vreplicas.

        Does not overlap with the pool's placing. Order of writes: destination ledger, status,
        source ledger.
        """
        ...


class Evictor:
    """Moves vreplicas until cancelled. ``now``: epoch seconds."""

    def __init__(
        self,
        caches: Caches,
        mover: Mover,
        autoscaler: ScaleTrigger,
        *,
        vpod_events: VPodEvents,
        metrics: Metrics,
        now: Callable[[], float],
    ) -> None:
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
        if (known := self._pools.get(pool)) is not None:
            known.wake.set()

    # -- the loop ----------------------------------------------------------------------------------

    async def run(self, bucket: Bucket = WHOLE) -> None:
        """Move vreplicas in the bucket's pools until cancelled. A new leader waits one period, so
        that placing comes first.
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

    async def _run_pool(self, key: str) -> None:
        known = self._pools[key]
        clock = asyncio.get_running_loop().time
        known.begin_period(clock())
        while (pool := self._caches.pools.get(key)) is not None:
            due = known.period_began + pool.scale_down_period_s
            try:
                async with asyncio.timeout_at(due):
                    await known.wake.wait()
            except TimeoutError:
                pass
            known.wake.clear()
            # Checked after every wake-up: frequent triggers must not prolong a period.
            if clock() >= due:
                known.begin_period(clock())
            await self.rebalance(key)
        del self._pools[key]
        self._changed.set()  # the pool may be back already

    async def rebalance(self, key: str) -> list[Move]:
        """Plan the pool's moves with the rest of the period's budget, and make them. Return those
        that were made.
        """
        known = self._pools.setdefault(key, PoolMoves())
        known.begin_look()
        state = self._caches.state.pools.get(key)
        done: list[Move] = []
        for vpods in known.turns(state) if state is not None else ():
            pool = state.adapter_pool if state is not None else None
            if state is None or pool is None or pool.deleting or state.stateful_set is None:
                break
            if known.spent >= pool.moves_per_period:
                break
            moves = self._plan(known, state, pool, vpods)
            if pool.move_dry_run:
                self._would_move(known, state, moves)
            else:
                known.end_dry_run()
                done += await self._make(known, state, moves)
            await asyncio.sleep(0)
            state = self._caches.state.pools.get(key)
        if done:
            log.info(
                "pool %s: %s",
                key,
                "; ".join(f"{move.vpod}: {move.sentence()}" for move in done[:20]),
                extra={"pool": key},
            )
            self._autoscaler.trigger(key)
        return done

    def _plan(
        self, known: PoolMoves, state: PoolState, pool: AdapterPool, vpods: Sequence[str]
    ) -> list[Move]:
        cooling = known.cooling(state, pool.move_cooldown_s, self._now())
        known.left_behind.look(state)
        limits = Limits(
            budget=pool.moves_per_period - known.spent,
            cooling=cooling,
            fixed=lambda key: known.refused(key) or not is_published(state, key),
        )
        advice = Advice(
            returns=lambda key, placements: known.left_behind.returns(state.vpods[key], placements),
            vpods=[key for key in vpods if self._may_improve(state, key)],
        )
        return plan_moves(state, limits, advice)

    def _may_improve(self, state: PoolState, key: str) -> bool:
        vpod = state.vpods.get(key)
        return vpod is not None and self._caches.state.selects(state.key, vpod)

    async def _make(self, known: PoolMoves, state: PoolState, moves: Sequence[Move]) -> list[Move]:
        if not moves:
            return []
        self._count_planned(moves)
        before = {move.vpod: (state.vpods[move.vpod], state.placed_of(move.vpod)) for move in moves}
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
        known.settle(moves, done, before, self._now())
        return done

    # -- reporting ---------------------------------------------------------------------------------

    def _count_planned(self, moves: Sequence[Move]) -> None:
        for move in moves:
            self._metrics.moves_planned.labels(str(move.reason)).inc(move.vreplicas)

    def _would_move(self, known: PoolMoves, state: PoolState, moves: list[Move]) -> None:
        """Dry run: report moves that have not been reported yet."""
        new = known.not_reported_yet(moves, state.vpods)
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
