"""``Move`` and ``MoveReason``: vreplicas that leave a pod although their vpod wants them (I4)."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from extender.model.counted import counted


class MoveReason(StrEnum):
    """The fixed set of reasons, shared by events, metrics, statuses and explanations."""

    DRAIN = "Drain"
    """The pod is annotated as unschedulable."""
    EVICTED = "Evicted"
    """Somebody tries to evict the pod, which waits until its shares are handed over."""
    ROLLOUT = "Rollout"
    """The pod is of an old revision, and is replaced once its shares are handed over."""
    MAINTENANCE = "Maintenance"
    """The pod should leave its node (``spec.descheduling``), once its shares are handed over."""
    ORDINAL_GONE = "OrdinalGone"
    """The StatefulSet no longer has that pod."""
    COMPACTION = "Compaction"
    """Fewer pods are enough."""
    RESCHEDULE = "Reschedule"
    """The pod was not Ready for rescheduleAfterSeconds."""
    OVERCOMMIT = "Overcommit"
    """The pod's slots do not hold all that is placed on it."""
    MAKE_ROOM = "MakeRoom"
    """Another vreplica, heavier or more constrained, gets the room."""
    LOAD = "Load"
    """The pod's reported load is far above the mean of the pool's pods."""
    POLICY = "Policy"
    """The pool's profile prefers another pod."""


@dataclass(frozen=True, slots=True)
class Move:
    """``vreplicas`` of the vpod with the key ``vpod`` go from one pod to another.

    ``to_pod`` is "" if they have no new place yet.
    """

    vpod: str
    from_pod: str
    to_pod: str
    vreplicas: int
    reason: MoveReason

    def sentence(self, verb: str = "moved") -> str:
        """The move as text, for events, conditions and logs."""
        to = f" to {self.to_pod}" if self.to_pod else ""
        return (
            f"{counted(self.vreplicas, 'vreplica')} {verb} from {self.from_pod}{to} ({self.reason})"
        )


def moves_made(
    moves: Iterable[Move], before: Mapping[str, int], after: Mapping[str, int], *, wanted: int
) -> Iterator[Move]:
    """Yield what happens of one vpod's ``moves`` as its placements change from ``before`` to
    ``after``.

    ``before``, ``after``: pod name -> vreplicas. The rest of a move may follow later, once a ledger
    covers it, or was reported earlier. Vreplicas that leave one pod and arrive on the other come
    first. Then come those that only leave. Vreplicas that leave because fewer are ``wanted`` are no
    move.
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


def by_vpod(moves: Iterable[Move]) -> dict[str, list[Move]]:
    """The moves of each vpod, by its key."""
    groups: dict[str, list[Move]] = {}
    for move in moves:
        groups.setdefault(move.vpod, []).append(move)
    return groups
