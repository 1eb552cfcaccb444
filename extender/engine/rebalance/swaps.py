"""Swaps: a vreplica whose profile prefers a pod without room goes there after another vreplica has
made way (DESIGN 5.5). Pure.

Policy moves one vreplica to a pod that has room. In a zone that is full of vreplicas which could as
well be elsewhere, it gets nowhere. Here one of those goes first, to the place that its own profile
likes best. It may be worse off there, but less than the other one gains, so what the placements of
all vpods are worth in sum rises with each swap. Until the other one has come, policy would bring it
back. ``Advice.returns`` prevents that.

A profile that compares pods (``Profile.compares_pods``) has no swaps. What one vpod gains there
changes what the placements of others are worth, so no sum rises, and one swap would follow the
other for ever (seed 107235951).

A plan makes only the first move, because the second has no room before. Policy finds that one at
the next look.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from extender.engine.placing.select import better_place, gain
from extender.engine.pods.bits import bits
from extender.engine.pods.claims import PodClaims
from extender.engine.policy.guard import PluginFailed
from extender.engine.rebalance.draft import Draft, Placements, after
from extender.engine.rebalance.free_room import FreeRoom, frees
from extender.engine.state.availability import would_end_service
from extender.engine.state.pool_state import PoolState
from extender.model.objects import VPod

PODS_TRIED_MAX: Final = 6
"""Preferred pods on which another vreplica may make way."""
VPODS_TRIED_MAX: Final = 4
"""Vpods that may make way on one of them."""


class Swap(NamedTuple):
    """One vreplica of ``vpod`` goes from ``source`` to the pod with the ordinal ``to``. After that,
    one of the vpod in question goes from the pod ``instead_of`` to ``source``.
    """

    vpod: VPod
    source: PodClaims
    to: int
    instead_of: str


def find_swap(
    pool: PoolState, draft: Draft, vpod: VPod, among: int, movable: Callable[[str], VPod | None]
) -> Swap | None:
    """The first move of a swap that lets a vreplica of ``vpod`` go where its profile prefers it;
    None if there is none.

    ``among``: bit set of the pods that may get something. ``movable``: as for ``RoomSearch``.
    """
    room = FreeRoom(pool, draft, among)
    hole = max((room.free_of(ordinal) for ordinal in bits(among & pool.room)), default=0)
    if not hole:
        return None
    placed = draft.placed(vpod.key)
    try:
        for _ in range(PODS_TRIED_MAX):
            found = better_place(pool, vpod, placed, pool.profile, if_room=among)
            ordinal = pool.pods[found[1]].ordinal if found is not None else None
            if found is None or ordinal is None:
                return None
            among &= ~(1 << ordinal)
            pod, missing = pool.by_ordinal[ordinal], room.missing(vpod, ordinal)
            if not missing or not draft.open_to(1 << ordinal, vpod.key):
                continue  # its ledger is full: one vreplica less makes no room (seed 590002711)
            gained = gain(pool, vpod, placed, found, pool.profile)
            there = (movable(key) for key in draft.still_on(pod) if key != vpod.key)
            enough = [
                one
                for one in there
                if one is not None and one.weight <= hole and frees(one, missing)
            ]
            for one in sorted(enough, key=lambda one: (one.weight, one.key))[:VPODS_TRIED_MAX]:
                to = _other_place(pool, draft, one, pod, gained)
                if to is not None:
                    return Swap(one, pod, to, found[0])
    except PluginFailed:
        pass
    return None


def _other_place(
    pool: PoolState, draft: Draft, vpod: VPod, pod: PodClaims, loss_max: int
) -> int | None:
    """The ordinal of the pod to which one vreplica goes from ``pod``; None if there is none where
    it loses less than ``loss_max``.
    """
    given, left = draft.copy().place(vpod, pod, 1)
    if left:
        return None
    (to,) = given
    target = pool.by_ordinal[to]
    if would_end_service(pod, target):
        return None
    move = (pod.name, target.name)
    gained = gain(pool, vpod, draft.placed(vpod.key), move, pool.profile)
    return to if gained > -loss_max else None


def then(draft: Draft, swap: Swap, pool: PoolState) -> Placements:
    """The placements of the vpod that makes way, once it has."""
    target = pool.by_ordinal[swap.to].name
    return after(draft.placed(swap.vpod.key), swap.source.name, target)
