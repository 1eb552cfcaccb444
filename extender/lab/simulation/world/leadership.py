"""``Leadership``: which replicas of a simulated world lead, and whether a pool is led by two."""

import asyncio
from collections.abc import Callable, Sequence
from math import inf

from extender.config.model import LeaderElectionConfig
from extender.lab.simulation.world.replica import Replica
from extender.lab.simulation.world.scale import NS
from extender.service.placing.ledger_confirmations import UNDER_WAY_S


class Leadership:
    """``problems`` collects pools that two lead."""

    def __init__(
        self, replicas: Callable[[], Sequence[Replica]], pools: Sequence[str], problems: list[str]
    ) -> None:
        self._replicas = replicas
        self._pools = [f"{NS}/{pool}" for pool in pools]
        self._problems = problems
        self._led_twice: set[str] = set()
        self._reapplied_until = 0.0
        self._rivals_until = 0.0

    def check(self) -> None:
        """A pool has one leader at the most, rivals aside."""
        now = asyncio.get_running_loop().time()
        if self.two_lead() or now < self._reapplied_until:
            return
        for key in self._pools:
            leaders = [r.name for r in self._alive() if r.service.leadership.leads(key)]
            if len(leaders) > 1 and key not in self._led_twice:
                self._led_twice.add(key)
                self._problems.append(f"at {now:.3f} s: {key} is led by {' and '.join(leaders)}")

    def lease_reapplied(self) -> None:
        """Somebody has deleted a Lease and applied it again.

        Where its first holder has written nothing yet, one that starts just then takes it at once
        (docs/reliability.md).
        """
        self._reapplied_until = (
            asyncio.get_running_loop().time() + LeaderElectionConfig().lease_duration_s
        )

    def two_lead(self) -> bool:
        """Whether a rival is there, or may still have something under way: then I1 alone is
        promised.
        """
        now = asyncio.get_running_loop().time()
        if any(replica.rival for replica in self._replicas()):
            self._rivals_until = now + UNDER_WAY_S
        return now < self._rivals_until

    def _alive(self) -> list[Replica]:
        return [replica for replica in self._replicas() if not replica.api.crashed]

    def candidates(self) -> list[Replica]:
        """Replicas that live, rivals aside."""
        return [replica for replica in self._alive() if not replica.rival]

    @property
    def leader(self) -> Replica | None:
        """One that believes that it leads, rivals aside."""
        return next((r for r in self.candidates() if r.service.leading()), None)

    def led_since(self) -> float:
        """When a replica that leads now has begun to: the Lease tells of no term that begins where
        the same one had led before.
        """
        electors = (elector for r in self._alive() for elector in r.service.leadership.electors)
        since = (elector.leading_since for elector in electors)
        return max((at for at in since if at < inf), default=-inf)

    def unled(self) -> list[str]:
        """Keys of pools that nobody leads, rivals aside."""
        ours = self.candidates()
        return [
            key for key in self._pools if not any(r.service.leadership.leads(key) for r in ours)
        ]
