"""``Draft``: a pool as the moves planned so far would leave it.

Room that they take is taken. Room that they free is not free yet, because a destination's ledger is
written before the source's.
"""

from collections.abc import Callable, Mapping

from extender.engine.placing.grow import grow
from extender.engine.pods.claims import PodClaims
from extender.engine.policy.guard import PluginFailed
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


class Draft:
    """``place`` and ``take`` change it. ``receivers``: bit set of the ordinals that may get
    something.
    """

    def __init__(self, pool: PoolState, receivers: int) -> None:
        self._pool = pool
        self._receivers = receivers
        self._given: dict[int, int] = {}
        """Ordinal -> slots given."""
        self._ledgers = LedgerRoom(pool)
        self._placed: dict[str, dict[str, int]] = {}

    def copy(self) -> "Draft":
        """A copy, to try something."""
        other = Draft(self._pool, self._receivers)
        other._given = dict(self._given)
        other._ledgers = self._ledgers.copy()
        other._placed = dict(self._placed)
        return other

    def placed(self, key: str) -> Placements:
        """Pod name -> vreplicas of a vpod."""
        known = self._placed.get(key)
        return self._pool.placed_of(key) if known is None else known

    def still_on(self, pod: PodClaims) -> dict[str, int]:
        """vpod key -> vreplicas that no planned move has taken off this pod."""
        return {key: count for key in pod.claims if (count := self.placed(key).get(pod.name, 0))}

    def place(
        self, vpod: VPod, pod: PodClaims, count: int, *, among: int | None = None
    ) -> tuple[dict[int, int], int]:
        """Find room elsewhere for ``count`` vreplicas that a vpod has on ``pod``: (ordinal ->
        vreplicas, vreplicas left). ``among``: bit set of the allowed ordinals; None: all.
        """
        receivers = self._receivers if among is None else self._receivers & among
        if pod.ordinal is not None:
            receivers &= ~(1 << pod.ordinal)
        room = self._ledgers.open_to(self._pool.room, vpod.key)
        receivers &= room

        def free(ordinal: int) -> int:
            return self._free(ordinal) if receivers >> ordinal & 1 else 0

        kept = dict(self.placed(vpod.key))
        kept[pod.name] -= count
        given, left = destinations(self._pool, vpod, _without_zeros(kept), count, free, room)
        self._ledgers.give(vpod.key, given)
        kept[pod.name] += left
        for ordinal, moved in given.items():
            name = self._pool.by_ordinal[ordinal].name
            kept[name] = kept.get(name, 0) + moved
            self._given[ordinal] = self._given.get(ordinal, 0) + moved * vpod.weight
        self._placed[vpod.key] = _without_zeros(kept)
        return given, left

    def take(self, vpod: VPod, source: str, ordinal: int) -> bool:
        """Move one vreplica to this very pod; False if the pod has no room."""
        receivers = self._ledgers.open_to(self._receivers, vpod.key)
        if not receivers >> ordinal & 1 or self._free(ordinal) < vpod.weight:
            return False
        self._ledgers.give(vpod.key, (ordinal,))
        target = self._pool.by_ordinal[ordinal].name
        self._placed[vpod.key] = after(self.placed(vpod.key), source, target)
        self._given[ordinal] = self._given.get(ordinal, 0) + vpod.weight
        return True

    def _free(self, ordinal: int) -> int:
        return self._pool.free_of(ordinal) - self._given.get(ordinal, 0)


def after(placed: Placements, source: str, target: str) -> dict[str, int]:
    """The placements after one vreplica has gone from one pod to another."""
    return _without_zeros({**placed, source: placed[source] - 1, target: placed.get(target, 0) + 1})


def _without_zeros(placed: Placements) -> dict[str, int]:
    return {name: count for name, count in placed.items() if count}
