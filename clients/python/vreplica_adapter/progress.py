"""How far one share has come, and which callback is next: pure, without I/O and without a clock.

A share has a *goal*, which follows from what is told, and a *position*, which follows from the
callbacks that have ended. ``Progress.advance`` compares the two::

    position     goal PREPARED   goal SERVING   goal DRAINED   goal NOTHING
    NOTHING      on_prepare      on_prepare     -              - (on_stop if a callback has begun)
    PREPARED     -               on_serve       -              on_stop
    SERVING      on_drain        on_serve (1)   on_drain       on_stop
    DRAINED      on_prepare      on_prepare     -              on_stop

(1) Only if the share has changed since the last ``on_serve``. A share is ``SERVING`` from the
moment in which ``on_serve`` begins: from then on work may be under way.

A share never has two callbacks at once. A callback that no longer leads to the goal is cancelled,
and the next one begins after it has ended, however long that takes.
"""

import math
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final, TypeAlias

from vreplica_adapter.wire import ShareDocument, State


class Step(StrEnum):
    """A callback."""

    PREPARE = "on_prepare"
    SERVE = "on_serve"
    DRAIN = "on_drain"
    STOP = "on_stop"


class Goal(Enum):
    """Where a share is to get."""

    NOTHING = "nothing"
    PREPARED = "prepared"
    SERVING = "serving"
    DRAINED = "drained"


Position: TypeAlias = Goal
"""Where a share is. The same four."""


class Outcome(Enum):
    """How a callback has ended."""

    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a callback may take, in seconds, before it is cancelled and counts as failed."""

    prepare_s: float = 300.0
    serve_s: float = 60.0
    drain_s: float = 300.0
    """Of ``on_drain`` where the assignment has no deadline."""
    stop_s: float = 10.0
    cancel_s: float = 5.0
    """How long a cancelled callback may take to end before that is reported."""
    retry_s: float = 1.0
    """Before a callback that failed is called again. It doubles with each failure."""
    retry_max_s: float = 30.0
    stops_max: int = 3
    """Calls of ``on_stop`` for one share, if it fails."""

    def of(self, step: Step) -> float:
        """Return the limit of a callback."""
        match step:
            case Step.PREPARE:
                return self.prepare_s
            case Step.SERVE:
                return self.serve_s
            case Step.DRAIN:
                return self.drain_s
            case Step.STOP:
                return self.stop_s


@dataclass(frozen=True, slots=True)
class Start:
    """Call ``step`` for the share, and say how it ended with ``Machine.finished``."""

    progress: "Progress"
    step: Step


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel the callback that runs for the share. ``Machine.finished`` is still owed."""

    progress: "Progress"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that a person should know. ``key`` is the share's, empty if it is about none."""

    key: str
    text: str


Action: TypeAlias = Start | Cancel | Problem

_NEXT: Final = {
    (Goal.NOTHING, Goal.PREPARED): Step.PREPARE,
    (Goal.NOTHING, Goal.SERVING): Step.PREPARE,
    (Goal.PREPARED, Goal.SERVING): Step.SERVE,
    (Goal.PREPARED, Goal.NOTHING): Step.STOP,
    (Goal.SERVING, Goal.PREPARED): Step.DRAIN,
    (Goal.SERVING, Goal.DRAINED): Step.DRAIN,
    (Goal.SERVING, Goal.NOTHING): Step.STOP,
    (Goal.DRAINED, Goal.PREPARED): Step.PREPARE,
    (Goal.DRAINED, Goal.SERVING): Step.PREPARE,
    (Goal.DRAINED, Goal.NOTHING): Step.STOP,
}
"""By position and goal. What is missing is no callback."""

_LEADS_TO: Final = {
    Step.PREPARE: {Goal.PREPARED, Goal.SERVING},
    Step.SERVE: {Goal.SERVING},
    Step.DRAIN: {Goal.DRAINED, Goal.PREPARED},
    Step.STOP: set(Goal),
}
"""The goals for which a callback that runs goes on."""


class Progress:
    """One share of this process, from its first callback to the end of ``on_stop``.

    A share that comes back afterwards has a new ``Progress``.
    """

    def __init__(self, key: str, told: ShareDocument) -> None:
        self.key = key
        self.told: ShareDocument | None = told
        """What the newest assignment says, None if it does not have the share."""
        self.last_told = told
        self.position = Position.NOTHING
        self.served: ShareDocument | None = None
        """With which ``on_serve`` ended well. None before that, and from ``on_drain`` on."""
        self.running: Step | None = None
        self.deadline_at = math.inf
        """When a drained share must have been let go, by the machine's clock."""
        self.revoked = False
        """Taken away without being drained: the lease or the deadline has passed."""
        self.over = False
        """``on_stop`` has ended, or nothing had begun."""
        self.queued_for = math.inf
        """The machine's: when it looks at this share next."""
        self._begun = False
        self._goal = Goal.NOTHING
        self._attempt = told
        self._overdue_at = math.inf
        self._cancelled = ""
        """Why the callback that runs was cancelled. Empty: it was not."""
        self._failures = 0
        self._retry_at = -math.inf

    def tell(self, told: ShareDocument | None) -> None:
        """Take what a newer assignment says. What has failed is then tried again at once."""
        if told != self.told:
            self._retry()
        self.told = told
        self.last_told = told or self.last_told

    def _retry(self) -> None:
        self._failures, self._retry_at = 0, -math.inf

    @property
    def in_service(self) -> bool:
        """Whether work may be under way."""
        return self.position is Position.SERVING

    @property
    def letting_go(self) -> bool:
        """Whether it is to be drained or stopped, told or by itself."""
        return self._goal in {Goal.DRAINED, Goal.NOTHING}

    @property
    def let_go(self) -> bool:
        """Whether nothing is done for the share, and nothing will be unless it is told."""
        return not self.in_service and self.running in {None, Step.STOP}

    @property
    def serves_what_is_told(self) -> bool:
        """Whether ``on_serve`` has ended well with what the newest assignment says."""
        served, told = self.served, self.told
        return (
            self.running is None
            and served is not None
            and told is not None
            and _size_of(served) == _size_of(told)
        )

    def due_at(self) -> float:
        """When ``advance`` has something to do although nothing happens; infinite if never."""
        own = self._overdue_at if self.running else self._retry_at
        return min(
            own if own > -math.inf else math.inf,
            self.deadline_at if not self.let_go and not self.revoked else math.inf,
        )

    def advance(self, goal: Goal, now: float, limits: Limits) -> list[Action]:
        """Return what to do next to get to ``goal``."""
        if self.over:
            return []
        if goal is not self._goal:
            self._goal = goal
            self._retry()
        if self.running is not None:
            return self._watch(self.running, goal, now, limits)
        if goal is Goal.DRAINED and self.position is Position.PREPARED:
            self.position = Position.DRAINED
        step = self._next(goal)
        if step is None:
            self._retry_at = -math.inf
            self.over = goal is Goal.NOTHING
            return []
        if now < self._retry_at:
            return []
        self.running, self._cancelled, self._begun = step, "", True
        self._attempt = self.last_told
        self._overdue_at = now + limits.of(step)
        if step is Step.DRAIN and self.deadline_at < math.inf:
            self._overdue_at = math.inf  # The deadline revokes the share instead.
        if step is Step.SERVE:
            self.position = Position.SERVING
        else:
            self.served = None
        return [Start(self, step)]

    def _next(self, goal: Goal) -> Step | None:
        if self.position is goal is Goal.SERVING:
            return None if self.serves_what_is_told else Step.SERVE
        if self.position is goal is Goal.NOTHING and self._begun:
            return Step.STOP
        return _NEXT.get((self.position, goal))

    def _watch(self, step: Step, goal: Goal, now: float, limits: Limits) -> list[Action]:
        """Cancel a callback that leads nowhere, or takes too long."""
        late = now >= self._overdue_at
        if self._cancelled:
            if not late:
                return []
            self._overdue_at = math.inf
            return [Problem(self.key, f"{step} goes on although it was cancelled")]
        if not late and goal in _LEADS_TO[step]:
            return []
        self._cancelled = f"{step} took longer than {limits.of(step):g} s" if late else "not wanted"
        self._overdue_at = now + limits.cancel_s
        problems = [Problem(self.key, f"{self._cancelled}: it is cancelled")] if late else []
        return [Cancel(self), *problems]

    def finish(self, outcome: Outcome, why: str, now: float, limits: Limits) -> list[Action]:
        """Take how the callback that ran has ended. Call ``advance`` afterwards."""
        step, self.running, self._overdue_at = self.running, None, math.inf
        assert step is not None
        if outcome is Outcome.DONE:
            self._retry()
            self._done(step)
            return []
        if self._cancelled == "not wanted":
            return [Problem(self.key, f"{step}: {why}")] if outcome is Outcome.FAILED else []
        self._failures += 1
        if step is Step.STOP and self._failures >= limits.stops_max:
            self._done(step)
            return [
                Problem(self.key, f"on_stop has failed {self._failures} times: given up. {why}")
            ]
        wait_s = min(limits.retry_max_s, limits.retry_s * 2.0 ** min(self._failures - 1, 30))
        self._retry_at = now + wait_s
        return [Problem(self.key, f"{step} has failed, again after {wait_s:g} s: {why}")]

    def _done(self, step: Step) -> None:
        match step:
            case Step.PREPARE:
                self.position = Position.PREPARED
            case Step.SERVE:
                self.served = self._attempt
            case Step.DRAIN:
                self.position = Position.DRAINED
            case Step.STOP:
                self.position, self.over = Position.NOTHING, True

    def may_act(self, epoch: int, now: float) -> bool:
        """Whether work of this epoch may go on, leases aside."""
        told = self.told
        return (
            told is not None
            and told.epoch == epoch
            and told.state is not State.PREPARE
            and self.in_service
            and not self.revoked
            and not self.over
            and now < self.deadline_at
        )


def _size_of(told: ShareDocument) -> tuple[object, ...]:
    """What ``on_serve`` must know: if it changes, the callback is called again."""
    return (told.vreplicas, told.weight, told.of, told.indexes, told.epoch)
