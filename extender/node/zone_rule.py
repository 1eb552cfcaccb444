"""``ZoneRule``: the zones to which an adapter pod may return under a hard zone rule (DESIGN 5.7).
Pure.

A bound pod carries its vpods' vreplicas with it. So a profile that keeps every vpod's zones within
MaxSkew is worth nothing if the pod may return to any zone. The rule works like a bound volume's
node affinity. For each vpod on the pod: what the zone would then have - the least that any zone
would have <= MaxSkew.

- A pod that is away counts in its last zone, so that a pool that restarts as a whole returns as it
  was.
- A zone counts if it has nodes that can host the pool's pods (``node_fit``), even if those nodes
  are down: its pods wait for it. A zone also counts if a pod of the pool is still there although it
  could no longer go there. But a zone that is down does not count for a vpod that has moved away
  from it (rescheduleAfterSeconds): otherwise the vpod's other pods could restart only there.
- If the rule can hold in no zone (a zone was removed, placements were edited by hand, the profile
  is new to the pool), the least bad of the zones that kube-scheduler offers pass. So no pod waits
  for ever.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from extender.engine.state.pool_state import PoolState
from extender.model.ledger import Ledger


@dataclass(slots=True)
class Elsewhere:
    """The vreplicas of one vpod on all pods but one, counted by zone and by node; ``total`` of
    them. ``astray``: those whose zone is unknown.
    """

    zones: dict[str, int] = field(default_factory=dict)
    nodes: dict[str, int] = field(default_factory=dict)
    total: int = 0
    astray: int = 0


def elsewhere(pool: PoolState, vpod_key: str, pod_name: str) -> Elsewhere:
    """Return where a vpod's vreplicas are, without the pod ``pod_name``. The time is linear in the
    vpod's placements.
    """
    found = Elsewhere()
    for name, claim in pool.claims_of(vpod_key).items():
        count = claim.decided.vreplicas
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
    """One vpod of the pod: its vreplicas in each zone, those on the pod (``here``), and the two
    zones with the least.
    """

    zones: dict[str, int]
    here: int
    least: list[tuple[int, str]]

    def skew(self, zone: str) -> int:
        """By how much ``zone`` would exceed the least of the other zones; 0 if it would be the
        least itself.
        """
        others = next((count for count, other in self.least if other != zone), None)
        after = self.zones.get(zone, 0) + self.here
        return 0 if others is None else max(0, after - others)


class ZoneRule:
    """The rule for one pod and its ``ledger`` at this moment. ``max_skew``: vreplicas, >= 1."""

    def __init__(self, pool: PoolState, pod_name: str, ledger: Ledger, max_skew: int) -> None:
        self._hosting = pool.hosting
        self._known_in = pool.topology.known_in
        self._standing = pool.zones
        self._max_skew = max_skew
        known = pool.pods.get(pod_name)
        self._last_zone = known.where[1] if known is not None else ""
        self._excess: dict[str, int] = {}
        self._demands = [
            self._demand(elsewhere(pool, key, pod_name), share.vreplicas)
            for key, share in ledger.items()
        ]

    def _demand(self, others: Elsewhere, here: int) -> _Demand:
        hosting, able = self._hosting, self._hosting.known_in
        # A zone that is down counts as long as vreplicas of the vpod may belong to it: those of an
        # unknown zone, or the pod's own.
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
        """By how many vreplicas the worst of the pod's vpods would break the rule in ``zone``; at
        most 0 if the rule holds.
        """
        known = self._excess.get(zone)
        if known is None:
            worst = max((demand.skew(zone) for demand in self._demands), default=0)
            known = self._excess[zone] = worst - self._max_skew
        return known

    def allowed(self, zones: Iterable[str]) -> frozenset[str]:
        """Return the offered zones in which the rule holds. If it can hold in no zone, return the
        least bad ones.
        """
        offered = frozenset(zones)
        holding = frozenset(zone for zone in offered if self.excess(zone) <= 0)
        if holding or not offered or any(self.excess(zone) <= 0 for zone in self._hosting.known_in):
            return holding
        least = min(map(self.excess, offered))
        return frozenset(zone for zone in offered if self.excess(zone) == least)
