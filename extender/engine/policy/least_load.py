"""``LeastLoad``: a new vreplica goes to a pod with little load.

The loads are those by which the pool is balanced (``spec.rebalance.load``), as the leader has seen
them in the last period. Without them all pods are alike. The plugin only places what has no place:
it moves nothing (``moves_nothing``), because loads change all the time. Moves for load are
``engine.rebalance.balance``, which has a dead band.
"""

from typing import ClassVar, Final

from extender.engine.policy.framework import MAX_SCORE, Scope
from extender.engine.policy.spread import Candidate, Spread

LEVELS: Final = 10
"""Of one mean load. A tenth of it counts as much as one vreplica of the plugins that spread."""
LEVEL_MAX: Final = 10**6


class LeastLoad:
    """Pods by their expected load, in tenths of the mean pod's."""

    name: ClassVar[str] = "LeastLoad"
    scope: ClassVar[Scope] = Scope.POD
    moves_nothing: ClassVar[bool] = True

    def score(self, candidate: Candidate, spread: Spread) -> int:
        """``MAX_SCORE`` minus the tenths, rounded."""
        return MAX_SCORE - int(min(LEVELS * spread.load_of(candidate.ordinal), LEVEL_MAX) + 0.5)
