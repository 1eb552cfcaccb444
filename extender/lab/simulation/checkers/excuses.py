"""``Excuses``: what may be the cause of a decision that is written now, for a while after it has
ceased to be.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Final

from extender.lab.clock import wall_clock

EXCUSE_S: Final = 60.0
"""A decision may be that old when it is written."""


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """What the checkers are told of a run, besides what is written in it."""

    excuse_s: float = EXCUSE_S
    """How old what a decision goes by may be when it is written, at the most."""
    late_s: float = EXCUSE_S
    """The same of this run: less, where nothing in it makes views or writes late."""
    now_of: Callable[[str], float] = lambda _actor: wall_clock()
    """An actor's own wall clock, epoch seconds."""
    two_lead: Callable[[], bool] = lambda: False
    """Whether what the service writes may cross; I1 holds."""
    unsure: Callable[[], int] = lambda: 0
    """How many writes so far have been done, or are on their way, without an answer to their
    writer.
    """
    listed_at: Callable[[str], float] = lambda _actor: -inf
    """The loop's time at which an actor last listed pods."""
    ledger_failed_at: Callable[[str, str], float] = lambda _actor, _pod: -inf
    """The loop's time at which a write of a pod last failed for an actor."""
    failed_at: Callable[[str, str, str], float] = lambda _actor, _plural, _name: -inf
    """The same of any kind; of events by their namespace."""
    runs_since: Callable[[str], float] = lambda _actor: -inf
    """The loop's time since which a process has run without a break; inf where it does not run."""


@dataclass
class Excuses:
    """Causes seen, by what they are about, with the time at which they ceased to be."""

    clock: Callable[[], float]
    lasts_s: float = EXCUSE_S
    _until: dict[str, float] = field(default_factory=dict)

    def note(self, about: str, lasts_s: float | None = None) -> None:
        """The cause is there, or was until now."""
        self._until[about] = self.clock() + (self.lasts_s if lasts_s is None else lasts_s)

    def since(self) -> float:
        """What was over before this time is too old for a decision that is written now."""
        return self.clock() - self.lasts_s

    def holds(self, about: str) -> bool:
        """Whether a decision written now may have seen it."""
        return self._until.get(about, -1.0) >= self.clock()
