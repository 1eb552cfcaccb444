"""Validation of pods and pod templates, as far as this project depends on it."""

from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import Any, Final

from extender.kube.api import Obj
from extender.lab.apiserver.encoding import amount
from extender.lab.apiserver.names import (
    LABEL,
    LABEL_WORDS,
    SUBDOMAIN,
    SUBDOMAIN_WORDS,
    is_qualified,
)
from extender.lab.apiserver.store import identical
from extender.model.quantity import quantity

_EFFECTS: Final = ("", "NoSchedule", "PreferNoSchedule", "NoExecute")
_CHANGE_WORDS: Final = (
    "pod updates may not change fields other than "
    "`spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def problems(pod: Obj) -> Iterator[str]:
    """Yield the problems of a pod that is new or has a changed spec."""
    yield from spec_problems(pod.get("spec") or {}, "spec")


def creation_problems(pod: Obj) -> Iterator[str]:
    """Yield further problems of a new pod."""
    spec = pod.get("spec") or {}
    if spec.get("nodeName") and spec.get("schedulingGates"):
        yield "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"


def spec_problems(spec: Obj, path: str) -> Iterator[str]:
    """Yield the problems of the spec of a pod or of a pod template."""
    yield from _containers(spec, path)
    if spec.get("restartPolicy") not in ("Always", "OnFailure", "Never"):
        yield (
            f'{path}.restartPolicy: Unsupported value: "{spec.get("restartPolicy")}": supported '
            f'values: "Always"'
        )
    if spec.get("nodeName") and not SUBDOMAIN.fullmatch(spec["nodeName"]):
        yield f'{path}.nodeName: Invalid value: "{spec["nodeName"]}": {SUBDOMAIN_WORDS}'
    for key in spec.get("nodeSelector") or {}:
        if not is_qualified(key):
            yield (
                f'{path}.nodeSelector: Invalid value: "{key}": name part must consist of '
                f"alphanumeric characters"
            )
    for at, toleration in enumerate(spec.get("tolerations") or ()):
        yield from _toleration(toleration, f"{path}.tolerations[{at}]")
    seen: set[str] = set()
    for at, gate in enumerate(spec.get("schedulingGates") or ()):
        if gate.get("name") in seen:
            yield f'{path}.schedulingGates[{at}]: Duplicate value: "{gate.get("name")}"'
        seen.add(str(gate.get("name")))


def _toleration(toleration: Mapping[str, Any], path: str) -> Iterator[str]:
    operator = toleration.get("operator") or "Equal"
    if operator not in ("Equal", "Exists", "Lt", "Gt"):
        yield (
            f'{path}.operator: Unsupported value: "{operator}": supported values: "Equal", "Exists"'
        )
    if not toleration.get("key") and operator != "Exists":
        yield (
            f"{path}.operator: Invalid value: {operator}: operator must be Exists when `key` is "
            f"empty"
        )
    if (toleration.get("effect") or "") not in _EFFECTS:
        yield (
            f'{path}.effect: Unsupported value: "{toleration["effect"]}": supported values: '
            f'"NoSchedule"'
        )


def _containers(spec: Obj, path: str) -> Iterator[str]:
    containers = spec.get("containers") or []
    if not containers:
        yield f"{path}.containers: Required value"
    seen: set[str] = set()
    for at, container in enumerate(containers):
        name = container.get("name") or ""
        if not name:
            yield f"{path}.containers[{at}].name: Required value"
        elif not LABEL.fullmatch(name):
            yield f'{path}.containers[{at}].name: Invalid value: "{name}": {LABEL_WORDS}'
        elif name in seen:
            yield f'{path}.containers[{at}].name: Duplicate value: "{name}"'
        seen.add(name)
        if not container.get("image"):
            yield f"{path}.containers[{at}].image: Required value"
        yield from _resources(container, f"{path}.containers[{at}].resources")


def _resources(container: Obj, path: str) -> Iterator[str]:
    """Requests stay within limits. Extended resources are integers, with request = limit."""
    resources = container.get("resources") or {}
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for name in sorted({*requests, *limits}):
        extended = "/" in name and not name.startswith("kubernetes.io/")
        for part, amounts in (("limits", limits), ("requests", requests)):
            if extended and name in amounts and quantity(amounts[name]) is None:
                yield f'{path}.{part}[{name}]: Invalid value: "{amounts[name]}": must be an integer'
        if extended and name not in limits:
            yield (
                f"{path}.limits: Required value: Limit must be set for non overcommitable resources"
            )
        elif extended and name in requests and quantity(requests[name]) != quantity(limits[name]):
            words = f"must be equal to {name} limit of {limits[name]}"
            yield f'{path}.requests: Invalid value: "{requests[name]}": {words}'
        elif name in requests and name in limits and _exceeds(requests[name], limits[name]):
            words = f"must be less than or equal to {name} limit of {limits[name]}"
            yield f'{path}.requests: Invalid value: "{requests[name]}": {words}'


def _exceeds(request: Any, limit: Any) -> bool:
    return amount(str(request)) > amount(str(limit))


def status_problems(old: Obj, new: Obj) -> Iterator[str]:
    """Yield the problems of a write to a pod's status."""
    status, before = new.get("status") or {}, old.get("status") or {}
    nominated = status.get("nominatedNodeName")
    if nominated and nominated != before.get("nominatedNodeName") and new["spec"].get("nodeName"):
        yield (
            "status.nominatedNodeName: Forbidden: may not be set on pods that are already bound to "
            "a node"
        )
    if nominated and not SUBDOMAIN.fullmatch(nominated):
        yield f'status.nominatedNodeName: Invalid value: "{nominated}": {SUBDOMAIN_WORDS}'
    for at, address in enumerate(status.get("podIPs") or ()):
        try:
            ip_address(address.get("ip") or "")
        except ValueError:
            yield (
                f'status.podIPs[{at}]: Invalid value: "{address.get("ip")}": must be a valid IP '
                f"address"
            )


def change_problems(old: Obj, new: Obj) -> Iterator[str]:
    """Yield the problems of an update. Only images, activeDeadlineSeconds, additional tolerations
    and the removal of scheduling gates are allowed.
    """
    if identical(old["spec"], new["spec"]):
        return
    tolerations = new["spec"].get("tolerations") or []
    if any(item not in tolerations for item in old["spec"].get("tolerations") or ()):
        yield (
            "spec.tolerations: Forbidden: existing toleration can not be modified except its "
            "tolerationSeconds"
        )
    gates = old["spec"].get("schedulingGates") or ()
    for at, gate in enumerate(new["spec"].get("schedulingGates") or ()):
        if gate not in gates:
            words = f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'"
            yield f"spec.schedulingGates[{at}].name: Forbidden: {words}"
    frozen_old, frozen_new = _frozen_part(old["spec"]), _frozen_part(new["spec"])
    if gates and _narrowed(old["spec"], new["spec"]):
        # While a pod has scheduling gates, its nodeSelector may be extended.
        frozen_old.pop("nodeSelector", None)
        frozen_new.pop("nodeSelector", None)
    if not identical(frozen_old, frozen_new):
        yield f"spec: Forbidden: {_CHANGE_WORDS}"


def _narrowed(old: Obj, new: Obj) -> bool:
    """Return whether every requirement of the old nodeSelector is in the new one."""
    return (old.get("nodeSelector") or {}).items() <= (new.get("nodeSelector") or {}).items()


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
