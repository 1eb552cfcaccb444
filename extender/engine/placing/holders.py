"""``Holders``: which adapters may serve a vpod, in pools with ``handoff.mode: Exclusive``. Pure.

In such a pool the adapters of a vpod never serve more vreplicas together than it publishes (I6).
So the order of a move is another one than with ``Overlap``:

.. code-block:: text

    written                  A is told   B is told   the next write waits
    B's ledger               Serve       Prepare     until B is prepared
    the vpod's status: B     Serve       Prepare     -
    A's assignment           Drain       Prepare     until A has let go, or its deadline
    A's ledger               -           Prepare     until nobody holds what B is to serve
    B's assignment           -           Serve

A pod *holds* vreplicas of a vpod from the moment in which its assignment says ``Serve``, until one
of these is certain:

- Its adapter has acknowledged the newest assignment. This says ``Prepare``, ``Drain`` or fewer
  vreplicas, and the share is not busy.
- It has never acknowledged anything, so it has had no lease, and is told ``Drain`` or fewer
  vreplicas.
- Its containers have stopped.
- Its lease has run out: its assignment has lost the share, or the pod is gone. Since that was seen,
  a whole lease has passed.

The last one holds because an adapter renews its lease only with an acknowledgement of the
assignment that is stored at that moment (``http.adapters.acknowledge``), and counts the lease from
when it sent that. So an adapter that does not know of the change has stopped by then, and one that
knows of it has let go.

An assignment that is being written counts as if it were there: a write whose answer is lost may
still arrive.

With ``handoff.identity: Indexed``, no index is held by two pods either.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from extender.engine.placing.handover import Adapter
from extender.model.assignment import AssignedShare, Assignment, ShareState
from extender.model.indexes import indexes_from

ASKED_S: Final = 60.0
"""A write that has not arrived after this time (s) never will."""


class Held(NamedTuple):
    """What one pod may serve of one vpod. ``until``: when the adapter's lease has run out; None
    while its assignment may still have the share, so that it can renew the lease.
    """

    vreplicas: int
    until: float | None = None
    indexes: int = 0
    """A set of ``model.indexes``: which of them, where the pool has indexes."""


_NOTHING: Final = Held(0)


@dataclass(slots=True)
class _Pod:
    name: str
    lease_s: float = 0.0
    """The longest that the pod was told."""
    held: dict[str, Held] = field(default_factory=dict)
    """By vpod."""
    asked: dict[str, Held] = field(default_factory=dict)
    """By vpod, of the assignment that is being written."""
    asked_after: int = 0
    """The generation that is stored while the next one is being written."""
    asked_until: float = 0.0

    def holds(self, vpod: str) -> Held:
        """Now, or once the assignment that is being written has arrived."""
        held, asked = self.held.get(vpod, _NOTHING), self.asked.get(vpod, _NOTHING)
        return Held(max(held.vreplicas, asked.vreplicas), None, held.indexes | asked.indexes)


class Holders:
    """The holders of one pool. Times are of one clock, in seconds."""

    def __init__(self) -> None:
        self._pods: dict[str, _Pod] = {}
        """By UID. Of pods that are gone too, until their leases have run out."""
        self._of: dict[str, dict[str, None]] = {}
        """Vpod -> UIDs of the pods that hold some of it, or are asked to."""
        self._due: list[tuple[float, str, str]] = []
        """Heap: (when to look, UID, vpod). Entries may be out of date."""

    def seen(self, uid: str, name: str, adapter: Adapter, now: float) -> set[str]:
        """Take what a pod's adapter is told and has said. Return the vpods of which it may serve
        less than before.
        """
        told = adapter.assignment
        pod = self._pods.setdefault(uid, _Pod(name))
        shares = told.shares if told is not None else {}
        before = {vpod: pod.holds(vpod) for vpod in (*pod.held, *pod.asked)}
        if told is not None:
            pod.lease_s = max(pod.lease_s, told.lease_s)
        if (told.generation if told is not None else 0) != pod.asked_after:
            pod.asked.clear()
        for vpod in {**pod.held, **shares}:
            held = _held_after(adapter, vpod, pod.held.get(vpod), now + pod.lease_s)
            self._set(uid, pod, vpod, held)
        return self._fewer(uid, pod, before)

    def gone(self, uid: str, now: float, *, stopped: bool) -> set[str]:
        """A pod is gone. ``stopped``: whether its containers were seen to have stopped before.
        Return the vpods that it may not serve any more.
        """
        pod = self._pods.get(uid)
        if pod is None:
            return set()
        before = {vpod: pod.holds(vpod) for vpod in (*pod.held, *pod.asked)}
        for vpod, holds in before.items():
            until = pod.held.get(vpod, _NOTHING).until
            if until is None or vpod in pod.asked:
                # What was being written may have arrived, and its adapter may have heard of it.
                until = now + pod.lease_s
            self._set(uid, pod, vpod, None if stopped else holds._replace(until=until))
        pod.asked.clear()
        return self._fewer(uid, pod, before)

    def ask(
        self, uid: str, name: str, before: Assignment | None, after: Assignment, now: float
    ) -> None:
        """``after`` is about to be written where ``before`` is."""
        pod = self._pods.setdefault(uid, _Pod(name))
        pod.asked_after = before.generation if before is not None else 0
        pod.asked_until = now + ASKED_S
        pod.lease_s = max(pod.lease_s, after.lease_s)
        for vpod, share in after.shares.items():
            asked, holds = _told(share), pod.holds(vpod)
            if share.state is ShareState.SERVE and _is_fewer(holds, asked):
                # An earlier write without an answer may still arrive.
                earlier = pod.asked.get(vpod, _NOTHING)
                pod.asked[vpod] = asked._replace(
                    vreplicas=max(earlier.vreplicas, asked.vreplicas),
                    indexes=earlier.indexes | asked.indexes,
                )
                self._of.setdefault(vpod, {})[uid] = None
                heapq.heappush(self._due, (pod.asked_until, uid, vpod))

    def allowed(self, vpod: str, uid: str, published: int) -> int:
        """How many vreplicas a pod may be told to serve, if the vpod publishes ``published``."""
        own, others = 0, 0
        for key in self._of.get(vpod, ()):
            held = self._pods[key].holds(vpod).vreplicas
            if key == uid:
                own = held
            else:
                others += held
        return max(own, published - others)

    def others_indexes(self, vpod: str, uid: str) -> int:
        """The indexes of a vpod that other pods hold."""
        found = 0
        for key in self._of.get(vpod, ()):
            if key != uid:
                found |= self._pods[key].holds(vpod).indexes
        return found

    def run_out(self, now: float) -> set[str]:
        """Forget what has run out by ``now``. Return the vpods of which fewer are held."""
        found: set[str] = set()
        while self._due and self._due[0][0] <= now:
            at, uid, vpod = heapq.heappop(self._due)
            pod = self._pods.get(uid)
            if pod is None:
                continue
            before = {vpod: pod.holds(vpod)}
            held = pod.held.get(vpod)
            if held is not None and held.until == at:
                self._set(uid, pod, vpod, None)
            if pod.asked_until <= now:
                pod.asked.pop(vpod, None)
            elif vpod in pod.asked:  # it was asked again
                heapq.heappush(self._due, (pod.asked_until, uid, vpod))
            found |= self._fewer(uid, pod, before)
        return found

    def next_at(self) -> float | None:
        """When ``run_out`` has something to do next."""
        return self._due[0][0] if self._due else None

    def others(self, vpod: str, uid: str) -> Iterator[tuple[str, Held]]:
        """Name of each other pod that holds vreplicas of a vpod, and what it holds."""
        for key in self._of.get(vpod, ()):
            held = self._pods[key].held.get(vpod)
            if key != uid and held is not None:
                yield self._pods[key].name, held

    def in_doubt(self, vpod: str) -> Iterator[tuple[str, float]]:
        """Name of each pod that may be told to serve the vpod by a write that was not answered, and
        until when.
        """
        for key in self._of.get(vpod, ()):
            pod = self._pods[key]
            if vpod in pod.asked and vpod not in pod.held:
                yield pod.name, pod.asked_until

    def _set(self, uid: str, pod: _Pod, vpod: str, held: Held | None) -> None:
        if held is None:
            pod.held.pop(vpod, None)
            return
        if held.until is not None and held != pod.held.get(vpod):
            heapq.heappush(self._due, (held.until, uid, vpod))
        pod.held[vpod] = held
        self._of.setdefault(vpod, {})[uid] = None

    def _fewer(self, uid: str, pod: _Pod, before: dict[str, Held]) -> set[str]:
        """The vpods of which the pod holds fewer than ``before``. Forgets what is held no more."""
        fewer = set()
        for vpod, held in before.items():
            now = pod.holds(vpod)
            if _is_fewer(now, held):
                fewer.add(vpod)
            if not now.vreplicas and (uids := self._of.get(vpod)) is not None:
                uids.pop(uid, None)
                if not uids:
                    del self._of[vpod]
        if not pod.held and not pod.asked:
            del self._pods[uid]
        return fewer


def _told(share: AssignedShare) -> Held:
    return Held(share.vreplicas, None, indexes_from(share.indexes))


def _is_fewer(held: Held, than: Held) -> bool:
    """Whether ``held`` lacks some of ``than``."""
    return held.vreplicas < than.vreplicas or than.indexes & ~held.indexes != 0


def _held_after(adapter: Adapter, vpod: str, had: Held | None, until: float) -> Held | None:
    """What a pod holds of a vpod. ``had``: before; ``until``: when a lease from now on ends."""
    share = adapter.share_of(vpod)
    before = had or _NOTHING
    if share is None:
        if had is None or had.until is not None:
            return had
        return had._replace(until=until)
    told = _told(share)
    both = Held(max(before.vreplicas, told.vreplicas), None, before.indexes | told.indexes)
    if adapter.acknowledged is None and share.state is not ShareState.PREPARE:
        # It has never had a lease. From now on it can get one only for what it is told now.
        return told if share.state is ShareState.SERVE else None
    match share.state:
        case ShareState.SERVE:
            return told if adapter.has_done(vpod) else both
        case ShareState.DRAIN:
            return None if adapter.has_done(vpod) else both
        case ShareState.PREPARE:
            # Who renews its lease knows of ``Prepare``. It may still let go of what it had.
            keeps = before.vreplicas and not adapter.has_done(vpod)
            return before._replace(until=before.until or until) if keeps else None
