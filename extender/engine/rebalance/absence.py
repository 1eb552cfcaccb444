"""``Absences``: since when each ordinal of a pool has not been Ready, and which of them to give up.
Pure.

An ordinal is *present* while its pod's Ready condition is True on a node that is known and Ready
itself: a node that cannot be reached no longer says what became of its pods. Absent are all others:
gone, pending, restarting, crashing, or on a failed node. After rescheduleAfterSeconds of absence a
pod is *abandoned* (``PoolState.set_abandoned``): what it holds is to be placed elsewhere, and it
gets nothing new until it is present again.

The time counts from when the absence was first seen here, by our own monotonic clock. The Ready
condition says since when it is False by the clock of whoever wrote it: a node's, which may be
minutes wrong. So that time is compared with itself and with nothing else: where it is another one
while the pod has not been Ready at either look, the pod was Ready in between, unseen, and its
absence begins anew. A new incarnation of a pod does not begin anew: its ordinal has been absent all
the while.

Every replica counts, also one that does not lead: who leads next goes on from what it has seen
itself.
"""

from dataclasses import dataclass
from datetime import datetime

from extender.engine.pods.claims import PodClaims
from extender.engine.state.pool_state import PoolState


@dataclass(frozen=True, slots=True)
class _Absence:
    """``since``: seconds; ``uid`` and ``not_ready_since`` are the pod's as last seen, "" where it
    says nothing of that.
    """

    since: float
    uid: str
    not_ready_since: str


class Absences:
    """One pool's ordinals, by pod name. Times are seconds of one clock, which never jumps."""

    def __init__(self) -> None:
        self._absent: dict[str, _Absence] = {}

    def note(self, pool: PoolState, now: float) -> None:
        """See who is absent; also where the pool gives up nothing, for it may be told to."""
        seen = {pod.name: _seen(pod, now) for pod in pool.members() if not _present(pod)}
        for name, new in seen.items():
            known = self._absent.get(name)
            if known is not None and not _was_back(known, new):
                seen[name] = _Absence(known.since, new.uid, new.not_ready_since)
        self._absent = seen

    def look(self, pool: PoolState, now: float) -> tuple[frozenset[str], float | None]:
        """(pods to abandon, when the next one will be unless it comes back, None for never), after
        a ``note``.
        """
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
        """Since when that pod has been absent, None if it is not."""
        absence = self._absent.get(name)
        return absence.since if absence is not None else None


def _present(state: PodClaims) -> bool:
    return (
        state.bound
        and state.pod is not None
        and state.pod.ready
        and state.node is not None
        and state.node.ready
    )


def _seen(state: PodClaims, now: float) -> _Absence:
    pod = state.pod
    if pod is None:
        return _Absence(now, "", "")
    return _Absence(now, pod.uid, "" if pod.ready else pod.ready_since)


def _was_back(known: _Absence, new: _Absence) -> bool:
    """Whether one pod has ceased to be Ready again since it was last seen not to be."""
    return (
        known.uid == new.uid
        and bool(known.not_ready_since and new.not_ready_since)
        and known.not_ready_since != new.not_ready_since
    )


def epoch_s(text: str, default: float) -> float:
    """An RFC 3339 time in epoch seconds; ``default`` for what is none, or names no time zone."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return default
    return when.timestamp() if when.tzinfo is not None else default
