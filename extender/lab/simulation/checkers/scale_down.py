"""I3 while things happen: who scales a pool down takes away no pod on which anything is published.

What is to be true once the faults have stopped is ``settled.Stored.differences``.
"""

from collections.abc import Collection

from extender.lab.faults import ACTOR
from extender.lab.simulation.checkers.known import Known
from extender.lab.simulation.world.facts import Pool


class ScaleDownChecker:
    """Looks at StatefulSets as the service scales them."""

    def __init__(self, known: Known) -> None:
        self._stored = known.stored
        self._broken = known.broken
        self._violated = known.violated

    def check(self, pool: Pool, removed: Collection[int]) -> None:
        """``removed``: the ordinals that the StatefulSet has no longer."""
        for ordinal in sorted(removed):
            name = f"{pool.name}-{ordinal}"
            for key in self._stored.published(name):
                pod = self._stored.pods.get(name)
                if self._stored.vpods[key].by_caller and not (
                    pod is not None and pod.node and pod.count(key)
                ):
                    continue  # only its caller knows of it: it is to ask again
                if not self._broken.was_edited(key):
                    self._violated(f"I3: {ACTOR.get()} removed {name}, which {key} is on")
