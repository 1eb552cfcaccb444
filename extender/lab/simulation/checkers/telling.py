"""What is decided is told: a vpod that was placed for the first time has an event, whatever becomes
of events elsewhere.

Events are never in the way of what they tell of, and may be lost: with their process, by a write
that fails. So one is asked for only where its writer has run all the time, and has seen no write of
that vpod's status and no event into its namespace fail. Then neither a namespace whose events are
refused nor a full queue of others is a reason not to write it.
"""

from collections import deque
from dataclasses import dataclass
from math import inf
from typing import Final

from extender.config.model import LeaderElectionConfig
from extender.kube.api import Obj
from extender.lab.faults import ACTOR
from extender.lab.simulation.checkers.known import Known, by_service
from extender.lab.simulation.world.facts import VPod
from extender.lab.simulation.world.scale import CROWD

TOLD_WITHIN_S: Final = 13.0
"""As long as a namespace waits by itself after a write of its own has failed, and no other does."""

LEASE_S: Final = LeaderElectionConfig().lease_duration_s


@dataclass(frozen=True, slots=True)
class _Placed:
    """A status that its vpod had none before, and who has written it when."""

    actor: str
    vpod: VPod
    at: float


class TellingChecker:
    """Looks at statuses and events as they are written; ``look`` at what should have been told by
    now.
    """

    def __init__(self, known: Known) -> None:
        self._clock = known.excuses.clock
        self._stored = known.stored
        self._circumstances = known.circumstances
        self._violated = known.violated
        self._taken_at: dict[str, float] = {}
        """Who has given a Lease another holder -> when it last did."""
        self._due: deque[_Placed] = deque()
        self._told: set[tuple[str, str]] = set()
        """(Who has written an event, the UID of what it is about)."""
        self._wrote_at: dict[tuple[str, str], float] = {}
        """(Who, namespace) -> when it has last written an event there."""

    def leader_changed(self) -> None:
        """Who has decided may have been stopped before it told anything, unless it has taken the
        Lease itself.
        """
        self._taken_at[ACTOR.get()] = self._clock()

    def _lost_at(self, actor: str) -> float:
        return max((at for who, at in self._taken_at.items() if who != actor), default=-inf)

    def event_changed(self, _before: Obj | None, after: Obj | None) -> None:
        """An event is written, or is gone."""
        if after is None:
            return
        actor, uid = ACTOR.get(), (after.get("regarding") or {}).get("uid", "")
        self._told.add((actor, uid))
        self._wrote_at[actor, after["metadata"]["namespace"]] = self._clock()

    def status_written(self, old: VPod, new: VPod) -> None:
        """A status, by whomever."""
        # A crowd's events take longer than its statuses.
        crowd = new.key.partition("/")[2].startswith(CROWD)
        # What is placed in part, for a ledger was not written, is told with the rest.
        first = not old.total and not old.observed and new.total and new.condition[0] == "True"
        if by_service() and first and not new.foreign and not crowd:
            self._due.append(_Placed(ACTOR.get(), new, self._clock()))

    def look(self) -> None:
        """Whether all has been told that should have been by now."""
        while self._due and self._due[0].at + TOLD_WITHIN_S < self._clock():
            placed = self._due.popleft()
            if (placed.actor, placed.vpod.uid) not in self._told and not self._may_be_silent(
                placed
            ):
                self._violated(
                    f"events: {placed.actor} placed {placed.vpod.key} at {placed.at:.3f} s, and "
                    f"told nobody"
                )

    def _may_be_silent(self, placed: _Placed) -> bool:
        actor, vpod, since = placed.actor, placed.vpod, placed.at
        name, failed_at = vpod.key.partition("/")[2], self._circumstances.failed_at
        now = self._stored.vpods.get(vpod.key)
        return (
            now is None
            or (now.uid, now.pool) != (vpod.uid, vpod.pool)
            or self._circumstances.runs_since(actor) >= since
            # Who has lost its Lease finds out with its next try, and stops between a status and its
            # event.
            or self._lost_at(actor) >= since - LEASE_S
            or failed_at(actor, "vpods", name) >= since
            or failed_at(actor, "events", vpod.namespace) >= since - TOLD_WITHIN_S
            # It is behind there, and goes on.
            or self._wrote_at.get((actor, vpod.namespace), -inf) > since
        )
