"""Validation of names, metadata and the fields of built-in kinds, as far as anything here depends on it.

Each check yields problems in Kubernetes' words; the API server raises them all as one Invalid (422).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

from extender.kube.api import CRDS, EVENTS, LEASES, NAMESPACES, NODES, PODS, STATEFULSETS, Obj, Resource
from extender.sim.apiserver.registry import Kind
from extender.sim.apiserver.selectors import label_selector_object
from extender.sim.apiserver.store import identical

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_LABEL_WORDS: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_SUBDOMAIN_WORDS: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
ANNOTATIONS_BYTES_MAX: Final = 256 * 1024
EVENT_NOTE_BYTES_MAX: Final = 1024
EVENT_TEXT_CHARACTERS_MAX: Final = 128
_NAMED_AS_LABEL: Final = frozenset({NAMESPACES})
_FREELY_NAMED: Final = "rbac.authorization.k8s.io"


def metadata_problems(resource: Resource, metadata: Mapping[str, Any]) -> Iterator[str]:
    """Name, labels, annotations and finalizers of a new object."""
    name = str(metadata.get("name") or "")
    if not name:
        yield "metadata.name: Required value: name or generateName is required"
    elif resource in _NAMED_AS_LABEL:
        if len(name) > 63 or not _LABEL.fullmatch(name):
            yield f'metadata.name: Invalid value: "{name}": {_LABEL_WORDS}'
    elif resource.group != _FREELY_NAMED and (len(name) > 253 or not _SUBDOMAIN.fullmatch(name)):
        yield f'metadata.name: Invalid value: "{name}": {_SUBDOMAIN_WORDS}'
    yield from map_problems(metadata)


def map_problems(metadata: Mapping[str, Any]) -> Iterator[str]:
    """Labels and annotations, which every write may change."""
    for key, value in (metadata.get("labels") or {}).items():
        if not _is_qualified(key):
            yield f'metadata.labels: Invalid value: "{key}": name part must consist of alphanumeric characters'
        if not isinstance(value, str) or (value and (len(value) > 63 or not _QUALIFIED.fullmatch(value))):
            yield f'metadata.labels: Invalid value: "{value}": a valid label must be an empty string or consist of'
    size = 0
    for key, value in (metadata.get("annotations") or {}).items():
        if not isinstance(value, str):
            yield f"metadata.annotations: Invalid value: {value!r}: must be a string"
            continue
        if not _is_qualified(key.lower()):
            yield f'metadata.annotations: Invalid value: "{key}": name part must consist of alphanumeric characters'
        size += len(key) + len(value.encode())
    if size > ANNOTATIONS_BYTES_MAX:
        yield f"metadata.annotations: Too long: may not be more than {ANNOTATIONS_BYTES_MAX} bytes"


@lru_cache(maxsize=4096)
def _is_qualified(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    if slash and (not prefix or len(prefix) > 253 or not _SUBDOMAIN.fullmatch(prefix)):
        return False
    return 0 < len(name) <= 63 and _QUALIFIED.fullmatch(name) is not None


def fixed_metadata_problems(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """What no write may change; what it merely leaves out stays. Creation time and generation are ignored, not refused."""
    for field in ("uid", "deletionTimestamp", "deletionGracePeriodSeconds"):
        # A deletion's own time is put back by the server, whatever was sent.
        kept = field == "deletionTimestamp" and field in old
        if new.get(field) not in (None, "", old.get(field)) and not kept:
            yield f'metadata.{field}: Invalid value: "{new[field]}": field is immutable'


def finalizer_problems(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """No finalizer can be added to an object that is being deleted."""
    if old.get("deletionTimestamp"):
        added = [item for item in new.get("finalizers") or () if item not in (old.get("finalizers") or ())]
        if added:
            words = "no new finalizers can be added if the object is being deleted, found new finalizers"
            yield f"metadata.finalizers: Forbidden: {words} {added!r}"


def object_problems(kind: Kind, obj: Obj) -> Iterator[str]:
    """The content of a built-in object, new or changed."""
    check = _CONTENT.get(kind.key)
    return check(obj) if check is not None else iter(())


def change_problems(kind: Kind, old: Obj, new: Obj) -> Iterator[str]:
    """What may not change between two versions."""
    check = _CHANGE.get(kind.key)
    return check(old, new) if check is not None else iter(())


def _containers(spec: Obj, path: str) -> Iterator[str]:
    containers = spec.get("containers") or []
    if not containers:
        yield f"{path}.containers: Required value"
    seen: set[str] = set()
    for at, container in enumerate(containers):
        name = container.get("name") or ""
        if not name:
            yield f"{path}.containers[{at}].name: Required value"
        elif not _LABEL.fullmatch(name):
            yield f'{path}.containers[{at}].name: Invalid value: "{name}": {_LABEL_WORDS}'
        elif name in seen:
            yield f'{path}.containers[{at}].name: Duplicate value: "{name}"'
        seen.add(name)
        if not container.get("image"):
            yield f"{path}.containers[{at}].image: Required value"
        yield from _extended_resources(container, f"{path}.containers[{at}].resources")


def _extended_resources(container: Obj, path: str) -> Iterator[str]:
    """Extended resources are whole numbers, and requested as much as limited."""
    resources = container.get("resources") or {}
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for name in sorted({*requests, *limits}):
        if "/" not in name or name.startswith("kubernetes.io/"):
            continue
        if name not in limits:
            yield f"{path}.limits: Required value: Limit must be set for non overcommitable resources"
        elif name in requests and str(requests[name]) != str(limits[name]):
            words = f"must be equal to {name} limit of {limits[name]}"
            yield f'{path}.requests: Invalid value: "{requests[name]}": {words}'
        if not str(limits.get(name, "0")).isdigit():
            yield f'{path}.limits[{name}]: Invalid value: "{limits[name]}": must be an integer'


def _pod(pod: Obj) -> Iterator[str]:
    yield from _containers(pod.get("spec") or {}, "spec")


def _pod_change(old: Obj, new: Obj) -> Iterator[str]:
    """Only images, activeDeadlineSeconds, added tolerations and removed scheduling gates may change."""
    if identical(old["spec"], new["spec"]):
        return
    if old["spec"].get("nodeName", "") != new["spec"].get("nodeName", ""):
        yield f"spec.nodeName: Forbidden: {_POD_CHANGE_WORDS}"
        return
    tolerations = new["spec"].get("tolerations") or []
    if any(item not in tolerations for item in old["spec"].get("tolerations") or ()):
        yield "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"
    gates = old["spec"].get("schedulingGates") or ()
    if any(item not in gates for item in new["spec"].get("schedulingGates") or ()):
        yield "spec.schedulingGates: Forbidden: only deletion is allowed, but found new scheduling gate"
    if not identical(_frozen_part(old["spec"]), _frozen_part(new["spec"])):
        yield f"spec: Forbidden: {_POD_CHANGE_WORDS}"


_POD_CHANGE_WORDS: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def _frozen_part(spec: Obj) -> Obj:
    frozen = {
        key: value
        for key, value in spec.items()
        if key not in ("tolerations", "activeDeadlineSeconds", "schedulingGates")
    }
    for field in ("containers", "initContainers"):
        if field in frozen:
            frozen[field] = [{**container, "image": ""} for container in frozen[field]]
    return frozen


def _stateful_set(obj: Obj) -> Iterator[str]:
    spec = obj["spec"]
    if not isinstance(spec.get("replicas"), int) or spec["replicas"] < 0:
        yield f"spec.replicas: Invalid value: {spec.get('replicas')}: must be greater than or equal to 0"
    start = (spec.get("ordinals") or {}).get("start", 0)
    if start < 0:
        yield f"spec.ordinals.start: Invalid value: {start}: must be greater than or equal to 0"
    if spec["podManagementPolicy"] not in ("OrderedReady", "Parallel"):
        yield f"spec.podManagementPolicy: Invalid value: \"{spec['podManagementPolicy']}\": must be 'OrderedReady' or 'Parallel'"
    selector, labels = spec.get("selector"), (spec["template"].get("metadata") or {}).get("labels") or {}
    if not selector:
        yield "spec.selector: Required value"
    elif not label_selector_object(selector)(labels):
        yield f"spec.template.metadata.labels: Invalid value: {labels}: `selector` does not match template `labels`"
    yield from _containers(spec["template"].get("spec") or {}, "spec.template.spec")


_STATEFUL_SET_MUTABLE: Final = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)


def _stateful_set_change(old: Obj, new: Obj) -> Iterator[str]:
    fixed_old, fixed_new = (
        {key: value for key, value in obj["spec"].items() if key not in _STATEFUL_SET_MUTABLE}
        for obj in (old, new)
    )
    if not identical(fixed_old, fixed_new):
        fields = ", ".join(f"'{field}'" for field in _STATEFUL_SET_MUTABLE)
        yield f"spec: Forbidden: updates to statefulset spec for fields other than {fields} are forbidden"


def _event(event: Obj) -> Iterator[str]:
    if not _is_micro_time(event.get("eventTime")):
        yield "eventTime: Required value"
    for field in ("reportingController", "reportingInstance", "action", "reason"):
        value = event.get(field) or ""
        if not value:
            yield f"{field}: Required value"
        elif field != "reportingController" and len(value) > EVENT_TEXT_CHARACTERS_MAX:
            yield f"{field}: Invalid value: can have at most {EVENT_TEXT_CHARACTERS_MAX} characters"
    if event.get("reportingController") and not _is_qualified(event["reportingController"]):
        yield f'reportingController: Invalid value: "{event["reportingController"]}": not a qualified name'
    if event.get("type") not in ("Normal", "Warning"):
        yield f'type: Invalid value: "{event.get("type") or ""}": must be one of Normal, Warning'
    if len((event.get("note") or "").encode()) > EVENT_NOTE_BYTES_MAX:
        yield f"note: Invalid value: can have at most {EVENT_NOTE_BYTES_MAX} characters"
    regarding = (event.get("regarding") or {}).get("namespace", "")
    where = event["metadata"].get("namespace")
    if regarding and regarding != where:
        yield f'regarding.namespace: Invalid value: "{regarding}": does not match event.namespace'
    if not regarding and where not in {"default", "kube-system"}:
        yield 'regarding.namespace: Invalid value: "": does not match event.namespace'


def _is_micro_time(value: object) -> bool:
    try:
        return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def _event_change(old: Obj, new: Obj) -> Iterator[str]:
    fixed = (
        "reportingController",
        "reportingInstance",
        "action",
        "reason",
        "regarding",
        "related",
        "note",
        "type",
    )
    for field in fixed:
        if not identical(old.get(field), new.get(field)):
            yield f"{field}: Invalid value: field is immutable"


def _lease(lease: Obj) -> Iterator[str]:
    spec = lease.get("spec") or {}
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration is not None and duration <= 0:
        yield f"spec.leaseDurationSeconds: Invalid value: {duration}: must be greater than 0"
    if transitions is not None and transitions < 0:
        yield f"spec.leaseTransitions: Invalid value: {transitions}: must be greater than or equal to 0"
    for field in ("acquireTime", "renewTime"):
        if spec.get(field) is not None and not _is_micro_time(spec[field]):
            yield f'spec.{field}: Invalid value: "{spec[field]}": must be a time with microseconds'


def _definition(definition: Obj) -> Iterator[str]:
    spec = definition["spec"]
    names, versions = spec.get("names") or {}, spec.get("versions") or []
    for field in ("plural", "kind"):
        if not names.get(field):
            yield f"spec.names.{field}: Required value"
    wanted = f"{names.get('plural')}.{spec.get('group')}"
    if definition["metadata"].get("name") != wanted:
        yield f'metadata.name: Invalid value: "{definition["metadata"].get("name")}": must be spec.names.plural+"."+spec.group'
    if spec.get("scope") not in ("Namespaced", "Cluster"):
        yield f'spec.scope: Unsupported value: "{spec.get("scope")}": supported values: "Cluster", "Namespaced"'
    if sum(bool(version.get("storage")) for version in versions) != 1:
        yield "spec.versions: Invalid value: must have exactly one version marked as storage version"
    for at, version in enumerate(versions):
        if not isinstance((version.get("schema") or {}).get("openAPIV3Schema"), dict):
            yield f"spec.versions[{at}].schema.openAPIV3Schema: Required value: schemas are required"
        else:
            yield from _patterns(
                version["schema"]["openAPIV3Schema"], f"spec.versions[{at}].schema.openAPIV3Schema"
            )


def _patterns(schema: object, path: str) -> Iterator[str]:
    """Patterns that are not regular expressions, anywhere in a schema."""
    children = (
        schema.items() if isinstance(schema, dict) else enumerate(schema) if isinstance(schema, list) else ()
    )
    for name, child in children:
        if name == "pattern" and isinstance(child, str):
            try:
                re.compile(child)
            except re.error as problem:
                yield f"{path}.pattern: Invalid value: {child!r}: must be a valid regular expression: {problem}"
        else:
            yield from _patterns(child, f"{path}.{name}")


def _node_change(old: Obj, new: Obj) -> Iterator[str]:
    for field in ("providerID", "podCIDR"):
        before, after = old["spec"].get(field), new["spec"].get(field)
        if before and before != after:
            yield f'spec.{field}: Forbidden: node updates may not change {field} except from "" to valid'


_CONTENT: Final[Mapping[tuple[str, str], Callable[[Obj], Iterator[str]]]] = {
    (resource.group, resource.plural): check
    for resource, check in (
        (PODS, _pod),
        (STATEFULSETS, _stateful_set),
        (EVENTS, _event),
        (LEASES, _lease),
        (CRDS, _definition),
    )
}
_CHANGE: Final[Mapping[tuple[str, str], Callable[[Obj, Obj], Iterator[str]]]] = {
    (resource.group, resource.plural): check
    for resource, check in (
        (PODS, _pod_change),
        (STATEFULSETS, _stateful_set_change),
        (EVENTS, _event_change),
        (NODES, _node_change),
    )
}
