"""``MovePlan``: the plan of a pool's next moves, while its sources (``moves``, ``compaction``) add
to it. Pure. The evictor makes several plans in a period, each with what is left of its budget.

It keeps what the moves so far have left: the pool as they would leave it (``Draft``), the rest of
the budget (vreplicas), and the steps that searches for room may still take.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from extender.engine.pods.claims import PodClaims
from extender.engine.rebalance.draft import Draft, Placements
from extender.engine.rebalance.make_room import STEPS_MAX, Room, RoomSearch, reserve
from extender.engine.rebalance.movers import MOVES_MAX, Movers
from extender.engine.rebalance.relocation import is_movable
from extender.engine.state.external_vpods import may_exist_unseen
from extender.engine.state.pool_state import PoolState
from extender.model.moves import Move, MoveReason
from extender.model.objects import VPod

ROOM_STEPS_MAX: Final = 700
"""Steps of all searches for room in one plan: some 10 to 20 ms."""


def no_vpod(_key: str) -> bool:
    """Select no vpod."""
    return False


def never_before(_key: str, _placements: Placements) -> bool:
    """No placements are remembered."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one plan.

    ``budget``: vreplicas. ``at_once``: moves that may make room for one vreplica. ``emptying``: bit
    set of the ordinals to empty; None: the closed ones.
    ``cooling``: whether a vpod (by key) was moved so recently that moves which can wait leave it
    alone. ``fixed``: whether nothing at all may move it now.
    """

    budget: int
    at_once: int = MOVES_MAX
    emptying: int | None = None
    cooling: Callable[[str], bool] = no_vpod
    fixed: Callable[[str], bool] = no_vpod


class MovePlan:
    """The plan of one pool.

    ``budget``: vreplicas that may still move. ``emptying``: bit set of the ordinals to empty.
    ``returns``: as in ``Advice``.
    """

    def __init__(
        self,
        pool: PoolState,
        limits: Limits,
        returns: Callable[[str, Placements], bool] = never_before,
    ) -> None:
        self.pool = pool
        self.limits = limits
        self.budget = max(0, limits.budget)
        self.emptying = pool.closed if limits.emptying is None else limits.emptying
        self.draft = Draft(pool, pool.room & ~self.emptying)
        self._returns = returns
        self._moves: dict[tuple[str, str, str, MoveReason], Move] = {}
        self._room_steps = ROOM_STEPS_MAX
        self._make_way: dict[str, VPod | None] = {}
        """The answers of ``may_make_way``. A plan does not change the pool or the limits, so they
        stay true to its end.
        """
        self._movers = Movers(self.may_make_way)

    @property
    def moves(self) -> list[Move]:
        """The moves so far, in the order in which to make them."""
        return list(self._moves.values())

    @property
    def may_search(self) -> bool:
        """Whether the steps of a whole search for room are left."""
        return self._room_steps >= STEPS_MAX

    def is_emptied(self, ordinal: int) -> bool:
        """Whether the pod with that ordinal is being emptied."""
        return bool(self.emptying >> ordinal & 1)

    def movable(self, key: str) -> VPod | None:
        """The vpod, if the evictor may move it. It may not if placing must decide the vpod first,
        or if the vpod's caller keeps its status.
        """
        vpod = self.pool.vpods.get(key)
        if vpod is None or self.limits.fixed(key) or may_exist_unseen(self.pool, key):
            return None
        return vpod if is_movable(self.pool, vpod) else None

    def may_make_way(self, key: str) -> VPod | None:
        """The vpod, if a move that can wait may move it."""
        if key not in self._make_way:
            self._make_way[key] = None if self.limits.cooling(key) else self.movable(key)
        return self._make_way[key]

    def open_pods(self) -> int:
        """Bit set of the pods that may get something if they have slots."""
        return self.pool.schedulable & ~self.pool.closed & ~self.emptying

    def rooms_for(self, key: str) -> tuple[list[Room], int]:
        """Plan the moves that give a waiting vpod its missing vreplicas, one after the other.
        Return their rooms, and how many vreplicas have none.
        """
        pool, vpod = self.pool, self.pool.vpods.get(key)
        if vpod is None or vpod.deleting or key not in pool.vpods_with_pending:
            return [], 0
        rooms: list[Room] = []
        if pool.comes_as_a_whole(vpod):
            return [], vpod.vreplicas  # room for one of them is of no use
        _, left = self.draft.add(vpod, vpod.vreplicas - pool.decided_vreplicas(key))
        for _ in range(left):
            room = self.room_for(self.draft, vpod, self.draft.placed(key), self.open_pods())
            if room is None:
                break
            rooms.append(room)
            for mover, source, to in reserve(self.draft, room):
                self.record(mover, source, to, 1, MoveReason.MAKE_ROOM)
            self.draft.promise(vpod, room.ordinal)
        return rooms, left - len(rooms)

    def room_for(self, draft: Draft, vpod: VPod, kept: Placements, among: int) -> Room | None:
        """The moves that the budget allows and that give one vreplica a place beside ``kept``."""
        steps = min(self._room_steps, STEPS_MAX)
        if steps <= 0:
            return None
        search = RoomSearch(
            self.pool,
            draft,
            among,
            movers=self._movers,
            returns=self._returns,
            steps=steps,
        )
        room = search.find(vpod, kept, min(self.budget, self.limits.at_once))
        self._room_steps -= steps - search.steps_left
        return room

    def record(
        self, key: str, pod: PodClaims, ordinal: int, count: int, reason: MoveReason
    ) -> None:
        """Count a move against the budget. The part beyond the budget keeps its room, and moves in
        a later period.
        """
        count = min(count, self.budget)
        if count <= 0:
            return
        self.budget -= count
        move = Move(key, pod.name, self.pool.by_ordinal[ordinal].name, count, reason)
        what = (key, move.from_pod, move.to_pod, reason)
        known = self._moves.get(what)
        self._moves[what] = (
            move if known is None else replace(known, vreplicas=known.vreplicas + count)
        )


def can_place(pool: PoolState, waiting: Sequence[str], limits: Limits) -> bool:
    """Whether moves within the limits make room for all that these vpods (keys) lack."""
    plan = MovePlan(pool, limits)
    return all(not plan.rooms_for(key)[1] for key in waiting)


def placed_by_moves(pool: PoolState, waiting: Sequence[str]) -> bool:
    """Whether moves of one period place all that these vpods (keys) lack, and the pool's owner
    wants them to be tried before the pool grows (rebalance.makeRoomBeforeGrowing). False if none
    waits.
    """
    owner = pool.adapter_pool
    if owner is None or not (owner.make_room_before_growing and owner.moves_to_shrink):
        return False
    return bool(waiting) and can_place(pool, waiting, Limits(budget=owner.moves_per_period))
