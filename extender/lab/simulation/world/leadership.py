"""``Leadership``: which replicas of a simulated world lead, and whether two lead one pool."""

import asyncio
from collections.abc import Callable, Sequence
from math import inf

from extender.config.model import LeaderElectionConfig
from extender.lab.simulation.world.replica import Replica
from extender.lab.simulation.world.scale import NS
from extender.service.placing.ledger_confirmations import UNDER_WAY_S


class Leadership:
    """``problems`` collects pools that have two leaders. A *rival* is a replica with a Lease of its
    own: it leads on purpose beside the leader, and does not count.
    """

    def __init__(
        self, replicas: Callable[[], Sequence[Replica]], pools: Sequence[str], problems: list[str]
    ) -> None:
        self._replicas = replicas
        self._pools = [f"{NS}/{pool}" for pool in pools]
        self._problems = problems
        self._led_twice: set[str] = set()
        self._unseen_until = 0.0
        self._rivals_until = 0.0

    def check(self) -> None:
        """Check that each pool has at most one leader, except for rivals."""
        now = asyncio.get_running_loop().time()
        if self.two_lead() or now < self._unseen_until:
            return
        for key in self._pools:
            leaders = [r.name for r in self._alive() if r.service.leadership.leads(key)]
            if len(leaders) > 1 and key not in self._led_twice:
                self._led_twice.add(key)
                self._problems.append(f"at {now:.3f} s: {key} is led by {' and '.join(leaders)}")

    def lease_unseen(self) -> None:
        """Somebody has deleted a Lease by which a replica leads, and others may not have seen it.

        It was a few seconds old, or it was applied again: if its holder has written nothing yet, a
        replica that starts at that moment takes the Lease at once (docs/reliability.md).
        """
        self._unseen_until = (
            asyncio.get_running_loop().time() + LeaderElectionConfig().lease_duration_s
        )

    def two_lead(self) -> bool:
        """Return whether a rival may still write. Then only I1 is guaranteed."""
        now = asyncio.get_running_loop().time()
        if any(replica.rival for replica in self._replicas()):
            self._rivals_until = now + UNDER_WAY_S
        return now < self._rivals_until

    def _alive(self) -> list[Replica]:
        return [replica for replica in self._replicas() if not replica.api.crashed]

    def candidates(self) -> list[Replica]:
        """Return the living replicas except rivals."""
        return [replica for replica in self._alive() if not replica.rival]

    @property
    def leader(self) -> Replica | None:
        """A replica that believes it leads, except rivals."""
        return next((r for r in self.candidates() if r.service.leading()), None)

    def led_since(self) -> float:
        """Return when a present leader began to lead. The Lease does not show a new term if its
        holder is the same as before.
        """
        electors = (elector for r in self._alive() for elector in r.service.leadership.electors)
        since = (elector.leading_since for elector in electors)
        return max((at for at in since if at < inf), default=-inf)

    def unled(self) -> list[str]:
        """Return the keys of pools that nobody leads, except rivals."""
        ours = self.candidates()
        return [
            key for key in self._pools if not any(r.service.leadership.leads(key) for r in ours)
        ]
