"""``LeftBehind``: placements that vpods were moved away from, so that policy does not bring them
back.

Moves for policy end by themselves where each is a strict improvement. Plugins of others need not be
like that, and two rules may disagree. So what every move leaves is remembered, and a vpod returns
to no placements that it has left: its states never repeat, and there are only so many. What was
worse before may be better after a change that is not our doing: one of the pool (``surroundings``)
forgets everything, and what a vpod has left counts only while it asks for the same.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from extender.engine.state.pool_state import PoolState
from extender.model.objects import VPod

REMEMBERED_MAX: Final = 10_000
"""Placements a pool; the oldest go first. Reached only by thousands of moves without any change
from outside.
"""


class LeftBehind:
    """One pool's memory. Keeps hashes: two that collide cost one move that would have been
    right.
    """

    def __init__(self, remembered_max: int = REMEMBERED_MAX) -> None:
        self._remembered_max = remembered_max
        self._surroundings = 0
        self._left: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._left)

    def look(self, pool: PoolState) -> None:
        """Forget everything if the pool is no longer what it was. To be called before each plan."""
        now = surroundings(pool)
        if now != self._surroundings:
            self._surroundings = now
            self._left.clear()

    def leave(self, vpod: VPod, placements: Mapping[str, int]) -> None:
        """A move takes the vpod away from these placements."""
        state = _state(vpod, placements)
        self._left[state] = None
        self._left.move_to_end(state)
        while len(self._left) > self._remembered_max:
            self._left.popitem(last=False)

    def returns(self, vpod: VPod, placements: Mapping[str, int]) -> bool:
        """Whether the vpod has left these placements before."""
        return _state(vpod, placements) in self._left


def surroundings(pool: PoolState) -> int:
    """A hash of what placing depends on and no move changes: pods, where they are and what they
    hold, and the rules.

    Not the closed ordinals, which follow from what is placed.
    """
    return hash(
        (
            pool.profile.name,
            pool.stateful_set.ordinals if pool.stateful_set is not None else None,
            pool.adapter_pool.generation if pool.adapter_pool is not None else None,
            pool.schedulable,
            frozenset(pool.zones.items()),
            frozenset(pool.nodes.items()),
            frozenset((pod.name, pod.capacity) for pod in pool.members()),
            frozenset(pool.topology.zone_of.items()),
            frozenset(pool.hosting.zone_of.items()),
            pool.abandoned,
        )
    )


def _state(vpod: VPod, placements: Mapping[str, int]) -> int:
    """The placements together with what the vpod itself asks for."""
    return hash((vpod.key, vpod.uid, vpod.vreplicas, vpod.weight, frozenset(placements.items())))
