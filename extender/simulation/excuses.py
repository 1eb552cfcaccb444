"""``Excuses``: what may be the cause of a decision that is written now, for a while after it has ceased to be."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

EXCUSE_S: Final = 60.0
"""A decision may be that old when it is written."""


@dataclass
class Excuses:
    """Causes seen, by what they are about, with the time at which they ceased to be."""

    clock: Callable[[], float]
    lasts_s: float = EXCUSE_S
    _until: dict[str, float] = field(default_factory=dict)

    def note(self, about: str, lasts_s: float | None = None) -> None:
        """The cause is there, or was until now."""
        self._until[about] = self.clock() + (self.lasts_s if lasts_s is None else lasts_s)

    def holds(self, about: str) -> bool:
        """Whether a decision written now may have seen it."""
        return self._until.get(about, -1.0) >= self.clock()
