"""``MoveReason``: why vreplicas leave a pod where they could have stayed. Recorded with every move (I4)."""

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
