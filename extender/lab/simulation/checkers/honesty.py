"""Statuses are honest: Scheduled=True means that the spec is placed; and who is not selected by a
pool gets no more there.
"""

from extender.lab.faults import ACTOR
from extender.lab.simulation.checkers.known import Known
from extender.lab.simulation.world.facts import VPod, in_force


class HonestyChecker:
    """Looks at statuses as the service writes them."""

    def __init__(self, known: Known) -> None:
        self._stored = known.stored
        self._excuses = known.excuses
        self._violated = known.violated

    def check_allowed(self, old: VPod, new: VPod) -> None:
        """It got no more in a pool that has not been for its namespace for longer than a decision
        may be old.
        """
        if new.total > old.total and self._is_refused(new):
            self._violated(
                f"status: {ACTOR.get()} gave {new.key} more, whose namespace {new.pool} does not "
                f"select: "
                f"{dict(old.placements)} became {dict(new.placements)}"
            )

    def _is_refused(self, vpod: VPod) -> bool:
        lately = (f"labels {vpod.namespace}", f"selector {vpod.pool}", f"pool {vpod.key}")
        return not any(map(self._excuses.holds, lately)) and not self._stored.is_allowed(vpod)

    def check_scheduled(self, vpod: VPod) -> None:
        """Scheduled=True for the present generation means that the present spec is placed."""
        pool = self._stored.pool(vpod.pool)
        raised = (
            max(in_force(pool.raised_seen, self._excuses.since()), default=0) if vpod.wanted else 0
        )
        placed = vpod.wanted <= vpod.total <= max(vpod.wanted, raised)
        if vpod.observed == vpod.generation and vpod.condition[0] == "True" and not placed:
            self._violated(
                f"status: {vpod.key} says {vpod.condition} for generation {vpod.generation}, which "
                f"wants "
                f"{vpod.wanted}, with {dict(vpod.placements)}"
            )
