"""How two schedulers' answers for the same vpod differ. Pure. Shadow mode counts and shows it."""

from collections.abc import Mapping
from enum import StrEnum

Placements = Mapping[str, int]
"""Pod name -> vreplicas, without zeros."""


class Outcome(StrEnum):
    """How another scheduler's answer differs from ours. The set is closed: it is a label of a
    metric.
    """

    SAME = "Same"
    OTHER_PODS = "OtherPods"
    """It places as many vreplicas, on other pods, and moves none that we would have kept."""
    OTHER_MOVED = "OtherMoved"
    """It moved vreplicas off a pod where we would have left them."""
    WOULD_PLACE_MORE = "WouldPlaceMore"
    """We would have placed more vreplicas."""
    WOULD_PLACE_LESS = "WouldPlaceLess"
    """We would have placed, or kept, fewer vreplicas."""
    OVERCOMMITTED = "Overcommitted"
    """It gave a pod more than its slots."""
    WAITING = "Waiting"
    """We have an answer, and it has not published one for some time."""


def compare(
    before: Placements, ours: Placements, theirs: Placements, *, overcommits: bool
) -> Outcome:
    """Compare their answer with ours; ``before`` was published when both decided. ``overcommits``:
    their answer gives a pod more than its slots.

    The worst difference counts: an overcommitted pod, then a needless move, then another number of
    vreplicas, then other pods.
    """
    if overcommits:
        return Outcome.OVERCOMMITTED
    if ours == theirs:
        return Outcome.SAME
    if moved(before, theirs) and any(
        theirs.get(name, 0) < min(count, ours.get(name, 0)) for name, count in before.items()
    ):
        return Outcome.OTHER_MOVED
    more = sum(ours.values()) - sum(theirs.values())
    if more:
        return Outcome.WOULD_PLACE_MORE if more > 0 else Outcome.WOULD_PLACE_LESS
    return Outcome.OTHER_PODS


def moved(before: Placements, after: Placements, *, wanted: int = 0) -> int:
    """Vreplicas that pods have lost, without those that nobody wants any more: the decrease of the
    total, at most down to ``wanted``.
    """
    lost = sum(max(0, count - after.get(name, 0)) for name, count in before.items())
    fewer = max(0, sum(before.values()) - max(wanted, sum(after.values())))
    return lost - fewer
