"""The result of a check: a verdict with its evidence, and what to do."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from extender.cli.doctor.checks.facts import Facts

EVIDENCE_MAX: Final = 10
"""Evidence lines of one check. The last one says how many more there are."""


class Verdict(StrEnum):
    """How severe the result is."""

    OK = "ok"
    WARNING = "warning"
    """It works, but somebody should look at it."""
    ERROR = "error"
    """It does not work, or is not safe."""
    UNKNOWN = "unknown"
    """It could not be checked."""
    SKIPPED = "skipped"
    """There is nothing that the check is about."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check. ``summary``: one sentence. ``evidence``: one line for each thing
    seen. ``fix``: what to do, "" if all is well.
    """

    verdict: Verdict
    summary: str
    evidence: tuple[str, ...] = ()
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """A check. ``needs``: plurals of kinds; if one cannot be read, the verdict is unknown.
    ``asks``: the question that it answers.
    """

    name: str
    asks: str
    needs: tuple[str, ...]
    run: Callable[[Facts], CheckResult]


@dataclass(slots=True)
class Notes:
    """Collects what a check finds. The worst finding gives the verdict."""

    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def result(self, good: str, *, bad: str = "", fix: str = "", nothing: str = "") -> CheckResult:
        """Make the result. ``good``: the summary if nothing was found. ``bad``: the summary
        otherwise; by default the first finding.

        ``nothing``: what does not exist, if the check had nothing to look at; else "".
        """
        noted = [*self.errors, *self.warnings, *self.unknown]
        if not noted:
            return (
                CheckResult(Verdict.SKIPPED, nothing) if nothing else CheckResult(Verdict.OK, good)
            )
        worst = Verdict.WARNING if self.warnings else Verdict.UNKNOWN
        verdict = Verdict.ERROR if self.errors else worst
        return CheckResult(verdict, bad or noted[0], bounded(noted), fix)


def bounded(lines: list[str]) -> tuple[str, ...]:
    """The first lines, then how many more there are."""
    more = len(lines) - EVIDENCE_MAX
    return (*lines[:EVIDENCE_MAX], *([f"and {more} more"] if more > 0 else []))
