"""``Fix``: one change for a waiting vpod, and the result of trying it."""

from dataclasses import dataclass, replace
from typing import Self

from extender.whatif.bench import Bench, TrialResult
from extender.whatif.named_change import NamedChange


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix(NamedChange):
    """Counts are vreplicas of the vpod. ``by_itself``: nobody has to do anything. ``alone``: it
    helps only if the vpod is served before the others that wait.
    """

    places: int = 0
    left: int = 0
    moves: int = 0
    by_itself: bool = False
    alone: bool = False

    def seen(self, result: TrialResult, bench: Bench) -> Self:
        """Add the result of a trial."""
        return replace(
            self, places=result.places, left=result.left, moves=result.moves, alone=bench.alone
        )

    def to_json(self) -> dict[str, object]:
        """The fix in ``/v1/explain``."""
        return {
            **self.named(),
            "places": self.places,
            "left": self.left,
            "moves": self.moves,
            "byItself": self.by_itself,
            "onlyBeforeOthers": self.alone,
            "note": self.note,
        }
