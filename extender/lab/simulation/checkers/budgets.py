"""The limits of moves that can wait (for compaction, to make room, for load, by policy): at most
movesPerPeriod vreplicas in a period, at most 9 % of the pool's vreplicas for load, and no second
move of a vpod within cooldownSeconds.

The checker sees only what statuses report. They do not show when a leader's periods begin. So it
reports a violation only if no choice of periods, each at least scaleDownPeriodSeconds long, keeps
every period within the limit (``_possible``).

A leader is excused for what it may not know. Each leader has its own budget, and a new leader
begins with a full one. A move whose status write got no answer does not count. A move whose ledgers
were written one after the other is reported in parts, and so is one that adapters hand over. A
decision may follow limits that the pool had until lately.

Moves for other reasons have no limit. ``MoveChecker._holds`` checks dry run.
"""

from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from operator import itemgetter
from typing import Final

from extender.lab.clock import wall_clock
from extender.lab.simulation.checkers.excuses import Circumstances
from extender.lab.simulation.world.facts import Pod, Pool, ReportedMove, VPod, in_force
from extender.model.timestamps import epoch_s

LIMITED: Final = frozenset({"Compaction", "MakeRoom", "Load", "Policy"})
"""The reasons of moves that are not urgent."""
FOR_LOAD: Final = "Load"
LOAD_PART: Final = 0.09
"""The part of a pool's vreplicas that may move for load in a period; one always may."""
WRITE_S: Final = 11.0
"""The time from the decision on a ledger or status until it may be stored, plus 1 s for the
fraction that timestamps omit.
"""
FRACTION_S: Final = 1.0
"""Timestamps have whole seconds."""


@dataclass(frozen=True)
class Limits:
    """A pool's limits for moves that can wait."""

    moves: int
    period_s: float
    cooldown_s: float


@dataclass
class _Periods:
    """The periods of one leader and one pool. ``moves``: when vreplicas were moved, how many, and
    the limits then; in the order of time.
    """

    moves: list[tuple[float, int, Limits]] = field(default_factory=list)
    unsure: int = 0

    def moved(self, at: float, count: int, limits: Limits) -> bool:
        """Record moved vreplicas. Return False if they exceed the limit in every possibility."""
        insort(self.moves, (at, count, limits), key=itemgetter(0))
        possible = _possible(self.moves)
        if not possible:
            self.moves = []
        return possible


def _possible(moves: Iterable[tuple[float, int, Limits]]) -> bool:
    """Whether some choice of periods keeps each within its limit. The checker cannot see when they
    began, so it keeps all possibilities.

    ``ways``: one (earliest begin of the current period, vreplicas moved in it) for each
    possibility. A new period can begin when vreplicas were last moved, at the earliest.
    """
    ways, last_s = [(-inf, 0)], -inf
    for at, count, limits in moves:
        new = max(min(began for began, _ in ways) + limits.period_s, last_s)
        ways = [(began, spent + count) for began, spent in ways if spent + count <= limits.moves]
        if new <= at and count <= limits.moves:
            ways.append((new, count))
        if not ways:
            return False
        last_s = at
    return True


class Budgets:
    """All moves of one run that can wait."""

    def __init__(self, clock: Callable[[], float], circumstances: Circumstances) -> None:
        self._clock = clock
        self._lasts_s = circumstances.excuse_s
        self._now_of = circumstances.now_of
        self._unsure = circumstances.unsure
        self._failed_at = circumstances.failed_at
        self._limits: dict[str, list[tuple[float, Limits]]] = {}
        self._periods: dict[tuple[str, str, str], _Periods] = {}
        """By actor, pool and reason: ``FOR_LOAD``, or "" for all reasons together."""
        self._placed: dict[str, list[tuple[float, int]]] = {}
        """Pool -> its placed vreplicas, each with the time since when there were so many."""
        self._grew: dict[str, dict[str, tuple[int, float]]] = {}
        """Pod -> vpod -> the vreplicas in its ledger, and when they last became more."""
        self._changed_at = -inf
        self._ahead: dict[str, tuple[float, float]] = {}
        """Actor -> by how much its clock is ahead, and since when this is known."""

    def pool_changed(self, pool: Pool) -> None:
        """Record the pool's limits."""
        limits = Limits(pool.moves_per_period, pool.period_s, pool.cooldown_s)
        self._limits.setdefault(pool.name, []).append((self._clock(), limits))

    def pod_seen(self, pod: Pod) -> None:
        """Record which shares of the pod's ledger have grown."""
        before = self._grew.get(pod.name, {})
        self._grew[pod.name] = {
            vpod: before[vpod]
            if vpod in before and before[vpod][0] == count
            else (
                count,
                self._clock() if count > before.get(vpod, (0, 0.0))[0] else before[vpod][1],
            )
            for vpod, (count, _) in (pod.ledger or {}).items()
        }

    def placed(self, pool: Pool, vreplicas: int) -> None:
        """Record how many vreplicas of the pool are placed."""
        seen = self._placed.setdefault(pool.name, [])
        if not seen or seen[-1][1] != vreplicas:
            seen.append((self._clock(), vreplicas))

    def leader_changed(self) -> None:
        """A new leader begins with its own budget."""
        self._periods.clear()
        self._changed_at = self._clock()

    def wrote(self, actor: str) -> None:
        """Record the difference of the writer's clock."""
        ahead = round(self._now_of(actor) - wall_clock(), 3)
        if self._ahead.setdefault(actor, (0.0, -inf))[0] != ahead:
            self._ahead[actor] = (ahead, self._clock())

    def problems(
        self, actor: str, pool: Pool, old: VPod, new: VPod, made: Sequence[ReportedMove]
    ) -> list[str]:
        """Return what is wrong with the moves that a status has just reported. ``made`` are the
        moves with the vreplicas that have really left.
        """
        limited = [move for move in made if move.reason in LIMITED]
        if not limited or pool.name not in self._limits:
            return []
        found = self._too_soon(actor, pool, old, new, limited)
        if self._clock() - self._changed_at < self._lasts_s:
            # The move may have begun under the former leader, whose budget counts then.
            return found
        most = self._lately(pool)
        found += [
            f"{actor} moved {count} more of {old.key} in a period of {pool.name} than {most}"
            for count in self._too_many(actor, pool, new, limited, most)
        ]
        for_load = [move for move in limited if move.reason == FOR_LOAD]
        most = replace(most, moves=self._most_for_load(pool, most))
        found += [
            f"{actor} moved {count} more of {old.key} for load in a period of {pool.name} than "
            f"{most}"
            for count in self._too_many(actor, pool, new, for_load, most, FOR_LOAD)
        ]
        return found

    def _too_many(
        self,
        actor: str,
        pool: Pool,
        vpod: VPod,
        moves: Sequence[ReportedMove],
        most: Limits,
        reason: str = "",
    ) -> list[int]:
        """Record moved vreplicas. Return the numbers that exceed the limit."""
        key = (actor, pool.name, reason)
        periods = self._periods.setdefault(key, _Periods(unsure=self._unsure()))
        if periods.unsure != self._unsure():
            # After a write without an answer, the leader may not know what it has spent.
            periods = self._periods[key] = _Periods(unsure=self._unsure())
        since = self._clock() - WRITE_S
        if any(self._failed_at(actor, "pods", move.to_pod) >= since for move in moves):
            # Ledgers were written late. So nobody knows in which period the moves were decided, nor
            # when the next one began (seed 590003235).
            self._periods[key] = _Periods(unsure=self._unsure())
            return []
        at_once: dict[float, int] = {}
        for move in moves:
            at = self._decided_at(pool, move, vpod)
            at_once[at] = at_once.get(at, 0) + move.vreplicas
        return [count for at, count in at_once.items() if not periods.moved(at, count, most)]

    def _decided_at(self, pool: Pool, move: ReportedMove, vpod: VPod) -> float:
        """When a move was decided. If adapters hand it over, it is published long after its new pod
        has it in the ledger, and maybe after a move that was decided later.
        """
        now = self._clock()
        if not pool.hands_over:
            return now
        return min(now, self._grew_at(move, vpod))

    def _grew_at(self, move: ReportedMove, vpod: VPod) -> float:
        """When the vpod's share in the ledger of a move's new pod last grew."""
        return self._grew.get(move.to_pod, {}).get(vpod.key, (0, inf))[1]

    def _most_for_load(self, pool: Pool, limits: Limits) -> int:
        """Return the limit for load. The leader may have counted vreplicas when the period began,
        as they were a while before.
        """
        since = self._clock() - self._lasts_s - max(self._period_s(pool), limits.period_s)
        return max(1, int(LOAD_PART * max(in_force(self._placed.get(pool.name, []), since) or [0])))

    def _period_s(self, pool: Pool) -> float:
        """Return the longest period lately."""
        lately = in_force(self._limits[pool.name], self._clock() - self._lasts_s)
        return max(limits.period_s for limits in lately)

    def _too_soon(
        self, actor: str, pool: Pool, old: VPod, new: VPod, limited: Sequence[ReportedMove]
    ) -> list[str]:
        """Report a vpod that was moved too soon after the last move in its Moved condition, by the
        clock of the mover.
        """
        _, jumped_at = self._ahead.get(actor, (0.0, -inf))
        if not old.moved[2] or self._clock() - jumped_at < self._lasts_s:
            return []
        ago = self._now_of(actor) - epoch_s(old.moved[2], 0.0)
        cooldown_s = self._lately(pool).cooldown_s
        told_at = self._clock() - ago
        if not 0.0 <= ago < cooldown_s or self._in_parts(actor, new, told_at):
            return []
        if pool.hands_over:
            limited = [move for move in limited if not self._began(move, new, told_at)]
        return [
            f"{actor} moved {old.key} again after {ago:.1f} s, which is to be left in peace for "
            f"{cooldown_s:g} s: {move}"
            for move in limited
        ]

    def _in_parts(self, actor: str, new: VPod, told_at: float) -> bool:
        """Return whether this may be the second part of one move: the first status could not report
        all of it, because a ledger was not written.
        """
        return any(
            self._failed_at(actor, "pods", name) >= told_at - WRITE_S for name in new.placements
        )

    def _began(self, move: ReportedMove, vpod: VPod, told_at: float) -> bool:
        """Return whether a move's destination had its vreplicas in the ledger at this time already.
        Then one decision has made the move and the one that was told at that time: its parts are
        published as adapters get ready for them.
        """
        return self._grew_at(move, vpod) <= told_at + FRACTION_S

    def _lately(self, pool: Pool) -> Limits:
        """Return the loosest limits that a decision written now may have followed."""
        lately = in_force(self._limits[pool.name], self._clock() - self._lasts_s)
        return Limits(
            max(limits.moves for limits in lately),
            min(limits.period_s for limits in lately),
            min(limits.cooldown_s for limits in lately),
        )
