"""I7: in a pool with ``handoff.mode: Overlap``, a planned move takes no share out of service.

What adapters really do is compared with what the service writes (``world.adapters``):

- a status takes vreplicas from a pod that serves them only for pods whose adapters are prepared;
- a pod is told to drain only once the pods that the vpod publishes serve it, or had
  ``prepareTimeoutSeconds`` to begin;
- a ledger loses a share that its adapter still serves only after the deadline of its ``Drain``;
- a rollout evicts a pod whose adapter serves only after the deadline of its mark.

Adapters that do not keep the contract, or do not run, are not counted. Nor are two leaders. What
leaves a pool because its vpod goes to another one is not handed over: their leaders may differ. Nor
are the vpods of callers.
"""

from collections.abc import Collection, Mapping
from math import inf
from typing import Any, Final

from extender.kube.api import Obj
from extender.lab.faults import ACTOR
from extender.lab.simulation.checkers.assignments import assignment_of
from extender.lab.simulation.checkers.context import Checker, CheckerContext, by_service
from extender.lab.simulation.checkers.presence import Presence
from extender.lab.simulation.world.adapters import Served, SimulatedAdapter
from extender.lab.simulation.world.callers import CALLERS
from extender.lab.simulation.world.facts import ACKNOWLEDGED, ASSIGNMENT, Pod, VPod
from extender.lab.simulation.world.scale import pool_of
from extender.model.assignment import DRAINS_BYTES
from extender.model.decode import pod_from
from extender.model.eviction import eviction_of
from extender.model.indexes import INDEXED_SLOTS_MAX, indexes_from
from extender.model.moves import MoveReason
from extender.model.names import ASSIGNMENT_BYTES_MAX
from extender.model.timestamps import epoch_s

SHARE_BYTES_MAX: Final = 1024
"""More bytes than a share takes: its key and the name of its peer have 253 each."""
INDEXED_SHARE_BYTES_MAX: Final = SHARE_BYTES_MAX + 9 * INDEXED_SLOTS_MAX
"""The same if it has so many indexes without neighbours, each of up to eight digits."""
CLOCKS_APART_S: Final = 5.0
"""Deadlines are of one leader's clock, and another one's may judge them."""


class HandoverChecker(Checker):
    """Checks the writes of a planned move."""

    def __init__(self, context: CheckerContext, presence: Presence) -> None:
        super().__init__(context)
        self._stored.is_left_out = self.is_left_out
        self._presence = presence
        self._acknowledged: dict[str, float] = {}
        """Name of a pod -> since when its adapter has acknowledged."""
        self._told_serve: dict[tuple[str, str], tuple[float, int]] = {}
        """(pod, vpod) -> since when it is told to serve these indexes."""
        self._taken_away: set[tuple[str, str]] = set()
        """(pod, vpod) of shares that were served on, and left the ledger at their deadline."""
        self._full: dict[str, frozenset[str]] = {}
        """Pod -> the vpods that its assignment has, if it has no room for another one."""
        self._published: dict[str, tuple[str, float]] = {}
        """Vpod -> its UID, and since when it publishes anything."""
        self.checked = 0
        """Moves of served vreplicas that were compared."""
        self.rolled_out = 0
        """Pods that a rollout has evicted."""

    def pod_changed(self, before: Obj | None, after: Obj | None, old: Pod | None) -> None:
        """A pod was written, or has gone."""
        name = (after or before or {})["metadata"]["name"]
        was, told = assignment_of(before), assignment_of(after)
        self._note(name, after, told)
        if old is not None and after is not None and by_service() and not old.deleting:
            self._check_eviction(name, after)
        if old is None or after is None or told is None or was is None:
            return
        if not by_service() or self._two_lead() or was["uid"] != told["uid"]:
            return
        pod = self._stored.pods[name]
        self._check_shares(name, was["shares"], told["shares"], pod.ledger or {})
        for key in set(old.ledger or ()) - set(pod.ledger or ()):
            self._check_removal(name, key, was["shares"].get(key))

    def _check_shares(
        self,
        name: str,
        was: Mapping[str, Mapping[str, Any]],
        told: Mapping[str, Mapping[str, Any]],
        ledger: Collection[str],
    ) -> None:
        """The pod is told other shares than before."""
        for key, had in was.items():
            if had["state"] == "Serve" and key not in told and key in ledger:
                self._check_dropped(name, key)
        for key, share in told.items():
            had = was.get(key, share)
            if had["state"] == "Serve":
                if share["state"] == "Drain":
                    # Of other indexes, a vpod that grows may have some that nobody serves yet
                    # (seed 41000027), and of those that it has no more, none is served elsewhere.
                    self._check_drain(name, key, _indexes(had) or None)
                elif left := self._served_here(name, key, _indexes(had) & ~_indexes(share)):
                    self._check_drain(name, key, left)

    def _note(self, name: str, after: Obj | None, told: Mapping[str, Any] | None) -> None:
        annotations = after["metadata"].get("annotations") or {} if after is not None else {}
        if ACKNOWLEDGED in annotations:
            self._acknowledged.setdefault(name, self._clock())
        else:
            self._acknowledged.pop(name, None)
        self._full.pop(name, None)
        if told is not None and _is_full(annotations[ASSIGNMENT]):
            self._full[name] = frozenset(told["shares"])
        serves = {
            key: _indexes(share)
            for key, share in (told["shares"] if told is not None else {}).items()
            if share["state"] == "Serve"
        }
        for pod, key in [one for one in self._told_serve if one[0] == name]:
            if self._told_serve[pod, key][1] != serves.get(key):
                del self._told_serve[pod, key]
        for key, indexes in serves.items():
            self._told_serve.setdefault((name, key), (self._clock(), indexes))
            self._taken_away.discard((name, key))

    def _adapter(self, name: str) -> SimulatedAdapter | None:
        """The pod's adapter, if the service has to wait for it."""
        adapter = self._circumstances.adapter(name)
        since = self._clock() - self._circumstances.late_s
        pod = self._stored.pods.get(name)
        if adapter is None or not adapter.is_well or pod is None or pod.uid != adapter.uid:
            return None
        if pod.deleting or self._acknowledged.get(name, inf) > since:
            return None
        return adapter if self._presence.was_there(name, since) else None

    def _hands_over(self, name: str) -> bool:
        """Whether the pool hands shares over. A pool without its AdapterPool does not."""
        pool = self._stored.pool(name)
        return pool.overlaps and not pool.deleted and not self._excuses.holds(f"gone {name}")

    def is_left_out(self, name: str, key: str) -> bool:
        """Whether the pod's adapter cannot be told of the vpod: its assignment is full."""
        return name in self._full and key not in self._full[name]

    def check_status(self, old: VPod, new: VPod) -> None:
        """The service has written a status."""
        if self._published.get(new.key, ("", 0.0))[0] != new.uid:
            self._published[new.key] = (new.uid, self._clock())
        if not self._hands_over(new.pool) or new.by_caller or old.pool != new.pool:
            return
        lost = sum(
            count - new.placements.get(name, 0)
            for name, count in old.placements.items()
            if count > new.placements.get(name, 0)
            and pool_of(name) == new.pool
            and (adapter := self._adapter(name)) is not None
            and new.key in adapter.serving
        )
        if not lost:
            return
        ready = 0
        for name, count in new.placements.items():
            known = self._circumstances.adapter(name)
            if self.is_left_out(name, new.key) or (
                known is not None and (new.key in known.prepared or new.key in known.serving)
            ):
                ready += max(0, count - old.placements.get(name, 0))
        shrunk = max(0, old.total - new.total)
        self.checked += 1
        if lost > ready + shrunk:
            self._violated(
                f"{new.key} goes from {dict(old.placements)} to {dict(new.placements)}, and the "
                f"adapters there are prepared for {ready} of {lost}"
            )

    def _is_new(self, key: str) -> bool:
        """Whether the vpod has published nothing until lately. What is served is its namesake's."""
        since = self._published.get(key, ("", inf))[1]
        return since > self._clock() - self._circumstances.late_s

    def _served_here(self, name: str, key: str, indexes: int) -> int:
        """Those of ``indexes`` that the pod's adapter serves, if the service has to wait for it."""
        if self._is_new(key):
            return 0
        adapter = self._adapter(name)
        serves = adapter.serving.get(key) if adapter is not None else None
        return serves.indexes & indexes if serves is not None else 0

    def _check_drain(self, name: str, key: str, indexes: int | None = None) -> None:
        """The pod is told to let go of a vpod, or in a pool with indexes of some of them."""
        vpod = self._stored.vpods.get(key)
        if vpod is None or vpod.pool != pool_of(name) or not self._hands_over(vpod.pool):
            return
        if self._is_new(key):
            return  # nobody promised to hand over what the namesake left (seed 600000090)
        pool = self._stored.pool(vpod.pool)
        for other in vpod.placements:
            adapter = self._adapter(other)
            told = self._told_serve.get((other, key))
            since, gets = told or (inf, 0)
            waited = self._clock() - since > pool.prepare_timeout_s - 1.0
            if other == name or self.is_left_out(other, key):
                continue
            if adapter is None or waited:
                continue
            serves = adapter.serving.get(key, Served())
            wanted = gets if indexes is None else gets & indexes
            if wanted & ~serves.indexes or (indexes is None and not serves.vreplicas):
                self._violated(f"{name} is told to drain {key}, and {other} does not serve it yet")

    def _check_dropped(self, name: str, key: str) -> None:
        """The pod was told to serve a vpod that is in its ledger, and is told of it no more."""
        adapter = self._adapter(name)
        if adapter is not None and key in adapter.serving and self._hands_over(pool_of(name)):
            self._violated(f"{name} is not told of {key} any more, which it serves")

    def _check_eviction(self, name: str, pod: Obj) -> None:
        """The service has written a pod, and perhaps evicted it."""
        adapter = self._circumstances.adapter(name)
        known = pod_from(pod)
        eviction = eviction_of(known)
        if not known.deleting or eviction is None or eviction.reason is MoveReason.EVICTED:
            return
        if adapter is None or not adapter.is_well or not known.ready:
            return
        if self._edited_records.was_ledger_wrong(name):
            return  # a person has taken shares out of it (seed 60000162)
        if not adapter.may_serve(self._clock()):
            return
        self.rolled_out += eviction.reason is MoveReason.ROLLOUT
        serving = [
            key
            for key in adapter.serving
            if not key.endswith(CALLERS) and (name, key) not in self._taken_away
        ]
        since_s = eviction.first_s if eviction.turn_s is None else eviction.turn_s
        waited_s = self._circumstances.now_of(ACTOR.get()) - since_s
        shortest_s = self._stored.pool(known.pool.partition("/")[2]).prepare_timeout_s
        if serving and waited_s < shortest_s:
            self._violated(
                f"{name} is evicted ({eviction.reason}) after {waited_s:.0f} s, "
                f"and it serves {serving}"
            )

    def _check_removal(self, name: str, key: str, share: Mapping[str, Any] | None) -> None:
        if key.endswith(CALLERS):
            return
        adapter, pod = self._circumstances.adapter(name), self._stored.pods[name]
        if adapter is None or share is None or key not in adapter.serving:
            return
        deadline = epoch_s(share.get("deadline", ""), float("inf"))
        if deadline <= self._circumstances.now_of(ACTOR.get()) + CLOCKS_APART_S:
            self._taken_away.add((name, key))
        elif (name, key) in self._taken_away:
            pass  # it serves what it should have let go before, and is told of the share's return
        elif share["state"] == "Prepare" and self._circumstances.restored():
            pass  # that it was told to serve has been lost with the rest (seed 620000023)
        elif self._hands_over(pod.pool) and self._adapter(name) is not None:
            self._violated(f"{key} leaves the ledger of {name}, whose adapter serves it")


def _is_full(assignment_text: str) -> bool:
    """Whether a pod's assignment may have no room for one more share."""
    share = INDEXED_SHARE_BYTES_MAX if '"indexes":' in assignment_text else SHARE_BYTES_MAX
    return len(assignment_text) > ASSIGNMENT_BYTES_MAX - DRAINS_BYTES - share


def _indexes(share: Mapping[str, Any]) -> int:
    return indexes_from(share.get("indexes", ""))
