"""Published ways to balance load, to compare with. They know the true loads, and have slots without
limit and no cool-down.
"""

from collections.abc import Callable

from tests.engine.rebalance.loads import LoadedPool

CHURN_MAX = 0.09
"""Of all vreplicas in a round, as in Slicer."""

Shares = dict[str, dict[str, int]]
"""Pod name -> vpod key -> vreplicas."""


class Peer:
    """A pool as the others see it. ``rounds`` of a policy change it."""

    def __init__(self, pool: LoadedPool) -> None:
        self.rates = pool.rates
        self.on: Shares = {pod.name: {} for pod in pool.pool.members()}
        for (key, pod), count in pool.shares().items():
            self.on[pod][key] = count
        self.loads = pool.loads()
        self.vreplicas = sum(pool.shares().values())
        self.moved = 0

    def move(self, key: str, source: str, target: str) -> None:
        """Move one vreplica."""
        self.on[source][key] -= 1
        if not self.on[source][key]:
            del self.on[source][key]
        self.on[target][key] = self.on[target].get(key, 0) + 1
        self.loads[source] -= self.rates[key]
        self.loads[target] += self.rates[key]
        self.moved += 1

    @property
    def hottest(self) -> str:
        return max(self.loads, key=lambda name: (self.loads[name], name))

    @property
    def coldest(self) -> str:
        return min(self.loads, key=lambda name: (self.loads[name], name))

    def ratio(self) -> float:
        loads = self.loads.values()
        return max(loads) * len(loads) / sum(loads)

    def round(self, choose: Callable[["Peer"], tuple[str, str, str] | None], stop: float) -> None:
        """Make moves until ``choose`` has none, the greatest load is at most ``stop`` times the
        mean, or the budget of a round is used up.
        """
        for _ in range(max(1, int(CHURN_MAX * self.vreplicas))):
            chosen = choose(self) if self.ratio() > stop else None
            if chosen is None:
                return
            self.move(*chosen)


def slicer(peer: Peer) -> tuple[str, str, str] | None:
    """Slicer's weighted move (OSDI 2016, section 4.4): of all moves from the hottest task to the
    coldest one, the one with the greatest weight, which is by how much the imbalance falls (the
    load of the hotter of the two tasks) for the churn. A vreplica is the unit of churn.
    """
    source, target = peer.hottest, peer.coldest
    best, chosen = 1e-9, None
    for key in sorted(peer.on[source]):
        rate = peer.rates[key]
        after = max(peer.loads[source] - rate, peer.loads[target] + rate)
        if (gain := peer.loads[source] - after) > best:
            best, chosen = gain, (key, source, target)
    return chosen


def cadence(peer: Peer) -> tuple[str, str, str] | None:
    """Greedy balancing as in Cadence's shard distributor: the hottest shard of the hottest executor
    that makes the coldest one no hotter than the hottest goes there.
    """
    source, target = peer.hottest, peer.coldest
    for key in sorted(peer.on[source], key=lambda key: (-peer.rates[key], key)):
        if peer.loads[target] + peer.rates[key] < peer.loads[source] - 1e-9:
            return key, source, target
    return None
