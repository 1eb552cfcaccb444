"""From assignments and callbacks' results to callbacks and acknowledgements: the whole of what an
adapter decides, without I/O and without a clock.

The caller feeds events (``assign``, ``finished``, ``acknowledged``, ``leave``, ``tick``), each with
the time ``now`` of one clock that never goes back, in seconds. After each event it takes
``actions``. It calls ``tick`` at ``due_at`` at the latest. ``acknowledgement`` is what there is to
say at this moment.

**Generations.** The machine takes an assignment if it is newer than all before it. So a late answer
or an old file changes nothing.

**Leases.** With a lease (``handoff.mode: Exclusive``) a share is served only while the lease is
held. An acknowledgement that succeeds renews it, from the moment in which it was *sent*, because
the service counts from a later one. The machine uses ``LEASE_PART`` of it. A lease that has run out
comes back only by an assignment that the service itself has sent since, and an acknowledgement
after that: the service may have given the shares away.
"""

import heapq
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Final, TypeAlias

from vreplica_adapter.progress import (
    Action as ShareAction,
    Goal,
    Limits,
    Outcome,
    Problem,
    Progress,
)
from vreplica_adapter.wire import Acknowledgement, Assignment, ShareDocument, State

LEASE_PART: Final = 0.9
"""The part of a lease that is used. The rest is for a clock that runs slower than the service's,
and for work that was begun at the last moment.
"""

BEHIND_S: Final = 1.0
"""How long the open stream may take to bring a generation that an answer has named already. While
shares are handed over there are several a second, and the two come at about the same time.
"""


class Reconnect:
    """What the open stream says is not enough: open it anew, at another replica if there is one."""


Action: TypeAlias = ShareAction | Reconnect


class Machine:
    """What one adapter knows and does. See the module's docstring."""

    def __init__(self, *, limits: Limits | None = None, lease_s: float | None = None) -> None:
        """``lease_s`` holds where assignments have no ``leaseSeconds``."""
        self._limits = limits or Limits()
        self._own_lease_s = lease_s
        self._assignment: Assignment | None = None
        self._is_ours = False
        """Whether the service has sent an assignment with its UID."""
        self._progress: dict[str, Progress] = {}
        self._actions: list[Action] = []
        self._due: list[tuple[float, str]] = []
        self._lease_s: float | None = None
        self._lease_from = -math.inf
        """When the last acknowledgement that renewed the lease was sent."""
        self._promised_until = -math.inf
        """When the lease before runs out, at most a shorter one later: it has been made shorter,
        and no acknowledgement has renewed it since.
        """
        self._news_at = math.inf
        """When the service sent the first assignment since the lease was last lost."""
        self._named = -1
        """The newest generation that an answer has named."""
        self._named_until = math.inf
        """When the stream that has not brought it is given up."""
        self._leaving_until = math.inf
        self._closing = False
        self._unsettled: set[str] = set()
        self._said: Acknowledgement | None = None

    @property
    def generation(self) -> int:
        """Of the newest assignment; -1 before the first one."""
        return self._assignment.generation if self._assignment else -1

    @property
    def is_behind(self) -> bool:
        """Whether an answer has named a newer generation, which has not come yet."""
        return self._named > self.generation

    @property
    def shares(self) -> Mapping[str, ShareDocument]:
        """What the newest assignment has."""
        return self._assignment.shares if self._assignment else {}

    @property
    def lease_s(self) -> float | None:
        """The lease in seconds, None in a pool without."""
        return self._lease_s

    @property
    def lease_until(self) -> float:
        """When the lease runs out: infinite without a lease, in the past before the first one."""
        if self._lease_s is None:
            return math.inf
        return max(self._lease_from + LEASE_PART * self._lease_s, self._promised_until)

    def part_of_lease(self, parts: int) -> float:
        """Seconds; infinite without a lease."""
        return math.inf if self._lease_s is None else self._lease_s / parts

    @property
    def progress(self) -> Mapping[str, Progress]:
        """The shares that have begun and not ended, by key."""
        return self._progress

    @property
    def leaving(self) -> bool:
        """Whether ``leave`` has been called."""
        return self._leaving_until < math.inf

    @property
    def left(self) -> bool:
        """Whether everything has been let go and stopped after ``leave``."""
        return self._closing and not self._progress

    def actions(self) -> list[Action]:
        """Return what is to be done since the last call, in order."""
        actions, self._actions = self._actions, []
        return actions

    def due_at(self) -> float:
        """Until when ``tick`` must be called; infinite if it need not be."""
        lease_until = self.lease_until if self.lease_until > -math.inf else math.inf
        return min(self._due[0][0] if self._due else math.inf, lease_until, self._named_until)

    def may_act(self, progress: Progress, epoch: int, now: float) -> bool:
        """Whether work for a share may go on under the epoch with which it was begun."""
        return now < self.lease_until and progress.may_act(epoch, now)

    def assign(self, assignment: Assignment, now: float, wall: datetime, *, news: bool) -> bool:
        """Take an assignment. Return whether it is newer than all before it.

        ``wall`` is the time of day at ``now``, for deadlines. ``news``: the service has sent it
        just now; a file may be old.
        """
        self.tick(now)
        known = self._assignment
        if known is not None and assignment.uid != known.uid:
            self._report("", f"an assignment is for another pod, with the UID {assignment.uid}")
            if self._is_ours or not news:
                return False
            # The service sends only this pod's own. What a file said before was another's.
            known = self._assignment = None
            self._named, self._lease_from, self._promised_until = -1, -math.inf, -math.inf
            self._tell({}, now, wall)
        self._is_ours = self._is_ours or news
        if news and assignment.generation >= self.generation:
            self._news_at = min(self._news_at, now)
        if assignment.generation <= self.generation:
            if (
                known is not None
                and assignment.generation == known.generation
                and (assignment.shares != known.shares)
            ):
                self._report("", f"generation {known.generation} has come with two contents")
            return False
        self._assignment = assignment
        if self._named <= assignment.generation:
            self._named_until = math.inf
        elif news:
            self._named_until = now + self._behind_s()
        self._take_lease(assignment, now)
        self._tell(assignment.shares, now, wall)
        return True

    def _take_lease(self, assignment: Assignment, now: float) -> None:
        lease_s = assignment.lease_s or self._own_lease_s
        if self._lease_s is None and lease_s is not None and self._any_in_service():
            # The pool has become exclusive while this pod serves. It has until the first
            # acknowledgement of this, as long as a lease lasts.
            self._lease_from = max(self._lease_from, now)
        elif self._lease_s is not None and lease_s is not None and lease_s < self._lease_s:
            # The service goes by the longest one that it has told.
            self._promised_until = min(self.lease_until, now + LEASE_PART * lease_s)
        self._lease_s = lease_s

    def _tell(self, shares: Mapping[str, ShareDocument], now: float, wall: datetime) -> None:
        for key, told in shares.items():
            if key not in self._progress and not self.leaving:
                self._progress[key] = Progress(key, told)
        for key, progress in list(self._progress.items()):
            self._tell_one(progress, shares.get(key), now, wall)
            self._step(progress, now)

    def _tell_one(
        self, progress: Progress, told: ShareDocument | None, now: float, wall: datetime
    ) -> None:
        deadline_before = progress.last_told.deadline
        progress.tell(told)
        if told is None:
            return
        if told.state is not State.DRAIN or told.deadline is None:
            progress.deadline_at = self._leaving_until
        elif progress.deadline_at == math.inf or told.deadline != deadline_before:
            due = now + (told.deadline - wall).total_seconds()
            progress.deadline_at = min(due, self._leaving_until)

    def finished(self, progress: Progress, outcome: Outcome, why: str, now: float) -> None:
        """Take how a callback has ended; ``why`` is for people, if it has not ended well."""
        # Before what is due: a callback that has ended can no longer be cancelled.
        self._actions += progress.finish(outcome, why, now, self._limits)
        self.tick(now)
        self._step(progress, now)

    def acknowledgement(self) -> Acknowledgement | None:
        """Return what there is to say, None before the first assignment."""
        if self._assignment is None:
            return None
        lists: dict[str, list[str]] = {"serving": [], "draining": [], "drained": [], "busy": []}
        for key in sorted(self._assignment.shares):
            told = self._assignment.shares[key]
            for name in self._said_of(self._progress.get(key), told.state):
                lists[name].append(key)
        return Acknowledgement(
            uid=self._assignment.uid,
            generation=self._assignment.generation,
            serving=tuple(lists["serving"]),
            draining=tuple(lists["draining"]),
            drained=tuple(lists["drained"]),
            busy=tuple(lists["busy"]),
        )

    def _said_of(self, progress: Progress | None, told: State) -> tuple[str, ...]:
        """Return the lists that name a share."""
        in_service = progress is not None and progress.in_service
        let_go = progress is None or progress.let_go
        if told is State.DRAIN or (told is State.SERVE and self.leaving):
            return ("drained",) if let_go else ("draining",)
        if progress is None or progress.revoked or (told is State.PREPARE and in_service):
            return ("draining", "busy") if in_service else ("busy",)
        if told is State.SERVE:
            serves = ("serving",) if in_service and progress.served is not None else ()
            return serves if progress.serves_what_is_told else (*serves, "busy")
        ready = progress.position is Goal.PREPARED and progress.running is None and not self.leaving
        return () if ready else ("busy",)

    def unsaid(self) -> bool:
        """Whether there is something to say that the service has not heard."""
        return self.acknowledgement() not in {None, self._said}

    def acknowledged(
        self, said: Acknowledgement, sent_at: float, now: float, generation: int | None = None
    ) -> None:
        """Take that the service has heard ``said``, which was sent at ``sent_at``. ``generation``
        is the one that the service has, if it says so: if it is a newer one, the shares of the old
        one may be another's already, and the lease is not renewed.
        """
        self.tick(now)
        self._said = said
        if generation is not None and generation > said.generation:
            if generation > self.generation:
                self._named = max(self._named, generation)
                self._named_until = min(self._named_until, now + self._behind_s())
            return
        if sent_at >= self._news_at:
            self._lease_from = max(self._lease_from, sent_at)
            self._promised_until = -math.inf
            self._step_all(now)

    def leave(self, now: float, until: float) -> None:
        """Let go of everything: drain what is served until ``until``, and then stop."""
        self.tick(now)
        self._leaving_until = min(self._leaving_until, until)
        self._unsettled = set(self._progress)
        for progress in self._progress.values():
            progress.deadline_at = min(progress.deadline_at, until)
        self._step_all(now)
        self._close_if_settled(now)

    def tick(self, now: float) -> None:
        """Do what is due."""
        if self._lease_s is not None and now >= self.lease_until:
            self._lose_lease(now)
        if now >= self._named_until:
            self._named_until = math.inf
            self._actions.append(Reconnect())
        while self._due and self._due[0][0] <= now:
            _, key = heapq.heappop(self._due)
            if (progress := self._progress.get(key)) is not None:
                progress.queued_for = math.inf
                self._step(progress, now)

    def _behind_s(self) -> float:
        return BEHIND_S if self._lease_s is None else min(BEHIND_S, self._lease_s / 6)

    def _lose_lease(self, now: float) -> None:
        if self._lease_from == -math.inf:
            return
        self._lease_from, self._promised_until, self._news_at = -math.inf, -math.inf, math.inf
        self._actions.append(Reconnect())
        lost = [one for one in self._progress.values() if one.in_service and not one.revoked]
        if lost:
            self._report("", f"the lease has run out: {len(lost)} shares are stopped")
        for progress in lost:
            progress.revoked = True
            self._step(progress, now)

    def _any_in_service(self) -> bool:
        return any(one.in_service for one in self._progress.values())

    def _step_all(self, now: float) -> None:
        for progress in list(self._progress.values()):
            self._step(progress, now)

    def _step(self, progress: Progress, now: float) -> None:
        if self._progress.get(progress.key) is not progress:
            return
        if now >= progress.deadline_at and not progress.let_go and not progress.revoked:
            progress.revoked = True
            self._report(progress.key, "it is not let go by its deadline: it is stopped")
        self._actions += progress.advance(self._goal(progress, now), now, self._limits)
        if progress.over:
            self._end(progress, now)
        elif (due := progress.due_at()) < progress.queued_for:
            progress.queued_for = due
            heapq.heappush(self._due, (due, progress.key))
        if self.leaving and progress.let_go:
            self._unsettled.discard(progress.key)
            self._close_if_settled(now)

    def _end(self, progress: Progress, now: float) -> None:
        """A share that is told although it was stopped, as after its lease, begins anew."""
        del self._progress[progress.key]
        told = progress.told
        if told is None or self.leaving or told.state is State.DRAIN:
            return
        self._progress[progress.key] = Progress(progress.key, told)
        self._step(self._progress[progress.key], now)

    def _close_if_settled(self, now: float) -> None:
        if self.leaving and not self._unsettled and not self._closing:
            self._closing = True
            self._step_all(now)

    def _goal(self, progress: Progress, now: float) -> Goal:
        told = progress.told
        if told is None or progress.revoked or self._closing:
            return Goal.NOTHING
        if self.leaving or told.state is State.DRAIN:
            return Goal.DRAINED
        if told.state is State.SERVE and (progress.in_service or now < self.lease_until):
            return Goal.SERVING
        return Goal.PREPARED

    def _report(self, key: str, text: str) -> None:
        self._actions.append(Problem(key, text))
