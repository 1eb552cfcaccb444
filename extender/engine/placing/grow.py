"""Which pods get a vpod's next vreplicas, as the pool's profile has it (DESIGN 5.1). Pure.

Three ways, and ``grow`` chooses between them: ``round_robin`` is Knative's today, ``fill_up`` its
MAXFILLUP of up to 1.16, and profiles with plugins are ``select``'s. MAXFILLUP fills pods to the
brim, one after the other: first those where the vpod already is, so that few pods are in use.
Knative fills pods that are missing, pending or marked unschedulable as well; that is left out.
"""

from collections.abc import Callable, Mapping

from extender.engine.placing.select import grow_by_plugins
from extender.engine.pods.bits import bits
from extender.engine.state.pool_state import PoolState
from extender.model.objects import VPod


def grow(
    pool: PoolState,
    vpod: VPod,
    kept: Mapping[str, int],
    missing: int,
    free: Callable[[int], int],
    room: int,
) -> tuple[dict[int, int], int]:
    """Give ``missing`` vreplicas: (ordinal -> vreplicas, what is left). Raises PluginFailed.

    ``kept``: pod name -> vreplicas; ``free``: an ordinal's free slots beside them; ``room``: the
    ordinals that may get something where no plugin chooses.
    """
    profile = pool.profile
    if profile.has_plugins:
        return grow_by_plugins(pool, vpod, kept, missing, free, profile)
    give = round_robin if profile.rules.round_robin else fill_up
    return give(room, pool.ordinals_of(kept), free, missing, vpod.weight)


def round_robin(
    room: int, own: int, free: Callable[[int], int], missing: int, weight: int
) -> tuple[dict[int, int], int]:
    """Give ``missing`` vreplicas of ``weight`` slots one at a time: (ordinal -> vreplicas, what is
    left).

    ``room``, ``own``: bit sets of the ordinals with room and of those where the vpod already is,
    which come last in each round; ``free``: an ordinal's free slots. Looks at no more ordinals than
    it gives vreplicas to, and those that turn out too full; rounds in which every pod that is left
    takes one are given all at once.
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
    """Give ``missing`` vreplicas of ``weight`` slots: (ordinal -> vreplicas, what is left).

    ``room``, ``own``: bit sets of the ordinals with room and of those where the vpod already is;
    ``free``: an ordinal's free slots. Looks at no more ordinals than it gives vreplicas to, and
    those that turn out too full.
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
