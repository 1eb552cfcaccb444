"""How an examination is printed, and its exit status."""

from collections.abc import Sequence
from typing import Any, Final

from extender.cli.doctor.checks.verdict import Verdict
from extender.cli.doctor.examine import Examined
from extender.cli.terminal.exit_status import ERROR
from extender.telemetry.one_line import one_line

EXIT_WELL: Final = 0
"""No check has found an error."""
EXIT_ERRORS: Final = 1
"""A check has found an error; with ``--strict``, also a warning or something that could not be
checked.
"""
EXIT_NOT_EXAMINED: Final = ERROR
"""There is no cluster to examine: it cannot be reached, or this user may read nothing. As in every
command.
"""


def exit_status(examined: Sequence[Examined], *, strict: bool) -> int:
    """The exit status of the command."""
    verdicts = {one.outcome.verdict for one in examined}
    if not any(has_looked(one) for one in examined):
        return EXIT_NOT_EXAMINED
    bad = verdicts - {Verdict.OK, Verdict.SKIPPED} if strict else verdicts & {Verdict.ERROR}
    return EXIT_ERRORS if bad else EXIT_WELL


def has_looked(one: Examined) -> bool:
    """Whether a check has seen objects of the cluster."""
    return bool(one.check.needs) and one.outcome.verdict is not Verdict.UNKNOWN


def as_table(examined: Sequence[Examined]) -> str:
    """The result for people: one line for each check, and below it the evidence and what to do."""
    width = max(len(one.check.name) for one in examined)
    lines = []
    for one in examined:
        outcome = one.outcome
        verdict = str(outcome.verdict)
        shown = verdict.upper() if outcome.verdict is Verdict.ERROR else verdict
        lines.append(one_line(f"{shown:<8} {one.check.name:<{width}}  {outcome.summary}"))
        evidence = [line for line in outcome.evidence if line != outcome.summary]
        lines += [one_line(f"{'':8} {'':{width}}  - {line}") for line in evidence]
        if outcome.fix:
            lines.append(f"{'':8} {'':{width}}  fix: {outcome.fix}")
    counts = _counts(examined)
    lines.append(", ".join(f"{name}: {number}" for name, number in counts.items()))
    return "\n".join(lines)


def _counts(examined: Sequence[Examined]) -> dict[str, int]:
    return {
        str(verdict): sum(1 for one in examined if one.outcome.verdict is verdict)
        for verdict in Verdict
    }


def as_document(examined: Sequence[Examined]) -> dict[str, Any]:
    """The result for tools."""
    return {
        "checks": [
            {
                "name": one.check.name,
                "asks": one.check.asks,
                "verdict": str(one.outcome.verdict),
                "summary": one.outcome.summary,
                "evidence": list(one.outcome.evidence),
                "fix": one.outcome.fix,
            }
            for one in examined
        ],
        "counts": _counts(examined),
    }
