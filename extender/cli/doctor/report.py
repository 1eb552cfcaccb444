"""How an examination is printed, and its exit status."""

from collections.abc import Sequence
from typing import Any

from extender.cli.doctor.checks.verdict import Verdict
from extender.cli.doctor.examine import Examined
from extender.cli.terminal.exit_status import ERROR, OK
from extender.telemetry.one_line import one_line


def exit_status(examined: Sequence[Examined], *, strict: bool) -> int:
    """ERROR if a check has found an error, with ``strict`` also for a warning or something that
    could not be checked. ERROR as well if no check has seen anything: this user may read nothing.
    """
    verdicts = {one.result.verdict for one in examined}
    bad = verdicts - {Verdict.OK, Verdict.SKIPPED} if strict else verdicts & {Verdict.ERROR}
    return ERROR if bad or not any(has_looked(one) for one in examined) else OK


def has_looked(one: Examined) -> bool:
    """Whether a check has seen objects of the cluster."""
    return bool(one.check.needs) and one.result.verdict is not Verdict.UNKNOWN


def as_table(examined: Sequence[Examined]) -> str:
    """The result for people: one line for each check, and below it the evidence and what to do."""
    width = max(len(one.check.name) for one in examined)
    lines = []
    for one in examined:
        result = one.result
        verdict = str(result.verdict)
        shown = verdict.upper() if result.verdict is Verdict.ERROR else verdict
        lines.append(one_line(f"{shown:<8} {one.check.name:<{width}}  {result.summary}"))
        evidence = [line for line in result.evidence if line != result.summary]
        lines += [one_line(f"{'':8} {'':{width}}  - {line}") for line in evidence]
        if result.fix:
            lines.append(f"{'':8} {'':{width}}  fix: {result.fix}")
    counts = _counts(examined)
    lines.append(", ".join(f"{name}: {number}" for name, number in counts.items()))
    return "\n".join(lines)


def _counts(examined: Sequence[Examined]) -> dict[str, int]:
    return {
        str(verdict): sum(1 for one in examined if one.result.verdict is verdict)
        for verdict in Verdict
    }


def as_document(examined: Sequence[Examined]) -> dict[str, Any]:
    """The result for tools."""
    return {
        "checks": [
            {
                "name": one.check.name,
                "asks": one.check.asks,
                "verdict": str(one.result.verdict),
                "summary": one.result.summary,
                "evidence": list(one.result.evidence),
                "fix": one.result.fix,
            }
            for one in examined
        ],
        "counts": _counts(examined),
    }
