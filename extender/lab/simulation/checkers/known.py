"""What all checkers share: the stored objects, the excuses, the writer of the current write, and
where they report findings.
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
"""The actor names of the service's replicas begin with this."""


@dataclass(frozen=True)
class Known:
    """The shared parts of one run. ``violated`` reports a violation, ``trace`` a change."""

    stored: Stored
    excuses: Excuses
    broken: Broken
    uncovering: Uncovering
    circumstances: Circumstances
    trace: Callable[[str], None]
    violated: Callable[[str], None]


def by_service() -> bool:
    """Return whether a replica of the service makes the current write."""
    return ACTOR.get().startswith(SERVICE)
