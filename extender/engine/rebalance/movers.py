"""``Movers``: the vpods of which one vreplica may leave a pod, in the order in which a search for
room tries them. Pure.

If slots alone are missing, the lightest vreplica that frees enough comes first, and then the
heaviest ones. If a pod lacks several things, the *size* of a vreplica stands for its weight: the
greatest part of a pod that it takes of any of them. Of those that do not free enough alone, the
ones that free most of what is missing come first.
"""

import operator
from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from extender.engine.pods.claims import PodClaims
from extender.engine.rebalance.free_room import taken_by
from extender.model.amounts import SLOTS
from extender.model.objects import VPod

MOVES_MAX: Final = 4
"""Moves for one vreplica."""


class Group(NamedTuple):
    """Movable vpods on one pod of which a vreplica takes the same: ``takes``, by ``SLOTS`` and
    dimension.
    """

    size: float
    vpods: list[VPod]
    takes: Mapping[str, int]


class _Load(NamedTuple):
    """The groups on one pod, the smallest first. ``weights``: of its vreplicas, the heaviest first.
    ``most``: the most that a vreplica takes.
    """

    by_size: list[Group]
    by_weight: list[Group]
    weights: list[int]
    most: Mapping[str, int]


_SLOTS_ALONE: Final = {SLOTS: 0}.keys()


class Movers:
    """What stands on the pods before a plan; its searches share it. What the plan has moved since,
    each search sees itself.

    ``movable``: the vpod with that key, if it may be moved now.
    """

    def __init__(self, movable: Callable[[str], VPod | None]) -> None:
        self._movable = movable
        self._loads: dict[str, _Load] = {}
        """Pod name -> what is there."""

    def groups(
        self, pod: PodClaims, missing: Mapping[str, int], count: int, most: float | None
    ) -> list[Group]:
        """The groups to take one vreplica from, if a pod must free what is ``missing`` (by
        ``SLOTS`` and dimension) with ``count`` vreplicas: first those that are enough alone.
        ``most``: the greatest size of the others; None: any.
        """
        load = self._on(pod)
        if most is None:
            most = load.by_size[-1].size if load.by_size else 0
        if missing.keys() == _SLOTS_ALONE:
            return _by_slots(load.by_weight, missing[SLOTS], count, most)
        return _by_amounts(load, missing, count, most)

    def heaviest(self, pod: PodClaims, count: int, most: int | None = None) -> int:
        """Slots of the ``count`` heaviest vreplicas on a pod of at most so many slots each."""
        weights = self._on(pod).weights
        if most is not None:
            first = bisect_left(weights, -most, key=operator.neg)
            return sum(weights[first : first + count])
        return sum(weights[:count])

    def _on(self, pod: PodClaims) -> _Load:
        load = self._loads.get(pod.name)
        if load is None:
            load = self._loads[pod.name] = self._load_of(pod)
        return load

    def _load_of(self, pod: PodClaims) -> _Load:
        alike: dict[tuple[int, object], list[VPod]] = {}
        weights: list[int] = []
        for key, claim in sorted(pod.claims.items()):
            vpod = self._movable(key) if claim.decided.vreplicas else None
            if vpod is not None:
                alike.setdefault((vpod.weight, vpod.per_vreplica), []).append(vpod)
                weights += [vpod.weight] * min(claim.decided.vreplicas, MOVES_MAX)
        weights.sort(reverse=True)
        whole = {SLOTS: pod.capacity, **dict(pod.capacities)}
        most: dict[str, int] = {}
        groups: list[Group] = []
        for vpods in alike.values():
            takes, size = taken_by(vpods[0]), 0.0
            for what, amount in takes.items():
                size = max(size, amount / max(1, whole.get(what, 0)))
                most[what] = max(amount, most.get(what, 0))
            groups.append(Group(size, vpods, takes))
        by_weight = sorted(groups, key=lambda group: group.takes[SLOTS])
        by_size = sorted(groups, key=lambda group: group.size) if pod.capacities else by_weight
        return _Load(by_size, by_weight, weights, most)


def _by_slots(by_weight: list[Group], needed: int, count: int, most: float) -> list[Group]:
    several = [
        group
        for group in reversed(by_weight)
        if group.takes[SLOTS] < needed <= group.takes[SLOTS] * count and group.size <= most
    ]
    return [*(group for group in by_weight if group.takes[SLOTS] >= needed), *several]


def _by_amounts(load: _Load, missing: Mapping[str, int], count: int, most: float) -> list[Group]:
    alone: list[Group] = []
    several: list[tuple[float, float, int]] = []
    needed = [
        (what, whole, whole - load.most.get(what, 0) * (count - 1))
        for what, whole in missing.items()
    ]
    for index, (size, _, takes) in enumerate(load.by_size):
        enough, share = True, 0.0
        for what, whole, least in needed:
            amount = takes.get(what, 0)
            if amount < least:  # the others could not free the rest
                enough, share = False, 0.0
                break
            if amount < whole:
                enough = False
                share += amount / whole
            else:
                share += 1.0
        if enough:
            alone.append(load.by_size[index])
        elif share and size <= most:
            several.append((-share, -size, index))
    return [*alone, *(load.by_size[index] for _, _, index in sorted(several))]
