"""I4: what leaves a pod has a reason that is told, and that the store knows of; compaction and policy keep to their limits."""

from collections.abc import Callable
from typing import Final

from extender.core.rebalance.absence import epoch_s
from extender.sim.faults import ACTOR
from extender.simulation.budgets import WRITE_S, Budgets
from extender.simulation.excuses import Excuses
from extender.simulation.facts import TOLD_CHARS_MAX, Told, VPod
from extender.simulation.settled import Stored

SPREADING: Final = frozenset({"spread", "ha", "pack"})
"""Profiles that may prefer another pod to the one where a vreplica is."""


class MoveChecker:
    """Looks at statuses as they are written. ``made`` counts vreplicas by reason."""

    def __init__(
        self,
        stored: Stored,
        excuses: Excuses,
        budgets: Budgets,
        *,
        now_of: Callable[[str], float],
        was_broken: Callable[[str], bool],
        violated: Callable[[str], None],
    ) -> None:
        """``was_broken``: whether a pod's ledger was wrong by somebody else's doing lately."""
        self._stored = stored
        self._excuses = excuses
        self._budgets = budgets
        self._now_of = now_of
        self._was_broken = was_broken
        self._violated = violated
        self.made: dict[str, int] = {}

    def check(self, old: VPod, new: VPod, *, was_edited: bool) -> None:
        """What leaves a pod is told with a reason that holds, or the vpod has fewer vreplicas to place."""
        fewer = max(0, old.total - new.wanted)
        # Two moves may be told in the same words within one second; a write is under way for so long at the most.
        fresh = (
            new.moved != old.moved or abs(epoch_s(new.moved[2], 0.0) - self._now_of(ACTOR.get())) <= WRITE_S
        )
        told = new.told if fresh else []
        cut = fresh and len(new.moved[1]) >= TOLD_CHARS_MAX
        excused = cut or was_edited or self._excuses.holds(f"weight {new.key}")
        made: list[Told] = []
        for name, count in old.placements.items():
            left = count - new.placements.get(name, 0)
            if left <= 0:
                continue
            for move in (move for move in told if move.from_pod == name):
                made.append(move._replace(vreplicas=min(left, move.vreplicas)))
                self.made[move.reason] = self.made.get(move.reason, 0) + made[-1].vreplicas
                left -= made[-1].vreplicas
                if not self._holds(move, new, was_edited=was_edited):
                    self._violated(f"I4: {new.key} was moved, and {move} is not why")
            by_fewer = min(left, fewer)
            fewer, left = fewer - by_fewer, left - by_fewer
            if left and not excused:
                self._violated(
                    f"I4: {ACTOR.get()} took {left} of {new.key} (wants {new.wanted}) off {name} and told no "
                    f"reason: {dict(old.placements)} became {dict(new.placements)}, {new.moved}"
                )
        if new.moved == old.moved:
            return  # told before: what leaves now may be what is not wanted any more
        for problem in self._budgets.problems(ACTOR.get(), self._stored.pool_of(new), old, new, made):
            self._violated(f"I4: {problem}")

    def _holds(self, move: Told, vpod: VPod, *, was_edited: bool) -> bool:
        """Whether a move's reason is true, or was when it may have been decided."""
        name, holds = move.from_pod, self._excuses.holds
        pool, pod = self._stored.pool_of(vpod), self._stored.pods.get(move.from_pod)
        moving = not pool.dry_run or holds(f"moving {pool.name}")
        by_reason: dict[str, bool] = {
            "Drain": (pod is not None and pod.marked) or holds(f"marked {name}"),
            "OrdinalGone": name not in pool.names or holds(f"gone {name}") or holds(f"pool {vpod.key}"),
            "Overcommit": (
                self._was_broken(name)
                or was_edited
                or holds(f"weight {vpod.key}")
                or holds(f"slots {pool.name}")
            ),
            "Reschedule": pool.reschedule or holds(f"reschedule {pool.name}"),
            "Compaction": moving and _ordinal(move.to_pod) < _ordinal(name),
            "Policy": moving and (pool.profile in SPREADING or holds(f"profile {pool.name}")),
        }
        return by_reason.get(move.reason, False)


def _ordinal(pod_name: str) -> int:
    """Of a pod's name; a high one where there is none."""
    digits = pod_name.rpartition("-")[2]
    return int(digits) if digits.isdigit() else 2**31
