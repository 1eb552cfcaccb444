"""``PoolMoves``: what the evictor remembers of one pool, from one plan to the next."""

import asyncio
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from extender.engine.rebalance.absence import epoch_s
from extender.engine.rebalance.repetition import LeftBehind
from extender.engine.state.pool_state import PoolState
from extender.model.moves import Move
from extender.model.objects import VPod
from extender.service.placing.vpod_status import MOVED

POLICY_VPODS_A_PLAN: Final = 50
"""Looked at in one go, in which nothing else runs: some tens of milliseconds for a profile of many
plugins.
"""
POLICY_PLANS_MAX: Final = 20
"""Of one period; the next goes on where it ended."""
TOLD_MAX: Final = 10_000


class PoolMoves:
    """Not shared: one a pool, used by its task only."""

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        self.period_began = 0.0
        self.spent = 0
        """vreplicas moved in this period, or told in a dry run."""
        self.left_behind = LeftBehind()
        self._moved_at: dict[str, float] = {}
        self._refused: tuple[set[str], set[str]] = (set(), set())
        """vpods of which moves were not made, this time and last time."""
        self._told: set[Move] = set()
        self._next_vpod = 0

    def begin_period(self, at: float) -> None:
        """A new budget. ``at``: the loop's time."""
        self.period_began = at
        self.spent = 0

    def begin_look(self) -> None:
        """What was refused last time is left out this time; what was left out has another try."""
        self._refused = (set(), self._refused[0])

    def refused(self, key: str) -> bool:
        """Whether the mover has just refused to move this vpod."""
        return any(key in refused for refused in self._refused)

    def settle(
        self,
        planned: Sequence[Move],
        done: Sequence[Move],
        before: Mapping[str, tuple[VPod, Mapping[str, int]]],
        now: float,
    ) -> None:
        """Take note of what became of a plan. ``before``: the vpods of the plan with their
        placements before it.

        All of it is spent: what was begun and not finished, or finished without an answer, placing
        may finish (seed 131001924).
        """
        self.spent += sum(move.vreplicas for move in planned)
        moved = {move.vpod for move in done}
        self._refused[0].update({move.vpod for move in planned} - moved)
        for key in moved:
            self._moved_at[key] = now
            self.left_behind.leave(*before[key])

    def unreported_moves(self, moves: Sequence[Move], vpods: Container[str]) -> list[Move]:
        """A dry run plans the same again and again, since nothing is moved: what has not been told.
        It is now.

        ``vpods``: those that there are.
        """
        self._told = {move for move in self._told if move.vpod in vpods}
        new = [move for move in moves if move not in self._told]
        if len(self._told) + len(new) > TOLD_MAX:
            self._told.clear()
        self._told.update(new)
        self.spent += sum(move.vreplicas for move in new)
        return new

    def forget_told(self) -> None:
        """The dry run is over: the next one tells all again."""
        self._told.clear()

    def cooling(self, state: PoolState, cooldown_s: int, now: float) -> Callable[[str], bool]:
        """Whether a vpod was moved less than ``cooldown_s`` ago; also one stamped by a clock a
        little ahead of ours.
        """
        self._moved_at = {
            key: at for key, at in self._moved_at.items() if abs(now - at) < cooldown_s
        }

        def is_cooling(key: str) -> bool:
            if key in self._moved_at:
                return True
            vpod = state.vpods.get(key)
            at = _moved_at(vpod) if vpod is not None else None
            return at is not None and abs(now - at) < cooldown_s

        return is_cooling

    def turns(self, state: PoolState) -> Iterator[list[str]]:
        """The vpods that policy looks at in each plan of a look; one plan without any for a profile
        without plugins.
        """
        count = len(state.vpods) if state.profile.has_plugins else 0
        for _ in range(max(1, min(POLICY_PLANS_MAX, -(-count // POLICY_VPODS_A_PLAN)))):
            yield self._next_vpods(state) if count else []

    def _next_vpods(self, state: PoolState) -> list[str]:
        if self._next_vpod >= len(state.vpods):
            self._next_vpod = 0
        keys = list(islice(state.vpods, self._next_vpod, self._next_vpod + POLICY_VPODS_A_PLAN))
        self._next_vpod += len(keys)
        return keys


def _moved_at(vpod: VPod) -> float | None:
    """When the vpod's Moved condition says that it was moved, in epoch seconds; None for never, or
    unreadable.
    """
    for condition in vpod.conditions:
        if condition.type == MOVED:
            at = epoch_s(condition.last_transition_time, -1.0)
            return at if at >= 0 else None
    return None
