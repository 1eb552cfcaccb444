"""``Move`` and ``MoveReason``: vreplicas that leave a pod where they could have stayed, and why (I4)."""

from dataclasses import dataclass
from enum import StrEnum


class MoveReason(StrEnum):
    """The closed set of reasons, shared by events, metrics, statuses and explanations."""

    DRAIN = "Drain"
    """The pod is annotated as unschedulable."""
    ORDINAL_GONE = "OrdinalGone"
    """The StatefulSet no longer has that pod."""
    COMPACTION = "Compaction"
    """Fewer pods are enough."""
    RESCHEDULE = "Reschedule"
    """The pod was not Ready for rescheduleAfterSeconds."""
    OVERCOMMIT = "Overcommit"
    """The pod's slots do not hold all that is placed on it."""
    POLICY = "Policy"
    """The pool's profile prefers another pod."""


@dataclass(frozen=True, slots=True)
class Move:
    """``vreplicas`` of ``vpod`` (its key) from one pod to another; ``to_pod`` "" where they have no new place yet."""

    vpod: str
    from_pod: str
    to_pod: str
    vreplicas: int
    reason: MoveReason

    def sentence(self, verb: str = "moved") -> str:
        """For people: in events, conditions and logs."""
        to = f" to {self.to_pod}" if self.to_pod else ""
        return f"{self.vreplicas} vreplicas {verb} from {self.from_pod}{to} ({self.reason})"
