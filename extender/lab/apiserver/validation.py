"""Validation of names, metadata and the fields of built-in kinds, as far as this project depends on
it.

Each check yields problems in Kubernetes' words. The API server raises them all as one Invalid
(422).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from extender.config.kube_scheduler import NAME, SUBDOMAIN, SUBDOMAIN_RULE
from extender.kube.api import (
    CONFIGMAPS,
    CRDS,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    STATEFULSETS,
    Obj,
    Resource,
)
from extender.lab.apiserver import events, pods
from extender.lab.apiserver.field_errors import (
    IMMUTABLE,
    NAME_PART,
    NOT_NEGATIVE,
    duplicate,
    forbidden,
    invalid,
    required,
    unsupported,
)
from extender.lab.apiserver.names import LABEL, LABEL_WORDS, is_qualified
from extender.lab.apiserver.registry import Kind
from extender.lab.apiserver.selectors import label_selector_object
from extender.lab.apiserver.store import identical

_CONFIG_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+")
ANNOTATIONS_BYTES_MAX: Final = 256 * 1024
_NAMED_AS_LABEL: Final = frozenset({NAMESPACES})
_FREELY_NAMED: Final = "rbac.authorization.k8s.io"


def metadata_problems(resource: Resource, metadata: Mapping[str, Any]) -> Iterator[str]:
    """Check the name, labels and annotations of a new object."""
    name = str(metadata.get("name") or "")
    if not name:
        yield required("metadata.name", "name or generateName is required")
    elif resource in _NAMED_AS_LABEL:
        if len(name) > 63 or not LABEL.fullmatch(name):
            yield invalid("metadata.name", name, LABEL_WORDS)
    elif resource.group != _FREELY_NAMED and (len(name) > 253 or not SUBDOMAIN.fullmatch(name)):
        yield invalid("metadata.name", name, SUBDOMAIN_RULE)
    yield from map_problems(metadata)


def map_problems(metadata: Mapping[str, Any]) -> Iterator[str]:
    """Check labels and annotations, which every write may change."""
    for key, value in (metadata.get("labels") or {}).items():
        if not is_qualified(key):
            yield invalid("metadata.labels", key, NAME_PART)
        if not isinstance(value, str) or (value and (len(value) > 63 or not NAME.fullmatch(value))):
            words = "a valid label must be an empty string or consist of alphanumeric characters"
            yield invalid("metadata.labels", value, words)
    size = 0
    for key, value in (metadata.get("annotations") or {}).items():
        if not isinstance(value, str):
            yield invalid("metadata.annotations", value, "must be a string")
            continue
        if not is_qualified(key.lower()):
            yield invalid("metadata.annotations", key, NAME_PART)
        size += len(key) + len(value.encode())
    if size > ANNOTATIONS_BYTES_MAX:
        yield f"metadata.annotations: Too long: may not be more than {ANNOTATIONS_BYTES_MAX} bytes"


def reference_problems(kind: Kind, metadata: Mapping[str, Any]) -> Iterator[str]:
    """Check owner references and finalizers of any kind."""
    for at, owner in enumerate(metadata.get("ownerReferences") or ()):
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                yield required(f"metadata.ownerReferences[{at}].{field}", "must not be empty")
    if kind.custom or kind.resource == LEASES:
        return
    # Only the validation of the older groups checks finalizers.
    for at, finalizer in enumerate(metadata.get("finalizers") or ()):
        yield from _finalizer(finalizer, f"metadata.finalizers[{at}]")


def _finalizer(name: str, path: str) -> Iterator[str]:
    """Built-in kinds require a domain, except for the names that Kubernetes itself uses."""
    if "/" not in name and name not in ("kubernetes", "orphan", "foregroundDeletion"):
        words = "name is neither a standard finalizer name nor is it fully qualified"
        yield invalid(path, name, words)


def fixed_metadata_problems(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Yield changes of metadata that no write may make. A field that is left out is kept. Changes
    of creation time and generation are ignored, not refused.
    """
    for field in ("uid", "deletionTimestamp", "deletionGracePeriodSeconds"):
        # Whatever was sent, the server puts back the stored deletionTimestamp.
        kept = field == "deletionTimestamp" and field in old
        if new.get(field) not in (None, "", old.get(field)) and not kept:
            yield invalid(f"metadata.{field}", new[field], IMMUTABLE)


def finalizer_problems(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Refuse finalizers that are added to an object that is being deleted."""
    if old.get("deletionTimestamp"):
        added = [
            item
            for item in new.get("finalizers") or ()
            if item not in (old.get("finalizers") or ())
        ]
        if added:
            words = "no new finalizers can be added if the object is being deleted"
            yield forbidden("metadata.finalizers", f"{words}, found new finalizers {added!r}")


def object_problems(kind: Kind, obj: Obj) -> Iterator[str]:
    """Check the content of a built-in object, new or changed."""
    check = _CONTENT.get(kind.resource)
    return check(obj) if check is not None else iter(())


def creation_problems(kind: Kind, obj: Obj) -> Iterator[str]:
    """Check what applies only to creates."""
    if kind.resource == PODS:
        return pods.creation_problems(obj)
    return events.problems(obj) if kind.resource == EVENTS else iter(())


def change_problems(kind: Kind, old: Obj, new: Obj) -> Iterator[str]:
    """Check for changes that are not allowed."""
    check = _CHANGE.get(kind.resource)
    return check(old, new) if check is not None else iter(())


def _stateful_set(obj: Obj) -> Iterator[str]:
    spec = obj["spec"]
    if not isinstance(spec.get("replicas"), int) or spec["replicas"] < 0:
        yield invalid("spec.replicas", spec.get("replicas"), NOT_NEGATIVE)
    start = (spec.get("ordinals") or {}).get("start", 0)
    if start < 0:
        yield invalid("spec.ordinals.start", start, NOT_NEGATIVE)
    if (policy := spec["podManagementPolicy"]) not in ("OrderedReady", "Parallel"):
        yield invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'")
    selector, labels = (
        spec.get("selector"),
        (spec["template"].get("metadata") or {}).get("labels") or {},
    )
    if selector is None:
        yield required("spec.selector")
    elif not (selector.get("matchLabels") or selector.get("matchExpressions")):
        yield invalid("spec.selector", {}, "empty selector is invalid for statefulset")
    if selector is None or not label_selector_object(selector)(labels):
        words = "`selector` does not match template `labels`"
        yield invalid("spec.template.metadata.labels", labels, words)
    strategy = spec["updateStrategy"].get("type")
    if strategy not in ("RollingUpdate", "OnDelete"):
        yield invalid("spec.updateStrategy", strategy, "must be 'RollingUpdate' or 'OnDelete'")
    if (spec.get("minReadySeconds") or 0) < 0:
        yield invalid("spec.minReadySeconds", spec["minReadySeconds"], NOT_NEGATIVE)
    template = spec["template"].get("spec") or {}
    if (restarts := template.get("restartPolicy")) != "Always":
        yield unsupported("spec.template.spec.restartPolicy", restarts, "Always")
    yield from pods.spec_problems(template, "spec.template.spec")


_STATEFUL_SET_IMMUTABLE: Final = (
    "selector",
    "volumeClaimTemplates",
    "serviceName",
    "podManagementPolicy",
)


def _stateful_set_change(old: Obj, new: Obj) -> Iterator[str]:
    for field in _STATEFUL_SET_IMMUTABLE:
        before, after = old["spec"].get(field), new["spec"].get(field)
        if not identical(before, after):
            yield invalid(f"spec.{field}", after, IMMUTABLE)


def _lease(lease: Obj) -> Iterator[str]:
    spec = lease.get("spec") or {}
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration is not None and duration <= 0:
        yield invalid("spec.leaseDurationSeconds", duration, "must be greater than 0")
    if transitions is not None and transitions < 0:
        yield invalid("spec.leaseTransitions", transitions, NOT_NEGATIVE)


def _namespace(obj: Obj) -> Iterator[str]:
    for finalizer in (obj.get("spec") or {}).get("finalizers") or ():
        yield from _finalizer(finalizer, "spec.finalizers")


def _namespace_status(new: Obj) -> Iterator[str]:
    wanted = "Terminating" if new["metadata"].get("deletionTimestamp") else "Active"
    if (phase := (new.get("status") or {}).get("phase")) != wanted:
        yield invalid("status.Phase", phase, f"may only be '{wanted}'")


def _config_map(obj: Obj) -> Iterator[str]:
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    for field, values in (("data", data), ("binaryData", binary)):
        for key in values:
            if len(key) > 253 or not _CONFIG_KEY.fullmatch(key) or key in (".", ".."):
                words = "a valid config key must consist of alphanumeric characters"
                yield invalid(f"{field}[{key}]", key, words)
    for key in data.keys() & binary.keys():
        yield invalid(f"data[{key}]", key, "duplicate of key present in binaryData")


def _config_map_change(old: Obj, new: Obj) -> Iterator[str]:
    if not old.get("immutable"):
        return
    words = "field is immutable when `immutable` is set"
    if not new.get("immutable"):
        yield forbidden("immutable", words)
    for field in ("data", "binaryData"):
        if (old.get(field) or {}) != (new.get(field) or {}):
            yield forbidden(field, words)


def _node(obj: Obj) -> Iterator[str]:
    seen = set()
    for at, taint in enumerate((obj.get("spec") or {}).get("taints") or ()):
        key, effect = taint.get("key") or "", taint.get("effect") or ""
        if not is_qualified(key):
            yield invalid(f"metadata.taints[{at}].key", key, NAME_PART)
        if effect not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
            yield unsupported(f"metadata.taints[{at}].effect", effect, "NoSchedule")
        if (key, effect) in seen:
            yield duplicate(f"metadata.taints[{at}]", f"{key}:{effect}")
        seen.add((key, effect))


def _definition(definition: Obj) -> Iterator[str]:
    spec = definition["spec"]
    names, versions = spec.get("names") or {}, spec.get("versions") or []
    for field in ("plural", "kind"):
        if not names.get(field):
            yield required(f"spec.names.{field}")
    wanted = f"{names.get('plural')}.{spec.get('group')}"
    if (name := definition["metadata"].get("name")) != wanted:
        yield invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    if spec.get("scope") not in ("Namespaced", "Cluster"):
        yield unsupported("spec.scope", spec.get("scope"), "Cluster", "Namespaced")
    if sum(bool(version.get("storage")) for version in versions) != 1:
        yield (
            "spec.versions: Invalid value: must have exactly one version marked as storage version"
        )
    for at, version in enumerate(versions):
        schema, path = version.get("schema") or {}, f"spec.versions[{at}].schema.openAPIV3Schema"
        if isinstance(schema.get("openAPIV3Schema"), dict):
            yield from _patterns(schema["openAPIV3Schema"], path)
        else:
            yield required(path, "schemas are required")


def _patterns(schema: object, path: str) -> Iterator[str]:
    """Yield invalid regular expressions in ``pattern``, anywhere in a schema."""
    children = (
        schema.items()
        if isinstance(schema, dict)
        else enumerate(schema)
        if isinstance(schema, list)
        else ()
    )
    for name, child in children:
        if name == "pattern" and isinstance(child, str):
            try:
                re.compile(child)
            except re.error as problem:
                words = f"must be a valid regular expression: {problem}"
                yield invalid(f"{path}.pattern", child, words)
        else:
            yield from _patterns(child, f"{path}.{name}")


def _node_change(old: Obj, new: Obj) -> Iterator[str]:
    for field in ("providerID", "podCIDR"):
        before, after = old["spec"].get(field), new["spec"].get(field)
        if before and before != after:
            words = f'node updates may not change {field} except from "" to valid'
            yield forbidden(f"spec.{field}", words)


def status_problems(kind: Kind, old: Obj, new: Obj) -> Iterator[str]:
    """Check a write to a status."""
    if kind.resource == PODS:
        yield from pods.status_problems(old, new)
    elif kind.resource == STATEFULSETS:
        yield from _stateful_set_status(new.get("status") or {})
    elif kind.resource == NAMESPACES:
        yield from _namespace_status(new)


def _stateful_set_status(status: Obj) -> Iterator[str]:
    counts = (
        "replicas",
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
    )
    total, ready = status.get("replicas") or 0, status.get("readyReplicas") or 0
    for field in counts:
        count = status.get(field) or 0
        if count < 0:
            yield invalid(f"status.{field}", count, NOT_NEGATIVE)
        if count > total:
            yield invalid(f"status.{field}", count, "cannot be greater than status.replicas")
    if (available := status.get("availableReplicas") or 0) > ready:
        words = "cannot be greater than status.readyReplicas"
        yield invalid("status.availableReplicas", available, words)


_CONTENT: Final[Mapping[Resource, Callable[[Obj], Iterator[str]]]] = {
    PODS: pods.problems,
    STATEFULSETS: _stateful_set,
    LEASES: _lease,
    CRDS: _definition,
    NODES: _node,
    NAMESPACES: _namespace,
    CONFIGMAPS: _config_map,
}
_CHANGE: Final[Mapping[Resource, Callable[[Obj, Obj], Iterator[str]]]] = {
    PODS: pods.change_problems,
    STATEFULSETS: _stateful_set_change,
    EVENTS: events.change_problems,
    NODES: _node_change,
    CONFIGMAPS: _config_map_change,
}
