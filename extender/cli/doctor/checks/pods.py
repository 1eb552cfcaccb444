"""Checks of adapter pods: whether a kube-scheduler handles them, the webhook has stamped them, and
their slots suffice.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from extender.cli.doctor.checks.facts import Facts, age_s
from extender.cli.doctor.checks.registrations import MUTATING_PLURAL, Stamper, stampers
from extender.cli.doctor.checks.verdict import Check, CheckResult, Notes
from extender.model.amounts import SLOTS
from extender.model.counted import counted
from extender.model.decode import slots_request_of
from extender.model.ledger import ledger_amounts, ledger_slots
from extender.model.names import POOL_LABEL, SCHEDULER_NAMES, SLOTS_ANNOTATION, SLOTS_RESOURCE
from extender.model.objects import AdapterPod
from extender.model.reading import Json, condition_in, key_of, labels_of, mapping, text

PENDING_S: Final = 30
"""How long an unbound pod may be without a condition from any scheduler."""

_NOBODY_LOOKS: Final = (
    "Run a kube-scheduler with a profile of that schedulerName and our extender in it (vreplica "
    "config check FILE)."
)
_STUCK: Final = (
    "Delete the pod if an earlier webhook has stamped it: it comes anew and requests 0. Else the "
    "extender of your kube-scheduler needs managedResources (vreplica config check FILE)."
)
_MIXED: Final = (
    "slotsResource was changed. Pods become alike as they come anew; restart the StatefulSets to "
    "have that now. "
    "Without a change, replicas of the webhook have different configurations."
)
_REFUSED: Final = (
    "A scheduler has looked, and its message says what the nodes lack: give it to them, or have "
    "the pod template ask for less."
)


def is_pending(pod: Json) -> bool:
    """Whether the pod has no node, and is neither finished nor being deleted."""
    over = text(pod, "status", "phase") in {"Succeeded", "Failed"} or bool(
        mapping(pod, "metadata").get("deletionTimestamp")
    )
    return not text(pod, "spec", "nodeName") and not over


def _scheduled(pod: Json) -> Json:
    """What a scheduler says of the pod; empty if none has looked at it."""
    return condition_in(pod, "PodScheduled")


def refusal_of(pod: Json) -> str:
    """What a scheduler says in refusing a pending pod; "" if none has."""
    said = _scheduled(pod)
    refuses = text(said, "status") == "False"
    return (text(said, "message") or text(said, "reason"))[:200] if refuses else ""


def _scheduler(facts: Facts) -> CheckResult:
    """A scheduler that finds no node for a pod sets the condition PodScheduled. Without that
    condition, no scheduler has looked at the pod.
    """
    notes = Notes()
    pending = [pod for pod in facts.of("pods").items if is_pending(pod)]
    for pod in pending:
        said = _scheduled(pod)
        name = text(pod, "spec", "schedulerName")
        waits_s = age_s(text(pod, "metadata", "creationTimestamp"), facts.now_s) or 0.0
        if not said and waits_s > PENDING_S:
            notes.errors.append(
                f"{key_of(pod)} waits {waits_s:.0f} s and no scheduler named "
                f"{name[:100]!r} has looked at it"
            )
        elif text(said, "status") == "False":
            notes.warnings.append(f"{key_of(pod)} has no node: {refusal_of(pod)}")
    fixes = [_NOBODY_LOOKS] if notes.errors else []
    fixes += [_REFUSED] if notes.warnings else []
    return notes.result(
        f"{counted(len(pending), 'pod')} waiting for a node, none of them long"
        if pending
        else "no pod waits for a node",
        bad=f"{counted(len(notes.errors) + len(notes.warnings), 'pod')} without a node",
        fix=" ".join(fixes),
        nothing=facts.none_of("pods"),
    )


def _stranded(facts: Facts) -> CheckResult:
    notes, webhooks = Notes(), stampers(facts)
    ours = SCHEDULER_NAMES | {facts.scheduler_name}
    for pod in facts.of("pods").items:
        if mapping(pod, "metadata").get("deletionTimestamp"):
            continue
        bound, name = bool(text(pod, "spec", "nodeName")), text(pod, "spec", "schedulerName")
        if SLOTS_ANNOTATION not in mapping(pod, "metadata", "annotations"):
            state = "bound" if bound else "waiting"
            notes.errors.append(
                f"{key_of(pod)} ({state}) has the label {POOL_LABEL} and no annotation "
                f"{SLOTS_ANNOTATION}"
            )
        elif bound and name not in ours and not _is_bound_by_another(pod, name, webhooks):
            line = f"{key_of(pod)} was bound by {name[:100]!r}"
            if problem := facts.of(MUTATING_PLURAL).problem:
                notes.unknown.append(f"{line}, which another installation may have: {problem}")
            else:
                notes.warnings.append(line)
    return notes.result(
        f"{counted(len(facts.of('pods').items), 'adapter pod')}, all stamped, by webhook or leader",
        nothing=facts.none_of("pods"),
        bad=f"{counted(len(notes.errors) + len(notes.warnings), 'pod')} slipped past the webhook "
        f"or our scheduler",
        fix="The leader repairs bound ones within a minute. Check webhook-registration, then "
        "delete pods that stay so: "
        "their StatefulSet makes them anew, and what they hold comes back.",
    )


def _is_bound_by_another(pod: Json, name: str, webhooks: Sequence[Stamper]) -> bool:
    """Whether a scheduler of that name is another installation's whose webhook stamps the pod. The
    chart calls an installation's scheduler as its webhook registration.
    """
    namespace = text(pod, "metadata", "namespace")
    labels = labels_of(mapping(pod, "metadata", "labels"))
    return any(one.name == name and one.stamps(namespace, labels) for one in webhooks)


def _slots_resource(facts: Facts) -> CheckResult:
    """Check requests of vreplica.dev/slots, which no node offers. A pod that requests more than 0
    gets a node only from a kube-scheduler that ignores the resource, and no autoscaler adds a node
    for it.
    """
    notes = Notes()
    stamped = [
        pod
        for pod in facts.of("pods").items
        if SLOTS_ANNOTATION in mapping(pod, "metadata", "annotations")
    ]
    requesting = [pod for pod in stamped if slots_request_of(pod) is not None]
    stuck = [
        pod
        for pod in requesting
        if is_pending(pod) and f"Insufficient {SLOTS_RESOURCE}" in refusal_of(pod)
    ]
    notes.errors += [
        f"{key_of(pod)} waits for a node that offers {SLOTS_RESOURCE}" for pod in stuck
    ]
    if requesting and len(requesting) < len(stamped):
        notes.warnings.append(
            f"{len(requesting)} of {counted(len(stamped), 'adapter pod')} request {SLOTS_RESOURCE}"
        )
    fixes = [_STUCK] if stuck else []
    fixes += [_MIXED] if notes.warnings else []
    return notes.result(
        f"{'all' if requesting else 'none'} of {counted(len(stamped), 'adapter pod')} request "
        f"{SLOTS_RESOURCE}",
        nothing="" if stamped else "no adapter pods",
        bad="adapter pods request an extended resource that others do without",
        fix=" ".join(fixes),
    )


def _overcommitted(facts: Facts) -> CheckResult:
    notes, has = Notes(), _capacities_of_pools(facts)
    for pod in facts.of("pods").pods():
        if pod.ledger_error:
            notes.errors.append(f"{pod.key}: its ledger cannot be read: {pod.ledger_error[:200]}")
        elif pod.node:
            used = {SLOTS: ledger_slots(pod.ledger), **ledger_amounts(pod.ledger)}
            notes.errors += [
                f"{pod.key} carries {used[name]} {name}, {gives}"
                for name, (most, gives) in _capacities_of(pod, has.get(pod.pool, {})).items()
                if used.get(name, 0) > most
            ]
    return notes.result(
        "no ledger takes more than its pod has",
        nothing=facts.none_of("pods"),
        bad=f"{counted(len(notes.errors), 'pod')} overcommitted, or with a ledger that cannot be "
        f"read",
        fix="slotsPerPod or capacities were lowered, or a ledger or a pod's slots were written by "
        "hand: the leader moves what is too much, if there is room.",
    )


def _capacities_of(pod: AdapterPod, pool: Mapping[str, int]) -> dict[str, tuple[int, str]]:
    """``SLOTS`` or dimension -> what the pod has of it, and who says so. ``pool``: what its pool
    gives a pod. It may have fewer slots of its own, from before slotsPerPod was raised.
    """
    found = {name: (most, f"its pool gives it {most}") for name, most in pool.items()}
    if (own := pod.own_slots) is not None and own < pool.get(SLOTS, 0):
        found[SLOTS] = own, f"it was made with {own}"
    return found


def _capacities_of_pools(facts: Facts) -> dict[str, dict[str, int]]:
    """Pool -> ``SLOTS`` or dimension -> what a pod has of it."""
    found = {}
    for pool in facts.of("adapterpools").items:
        capacities = mapping(pool, "spec", "capacities")
        has = {SLOTS: mapping(pool, "spec").get("slotsPerPod"), **capacities}
        found[key_of(pool)] = {name: most for name, most in has.items() if type(most) is int}
    return found


def _draining(facts: Facts) -> CheckResult:
    notes = Notes()
    for pod in facts.of("pods").pods():
        notes.warnings += [f"{pod.key}: annotation {why}" for why in pod.invalid_annotations]
    return notes.result(
        "no annotation that should drain a pod is misspelt",
        nothing=facts.none_of("pods"),
        fix='Such a pod is not drained: write "true" or "false".',
    )


PODS: Final = (
    Check("kube-scheduler", "Does a scheduler look after adapter pods?", ("pods",), _scheduler),
    Check(
        "drain-marks",
        "Are pods that should be drained marked so that it is read?",
        ("pods",),
        _draining,
    ),
    Check(
        "stranded-pods",
        "Have adapter pods come by the webhook and our scheduler?",
        ("pods",),
        _stranded,
    ),
    Check(
        "slots-resource",
        "Do adapter pods agree about vreplica.dev/slots?",
        ("pods",),
        _slots_resource,
    ),
    Check(
        "overcommit",
        "Does any pod carry more than it has (I1)?",
        ("pods", "adapterpools"),
        _overcommitted,
    ),
)
