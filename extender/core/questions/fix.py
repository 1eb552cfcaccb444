"""``Fix``: one change, named so that a person can make it, and what it was seen to do."""

from dataclasses import dataclass, replace
from typing import Self

from extender.core.questions.bench import Bench, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """``change`` in words; ``field`` of ``subject`` (kind and name) goes from ``before`` to ``after``. Counts are vreplicas of the vpod.

    ``by_itself``: nobody has to do anything. ``alone``: only if it is served before the others that wait.
    ``note``: what else has to be known.
    """

    change: str
    subject: str
    field: str
    before: object
    after: object
    places: int = 0
    left: int = 0
    moves: int = 0
    by_itself: bool = False
    alone: bool = False
    note: str = ""

    def seen(self, outcome: Outcome, bench: Bench) -> Self:
        """With what a trial came to."""
        return replace(self, places=outcome.places, left=outcome.left, moves=outcome.moves, alone=bench.alone)

    def to_json(self) -> dict[str, object]:
        """As ``/v1/explain`` has it."""
        return {
            "change": self.change,
            "object": self.subject,
            "field": self.field,
            "from": self.before,
            "to": self.after,
            "places": self.places,
            "left": self.left,
            "moves": self.moves,
            "byItself": self.by_itself,
            "onlyBeforeOthers": self.alone,
            "note": self.note,
        }
