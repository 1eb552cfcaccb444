"""Knative's ``EvenPodSpread`` (predicate and priority) and ``RemoveWithEvenPodSpreadPriority``.

Both compare a pod with every other pod. Pods without any of the vpod's vreplicas are all equal, and
one machine operation counts them. Only the vpod's own pods are looked at one by one.
"""

from dataclasses import dataclass
from typing import ClassVar, Final

from extender.engine.policy.framework import MAX_SCORE, Scope
from extender.engine.policy.spread import Candidate, Spread

UNEVEN_SPREAD: Final = "pod will cause an uneven spread"


@dataclass(frozen=True, slots=True)
class EvenPodSpread:
    """Pods that can take a vreplica hold about the same number. ``max_skew`` limits the predicate,
    not the score.

    Another pod counts if it has some of the vpod's vreplicas, or room. A full pod without any
    cannot be evened out. As in Knative, the score also counts an overcommitted pod without any, and
    the predicate does not.
    """

    max_skew: int
    name: ClassVar[str] = "EvenPodSpread"
    scope: ClassVar[Scope] = Scope.COUNT

    def filter(self, candidate: Candidate, spread: Spread) -> str:
        """Knative's message if another pod would differ by more than ``max_skew``."""
        after = candidate.on_pod + 1
        skew = self.max_skew
        if spread.replicas <= 0:
            return ""
        if after > skew and spread.empty_with_room(candidate.ordinal):
            return UNEVEN_SPREAD
        for ordinal, count in spread.pods.items():
            if count and ordinal != candidate.ordinal and not -skew <= after - count <= skew:
                return UNEVEN_SPREAD
        return ""

    def score(self, candidate: Candidate, spread: Spread) -> int:
        """``MAX_SCORE`` minus the differences to all other pods after adding one; 0 if the
        StatefulSet wants no pods.
        """
        if spread.replicas <= 0:
            return 0
        after = candidate.on_pod + 1
        empty = spread.empty_with_room(candidate.ordinal) + spread.overfull()
        difference = empty * after
        for ordinal, count in spread.pods.items():
            if count and ordinal != candidate.ordinal:
                difference += abs(after - count)
        return MAX_SCORE - difference


@dataclass(frozen=True, slots=True)
class RemoveWithEvenPodSpreadPriority:
    """Takes from the pod whose loss leaves the vpod's pods most even."""

    name: ClassVar[str] = "RemoveWithEvenPodSpreadPriority"
    scope: ClassVar[Scope] = Scope.COUNT

    def deschedule(self, candidate: Candidate, spread: Spread) -> int:
        """``MAX_SCORE`` minus the differences to the vpod's other pods after removing one; 0 if the
        StatefulSet wants no pods.
        """
        if spread.replicas <= 0:
            return 0
        after = candidate.on_pod - 1
        others = (count for ordinal, count in spread.pods.items() if ordinal != candidate.ordinal)
        return MAX_SCORE - sum(abs(after - count) for count in others)
