"""``ZoneRule``: in which zones an adapter pod may come back under a hard zone rule (DESIGN 5.7).
Pure.

A pod that stands carries its vpods' vreplicas with it, so a profile that keeps every vpod's zones
within MaxSkew is worth only as much as the zone in which the pod comes back. The rule is a bound
volume's node affinity: for each vpod that the pod carries, what that zone would then have - the
least that any zone would have <= MaxSkew.

- Pods that are away count where they last stood: a pool that restarts as a whole comes back as it
  was.
- All zones count that have nodes on which the pool's pods could stand (``node_fit``), also one
  whose nodes are down: its pods wait for it. And those where a pod of the pool stands though it no
  longer could. But one that is down and from which a vpod has moved away (rescheduleAfterSeconds)
  does not: or the vpod's other pods could only restart there.
- Where the rule could hold in no zone (a zone removed, placements edited by hand, a profile new to
  the pool), the least bad of the zones that kube-scheduler offers pass. So no pod waits for what
  cannot come.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from extender.engine.state.pool_state import PoolState
from extender.model.ledger import Ledger


@dataclass(slots=True)
class Elsewhere:
    """The vreplicas of one vpod that are not on a certain pod, by zone and by node (counts);
    ``total`` of them.

    ``astray``: those of which no zone is known.
    """

    zones: dict[str, int] = field(default_factory=dict)
    nodes: dict[str, int] = field(default_factory=dict)
    total: int = 0
    astray: int = 0


def elsewhere(pool: PoolState, vpod_key: str, pod_name: str) -> Elsewhere:
    """Where a vpod stands with the pod ``pod_name`` left out. Costs as much as it has
    placements.
    """
    found = Elsewhere()
    for name, claim in pool.claims_of(vpod_key).items():
        count = claim.placed.vreplicas
        if name == pod_name or not count:
            continue
        node, zone = pool.pods[name].where
        found.total += count
        if node:
            found.nodes[node] = found.nodes.get(node, 0) + count
        if zone:
            found.zones[zone] = found.zones.get(zone, 0) + count
        else:
            found.astray += count
    return found


@dataclass(frozen=True, slots=True)
class _Demand:
    """One vpod of the pod: what is in each zone, what the pod brings, and the two zones with the
    least.
    """

    zones: dict[str, int]
    here: int
    least: list[tuple[int, str]]

    def skew(self, zone: str) -> int:
        """What ``zone`` would have more than the least of the other zones; 0 if it would be the
        least itself.
        """
        others = next((count for count, other in self.least if other != zone), None)
        after = self.zones.get(zone, 0) + self.here
        return 0 if others is None else max(0, after - others)


class ZoneRule:
    """The rule for one pod and what it carries, as of now. ``max_skew``: vreplicas, >= 1."""

    def __init__(self, pool: PoolState, pod_name: str, ledger: Ledger, max_skew: int) -> None:
        self._hosting = pool.hosting
        self._known_in = pool.topology.known_in
        self._standing = pool.zones
        self._max_skew = max_skew
        state = pool.pods.get(pod_name)
        self._last_zone = state.where[1] if state is not None else ""
        self._excess: dict[str, int] = {}
        self._demands = [
            self._demand(elsewhere(pool, key, pod_name), share.vreplicas)
            for key, share in ledger.items()
        ]

    def _demand(self, others: Elsewhere, here: int) -> _Demand:
        hosting, able = self._hosting, self._hosting.known_in
        # While some of the vpod may belong to a zone that is down, what is missing there is no
        # lack.
        anywhere = others.astray or not self._last_zone
        counting = [
            (others.zones.get(zone, 0), zone)
            for zone in self._known_in
            if zone in hosting.nodes_in
            or zone in self._standing
            or zone in others.zones
            or (zone in able and (anywhere or zone == self._last_zone))
        ]
        return _Demand(others.zones, here, sorted(counting)[:2])

    def excess(self, zone: str) -> int:
        """By how many vreplicas the worst of the pod's vpods would break the rule there; at most 0
        where it holds.
        """
        known = self._excess.get(zone)
        if known is None:
            worst = max((demand.skew(zone) for demand in self._demands), default=0)
            known = self._excess[zone] = worst - self._max_skew
        return known

    def allowed(self, zones: Iterable[str]) -> frozenset[str]:
        """Which of the zones on offer the pod may go to: where the rule holds, or the least bad if
        it could nowhere.
        """
        offered = frozenset(zones)
        holding = frozenset(zone for zone in offered if self.excess(zone) <= 0)
        if holding or not offered or any(self.excess(zone) <= 0 for zone in self._hosting.known_in):
            return holding
        least = min(map(self.excess, offered))
        return frozenset(zone for zone in offered if self.excess(zone) == least)
