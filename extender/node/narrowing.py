"""Narrowing: filter passes the best few of the nodes that a pod may go to, by what prioritize would
score them.

With thousands of nodes most of a scheduling cycle goes into names on the wire and into
kube-scheduler scoring nodes that we know to be worse. The best few, in the order asked, leave
enough for its own preferences, and prioritize need not be asked at all. No reason is hidden: what
is refused is refused as ever, and a pod that fits somewhere is left at least one such node.

kube-scheduler may still reject all of them later (volumes, a permit, a bind that fails), and asks
again. So each time that the same pod is asked about again, four times as many pass, until all do.
"""

from collections.abc import Mapping, Sequence
from itertools import islice

from extender.model.objects import Node
from extender.node.candidates import Candidates
from extender.node.exposure import Alike


def room_for(narrow_to: int, asked_before: int) -> int:
    """How many nodes may pass, for a pod that was asked about so many times lately."""
    return narrow_to << 2 * min(asked_before, 10)


def best_of(
    candidates: Candidates, groups: Sequence[Alike], most: int, nodes: Mapping[str, Node]
) -> list[str]:
    """Up to ``most`` of the candidates, those with the highest scores, in the order asked.

    Looks at no more of the candidates than it has to; each is in one group, or in what is left of
    its zone.
    """
    position = candidates.position()
    told = {name for group in groups if group.names is not None for name in group.names}
    chosen: list[str] = []
    for score in sorted({group.score for group in groups}, reverse=True):
        alike = [group for group in groups if group.score == score]
        zones = {group.zone for group in alike if group.names is None}
        named = sorted(
            (name for group in alike for name in group.names or ()), key=position.__getitem__
        )
        rest = (
            (name for name in candidates.names if name not in told and nodes[name].zone in zones)
            if zones
            else ()
        )
        room = most - len(chosen)
        chosen += sorted((*named[:room], *islice(rest, room)), key=position.__getitem__)[:room]
        if len(chosen) >= most:
            break
    return sorted(chosen, key=position.__getitem__)
