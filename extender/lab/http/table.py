"""Tables, which ``kubectl get`` requests and prints.

The server makes the columns, so kubectl can show kinds that it does not know. Built-in kinds have
kube-apiserver's columns. Custom kinds have the ``additionalPrinterColumns`` of their definition, or
else their age.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

from extender.kube.api import (
    CRDS,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    PODS,
    STATEFULSETS,
    VALIDATING_WEBHOOKS,
    Obj,
    Resource,
)
from extender.lab.apiserver.core_events import CORE_EVENTS
from extender.lab.apiserver.registry import Kind
from extender.model.reading import condition_in, text

TABLE_API_VERSION: Final = "meta.k8s.io/v1"
_STEP: Final = re.compile(
    r"\.?([A-Za-z0-9_/-]+)|\[(\d+)\]|\['([^']+)'\]|\[\?\(@\.(\w+)\s*==\s*[\"']([^\"']*)[\"']\)\]"
)
Cell = Any
Cells = Callable[[Obj, float], list[Cell]]


@dataclass(frozen=True, slots=True)
class Column:
    """One TableColumnDefinition. Columns with ``priority`` > 0 are shown only with ``-o wide``."""

    name: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0


_DURATIONS: Final = (
    # below so many seconds, unit, its seconds, smaller unit or "", its seconds
    (120, "s", 1, "", 1),
    (10 * 60, "m", 60, "s", 1),
    (3 * 3600, "m", 60, "", 1),
    (8 * 3600, "h", 3600, "m", 60),
    (48 * 3600, "h", 3600, "", 1),
    (8 * 86400, "d", 86400, "h", 3600),
)


def duration_text(seconds: float) -> str:
    """Format a duration as kubectl prints ages, with two units at most. -1 s counts as 0, for a
    clock that is a little ahead.
    """
    whole = int(seconds)
    if whole < 0:
        return "0s" if whole >= -1 else "<invalid>"
    for limit_s, unit, unit_s, smaller, smaller_s in _DURATIONS:
        if whole < limit_s:
            rest = whole % unit_s // smaller_s
            return (
                f"{whole // unit_s}{unit}{rest}{smaller}"
                if smaller and rest
                else f"{whole // unit_s}{unit}"
            )
    return f"{whole // 86400}d"


def age(when: str | None, now_s: float) -> str:
    """Return how long ago a timestamp was."""
    if not when:
        return "<unknown>"
    try:
        return duration_text(now_s - datetime.fromisoformat(when).timestamp())
    except ValueError:
        return "<invalid>"


def _age(obj: Obj, now_s: float) -> str:
    return age(obj["metadata"].get("creationTimestamp"), now_s)


def pod_status_text(pod: Obj) -> str:
    """Return the STATUS column of a pod."""
    status = pod.get("status") or {}
    text = str(status.get("reason") or status.get("phase") or "Unknown")
    if condition_in(pod, "PodScheduled").get("reason") == "SchedulingGated":
        text = "SchedulingGated"
    for container in status.get("containerStatuses") or ():
        state = container.get("state") or {}
        for kind in ("waiting", "terminated"):
            text = str((state.get(kind) or {}).get("reason") or text)
    return "Terminating" if pod["metadata"].get("deletionTimestamp") else text


def _pod(pod: Obj, now_s: float) -> list[Cell]:
    status, spec = pod.get("status") or {}, pod["spec"]
    containers = status.get("containerStatuses") or ()
    ready = sum(bool(container.get("ready")) for container in containers)
    return [
        pod["metadata"]["name"],
        f"{ready}/{len(spec.get('containers') or ())}",
        pod_status_text(pod),
        str(sum(int(container.get("restartCount") or 0) for container in containers)),
        _age(pod, now_s),
        status.get("podIP") or "<none>",
        spec.get("nodeName") or "<none>",
        status.get("nominatedNodeName") or "<none>",
        "<none>",
    ]


def _node(node: Obj, now_s: float) -> list[Cell]:
    status, labels = node.get("status") or {}, node["metadata"].get("labels") or {}
    ready = text(condition_in(node, "Ready"), "status")
    words = {"True": "Ready", "": "Unknown"}.get(ready, "NotReady")
    if (node.get("spec") or {}).get("unschedulable"):
        words += ",SchedulingDisabled"
    prefix = "node-role.kubernetes.io/"
    roles = ",".join(
        sorted(label.removeprefix(prefix) for label in labels if label.startswith(prefix))
    )
    addresses = {item["type"]: item["address"] for item in status.get("addresses") or ()}
    info = status.get("nodeInfo") or {}
    return [
        node["metadata"]["name"],
        words,
        roles or "<none>",
        _age(node, now_s),
        info.get("kubeletVersion") or "",
        addresses.get("InternalIP", "<none>"),
        addresses.get("ExternalIP", "<none>"),
        info.get("osImage") or "<unknown>",
        info.get("kernelVersion") or "<unknown>",
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def _stateful_set(obj: Obj, now_s: float) -> list[Cell]:
    ready = (obj.get("status") or {}).get("readyReplicas", 0)
    containers = obj["spec"]["template"]["spec"].get("containers") or ()
    return [
        obj["metadata"]["name"],
        f"{ready}/{obj['spec'].get('replicas', 0)}",
        _age(obj, now_s),
        ",".join(container["name"] for container in containers),
        ",".join(container.get("image", "") for container in containers),
    ]


def _event(event: Obj, now_s: float) -> list[Cell]:
    regarding = event.get("involvedObject") or {}
    return [
        age(event.get("lastTimestamp"), now_s),
        event.get("type"),
        event.get("reason"),
        f"{str(regarding.get('kind', '')).lower()}/{regarding.get('name', '')}",
        (event.get("message") or "").strip(),
        event["metadata"]["name"],
    ]


def _namespace(obj: Obj, now_s: float) -> list[Cell]:
    return [obj["metadata"]["name"], (obj.get("status") or {}).get("phase", ""), _age(obj, now_s)]


def _lease(obj: Obj, now_s: float) -> list[Cell]:
    return [
        obj["metadata"]["name"],
        (obj.get("spec") or {}).get("holderIdentity") or "",
        _age(obj, now_s),
    ]


def _webhooks(obj: Obj, now_s: float) -> list[Cell]:
    return [obj["metadata"]["name"], len(obj.get("webhooks") or ()), _age(obj, now_s)]


def _definition(obj: Obj, _now_s: float) -> list[Cell]:
    return [obj["metadata"]["name"], obj["metadata"]["creationTimestamp"]]


def _other(obj: Obj, now_s: float) -> list[Cell]:
    return [obj["metadata"]["name"], _age(obj, now_s)]


_NAME: Final = Column("Name", format="name")
_AGE: Final = Column("Age")


def _wide(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, priority=1) for name in names)


_BUILT_IN: Final[Mapping[Resource, tuple[tuple[Column, ...], Cells]]] = {
    PODS: (
        (
            _NAME,
            Column("Ready"),
            Column("Status"),
            Column("Restarts"),
            _AGE,
            *_wide("IP", "Node", "Nominated Node", "Readiness Gates"),
        ),
        _pod,
    ),
    NODES: (
        (
            _NAME,
            Column("Status"),
            Column("Roles"),
            _AGE,
            Column("Version"),
            *_wide("Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"),
        ),
        _node,
    ),
    STATEFULSETS: (
        (_NAME, Column("Ready"), _AGE, *_wide("Containers", "Images")),
        _stateful_set,
    ),
    CORE_EVENTS: (
        (
            Column("Last Seen"),
            Column("Type"),
            Column("Reason"),
            Column("Object"),
            Column("Message"),
            Column("Name", format="name", priority=1),
        ),
        _event,
    ),
    NAMESPACES: ((_NAME, Column("Status"), _AGE), _namespace),
    LEASES: ((_NAME, Column("Holder"), _AGE), _lease),
    MUTATING_WEBHOOKS: (
        (_NAME, Column("Webhooks", "integer"), _AGE),
        _webhooks,
    ),
    VALIDATING_WEBHOOKS: (
        (_NAME, Column("Webhooks", "integer"), _AGE),
        _webhooks,
    ),
    CRDS: ((_NAME, Column("Created At", "date")), _definition),
}


def json_path(obj: Any, path: str) -> Any:
    """Return the value at a printer column's jsonPath (fields, indexes, one-field filters); None if
    there is none.
    """
    value = obj
    for step in _STEP.finditer(path):
        name, index, quoted, field, wanted = step.groups()
        if field is not None:
            found = [
                item
                for item in value or ()
                if isinstance(item, dict) and str(item.get(field)) == wanted
            ]
            value = found[0] if found else None
        elif index is not None:
            value = (
                value[int(index)] if isinstance(value, list) and int(index) < len(value) else None
            )
        else:
            value = value.get(name or quoted) if isinstance(value, dict) else None
        if value is None:
            return None
    return value


def _custom_columns(kind: Kind) -> tuple[tuple[Column, ...], Cells]:
    given = kind.columns or (
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    )
    columns = [
        Column(
            item["name"],
            item["type"],
            item.get("format", ""),
            item.get("description", ""),
            item.get("priority", 0),
        )
        for item in given
    ]

    def cells(obj: Obj, now_s: float) -> list[Cell]:
        return [obj["metadata"]["name"], *(_custom_cell(obj, item, now_s) for item in given)]

    return (_NAME, *columns), cells


def _custom_cell(obj: Obj, column: Mapping[str, Any], now_s: float) -> Cell:
    value = json_path(obj, column["jsonPath"])
    if value is None:
        return None
    if column["type"] == "date":
        return age(str(value), now_s)
    return value if column["type"] in ("integer", "number", "boolean") else str(value)


def table(
    kind: Kind, objects: Sequence[Obj], *, now_s: float, include: str, metadata: Mapping[str, Any]
) -> Obj:
    """Return a meta.k8s.io/v1 Table. ``include``: None, Metadata or Object."""
    built_in = _BUILT_IN.get(kind.resource, ((_NAME, _AGE), _other))
    # Items of lists come without kind and apiVersion.
    gvk = {"kind": kind.resource.kind, "apiVersion": kind.resource.api_version}
    columns, cells = _custom_columns(kind) if kind.custom else built_in
    return {
        "kind": "Table",
        "apiVersion": TABLE_API_VERSION,
        "metadata": dict(metadata),
        "columnDefinitions": [asdict(column) for column in columns],
        "rows": [
            {"cells": cells(obj, now_s), "object": _included({**gvk, **obj}, include)}
            for obj in objects
        ],
    }


def _included(obj: Obj, include: str) -> Obj | None:
    if include == "None":
        return None
    if include == "Object":
        return obj
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": TABLE_API_VERSION,
        "metadata": obj["metadata"],
    }
