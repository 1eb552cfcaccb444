"""``Absences``: since when each ordinal of a pool has been absent, and which of them to abandon.
Pure.

An ordinal is *present* while its pod's Ready condition is True and its node is known and Ready. (If
a node cannot be reached, nobody knows what became of its pods.) All others are *absent*: gone,
pending, restarting, crashing, or on a failed node. After rescheduleAfterSeconds of absence a pod is
*abandoned* (``PoolState.set_abandoned``): what it holds is placed elsewhere, and it gets nothing
new until it is present again.

The time counts from when the absence was first seen here, by our own monotonic clock. The Ready
condition's time comes from the clock of whoever wrote it. That may be a node's, and minutes wrong.
So it is compared only with itself: if it has changed, and the pod was not Ready at either look, the
pod was Ready in between, unseen, and its absence begins anew. With a new incarnation of a pod it
does not begin anew, because the ordinal has been absent all the time.

Every replica counts, even one that does not lead. So the next leader continues from what it has
seen itself.
"""

from dataclasses import dataclass

from extender.engine.pods.claims import PodClaims
from extender.engine.state.pool_state import PoolState


@dataclass(frozen=True, slots=True)
class _Absence:
    """``since``: seconds. ``uid`` and ``not_ready_since``: the pod's, as last seen; "" if it has
    none.
    """

    since: float
    uid: str
    not_ready_since: str


class Absences:
    """One pool's ordinals, by pod name. Times are seconds of one clock that never jumps."""

    def __init__(self) -> None:
        self._absent: dict[str, _Absence] = {}

    def note(self, pool: PoolState, now: float) -> None:
        """Note which ordinals are absent. This is needed even if the pool abandons none, since that
        may change.
        """
        before, self._absent = self._absent, {}
        for pod in pool.members():
            if _present(pod):
                continue
            known = before.get(pod.name)
            uid, not_ready_since = _seen(pod)
            if known is None or _was_back(known, uid, not_ready_since):
                known = _Absence(now, uid, not_ready_since)
            elif (known.uid, known.not_ready_since) != (uid, not_ready_since):
                known = _Absence(known.since, uid, not_ready_since)
            self._absent[pod.name] = known

    def look(self, pool: PoolState, now: float) -> tuple[frozenset[str], float | None]:
        """``note``, and return the pods to abandon and when the next one is due (None: never)."""
        self.note(pool, now)
        limit = pool.adapter_pool.reschedule_after_s if pool.adapter_pool is not None else None
        if limit is None:
            return frozenset(), None
        due = {name: absence.since + limit for name, absence in self._absent.items()}
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


def _seen(known: PodClaims) -> tuple[str, str]:
    """``uid`` and ``not_ready_since`` of an absence now."""
    pod = known.pod
    if pod is None:
        return "", ""
    return pod.uid, "" if pod.ready else pod.ready_since


def _was_back(known: _Absence, uid: str, not_ready_since: str) -> bool:
    """Whether the same pod was Ready between these two looks."""
    return (
        known.uid == uid
        and bool(known.not_ready_since and not_ready_since)
        and known.not_ready_since != not_ready_since
    )
