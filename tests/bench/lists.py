"""The lists of node names that a bench sends, as they differ from one pod of kube-scheduler's to
the next.

Its workers collect the nodes side by side, so the same nodes mostly come in another order with the
next pod. Other nodes come where some are added, go or fill up, where pods ask for different ones,
and where it looks at a sample (``percentageOfNodesToScore``; 100 as shipped). The very list that
came before is what a pod's prioritize has after its filter.
"""

import random
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

SAME: Final = "same"
"""The list that was sent before."""
REORDERED: Final = "reordered"
"""The same nodes, in a new order every time."""
OTHER: Final = "other"
"""Another random subset of all nodes every time."""
KINDS: Final = (SAME, REORDERED, OTHER)


class NodeLists:
    """``count`` of the nodes ``names`` for each request. ``kind``: one of ``KINDS``; ``seed``: of
    all that is random.
    """

    def __init__(self, names: Sequence[str], count: int, kind: str, seed: int) -> None:
        if kind == OTHER and count >= len(names):
            raise ValueError(f"no two lists of {count} of {len(names)} nodes differ")
        self._names = names
        self._count = count
        self._kind = kind
        self._seed = seed
        # Peers are asked in turn: each is sent what the one before was.
        self.of = lru_cache(maxsize=8)(self._of)

    def _of(self, number: int) -> list[str]:
        """The list of the request with that number, the same one each time it is asked for."""
        if self._kind == SAME:
            return list(self._names[: self._count])
        source = self._names if self._kind == OTHER else self._names[: self._count]
        return random.Random(f"{self._seed} {number}").sample(source, self._count)
