"""Decisions are reported: when a vpod is placed for the first time, an event says so, even if
events of other namespaces fail.

Events must never delay the decisions, so they may be lost: with their process, or by a failed
write. An event is required only if its writer has run all the time, and none of its writes of that
vpod's status or of events in its namespace has failed. In particular, refused events of another
namespace or a full queue are no excuse.
"""

from collections import deque
from dataclasses import dataclass
from math import inf
from typing import Final

from extender.config.model import LeaderElectionConfig
from extender.kube.api import Obj
from extender.lab.faults import ACTOR
from extender.lab.simulation.checkers.budgets import WRITE_S
from extender.lab.simulation.checkers.context import Checker, CheckerContext, by_service
from extender.lab.simulation.world.facts import VPod
from extender.lab.simulation.world.scale import CROWD

REPORTED_WITHIN_S: Final = 13.0
"""After a failed write, the events of one namespace wait this long; others do not."""

LEASE_S: Final = LeaderElectionConfig().lease_duration_s
RENEW_DEADLINE_S: Final = LeaderElectionConfig().renew_deadline_s


@dataclass(frozen=True, slots=True)
class _Placed:
    """A status with the first placements of a vpod, its writer, and when it was written."""

    actor: str
    vpod: VPod
    at: float


class ReportingChecker(Checker):
    """Records statuses and events when they are written. ``look`` checks what should have been
    reported by now.
    """

    def __init__(self, context: CheckerContext) -> None:
        super().__init__(context)
        self._taken_at: dict[str, float] = {}
        """Actor -> when it last changed the holder of a Lease."""
        self._renewed_at: dict[str, float] = {}
        """Actor -> when it last wrote a Lease."""
        self._due: deque[_Placed] = deque()
        self._reported: set[tuple[str, str]] = set()
        """(actor, UID of the object that the event is about)."""
        self._wrote_at: dict[tuple[str, str], float] = {}
        """(actor, namespace) -> when it last wrote an event there."""

    def lease_written(self) -> None:
        """A Lease was taken or renewed."""
        self._renewed_at[ACTOR.get()] = self._clock()

    def leader_changed(self) -> None:
        """A Lease has a new holder. A former leader that did not take the Lease itself may have
        stopped before it reported anything.
        """
        self._taken_at[ACTOR.get()] = self._clock()

    def _lost_at(self, actor: str) -> float:
        return max((at for who, at in self._taken_at.items() if who != actor), default=-inf)

    def event_changed(self, _before: Obj | None, after: Obj | None) -> None:
        """An event was written or deleted."""
        if after is None:
            return
        actor, uid = ACTOR.get(), (after.get("regarding") or {}).get("uid", "")
        self._reported.add((actor, uid))
        self._wrote_at[actor, after["metadata"]["namespace"]] = self._clock()

    def status_written(self, old: VPod, new: VPod) -> None:
        """A status was written, by anybody."""
        # The events of a crowd take longer than its statuses.
        crowd = new.key.partition("/")[2].startswith(CROWD)
        # If a ledger was not written, the first placements are partial. They are reported with the
        # rest.
        first = not old.total and not old.condition[0] and new.total and new.condition[0] == "True"
        if by_service() and first and not crowd:
            self._due.append(_Placed(ACTOR.get(), new, self._clock()))

    def look(self) -> None:
        """Report missing events that are overdue."""
        while self._due and self._due[0].at + REPORTED_WITHIN_S < self._clock():
            placed = self._due.popleft()
            if (placed.actor, placed.vpod.uid) not in self._reported and not self._may_be_silent(
                placed
            ):
                self._violated(
                    f"events: {placed.actor} placed {placed.vpod.key} at {placed.at:.3f} s, and "
                    f"told nobody"
                )

    def _may_be_silent(self, placed: _Placed) -> bool:
        actor, vpod, since = placed.actor, placed.vpod, placed.at
        failed_at = self._circumstances.failed_at
        name = vpod.key.partition("/")[2].partition("@")[0]
        plural = "streams" if vpod.foreign else "vpods"
        now = self._stored.vpods.get(vpod.key)
        return (
            now is None
            or (now.uid, now.pool) != (vpod.uid, vpod.pool)
            or self._circumstances.runs_since(actor) >= since
            # A leader that has lost its Lease notices it at its next renewal. It may stop between a
            # status and its event.
            or self._lost_at(actor) >= since - LEASE_S
            # A leader that cannot renew its Lease stops after the renew deadline, even if nobody
            # has taken the Lease yet (seed 234964413).
            or self._clock() - self._renewed_at.get(actor, inf) >= RENEW_DEADLINE_S
            # Its writer may have given up a write that was stored later (seed 20000705).
            or failed_at(actor, plural, name) >= since - WRITE_S
            or failed_at(actor, "events", vpod.namespace) >= since - REPORTED_WITHIN_S
            # The writer is behind in this namespace, but continues.
            or self._wrote_at.get((actor, vpod.namespace), -inf) > since
        )
