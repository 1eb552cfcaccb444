"""What all checkers share: the stored objects, the excuses, the writer of the current write, and
where they report findings.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from extender.lab.faults import ACTOR
from extender.lab.simulation.checkers.coverage_excuses import CoverageExcuses
from extender.lab.simulation.checkers.edited_records import EditedRecords
from extender.lab.simulation.checkers.excuses import Circumstances, Excuses
from extender.lab.simulation.checkers.settled import Stored

SERVICE: Final = "replica-"
"""The actor names of the service's replicas begin with this."""


@dataclass(frozen=True)
class CheckerContext:
    """The shared parts of one run. ``violated`` reports a violation, ``trace`` a change."""

    stored: Stored
    excuses: Excuses
    edited_records: EditedRecords
    coverage_excuses: CoverageExcuses
    circumstances: Circumstances
    trace: Callable[[str], None]
    violated: Callable[[str], None]


def by_service() -> bool:
    """Return whether a replica of the service makes the current write."""
    return ACTOR.get().startswith(SERVICE)
