"""The check of descheduling: may the service evict pods where a pool has opted in, and which pods
stay on nodes that they should have left.

Which pods those are, and why they stay, is what the service says in the pools' condition
PodsMisplaced.
"""

from typing import Final

from extender.cli.doctor.checks.facts import NOT_ASKED, Facts
from extender.cli.doctor.checks.verdict import Check, CheckResult, Notes
from extender.model.counted import counted, first_of
from extender.model.reading import Json, condition_in, key_of, sequence, text
from extender.node.descheduling import PODS_MISPLACED

_GOES_ON: Final = frozenset({"EvictionDue"})
"""Reasons of PodsMisplaced that are no problem: a pod is evicted next."""

_ASK_AGAIN: Final = (
    "Examine the installation by its own --name and --namespace, as a user that may list "
    "Deployments there and create subjectaccessreviews."
)


def enabled(pool: Json) -> bool:
    """Whether an AdapterPool has opted in."""
    return bool(sequence(pool, "spec", "descheduling", "reasons"))


def _descheduling(facts: Facts) -> CheckResult:
    notes, fixes = Notes(), dict[str, None]()
    pools = facts.of("adapterpools").items
    opted_in = [pool for pool in pools if enabled(pool)]
    account = f"ServiceAccount {facts.service_account}" if facts.service_account else "the service"
    for namespace in sorted({text(pool, "metadata", "namespace") for pool in opted_in}):
        asked = facts.may_evict.get(namespace, NOT_ASKED)
        if asked.allowed is False:
            notes.errors.append(
                f"{account} may not create pods/eviction in namespace {namespace}, where pools "
                f"have spec.descheduling"
            )
            fixes["Set the chart's rbac.descheduling."] = None
        elif asked.allowed is None:
            notes.unknown.append(
                f"whether {account} may evict pods in namespace {namespace} is not known: "
                f"{asked.problem}"
            )
            fixes[_ASK_AGAIN] = None
    left = []
    for pool in pools:
        reason, message = _misplaced(pool)
        if not reason or reason in _GOES_ON:
            continue
        if enabled(pool):
            notes.warnings.append(f"AdapterPool {key_of(pool)}: {reason}: {message[:600]}")
            fixes["docs/troubleshooting.md has what each reason of PodsMisplaced means."] = None
        else:
            left.append(key_of(pool))
    return notes.result(
        f"no pod stays on a node that it should have left, of {counted(len(opted_in), 'pool')} "
        f"with spec.descheduling",
        nothing="" if opted_in else _nobody(left),
        fix=" ".join(fixes),
    )


def _nobody(left: list[str]) -> str:
    nobody = "no AdapterPool has spec.descheduling.reasons"
    if not left:
        return nobody
    return f"{nobody}; pods of {first_of(left, 3)} stand on nodes that they should have left"


def _misplaced(pool: Json) -> tuple[str, str]:
    """Reason and message of PodsMisplaced, if it is True; else two empty texts."""
    condition = condition_in(pool, PODS_MISPLACED)
    if text(condition, "status") != "True":
        return "", ""
    return text(condition, "reason"), text(condition, "message")


DESCHEDULING: Final = (
    Check(
        "descheduling",
        "Do pods leave nodes that they should have left, where pools have opted in?",
        ("adapterpools",),
        _descheduling,
    ),
)
