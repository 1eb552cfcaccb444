"""Runs the checks over facts. A check whose facts could not be read is unknown, whatever it would
have said.
"""

from dataclasses import dataclass

from extender.cli.doctor.checks import CHECKS
from extender.cli.doctor.checks.facts import Facts
from extender.cli.doctor.checks.verdict import Check, Outcome, Verdict


@dataclass(frozen=True, slots=True)
class Examined:
    """One check and what it came to."""

    check: Check
    outcome: Outcome


def examine(facts: Facts) -> list[Examined]:
    """All checks, in their order."""
    return [Examined(check, _run(check, facts)) for check in CHECKS]


def _run(check: Check, facts: Facts) -> Outcome:
    missing = [
        f"{plural}: {facts.of(plural).problem}"
        for plural in check.needs
        if facts.of(plural).problem
    ]
    if missing:
        return Outcome(
            Verdict.UNKNOWN,
            f"{', '.join(line.partition(':')[0] for line in missing)} could not be read",
            tuple(missing),
            "See the checks rights and crds.",
        )
    return check.run(facts)
