"""The checks of descheduling and of rollouts: may the service evict pods where a pool has opted in,
which pods stay on nodes that they should have left, and which rollouts do not go on.

Which pods those are, and why they stay, is what the service says in the pools' conditions
PodsMisplaced and RollingOut.
"""

from collections.abc import Iterable
from typing import Final

from extender.cli.doctor.checks.facts import NOT_ASKED, Facts
from extender.cli.doctor.checks.verdict import Check, CheckResult, Notes
from extender.model.counted import counted, first_of
from extender.model.objects import RolloutStrategy
from extender.model.reading import Json, condition_in, key_of, sequence, text
from extender.node.descheduling import PODS_MISPLACED

_GOES_ON: Final = frozenset({"EvictionDue"})
"""Reasons of PodsMisplaced that are no problem: a pod is evicted next."""

_ASK_AGAIN: Final = (
    "Examine the installation by its own --name and --namespace, as a user that may list "
    "Deployments there and create subjectaccessreviews."
)


def deschedules(pool: Json) -> bool:
    """Whether an AdapterPool has opted in to descheduling."""
    return bool(sequence(pool, "spec", "descheduling", "reasons"))


def rolls_out(pool: Json) -> bool:
    """Whether an AdapterPool has its rollouts handed over."""
    return text(pool, "spec", "rollout", "strategy") == RolloutStrategy.HANDED_OVER


def evicts(pool: Json) -> bool:
    """Whether the service has to evict pods of an AdapterPool."""
    return deschedules(pool) or rolls_out(pool)


def _rights(
    facts: Facts, opted_in: Iterable[Json], spec: str, value: str, notes: Notes
) -> dict[str, None]:
    """Note where the service may not evict pods of these pools. Return what mends it. ``spec``: how
    they have opted in. ``value``: the chart's value that grants the right.
    """
    fixes = dict[str, None]()
    account = f"ServiceAccount {facts.service_account}" if facts.service_account else "the service"
    for namespace in sorted({text(pool, "metadata", "namespace") for pool in opted_in}):
        asked = facts.may_evict.get(namespace, NOT_ASKED)
        if asked.allowed is False:
            notes.errors.append(
                f"{account} may not create pods/eviction in namespace {namespace}, where pools "
                f"have {spec}"
            )
            fixes[f"Set the chart's {value}."] = None
        elif asked.allowed is None:
            notes.unknown.append(
                f"whether {account} may evict pods in namespace {namespace} is not known: "
                f"{asked.problem}"
            )
            fixes[_ASK_AGAIN] = None
    return fixes


def _descheduling(facts: Facts) -> CheckResult:
    notes = Notes()
    pools = facts.of("adapterpools").items
    opted_in = [pool for pool in pools if deschedules(pool)]
    fixes = _rights(facts, opted_in, "spec.descheduling", "rbac.descheduling", notes)
    left = []
    for pool in pools:
        reason, message = _misplaced(pool)
        if not reason or reason in _GOES_ON:
            continue
        if deschedules(pool):
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


def _rollouts(facts: Facts) -> CheckResult:
    notes = Notes()
    opted_in = [pool for pool in facts.of("adapterpools").items if rolls_out(pool)]
    strategy = "spec.rollout.strategy: HandedOver"
    fixes = _rights(facts, opted_in, strategy, "rbac.rollouts", notes)
    for pool in opted_in:
        stateful_set = facts.of("statefulsets").named(
            text(pool, "spec", "statefulSet"), text(pool, "metadata", "namespace")
        )
        update = text(stateful_set or {}, "spec", "updateStrategy", "type")
        if stateful_set is not None and update != "OnDelete":
            notes.errors.append(
                f"AdapterPool {key_of(pool)} has {strategy}, and StatefulSet "
                f"{key_of(stateful_set)} has spec.updateStrategy.type {update or 'RollingUpdate'}: "
                f"its controller replaces pods without a hand-over"
            )
            fixes["Set spec.updateStrategy.type: OnDelete of the StatefulSet."] = None
    return notes.result(
        f"{counted(len(opted_in), 'pool')} with {strategy} can replace pods",
        nothing="" if opted_in else f"no AdapterPool has {strategy}",
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
    Check(
        "rollouts",
        "Can the service replace the pods of an old revision, where pools have opted in?",
        ("adapterpools", "statefulsets"),
        _rollouts,
    ),
)
