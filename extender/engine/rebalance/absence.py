"""``Absences``: since when each ordinal of a pool has been absent, and which of them to abandon.
Pure.

An ordinal is *present* while its pod is Ready and its node is known and Ready. (If a node cannot be
reached, nobody knows what became of its pods.) All others are *absent*: gone, pending, restarting,
crashing, on a failed node, or (in exclusive pools) with an adapter whose lease has run out. After
rescheduleAfterSeconds of absence a pod is *abandoned* (``PoolState.set_abandoned``): what it holds
is placed elsewhere, and it gets nothing new until it is present again.

If more pods have lost their adapters' leases than are present with one, the former do not count as
absent. Most likely adapters do not reach the service then, and the few that do should not get the
shares of all others.

The time counts from when the absence was first seen here, by our own monotonic clock. The Ready
condition's time comes from the clock of whoever wrote it. That may be a node's, and minutes wrong.
So it is compared only with itself. Suppose that it has changed, and the same pod was not Ready at
both looks. Then the pod was Ready in between, unseen, and its absence begins anew. With a new
incarnation of a pod it does not begin anew, because the ordinal has been absent all the time. It
does once the pod has a node for which it had to wait for ``WAITED_S``: that was no fault of its
adapter, which now needs its time to start.

Every replica counts, even one that does not lead. So the next leader continues from what it has
seen itself.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from extender.engine.pods.claims import PodClaims
from extender.engine.state.pool_state import PoolState
from extender.model.assignment import is_renewed

WAITED_S: Final = 5.0
"""A pod that has no node for so long waits for a machine, or for room on one. A pod that fails
again and again, and is made anew each time, gets its nodes sooner.
"""


class _Seen(NamedTuple):
    """What was last seen of an ordinal: ``uid`` and ``not_ready_since`` are the pod's, "" if it has
    none. ``bound``: whether it has a node.
    """

    uid: str
    not_ready_since: str
    bound: bool


@dataclass(frozen=True, slots=True)
class _Absence:
    """``since``: seconds. ``uid_since``: when its pod was first seen. ``got_node_at``: when that
    pod got the node for which it had waited; None if it did not wait, or has none.
    """

    since: float
    uid_since: float
    got_node_at: float | None
    seen: _Seen

    @property
    def counts_from(self) -> float:
        """From when rescheduleAfterSeconds counts."""
        return self.since if self.got_node_at is None else self.got_node_at

    def next(self, seen: _Seen, now: float) -> "_Absence":
        """It goes on."""
        if self.seen.uid != seen.uid:
            return _Absence(self.since, now, None, seen)
        got_node_at = self.got_node_at if seen.bound else None
        if seen.bound and not self.seen.bound and now - self.uid_since >= WAITED_S:
            got_node_at = now
        return _Absence(self.since, self.uid_since, got_node_at, seen)

    def was_ready(self, seen: _Seen) -> bool:
        """Whether the same pod was Ready since the last look."""
        last = self.seen
        told = last.not_ready_since and seen.not_ready_since
        return last.uid == seen.uid and bool(told) and last.not_ready_since != seen.not_ready_since


class Absences:
    """One pool's ordinals, by pod name. Times are seconds of one clock that never jumps."""

    def __init__(self) -> None:
        self._absent: dict[str, _Absence] = {}

    def note(self, pool: PoolState, now: float) -> None:
        """Note which ordinals are absent. This is needed even if the pool abandons none, since that
        may change.
        """
        before, self._absent = self._absent, {}
        members = list(pool.members())
        few_heard = sum(map(_lease_expired, members)) > sum(map(_is_heard, members))
        for pod in members:
            if _present(pod) or (few_heard and _lease_expired(pod)):
                continue
            known, seen = before.get(pod.name), _seen(pod)
            if known is None or known.was_ready(seen):
                known = _Absence(now, now, None, seen)
            elif known.seen != seen:
                known = known.next(seen, now)
            self._absent[pod.name] = known

    def look(self, pool: PoolState, now: float) -> tuple[frozenset[str], float | None]:
        """``note``, and return the pods to abandon and when the next one is due (None: never)."""
        self.note(pool, now)
        limit = pool.adapter_pool.reschedule_after_s if pool.adapter_pool is not None else None
        if limit is None:
            return frozenset(), None
        due = {name: absence.counts_from + limit for name, absence in self._absent.items()}
        return (
            frozenset(name for name, at in due.items() if at <= now),
            min((at for at in due.values() if at > now), default=None),
        )

    def since(self, name: str) -> float | None:
        """When that pod became absent, None if it is present."""
        absence = self._absent.get(name)
        return absence.since if absence is not None else None


def _present(known: PodClaims) -> bool:
    return (
        known.bound
        and known.pod is not None
        and known.pod.ready
        and known.node is not None
        and known.node.ready
    )


def _lease_expired(known: PodClaims) -> bool:
    return known.pod is not None and known.pod.lease_expired


def _is_heard(known: PodClaims) -> bool:
    """Whether a pod is present and its adapter has a lease."""
    return _present(known) and known.pod is not None and is_renewed(known.pod.acknowledged_text)


def _seen(known: PodClaims) -> _Seen:
    pod = known.pod
    if pod is None:
        return _Seen("", "", bound=False)
    since = "" if pod.ready or pod.lease_expired else pod.ready_since
    return _Seen(pod.uid, since, known.bound)
