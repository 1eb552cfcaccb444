"""What one tenant's vpods get of the slots that it may use: a function of what they want and have.

What is used stays. The rest goes to the vpods by priority, and by age among equals. If too much is
used, the last ones lose first: the lowest priority, and among equals the youngest. Where the pool
preempts, a vpod that wants more takes it from the last ones of a lower priority. If it may not take
all of it at once, what it has taken so far is kept for it.

A vpod that needs several vreplicas together (``minAvailable``) gets none if it cannot have as many.
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
    least: int = 0
    """With fewer than this, it has none."""


class Admitted(NamedTuple):
    """What the vpods get, each tuple in their order."""

    vreplicas: Sequence[int]
    taken: Sequence[int]
    """Those vreplicas of what a vpod uses that go to others of a higher priority."""
    takes: Sequence[int]
    """Slots that a vpod takes from others of a lower priority."""
    kept: int
    """Slots that nobody gets yet, because a vpod needs them with others that are not free."""
    is_limited: bool
    """Whether a vpod would take more if it might."""


def admitted_within(
    allowance: int,
    vpods: Sequence[Wanted],
    used: Sequence[int],
    *,
    preempts: bool,
    is_shared: bool = False,
    may_take: int | None = None,
) -> Admitted:
    """Decide how many vreplicas of each vpod get a part of ``allowance`` slots.

    ``vpods``: by priority, and by age among equals. ``used``: what each of them uses now.
    ``is_shared``: the caller lends to all tenants what vpods with too few give back.
    ``may_take``: so many slots may be taken for higher priorities, or slightly more of a heavy
    vreplica; None: any number.
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
    left = allowance - in_use + cut
    before = list(admitted)
    taking = _Taking(len(vpods), may_take)
    left = _distribute(vpods, admitted, left, in_use - kept if preempts else None, taking)
    too_few = [index for index, one in enumerate(vpods) if admitted[index] < one.least]
    left += sum([admitted[index] * weights[index] for index in too_few])
    for index in too_few:
        admitted[index] = 0
    if too_few and not is_shared:
        _distribute(vpods, admitted, left, None, taking)
    taken = [
        max(0, had - has) if preempts else 0 for had, has in zip(before, admitted, strict=True)
    ]
    return Admitted(admitted, taken, taking.slots, taking.kept, taking.is_limited)


class _Taking:
    """Who takes how many slots, how many more may be taken, and how many are kept for later."""

    def __init__(self, vpods: int, may_take: int | None) -> None:
        self.slots = [0] * vpods
        self.left = may_take
        self.kept = 0
        self.is_limited = False
        self.last = vpods - 1
        """The last vpod that may still have something."""

    def take(self, index: int, vpods: Sequence[Wanted], admitted: list[int], need: int) -> int:
        """Take ``need`` slots, or slightly more, for a vpod from the last ones. Return how many."""
        most = need if self.left is None else min(need, self.left)
        freed = 0
        while freed < most:
            weight = vpods[self.last].weight
            cut = min(admitted[self.last], -((freed - most) // weight))
            admitted[self.last] -= cut
            freed += cut * weight
            self.last -= freed < most
        self.slots[index] = freed
        if self.left is not None:
            self.left = max(0, self.left - freed)
        return freed


def _distribute(
    vpods: Sequence[Wanted],
    admitted: list[int],
    left: int,
    leaving: int | None,
    taking: _Taking,
) -> int:
    """Admit more of the vpods, in their order, of ``left`` slots. If ``leaving`` is not None, also
    take slots from vpods of a lower priority. ``leaving``: the slots of vreplicas that nobody wants
    any more. They do not have to be taken from anybody. Return the slots that are left.

    ``left`` are slots that may be given away now. ``soon`` are those and the leaving ones, without
    what vpods before are waiting for. ``below`` are those that less important vpods keep.
    """
    soon = left + (leaving or 0)
    below = _slots(admitted, [one.weight for one in vpods]) if leaving is not None else 0
    for _, group in groupby(range(len(vpods)), key=lambda index: vpods[index].priority):
        equals = list(group)
        if below:
            below -= sum([admitted[index] * vpods[index].weight for index in equals])
        elif soon <= 0:
            return left
        for index in equals:
            one = vpods[index]
            missing = one.now - admitted[index]
            if missing <= 0:
                continue
            takes = leaving is not None and one.preempts
            gets = min(missing, (soon + (below if takes else 0)) // one.weight) * one.weight
            too_few = one.least * one.weight - admitted[index] * one.weight
            if gets < too_few:
                continue
            waits = False
            if gets > 0:
                need, soon = gets - soon, soon - gets
                freed = taking.take(index, vpods, admitted, need)
                left, soon, below = left + freed, soon + freed, below - freed
                waits = freed < need
                taking.is_limited |= waits
            count = min(missing, left // one.weight) if left >= max(1, too_few) else 0
            admitted[index] += count
            left -= count * one.weight
            if waits or 0 < left < too_few:
                # Kept until it may take the rest, or until the other slots that it needs are free.
                keeps = min(left, gets - count * one.weight)
                left, taking.kept = left - keeps, taking.kept + keeps
    return left


def _slots(counts: Sequence[int], weights: Sequence[int]) -> int:
    return sum([count * weight for count, weight in zip(counts, weights, strict=True)])
