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


class Checker:
    """One of the checkers, with what all of them share."""

    def __init__(self, context: CheckerContext) -> None:
        self._stored = context.stored
        self._excuses = context.excuses
        self._clock = context.excuses.clock
        self._edited_records = context.edited_records
        self._coverage_excuses = context.coverage_excuses
        self._circumstances = context.circumstances
        self._two_lead = context.circumstances.two_lead
        self._trace = context.trace
        self._violated = context.violated


def by_service() -> bool:
    """Return whether a replica of the service makes the current write."""
    return ACTOR.get().startswith(SERVICE)
