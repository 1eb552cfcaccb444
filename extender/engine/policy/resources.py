"""Knative's predicates for room and the number of pods."""

from dataclasses import dataclass
from typing import ClassVar, Final

from extender.engine.policy.framework import Scope
from extender.engine.policy.spread import Candidate, Spread

AT_FULL_CAPACITY: Final = "pod at full capacity"
BEYOND_PARTITION_COUNT: Final = "pod increases total # of pods beyond partition count"


@dataclass(frozen=True, slots=True)
class PodFitsResources:
    """A pod needs a free slot. Every candidate has one, so this exists only because
    Knative has it.
    """

    name: ClassVar[str] = "PodFitsResources"
    scope: ClassVar[Scope] = Scope.COUNT

    def filter(self, candidate: Candidate, _spread: Spread) -> str:
        """Knative's message if no slot is free."""
        return "" if candidate.free > 0 else AT_FULL_CAPACITY


@dataclass(frozen=True, slots=True)
class NoMaxResourceCount:
    """A vpod may be on at most ``num_partitions`` pods: on more, not each could have a partition of
    its topic.
    """

    num_partitions: int
    name: ClassVar[str] = "NoMaxResourceCount"
    scope: ClassVar[Scope] = Scope.COUNT

    def filter(self, candidate: Candidate, spread: Spread) -> str:
        """Knative's message for a pod that would be one too many."""
        if candidate.ordinal in spread.pods or len(spread.pods) < self.num_partitions:
            return ""
        return BEYOND_PARTITION_COUNT
