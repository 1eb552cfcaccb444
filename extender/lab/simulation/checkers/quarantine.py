"""A vpod is put into quarantine only after crashes of pods that had got it, and gets no further
place until somebody releases it (``spec.quarantine``).
"""

from collections.abc import Mapping
from math import inf
from typing import Any

from extender.kube.api import Obj
from extender.lab.faults import ACTOR
from extender.lab.simulation.checkers.context import Checker, CheckerContext, by_service
from extender.lab.simulation.world.facts import Pod, VPod
from extender.lab.simulation.world.scale import pool_of


class QuarantineChecker(Checker):
    """Checks statuses that the service writes."""

    def __init__(self, context: CheckerContext) -> None:
        super().__init__(context)
        self._got: dict[tuple[str, str], float] = {}
        """(pod, vpod) -> when the pod's ledger last began to have it."""
        self._crashed: dict[str, dict[str, float]] = {}
        """Vpod -> pod -> since when, before a crash, the pod had had it; the shortest time."""
        self.begun = 0
        """Quarantines that have begun."""

    def pod_changed(self, before: Obj | None, after: Obj | None, pod: Pod | None) -> None:
        """A pod was written, or has gone. ``pod``: as it is now."""
        if after is None or pod is None or not pod.node:
            return
        ledger, name = pod.ledger or {}, pod.name
        for key in ledger:
            self._got.setdefault((name, key), self._clock())
        if _restarts(after) > _restarts(before):
            for key in ledger:
                ago = self._clock() - self._got[name, key]
                pods = self._crashed.setdefault(key, {})
                pods[name] = min(ago, pods.get(name, inf))
        for known in [one for one in self._got if one[0] == name and one[1] not in ledger]:
            del self._got[known]

    def vpod_changed(self, old: VPod, new: VPod) -> None:
        """A vpod was written."""
        if old.quarantined != new.quarantined:
            self._excuses.note(f"quarantine {new.key}")
        if by_service():
            self._check_status(old, new)

    def _check_status(self, old: VPod, new: VPod) -> None:
        if new.quarantined and not old.quarantined:
            self.begun += 1
            limits = self._stored.pool(new.pool).quarantine
            within_s = limits.get("withinSeconds", 300) + self._circumstances.late_s
            crashed = [
                name
                for name, ago in self._crashed.get(new.key, {}).items()
                if ago <= within_s and pool_of(name) == new.pool
            ]
            if len(crashed) < min(limits.get("crashedPods", 3), 2):
                self._violated(
                    f"{ACTOR.get()} put {new.key} into quarantine after crashes of {crashed} only"
                )
        more = [
            name
            for name, count in new.placements.items()
            if count > old.placements.get(name, 0) and old.quarantined and new.quarantined
        ]
        if more and not self._excuses.holds(f"quarantine {new.key}"):
            self._violated(f"{ACTOR.get()} gave {new.key}, which is in quarantine, more on {more}")


def _restarts(pod: Mapping[str, Any] | None) -> int:
    containers = ((pod or {}).get("status") or {}).get("containerStatuses") or ()
    return sum(one.get("restartCount", 0) for one in containers)
