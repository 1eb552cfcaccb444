"""``Draft``: a pool as the moves planned so far would leave it.

Room that they take is taken. Room that they free is not free yet, because a destination's ledger is
written before the source's.
"""

from collections.abc import Callable, Mapping

from extender.engine.placing.grow import grow
from extender.engine.pods.claims import PodClaims
from extender.engine.policy.guard import PluginFailed
from extender.engine.state.dimension_room import DimensionRoom, beside_held
from extender.engine.state.ledger_room import LedgerRoom
from extender.engine.state.pool_state import PoolState
from extender.model.objects import VPod

Placements = Mapping[str, int]
"""Pod name -> vreplicas of one vpod."""


def destinations(
    pool: PoolState,
    vpod: VPod,
    kept: Placements,
    missing: int,
    free: Callable[[int], int],
    room: int,
) -> tuple[dict[int, int], int]:
    """Where the pool's profile would add ``missing`` vreplicas: (ordinal -> vreplicas, vreplicas
    left). ``room``: as for ``grow``.

    Nowhere, if a plugin fails: what cannot be placed is not moved either.
    """
    try:
        return grow(pool, vpod, kept, missing, free, room)
    except PluginFailed:
        return {}, missing


class FreeSlots:
    """Free slots by ordinal, and the pods (bit set of ordinals) by the number of their free slots.

    A bit set for each number finds the pods of a best fit, however many pods there are.
    """

    def __init__(self, of: dict[int, int], with_free: dict[int, int]) -> None:
        self.of = of
        self.with_free = with_free

    @classmethod
    def index(cls, of: dict[int, int]) -> "FreeSlots":
        """From ordinal -> free slots."""
        with_free: dict[int, int] = {}
        for ordinal, slots in of.items():
            with_free[slots] = with_free.get(slots, 0) | 1 << ordinal
        return cls(of, with_free)

    def copy(self) -> "FreeSlots":
        """A copy, to try something."""
        return FreeSlots(dict(self.of), dict(self.with_free))

    def at_least(self, slots: int) -> int:
        """Bit set of the pods with so many free slots or more."""
        found = 0
        for number, ordinals in self.with_free.items():
            if number >= slots:
                found |= ordinals
        return found

    def change(self, ordinal: int, slots: int) -> None:
        """Add free slots to a pod."""
        before, bit = self.of[ordinal], 1 << ordinal
        left = self.with_free[before] & ~bit
        if left:
            self.with_free[before] = left
        else:
            del self.with_free[before]
        now = self.of[ordinal] = before + slots
        self.with_free[now] = self.with_free.get(now, 0) | bit


class Draft:
    """``place``, ``add``, ``take`` and ``promise`` change it. ``receivers``: bit set of the pods
    that may get something.
    """

    def __init__(self, pool: PoolState, receivers: int) -> None:
        self._pool = pool
        self._receivers = receivers
        self._free: FreeSlots | None = None
        """What ``free`` returns; None until it is asked for."""
        self._ledgers = LedgerRoom(pool)
        self._dimensions = DimensionRoom(lambda ordinal: beside_held(pool.by_ordinal[ordinal]))
        self._placed: dict[str, dict[str, int]] = {}
        """vpod key -> what ``placed`` returns, for vpods that were moved or asked for. The pool
        does not change as long as a draft exists.
        """
        self._promised = 0
        """Bit set of the pods on which a move of this plan makes room for something else."""

    @property
    def free(self) -> FreeSlots:
        """Free slots of the pods beside what they are given; none where something is promised. Only
        the draft changes it.
        """
        if self._free is None:
            pool = self._pool
            self._free = FreeSlots.index(
                {ordinal: pool.free_of(ordinal) for ordinal in pool.by_ordinal}
            )
        return self._free

    def copy(self) -> "Draft":
        """A copy, to try something."""
        other = Draft(self._pool, self._receivers)
        other._free = self._free.copy() if self._free is not None else None
        other._ledgers = self._ledgers.copy()
        other._dimensions = self._dimensions.copy()
        other._placed = dict(self._placed)
        other._promised = self._promised
        return other

    def placed(self, key: str) -> Placements:
        """Pod name -> vreplicas of a vpod."""
        known = self._placed.get(key)
        if known is None:
            known = self._placed[key] = self._pool.decided_of(key)
        return known

    def still_on(self, pod: PodClaims) -> dict[str, int]:
        """vpod key -> vreplicas that no planned move has taken off this pod."""
        return {key: count for key in pod.claims if (count := self.on_pod(key, pod))}

    def on_pod(self, key: str, pod: PodClaims) -> int:
        """Those of one vpod."""
        known = self._placed.get(key)
        if known is not None:
            return known.get(pod.name, 0)
        claim = pod.claims.get(key)
        return claim.decided.vreplicas if claim is not None else 0

    def place(
        self, vpod: VPod, pod: PodClaims, count: int, *, among: int | None = None
    ) -> tuple[dict[int, int], int]:
        """Find room elsewhere for ``count`` vreplicas that a vpod has on ``pod``: (ordinal ->
        vreplicas, vreplicas left). ``among``: bit set of the allowed ordinals; None: all.
        """
        receivers = self._receivers if among is None else self._receivers & among
        if pod.ordinal is not None:
            receivers &= ~(1 << pod.ordinal)
        kept = dict(self.placed(vpod.key))
        kept[pod.name] -= count
        given, left = self._grow(vpod, kept, count, receivers)
        kept[pod.name] += left
        self._placed[vpod.key] = _without_zeros(kept)
        return given, left

    def add(self, vpod: VPod, count: int) -> tuple[dict[int, int], int]:
        """Find room for ``count`` vreplicas that have no place, as ``place`` does."""
        kept = dict(self.placed(vpod.key))
        given, left = self._grow(vpod, kept, count, self._receivers)
        self._placed[vpod.key] = _without_zeros(kept)
        return given, left

    def _grow(
        self, vpod: VPod, kept: dict[str, int], count: int, receivers: int
    ) -> tuple[dict[int, int], int]:
        """Give ``count`` vreplicas to receivers, and add them to ``kept``."""
        enough = self._pool.room & self.free.at_least(vpod.weight)
        room = self._ledgers.open_to(enough, vpod.key)
        receivers &= room
        if not receivers:
            return {}, count

        def free(ordinal: int) -> int:
            return self.free_for(vpod, ordinal) if receivers >> ordinal & 1 else 0

        given, left = destinations(self._pool, vpod, _without_zeros(kept), count, free, room)
        self._ledgers.give(vpod.key, given)
        self._dimensions.give(vpod.per_vreplica, given)
        for ordinal, more in given.items():
            name = self._pool.by_ordinal[ordinal].name
            kept[name] = kept.get(name, 0) + more
            self.free.change(ordinal, -more * vpod.weight)
        return given, left

    def promise(self, vpod: VPod, ordinal: int, *, source: str | None = None) -> None:
        """One vreplica comes to this pod once it has room: from the pod ``source``, or from nowhere
        (None). Until then the pod takes nothing else.
        """
        self._promised |= 1 << ordinal
        self.free.change(ordinal, -self.free.of[ordinal])
        self._ledgers.give(vpod.key, (ordinal,))
        kept = dict(self.placed(vpod.key))
        if source is not None:
            kept[source] -= 1
        name = self._pool.by_ordinal[ordinal].name
        kept[name] = kept.get(name, 0) + 1
        self._placed[vpod.key] = _without_zeros(kept)

    def take(self, vpod: VPod, source: str, ordinal: int) -> bool:
        """Move one vreplica to this very pod; False if the pod has no room."""
        receivers = self._ledgers.open_to(self._receivers, vpod.key)
        if not receivers >> ordinal & 1 or self.free_for(vpod, ordinal) < vpod.weight:
            return False
        self._ledgers.give(vpod.key, (ordinal,))
        self._dimensions.give(vpod.per_vreplica, {ordinal: 1})
        target = self._pool.by_ordinal[ordinal].name
        self._placed[vpod.key] = after(self.placed(vpod.key), source, target)
        self.free.change(ordinal, -vpod.weight)
        return True

    def free_for(self, vpod: VPod, ordinal: int) -> int:
        """Free slots of a pod that vreplicas of a vpod can use."""
        free = self.free.of[ordinal]
        if vpod.max_per_pod:
            name = self._pool.by_ordinal[ordinal].name
            free = vpod.slots_beside(self.placed(vpod.key).get(name, 0), free)
        return self._dimensions.usable(ordinal, free, vpod.weight, vpod.per_vreplica)

    def dimensions(self) -> DimensionRoom:
        """A copy of what pods have left of the pool's dimensions beside what they are given."""
        return self._dimensions.copy()

    def open_to(self, ordinals: int, key: str) -> int:
        """Those of ``ordinals`` that are not promised, and whose ledgers have bytes for one more
        vreplica of a vpod.
        """
        return self._ledgers.open_to(ordinals & ~self._promised, key)


def after(placed: Placements, source: str, target: str) -> dict[str, int]:
    """The placements after one vreplica has gone from one pod to another."""
    return _without_zeros({**placed, source: placed[source] - 1, target: placed.get(target, 0) + 1})


def without_one(placed: Placements, source: str) -> dict[str, int]:
    """The placements without one vreplica of a pod."""
    return _without_zeros({**placed, source: placed[source] - 1})


def _without_zeros(placed: Placements) -> dict[str, int]:
    return {name: count for name, count in placed.items() if count}
