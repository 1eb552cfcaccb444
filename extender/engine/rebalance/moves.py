"""One period's moves of a pool: which vreplicas should leave their pod, and where they go (DESIGN
5.5). Pure.

These are the sources, in order, each with its ``MoveReason``. The budget (vreplicas) is spent from
the top:

1. Pods marked unschedulable, even in the middle of the range. A person has ordered it, so there is
   no cool-down.
2. Ordinals that the StatefulSet no longer has.
3. Abandoned pods: not Ready for longer than rescheduleAfterSeconds.
4. Pods that hold more than their slots: as few vreplicas as bring them back under.
5. Make room: vpods that wait for slots, although a few moves would give them a place
   (``rebalance.make_room``). The caller says which.
6. Compaction: ordinals that are being *emptied*, from the highest down. The autoscaler closes those
   that it wants to remove.
7. Load: pods whose reported load is far above the mean (``rebalance.balance``).
8. Policy: vpods whose profile strictly prefers another pod, one vreplica at a time.

Placing does most of 1 to 4 by itself, as soon as it looks at a vpod. What is found here has waited
for room. In 1 to 3 the pods with the fewest slots in use come first, and on each pod the smallest
shares. In this way, the most pods are empty soonest.

Every move has a destination with room: a schedulable pod that is neither closed nor being emptied.
It is chosen as placing would choose, with the profile's hard filters. (Moves that make room choose
by slots instead.) Room that the sources will free does not count, because the destination's ledger
is written first. Moves for the last four reasons can wait, so they take nothing from a pod that
serves to one that is down (``availability.would_end_service``).

Compaction ends, because each of its moves goes from an emptied ordinal to a lower one that is not,
and nothing comes back to a closed one. It empties a pod completely or not at all. If something on
the pod does not fit below, it makes room there. If that does not work either, compaction does not
begin with this pod, nor with any pod below it, since a StatefulSet only loses its highest pod. What
the budget or a cool-down leaves for later periods keeps its room. Policy moves end if ``better``
always improves strictly. If plugins do not, ``returns`` breaks the circle
(``extender.engine.rebalance.repetition``). It also ends moves that make room: a vpod does not go
back to placements that it has left for this.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from extender.engine.placing.select import better_place
from extender.engine.pods.claims import PodClaims
from extender.engine.policy.guard import PluginFailed
from extender.engine.rebalance.balance import Balancing, LoadGoal
from extender.engine.rebalance.draft import Draft, Placements, after, without_one
from extender.engine.rebalance.make_room import (
    MOVES_MAX,
    STEPS_MAX,
    Room,
    RoomSearch,
    reserve,
)
from extender.engine.rebalance.relocation import is_movable
from extender.engine.rebalance.swaps import find_swap, then
from extender.engine.state.availability import would_end_service
from extender.engine.state.external_vpods import may_exist_unseen
from extender.engine.state.pool_state import PoolState
from extender.model.moves import Move, MoveReason
from extender.model.objects import VPod, placement_order

Better = Callable[[PoolState, VPod, Placements], tuple[str, str] | None]
"""(pool, vpod, its placements) -> the pods to take one vreplica from and to give it to; None if it
is well placed.
"""


ROOM_STEPS_MAX: Final = 1500
"""Steps of all searches for room in one plan: some 20 ms."""


SWAPS_TRIED_MAX: Final = 4
"""Vpods for which one plan tries a swap."""


def no_vpod(_key: str) -> bool:
    """Select no vpod."""
    return False


def by_profile(pool: PoolState, vpod: VPod, placements: Placements) -> tuple[str, str] | None:
    """The move that the pool's profile prefers; None if there is none or a plugin fails."""
    try:
        return better_place(pool, vpod, placements, pool.profile)
    except PluginFailed:
        return None


def never_before(_key: str, _placements: Placements) -> bool:
    """No placements are remembered."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one period's moves.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What policy and making room may do. ``vpods``: keys of those that policy looks at now.
    ``better``: what the profile would change. ``waiting``: keys of the vpods for which room may be
    made, the first ones first.

    ``returns``: whether a vpod has left these placements before, since the last change that was not
    our own. ``load``: what is known of the pods' load; None if it is not balanced.
    """

    better: Better = by_profile
    returns: Callable[[str, Placements], bool] = never_before
    vpods: Sequence[str] = ()
    waiting: Sequence[str] = ()
    load: LoadGoal | None = None


NO_ADVICE = Advice()


def plan_moves(pool: PoolState, limits: Limits, advice: Advice = NO_ADVICE) -> list[Move]:
    """One period's moves, in the order in which to make them; at most one for each vpod, pair of
    pods and reason.
    """
    return _Period(pool, limits, advice).run()


def can_empty(pool: PoolState, emptying: int, limits: Limits) -> bool:
    """Whether compaction can empty these pods (bit set of ordinals) with the moves of several
    periods: ``limits.budget`` is that of all together.
    """
    return _Period(pool, replace(limits, emptying=emptying), NO_ADVICE).empties()


def can_place(pool: PoolState, waiting: Sequence[str], limits: Limits) -> bool:
    """Whether moves within the limits make room for all that these vpods (keys) lack."""
    period = _Period(pool, limits, NO_ADVICE)
    return all(not period.rooms_for(key)[1] for key in waiting)


def rooms_for(pool: PoolState, key: str, limits: Limits) -> list[Room]:
    """The rooms that moves within the limits can make for a waiting vpod, one for each vreplica."""
    return _Period(pool, limits, NO_ADVICE).rooms_for(key)[0]


class _Period:
    """The working values of one ``plan_moves``."""

    def __init__(self, pool: PoolState, limits: Limits, advice: Advice) -> None:
        self._pool = pool
        self._limits = limits
        self._advice = advice
        self._budget = max(0, limits.budget)
        emptying = pool.closed if limits.emptying is None else limits.emptying
        self._emptying = emptying
        self._draft = Draft(pool, pool.room & ~emptying)
        self._moves: dict[tuple[str, str, str, MoveReason], Move] = {}
        self._room_steps = ROOM_STEPS_MAX
        self._swaps_left = SWAPS_TRIED_MAX

    def run(self) -> list[Move]:
        for pod, reason in self._urgent():
            self._lighten(pod, reason, pod.placed)
        for pod in self._overcommitted():
            self._lighten(pod, MoveReason.OVERCOMMIT, pod.placed - pod.capacity)
        for key in self._advice.waiting:
            self.rooms_for(key)
        self._compact()
        if self._advice.load is not None:
            self._balance(self._advice.load)
        for key in self._advice.vpods:
            if self._budget <= 0:
                break
            self._improve(key)
        return list(self._moves.values())

    def empties(self) -> bool:
        """Whether all pods that are being emptied can be emptied within the budget."""
        for pod in reversed([pod for pod in self._pool.members() if pod.placed]):
            ordinal = pod.ordinal
            if ordinal is None or not self._emptying >> ordinal & 1:
                continue
            moved = sum(self._draft.still_on(pod).values())
            if moved > self._budget or not self._empty(pod, ordinal):
                return False
        return True

    # -- sources -----------------------------------------------------------------------------------

    def _urgent(self) -> Iterator[tuple[PodClaims, MoveReason]]:
        pool = self._pool
        loaded = sorted(
            (pod for pod in pool.pods.values() if pod.placed),
            key=lambda pod: (pod.placed, placement_order(pod.name)),
        )
        yield from (
            (pod, MoveReason.DRAIN) for pod in loaded if pod.draining and pool.is_member(pod)
        )
        yield from ((pod, MoveReason.ORDINAL_GONE) for pod in loaded if not pool.is_member(pod))
        for pod in loaded:
            if pod.abandoned and not pod.draining and pool.is_member(pod):
                yield pod, MoveReason.RESCHEDULE

    def _overcommitted(self) -> Iterator[PodClaims]:
        for pod in self._pool.members():
            if pod.placed > pod.capacity and not pod.leaving:
                yield pod

    def _movable(self, key: str) -> VPod | None:
        """The vpod, if the evictor may move it. It may not if placing must decide the vpod first,
        or if the vpod's caller keeps its status.
        """
        vpod = self._pool.vpods.get(key)
        if vpod is None or self._limits.fixed(key) or may_exist_unseen(self._pool, key):
            return None
        return vpod if is_movable(self._pool, vpod) else None

    # -- drains, failures, overcommit: as much as fits ---------------------------------------------

    def _lighten(self, pod: PodClaims, reason: MoveReason, slots: int) -> None:
        """Move up to ``slots`` off a pod, and beyond that at most the rest of one vreplica."""
        everything = slots >= pod.placed
        for vpod, count in self._shares_on(pod, slots, cheapest_first=everything):
            wanted = min(count, self._budget, -(-slots // vpod.weight))
            if wanted <= 0:
                continue
            given, _ = self._draft.place(vpod, pod, wanted)
            for ordinal, moved in given.items():
                slots -= moved * vpod.weight
                self._record(vpod.key, pod, ordinal, moved, reason)

    def _shares_on(
        self, pod: PodClaims, slots: int, *, cheapest_first: bool
    ) -> list[tuple[VPod, int]]:
        """Movable vpods and their vreplicas there: the smallest shares first, or else those that
        free most slots with a move.
        """
        found = [
            (vpod, claim.placed.vreplicas)
            for key, claim in pod.claims.items()
            if claim.placed.vreplicas and (vpod := self._movable(key)) is not None
        ]
        if cheapest_first:
            return sorted(found, key=lambda share: (share[1] * share[0].weight, share[0].key))
        # A vreplica heavier than ``slots`` frees more than is needed: such vpods come last, the
        # lightest first.
        return sorted(
            found,
            key=lambda share: (
                share[0].weight > slots,
                share[0].weight if share[0].weight > slots else -share[0].weight,
                share[0].key,
            ),
        )

    # -- make room -------------------------------------------------------------------------------

    def rooms_for(self, key: str) -> tuple[list[Room], int]:
        """Plan the moves that give a waiting vpod its missing vreplicas, one after the other.
        Return their rooms, and how many vreplicas have none.
        """
        pool, vpod = self._pool, self._pool.vpods.get(key)
        if vpod is None or vpod.deleting or key not in pool.unplaced:
            return [], 0
        rooms: list[Room] = []
        _, left = self._draft.add(vpod, vpod.vreplicas - pool.placed_vreplicas(key))
        for _ in range(left):
            room = self._room_for(self._draft, vpod, self._draft.placed(key), self._open())
            if room is None:
                break
            rooms.append(room)
            for mover, source, to in reserve(self._draft, room):
                self._record(mover, source, to, 1, MoveReason.MAKE_ROOM)
            self._draft.promise(vpod, room.ordinal)
        return rooms, left - len(rooms)

    def _open(self) -> int:
        """Bit set of the pods that may get something if they have slots."""
        return self._pool.schedulable & ~self._pool.closed & ~self._emptying

    def _room_for(self, draft: Draft, vpod: VPod, kept: Placements, among: int) -> Room | None:
        """The moves that the budget allows and that give one vreplica a place beside ``kept``."""
        steps = min(self._room_steps, STEPS_MAX)
        if steps <= 0:
            return None
        search = RoomSearch(
            self._pool,
            draft,
            among,
            movable=self._may_make_way,
            returns=self._advice.returns,
            steps=steps,
        )
        room = search.find(vpod, kept, min(self._budget, self._limits.at_once))
        self._room_steps -= steps - search.steps_left
        return room

    def _may_make_way(self, key: str) -> VPod | None:
        return None if self._limits.cooling(key) else self._movable(key)

    # -- compaction: whole pods or nothing ---------------------------------------------------------

    def _compact(self) -> None:
        members = [pod for pod in self._pool.members() if pod.placed]
        for pod in reversed(members):
            if self._budget <= 0:
                return
            ordinal = pod.ordinal
            if (
                ordinal is None
                or not self._emptying >> ordinal & 1
                or not self._draft.still_on(pod)
            ):
                continue
            if not self._empty(pod, ordinal):
                return

    def _empty(self, pod: PodClaims, ordinal: int) -> bool:
        """Plan to empty a pod. False, and nothing is planned, if not all of its load fits below."""
        load = self._load_of(pod)
        if load is None:
            return False
        trial = self._draft.copy()
        below = self._open() & (1 << ordinal) - 1
        if not pod.down:
            below &= ~self._pool.down
        found: list[tuple[VPod, int, dict[int, int]]] = []
        unlocking: list[tuple[str, PodClaims, int]] = []
        # The heaviest find room first: light ones fit into what is left, but not the other way
        # round.
        for vpod, count in sorted(
            load, key=lambda share: (-share[0].weight, share[1], share[0].key)
        ):
            given, left = trial.place(vpod, pod, count, among=below)
            for _ in range(left):
                kept = without_one(trial.placed(vpod.key), pod.name)
                room = self._room_for(trial, vpod, kept, below)
                if room is None:
                    return False
                unlocking += reserve(trial, room)
                trial.promise(vpod, room.ordinal, source=pod.name)
            found.append((vpod, count, given))
        self._draft = trial
        for key, source, to in unlocking:
            self._record(key, source, to, 1, MoveReason.MAKE_ROOM)
        for vpod, _, given in sorted(
            found, key=lambda item: (item[1] * item[0].weight, item[0].key)
        ):
            if not self._limits.cooling(vpod.key):
                for to, count in sorted(_part(given, self._budget).items()):
                    self._record(vpod.key, pod, to, count, MoveReason.COMPACTION)
        return True

    def _load_of(self, pod: PodClaims) -> list[tuple[VPod, int]] | None:
        """What must leave the pod to empty it; None if something there may not be moved."""
        load: list[tuple[VPod, int]] = []
        for key, count in self._draft.still_on(pod).items():
            vpod, known = self._movable(key), self._pool.vpods.get(key)
            if vpod is not None:
                load.append((vpod, count))
            elif known is None or not known.deleting:  # one being deleted goes by itself
                return None
        return load

    # -- load: from hot pods to cold ones ----------------------------------------------------------

    def _balance(self, goal: LoadGoal) -> None:
        balancing = Balancing(
            self._pool,
            self._draft,
            goal,
            emptying=self._emptying,
            movable=self._may_make_way,
        )
        for vpod, pod, ordinal in balancing.moves(self._budget):
            self._record(vpod.key, pod, ordinal, 1, MoveReason.LOAD)

    # -- policy: one vreplica at a time ------------------------------------------------------------

    def _improve(self, key: str) -> None:
        vpod = self._movable(key)
        if vpod is None or self._limits.cooling(key):
            return
        # A vreplica that this plan brings to a pod does not move on: only placed vreplicas move.
        arrived = {move.to_pod for move in self._moves.values() if move.vpod == key}
        while self._budget > 0:
            placed = self._draft.placed(key)
            found = self._advice.better(self._pool, vpod, placed)
            if found is None and not arrived and self._swaps_left > 0:
                self._swap(vpod)
            if found is None or not self._may_go(placed, *found) or found[0] in arrived:
                return
            source, target = found
            then = after(placed, source, target)
            ordinal = self._pool.pods[target].ordinal
            if self._advice.returns(key, then) or ordinal is None:
                return
            if self._pool.profile.compares_pods and {source, target} & self._changed():
                return  # what the profile has compared is about to change
            if not self._draft.take(vpod, source, ordinal):
                return
            arrived.add(target)
            self._record(key, self._pool.pods[source], ordinal, 1, MoveReason.POLICY)

    def _swap(self, vpod: VPod) -> None:
        """Plan the first move of a swap after which policy can move a vreplica of the vpod."""
        self._swaps_left -= 1
        swap = find_swap(self._pool, self._draft, vpod, self._open(), self._may_make_way)
        placed = self._draft.placed(vpod.key)
        if (
            swap is None
            or self._budget < 2
            or not self._may_go(placed, swap.instead_of, swap.source.name)
            or self._advice.returns(swap.vpod.key, then(self._draft, swap, self._pool))
            or not self._draft.take(swap.vpod, swap.source.name, swap.to)
        ):
            return
        if swap.source.ordinal is not None:
            self._draft.promise(vpod, swap.source.ordinal, source=swap.instead_of)
        self._record(swap.vpod.key, swap.source, swap.to, 1, MoveReason.MAKE_ROOM)

    def _may_go(self, placed: Placements, source: str, target: str) -> bool:
        """Whether there is such a share, no other reason moves it anyway, and the move ends no
        service.
        """
        pod = self._pool.pods.get(source)
        if (
            pod is None
            or target not in self._pool.pods
            or source == target
            or not placed.get(source)
        ):
            return False
        emptying = pod.ordinal is not None and bool(self._emptying >> pod.ordinal & 1)
        return (
            not emptying and not pod.leaving and not would_end_service(pod, self._pool.pods[target])
        )

    def _changed(self) -> set[str]:
        """Names of the pods that moves of this plan leave or reach."""
        return {name for move in self._moves.values() for name in (move.from_pod, move.to_pod)}

    # -- the outcome -------------------------------------------------------------------------------

    def _record(
        self, key: str, pod: PodClaims, ordinal: int, count: int, reason: MoveReason
    ) -> None:
        """Count a move against the budget. The part beyond the budget keeps its room, and moves in
        a later period.
        """
        count = min(count, self._budget)
        if count <= 0:
            return
        self._budget -= count
        move = Move(key, pod.name, self._pool.by_ordinal[ordinal].name, count, reason)
        what = (key, move.from_pod, move.to_pod, reason)
        known = self._moves.get(what)
        self._moves[what] = (
            move if known is None else replace(known, vreplicas=known.vreplicas + count)
        )


def _part(given: dict[int, int], most: int) -> dict[int, int]:
    """As much of ``given`` (ordinal -> vreplicas) as the budget allows. The proportions stay, so
    what is spread stays spread.
    """
    total = sum(given.values())
    if total <= most:
        return given
    part = {ordinal: count * most // total for ordinal, count in given.items()}
    by_rest = sorted(given, key=lambda ordinal: (-(given[ordinal] * most % total), ordinal))
    for ordinal in by_rest[: most - sum(part.values())]:
        part[ordinal] += 1
    return part
