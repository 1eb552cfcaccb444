"""``DimensionRoom``: what pods still have of the pool's dimensions, as a plan goes on. Pure; does
not change the state.

It is for plans of many vpods of which none is reserved: sizing and moving. It does for amounts what
``LedgerRoom`` does for bytes. A decision about one vpod uses ``PodClaims.slots_for``.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping

from extender.engine.pods.bits import bits
from extender.engine.pods.claims import PodClaims
from extender.model.amounts import Amounts


class _Index:
    """Which pods have how much of each dimension in the beginning. ``covered``: bit set of the pods
    that are in it.
    """

    __slots__ = ("covered", "sorted_by")

    def __init__(self) -> None:
        self.covered = 0
        self.sorted_by: dict[str, tuple[list[int], list[int]]] = {}
        """Dimension -> amounts, ascending, and for each the bit set of the pods that have at least
        so much.
        """


class DimensionRoom:
    """``left_of``: what the pod with an ordinal has left in the beginning, by dimension. ``give``
    takes from it.
    """

    def __init__(self, left_of: Callable[[int], Mapping[str, int]]) -> None:
        self._left_of = left_of
        self._at_first: dict[int, Mapping[str, int]] = {}
        """What ``left_of`` has said. All copies share it, and ``_index``."""
        self._index = _Index()
        self._left: dict[int, dict[str, int]] = {}
        """Of the pods for which it is another amount than in the beginning."""

    def copy(self) -> "DimensionRoom":
        """A copy, to try something."""
        other = DimensionRoom(self._left_of)
        other._at_first, other._index = self._at_first, self._index
        other._left = {ordinal: dict(left) for ordinal, left in self._left.items()}
        return other

    def usable(self, ordinal: int, free: int, weight: int, amounts: Amounts) -> int:
        """How many of ``free`` slots vreplicas of ``weight`` slots and ``amounts`` can use."""
        if not amounts:
            return free
        left = self.left_at(ordinal)
        for name, amount in amounts:
            # Of a dimension that the pool does not have, there is nothing.
            free = min(free, left.get(name, 0) // amount * weight)
        return free

    def give(self, amounts: Amounts, given: Mapping[int, int]) -> None:
        """Give vreplicas (ordinal -> how many), each of which takes ``amounts``. A negative number
        gives them back.
        """
        if not amounts:
            return
        for ordinal, count in given.items():
            left = self._left.get(ordinal)
            if left is None:
                left = self._left[ordinal] = dict(self.left_at(ordinal))
            for name, amount in amounts:
                if name in left:
                    left[name] -= amount * count
            if left == self._at_first[ordinal]:
                del self._left[ordinal]

    def left_at(self, ordinal: int) -> Mapping[str, int]:
        """What a pod has left, by dimension."""
        left = self._left.get(ordinal) or self._at_first.get(ordinal)
        if left is None:
            left = self._at_first[ordinal] = self._left_of(ordinal)
        return left

    def fits(self, ordinal: int, amounts: Amounts) -> bool:
        """Whether a pod has these amounts left."""
        left = self.left_at(ordinal)
        return all(left.get(name, 0) >= amount for name, amount in amounts)

    def fitting(self, amounts: Amounts, among: int) -> int:
        """Bit set of the pods of ``among`` that have these amounts left. It takes a few machine
        operations for each dimension, and a look at each pod that was given something.
        """
        index = self._index
        if among & ~index.covered:
            index.covered |= among
            index.sorted_by = {}
        found = among
        for name, amount in amounts:
            known, sets = index.sorted_by.get(name) or self._sort_by(name)
            at = bisect_left(known, amount)
            found &= sets[at] if at < len(sets) else 0
        for ordinal in self._left:
            if among >> ordinal & 1:
                bit = 1 << ordinal
                found = found | bit if self.fits(ordinal, amounts) else found & ~bit
        return found

    def _sort_by(self, name: str) -> tuple[list[int], list[int]]:
        at_first = self._at_first
        for ordinal in bits(self._index.covered):
            if ordinal not in at_first:
                at_first[ordinal] = self._left_of(ordinal)
        by_amount: dict[int, int] = {}
        for ordinal in bits(self._index.covered):
            amount = at_first[ordinal].get(name, 0)
            by_amount[amount] = by_amount.get(amount, 0) | 1 << ordinal
        known = sorted(by_amount)
        sets, having = [0] * len(known), 0
        for at in range(len(known) - 1, -1, -1):
            having |= by_amount[known[at]]
            sets[at] = having
        self._index.sorted_by[name] = known, sets
        return known, sets


def beside_held(pod: PodClaims) -> dict[str, int]:
    """What a pod has beside all that is held there."""
    held = pod.held_amounts
    return {name: most - held.get(name, 0) for name, most in pod.capacities}


def beside_placed(pod: PodClaims) -> dict[str, int]:
    """What a pod has beside what is placed there: room that another vpod is giving up counts."""
    placed = pod.decided_amounts
    return {name: most - placed.get(name, 0) for name, most in pod.capacities}
