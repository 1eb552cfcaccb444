"""One call of Knative's Schedule(vpod) up to 1.16: its input, Knative's answer, and what both rules
and views ask of it.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from extender.model.amounts import SLOTS
from tests.conformance.policies import Policy
from tests.conformance.state_cases import World


@dataclass(frozen=True)
class Call:
    """One Schedule(``key``) in ``world``, whose ``decided`` is what Knative has reserved."""

    world: World
    key: str
    policy: Policy
    placements: list[dict[str, Any]]
    """Knative's answer."""
    left: int

    @property
    def own(self) -> dict[str, int]:
        """What is reserved for the vpod."""
        return self.world.decided.get(self.key, {})

    @property
    def published(self) -> dict[str, int]:
        """The vpod's status, with entries of 0 vreplicas."""
        return self.world.status[self.key]

    @cached_property
    def schedulable(self) -> frozenset[str]:
        """Names of the pods that may take work."""
        pool = self.world.build()
        return frozenset(pod.name for pod in pool.members() if pod.schedulable)

    @property
    def wanted(self) -> int:
        """vreplicas."""
        return self.world.vreplicas[self.key]

    @property
    def standing(self) -> dict[str, int]:
        """What is published on schedulable pods, without entries of 0."""
        return {
            name: count
            for name, count in self.published.items()
            if count and name in self.schedulable
        }

    @cached_property
    def left_by_others(self) -> dict[str, int]:
        """Pod name -> slots that no other vpod has or has reserved, below 0 where they overcommit
        it; for pods that are published.
        """
        pool = self.world.build()
        claims = pool.claims_of(self.key)
        return {
            name: pool.pods[name].capacity - pool.pods[name].decided + claims[name].decided.slots
            for name in self.standing
        }

    @cached_property
    def left_by_written(self) -> dict[str, int]:
        """The same, without what others have only reserved."""
        pods = self.world.build().pods
        return {
            name: pods[name].capacity - pods[name].written_beside(self.key).get(SLOTS, 0)
            for name in self.standing
        }

    @cached_property
    def kept(self) -> dict[str, int]:
        """What of that no overcommit trims; 0 where all of it is trimmed."""
        return {
            name: max(0, min(count, self.left_by_written[name]))
            for name, count in self.standing.items()
        }

    @property
    def is_trimmed_by_reservation(self) -> bool:
        """Whether what is reserved for the vpod makes a difference to what Knative trims of its
        status.
        """
        return any(
            count != self.published[name]
            and max(count, self.published[name]) > self.left_by_others[name]
            for name, count in self.own.items()
            if name in self.standing
        )

    @property
    def wants_fewer(self) -> bool:
        """Whether vreplicas are to be taken away."""
        return sum(self.kept.values()) > self.wanted

    @property
    def changes(self) -> bool:
        """Whether anything is added, taken away or trimmed."""
        return sum(self.kept.values()) != self.wanted or self.kept != self.standing

    @property
    def is_placed_afresh(self) -> bool:
        """Whether policies place all of it again."""
        if (
            self.policy.scheduler is None
            or self.policy.fills_up
            or sum(self.kept.values()) == self.wanted
        ):
            return False
        return not self.wants_fewer or self.policy.descheduler is None

    @property
    def members(self) -> list[str]:
        """Names of all pods that there should be."""
        return [f"{self.world.stateful_set}-{ordinal}" for ordinal in range(self.world.replicas)]

    @cached_property
    def room(self) -> dict[str, int]:
        """Pod name -> what the vpod may have there, for schedulable pods."""
        pool = self.world.build()
        claims = pool.claims_of(self.key)
        return {
            name: max(0, pool.pods[name].free + (claims[name].held_slots if name in claims else 0))
            for name in self.schedulable
        }
