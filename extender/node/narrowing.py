"""Narrowing: filter passes only the best few of the nodes that a pod may go to, by prioritize's
scores.

With thousands of nodes, most of a scheduling cycle goes into names on the wire, and into
kube-scheduler's scoring of nodes that we know to be worse. The best few leave enough for
kube-scheduler's own preferences, and prioritize need not be called at all. Refusals and their
reasons stay the same. A pod that fits somewhere is left at least one such node.

kube-scheduler may reject all of these nodes later (volumes, a permit, a failed bind), and asks
again. So each further filter call for the same pod passes four times as many nodes, until all pass.
"""

from collections.abc import Mapping, Sequence
from itertools import islice

from extender.model.objects import Node
from extender.node.candidates import Candidates
from extender.node.exposure import Alike


def room_for(narrow_to: int, asked_before: int) -> int:
    """How many nodes may pass for a pod with ``asked_before`` recent filter calls."""
    return narrow_to << 2 * min(asked_before, 10)


def best_of(
    candidates: Candidates, groups: Sequence[Alike], most: int, nodes: Mapping[str, Node]
) -> Candidates:
    """Return up to ``most`` candidates with the highest scores, in the order of the request.

    Looks at no more candidates than necessary. Each is named in one group, or is in a group that
    takes the rest of its zone.
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
    return Candidates.of(sorted(chosen, key=position.__getitem__))
