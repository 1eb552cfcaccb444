"""API objects as JSON -> the frozen values of ``model``.

Lenient where the API server has already validated (a missing field is its default), strict where a wrong value would
make us decide wrongly: then InvalidObject names the object, the field and the problem, and the caller keeps what it had.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from extender.core import names
from extender.core.errors import InvalidObject, LedgerUnreadable
from extender.core.ledger import EMPTY_LEDGER, decode_ledger
from extender.core.model import (
    ORDINAL_MAX,
    AdapterPod,
    AdapterPool,
    Condition,
    LabelSelector,
    Namespace,
    Node,
    SelectorRequirement,
    StatefulSet,
    VPod,
    object_key,
    ordinal_of,
    placement_order,
)

Json = Mapping[str, object]
_EMPTY: Final[Json] = MappingProxyType({})
_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
"""What Go's strconv.ParseBool takes for true; Knative reads its annotation with it."""
_COUNT_MAX: Final = 2**31 - 1
_DECIMAL_SUFFIXES: Final[Mapping[str, int]] = MappingProxyType({"k": 10**3, "M": 10**6, "G": 10**9})


def mapping(obj: Json, *path: str) -> Json:
    """The mapping at ``path``, or an empty one."""
    value: object = obj
    for step in path:
        value = value.get(step) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else _EMPTY


def sequence(obj: Json, *path: str) -> Sequence[object]:
    """The list at ``path``, or an empty one."""
    value = mapping(obj, *path[:-1]).get(path[-1])
    return value if isinstance(value, list) else ()


def text(obj: Json, *path: str) -> str:
    """The string at ``path``, or ""."""
    value = mapping(obj, *path[:-1]).get(path[-1])
    return value if isinstance(value, str) else ""


def mappings(obj: Json, *path: str) -> list[Json]:
    """The mappings in the list at ``path``."""
    return [item for item in sequence(obj, *path) if isinstance(item, Mapping)]


def is_true(value: str) -> bool:
    """Whether an annotation's text is a true of Go's strconv.ParseBool."""
    return value in _TRUE


def _subject(obj: Json, kind: str) -> str:
    return f"{kind} {object_key(text(obj, 'metadata', 'namespace'), text(obj, 'metadata', 'name'))}"


def _count(obj: Json, kind: str, path: tuple[str, ...], default: int, minimum: int = 0) -> int:
    value = mapping(obj, *path[:-1]).get(path[-1])
    if value is None:
        return default
    if type(value) is not int or not minimum <= value <= _COUNT_MAX:
        raise InvalidObject(
            _subject(obj, kind),
            ".".join(path),
            f"must be an integer from {minimum} to {_COUNT_MAX}, not {value!r:.50}",
        )
    return value


def _required_count(obj: Json, kind: str, path: tuple[str, ...], minimum: int = 0) -> int:
    if mapping(obj, *path[:-1]).get(path[-1]) is None:
        raise InvalidObject(_subject(obj, kind), ".".join(path), "is required")
    return _count(obj, kind, path, 0, minimum)


def _optional_count(obj: Json, kind: str, path: tuple[str, ...], minimum: int = 0) -> int | None:
    if mapping(obj, *path[:-1]).get(path[-1]) is None:
        return None
    return _count(obj, kind, path, 0, minimum)


def _required(obj: Json, kind: str, *path: str) -> str:
    value = text(obj, *path)
    if not value:
        raise InvalidObject(_subject(obj, kind), ".".join(path), "is required")
    return value


def quantity(value: object) -> int | None:
    """A whole-number resource quantity, as extended resources have; None where it is anything else.

    The API server stores them in canonical form: 1000 comes back as "1k", 2500000 as "2500k".
    """
    if type(value) is int:
        return value if value >= 0 else None
    if not isinstance(value, str):
        return None
    factor = _DECIMAL_SUFFIXES.get(value[-1:], 1)
    digits = value if factor == 1 else value[:-1]
    if digits.isascii() and digits.isdigit() and len(digits) <= 10:
        return int(digits) * factor
    return None


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
    """What the containers of a pod request of ``vreplica.dev/slots`` together; None if none does."""
    found = [
        amount
        for container in mappings(pod, "spec", "containers")
        if (amount := quantity(mapping(container, "resources", "requests").get(names.SLOTS_RESOURCE)))
        is not None
    ]
    return sum(found) if found else None


def pod_from(obj: Json) -> AdapterPod:
    """An adapter pod. A ledger that cannot be read is kept as text and error, never raised: the pod exists."""
    metadata = mapping(obj, "metadata")
    annotations = mapping(metadata, "annotations")
    name, namespace = text(metadata, "name"), text(metadata, "namespace")
    ledger_text = (
        text(annotations, names.PLACEMENTS_ANNOTATION) if names.PLACEMENTS_ANNOTATION in annotations else None
    )
    ledger, ledger_error = EMPTY_LEDGER, ""
    try:
        ledger = decode_ledger(ledger_text)
    except LedgerUnreadable as error:
        ledger_error = str(error)
    ready = next((c for c in mappings(obj, "status", "conditions") if c.get("type") == "Ready"), _EMPTY)
    priority = mapping(obj, "spec").get("priority")
    return AdapterPod(
        namespace=namespace,
        name=name,
        uid=text(metadata, "uid"),
        resource_version=text(metadata, "resourceVersion"),
        pool=object_key(namespace, text(metadata, "labels", names.POOL_LABEL)),
        owner=next(
            (
                text(ref, "name")
                for ref in mappings(metadata, "ownerReferences")
                if ref.get("controller") is True and ref.get("kind") == "StatefulSet"
            ),
            "",
        ),
        ordinal=ordinal_of(name),
        node=text(obj, "spec", "nodeName"),
        scheduler_name=text(obj, "spec", "schedulerName"),
        slots=quantity(annotations.get(names.SLOTS_ANNOTATION)),
        slots_request=slots_request_of(obj),
        ledger=ledger,
        ledger_text=ledger_text,
        ledger_error=ledger_error,
        has_annotations=bool(annotations),
        unschedulable=is_true(text(annotations, names.UNSCHEDULABLE_ANNOTATION))
        or is_true(text(annotations, names.KNATIVE_UNSCHEDULABLE_ANNOTATION)),
        deleting=bool(metadata.get("deletionTimestamp")),
        finished=text(obj, "status", "phase") in {"Succeeded", "Failed"},
        ready=ready.get("status") == "True",
        ready_since=text(ready, "lastTransitionTime"),
        priority=priority if isinstance(priority, int) else 0,
    )


def node_from(obj: Json) -> Node:
    """A node; Ready where its condition says so or, for one without conditions, where no taint says otherwise."""
    metadata = mapping(obj, "metadata")
    taints = {text(taint, "key") for taint in mappings(obj, "spec", "taints")}
    condition = next((c for c in mappings(obj, "status", "conditions") if c.get("type") == "Ready"), None)
    return Node(
        name=text(metadata, "name"),
        uid=text(metadata, "uid"),
        resource_version=text(metadata, "resourceVersion"),
        zone=text(metadata, "labels", names.ZONE_LABEL) or names.UNKNOWN_ZONE,
        cordoned=mapping(obj, "spec").get("unschedulable") is True,
        ready=(condition is None or condition.get("status") == "True")
        and not taints & {names.UNREACHABLE_TAINT, names.NOT_READY_TAINT},
        slots=quantity(mapping(obj, "status", "allocatable").get(names.SLOTS_RESOURCE)),
    )


def stateful_set_from(obj: Json) -> StatefulSet:
    """A StatefulSet. spec.replicas absent is 1, as the API server defaults it.

    Raises InvalidObject for one with ordinals beyond ``ORDINAL_MAX``.
    """
    metadata = mapping(obj, "metadata")
    replicas = _count(obj, "StatefulSet", ("spec", "replicas"), 1)
    start = _count(obj, "StatefulSet", ("spec", "ordinals", "start"), 0)
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
        deleting=bool(metadata.get("deletionTimestamp")),
    )


def namespace_from(obj: Json) -> Namespace:
    """A namespace."""
    metadata = mapping(obj, "metadata")
    return Namespace(
        name=text(metadata, "name"),
        uid=text(metadata, "uid"),
        resource_version=text(metadata, "resourceVersion"),
        labels=_labels(mapping(metadata, "labels")),
    )


def _labels(raw: Json) -> Mapping[str, str]:
    return MappingProxyType({key: value for key, value in raw.items() if isinstance(value, str)})


def selector_from(raw: Json) -> LabelSelector:
    """A metav1.LabelSelector."""
    return LabelSelector(
        match_labels=_labels(mapping(raw, "matchLabels")),
        match_expressions=tuple(
            SelectorRequirement(
                key=text(item, "key"),
                operator=text(item, "operator"),
                values=tuple(str(value) for value in sequence(item, "values")),
            )
            for item in mappings(raw, "matchExpressions")
        ),
    )


def pool_from(obj: Json) -> AdapterPool:
    """An AdapterPool. Raises InvalidObject."""
    metadata = mapping(obj, "metadata")
    kind = "AdapterPool"
    dry_run = mapping(obj, "spec", "rebalance").get("dryRun")
    return AdapterPool(
        namespace=text(metadata, "namespace"),
        name=_required(obj, kind, "metadata", "name"),
        uid=text(metadata, "uid"),
        resource_version=text(metadata, "resourceVersion"),
        generation=_count(obj, kind, ("metadata", "generation"), 0),
        stateful_set=_required(obj, kind, "spec", "statefulSet"),
        slots_per_pod=_required_count(obj, kind, ("spec", "slotsPerPod"), 1),
        min_pods=_count(obj, kind, ("spec", "minPods"), 0),
        min_pods_per_vpod=_count(obj, kind, ("spec", "minPodsPerVPod"), 0),
        max_pods=_optional_count(obj, kind, ("spec", "maxPods")),
        scale_down_period_s=_count(obj, kind, ("spec", "scaleDownPeriodSeconds"), 100, 1),
        reschedule_after_s=_optional_count(obj, kind, ("spec", "rescheduleAfterSeconds")),
        moves_per_period=_count(obj, kind, ("spec", "rebalance", "movesPerPeriod"), 10),
        move_cooldown_s=_count(obj, kind, ("spec", "rebalance", "cooldownSeconds"), 300),
        move_dry_run=dry_run is True,
        namespace_selector=selector_from(mapping(obj, "spec", "namespaceSelector")),
        profile=text(obj, "spec", "profile") or "default",
        deleting=bool(metadata.get("deletionTimestamp")),
    )


def _placements(obj: Json, kind: str) -> dict[str, int]:
    """status.placements. An entry that is not understood must not read as vreplicas without a place: they would move."""
    listed = mapping(obj, "status").get("placements")
    if listed is not None and not isinstance(listed, list):
        raise InvalidObject(_subject(obj, kind), "status.placements", "must be a list")
    placements: dict[str, int] = {}
    for index, item in enumerate(listed or ()):
        field = f"status.placements[{index}]"
        if not isinstance(item, Mapping):
            raise InvalidObject(_subject(obj, kind), field, "must be a mapping")
        count, pod = item.get("vreplicas"), text(item, "podName")
        if type(count) is not int or not 0 <= count <= _COUNT_MAX:
            raise InvalidObject(_subject(obj, kind), f"{field}.vreplicas", "must be a count")
        if not pod:
            raise InvalidObject(_subject(obj, kind), f"{field}.podName", "is required")
        if count:
            placements[pod] = placements.get(pod, 0) + count
    return placements


def vpod_from(obj: Json) -> VPod:
    """A VPod with its published placements; double entries of one pod are summed. Raises InvalidObject."""
    metadata = mapping(obj, "metadata")
    kind = "VPod"
    placements = _placements(obj, kind)
    return VPod(
        namespace=text(metadata, "namespace"),
        name=_required(obj, kind, "metadata", "name"),
        uid=text(metadata, "uid"),
        resource_version=text(metadata, "resourceVersion"),
        generation=_count(obj, kind, ("metadata", "generation"), 0),
        pool=object_key(
            text(obj, "spec", "poolRef", "namespace") or text(metadata, "namespace"),
            _required(obj, kind, "spec", "poolRef", "name"),
        ),
        vreplicas=_required_count(obj, kind, ("spec", "vreplicas")),
        weight=_count(obj, kind, ("spec", "slotsPerVReplica"), 1, 1),
        placements=MappingProxyType(
            dict(sorted(placements.items(), key=lambda item: placement_order(item[0])))
        ),
        observed_generation=_count(obj, kind, ("status", "observedGeneration"), 0),
        scheduled_vreplicas=_count(obj, kind, ("status", "scheduledVReplicas"), 0),
        conditions=conditions_of(obj),
        deleting=bool(metadata.get("deletionTimestamp")),
    )
