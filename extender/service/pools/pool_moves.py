"""``PoolMoves``: what the evictor remembers of one pool from plan to plan."""

import asyncio
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from extender.engine.rebalance.moves import SWAPS_TRIED_MAX
from extender.engine.rebalance.repetition import LeftBehind
from extender.engine.state.pool_state import PoolState
from extender.model.moves import Move, MoveReason
from extender.model.objects import VPod
from extender.model.timestamps import epoch_s
from extender.service.placing.vpod_status import MOVED

SLICE_VPODS: Final = 50
"""vpods examined without a pause: some tens of milliseconds for a profile with many plugins."""
POLICY_PLANS_MAX: Final = 20
"""Plans in one look. The next look continues where it ended."""
REPORTED_MAX: Final = 10_000


class PoolMoves:
    """One per pool, used only by the pool's task."""

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        self.period_began = 0.0
        self.spent = 0
        """vreplicas moved in this period, or reported in a dry run."""
        self.spent_for_load = 0
        """Those of them with the reason Load."""
        self.load_due = False
        """Whether to look at load: once in each period, and again after moves for load."""
        self.waiting: Sequence[str] | None = None
        """Keys of the vpods for which this look may make room; None: not asked yet. Asking sizes
        the pool. What has got a place meanwhile is passed over, and what is new waits for the next
        look.
        """
        self._waits_since: dict[str, float] = {}
        """Key of a vpod -> since when it waits for pods on their way, by the event loop's time."""
        self.left_behind = LeftBehind()
        self._moved_at: dict[str, tuple[str, float]] = {}
        """Key of a vpod -> its UID, and when it was moved."""
        self._refused: tuple[set[str], set[str]] = (set(), set())
        """vpods that the mover refused to move: in this look, and in the last one."""
        self._reported: set[Move] = set()
        self._next_vpod = 0
        self._next_waiting = 0
        self._tried = 0
        """Waiting vpods for which this look has tried to make room."""
        self._turn = 0

    def begin_period(self, at: float) -> None:
        """Begin a period with a new budget. ``at``: the event loop's time, seconds."""
        self.period_began = at
        self.spent = self.spent_for_load = 0

    def begin_look(self) -> None:
        """Skip the vpods that were refused in the last look, and try again those that were skipped
        in it. Ask again which ones wait.
        """
        self.waiting = None
        self._tried = 0
        self._refused = (set(), self._refused[0])

    def waited(self, awaiting: Sequence[str], period_s: float, now: float) -> list[str]:
        """Of the vpods that wait for pods on their way now, those that have done so for a period.

        Such a pod has room for them without a move. But it may never come, for example because
        there is no machine for it.
        """
        self._waits_since = {key: self._waits_since.get(key, now) for key in awaiting}
        return [key for key in awaiting if now - self._waits_since[key] >= period_s]

    def refused(self, key: str) -> bool:
        """Whether the mover refused to move this vpod in this look or the last one."""
        return any(key in refused for refused in self._refused)

    def settle(
        self,
        planned: Sequence[Move],
        done: Sequence[Move],
        before: Mapping[str, tuple[VPod, Mapping[str, int]]],
        now: float,
    ) -> None:
        """Record what became of a plan. ``before``: its vpods, with their placements before it.

        The budget is charged for the whole plan: placing may finish a move that was only begun, or
        that had no reply (seed 131001924).
        """
        self._spend(planned)
        moved = {move.vpod for move in done}
        self._refused[0].update({move.vpod for move in planned} - moved)
        for key in moved:
            self._moved_at[key] = (before[key][0].uid, now)
            self.left_behind.leave(*before[key])

    def not_reported_yet(self, moves: Sequence[Move], vpods: Container[str]) -> list[Move]:
        """The moves that a dry run has not reported yet. They count as reported from now on. A dry
        run moves nothing, so it plans the same moves again and again.

        ``vpods``: those that exist.
        """
        self._reported = {move for move in self._reported if move.vpod in vpods}
        new = [move for move in moves if move not in self._reported]
        if len(self._reported) + len(new) > REPORTED_MAX:
            self._reported.clear()
        self._reported.update(new)
        self._spend(new)
        return new

    def _spend(self, moves: Sequence[Move]) -> None:
        for move in moves:
            self.spent += move.vreplicas
            self.spent_for_load += move.vreplicas if move.reason is MoveReason.LOAD else 0

    def end_dry_run(self) -> None:
        """The dry run is over: the next one reports everything again."""
        self._reported.clear()

    def cooling(self, state: PoolState, cooldown_s: int, now: float) -> Callable[[str], bool]:
        """Return a function that says whether a vpod was moved less than ``cooldown_s`` ago. The
        leader that recorded the move may have a clock slightly ahead of this one.
        """
        self._moved_at = {
            key: moved for key, moved in self._moved_at.items() if abs(now - moved[1]) < cooldown_s
        }

        def is_cooling(key: str) -> bool:
            vpod = state.vpods.get(key)
            uid, _ = self._moved_at.get(key, (None, 0.0))
            if uid is not None and (vpod is None or vpod.uid == uid):
                return True
            at = _moved_at(vpod) if vpod is not None else None
            return at is not None and abs(now - at) < cooldown_s

        return is_cooling

    def in_turn(self, waiting: Sequence[str]) -> Iterator[str]:
        """The waiting vpods, from the first one on to which the last plan has not come: a plan has
        time for a few of them. It takes only those that it tries. One look tries each of them once.
        """
        while self._tried < len(waiting):
            self._next_waiting %= len(waiting)
            yield waiting[self._next_waiting]
            self._next_waiting += 1
            self._tried += 1

    def turns(self, state: PoolState) -> Iterator[list[str]]:
        """The vpods that policy examines in each plan of a look. For a profile without plugins, one
        plan with none.
        """
        count = len(state.vpods) if state.profile.has_plugins else 0
        for _ in range(max(1, min(POLICY_PLANS_MAX, -(-count // SLICE_VPODS)))):
            yield self._next_vpods(state) if count else []

    def _next_vpods(self, state: PoolState) -> list[str]:
        if self._next_vpod >= len(state.vpods):
            self._next_vpod, self._turn = 0, self._turn + 1
        keys = list(islice(state.vpods, self._next_vpod, self._next_vpod + SLICE_VPODS))
        self._next_vpod += len(keys)
        # A plan tries swaps for its first vpods only. Each turn these are others.
        start = self._turn * SWAPS_TRIED_MAX % max(1, len(keys))
        return [*keys[start:], *keys[:start]]


def _moved_at(vpod: VPod) -> float | None:
    """When the vpod was moved, by its Moved condition, in epoch seconds. None for never or
    unreadable.
    """
    for condition in vpod.conditions:
        if condition.type == MOVED:
            at = epoch_s(condition.last_transition_time, -1.0)
            return at if at >= 0 else None
    return None
