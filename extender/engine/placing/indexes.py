"""Which of a vpod's vreplicas are where, in pools with ``handoff.identity: Indexed``. Pure.

The engine places vreplicas that are all alike. This layer gives them indexes, 0 to ``of`` - 1, from
how many are placed on each pod, and from what the pods' assignments say already. An index moves
only if it has to: its pod has fewer vreplicas than before, or the vpod has shrunk below it.

Nothing else is stored. ``indexes_at_rest`` finds the same sets again from what it has led to, so
the next leader goes on with them. While a move is under way, an index is told to the pod that it
leaves and to the one that gets it. The former has more of them than are placed there, and that
tells that it will let this one go. If it may keep them all, because the move was taken back, it
does: it serves them, and the other one perhaps not yet.
"""

from collections.abc import Mapping
from itertools import accumulate
from operator import or_

from extender.model.indexes import highest, lowest, up_to
from extender.model.objects import placement_order


def indexes_at_rest(told: Mapping[str, int], placed: Mapping[str, int], of: int) -> dict[str, int]:
    """Pod name -> the indexes that a vpod has there once nothing moves any more.

    ``told``: pod name -> the indexes of its assignment. Of several pods with the same index, the
    first one keeps it, unless it has too many. ``placed``: pod name -> vreplicas. ``of``: how many
    the vpod asks for. The sets are disjoint, and as large as ``placed`` says.
    """
    names = [name for name in {**told, **placed} if placed.get(name, 0) > 0]
    total = sum(placed[name] for name in names)
    last = max((told.get(name, 0).bit_length() for name in names), default=0)
    limit = up_to(max(total, min(of, last)))  # not of ``of``, which may be two billion
    kept = {name: told.get(name, 0) & limit for name in names}
    after = list(accumulate((kept[name] for name in reversed(names)), or_, initial=0))[-2::-1]
    taken = 0
    for name, others in zip(names, after, strict=True):
        excess = kept[name].bit_count() - placed[name]
        kept[name] = _without(kept[name], excess, taken | others) & ~taken
        taken |= kept[name]
    free = limit & ~taken
    for name in sorted(names, key=placement_order):
        more = lowest(free, placed[name] - kept[name].bit_count())
        kept[name] |= more
        free ^= more
    return kept


def told_next(had: int, at_rest: int, count: int) -> int:
    """The indexes that a pod is told whose ledger has ``count`` vreplicas.

    ``had``: what it is told now. ``at_rest``: of ``indexes_at_rest``. The ledger has more while
    some leave, and they stay until then.
    """
    if count <= at_rest.bit_count():
        kept = lowest(had & at_rest, count)
        return kept | lowest(at_rest & ~kept, count - kept.bit_count())
    leaving = had & ~at_rest
    return at_rest | lowest(leaving, count - at_rest.bit_count())


def _without(indexes: int, excess: int, others: int) -> int:
    """``indexes`` without ``excess`` of them: those that others have too, then the highest."""
    if excess <= 0:
        return indexes
    gone = highest(indexes & others, excess)
    return indexes & ~(gone | highest(indexes & ~gone, excess - gone.bit_count()))
