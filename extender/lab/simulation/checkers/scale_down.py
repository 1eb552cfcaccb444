"""I3 while faults happen: a scale-down removes no pod on which anything is published.

``settled.Stored.differences`` checks I3 after the faults have stopped.
"""

from collections.abc import Collection

from extender.lab.faults import ACTOR
from extender.lab.simulation.checkers.context import Checker
from extender.lab.simulation.world.facts import Pool, VPod


class ScaleDownChecker(Checker):
    """Checks StatefulSets when the service scales them."""

    def check(self, pool: Pool, removed: Collection[int]) -> None:
        """Check the removed ordinals of a pool's StatefulSet."""
        for ordinal in sorted(removed):
            name = f"{pool.name}-{ordinal}"
            for key in self._stored.published(name):
                vpod, pod = self._stored.vpods[key], self._stored.pods.get(name)
                on_the_pod = pod is not None and bool(pod.node) and bool(pod.count(key))
                if not on_the_pod and (vpod.by_caller or self._is_unwatched(vpod)):
                    # Only a caller or an unwatched object knows of it. A caller has to ask again.
                    continue
                if not self._edited_records.was_edited(key):
                    self._violated(f"I3: {ACTOR.get()} removed {name}, which {key} is on")

    def _is_unwatched(self, vpod: VPod) -> bool:
        """Return whether nobody reads a foreign object (of a kind in ``spec.sources``): the
        AdapterPool that names its kind is missing, or was missing lately.
        """
        pool = self._stored.pool(vpod.pool)
        return vpod.foreign and (pool.deleted or self._excuses.holds(f"gone {pool.name}"))
