"""Whether a move by policy has made anything better: how unevenly a vpod stands, as its profile
weighs it.

``spread`` and ``ha`` want the same load in every zone, then on every node, then on every pod: 100,
10 and 1 times the sum of the squares of the loads, which falls with every vreplica that goes to
where fewer are. ``pack`` wants low ordinals.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from extender.lab.simulation.world.facts import ReportedMove, ordinal_of

EVEN: Final = frozenset({"spread", "ha"})
WEIGHTS: Final = (100, 10, 1)
"""Of zones, nodes and pods."""


def unevenness(placements: Mapping[str, int], place_of: Callable[[str], tuple[str, str]]) -> int:
    """Less is better. ``place_of``: (zone, node) of a pod by its name."""
    loads: tuple[dict[object, int], ...] = ({}, {}, {})
    for name, count in placements.items():
        zone, node = place_of(name)
        for load, key in zip(loads, (zone, node, name), strict=True):
            load[key] = load.get(key, 0) + count
    return sum(
        weight * sum(n * n for n in load.values())
        for weight, load in zip(WEIGHTS, loads, strict=True)
    )


def is_better(
    profile: str,
    moves: Iterable[ReportedMove],
    placements: tuple[Mapping[str, int], Mapping[str, int]],
    place_of: Callable[[str], tuple[str, str]],
) -> bool:
    """Whether moves (before, after) are ones that a profile would make; one that wants nothing
    makes none.
    """
    if profile in EVEN:
        before, after = placements
        return unevenness(after, place_of) < unevenness(before, place_of)
    return profile == "pack" and all(
        ordinal_of(move.to_pod) < ordinal_of(move.from_pod) for move in moves
    )
