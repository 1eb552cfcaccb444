"""What all checkers go by: what is stored, what excuses a difference, who writes; and whom they
tell what they find.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from extender.lab.faults import ACTOR
from extender.lab.simulation.checkers.broken import Broken
from extender.lab.simulation.checkers.excuses import Circumstances, Excuses
from extender.lab.simulation.checkers.settled import Stored
from extender.lab.simulation.checkers.uncovering import Uncovering

SERVICE: Final = "replica-"
"""Names of the service's actors begin so."""


@dataclass(frozen=True)
class Known:
    """One run's. ``violated`` is told each violation, in words; ``trace`` what has changed."""

    stored: Stored
    excuses: Excuses
    broken: Broken
    uncovering: Uncovering
    circumstances: Circumstances
    trace: Callable[[str], None]
    violated: Callable[[str], None]


def by_service() -> bool:
    """Whether a replica of the service makes the write that is looked at."""
    return ACTOR.get().startswith(SERVICE)
