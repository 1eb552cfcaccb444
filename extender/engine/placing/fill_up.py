"""MAXFILLUP, Knative's only way to place without policies up to 1.16: fill pods to the brim, one after the other.

First the pods where the vpod already is, by ascending ordinal, then all others by ascending ordinal: few pods in use,
and each vpod on few of them. Knative fills pods also that are missing, pending or marked unschedulable; that is left out.
"""

from collections.abc import Callable

from extender.engine.pods.bits import bits


def fill_up(
    room: int, own: int, free: Callable[[int], int], missing: int, weight: int
) -> tuple[dict[int, int], int]:
    """Give ``missing`` vreplicas of ``weight`` slots: (ordinal -> vreplicas, what is left).

    ``room``, ``own``: bit sets of the ordinals with room and of those where the vpod already is; ``free``: an
    ordinal's free slots. Looks at no more ordinals than it gives vreplicas to, and those that turn out too full.
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
