"""I2: what statuses publish on a bound pod is in its ledger, no matter which of the two was
written.
"""

from extender.lab.faults import ACTOR
from extender.lab.simulation.checkers.known import Known
from extender.lab.simulation.world.facts import Pod, VPod, in_force


class CoverageChecker:
    """Checks bound pods and statuses when they are written, by anybody."""

    def __init__(self, known: Known) -> None:
        self._stored = known.stored
        self._excuses = known.excuses
        self._broken = known.broken
        self._uncovering = known.uncovering
        self._two_lead = known.circumstances.two_lead
        self._violated = known.violated

    def ledger_written(self, pod: Pod, *, by_service: bool, bound_now: bool) -> None:
        """A ledger has changed, or its pod was bound. Record what it may lack for a good reason."""
        published = self._stored.published(pod.name)
        if self._two_lead():
            self._uncovering.all_of(pod.name)
        elif not by_service:
            self._uncovering.edited(pod, published)
        elif bound_now:
            pool = self._stored.pool(pod.pool)
            slots = min(in_force(pool.slots_seen, self._excuses.since()), default=0)
            least = slots if pod.slots is None else min(slots, pod.slots)
            self._uncovering.bound(
                pod, published, least, self._broken.heaviest_lately, self._broken.was_edited
            )
        # A bind restores the predecessor's ledger as it was, with old weights. And the writer may
        # have seen an earlier number of slots.
        by_what_was = (bound_now and self._stored.outweighed(pod)) or not self._fits(pod)
        if self._two_lead() or not by_service or by_what_was:
            self._broken.break_ledgers([pod.name])

    def check_pod(self, pod: Pod) -> None:
        """Check that the pod's ledger covers all that is published on it, unless excused."""
        uncovered = [
            key for key, count in self._stored.published(pod.name).items() if count > pod.count(key)
        ]
        self._uncovering.ledger(pod, uncovered)
        if not uncovered and self._fits(pod) and not self._stored.outweighed(pod):
            self._broken.ledger_is_right(pod.name)
        for key in uncovered:
            if not self._uncovering.excuses(pod.name, key) and not self._broken.was_edited(key):
                self._violated(f"I2: {self._both(pod, key)}")

    def _fits(self, pod: Pod) -> bool:
        return (
            pod.slots is not None
            and pod.ledger is not None
            and pod.total <= min(pod.slots, self._stored.pool(pod.pool).slots)
        )

    def check_vpod(self, vpod: VPod) -> None:
        """Check that ledgers cover all that the vpod publishes, unless excused."""
        uncovered = [
            pod
            for name, count in vpod.placements.items()
            if (pod := self._stored.pods.get(name)) is not None
            and pod.node
            and pod.count(vpod.key) < count
        ]
        if not uncovered:
            self._broken.status_is_covered(vpod.key)
        for pod in uncovered:
            if self._uncovering.excuses(pod.name, vpod.key):
                self._uncovering.published(pod.name, vpod.key)
            elif not self._broken.was_edited(vpod.key):
                self._violated(f"I2: {self._both(pod, vpod.key)}")

    def _both(self, pod: Pod, key: str) -> str:
        vpod = self._stored.vpods[key]
        return (
            f"{ACTOR.get()} wrote; status of {key} (wants {vpod.wanted}) has "
            f"{dict(vpod.placements)}, "
            f"ledger of {pod.name} on {pod.node} has {pod.text}"
        )
