"""Decodes API objects from JSON into the frozen values of ``model``.

A missing field gets its default, since the API server has validated the object. If a wrong value
would cause a wrong decision, InvalidObject names the object, the field and the problem, and the
caller keeps what it had.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final, TypeVar

from extender.model import names
from extender.model.amounts import amounts_from
from extender.model.assignment import is_expired
from extender.model.decode_tenancy import preemption_from, tenancy_from
from extender.model.errors import InvalidObject, LedgerUnreadable
from extender.model.foreign_kinds import sources_from
from extender.model.indexes import INDEXED_SLOTS_MAX
from extender.model.ledger import EMPTY_LEDGER, decode_ledger
from extender.model.max_unavailable import USUAL, MaxUnavailable, PodLimit
from extender.model.node_fit import (
    REPELLING,
    TAINTS_OF_CONDITION,
    NodeFit,
    NodeRequirement,
    Taint,
    Toleration,
)
from extender.model.objects import (
    LEASE_MIN_S,
    MIN_POD_AGE_S,
    ORDINAL_MAX,
    RESCHEDULE_AFTER_S,
    AdapterPod,
    AdapterPool,
    Condition,
    Handoff,
    HandoffMode,
    Identity,
    LoadTarget,
    Namespace,
    Node,
    PriorityClass,
    Rollout,
    RolloutStrategy,
    Scaling,
    ScalingMode,
    StatefulSet,
    VPod,
    object_key,
    ordinal_of,
)
from extender.model.quantity import quantity
from extender.model.quarantine import (
    CRASHED_PODS,
    QUARANTINED,
    VPODS_MAX,
    WITHIN_S,
    Quarantine,
    is_released,
)
from extender.model.reading import (
    COUNT_MAX,
    EMPTY,
    Json,
    count,
    key_of,
    labels_of,
    mapping,
    mappings,
    placements_from,
    selector_from,
    text,
    texts,
    value_at,
)
from extender.model.safe_repr import safe_repr

SLICE_OBJECTS: Final = 100
"""Objects decoded without a pause, some 5 ms. Probes must be answered in between."""

T = TypeVar("T", AdapterPod, Node)
_Choice = TypeVar("_Choice", bound=StrEnum)

REFUSAL_CHARS_MAX: Final = 300
"""Length of what kube-scheduler says about a pod: one reason for each kind of node."""
_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
"""The texts that Go's strconv.ParseBool takes for true. Knative reads its annotation with it."""


def is_true(value: str) -> bool:
    """Whether Go's strconv.ParseBool takes the text for true."""
    return value in _TRUE


_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})


def _invalid_annotations(annotations: Json) -> tuple[str, ...]:
    """A clause for each annotation that should drain the pod and is no bool. Its writer believes
    that it drains.
    """
    keys = (names.UNSCHEDULABLE_ANNOTATION, names.KNATIVE_UNSCHEDULABLE_ANNOTATION)
    return tuple(
        f"{key} is {safe_repr(annotations[key], 80)}, which is no bool"
        for key in keys
        if key in annotations and not {text(annotations, key)} <= _TRUE | _FALSE
    )


def _subject(obj: Json, kind: str) -> str:
    return f"{kind} {key_of(obj)}"


def _count(obj: Json, kind: str, path: tuple[str, ...], default: int, minimum: int = 0) -> int:
    value = value_at(obj, path)
    if type(value) is int and minimum <= value <= COUNT_MAX:
        return value
    if value is None:
        return default
    return count(value, _subject(obj, kind), ".".join(path), default=default, minimum=minimum)


def _one_of(
    choices: type[_Choice], obj: Json, kind: str, path: tuple[str, ...], default: _Choice
) -> _Choice:
    value = text(obj, *path) or default
    if value not in set(choices):
        raise InvalidObject(
            _subject(obj, kind),
            ".".join(path),
            f"must be one of {', '.join(choices)}, not {safe_repr(value, 80)}",
        )
    return choices(value)


def _required_count(obj: Json, kind: str, path: tuple[str, ...], minimum: int = 0) -> int:
    if value_at(obj, path) is None:
        raise InvalidObject(_subject(obj, kind), ".".join(path), "is required")
    return _count(obj, kind, path, 0, minimum)


def _optional_count(obj: Json, kind: str, path: tuple[str, ...]) -> int | None:
    return None if value_at(obj, path) is None else _count(obj, kind, path, 0)


def _required(obj: Json, kind: str, *path: str) -> str:
    value = text(obj, *path)
    if not value:
        raise InvalidObject(_subject(obj, kind), ".".join(path), "is required")
    return value


def conditions_of(obj: Json) -> tuple[Condition, ...]:
    """status.conditions."""
    return tuple(
        Condition(
            type=text(item, "type"),
            status=text(item, "status"),
            reason=text(item, "reason"),
            message=text(item, "message"),
            last_transition_time=text(item, "lastTransitionTime"),
        )
        for item in mappings(obj, "status", "conditions")
    )


def slots_request_of(pod: Json) -> int | None:
    """The request for ``vreplica.dev/slots``, summed over the containers; None if none has one."""
    found = [
        amount
        for container in mappings(pod, "spec", "containers")
        if (
            amount := quantity(
                mapping(container, "resources", "requests").get(names.SLOTS_RESOURCE)
            )
        )
        is not None
    ]
    return sum(found) if found else None


def _refusal_in(status: Json) -> str:
    """The message of PodScheduled while it is False, without the part about preemption."""
    for condition in mappings(status, "conditions"):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            said = text(condition, "message").partition(" preemption: ")[0] or text(
                condition, "reason"
            )
            return safe_repr(said, REFUSAL_CHARS_MAX) if said else ""
    return ""


def is_adapter(pod: Json) -> bool:
    """Whether a v1 Pod is an adapter pod: it has the pool label, with any value, or an annotation
    of ours.

    A stamped pod that has lost its label still carries vreplicas, and they must count.
    """
    annotations = mapping(pod, "metadata", "annotations")
    return (
        names.POOL_LABEL in mapping(pod, "metadata", "labels")
        or names.PLACEMENTS_ANNOTATION in annotations
        or names.SLOTS_ANNOTATION in annotations
    )


def pod_from(obj: Json) -> AdapterPod:
    """Decode an adapter pod. A ledger that cannot be read is kept as text and error, and not
    raised: the pod exists.
    """
    metadata, spec, status = mapping(obj, "metadata"), mapping(obj, "spec"), mapping(obj, "status")
    annotations = mapping(metadata, "annotations")
    name, namespace = text(metadata, "name"), text(metadata, "namespace")
    ledger_text = _optional_text(annotations, names.PLACEMENTS_ANNOTATION)
    ledger, ledger_error = EMPTY_LEDGER, ""
    try:
        ledger = decode_ledger(ledger_text)
    except LedgerUnreadable as error:
        ledger_error = str(error)
    ready = next((c for c in mappings(status, "conditions") if c.get("type") == "Ready"), EMPTY)
    acknowledged_text = _optional_text(annotations, names.ACKNOWLEDGED_ANNOTATION)
    is_ready = ready.get("status") == "True"
    lease_expired = is_ready and is_expired(acknowledged_text)
    priority, node = spec.get("priority"), text(spec, "nodeName")
    owner = next(
        (
            ref
            for ref in mappings(metadata, "ownerReferences")
            if ref.get("controller") is True and ref.get("kind") == "StatefulSet"
        ),
        EMPTY,
    )
    return AdapterPod(
        namespace=namespace,
        name=name,
        uid=text(metadata, "uid"),
        resource_version=text(metadata, "resourceVersion"),
        pool=object_key(namespace, text(metadata, "labels", names.POOL_LABEL)),
        owner=text(owner, "name"),
        owner_uid=text(owner, "uid"),
        ordinal=ordinal_of(name),
        node=node,
        scheduler_name=text(spec, "schedulerName"),
        slots=quantity(annotations.get(names.SLOTS_ANNOTATION)),
        slots_request=slots_request_of(obj),
        ledger=ledger,
        ledger_text=ledger_text,
        ledger_error=ledger_error,
        assignment_text=_optional_text(annotations, names.ASSIGNMENT_ANNOTATION),
        acknowledged_text=acknowledged_text,
        evicting_text=_optional_text(annotations, names.EVICTING_ANNOTATION),
        has_annotations=bool(annotations),
        unschedulable=is_true(text(annotations, names.UNSCHEDULABLE_ANNOTATION))
        or is_true(text(annotations, names.KNATIVE_UNSCHEDULABLE_ANNOTATION)),
        invalid_annotations=_invalid_annotations(annotations),
        deleting=bool(metadata.get("deletionTimestamp")),
        finished=text(status, "phase") in {"Succeeded", "Failed"},
        stopped=_has_stopped(status),
        ready=is_ready and not lease_expired,
        ready_since=text(ready, "lastTransitionTime"),
        lease_expired=lease_expired,
        priority=priority if isinstance(priority, int) else 0,
        fit=node_fit_from(spec),
        created_at=text(metadata, "creationTimestamp"),
        revision=text(metadata, "labels", names.REVISION_LABEL),
        claims_volumes=any(
            "persistentVolumeClaim" in volume or "ephemeral" in volume
            for volume in mappings(spec, "volumes")
        ),
        refusal="" if node else _refusal_in(status),
        crashes=_crashes(status),
    )


def _crashes(status: Json) -> int:
    """The sum of restartCount over the containers that failed when they ended last. A container
    that ended because its machine did has the reason Unknown or ContainerStatusUnknown.
    """
    found = 0
    for container in mappings(status, "containerStatuses"):
        ended = mapping(container, "lastState", "terminated")
        count = container.get("restartCount")
        failed = ended.get("exitCode") not in {None, 0} and "Unknown" not in text(ended, "reason")
        if failed and isinstance(count, int):
            found += count
    return found


def _has_stopped(status: Json) -> bool:
    """Whether the kubelet has said that all containers have stopped. The phase does not say so: the
    pod garbage collector sets it for pods of nodes that are gone.
    """
    told = mappings(status, "containerStatuses")
    return bool(told) and all(value_at(one, ("state", "terminated")) is not None for one in told)


def _optional_text(annotations: Json, name: str) -> str | None:
    return text(annotations, name) if name in annotations else None


def node_from(obj: Json) -> Node:
    """Decode a node. It is Ready if its Ready condition is True or missing, and no taint says
    otherwise.

    A taint with the effect PreferNoSchedule is only advice: kube-scheduler, Knative and we still
    use the node.
    """
    metadata = mapping(obj, "metadata")
    taints = {
        text(taint, "key")
        for taint in mappings(obj, "spec", "taints")
        if text(taint, "effect") != "PreferNoSchedule"
    }
    condition = next(
        (c for c in mappings(obj, "status", "conditions") if c.get("type") == "Ready"), None
    )
    return Node(
        name=text(metadata, "name"),
        uid=text(metadata, "uid"),
        resource_version=text(metadata, "resourceVersion"),
        zone=text(metadata, "labels", names.ZONE_LABEL) or names.UNKNOWN_ZONE,
        cordoned=mapping(obj, "spec").get("unschedulable") is True
        or names.OUT_OF_SERVICE_TAINT in taints,
        ready=(condition is None or condition.get("status") == "True")
        and not taints & {names.UNREACHABLE_TAINT, names.NOT_READY_TAINT},
        slots=quantity(mapping(obj, "status", "allocatable").get(names.SLOTS_RESOURCE)),
        labels=labels_of(mapping(metadata, "labels")),
        taints=tuple(
            Taint(text(taint, "key"), text(taint, "value"), text(taint, "effect"))
            for taint in mappings(obj, "spec", "taints")
            if text(taint, "effect") in REPELLING and text(taint, "key") not in TAINTS_OF_CONDITION
        ),
        allocatable=tuple(sorted(labels_of(mapping(obj, "status", "allocatable")).items())),
    )


def as_sent(obj: Json, known: T | None, read: Callable[[Json], T]) -> T:
    """An object that kube-scheduler sent: ``known`` if the versions are equal, else decoded by
    ``read``.
    """
    metadata = mapping(obj, "metadata")
    if (
        known is not None
        and known.resource_version
        and metadata.get("resourceVersion") == known.resource_version
        and metadata.get("uid") == known.uid
    ):
        return known
    return read(obj)


def node_fit_from(pod_spec: Json) -> NodeFit:
    """Decode what the spec of a pod or template requires of nodes. A part that cannot be read fits
    no node.
    """
    affinity = mapping(pod_spec, "affinity", "nodeAffinity")
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return NodeFit(
        tolerations=tuple(
            Toleration(
                text(one, "key"), text(one, "operator"), text(one, "value"), text(one, "effect")
            )
            for one in mappings(pod_spec, "tolerations")
        ),
        selector=tuple(sorted(labels_of(mapping(pod_spec, "nodeSelector")).items())),
        terms=tuple(
            (
                *_requirements(term, "matchExpressions"),
                *_requirements(term, "matchFields", is_field=True),
            )
            for term in mappings(required, "nodeSelectorTerms")
        )
        if isinstance(required, Mapping)
        else None,
    )


def _requirements(term: Json, kind: str, *, is_field: bool = False) -> Iterator[NodeRequirement]:
    for one in mappings(term, kind):
        yield NodeRequirement(
            text(one, "key"), text(one, "operator"), texts(one, "values"), is_field
        )


def stateful_set_from(obj: Json) -> StatefulSet:
    """Decode a StatefulSet. Absent spec.replicas are 1, the API server's default.

    Raises InvalidObject if an ordinal is beyond ``ORDINAL_MAX``.
    """
    metadata = mapping(obj, "metadata")
    replicas = _count(obj, "StatefulSet", ("spec", "replicas"), 1)
    start = _count(obj, "StatefulSet", ("spec", "ordinals", "start"), 0)
    pod_spec = value_at(obj, ("spec", "template", "spec"))
    if start + replicas > ORDINAL_MAX + 1:
        raise InvalidObject(
            _subject(obj, "StatefulSet"),
            "spec.ordinals.start + spec.replicas",
            f"must not exceed {ORDINAL_MAX + 1}",
        )
    return StatefulSet(
        namespace=text(metadata, "namespace"),
        name=text(metadata, "name"),
        uid=text(metadata, "uid"),
        resource_version=text(metadata, "resourceVersion"),
        replicas=replicas,
        ordinals_start=start,
        fit=node_fit_from(pod_spec) if isinstance(pod_spec, Mapping) else None,
        template_pool=text(obj, "spec", "template", "metadata", "labels", names.POOL_LABEL),
        update_revision=text(obj, "status", "updateRevision"),
        updates_from=_updates_from(obj, start),
        is_observed=value_at(obj, ("status", "observedGeneration"))
        == value_at(obj, ("metadata", "generation")),
        deleting=bool(metadata.get("deletionTimestamp")),
    )


def _updates_from(obj: Json, start: int) -> int | None:
    """``StatefulSet.updates_from``. The partition counts pods, not ordinals, as in kube-controller-
    manager's updateStatefulSet.
    """
    strategy = mapping(obj, "spec", "updateStrategy")
    if text(strategy, "type") == "OnDelete":
        return None
    partition = value_at(strategy, ("rollingUpdate", "partition"))
    return start + partition if type(partition) is int and partition > 0 else 0


def namespace_from(obj: Json) -> Namespace:
    """Decode a Namespace."""
    metadata = mapping(obj, "metadata")
    return Namespace(
        name=text(metadata, "name"),
        uid=text(metadata, "uid"),
        resource_version=text(metadata, "resourceVersion"),
        labels=labels_of(mapping(metadata, "labels")),
        deleting=bool(metadata.get("deletionTimestamp")),
    )


LOAD_TARGET: Final = 1.2
LOAD_TARGET_MIN: Final = 1.05
LOAD_TARGET_MAX: Final = 100.0
_METRIC: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,62}")


def _load_target(obj: Json) -> LoadTarget | None:
    """spec.rebalance.load, None if it is absent."""
    field = "spec.rebalance.load"
    if value_at(obj, ("spec", "rebalance", "load")) is None:
        return None
    load = mapping(obj, "spec", "rebalance", "load")
    metric = text(load, "metric")
    if not metric:
        raise InvalidObject(_subject(obj, "AdapterPool"), f"{field}.metric", "is required")
    if not _METRIC.fullmatch(metric):
        raise InvalidObject(
            _subject(obj, "AdapterPool"),
            f"{field}.metric",
            f"must be at most 63 letters, digits, _ and :, and begin with no digit, "
            f"not {safe_repr(metric, 80)}",
        )
    target = load.get("target", LOAD_TARGET)
    if (
        isinstance(target, bool)
        or not isinstance(target, int | float)
        or not LOAD_TARGET_MIN <= target <= LOAD_TARGET_MAX
    ):
        raise InvalidObject(
            _subject(obj, "AdapterPool"),
            f"{field}.target",
            f"must be a number from {LOAD_TARGET_MIN:g} to {LOAD_TARGET_MAX:g}, "
            f"not {safe_repr(target, 80)}",
        )
    return LoadTarget(metric=metric, target=float(target))


def _load_source(obj: Json) -> str:
    """spec.loadSource, "" if it is absent."""
    source = text(obj, "spec", "loadSource")
    if source and value_at(obj, ("spec", "rebalance", "load")) is None:
        raise InvalidObject(
            _subject(obj, "AdapterPool"),
            "spec.loadSource",
            "needs spec.rebalance.load, which says what is balanced",
        )
    return source


def _handoff(obj: Json) -> Handoff | None:
    """spec.handoff, None if it is absent."""
    kind, where, default = "AdapterPool", ("spec", "handoff"), Handoff()
    if not isinstance(value_at(obj, where), dict):
        return None
    identity = _one_of(Identity, obj, kind, (*where, "identity"), default.identity)
    slots = value_at(obj, ("spec", "slotsPerPod"))
    if identity is Identity.INDEXED and isinstance(slots, int) and slots > INDEXED_SLOTS_MAX:
        raise InvalidObject(
            _subject(obj, kind),
            "spec.handoff.identity",
            f"Indexed allows spec.slotsPerPod of at most {INDEXED_SLOTS_MAX}, not {slots}",
        )
    return Handoff(
        mode=_one_of(HandoffMode, obj, kind, (*where, "mode"), HandoffMode.NONE),
        identity=identity,
        prepare_timeout_s=_count(
            obj, kind, (*where, "prepareTimeoutSeconds"), default.prepare_timeout_s, 1
        ),
        drain_timeout_s=_count(
            obj, kind, (*where, "drainTimeoutSeconds"), default.drain_timeout_s, 1
        ),
        lease_s=_count(obj, kind, (*where, "leaseSeconds"), default.lease_s, LEASE_MIN_S),
        max_unavailable=_max_unavailable(obj),
    )


_PERCENTAGE: Final = re.compile(r"(100|[1-9][0-9]?)%")


def _max_unavailable(obj: Json) -> MaxUnavailable:
    """spec.handoff.maxUnavailable, the default for what is absent."""
    default = USUAL
    return MaxUnavailable(
        pool=_pod_limit(obj, "pool", default.pool),
        per_vpod=_pod_limit(obj, "perVPod", default.per_vpod),
    )


def _pod_limit(obj: Json, name: str, default: PodLimit) -> PodLimit:
    kind, where = "AdapterPool", ("spec", "handoff", "maxUnavailable", name)
    value = value_at(obj, where)
    if value is None:
        return default
    if not isinstance(value, str):
        return PodLimit(_count(obj, kind, where, 1, 1))
    if not _PERCENTAGE.fullmatch(value):
        raise InvalidObject(
            _subject(obj, kind),
            ".".join(where),
            f"must be an integer, or a percentage from 1% to 100%, not {safe_repr(value, 80)}",
        )
    return PodLimit(int(value[:-1]), is_percentage=True)


def _rollout(obj: Json) -> Rollout:
    """spec.rollout, the default if it is absent."""
    kind, where, default = "AdapterPool", ("spec", "rollout"), Rollout()
    return Rollout(
        strategy=_one_of(RolloutStrategy, obj, kind, (*where, "strategy"), default.strategy),
        surge=_count(obj, kind, (*where, "surge"), default.surge),
    )


def _scaling(obj: Json) -> Scaling:
    """spec.scaling, the default if it is absent."""
    kind, where = "AdapterPool", ("spec", "scaling")
    return Scaling(
        mode=_one_of(ScalingMode, obj, kind, (*where, "mode"), ScalingMode.MANAGED),
        announced_replicas=_optional_count(obj, kind, (*where, "announcedReplicas")),
    )


def pool_from(obj: Json) -> AdapterPool:
    """Decode an AdapterPool. Raises InvalidObject."""
    metadata = mapping(obj, "metadata")
    kind = "AdapterPool"
    rebalance = mapping(obj, "spec", "rebalance")
    sources, source_problems = sources_from(value_at(obj, ("spec", "sources")))
    return AdapterPool(
        namespace=text(metadata, "namespace"),
        name=_required(obj, kind, "metadata", "name"),
        uid=text(metadata, "uid"),
        resource_version=text(metadata, "resourceVersion"),
        generation=_count(obj, kind, ("metadata", "generation"), 0),
        created_at=text(metadata, "creationTimestamp"),
        stateful_set=_required(obj, kind, "spec", "statefulSet"),
        slots_per_pod=_required_count(obj, kind, ("spec", "slotsPerPod"), 1),
        min_pods=_count(obj, kind, ("spec", "minPods"), 0),
        min_pods_per_vpod=_count(obj, kind, ("spec", "minPodsPerVPod"), 0),
        max_pods=_optional_count(obj, kind, ("spec", "maxPods")),
        scale_down_period_s=_count(obj, kind, ("spec", "scaleDownPeriodSeconds"), 100, 1),
        reschedule_after_s=_optional_count(obj, kind, ("spec", "rescheduleAfterSeconds"))
        if "rescheduleAfterSeconds" in mapping(obj, "spec")
        else RESCHEDULE_AFTER_S,
        moves_per_period=_count(obj, kind, ("spec", "rebalance", "movesPerPeriod"), 10),
        move_cooldown_s=_count(obj, kind, ("spec", "rebalance", "cooldownSeconds"), 300),
        move_dry_run=rebalance.get("dryRun") is True,
        make_room_before_growing=rebalance.get("makeRoomBeforeGrowing") is True,
        load=_load_target(obj),
        load_source=_load_source(obj),
        descheduling=texts(mapping(obj, "spec", "descheduling"), "reasons"),
        min_pod_age_s=_count(
            obj, kind, ("spec", "descheduling", "minPodAgeSeconds"), MIN_POD_AGE_S
        ),
        namespace_selector=selector_from(mapping(obj, "spec", "namespaceSelector")),
        profile=text(obj, "spec", "profile") or "default",
        sources=sources,
        source_problems=source_problems,
        deleting=bool(metadata.get("deletionTimestamp")),
        capacities=amounts_from(
            value_at(obj, ("spec", "capacities")), _subject(obj, kind), "spec.capacities"
        ),
        handoff=_handoff(obj),
        rollout=_rollout(obj),
        scaling=_scaling(obj),
        tenancy=tenancy_from(obj),
        preemption=preemption_from(obj),
        quarantine=_quarantine(obj),
    )


def _quarantine(obj: Json) -> Quarantine | None:
    """Read spec.quarantine; None if it is absent. Raises InvalidObject."""
    where, kind = ("spec", "quarantine"), "AdapterPool"
    if not isinstance(value_at(obj, where), dict):
        return None
    return Quarantine(
        crashed_pods=_count(obj, kind, (*where, "crashedPods"), CRASHED_PODS, 2),
        within_s=_count(obj, kind, (*where, "withinSeconds"), WITHIN_S, 1),
        vpods_max=_count(obj, kind, (*where, "maxVPods"), VPODS_MAX, 1),
    )


def priority_class_from(obj: Json) -> PriorityClass:
    """Decode a PriorityClass. Raises InvalidObject."""
    name, value = _required(obj, "PriorityClass", "metadata", "name"), obj.get("value")
    if type(value) is not int:
        raise InvalidObject(_subject(obj, "PriorityClass"), "value", "must be an integer")
    preempts = text(obj, "preemptionPolicy") != names.PREEMPT_NEVER
    return PriorityClass(name=name, value=value, preempts=preempts)


def _priority(vpod: Json) -> int:
    """spec.priority; 0 if it is absent, or if its class has not been looked up."""
    value = value_at(vpod, ("spec", "priority"))
    if value is None:
        return 0
    if type(value) is not int:
        raise InvalidObject(_subject(vpod, "VPod"), "spec.priority", "must be an integer")
    return value


def pool_namespace_of(vpod: Json) -> str:
    """The namespace of the pool that a VPod names: the VPod's own if it names none."""
    return text(vpod, "spec", "poolRef", "namespace") or text(vpod, "metadata", "namespace")


def _is_quarantined(metadata: Json, conditions: Iterable[Condition]) -> bool:
    """Whether the condition Quarantined is True, and nobody has released the VPod since."""
    released_at = text(mapping(metadata, "annotations"), names.RELEASED_ANNOTATION)
    return any(
        one.type == QUARANTINED
        and one.status == "True"
        and not is_released(one.last_transition_time, released_at)
        for one in conditions
    )


def vpod_from(obj: Json) -> VPod:
    """Decode a VPod with its published placements. Several entries of one pod are summed. Raises
    InvalidObject.
    """
    metadata = mapping(obj, "metadata")
    kind, conditions = "VPod", conditions_of(obj)
    return VPod(
        namespace=text(metadata, "namespace"),
        name=_required(obj, kind, "metadata", "name"),
        uid=text(metadata, "uid"),
        resource_version=text(metadata, "resourceVersion"),
        generation=_count(obj, kind, ("metadata", "generation"), 0),
        pool=object_key(pool_namespace_of(obj), _required(obj, kind, "spec", "poolRef", "name")),
        vreplicas=_required_count(obj, kind, ("spec", "vreplicas")),
        weight=_count(obj, kind, ("spec", "slotsPerVReplica"), 1, 1),
        placements=placements_from(
            value_at(obj, ("status", "placements")), _subject(obj, kind), "status.placements"
        ),
        observed_generation=_count(obj, kind, ("status", "observedGeneration"), 0),
        scheduled_vreplicas=_count(obj, kind, ("status", "scheduledVReplicas"), 0),
        ready_vreplicas=_optional_count(obj, kind, ("status", "readyVReplicas")),
        conditions=conditions,
        quarantined=_is_quarantined(metadata, conditions),
        deleting=bool(metadata.get("deletionTimestamp")),
        per_vreplica=amounts_from(
            value_at(obj, ("spec", "perVReplica")), _subject(obj, kind), "spec.perVReplica"
        ),
        created_at=text(metadata, "creationTimestamp"),
        priority=_priority(obj),
        preempts=text(obj, "spec", "preemptionPolicy") != names.PREEMPT_NEVER,
        min_available=_count(obj, kind, ("spec", "minAvailable"), 0),
        max_per_pod=_count(obj, kind, ("spec", "placement", "maxPerPod"), 0),
    )
