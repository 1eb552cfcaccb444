"""Runs the checks over facts. If the facts of a check could not be read, the check is unknown."""

from dataclasses import dataclass

from extender.cli.doctor.checks import CHECKS
from extender.cli.doctor.checks.facts import Facts
from extender.cli.doctor.checks.verdict import Check, CheckResult, Verdict


@dataclass(frozen=True, slots=True)
class Examined:
    """A check and its result."""

    check: Check
    result: CheckResult


def examine(facts: Facts) -> list[Examined]:
    """Run all checks, in order."""
    return [Examined(check, _run(check, facts)) for check in CHECKS]


def _run(check: Check, facts: Facts) -> CheckResult:
    missing = [
        f"{plural}: {facts.of(plural).problem}"
        for plural in check.needs
        if facts.of(plural).problem
    ]
    if missing:
        return CheckResult(
            Verdict.UNKNOWN,
            f"{', '.join(line.partition(':')[0] for line in missing)} could not be read",
            tuple(missing),
            "See the checks rights and crds.",
        )
    return check.run(facts)
