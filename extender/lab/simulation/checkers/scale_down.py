"""I3 while things happen: who scales a pool down takes away no pod on which anything is published.

What is to be true once the faults have stopped is ``settled.Stored.differences``.
"""

from collections.abc import Collection

from extender.lab.faults import ACTOR
from extender.lab.simulation.checkers.known import Known
from extender.lab.simulation.world.facts import Pool, VPod


class ScaleDownChecker:
    """Looks at StatefulSets as the service scales them."""

    def __init__(self, known: Known) -> None:
        self._stored = known.stored
        self._broken = known.broken
        self._excuses = known.excuses
        self._violated = known.violated

    def check(self, pool: Pool, removed: Collection[int]) -> None:
        """``removed``: the ordinals that the StatefulSet has no longer."""
        for ordinal in sorted(removed):
            name = f"{pool.name}-{ordinal}"
            for key in self._stored.published(name):
                vpod, pod = self._stored.vpods[key], self._stored.pods.get(name)
                on_the_pod = pod is not None and bool(pod.node) and bool(pod.count(key))
                if not on_the_pod and (vpod.by_caller or self._is_unwatched(vpod)):
                    continue  # only its caller knows of it: it is to ask again; or nobody
                if not self._broken.was_edited(key):
                    self._violated(f"I3: {ACTOR.get()} removed {name}, which {key} is on")

    def _is_unwatched(self, vpod: VPod) -> bool:
        """Whether nobody reads an object of a foreign kind: its AdapterPool, which tells what to
        watch, is not there, or has just come back.
        """
        pool = self._stored.pool(vpod.pool)
        return vpod.foreign and (pool.deleted or self._excuses.holds(f"gone {pool.name}"))
