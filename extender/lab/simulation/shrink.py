"""Shortens a failing trial: fewer kinds of faults, then fewer events, as long as it fails in the
same way.

The method is delta debugging (ddmin): leave out halves, then quarters, and so on. Each event and
each kind has its own dice, and events have fixed numbers. So the remaining events draw the same
values. They may still have another effect, because the world differs. If a shorter trial then does
not fail, it is not used.
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final

from extender.lab.simulation.run import Outcome, Trial, simulate
from extender.lab.simulation.world.profile import ALL_KINDS

TRIALS_MAX: Final = 150
_KINDS: Final = (
    "I1",
    "I2",
    "I3",
    "I4",
    "I5",
    "not settled",
    "not scaled down",
    "settled, and then not",
    "still writing",
)

Run = Callable[[Trial], Outcome]


def kind_of(problem: str) -> str:
    """Return the kind of a problem, such as the invariant; "" for any other."""
    return next((kind for kind in _KINDS if f"{kind}:" in problem or problem.startswith(kind)), "")


def shrink(trial: Trial, *, run: Run = simulate, trials_max: int = TRIALS_MAX) -> Outcome | None:
    """Return the outcome of the shortest trial found that fails in the same way; None if the trial
    passes. ``Outcome.trial`` is that trial.
    """
    return _Shrinking(run, trials_max).shrink(trial)


class _Shrinking:
    def __init__(self, run: Run, trials_max: int) -> None:
        self._run = run
        self._left = trials_max
        self._wanted = ""

    def shrink(self, trial: Trial) -> Outcome | None:
        best = self._run(trial)
        if best.passed:
            return None
        self._wanted = kind_of(best.problems[0])
        # Fix the numbers of the events first. Otherwise a new event would replace one that has no
        # effect without a kind.
        events = range(best.tried) if trial.only is None else sorted(trial.only)
        best = self._fails(replace(trial, only=frozenset(events))) or best
        kinds = frozenset(best.faults) if trial.faults is None else trial.faults
        if (found := self._fails(replace(best.trial, faults=kinds))) is None:
            # A kind that never occurred matters too, because the network's dice are rolled for all
            # kinds.
            kinds = frozenset(kind.name for kind in ALL_KINDS)
            found = self._fails(replace(best.trial, faults=kinds)) or best
        best = self._fewer(found, sorted(kinds), _with_faults)
        return self._fewer(best, list(events), _with_events)

    def _fewer(
        self,
        best: Outcome,
        items: list[str] | list[int],
        take: Callable[[Trial, Collection[object]], Trial],
    ) -> Outcome:
        """Run ddmin over ``items``: leave out smaller and smaller parts."""
        kept: list[object] = list(items)
        size = max(1, len(kept) // 2)
        while kept and self._left > 0:
            start, shorter = 0, False
            while start < len(kept):
                rest = kept[:start] + kept[start + size :]
                outcome = self._fails(take(best.trial, rest))
                if outcome is None:
                    start += size
                else:
                    best, kept, shorter = outcome, rest, True
            if size == 1 and not shorter:
                break
            size = max(1, size // 2)
        return best

    def _fails(self, trial: Trial) -> Outcome | None:
        """Run the trial. Return its outcome if it fails in the same way and a run is left."""
        if self._left <= 0:
            return None
        self._left -= 1
        outcome = self._run(trial)
        return outcome if any(kind_of(p) == self._wanted for p in outcome.problems) else None


def _with_faults(trial: Trial, kinds: Collection[object]) -> Trial:
    return replace(trial, faults=frozenset(str(kind) for kind in kinds))


def _with_events(trial: Trial, events: Collection[object]) -> Trial:
    return replace(trial, only=frozenset(number for number in events if isinstance(number, int)))
