"""Measures of a state at one moment, and of a whole recording: moves, waiting, pods, exposure.
Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from extender.engine.state.cluster_state import ClusterState
from extender.engine.state.pool_state import PoolState

EXPOSURE_EVERY: Final = 10
"""The exposure is measured in each tenth sample: it costs more than all the rest."""


class Exposure(NamedTuple):
    """What the loss of one zone would take. ``vpods`` counts vpods with two placed vreplicas or
    more.
    """

    vpods: int
    in_one_zone: int
    """Vpods that would lose everything."""
    worst_share_sum: float
    """The sum, over the vpods, of the largest part (0 to 1) that is in one zone."""

    @property
    def mean_worst_share(self) -> float:
        """The mean part (0 to 1) that a vpod loses with its worst zone."""
        return self.worst_share_sum / self.vpods if self.vpods else 0.0


class Sample(NamedTuple):
    """The numbers of one moment, over all pools, in vreplicas, pods and slots."""

    at: float
    wanted: int
    unplaced: int
    pods: int
    slots: int
    used_slots: int


def sample(state: ClusterState, at: float) -> Sample:
    """Measure the state. The cost is proportional to the pods and the waiting vpods."""
    wanted = unplaced = pods = slots = used = 0
    for pool in state.pools.values():
        # Also of a pool that does not exist: its vpods wait.
        wanted += sum(vpod.vreplicas for vpod in pool.vpods.values() if not vpod.deleting)
        unplaced += sum(
            max(0, pool.vpods[key].vreplicas - pool.decided_vreplicas(key))
            for key in pool.vpods_with_pending
        )
        for pod in pool.pods.values() if pool.adapter_pool is not None else ():
            if pod.pod is not None:
                pods += 1
                slots += pod.capacity
                used += pod.decided
    return Sample(at, wanted, unplaced, pods, slots, used)


def exposure(state: ClusterState) -> Exposure:
    """What the loss of its worst zone would take from each vpod."""
    vpods = alone = 0
    total = 0.0
    for pool in state.pools.values():
        for key in pool.vpods:
            zones = _zones(pool, key)
            placed = sum(zones.values())
            if placed < 2:
                continue
            vpods += 1
            alone += len(zones) == 1
            total += max(zones.values()) / placed
    return Exposure(vpods, alone, total)


def _zones(pool: PoolState, key: str) -> Mapping[str, int]:
    zones: dict[str, int] = {}
    for name, claim in pool.claims_of(key).items():
        if claim.decided.vreplicas:
            zone = pool.pods[name].where[1]
            zones[zone] = zones.get(zone, 0) + claim.decided.vreplicas
    return zones


@dataclass(slots=True)
class Tally:
    """The sums of a recording, sample by sample. ``moved``: vreplicas that left a pod while they
    were wanted. ``unplaced_seconds``: vreplica-seconds without a place.
    """

    samples: list[Sample] = field(default_factory=list)
    exposures: list[Exposure] = field(default_factory=list)
    moved: int = 0
    pod_seconds: float = 0.0
    unplaced_seconds: float = 0.0

    def take(self, state: ClusterState, at: float, *, exposed: bool) -> None:
        """Add a sample. The values of the one before are taken to hold until now."""
        now = sample(state, at)
        if self.samples:
            last = self.samples[-1]
            passed_s = max(0.0, at - last.at)
            self.pod_seconds += last.pods * passed_s
            self.unplaced_seconds += last.unplaced * passed_s
        self.samples.append(now)
        if exposed:
            self.exposures.append(exposure(state))

    def to_json(self) -> dict[str, object]:
        """The tally as the report has it."""
        last = self.samples[-1] if self.samples else Sample(0.0, 0, 0, 0, 0, 0)
        exposed = self.exposures[-1] if self.exposures else Exposure(0, 0, 0.0)
        worst = max((one.mean_worst_share for one in self.exposures), default=0.0)
        return {
            "movedVReplicas": self.moved,
            "unplacedAtEnd": last.unplaced,
            "unplacedMost": max((one.unplaced for one in self.samples), default=0),
            "unplacedVReplicaSeconds": round(self.unplaced_seconds, 1),
            "podsAtEnd": last.pods,
            "podsMost": max((one.pods for one in self.samples), default=0),
            "podHours": round(self.pod_seconds / 3600.0, 3),
            "slotsUsedPercent": round(100.0 * last.used_slots / last.slots, 1)
            if last.slots
            else 0.0,
            "vpodsInOneZone": exposed.in_one_zone,
            "zoneLossPercent": round(100.0 * exposed.mean_worst_share, 1),
            "zoneLossPercentMost": round(100.0 * worst, 1),
        }
