"""``spec.quarantine`` of a pool, and the condition ``Quarantined`` of a VPod. A vpod whose shares
precede crashes of pods gets no further place until a person releases it.
"""

from dataclasses import dataclass
from math import inf
from typing import Final

from extender.model.timestamps import epoch_s

QUARANTINED: Final = "Quarantined"
"""The type of the condition. It is True from the quarantine's begin until after the release."""
CRASHED_PODS: Final = 3
WITHIN_S: Final = 300
VPODS_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Quarantine:
    """``spec.quarantine`` of a pool."""

    crashed_pods: int = CRASHED_PODS
    """So many different pods must have crashed soon after they got a share of the vpod."""
    within_s: int = WITHIN_S
    """How soon."""
    vpods_max: int = VPODS_MAX
    """So many vpods of the pool are in quarantine at most. If more of them precede the crashes,
    something else makes the pods crash.
    """


def is_released(since: str, released_at: str) -> bool:
    """Whether a person has released a VPod since its quarantine began. Both are RFC 3339.

    ``released_at``: the annotation ``vreplica.dev/released-at``. A time that cannot be read
    releases nothing.
    """
    return epoch_s(released_at, -inf) >= epoch_s(since, inf)
