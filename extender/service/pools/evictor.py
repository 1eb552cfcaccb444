"""``Evictor``: each pool's moves, period by period (DESIGN 5.5). The leader's.

One task a pool. Each period (scaleDownPeriodSeconds), or when triggered, ``plan_moves`` says what
should go where; the mover (the placer, in between two of its batches) carries out what is still
possible. The limits are the pool's:

- *budget*: movesPerPeriod vreplicas a period, however often the pool is looked at in it;
- *cool-down*: a vpod that was moved less than cooldownSeconds ago is left in peace by compaction
  and policy. When it was moved is in its ``Moved`` condition, so a new leader knows it too; objects
  of foreign kinds have no such condition, for them it is in memory only;
- *dryRun*: moves are planned, counted and told (event ``WouldMove``), and nothing is written.

The autoscaler closes the ordinals that it wants to remove, and is triggered once something was
moved. A move that the mover refuses is left out the next time: it may not hold the budget for ever.
A plan never awaits, so policy looks at some vpods at a time, and the extender's verbs are answered
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
    """Carries out moves. Called by one task a pool; what it undoes, and how, is its own
    business.
    """

    async def move(self, pool: str, moves: Sequence[Move]) -> list[Move]:
        """Make these moves of a pool as far as they are still possible; those that were written,
        perhaps smaller.

        Serialised with the pool's placing. Order of writes: destination ledger, status, source
        ledger.
        """
        ...


class Evictor:
    """Moves until cancelled. ``now``: epoch seconds."""

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
        """It came or went, or its period or its limits are others now."""
        pool = new or old
        if pool is not None and (old is None or new is None or old.generation != new.generation):
            self._changed.set()
            self.trigger(pool.key)

    def trigger(self, pool: str) -> None:
        """Look at this pool now: there may be something to move. The budget stays a period's."""
        if (known := self._pools.get(pool)) is not None:
            known.wake.set()

    # -- the loop ----------------------------------------------------------------------------------

    async def run(self, bucket: Bucket = WHOLE) -> None:
        """Move in a bucket's pools until cancelled. A new leader waits one period first: placing
        has the first word.
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
            # However it woke: triggers, one after the other, must not make a period endless.
            if clock() >= due:
                known.begin_period(clock())
            await self.rebalance(key)
        del self._pools[key]
        self._changed.set()  # it may be back already

    async def rebalance(self, key: str) -> list[Move]:
        """Plan this pool's moves with what is left of the period's budget, and have them made;
        those that were.
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
                known.forget_told()
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

    # -- telling -----------------------------------------------------------------------------------

    def _count_planned(self, moves: Sequence[Move]) -> None:
        for move in moves:
            self._metrics.moves_planned.labels(str(move.reason)).inc(move.vreplicas)

    def _would_move(self, known: PoolMoves, state: PoolState, moves: list[Move]) -> None:
        """Dry run: tell what has not been told yet."""
        new = known.unreported_moves(moves, state.vpods)
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
