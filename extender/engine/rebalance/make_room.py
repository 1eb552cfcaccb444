"""``RoomSearch``: which few moves give one pod enough free slots for a vreplica that fits nowhere
(DESIGN 5.5). Pure.

Twelve slots may be free, six on each of two pods, and a vreplica of seven waits. If one vreplica of
one slot goes from the first pod to the second, it fits. The search looks for few such moves first,
in the order of ``ORDER``. On each pod it takes the lightest vreplica that frees enough, or else the
heaviest ones first. Each goes to the pod where it leaves the least room (best fit), if the
profile's filters allow that. If no pod has room for one of them, the search makes room for that one
in the same way, and for no further one. So it finds exchanges, and chains over two pods.

The moves happen one after the other. One plan makes only those that have room at its beginning
(``Displacement.now``), because a destination's ledger is written first. The rest follows when the
pool is looked at again, which is at once. A vpod that has moved is in its cool-down by then, so
none is moved both now and later.

In a pool with ``capacities`` a place must have room in each dimension, and a pod may lack several
things at once. ``Draft`` is what is planned, ``FreeRoom`` what is free while one search tries, and
``Movers`` which vreplicas free what is missing.

The search ends after ``STEPS_MAX`` tries, whatever the pool looks like. It may then miss a way.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from extender.engine.placing.pick import refusal
from extender.engine.placing.select import spread_of
from extender.engine.pods.bits import bits
from extender.engine.pods.claims import PodClaims
from extender.engine.policy.guard import PluginFailed
from extender.engine.policy.spread import Spread
from extender.engine.rebalance.draft import Draft, Placements, after, without_one
from extender.engine.rebalance.free_room import FreeRoom
from extender.engine.rebalance.movers import MOVES_MAX, Movers
from extender.engine.state.availability import would_end_service
from extender.engine.state.pool_state import PoolState
from extender.model.amounts import SLOTS
from extender.model.objects import VPod

ORDER: Final = ((0, 1), (0, 2), (1, 2), (0, 3), (0, 4), (1, 3), (1, 4))
"""(Chains, moves) in the order in which they are tried."""
STEPS_MAX: Final = 400
"""Vreplicas for which one search looks for another pod, or makes room on one."""
AMOUNTS_STEPS: Final = 2
"""As how many steps one try counts if the vreplica takes amounts of the pool's dimensions: it takes
that much longer.
"""
PODS_TRIED_MAX: Final = 48
"""Pods that a search tries to give room, those with the most free slots first."""
CHAINED_PODS_MAX: Final = 6
"""Pods that are tried for a vreplica that must leave and has no room elsewhere."""
ALIKE_MAX: Final = 2
"""Vpods of one weight that are tried on one pod: the profile's filters may refuse one and not
another.
"""
REFUSED_MAX: Final = 6
"""After so many pods with room that were refused, the search gives up on a vreplica."""


@dataclass(frozen=True, slots=True)
class Displacement:
    """One vreplica of ``vpod`` goes from ``source`` to the pod with the ordinal ``to``. ``now``: it
    has room there before any other move is made.
    """

    vpod: VPod
    source: PodClaims
    to: int
    now: bool


@dataclass(frozen=True, slots=True)
class Room:
    """After ``moves``, one after the other, the pod with the ordinal ``ordinal`` has room."""

    ordinal: int
    moves: tuple[Displacement, ...]


def reserve(draft: Draft, room: Room) -> list[tuple[str, PodClaims, int]]:
    """Take the room that the moves need, and return those to make now: (vpod key, from pod,
    ordinal).
    """
    now = []
    for move in room.moves:
        if move.now and draft.take(move.vpod, move.source.name, move.to):
            now.append((move.vpod.key, move.source, move.to))
        else:
            draft.promise(move.vpod, move.to, source=move.source.name)
    return now


class RoomSearch:
    """One search on a draft, which it does not change.

    ``among``: bit set of the pods that may get or lose something. ``movers``: the searches of one
    plan share them. ``returns``: whether a vpod has left these placements before (``Advice``).
    ``steps``: when to give up.
    """

    def __init__(
        self,
        pool: PoolState,
        draft: Draft,
        among: int,
        *,
        movers: Movers,
        returns: Callable[[str, Placements], bool],
        steps: int = STEPS_MAX,
    ) -> None:
        self._pool = pool
        self._draft = draft
        self._returns = returns
        self._among = among
        self.steps_left = steps
        self._room = FreeRoom(pool, draft, among)
        self._movers = movers
        self._placed: dict[str, Placements] = {}
        self._spread: tuple[VPod, Placements, Spread] | None = None
        """The last one of ``_spread_of``."""
        self._moves: list[Displacement] = []
        self._first_holes: dict[tuple[str, str, int], int | None] = {}
        """(vpod key, pod name, barred pods) -> the answer of ``_hole`` before any move. Each entry
        of ``ORDER`` asks again.
        """
        self._barred = 0
        """Bit set of the pods that are being given room. They take nothing else."""
        self._apart: list[str] = []
        """Keys of the vpods for which room is being made. They do not make way for themselves."""

    def find(self, vpod: VPod, kept: Placements, moves_max: int = MOVES_MAX) -> Room | None:
        """A few moves after which one more vreplica of ``vpod`` has a place beside those that it
        keeps (pod name -> vreplicas). None if the vpod has room already, or if none are found.
        """
        if self._room.free_slots() < vpod.weight:
            # Moves change where slots are free, not how many are.
            return None
        self._apart.append(vpod.key)
        refused: dict[int, bool] = {}

        def refuses(ordinal: int) -> bool:
            if ordinal not in refused:
                refused[ordinal] = self._refuses(vpod, kept, ordinal)
            return refused[ordinal]

        pods = self._nearest(vpod, PODS_TRIED_MAX)
        if any(self._room.has(vpod, ordinal) and not refuses(ordinal) for ordinal in pods):
            return None
        for (chains, count), ordinal in itertools.product(ORDER, pods):
            if count > moves_max or not self._could_free(ordinal, vpod, count, chains):
                continue
            if not refuses(ordinal) and self._lighten(ordinal, vpod, count, chains=chains):
                return Room(ordinal, tuple(self._moves))
            if self.steps_left <= 0:
                return None
        return None

    # -- pods --------------------------------------------------------------------------------------

    def _nearest(self, vpod: VPod, most: int) -> list[int]:
        """At most so many pods that could hold one more vreplica of a vpod if they had the room,
        those that lack the least first.
        """
        if vpod.per_vreplica:
            self.steps_left -= AMOUNTS_STEPS
        allowed = self._draft.open_to(self._among & ~self._barred, vpod.key)
        if vpod.max_per_pod:
            placed = self._placed_of(vpod)
            at_most = {name: n for name, n in placed.items() if n >= vpod.max_per_pod}
            allowed &= ~self._pool.ordinals_of(at_most)
        return list(itertools.islice(self._room.nearest(vpod, allowed, most), most))

    def _hole(self, vpod: VPod, source: PodClaims) -> int | None:
        """The pod to which one vreplica goes from ``source``: with the fewest free slots that are
        enough.
        """
        self.steps_left -= AMOUNTS_STEPS if vpod.per_vreplica else 1
        tried = 0
        kept = without_one(self._placed_of(vpod), source.name)
        for ordinals in self._room.holes(vpod):
            for ordinal in bits(self._draft.open_to(ordinals & ~self._barred, vpod.key)):
                if self._may_go(vpod, kept, source, ordinal):
                    return ordinal
                tried += 1
                if tried >= REFUSED_MAX:
                    return None
        return None

    def _first_hole(self, vpod: VPod, source: PodClaims) -> int | None:
        what = (vpod.key, source.name, self._barred)
        if what not in self._first_holes:
            self._first_holes[what] = self._hole(vpod, source)
        return self._first_holes[what]

    def _may_go(self, vpod: VPod, kept: Placements, source: PodClaims, ordinal: int) -> bool:
        target = self._pool.by_ordinal[ordinal]
        return (
            target is not source
            and not would_end_service(source, target)
            and not self._refuses(vpod, kept, ordinal)
            and not self._returns(vpod.key, after(self._placed_of(vpod), source.name, target.name))
        )

    def _refuses(self, vpod: VPod, kept: Placements, ordinal: int) -> bool:
        """Whether the vpod may have no more of its vreplicas there, or the profile's filters refuse
        one more, slots aside.
        """
        there = kept.get(self._pool.by_ordinal[ordinal].name, 0)
        if vpod.max_per_pod and there >= vpod.max_per_pod:
            return True
        filters = self._pool.profile.filters
        if not filters:
            return False

        spread = self._spread_of(vpod, kept)
        spread.narrow(1 << ordinal)
        try:
            return bool(refusal(spread.candidate(ordinal), spread, filters))
        except PluginFailed:
            return True

    def _spread_of(self, vpod: VPod, kept: Placements) -> Spread:
        """The spread of what the vpod keeps. It is asked for of many pods, one after the other."""
        if self._spread is None or self._spread[0] is not vpod or self._spread[1] is not kept:

            def enough(ordinal: int) -> int:
                return max(vpod.weight, self._room.free_of(ordinal))

            spread = spread_of(self._pool, kept, weight=vpod.weight, free=enough, room=0, vpod=vpod)
            self._spread = (vpod, kept, spread)
        return self._spread[2]

    # -- moves -------------------------------------------------------------------------------------

    def _lighten(
        self, ordinal: int, guest: VPod, count: int, *, chains: int, most: float | None = None
    ) -> bool:
        """Give a pod room for one vreplica of ``guest`` with at most ``count`` moves. False, and
        nothing is changed, if that does not work.

        ``chains``: how many times room may be made for a vreplica that makes room. ``most``: the
        greatest size to take (``Movers``), since the larger ones come first.
        """
        if self._room.has(guest, ordinal):
            return self._in_order()
        if count <= 0 or not self._could_free(ordinal, guest, count, chains):
            return False
        before = self._barred
        self._barred |= 1 << ordinal
        pod = self._pool.by_ordinal[ordinal]
        missing = self._room.missing(guest, ordinal)
        for size, vpods, _ in self._movers.groups(pod, missing, count, most):
            for vpod in self._left_of(vpods, pod):
                if self.steps_left <= 0:
                    self._barred = before
                    return False
                if self._send(vpod, pod, guest, count, chains=chains, size=size):
                    return True
        self._barred = before
        return False

    def _could_free(self, ordinal: int, guest: VPod, count: int, chains: int = 0) -> bool:
        """Whether a pod can have the slots for ``guest`` after ``count`` moves: if each vreplica
        for which some pod has slots may go there. With chains, one of them needs no slots yet.
        """
        pod = self._pool.by_ordinal[ordinal]
        missing = guest.weight - self._room.slots.of[ordinal]
        widest = self._room.widest(self._among & ~self._barred)
        if self._movers.heaviest(pod, count, widest) >= missing:
            return True
        if not chains or count < 2:
            return False
        chained = self._movers.heaviest(pod, 1) + self._movers.heaviest(pod, count - 2, widest)
        return chained >= missing

    def _send(
        self, vpod: VPod, pod: PodClaims, guest: VPod, count: int, *, chains: int, size: float
    ) -> bool:
        """Take one vreplica of that size off a pod, and then what else is needed. As for
        ``_lighten``.
        """
        mark = len(self._moves)
        ordinal = pod.ordinal
        if ordinal is None:
            return False
        hole = self._first_hole(vpod, pod) if not mark else self._hole(vpod, pod)
        if hole is not None:
            self._move(vpod, pod, hole)
            if self._lighten(ordinal, guest, count - 1, chains=chains, most=size):
                return True
            self._undo(mark)
            return False
        if not chains or count < 2:
            return False
        self.steps_left -= 1
        self._apart.append(vpod.key)
        kept = without_one(self._placed_of(vpod), pod.name)
        pods = self._nearest(vpod, CHAINED_PODS_MAX)
        barred = self._barred
        ways = [barred]
        if self._room.missing(guest, ordinal).keys() - {SLOTS}:
            # What takes less of a missing dimension may come to this very pod in exchange.
            ways.append(barred & ~(1 << ordinal))
        for first, other, barred_now in itertools.product(range(1, count), pods, ways):
            self._barred = barred_now
            if not self._could_free(other, vpod, first) or not self._may_go(vpod, kept, pod, other):
                continue
            if self._lighten(other, vpod, first, chains=0):
                self._move(vpod, pod, other)
                left = count - 1 - first
                if self._lighten(ordinal, guest, left, chains=chains - 1, most=size):
                    return True  # the search ends, so ``_barred`` may stay
            self._undo(mark)
            self._barred = barred
        self._barred = barred
        self._apart.pop()
        return False

    def _left_of(self, vpods: Sequence[VPod], pod: PodClaims) -> list[VPod]:
        """The first of these that still have vreplicas on the pod to give."""
        found: list[VPod] = []
        for vpod in vpods:
            known = self._placed.get(vpod.key)
            if vpod.key not in self._apart and (
                self._draft.on_pod(vpod.key, pod) if known is None else known.get(pod.name, 0)
            ):
                found.append(vpod)
                if len(found) >= ALIKE_MAX:
                    break
        return found

    def _placed_of(self, vpod: VPod) -> Placements:
        known = self._placed.get(vpod.key)
        return self._draft.placed(vpod.key) if known is None else known

    def _in_order(self) -> bool:
        """Whether no vpod is moved both now and later."""
        now = {move.vpod.key for move in self._moves if move.now}
        return not any(move.vpod.key in now for move in self._moves if not move.now)

    def _move(self, vpod: VPod, source: PodClaims, to: int) -> None:
        now = self._room.has_now(vpod, to)
        self._moves.append(Displacement(vpod, source, to, now))
        name = self._pool.by_ordinal[to].name
        self._placed[vpod.key] = after(self._placed_of(vpod), source.name, name)
        self._room.move(vpod, source, to)

    def _undo(self, mark: int) -> None:
        """Take back all moves after the first ``mark``."""
        while len(self._moves) > mark:
            move = self._moves.pop()
            vpod, name = move.vpod, self._pool.by_ordinal[move.to].name
            self._placed[vpod.key] = after(self._placed_of(vpod), name, move.source.name)
            self._room.undo(vpod, move.source, move.to)
