"""Whether a move by policy was an improvement in the terms of the pool's profile.

``spread``, ``ha`` and ``spread-by-load`` want equal loads of all zones, then of all nodes, then of
all pods. The measure is the sum of the squares of the loads, times 100, 10 and 1. It falls with
every vreplica that moves to a less loaded place. ``pack`` wants low ordinals. Profiles with
``LeastAllocated`` want emptier pods (``allocated``).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from extender.lab.simulation.world.configuration import SPREAD_BY_LOAD
from extender.lab.simulation.world.facts import Pod, Pool, ReportedMove, ordinal_of

EVEN: Final = frozenset({"spread", "ha", SPREAD_BY_LOAD})
WEIGHTS: Final = (100, 10, 1)
"""The weights of zones, nodes and pods."""


def unevenness(placements: Mapping[str, int], place_of: Callable[[str], tuple[str, str]]) -> int:
    """Return the measure; lower is better. ``place_of``: pod name -> (zone, node)."""
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
    """Return whether the profile would make these moves. ``placements`` are those before and after.
    A profile other than ``spread``, ``ha`` and ``pack`` makes none.
    """
    if profile in EVEN:
        before, after = placements
        return unevenness(after, place_of) < unevenness(before, place_of)
    return profile == "pack" and all(
        ordinal_of(move.to_pod) < ordinal_of(move.from_pod) for move in moves
    )


def allocated(pool: Pool, pod: Pod, dimension: str) -> float:
    """Return the part of a pod that its ledger takes, of a dimension of the pool, else of slots."""
    if (most := pool.capacities.get(dimension)) is not None:
        return pod.taken_of(dimension) / most
    return pod.total / max(1, min(pool.slots, pod.slots or 0))
