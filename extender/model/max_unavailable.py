"""``spec.handoff.maxUnavailable``: how many adapter pods voluntary disruptions may take out of
service at the same time. Voluntary disruptions are evictions, rollouts and descheduling.

Each limit is a number or a percentage, as in ``rollingUpdate.maxUnavailable`` of a StatefulSet. A
percentage is rounded up, as in a PodDisruptionBudget. So no limit is 0.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple


class PodLimit(NamedTuple):
    """So many pods, or so many percent of them: at least 1."""

    number: int
    is_percentage: bool = False

    def of(self, pods: int) -> int:
        """The limit for a group of so many pods."""
        if not self.is_percentage:
            return self.number
        return max(1, -(-pods * self.number // 100))

    def __str__(self) -> str:
        return f"{self.number}{'%' if self.is_percentage else ''}"


TENTH: Final = PodLimit(10, is_percentage=True)
ONE: Final = PodLimit(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxUnavailable:
    """spec.handoff.maxUnavailable."""

    pool: PodLimit = TENTH
    """Of the pool's pods."""
    per_vpod: PodLimit = ONE
    """Of the pods that one vpod stands on."""


USUAL: Final = MaxUnavailable()
"""The defaults."""
