"""``Fix``: one change for a vpod that waits, and what it was seen to do."""

from dataclasses import dataclass, replace
from typing import Self

from extender.whatif.bench import Bench, Outcome
from extender.whatif.named_change import NamedChange


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix(NamedChange):
    """Counts are vreplicas of the vpod. ``by_itself``: nobody has to do anything. ``alone``: only
    if it is served before the others that wait.
    """

    places: int = 0
    left: int = 0
    moves: int = 0
    by_itself: bool = False
    alone: bool = False

    def seen(self, outcome: Outcome, bench: Bench) -> Self:
        """With what a trial came to."""
        return replace(
            self, places=outcome.places, left=outcome.left, moves=outcome.moves, alone=bench.alone
        )

    def to_json(self) -> dict[str, object]:
        """As ``/v1/explain`` has it."""
        return {
            **self.named(),
            "places": self.places,
            "left": self.left,
            "moves": self.moves,
            "byItself": self.by_itself,
            "onlyBeforeOthers": self.alone,
            "note": self.note,
        }
