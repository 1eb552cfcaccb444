"""What tells two schedulers' answers for the same vpod apart. Pure; shadow mode counts and shows
it.
"""

from collections.abc import Mapping
from enum import StrEnum

Placements = Mapping[str, int]
"""Pod name -> vreplicas, without zeros."""


class Outcome(StrEnum):
    """How another scheduler's answer differs from ours. A closed set: a label of a metric."""

    SAME = "Same"
    OTHER_PODS = "OtherPods"
    """As many vreplicas, on other pods, and nothing was moved that we would have kept."""
    OTHER_MOVED = "OtherMoved"
    """It took vreplicas from a pod where we would have left them, and put them elsewhere."""
    WOULD_PLACE_MORE = "WouldPlaceMore"
    """We would have placed more of them."""
    WOULD_PLACE_LESS = "WouldPlaceLess"
    """We would have placed fewer, or left fewer."""
    OVERCOMMITTED = "Overcommitted"
    """It gave a pod more than its slots."""
    WAITING = "Waiting"
    """It has not published an answer for some time, and we have one."""


def compare(
    before: Placements, ours: Placements, theirs: Placements, *, overcommits: bool
) -> Outcome:
    """What to call their answer, published where ``before`` was. ``overcommits``: it fills a pod
    beyond its slots.

    The worst is what counts: an overcommitted pod, then a needless move, then another number, then
    other pods.
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


def moved(before: Placements, after: Placements) -> int:
    """vreplicas that left one pod and are on another now: what was lost beyond what there is less
    of.
    """
    lost = sum(max(0, count - after.get(name, 0)) for name, count in before.items())
    fewer = max(0, sum(before.values()) - sum(after.values()))
    return lost - fewer
