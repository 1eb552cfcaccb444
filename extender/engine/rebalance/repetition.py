"""``LeftBehind``: placements that moves have taken vpods away from, so that policy does not bring
them back.

Policy moves end by themselves if each is a strict improvement. Third-party plugins may not be like
that, and two rules may disagree. So the placements that each move leaves are remembered, and policy
never returns a vpod to them. Its placements do not repeat then, and there is only a finite number
of them. What was worse may be better after a change that is not our own. So a change of the pool
or of what its vpods ask for (``surroundings``) forgets everything. Otherwise a pool that lives long
would run out of moves, and vpods would wait for room that one of them could make.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from extender.engine.state.pool_state import PoolState
from extender.model.objects import VPod

REMEMBERED_MAX: Final = 10_000
"""Placements for a pool; the oldest are forgotten first. Only thousands of moves without a change
from outside reach it.
"""


class LeftBehind:
    """One pool's memory. It keeps hashes: a collision only prevents one move that would have been
    right.
    """

    def __init__(self, remembered_max: int = REMEMBERED_MAX) -> None:
        self._remembered_max = remembered_max
        self._surroundings = 0
        self._left: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._left)

    def look(self, pool: PoolState) -> None:
        """Forget everything if the pool has changed. Call this before each plan."""
        now = surroundings(pool)
        if now != self._surroundings:
            self._surroundings = now
            self._left.clear()

    def leave(self, vpod: VPod, placements: Mapping[str, int]) -> None:
        """Remember placements that a move takes the vpod away from."""
        state = _state(vpod, placements)
        self._left[state] = None
        self._left.move_to_end(state)
        while len(self._left) > self._remembered_max:
            self._left.popitem(last=False)

    def returns(self, vpod: VPod, placements: Mapping[str, int]) -> bool:
        """Whether the vpod has left these placements before."""
        return _state(vpod, placements) in self._left


def surroundings(pool: PoolState) -> int:
    """A hash of what placing depends on and no move changes: pods, their places and capacity,
    what vpods ask for, and the rules.

    The closed ordinals are left out, since they follow from what is placed.
    """
    return hash(
        (
            pool.profile.name,
            pool.asks_revision,
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
    """A hash of the placements and of what the vpod asks for."""
    return hash((vpod.key, vpod.uid, vpod.vreplicas, vpod.weight, frozenset(placements.items())))
