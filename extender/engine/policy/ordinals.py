"""Knative's priorities by ordinal. They use few pods, so that the StatefulSet can shrink."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from extender.engine.pods.bits import bits
from extender.engine.policy.framework import MAX_SCORE, Scope
from extender.engine.policy.spread import Candidate, Spread


@dataclass(frozen=True, slots=True)
class LowestOrdinalPriority:
    """Fills the lowest ordinal first."""

    name: ClassVar[str] = "LowestOrdinalPriority"
    scope: ClassVar[Scope] = Scope.ORDINAL

    def score(self, candidate: Candidate, _spread: Spread) -> int:
        """``MAX_SCORE`` minus the ordinal."""
        return MAX_SCORE - candidate.ordinal


@dataclass(frozen=True, slots=True)
class RemoveWithHighestOrdinalPriority:
    """Empties the highest ordinal first."""

    name: ClassVar[str] = "RemoveWithHighestOrdinalPriority"
    scope: ClassVar[Scope] = Scope.ORDINAL

    def deschedule(self, candidate: Candidate, _spread: Spread) -> int:
        """The ordinal."""
        return max(0, candidate.ordinal)


def fill_lowest(
    room: int, weight: int, missing: int, free: Callable[[int], int]
) -> tuple[dict[int, int], int]:
    """What ``LowestOrdinalPriority`` alone would choose: (ordinal -> vreplicas added, vreplicas
    left).

    ``room``: bit set of the pods that may get more. ``free``: an ordinal's free slots.
    """
    added: dict[int, int] = {}
    for ordinal in bits(room):
        if missing <= 0:
            break
        if (count := min(missing, free(ordinal) // weight)) > 0:
            added[ordinal] = count
            missing -= count
    return added, missing
