"""Knative's priorities by ordinal. They use few pods, so that the StatefulSet can shrink."""

from dataclasses import dataclass
from typing import ClassVar

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
