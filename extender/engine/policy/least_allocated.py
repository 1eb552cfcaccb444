"""``LeastAllocated``: even over pods by what all vpods take there, of slots or of a dimension.

It has the name of the strategy of kube-scheduler's NodeResourcesFit that does the same for nodes.
``PodSpread`` looks at one vpod's vreplicas alone, and this plugin at what the pod has left.
"""

from dataclasses import dataclass
from typing import ClassVar, Final

from extender.engine.policy.framework import MAX_SCORE
from extender.engine.policy.spread import Candidate, Spread
from extender.model.amounts import SLOTS

STEPS: Final = 20
"""Parts of a pod that count: 5 % each. A smaller difference moves nothing."""


@dataclass(frozen=True, slots=True)
class LeastAllocated:
    """``dimension``: one of the pool's ``capacities``. ``SLOTS``, and a dimension that the pool
    does not have, stand for slots.
    """

    dimension: str = SLOTS
    name: ClassVar[str] = "LeastAllocated"

    def score(self, candidate: Candidate, spread: Spread) -> int:
        """``MAX_SCORE`` minus the part that is taken once the pod has the vreplica, in ``STEPS``,
        rounded up.
        """
        return MAX_SCORE - _steps(*spread.used(candidate.ordinal, self.dimension, 1))

    def deschedule(self, candidate: Candidate, spread: Spread) -> int:
        """The part that is taken, in ``STEPS``, rounded up."""
        if candidate.ordinal not in spread.by_ordinal:
            return 0
        return _steps(*spread.used(candidate.ordinal, self.dimension))


def _steps(used: int, most: int) -> int:
    return max(0, -(-used * STEPS // max(1, most)))
