"""Round robin: how vreplicas are dealt out where no plugin chooses (DESIGN 5.1). Pure."""

from collections.abc import Callable

from extender.engine.pods.bits import bits


def round_robin(
    room: int, own: int, free: Callable[[int], int], missing: int, weight: int
) -> tuple[dict[int, int], int]:
    """Give ``missing`` vreplicas of ``weight`` slots one at a time: (ordinal -> vreplicas, what is left).

    ``room``, ``own``: bit sets of the ordinals with room and of those where the vpod already is, which come last in
    each round; ``free``: an ordinal's free slots. Looks at no more ordinals than it gives vreplicas to, and those
    that turn out too full; rounds in which every pod that is left takes one are given all at once.
    """
    added: dict[int, int] = {}
    groups = [room & ~own, room & own]
    while missing and any(groups):
        turn = [ordinal for group in groups for ordinal in bits(group)] if added else []
        if turn and (rounds := missing // len(turn)):
            fitting = min((free(ordinal) - added.get(ordinal, 0) * weight) // weight for ordinal in turn)
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
