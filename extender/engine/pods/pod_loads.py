"""``PodLoads``: the load of a pool's pods at the last look, for plugins that place by it. Pure.

Reports need minutes to show what a new vreplica causes. Until then each slot that a pod has got
since the look counts as the mean slot, and each that it has lost, too. So the vreplicas of a batch
do not all go to the pod that was the coldest before it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class PodLoads:
    """``loads`` and ``held``: load and slots held, by ordinal. ``mean``: load of the mean pod, 0 if
    no load is known. ``per_slot``: load of the mean slot that is held.
    """

    loads: Mapping[int, float] = field(default_factory=dict)
    held: Mapping[int, int] = field(default_factory=dict)
    mean: float = 0.0
    per_slot: float = 0.0

    def expected(self, ordinal: int, held: int) -> float:
        """The load of a pod that now holds ``held`` slots, in means; 0 if no load is known."""
        if not self.mean:
            return 0.0
        more = held - self.held.get(ordinal, 0)
        return max(0.0, self.loads.get(ordinal, 0.0) + more * self.per_slot) / self.mean


NO_LOADS: Final = PodLoads()
"""No load is known: nobody reports, or this replica does not lead the pool."""


def pod_loads(loads: Mapping[int, float], held: Mapping[int, int]) -> PodLoads:
    """The loads of the pods with these ordinals, which hold so many slots."""
    total, slots = sum(loads.values()), sum(held.get(ordinal, 0) for ordinal in loads)
    if not total or not slots:
        return NO_LOADS
    return PodLoads(loads, held, total / len(loads), total / slots)
