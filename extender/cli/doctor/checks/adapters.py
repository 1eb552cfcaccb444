"""Checks of hand-over: can the adapters of pools with spec.handoff acknowledge, and do they; and do
evictions wait for them.

An adapter can read its assignment from a file without the listener for adapters. To acknowledge it,
it needs the listener.
"""

from collections.abc import Iterator
from typing import Final

from extender.cli.doctor.checks.deployed import serves_adapters
from extender.cli.doctor.checks.facts import Facts, age_s
from extender.cli.doctor.checks.registrations import our_webhooks
from extender.cli.doctor.checks.verdict import Check, CheckResult, Notes
from extender.cli.lint.webhook_file import takes_evictions
from extender.model.assignment import awaits_acknowledgement, generation_of, unserved_shares
from extender.model.counted import counted, first_of
from extender.model.decode import pod_from
from extender.model.names import (
    ACKNOWLEDGED_ANNOTATION,
    ASSIGNMENT_ANNOTATION,
    COMPONENT,
    POOL_LABEL,
)
from extender.model.objects import HandoffMode
from extender.model.reading import Json, key_of, mapping, mappings, text, value_at

PATIENCE_S: Final = 60.0
"""How long an adapter may take to acknowledge."""


def _hands_over(pool: Json) -> bool:
    return isinstance(value_at(pool, ("spec", "handoff")), dict)


def _handoff(facts: Facts) -> CheckResult:
    notes, fixes = Notes(), dict[str, None]()
    pools = sorted(key_of(pool) for pool in facts.of("adapterpools").items if _hands_over(pool))
    service = facts.of("deployments").named(facts.names.service, facts.namespace)
    is_served = serves_adapters(service) if service is not None else None
    if is_served and not pools and facts.of("adapterpools").items:
        notes.warnings.append(
            "the listener for adapters is on, and no AdapterPool has spec.handoff"
        )
        fixes["Set spec.handoff of a pool, or turn adapters.enabled of the chart off."] = None
    if is_served is False and pools:
        notes.warnings.append(
            f"the listener for adapters is off: adapters of {first_of(pools, 3)} can acknowledge "
            f"nothing"
        )
        fixes["Set adapters.enabled of the chart."] = None
    else:
        for problem in _silent(facts, frozenset(pools)):
            notes.warnings.append(problem)
            fixes["Look into the adapter's log: docs/security.md says what it needs to call."] = (
                None
            )
    told, said, summary = _acknowledged(facts, frozenset(pools))
    if told and not said and not notes.warnings:
        notes.unknown.append(summary)
        fixes["Run doctor again in a minute: it then names the pods that are still silent."] = None
    return notes.result(
        summary,
        nothing="" if pools else "no AdapterPool has spec.handoff",
        fix=" ".join(fixes),
    )


def _acknowledged(facts: Facts, pools: frozenset[str]) -> tuple[int, int, str]:
    """How many adapters were told something, and how many of them have ever acknowledged anything.
    Then in words, how many have acknowledged the newest.
    """
    told = [
        pod
        for raw in facts.of("pods").items
        if _pool_of(raw) in pools and (pod := pod_from(raw)).assignment_text
    ]
    said = [pod for pod in told if pod.acknowledged_text]
    newest = sum(
        not awaits_acknowledgement(pod.assignment_text, pod.acknowledged_text) for pod in told
    )
    where = f"in {counted(len(pools), 'pool')} with spec.handoff"
    if not told:
        return 0, 0, f"no adapter has been told anything yet, {where}"
    summary = f"acknowledged what they were told: {newest} of {counted(len(told), 'adapter')}"
    return len(told), len(said), f"{summary}, {where}"


def _pool_of(pod: Json) -> str:
    return f"{text(pod, 'metadata', 'namespace')}/{text(pod, 'metadata', 'labels', POOL_LABEL)}"


def _evictions(facts: Facts) -> CheckResult:
    notes = Notes()
    pools = sorted(
        key_of(pool)
        for pool in facts.of("adapterpools").items
        if text(pool, "spec", "handoff", "mode") in {HandoffMode.OVERLAP, HandoffMode.EXCLUSIVE}
    )
    if pools and not any(takes_evictions(webhook) for _, _, webhook in our_webhooks(facts)):
        notes.warnings.append(
            f"evictions do not wait for the adapters of {first_of(pools, 3)}: no webhook of ours "
            f"is registered for them"
        )
    return notes.result(
        f"evictions wait for the adapters of {counted(len(pools), 'pool')}",
        nothing="" if pools else "no AdapterPool has a spec.handoff.mode",
        fix="Leave out adapters.evictions of the chart, or set it to true.",
    )


def _silent(facts: Facts, pools: frozenset[str]) -> Iterator[str]:
    """What pods have not said: those whose lease has run out, and those that are behind, or serve
    less than they were told to, for longer than ``PATIENCE_S``.
    """
    for raw in facts.of("pods").items:
        if _pool_of(raw) not in pools:
            continue
        pod = pod_from(raw)
        if pod.lease_expired:
            yield f"the adapter of pod {pod.key} has not renewed its lease, and counts as not Ready"
            continue
        since = age_s(_told_at(raw), facts.now_s)
        if since is None or since <= PATIENCE_S:
            continue
        if awaits_acknowledgement(pod.assignment_text, pod.acknowledged_text):
            told, said = map(generation_of, (pod.assignment_text, pod.acknowledged_text))
            yield (
                f"pod {pod.key} was told generation {told} over a minute ago, and has acknowledged "
                f"{said or 'none'}"
            )
        elif count := unserved_shares(pod.assignment_text or "", pod.acknowledged_text):
            yield (
                f"the adapter of pod {pod.key} has not begun to serve {counted(count, 'share')} "
                f"that it was told to serve over a minute ago"
            )


def _told_at(pod: Json) -> str:
    """Since when at least the pod has its assignment: the last time that the service wrote its
    annotations. An API server that does not keep that (``managedFields``) may still know a pod that
    has never acknowledged; "" if nothing is known.
    """
    for entry in mappings(pod, "metadata", "managedFields"):
        written = mapping(entry, "fieldsV1", "f:metadata", "f:annotations")
        if text(entry, "manager") == COMPONENT and f"f:{ASSIGNMENT_ANNOTATION}" in written:
            return text(entry, "time")
    if text(pod, "metadata", "annotations", ACKNOWLEDGED_ANNOTATION):
        return ""
    return text(pod, "metadata", "creationTimestamp")


HANDOFF: Final = (
    Check(
        "handoff",
        "Can adapters acknowledge what they are told, and do they, where pools hand over?",
        ("adapterpools", "pods", "deployments"),
        _handoff,
    ),
    Check(
        "evictions",
        "Do evictions wait for the adapters, where pools hand over?",
        ("adapterpools", "mutatingwebhookconfigurations", "validatingwebhookconfigurations"),
        _evictions,
    ),
)
