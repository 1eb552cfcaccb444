"""``selectHost``: which of the nodes with the highest score gets the pod.

kube-scheduler let them take turns from 1.3 (kubernetes#22430) to 1.15, and draws one since 1.16
(kubernetes#78009).
"""

import random
from collections.abc import Callable, Sequence

HostSelector = Callable[[Sequence[str]], str]
"""Chooses one of the equal nodes, which come in the order in which they were found feasible."""


class RoundRobin:
    """Equal nodes take turns, from pod to pod: ``lastNodeIndex`` of kube-scheduler up to 1.15."""

    def __init__(self) -> None:
        self._last_node_index = 0

    def __call__(self, nodes: Sequence[str]) -> str:
        """Return the next node. The index counts pods, whatever nodes they had to choose from."""
        chosen = nodes[self._last_node_index % len(nodes)]
        self._last_node_index += 1
        return chosen


def at_random(rng: random.Random) -> HostSelector:
    """Draw one of the equal nodes."""
    return rng.choice


def host_selector(name: str, rng: random.Random) -> HostSelector:
    """Return a selector by its name in ``SELECTORS``."""
    return RoundRobin() if name == "round-robin" else at_random(rng)


SELECTORS = ("round-robin", "random")
"""The first is the default."""
