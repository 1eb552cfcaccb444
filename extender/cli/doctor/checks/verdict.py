"""What a check comes to: a verdict with its evidence, and what to do."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from extender.cli.doctor.checks.facts import Facts

EVIDENCE_MAX: Final = 10
"""Lines of one check; how many more there are is said."""


class Verdict(StrEnum):
    """How it is."""

    OK = "ok"
    WARNING = "warning"
    """It works, and something should be looked at."""
    ERROR = "error"
    """It does not work, or is not safe."""
    UNKNOWN = "unknown"
    """It could not be seen."""
    SKIPPED = "skipped"
    """There is nothing of the kind that the check is about."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one check. ``summary``: one sentence. ``evidence``: what was seen, a line each. ``fix``:
    "" where all is well.
    """

    verdict: Verdict
    summary: str
    evidence: tuple[str, ...] = ()
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """A check. ``needs``: kinds without which it is unknown, by plural. ``asks``: the question that
    it answers.
    """

    name: str
    asks: str
    needs: tuple[str, ...]
    run: Callable[[Facts], Outcome]


@dataclass(slots=True)
class Notes:
    """Collects what a check sees, and makes an outcome of the worst of it."""

    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def outcome(self, good: str, *, bad: str = "", fix: str = "", nothing: str = "") -> Outcome:
        """``good``: the summary where nothing was noted; ``bad``: else, with the number of things
        before it.

        ``nothing``: what there is none of, so that nothing could be noted; "" where there is
        something.
        """
        noted = [*self.errors, *self.warnings, *self.unknown]
        if not noted:
            return Outcome(Verdict.SKIPPED, nothing) if nothing else Outcome(Verdict.OK, good)
        worst = Verdict.WARNING if self.warnings else Verdict.UNKNOWN
        verdict = Verdict.ERROR if self.errors else worst
        return Outcome(verdict, bad or noted[0], bounded(noted), fix)


def bounded(lines: list[str]) -> tuple[str, ...]:
    """The first lines, and how many more there are."""
    more = len(lines) - EVIDENCE_MAX
    return (*lines[:EVIDENCE_MAX], *([f"and {more} more"] if more > 0 else []))
