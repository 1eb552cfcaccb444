"""I1: no ledger that the service writes exceeds its pod's slots or its limit of bytes, and no
ledger replaces another one that its writer has not seen.
"""

from collections.abc import Mapping
from math import inf

from extender.kube.api import Obj
from extender.lab.faults import ACTOR
from extender.lab.simulation.checkers.context import Checker, CheckerContext
from extender.lab.simulation.world.facts import LEDGER_BYTES_MAX, Pod, VPod, in_force
from extender.lab.simulation.world.ledgers import write_problems


class OvercommitChecker(Checker):
    """Checks bound pods that the service writes."""

    def __init__(self, context: CheckerContext) -> None:
        super().__init__(context)
        self._left_at: dict[tuple[str, str], float] = {}
        """By pod and vpod."""
        self._last: dict[str, Mapping[str, tuple[int, int]]] = {}
        """By pod."""
        self._limits: dict[str, list[tuple[float, int]]] = {}
        """Vpod -> (since when, maxPerPod); 0 if it has none."""

    def check_write(self, before: Obj, after: Obj) -> None:
        """Check that no update of a ledger is lost."""
        for problem in write_problems(before, after):
            self._violated(f"I1: {ACTOR.get()}: {problem}")

    def check_ledger(self, pod: Pod, before: Pod | None) -> None:
        """Check a ledger that was written. ``before``: the pod before that; None for a ledger that
        comes with a bind.
        """
        self.check_slots(pod, before.total if before is not None else 0)
        self.check_dimensions(pod, before)
        self.check_bytes(pod, before)
        self.check_most(pod, before.ledger if before is not None else self._last.get(pod.name))

    def check_bytes(self, pod: Pod, before: Pod | None) -> None:
        """Check that a ledger is not too long, and that no namespace's part of it grows beyond its
        share. If two replicas lead, only the length is checked: each ledger replaces the one
        before, but each leader knows only its own share.

        ``before`` is None for a ledger that comes with a bind. Such a ledger has what statuses
        publish on the ordinal, as its writer knows them. If the writer's watch is behind, this
        includes vpods that are deleted, or have left the ordinal lately.
        """
        if len(pod.text or "") > LEDGER_BYTES_MAX:
            self._violated(f"I1: {ACTOR.get()} wrote {len(pod.text or '')} bytes on {pod.name}")
        if self._two_lead():
            return
        new = (pod.ledger or {}).keys() - (
            (before.ledger or {}) if before is not None else {}
        ).keys()
        gone = {key for key in pod.ledger or () if before is None and self._is_gone(key, pod.name)}
        for namespace in sorted({key.partition("/")[0] for key in new}):
            if (size := pod.bytes_of(namespace, gone)) > LEDGER_BYTES_MAX // 2:
                self._violated(f"I1: {ACTOR.get()} wrote {size} bytes of {namespace} on {pod.name}")

    def status_written(self, old: VPod, new: VPod) -> None:
        """Record which pods the vpod has left."""
        for name in old.placements.keys() - new.placements.keys():
            self._left_at[name, new.key] = self._clock()

    def _is_gone(self, key: str, pod: str) -> bool:
        """Whether a vpod is deleted, or has left the pod so lately that a replica may not know."""
        vpod = self._stored.vpods.get(key)
        if vpod is None:
            return True
        left_at = self._left_at.get((pod, key), -inf)
        return pod not in vpod.placements and left_at >= self._excuses.since()

    def check_dimensions(self, pod: Pod, before: Pod | None) -> None:
        """Check that a ledger fits what the pod has of each dimension, or has not grown in it.
        ``before`` is None for a ledger that comes with a bind. A dimension that the pool does not
        have, or did not have lately, has no limit.
        """
        pool = self._stored.pool(pod.pool)
        lately = in_force(pool.capacities_seen, self._excuses.since())
        for name in sorted({name for each in pod.amounts.values() for name in each}):
            if not lately or any(name not in capacities for capacities in lately):
                continue
            allowed = max(capacities[name] for capacities in lately)
            taken = pod.taken_of(name)
            if taken > allowed and (before is None or taken > before.taken_of(name)):
                self._violated(
                    f"I1: {ACTOR.get()} wrote {taken} {name} on {pod.name}, which has {allowed}: "
                    f"{pod.text}"
                )

    def seen(self, pod: Pod) -> None:
        """Record the ledger of a pod that has a node."""
        self._last[pod.name] = pod.ledger or {}

    def check_most(self, pod: Pod, before: Mapping[str, tuple[int, int]] | None) -> None:
        """Check that a pod gets no more vreplicas of a vpod than the vpod's maxPerPod. What it had
        when the limit was lowered stays. ``before``: its ledger before that; with a bind, that of
        the ordinal's last pod.
        """
        for key, (count, _) in (pod.ledger or {}).items():
            vpod = self._stored.vpods.get(key)
            limits = in_force(self._limits.get(key, ()), self._excuses.since())
            if vpod is None or not limits or not min(limits):
                continue
            had, _ = (before or {}).get(key, (0, 1))
            if count > max(*limits, had, vpod.placements.get(pod.name, 0)):
                self._violated(
                    f"placement: {ACTOR.get()} gave {pod.name} {count} vreplicas of {key}, of "
                    f"which a pod gets {max(limits)}: {pod.text}"
                )

    def limited(self, old: VPod | None, new: VPod) -> None:
        """Record the maxPerPod of a vpod."""
        if old is None or old.max_per_pod != new.max_per_pod:
            seen = self._limits.setdefault(new.key, [])
            seen.append((self._clock(), new.max_per_pod))

    def check_slots(self, pod: Pod, before: int) -> None:
        """Check that a ledger fits the pod's slots, or has not grown from the slots ``before``."""
        pool = self._stored.pool(pod.pool)
        allowed = max(in_force(pool.slots_seen, self._excuses.since()), default=0)
        if pod.slots is not None:
            allowed = min(allowed, pod.slots)
        if pod.ledger is None:
            self._violated(
                f"I1: {ACTOR.get()} wrote an unreadable ledger on {pod.name}: {pod.text!r}"
            )
        elif pod.total > allowed and pod.total > before:
            self._violated(
                f"I1: {ACTOR.get()} wrote {pod.total} slots on {pod.name}, which has {allowed}: "
                f"{pod.text}"
            )
