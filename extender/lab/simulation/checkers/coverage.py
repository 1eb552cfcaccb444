"""I2: what statuses publish on a bound pod is in its ledger, no matter which of the two was
written.
"""

from extender.lab.faults import ACTOR
from extender.lab.simulation.checkers.context import Checker
from extender.lab.simulation.checkers.coverage_excuses import Dimensions
from extender.lab.simulation.world.facts import Pod, Pool, VPod, in_force


class CoverageChecker(Checker):
    """Checks bound pods and statuses when they are written, by anybody."""

    def ledger_written(self, pod: Pod, *, by_service: bool, bound_now: bool) -> None:
        """A ledger has changed, or its pod was bound. Record what it may lack for a good reason."""
        published = self._stored.published(pod.name)
        if self._two_lead():
            self._coverage_excuses.all_of(pod.name)
        elif not by_service:
            self._coverage_excuses.edited(pod, published)
        elif bound_now:
            pool = self._stored.pool(pod.pool)
            slots = min(in_force(pool.slots_seen, self._excuses.since()), default=0)
            least = slots if pod.slots is None else min(slots, pod.slots)
            self._coverage_excuses.bound(
                pod,
                published,
                least,
                self._edited_records.heaviest_lately,
                self._edited_records.was_edited,
                Dimensions(self._least_capacities(pool), self._stored.amounts),
            )
        # A bind restores the predecessor's ledger as it was, with old weights. And the writer may
        # have seen an earlier number of slots.
        by_what_was = (bound_now and self._stored.with_stale_weight(pod)) or not self._fits(pod)
        if self._two_lead() or not by_service or by_what_was:
            self._edited_records.break_ledgers([pod.name])

    def check_pod(self, pod: Pod) -> None:
        """Check that the pod's ledger covers all that is published on it, unless excused."""
        uncovered = [
            key for key, count in self._stored.published(pod.name).items() if count > pod.count(key)
        ]
        self._coverage_excuses.ledger(pod, uncovered)
        if not uncovered and self._fits(pod) and not self._stored.with_stale_weight(pod):
            self._edited_records.ledger_is_right(pod.name)
        for key in uncovered:
            if not self._coverage_excuses.excuses(
                pod.name, key
            ) and not self._edited_records.was_edited(key):
                self._violated(f"I2: {self._both(pod, key)}")

    def _fits(self, pod: Pod) -> bool:
        return (
            pod.slots is not None
            and pod.ledger is not None
            and pod.total <= min(pod.slots, self._stored.pool(pod.pool).slots)
            and not self._stored.pool(pod.pool).overfull(pod)
        )

    def _least_capacities(self, pool: Pool) -> dict[str, int]:
        """Return the least that a pod has had of each dimension lately."""
        least: dict[str, int] = {}
        for capacities in in_force(pool.capacities_seen, self._excuses.since()):
            for name, most in capacities.items():
                least[name] = min(most, least.get(name, most))
        return least

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
            self._edited_records.status_is_covered(vpod.key)
        for pod in uncovered:
            if self._coverage_excuses.excuses(pod.name, vpod.key):
                self._coverage_excuses.published(pod.name, vpod.key)
            elif not self._edited_records.was_edited(vpod.key):
                self._violated(f"I2: {self._both(pod, vpod.key)}")

    def _both(self, pod: Pod, key: str) -> str:
        vpod = self._stored.vpods[key]
        return (
            f"{ACTOR.get()} wrote; status of {key} (wants {vpod.wanted}) has "
            f"{dict(vpod.placements)}, ledger of {pod.name} on {pod.node} has {pod.text}"
        )
