"""``Move`` and ``MoveReason``: vreplicas that leave a pod where they could have stayed, and why
(I4).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from extender.model.counted import counted


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
    """``vreplicas`` of ``vpod`` (its key) from one pod to another; ``to_pod`` "" where they have no
    new place yet.
    """

    vpod: str
    from_pod: str
    to_pod: str
    vreplicas: int
    reason: MoveReason

    def sentence(self, verb: str = "moved") -> str:
        """For people: in events, conditions and logs."""
        to = f" to {self.to_pod}" if self.to_pod else ""
        return (
            f"{counted(self.vreplicas, 'vreplica')} {verb} from {self.from_pod}{to} ({self.reason})"
        )


def moves_made(
    moves: Iterable[Move], before: Mapping[str, int], after: Mapping[str, int], *, wanted: int
) -> Iterator[Move]:
    """What of one vpod's decided ``moves`` happens as its placements ``before`` (pod name ->
    vreplicas) become ``after``.

    A part may not be covered yet, and follows later; a part may have been told before. First those
    that leave one pod and come to the other, then those that only leave, as far as not fewer are
    ``wanted``: what nobody wants any more is not moved.
    """
    left = {name: count - after.get(name, 0) for name, count in before.items()}
    lost = sum(count for count in left.values() if count > 0) - max(
        0, sum(before.values()) - wanted
    )
    came = {name: count - before.get(name, 0) for name, count in after.items()}
    rest: list[Move] = []
    for move in moves:
        count = max(0, min(move.vreplicas, left.get(move.from_pod, 0), came.get(move.to_pod, 0)))
        if count:
            left[move.from_pod] -= count
            came[move.to_pod] -= count
            lost -= count
            yield replace(move, vreplicas=count)
        rest.append(replace(move, vreplicas=move.vreplicas - count))
    for move in rest:
        if (count := min(move.vreplicas, left.get(move.from_pod, 0), lost)) > 0:
            left[move.from_pod] -= count
            lost -= count
            yield replace(move, vreplicas=count)
