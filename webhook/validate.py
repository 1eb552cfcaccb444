"""What ``/validate`` refuses: a pure function of one request, the caches and the configured rules.

It checks only what schema and CEL rules cannot see: who writes (pods), and other objects
(AdapterPools, VPods, and VReplicaQuotas in ``webhook.validate_quotas``).

Pods: a user who could write the ledger and slots annotations could make the scheduler believe
anything about a pod, so only the service's own account may. An update that leaves them alone, such
as a kubelet's status, passes. A created pod that carries what ``/mutate`` stamps passes too: at
creation both webhooks run in the same request, under the name of the user who creates the pod. An
unbound pod's ledger claims nothing, so only its form and size are checked. If a pod is created on a
node, its ledger would count, so it must be empty. The ValidatingAdmissionPolicy of the manifests
refuses the same, and works while no webhook does. Rules that need other objects are only here.

Anybody who reaches the port can make up a review and read the answer. So no answer names a vpod of
others, and only namespaces that a pool selects learn its size. The owner of a pool is still told
how many VPods a change concerns.

Scale: the service's account may scale only the StatefulSets that pools name (``_scale``).

AdapterPools are not deleted while VPods use them (``_deleted_pool``).

AdapterPools and VPods: a rule applies when the object is created, or when the field that it is
about changes. An object that breaks it for another reason, such as a pool that shrank later, can
still be edited, labelled and finalized. Caches lag a little. So an object that they do not know
causes a warning, never a refusal, and the placer checks again.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from extender.engine.policy.profiles import BUILT_IN_PROFILES
from extender.model import names
from extender.model.counted import counted
from extender.model.decode import is_true, pool_from, vpod_from
from extender.model.decode_tenancy import quota_from
from extender.model.errors import InvalidObject, LedgerUnreadable
from extender.model.ledger import decode_ledger, ledger_amounts, ledger_slots
from extender.model.objects import AdapterPool, VPod, object_key
from extender.model.quantity import quantity
from extender.model.reading import Json, key_of, mapping, sequence, text
from extender.model.safe_repr import safe_repr
from webhook.caches import WebhookCaches
from webhook.mutate import pool_name_of
from webhook.review import ALLOWED, AdmissionRequest, Verdict, denied
from webhook.validate_quotas import pool_warning, quota_problems, vpod_problem

DEFAULT_PROFILES: Final = frozenset(BUILT_IN_PROFILES)
DEFAULT_WRITERS: Final = frozenset({"system:serviceaccount:vreplica-system:vreplica-scheduler"})
GUARDED_ANNOTATIONS: Final = (
    names.PLACEMENTS_ANNOTATION,
    names.SLOTS_ANNOTATION,
    names.ASSIGNMENT_ANNOTATION,
    names.ACKNOWLEDGED_ANNOTATION,
)
_WEBHOOK_WRITES_IT: Final = "remove it from the pod (template): the webhook writes it"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rules:
    """The configured rules."""

    writers: frozenset[str] = DEFAULT_WRITERS
    """Usernames that may write the guarded annotations."""
    profiles: frozenset[str] = DEFAULT_PROFILES


DEFAULT_RULES: Final = Rules()


def validate(request: AdmissionRequest, view: WebhookCaches, rules: Rules) -> Verdict:
    """Return the verdict on one request. Never raises. Requests about anything else, and other
    deletions, are allowed. Nothing awaits, so the caches are seen at one moment.
    """
    if request.operation == "DELETE" and (request.group, request.resource) == (
        names.GROUP,
        "adapterpools",
    ):
        return _deleted_pool(request, view)
    if request.object is None or request.operation not in {"CREATE", "UPDATE"}:
        return ALLOWED
    match (request.group, request.resource, request.subresource):
        case ("", "pods", "" | "status"):
            return _pod(request, request.object, view, rules)
        case ("apps", "statefulsets", "scale"):
            return _scale(request, view, rules)
        case (names.GROUP, "adapterpools" | "vpods" | "vreplicaquotas", ""):
            return _custom_resource(request, request.object, view, rules)
        case _:
            return ALLOWED


# -- pods ------------------------------------------------------------------------------------------


def _pod(request: AdmissionRequest, pod: Json, view: WebhookCaches, rules: Rules) -> Verdict:
    if request.username in rules.writers:
        return ALLOWED
    if request.operation == "CREATE" or request.old_object is None:
        problem = _created_pod_problem(request, pod, view)
    else:
        problem = _updated_pod_problem(request.old_object, pod)
    if not problem:
        return ALLOWED
    user = f"user {request.username or 'unknown'!r:.200}"
    return denied(f"Pod {key_of(_named(request, pod))}: {problem} ({user})")


def _updated_pod_problem(old: Json, new: Json) -> str:
    before, after = mapping(old, "metadata", "annotations"), mapping(new, "metadata", "annotations")
    changed = [key for key in GUARDED_ANNOTATIONS if before.get(key) != after.get(key)]
    if changed:
        return (
            f"only the scheduler service may change annotation {' and '.join(changed)}; to give a "
            f"tenant more or "
            f"fewer vreplicas change its VPod, to drain the pod set annotation "
            f"{names.UNSCHEDULABLE_ANNOTATION}"
        )
    # A pod that joins a pool brings its ledger along. This would write a ledger without a change
    # of the annotation.
    if pool_name_of(old) != pool_name_of(new) and any(key in after for key in GUARDED_ANNOTATIONS):
        return (
            f"label {names.POOL_LABEL} cannot be changed on a pod that carries "
            f"{' or '.join(GUARDED_ANNOTATIONS)}; "
            "delete the pod, its StatefulSet creates it anew with the label of its template"
        )
    return ""


def _created_pod_problem(request: AdmissionRequest, pod: Json, view: WebhookCaches) -> str:
    label = pool_name_of(pod)
    if label is None:
        return ""
    pool_key = object_key(request.namespace or text(pod, "metadata", "namespace"), label)
    pool = view.pool(pool_key)
    annotations = mapping(pod, "metadata", "annotations")
    return _created_slots_problem(annotations, pool) or _created_ledger_problem(
        annotations, pod, pool, view
    )


def _created_slots_problem(annotations: Json, pool: AdapterPool | None) -> str:
    value = annotations.get(names.SLOTS_ANNOTATION)
    slots = quantity(value)
    if value is None or (slots is not None and (pool is None or pool.slots_per_pod == slots)):
        return ""
    wanted = (
        "a count"
        if pool is None
        else f"{pool.slots_per_pod}, spec.slotsPerPod of AdapterPool {pool.key}"
    )
    return (
        f"annotation {names.SLOTS_ANNOTATION} is {safe_repr(value, 80)}, expected {wanted}; "
        f"{_WEBHOOK_WRITES_IT}"
    )


def _created_ledger_problem(
    annotations: Json, pod: Json, pool: AdapterPool | None, view: WebhookCaches
) -> str:
    try:
        ledger = decode_ledger(text(annotations, names.PLACEMENTS_ANNOTATION))
    except LedgerUnreadable as error:
        return f"annotation {names.PLACEMENTS_ANNOTATION} is {error}; {_WEBHOOK_WRITES_IT}"
    if not ledger:
        return ""
    taken = ledger_slots(ledger)
    if text(pod, "spec", "nodeName"):
        return (
            f"annotation {names.PLACEMENTS_ANNOTATION} cannot be given to a pod that is created "
            f"with spec.nodeName; "
            "remove it from the pod (template), the scheduler service writes it"
        )
    if pool is not None and taken > pool.slots_per_pod:
        return (
            f"annotation {names.PLACEMENTS_ANNOTATION} takes {counted(taken, 'slot')}, AdapterPool "
            f"{pool.key} has "
            f"{pool.slots_per_pod} a pod; {_WEBHOOK_WRITES_IT}"
        )
    if pool is None:
        return (
            f"annotation {names.PLACEMENTS_ANNOTATION} has vreplicas, but the pod's AdapterPool "
            f"does not exist; {_WEBHOOK_WRITES_IT}"
            if view.synced
            else ""
        )
    amounts = ledger_amounts(ledger)
    over = [(name, most) for name, most in pool.capacities if amounts.get(name, 0) > most]
    return "".join(
        f"annotation {names.PLACEMENTS_ANNOTATION} takes {amounts[name]} {name}, AdapterPool "
        f"{pool.key} has {most} a pod; {_WEBHOOK_WRITES_IT}"
        for name, most in over[:1]
    )


def _scale(request: AdmissionRequest, view: WebhookCaches, rules: Rules) -> Verdict:
    """The service's role can scale any StatefulSet. Restrict its account to those of pools; other
    users' writes are not checked.
    """
    stateful_set = object_key(request.namespace, request.name)
    if request.username not in rules.writers or not view.synced or view.pools_of(stateful_set):
        return ALLOWED
    return denied(
        f"StatefulSet {stateful_set}: no AdapterPool names it, and the scheduler service scales no "
        f"other"
    )


# -- our own kinds ---------------------------------------------------------------------------------


@dataclass(slots=True)
class _Findings:
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def _custom_resource(
    request: AdmissionRequest, obj: Json, view: WebhookCaches, rules: Rules
) -> Verdict:
    if mapping(obj, "metadata").get("deletionTimestamp"):
        return ALLOWED  # a deleted object must be able to lose its finalizers
    obj = _named(request, obj)
    old = request.old_object
    findings = _Findings()
    try:
        if request.resource == "vpods":
            subject = "VPod"
            _vpod(vpod_from(obj), _decoded(vpod_from, old), view, findings)
        elif request.resource == "vreplicaquotas":
            subject = "VReplicaQuota"
            quota, before = quota_from(obj), _decoded(quota_from, old)
            findings = _Findings(*quota_problems(quota, before, view))
        else:
            subject = "AdapterPool"
            pool = pool_from(obj)
            _pool(pool, _decoded(pool_from, old), view, rules, findings)
            _sources(pool, obj, old, findings)
    except InvalidObject as error:
        return denied(str(error), code=422)
    if findings.problems:
        problems = "; and ".join(findings.problems)
        return denied(
            f"{subject} {key_of(obj)}: {problems}",
            code=422,
            warnings=tuple(findings.warnings),
        )
    return Verdict(warnings=tuple(findings.warnings))


def _pool(
    new: AdapterPool,
    old: AdapterPool | None,
    view: WebhookCaches,
    rules: Rules,
    findings: _Findings,
) -> None:
    if old is None or old.stateful_set != new.stateful_set:
        others = [pool.key for pool in view.pools_of(new.stateful_set_key) if pool.key != new.key]
        if others:
            findings.problems.append(
                f"spec.statefulSet {new.stateful_set!r} is already the one of AdapterPool "
                f"{others[0]}; a StatefulSet "
                "has one pool: delete that pool, or name another StatefulSet"
            )
    if (old is None or old.profile != new.profile) and new.profile not in rules.profiles:
        known = ", ".join(sorted(rules.profiles))
        findings.problems.append(
            f"spec.profile {new.profile!r:.80} is not known; known are {known}"
        )
    if heavy := view.heavier_vpods(new.key, new.slots_per_pod):
        findings.warnings.append(
            f"{counted(heavy, 'VPod')} {'needs' if heavy == 1 else 'need'} more slots for one "
            f"vreplica than spec.slotsPerPod "
            f"{new.slots_per_pod}: {'it' if heavy == 1 else 'they'} cannot be placed; their "
            f"conditions tell which"
        )
    if (old is None or old.capacities != new.capacities) and (misfits := view.misfits(new)):
        findings.warnings.append(
            f"{counted(misfits, 'VPod')} {'takes' if misfits == 1 else 'take'} a dimension that "
            f"spec.capacities lacks, or more of it than a pod has: "
            f"{'it' if misfits == 1 else 'they'} cannot be placed; their conditions tell which"
        )
    if warning := pool_warning(new, view):
        findings.warnings.append(warning)


def _deleted_pool(request: AdmissionRequest, view: WebhookCaches) -> Verdict:
    """Refuse to delete a pool that VPods use, unless an annotation allows it.

    Nothing is refused if the pool's namespace is being deleted too: VPods of other namespaces would
    keep that one for ever.
    """
    old = request.old_object or {}
    if is_true(text(old, "metadata", "annotations", names.ALLOW_DELETION_ANNOTATION)):
        return ALLOWED
    namespace = view.namespace(request.namespace)
    # Of a deletecollection, the request for each object names none.
    name = request.name or text(old, "metadata", "name")
    pool = object_key(request.namespace, name)
    users = view.vpods_of(pool)
    if not users or (namespace is not None and namespace.deleting):
        return ALLOWED
    return denied(
        f"AdapterPool {pool}: {counted(users, 'VPod')} "
        f"{'uses' if users == 1 else 'use'} it, and nobody would look after what is placed; delete "
        f"the VPods or change "
        f'their spec.poolRef first, or set annotation {names.ALLOW_DELETION_ANNOTATION}: "true" on '
        f"the pool to delete "
        "it all the same"
    )


def _sources(new: AdapterPool, obj: Json, old: Json | None, findings: _Findings) -> None:
    if old is not None and sequence(obj, "spec", "sources") == sequence(old, "spec", "sources"):
        return
    findings.problems.extend(new.source_problems)
    own = Counter(source.key for source in new.sources)
    findings.warnings.extend(
        f"spec.sources declares {key} {times} times: an object belongs to the first entry whose "
        f"labelSelector selects it"
        for key, times in own.items()
        if times > 1
    )


def _vpod(new: VPod, old: VPod | None, view: WebhookCaches, findings: _Findings) -> None:
    pool = view.pool(new.pool)
    if pool is None:
        findings.warnings.append(
            f"AdapterPool {new.pool} (spec.poolRef) does not exist: nothing is placed until it does"
            if view.synced
            else f"AdapterPool {new.pool} (spec.poolRef) could not be checked: the webhook has "
            "just started"
        )
        return
    joins = old is None or old.pool != new.pool
    # This is checked first: a namespace that is not selected must not learn the pool's size, from a
    # message or from what is refused.
    if not _selects(pool, new, view):
        if joins:
            _tenant(new, pool, view, findings)
        return
    needs_more = (
        old is None
        or joins
        or (old.weight, old.per_vreplica) != (new.weight, new.per_vreplica)
        or new.least > old.least
    )
    is_limited = new.max_per_pod > 0 and (
        old is None or not old.max_per_pod or new.max_per_pod < old.max_per_pod
    )
    problem = pool.misfit_together(new) if needs_more or is_limited else ""
    if needs_more:
        problem = pool.misfit(new) or problem or vpod_problem(new, pool, view)
    if problem:
        findings.problems.append(problem)
    more = old is None or joins or new.vreplicas > old.vreplicas
    if (more or is_limited) and (warning := pool.limit_warning(new)):
        findings.warnings.append(warning)


def _selects(pool: AdapterPool, vpod: VPod, view: WebhookCaches) -> bool:
    namespace = view.namespace(vpod.namespace)
    return pool.namespace_selector.matches({} if namespace is None else namespace.labels)


def _tenant(new: VPod, pool: AdapterPool, view: WebhookCaches, findings: _Findings) -> None:
    """Report a pool that does not select the vpod's namespace."""
    if view.namespace(new.namespace) is None:
        findings.warnings.append(
            f"whether AdapterPool {pool.key} may be used from namespace {new.namespace} could not "
            f"be checked: "
            "the webhook does not know that namespace yet"
        )
        return
    findings.problems.append(
        f"AdapterPool {pool.key} does not select namespace {new.namespace} "
        f"(spec.namespaceSelector); label the "
        "namespace as the selector asks, or reference another pool in spec.poolRef"
    )


def _decoded(decode: Callable[[Json], T], old: Json | None) -> T | None:
    """Return the old object; None if it cannot be read. An edit that repairs it is then checked as
    a new object.
    """
    try:
        return None if old is None else decode(old)
    except InvalidObject:
        return None


def _named(request: AdmissionRequest, obj: Json) -> Json:
    """Return the object with its namespace and a name, even if only the request has them. For a
    generated name, its prefix stands in.
    """
    metadata = mapping(obj, "metadata")
    name = text(metadata, "name") or request.name or text(metadata, "generateName")
    namespace = text(metadata, "namespace") or request.namespace
    return {**obj, "metadata": {**metadata, "name": name, "namespace": namespace}}
