"""``State``: Knative's scheduler state, from what the service has (``/state.json``) and what the
controller lists.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from extender.model.foreign_kinds import source_of
from extender.model.objects import ordinal_of
from extender.model.placements import get_total_vreplicas
from extender.scheduling_api.scheduler import NotScheduled
from extender.scheduling_api.vpods import CallersVPod, NamespacedName

Spread = Mapping[NamespacedName, Mapping[str, int]]
"""Vpod -> pod name -> vreplicas."""
RETRY_AFTER_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A pool at one moment, and the vpods that the controller lists. ``free_cap`` and ``capacity``
    are in slots, the others in vreplicas, pods or ordinals.
    """

    stateful_set_name: str
    capacity: int
    """Slots of one pod."""
    replicas: int
    """Of the StatefulSet's spec."""
    free_cap: tuple[int, ...]
    """Free slots by ordinal, negative if overcommitted. Vpods of all kinds take slots."""
    schedulable_pods: tuple[int, ...]
    """Ordinals, ascending."""
    last_ordinal: int
    """The highest that is schedulable or has something; -1 for none."""
    reserved: Spread
    """What the ledgers hold for vpods of the controller's kind, also for those not listed."""
    pod_spread: Spread
    """For each listed vpod, what the ledgers hold for it on schedulable pods."""
    pending: Mapping[NamespacedName, int]
    """For each listed vpod, what it wants and does not publish."""
    expected_vreplica_by_vpod: Mapping[NamespacedName, int]

    def free(self, ordinal: int) -> int:
        """Free slots of a pod (Knative's ``Free``)."""
        return self.free_cap[ordinal] if ordinal < len(self.free_cap) else self.capacity

    def free_capacity(self) -> int:
        """Free slots of all schedulable pods (Knative's ``FreeCapacity``)."""
        return sum(self.free(ordinal) for ordinal in self.schedulable_pods)

    def is_schedulable_pod(self, ordinal: int) -> bool:
        """Whether a pod takes new vreplicas (Knative's ``IsSchedulablePod``)."""
        return ordinal in self.schedulable_pods

    def total_pending(self) -> int:
        """Knative's ``TotalPending``."""
        return sum(self.pending.values())

    def total_expected_vreplicas(self) -> int:
        """Knative's ``TotalExpectedVReplicas``."""
        return sum(self.expected_vreplica_by_vpod.values())


def read_state(pool: Mapping[str, Any], source: str, listed: Iterable[CallersVPod]) -> State:
    """Make the state of a pool of ``/state.json``. ``source``: ``kind.group`` of the controller's
    vpods, in lower case.

    Raises NotScheduled if it cannot be read.
    """
    try:
        return _state(pool, source, list(listed))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NotScheduled(f"the state cannot be read: {error!r}", RETRY_AFTER_S) from error


def known_vpods(pool: Mapping[str, Any], source: str) -> set[NamespacedName]:
    """The vpods of a kind that the service counts or holds something for, as far as it lists
    them.
    """
    names = {vpod["name"] for vpod in pool["vpodList"]}
    names.update(name for pod in pool["podList"] for name in pod["placements"])
    return {_key(name) for name in names if source_of(name) == source}


def _state(pool: Mapping[str, Any], source: str, listed: list[CallersVPod]) -> State:
    pods = {
        ordinal: pod for pod in pool["podList"] if (ordinal := ordinal_of(pod["name"])) is not None
    }
    reserved: dict[NamespacedName, dict[str, int]] = {}
    for pod in (pods[ordinal] for ordinal in sorted(pods)):
        for name, count in pod["placements"].items():
            if source_of(name) == source:
                reserved.setdefault(_key(name), {})[pod["name"]] = count
    schedulable = {ordinal: pod["name"] for ordinal, pod in pods.items() if pod["schedulable"]}
    there = set(schedulable.values())
    last, capacity = int(pool["lastOrdinal"]), int(pool["capacity"])
    return State(
        stateful_set_name=pool["statefulSet"],
        capacity=capacity,
        replicas=pool["replicas"] or 0,
        free_cap=tuple(
            pods[ordinal]["freeSlots"] if ordinal in pods else capacity
            for ordinal in range(last + 1)
        ),
        schedulable_pods=tuple(sorted(schedulable)),
        last_ordinal=last,
        reserved=reserved,
        pod_spread={
            vpod.key: {
                name: count for name, count in reserved.get(vpod.key, {}).items() if name in there
            }
            for vpod in listed
        },
        pending={
            vpod.key: max(0, vpod.vreplicas - get_total_vreplicas(vpod.placements))
            for vpod in listed
        },
        expected_vreplica_by_vpod={vpod.key: vpod.vreplicas for vpod in listed},
    )


def _key(vpod_key: str) -> NamespacedName:
    namespace, _, name = vpod_key.partition("@")[0].partition("/")
    return NamespacedName(namespace, name)
