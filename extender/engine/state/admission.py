"""What one tenant's vpods get of the slots that it may use: a function of what they want and have.

What is used stays. The rest goes to the vpods by priority, and by age among equals. If too much is
used, the last ones lose first: the lowest priority, and among equals the youngest. Where the pool
preempts, a vpod that wants more takes it from the last ones of a lower priority.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple


class Wanted(NamedTuple):
    """vreplicas of one vpod, and what its part depends on besides."""

    now: int
    """What it wants. minPodsPerVPod raises it to the pods that there are."""
    raised: int
    """What it would want if there were minPodsPerVPod pods."""
    used: int
    """What it used when it last changed."""
    weight: int
    priority: int
    preempts: bool
    """Whether it takes slots from vpods of a lower priority, where the pool allows it."""


def admitted_within(
    allowance: int, vpods: Sequence[Wanted], used: Sequence[int], *, preempts: bool
) -> list[int]:
    """Return how many vreplicas of each vpod get a part of ``allowance`` slots.

    ``vpods``: by priority, and by age among equals. ``used``: what each of them uses now.
    """
    weights = [one.weight for one in vpods]
    admitted = [min(have, one.now) for have, one in zip(used, vpods, strict=True)]
    in_use, kept = _slots(used, weights), _slots(admitted, weights)
    # What its vpods no longer want leaves in any case. So nothing else has to go for that.
    excess, cut = kept - allowance, 0
    for index in range(len(vpods) - 1, -1, -1):
        if cut >= excess:
            break
        count = min(admitted[index], -((cut - excess) // weights[index]))
        admitted[index] -= count
        cut += count * weights[index]
    _distribute(vpods, admitted, allowance - in_use + cut, in_use - kept if preempts else None)
    return admitted


def _distribute(
    vpods: Sequence[Wanted], admitted: list[int], left: int, leaving: int | None
) -> None:
    """Admit more of the vpods, in their order, of ``left`` slots. If ``leaving`` is not None, also
    take slots from vpods of a lower priority. ``leaving``: the slots of vreplicas that nobody wants
    any more. They do not have to be taken from anybody.

    ``left`` are slots that may be given away now. ``soon`` are those and the leaving ones, without
    what vpods before are waiting for. ``below`` are those that less important vpods keep.
    """
    soon = left + (leaving or 0)
    below = _slots(admitted, [one.weight for one in vpods]) if leaving is not None else 0
    last = len(vpods) - 1
    for _, group in groupby(range(len(vpods)), key=lambda index: vpods[index].priority):
        equals = list(group)
        if below:
            below -= sum([admitted[index] * vpods[index].weight for index in equals])
        elif soon <= 0:
            return
        for index in equals:
            one = vpods[index]
            missing = one.now - admitted[index]
            if missing <= 0:
                continue
            takes = leaving is not None and one.preempts
            gets = min(missing, (soon + (below if takes else 0)) // one.weight) * one.weight
            if gets > 0:
                need, soon = gets - soon, soon - gets
                while need > 0:
                    weight = vpods[last].weight
                    cut = min(admitted[last], -(-need // weight))
                    admitted[last] -= cut
                    freed = cut * weight
                    left, soon, below = left + freed, soon + freed, below - freed
                    need -= freed
                    last -= need > 0
            if left > 0:
                count = min(missing, left // one.weight)
                admitted[index] += count
                left -= count * one.weight


def _slots(counts: Sequence[int], weights: Sequence[int]) -> int:
    return sum([count * weight for count, weight in zip(counts, weights, strict=True)])
