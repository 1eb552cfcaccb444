"""Which pods get a vpod's next vreplicas, by the pool's profile (DESIGN 5.1). Pure.

``grow`` chooses one of three ways: ``round_robin`` is Knative's present one, ``fill_up`` its
MAXFILLUP of up to 1.16, and ``grow_by_plugins`` gives one vreplica at a time to the pod with the
best score. MAXFILLUP fills pods completely, one after the other, and first those where the vpod
already is, so that few pods are in use. Knative also fills pods that are missing, pending or marked
unschedulable, which is left out here.
"""

from collections.abc import Callable, Mapping

from extender.engine.placing.evenly import grow_evenly
from extender.engine.placing.pick import picker
from extender.engine.placing.select import spread_of
from extender.engine.pods.bits import bits
from extender.engine.policy.profile import Profile
from extender.engine.state.pool_state import PoolState
from extender.model.amounts import Amounts
from extender.model.objects import VPod


def free_beside(
    pool: PoolState,
    vpod: VPod,
    kept: Mapping[str, int],
    size: tuple[int, Amounts] | None = None,
) -> Callable[[int], int]:
    """A function: an ordinal's free slots beside what a vpod keeps (pod name -> vreplicas), as far
    as its vreplicas can use them.

    What the vpod holds there counts as free, since its share is written as a whole. ``size``: the
    slots of one vreplica, and what it takes of the pool's dimensions, if not as the vpod says.
    """
    by_ordinal, vpod_key = pool.by_ordinal, vpod.key
    weight, amounts = size or (vpod.weight, vpod.per_vreplica)
    if amounts or vpod.max_per_pod:

        def usable(ordinal: int) -> int:
            pod = by_ordinal[ordinal]
            there = kept.get(pod.name, 0)
            return vpod.slots_beside(there, pod.slots_for(weight, amounts, there, vpod_key))

        return usable

    def free(ordinal: int) -> int:
        pod = by_ordinal[ordinal]
        claim = pod.claims.get(vpod_key)
        held = claim.held_slots if claim is not None else 0
        return pod.capacity - pod.held + held - kept.get(pod.name, 0) * weight

    return free


def grow(
    pool: PoolState,
    vpod: VPod,
    kept: Mapping[str, int],
    missing: int,
    free: Callable[[int], int],
    room: int,
) -> tuple[dict[int, int], int]:
    """Give ``missing`` vreplicas: (ordinal -> vreplicas, vreplicas left). Raises PluginFailed.

    ``kept``: pod name -> vreplicas. ``free``: an ordinal's free slots beside them. ``room``: the
    ordinals that may get something if no plugin chooses.
    """
    profile = pool.profile
    if profile.has_plugins:
        return grow_by_plugins(pool, vpod, kept, missing, free, profile)
    give = round_robin if profile.rules.round_robin else fill_up
    return give(room, pool.ordinals_of(kept), free, missing, vpod.weight)


def grow_by_plugins(
    pool: PoolState,
    vpod: VPod,
    kept: Mapping[str, int],
    missing: int,
    free: Callable[[int], int],
    profile: Profile,
) -> tuple[dict[int, int], int]:
    """Give ``missing`` vreplicas: (ordinal -> vreplicas added, vreplicas left).

    ``free``: an ordinal's free slots beside what is kept there.
    """
    room = pool.room_for(vpod.key)
    if profile.fills_lowest:
        return fill_up(room, 0, free, missing, vpod.weight)
    spread = spread_of(pool, kept, weight=vpod.weight, free=free, room=room, vpod=vpod)
    if profile.costs is not None:
        return grow_evenly(spread, profile.costs, missing, free)
    best = picker(spread, profile, pool.next_start_ordinal)
    added: dict[int, int] = {}
    while missing > 0 and (ordinal := best()) is not None:
        spread.add(ordinal)
        added[ordinal] = added.get(ordinal, 0) + 1
        missing -= 1
    return added, missing


def round_robin(
    room: int, own: int, free: Callable[[int], int], missing: int, weight: int
) -> tuple[dict[int, int], int]:
    """Give ``missing`` vreplicas of ``weight`` slots one at a time: (ordinal -> vreplicas,
    vreplicas left).

    ``room``, ``own``: bit sets of the ordinals with room, and of those where the vpod already is,
    which come last in each round. ``free``: an ordinal's free slots. Looks only at ordinals that
    get vreplicas or turn out too full. Rounds in which every remaining pod takes one are given at
    once.
    """
    added: dict[int, int] = {}
    groups = [room & ~own, room & own]
    while missing and any(groups):
        turn = [ordinal for group in groups for ordinal in bits(group)] if added else []
        if turn and (rounds := missing // len(turn)):
            fitting = min(
                (free(ordinal) - added.get(ordinal, 0) * weight) // weight for ordinal in turn
            )
            rounds = min(rounds, fitting)
            for ordinal in turn if rounds > 0 else ():
                added[ordinal] = added.get(ordinal, 0) + rounds
                missing -= rounds
        for index, group in enumerate(groups):
            for ordinal in bits(group):
                if not missing:
                    break
                given = added.get(ordinal, 0)
                if free(ordinal) >= (given + 1) * weight:
                    added[ordinal] = given + 1
                    missing -= 1
                else:
                    groups[index] &= ~(1 << ordinal)
    return added, missing


def fill_up(
    room: int, own: int, free: Callable[[int], int], missing: int, weight: int
) -> tuple[dict[int, int], int]:
    """Give ``missing`` vreplicas of ``weight`` slots: (ordinal -> vreplicas, vreplicas left).

    ``room``, ``own``: bit sets of the ordinals with room, and of those where the vpod already is.
    ``free``: an ordinal's free slots. Looks only at ordinals that get vreplicas or turn out too
    full.
    """
    added: dict[int, int] = {}
    for group in (room & own, room & ~own):
        for ordinal in bits(group):
            if not missing:
                return added, 0
            if (given := min(missing, free(ordinal) // weight)) > 0:
                added[ordinal] = given
                missing -= given
    return added, missing
