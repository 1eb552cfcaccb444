"""What the embedded kube-scheduler does otherwise on purpose, or cannot do: named rows with a
reason.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.differential.scheduler_cases import SchedulerCase
from tests.differential.scheduler_compare import Mismatch


@dataclass(frozen=True, slots=True)
class Difference:
    """One listed difference. ``covers`` tells whether a mismatch in a case is an instance of it."""

    name: str
    reason: str
    covers: Callable[[SchedulerCase, Mismatch], bool]


DIFFERENCES: Final[tuple[Difference, ...]] = ()

NOT_DRAWN: Final = (
    "ResourceClaims (DynamicResources), declared node features, pod groups",
    "ReplicationControllers as owners from which default spreading comes",
    "pods that are being resized in place (containers' resources in their status)",
)
"""What kube-scheduler looks at and the embedded one does not; no generated cluster has it."""


def listed(case: SchedulerCase, mismatch: Mismatch) -> str | None:
    """The name of the difference that covers a mismatch; None if it is a bug."""
    return next((row.name for row in DIFFERENCES if row.covers(case, mismatch)), None)
