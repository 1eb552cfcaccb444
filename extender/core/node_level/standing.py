"""``StandingPlacements``: what a pod of that name should carry, by what the vpods' statuses publish.

An ordinal that comes back (restarted, evicted, its node lost) is a new pod with an old name. Its vreplicas never
moved: the statuses still name it (I4). The webhook writes them on the new pod, and the bind commits them.

The index is updated by differences: a change costs as much as that vpod has placements, a look-up as much as that
pod has vpods. It remembers what it counted for each vpod, so an event seen twice, or one whose old object differs
from what was counted (after a relist), cannot leave anything behind.
"""

from collections.abc import Mapping
from types import MappingProxyType

from extender.core.ledger import EMPTY_LEDGER, Ledger, Share
from extender.core.model import VPod

_PodKey = tuple[str, str]
"""Pool key, pod name."""


class StandingPlacements:
    """Published placements, by pool and pod name."""

    def __init__(self) -> None:
        self._by_pod: dict[_PodKey, dict[str, Share]] = {}
        self._counted: dict[str, tuple[_PodKey, ...]] = {}

    def vpod_changed(self, old: VPod | None, new: VPod | None) -> None:
        """Take the change of one vpod: ``old`` None when it came, ``new`` None when it went.

        A vpod being deleted still counts: what a status publishes is covered until it is taken back (I2).
        """
        for vpod in (old, new):
            if vpod is not None:
                self._forget(vpod.key)
        if new is None:
            return
        counted = []
        for pod_name, vreplicas in new.placements.items():
            if vreplicas > 0:
                pod = (new.pool, pod_name)
                self._by_pod.setdefault(pod, {})[new.key] = Share(vreplicas, new.weight)
                counted.append(pod)
        if counted:
            self._counted[new.key] = tuple(counted)

    def _forget(self, vpod_key: str) -> None:
        for pod in self._counted.pop(vpod_key, ()):
            shares = self._by_pod[pod]
            del shares[vpod_key]
            if not shares:
                del self._by_pod[pod]

    def ledger_for(self, pool_key: str, pod_name: str, *, slots: int) -> Ledger:
        """What that pod of that pool should carry, never more than ``slots`` slots together (I1).

        Where the statuses ask for more (the pool's slotsPerPod shrank, a vreplica grew heavier), it is cut
        (``within_slots``).
        """
        shares = self._by_pod.get((pool_key, pod_name))
        if not shares:
            return EMPTY_LEDGER
        return MappingProxyType(within_slots(slots, shares))


def within_slots(slots: int, *sources: Mapping[str, Share]) -> dict[str, Share]:
    """The shares of all sources (vpod key -> share), cut so that they never take more than ``slots`` together (I1).

    A vpod in several sources gets the largest of its shares. Where the slots do not suffice, earlier sources come first and
    in each of them the vpods in the order of their keys, so that every replica cuts the same; a share may be cut to
    part of its vreplicas. A vpod that has several weights gets that of the first source.
    """
    free = slots
    ledger: dict[str, Share] = {}
    for source in sources:
        for key, share in sorted(source.items()):
            known = ledger.get(key)
            had, weight = known if known is not None else (0, share.weight)
            if (more := min(share.vreplicas - had, free // weight)) > 0:
                ledger[key] = Share(had + more, weight)
                free -= more * weight
    return ledger
