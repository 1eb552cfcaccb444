"""``FreeRoom``: what pods have free while a search tries one move after the other. Pure; does not
change the draft.

Slots come first (``FreeSlots``). What a pool has beside slots (``AdapterPool.capacities``) narrows
the pods down. For a vpod that takes slots alone, nothing else is looked at.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from extender.engine.pods.bits import bits
from extender.engine.pods.claims import PodClaims
from extender.engine.rebalance.draft import Draft
from extender.engine.state.pool_state import PoolState
from extender.model.amounts import SLOTS
from extender.model.objects import VPod

COMPARED: Final = 3
"""How many times more pods ``nearest`` compares than it is asked for."""


def taken_by(vpod: VPod) -> dict[str, int]:
    """What one vreplica of a vpod takes, by ``SLOTS`` and dimension."""
    return {SLOTS: vpod.weight, **dict(vpod.per_vreplica)}


def frees(vpod: VPod, missing: Mapping[str, int]) -> bool:
    """Whether a pod that gives up one vreplica has all that is ``missing`` there."""
    takes = taken_by(vpod)
    return all(takes.get(what, 0) >= amount for what, amount in missing.items())


class FreeRoom:
    """The room of the pods ``among`` (bit set of ordinals), beside what the draft has planned.

    ``move`` and ``undo`` change it. What a move frees counts for later moves, and ``has_now`` tells
    whether a place is there without that.
    """

    def __init__(self, pool: PoolState, draft: Draft, among: int) -> None:
        self._pool = pool
        self._draft = draft
        self._among = among
        self.slots = draft.free.copy()
        """Of all pods, not only of those ``among``."""
        self._freed: dict[int, int] = {}
        """Ordinal -> slots that moves have freed there."""
        self._left = draft.dimensions()
        self._left_now = draft.dimensions()
        """What is left without what moves have freed."""

    # -- reading -----------------------------------------------------------------------------------

    def free_of(self, ordinal: int) -> int:
        """Free slots of a pod; 0 if it is not one of those ``among``."""
        return self.slots.of[ordinal] if self._among >> ordinal & 1 else 0

    def free_slots(self) -> int:
        """Free slots of all pods ``among``; 0 for a pod that has promised more than it has."""
        with_free = self.slots.with_free.items()
        return sum(max(0, free) * (pods & self._among).bit_count() for free, pods in with_free)

    def widest(self, ordinals: int) -> int:
        """The most free slots on one of these pods."""
        with_free = self.slots.with_free.items()
        return max((free for free, pods in with_free if pods & ordinals), default=0)

    def has(self, vpod: VPod, ordinal: int) -> bool:
        """Whether one more vreplica has room on a pod."""
        if self.slots.of[ordinal] < vpod.weight:
            return False
        return not vpod.per_vreplica or self._left.fits(ordinal, vpod.per_vreplica)

    def has_now(self, vpod: VPod, ordinal: int) -> bool:
        """The same, without what moves have freed."""
        free = self.slots.of[ordinal] - self._freed.get(ordinal, 0)
        usable = self._left_now.usable(ordinal, free, vpod.weight, vpod.per_vreplica)
        return usable >= vpod.weight

    def missing(self, vpod: VPod, ordinal: int) -> dict[str, int]:
        """What a pod lacks for one more vreplica, by ``SLOTS`` and dimension; no zeros."""
        lacks = {SLOTS: vpod.weight - self.slots.of[ordinal]}
        if not vpod.per_vreplica:
            return lacks if lacks[SLOTS] > 0 else {}
        left = self._left.left_at(ordinal)
        for name, amount in vpod.per_vreplica:
            lacks[name] = amount - left.get(name, 0)
        return {what: amount for what, amount in lacks.items() if amount > 0}

    def holes(self, vpod: VPod) -> Iterator[int]:
        """Bit sets of the pods with room for one more vreplica, the fewest free slots first."""
        amounts = vpod.per_vreplica
        fitting = self._left.fitting(amounts, self._among) if amounts else self._among
        with_free = self.slots.with_free
        for slots in sorted(with_free):
            if slots >= vpod.weight and (ordinals := with_free[slots] & fitting):
                yield ordinals

    def nearest(self, vpod: VPod, allowed: int, most: int) -> Iterator[int]:
        """Pods of ``allowed`` that could hold one vreplica if they held less: first those that lack
        the least of it. Of the pods with the most free slots, a few times ``most`` are compared.
        """
        if not vpod.per_vreplica:
            yield from self._by_free_slots(vpod, allowed)
            return
        half = tuple((name, amount // 2) for name, amount in vpod.per_vreplica if amount > 1)
        better = self._left.fitting(half, allowed)
        found: list[tuple[float, int, int]] = []
        for ordinals in (better, allowed & ~better):
            for ordinal in self._by_free_slots(vpod, ordinals):
                if len(found) >= COMPARED * most:
                    break
                found.append((self._missing_part(vpod, ordinal), -self.slots.of[ordinal], ordinal))
        for _, _, ordinal in sorted(found):
            yield ordinal

    def _missing_part(self, vpod: VPod, ordinal: int) -> float:
        """The greatest part of a vreplica, in any dimension, that has no room on a pod."""
        part = max(0.0, 1 - self.slots.of[ordinal] / vpod.weight)
        left = self._left.left_at(ordinal)
        for name, amount in vpod.per_vreplica:
            part = max(part, 1 - left.get(name, 0) / amount)
        return part

    def _by_free_slots(self, vpod: VPod, allowed: int) -> Iterator[int]:
        by_ordinal, weight = self._pool.by_ordinal, vpod.weight
        spec = self._pool.adapter_pool
        if spec is None or not spec.could_hold(vpod):
            return
        with_free = self.slots.with_free
        for slots in sorted(with_free, reverse=True):
            for ordinal in bits(with_free[slots] & allowed):
                if by_ordinal[ordinal].capacity >= weight:
                    yield ordinal

    # -- changes -----------------------------------------------------------------------------------

    def move(self, vpod: VPod, source: PodClaims, to: int) -> None:
        """One vreplica goes from one pod to another."""
        self.slots.change(to, -vpod.weight)
        if source.ordinal is not None:
            self._freed[source.ordinal] = self._freed.get(source.ordinal, 0) + vpod.weight
            self.slots.change(source.ordinal, vpod.weight)
        self._follow_amounts(vpod, source, to, 1)

    def undo(self, vpod: VPod, source: PodClaims, to: int) -> None:
        """Take back a move."""
        self.slots.change(to, vpod.weight)
        if source.ordinal is not None:
            self._freed[source.ordinal] -= vpod.weight
            self.slots.change(source.ordinal, -vpod.weight)
        self._follow_amounts(vpod, source, to, -1)

    def _follow_amounts(self, vpod: VPod, source: PodClaims, to: int, sign: int) -> None:
        if not vpod.per_vreplica:
            return
        self._left.give(vpod.per_vreplica, {to: sign})
        self._left_now.give(vpod.per_vreplica, {to: sign})
        if source.ordinal is not None:
            self._left.give(vpod.per_vreplica, {source.ordinal: -sign})
