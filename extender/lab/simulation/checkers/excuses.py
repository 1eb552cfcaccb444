"""``Excuses``: for a while after a cause has ended, a decision that is written may still be its
result.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Final

from extender.lab.clock import wall_clock
from extender.lab.simulation.world.adapters import SimulatedAdapter

EXCUSE_S: Final = 60.0
"""The age that a decision may have when it is written."""


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """What the checkers know of a run besides its writes."""

    excuse_s: float = EXCUSE_S
    """The maximum age of the state on which a decision is based, when the decision is written."""
    late_s: float = EXCUSE_S
    """The same for this run. It is less if no fault of the run delays views or writes."""
    now_of: Callable[[str], float] = lambda _actor: wall_clock()
    """Actor -> its own wall clock, in epoch seconds."""
    two_lead: Callable[[], bool] = lambda: False
    """Whether two replicas may lead one pool, so that writes may cross. I1 holds even then."""
    unsure: Callable[[], int] = lambda: 0
    """The number of writes so far whose writer got no answer, or has none yet."""
    listed_at: Callable[[str], float] = lambda _actor: -inf
    """Actor -> loop time of its last list of pods."""
    failed_at: Callable[[str, str, str], float] = lambda _actor, _plural, _name: -inf
    """(actor, plural, name) -> loop time of its last failed write; events by namespace."""
    restored: Callable[[], bool] = lambda: False
    """Whether etcd has been restored from a backup in this run."""
    runs_since: Callable[[str], float] = lambda _actor: -inf
    """Actor -> loop time since which it has run without a break; inf if it does not run."""
    adapter: Callable[[str], SimulatedAdapter | None] = lambda _pod: None
    """Name of a pod -> its adapter, if one runs there."""


@dataclass
class Excuses:
    """The causes that were seen, by their subject, with the time until which they excuse."""

    clock: Callable[[], float]
    lasts_s: float = EXCUSE_S
    _until: dict[str, float] = field(default_factory=dict)

    def note(self, about: str, lasts_s: float | None = None) -> None:
        """The cause exists, or existed until now."""
        self._until[about] = self.clock() + (self.lasts_s if lasts_s is None else lasts_s)

    def since(self) -> float:
        """Return the time before which a cause must have ended to be too old for a decision that is
        written now.
        """
        return self.clock() - self.lasts_s

    def holds(self, about: str) -> bool:
        """Return whether a decision that is written now may have seen the cause."""
        return self._until.get(about, -1.0) >= self.clock()
