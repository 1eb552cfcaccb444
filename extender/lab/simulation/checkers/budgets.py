"""What compaction and policy may do: movesPerPeriod vreplicas a period, and no vpod moved again
within cooldownSeconds.

Both are told from outside, by what statuses tell. When a leader's periods begin is not: so the
budget is broken only where no periods at all, each as long as scaleDownPeriodSeconds or longer,
would make every one of them keep to it (``_Periods``). What a leader may not know excuses it: a
budget is one leader's, a new one begins with its own; a move whose status has got no answer counts
for nobody; a move whose ledgers were written one after the other is told in parts; limits of the
pool that were in force lately may still be what it goes by. Drains, lost ordinals, overcommitted
and abandoned pods are not limited, and dry run is ``MoveChecker._holds``'s.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

from extender.engine.rebalance.absence import epoch_s
from extender.lab.clock import wall_clock
from extender.lab.simulation.checkers.excuses import Circumstances
from extender.lab.simulation.world.facts import Pool, ReportedMove, VPod, in_force

LIMITED: Final = frozenset({"Compaction", "Policy"})
"""Reasons of moves that nobody waits for."""
WRITE_S: Final = 11.0
"""From when a ledger or a status is made up to when it may be stored, and a second for the fraction
that times leave out.
"""


@dataclass(frozen=True)
class Limits:
    """Of a pool: vreplicas a period, and seconds."""

    moves: int
    period_s: float
    cooldown_s: float


@dataclass
class _Periods:
    """One leader's periods of one pool, as far as they can be known: each way in which they may
    have gone so far.

    ``ways``: (when the present period began at the earliest, vreplicas moved in it).
    """

    ways: list[tuple[float, int]] = field(default_factory=lambda: [(-inf, 0)])
    last_s: float = -inf
    """When something was moved the last time: a period that begins after it may have begun at once.
    """
    unsure: int = 0

    def moved(self, at: float, count: int, limits: Limits) -> bool:
        """Take note of vreplicas that were moved; False where every way would have spent
        too much.
        """
        ways = [
            (began, spent + count) for began, spent in self.ways if spent + count <= limits.moves
        ]
        new = max(min(began for began, _ in self.ways) + limits.period_s, self.last_s)
        if new <= at and count <= limits.moves:
            ways.append((new, count))
        self.ways, self.last_s = ways or [(-inf, 0)], at
        return bool(ways)


class Budgets:
    """One run's moves by compaction and policy."""

    def __init__(self, clock: Callable[[], float], circumstances: Circumstances) -> None:
        self._clock = clock
        self._lasts_s = circumstances.excuse_s
        self._now_of = circumstances.now_of
        self._unsure = circumstances.unsure
        self._ledger_failed_at = circumstances.ledger_failed_at
        self._limits: dict[str, list[tuple[float, Limits]]] = {}
        self._periods: dict[tuple[str, str], _Periods] = {}
        self._changed_at = -inf
        self._ahead: dict[str, tuple[float, float]] = {}
        """Actor -> by how much its clock is ahead, and since when it is known to be."""

    def pool_changed(self, pool: Pool) -> None:
        """Its limits are these from now on."""
        limits = Limits(pool.moves_per_period, pool.period_s, pool.cooldown_s)
        self._limits.setdefault(pool.name, []).append((self._clock(), limits))

    def leader_changed(self) -> None:
        """Who leads from now on begins with a budget of its own."""
        self._periods.clear()
        self._changed_at = self._clock()

    def wrote(self, actor: str) -> None:
        """It is there, and shows its clock."""
        ahead = round(self._now_of(actor) - wall_clock(), 3)
        if self._ahead.setdefault(actor, (0.0, -inf))[0] != ahead:
            self._ahead[actor] = (ahead, self._clock())

    def problems(
        self, actor: str, pool: Pool, old: VPod, new: VPod, made: Sequence[ReportedMove]
    ) -> list[str]:
        """What is wrong with moves that a status has just told; ``made``: as far as they
        were made.
        """
        limited = [move for move in made if move.reason in LIMITED]
        if not limited or pool.name not in self._limits:
            return []
        found = self._too_soon(actor, pool, old, new, limited)
        at, count = self._clock(), sum(move.vreplicas for move in limited)
        if at - self._changed_at < self._lasts_s:
            # Begun under the leadership before, perhaps, and only told now: nobody has it in this
            # one's budget.
            return found
        periods = self._periods.setdefault((actor, pool.name), _Periods(unsure=self._unsure()))
        if periods.unsure != self._unsure():
            # What was spent before this is not known to the leader either.
            periods = self._periods[actor, pool.name] = _Periods(unsure=self._unsure())
        most = self._lately(pool)
        if not periods.moved(at, count, most):
            found.append(
                f"{actor} moved {count} more of {old.key} in a period of {pool.name} than {most}"
            )
        return found

    def _too_soon(
        self, actor: str, pool: Pool, old: VPod, new: VPod, limited: Sequence[ReportedMove]
    ) -> list[str]:
        """A vpod that its Moved condition says was moved just now, by the clock of who moves it."""
        _, jumped_at = self._ahead.get(actor, (0.0, -inf))
        if not old.moved[2] or self._clock() - jumped_at < self._lasts_s:
            return []
        ago = self._now_of(actor) - epoch_s(old.moved[2], 0.0)
        cooldown_s = self._lately(pool).cooldown_s
        if not 0.0 <= ago < cooldown_s or self._in_parts(actor, new, self._clock() - ago):
            return []
        return [
            f"{actor} moved {old.key} again after {ago:.1f} s, which is to be left in peace for "
            f"{cooldown_s:g} s: {move}"
            for move in limited
        ]

    def _in_parts(self, actor: str, new: VPod, told_at: float) -> bool:
        """Whether one move may have been told twice: what its first status could not tell, for a
        ledger was not written.
        """
        return any(
            self._ledger_failed_at(actor, name) >= told_at - WRITE_S for name in new.placements
        )

    def _lately(self, pool: Pool) -> Limits:
        """The loosest limits that a decision written now may have gone by."""
        lately = in_force(self._limits[pool.name], self._clock() - self._lasts_s)
        return Limits(
            max(limits.moves for limits in lately),
            min(limits.period_s for limits in lately),
            min(limits.cooldown_s for limits in lately),
        )
