"""``Absences``: since when each ordinal of a pool has not been Ready, and which of them to give up. Pure.

An ordinal is *present* while its pod's Ready condition is True on a node that is known and Ready itself: a node that
cannot be reached no longer says what became of its pods. Absent are all others: gone, pending, restarting, crashing,
or on a failed node. After rescheduleAfterSeconds of absence a pod is *abandoned* (``PoolState.set_abandoned``): what it
holds is to be placed elsewhere, and it gets nothing new until it is present again.

The time counts from the pod's Ready condition where that says since when it is False, so a new leader goes on from
there; for what has no such condition (no pod, or one that says it is Ready on a failed node), from when that was
first seen. A new incarnation of a pod does not begin anew: its ordinal has been absent all the while.
"""

from datetime import datetime

from extender.core.claims import PodState
from extender.core.pool_state import PoolState


class Absences:
    """One pool's ordinals, by pod name. Times are epoch seconds."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def __bool__(self) -> bool:
        """Whether any ordinal is absent."""
        return bool(self._since)

    def look(self, pool: PoolState, now: float) -> tuple[frozenset[str], float | None]:
        """(pods to abandon, when the next one will be unless it comes back, None for never)."""
        limit = pool.pool.reschedule_after_s if pool.pool is not None else None
        if limit is None:
            self._since.clear()
            return frozenset(), None
        absent = {pod.name: pod for pod in pool.members() if not _present(pod)}
        for name in [name for name in self._since if name not in absent]:
            del self._since[name]
        for name, pod in absent.items():
            self._since[name] = min(self._since.get(name, now), _not_ready_since(pod, now))
        due = {name: since + limit for name, since in self._since.items()}
        return (
            frozenset(name for name, at in due.items() if at <= now),
            min((at for at in due.values() if at > now), default=None),
        )

    def since(self, name: str) -> float | None:
        """Since when that pod has been absent, None if it is not."""
        return self._since.get(name)


def _present(state: PodState) -> bool:
    return (
        state.bound
        and state.pod is not None
        and state.pod.ready
        and state.node is not None
        and state.node.ready
    )


def _not_ready_since(state: PodState, now: float) -> float:
    if state.pod is None or state.pod.ready:
        return now
    return min(now, epoch_s(state.pod.ready_since, now))


def epoch_s(text: str, default: float) -> float:
    """An RFC 3339 time in epoch seconds; ``default`` for what is none, or names no time zone."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return default
    return when.timestamp() if when.tzinfo is not None else default
