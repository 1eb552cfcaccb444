"""Statuses are true: Scheduled=True means that the spec is placed. And a vpod gets nothing more in
a pool that does not select its namespace.
"""

from extender.lab.faults import ACTOR
from extender.lab.simulation.checkers.context import Checker
from extender.lab.simulation.world.facts import VPod, in_force


class HonestyChecker(Checker):
    """Checks statuses that the service writes."""

    def check_allowed(self, old: VPod, new: VPod) -> None:
        """Check that a vpod has no more vreplicas than before in a pool that does not select its
        namespace. A recent change of labels, selector or pool is an excuse.
        """
        if new.total > old.total and self._is_refused(new):
            self._violated(
                f"status: {ACTOR.get()} gave {new.key} more, whose namespace {new.pool} does not "
                f"select: {dict(old.placements)} became {dict(new.placements)}"
            )

    def _is_refused(self, vpod: VPod) -> bool:
        lately = (
            f"labels {vpod.namespace}",
            f"selector {vpod.pool}",
            f"pool {vpod.key}",
            f"quarantine {vpod.key}",
        )
        return not any(map(self._excuses.holds, lately)) and not self._stored.is_allowed(vpod)

    def check_others(self, old: VPod, new: VPod) -> None:
        """Check that the conditions of a foreign kind's own controller stay as they are."""
        if new.others != old.others:
            self._violated(
                f"status: {ACTOR.get()} changed the conditions of others on {new.key}: "
                f"{old.others} became {new.others}"
            )

    def check_gang(self, old: VPod, new: VPod) -> None:
        """Check that a vpod begins with as many vreplicas as it needs together, and that it loses
        all of them if it loses some of these.

        What a pool does not look after stays as it is: one that is deleted, or no longer selects
        the vpod, or has left it to another pool.
        """
        pool = self._stored.pool(new.pool)
        stays = pool.deleted or not self._stored.is_allowed(new) or new.deleting
        lately = (
            f"gone {pool.name}",
            f"pool {new.key}",
            f"selector {pool.name}",
            f"quarantine {new.key}",
        )
        if (
            0 < new.total < new.least
            and (not old.total or new.total < old.total)
            and new.observed == new.generation
            and not stays
            and not any(map(self._excuses.holds, lately))
        ):
            self._violated(
                f"gang: {ACTOR.get()} gave {new.key} {new.total} of {new.least} vreplicas that it "
                f"needs together: {dict(old.placements)} became {dict(new.placements)}"
            )

    def check_scheduled(self, vpod: VPod) -> None:
        """Check that with Scheduled=True for the present generation, the present spec is placed."""
        pool = self._stored.pool(vpod.pool)
        raised = (
            max(in_force(pool.raised_seen, self._excuses.since()), default=0) if vpod.wanted else 0
        )
        placed = vpod.wanted <= vpod.total <= max(vpod.wanted, raised)
        if vpod.observed == vpod.generation and vpod.condition[0] == "True" and not placed:
            self._violated(
                f"status: {vpod.key} says {vpod.condition} for generation {vpod.generation}, which "
                f"wants {vpod.wanted}, with {dict(vpod.placements)}"
            )
