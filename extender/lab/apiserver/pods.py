"""Validation of pods and pod templates, as far as this project depends on it."""

from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import Any, Final

from extender.config.kube_scheduler import SUBDOMAIN, SUBDOMAIN_RULE
from extender.kube.api import Obj
from extender.lab.apiserver.encoding import amount
from extender.lab.apiserver.field_errors import (
    NAME_PART,
    duplicate,
    forbidden,
    invalid,
    required,
    unsupported,
)
from extender.lab.apiserver.names import LABEL, LABEL_WORDS, is_qualified
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
        yield forbidden(
            "spec.nodeName", "cannot be set until all schedulingGates have been cleared"
        )


def spec_problems(spec: Obj, path: str) -> Iterator[str]:
    """Yield the problems of the spec of a pod or of a pod template."""
    yield from _containers(spec, path)
    if spec.get("restartPolicy") not in ("Always", "OnFailure", "Never"):
        yield unsupported(f"{path}.restartPolicy", spec.get("restartPolicy"), "Always")
    if spec.get("nodeName") and not SUBDOMAIN.fullmatch(spec["nodeName"]):
        yield invalid(f"{path}.nodeName", spec["nodeName"], SUBDOMAIN_RULE)
    for key in spec.get("nodeSelector") or {}:
        if not is_qualified(key):
            yield invalid(f"{path}.nodeSelector", key, NAME_PART)
    for at, toleration in enumerate(spec.get("tolerations") or ()):
        yield from _toleration(toleration, f"{path}.tolerations[{at}]")
    seen: set[str] = set()
    for at, gate in enumerate(spec.get("schedulingGates") or ()):
        if gate.get("name") in seen:
            yield duplicate(f"{path}.schedulingGates[{at}]", gate.get("name"))
        seen.add(str(gate.get("name")))


def _toleration(toleration: Mapping[str, Any], path: str) -> Iterator[str]:
    operator = toleration.get("operator") or "Equal"
    if operator not in ("Equal", "Exists", "Lt", "Gt"):
        yield unsupported(f"{path}.operator", operator, "Equal", "Exists")
    if not toleration.get("key") and operator != "Exists":
        yield invalid(f"{path}.operator", operator, "operator must be Exists when `key` is empty")
    if (toleration.get("effect") or "") not in _EFFECTS:
        yield unsupported(f"{path}.effect", toleration["effect"], "NoSchedule")


def _containers(spec: Obj, path: str) -> Iterator[str]:
    containers = spec.get("containers") or []
    if not containers:
        yield required(f"{path}.containers")
    seen: set[str] = set()
    for at, container in enumerate(containers):
        name, here = container.get("name") or "", f"{path}.containers[{at}]"
        if not name:
            yield required(f"{here}.name")
        elif not LABEL.fullmatch(name):
            yield invalid(f"{here}.name", name, LABEL_WORDS)
        elif name in seen:
            yield duplicate(f"{here}.name", name)
        seen.add(name)
        if not container.get("image"):
            yield required(f"{here}.image")
        yield from _resources(container, f"{here}.resources")


def _resources(container: Obj, path: str) -> Iterator[str]:
    """Requests stay within limits. Extended resources are integers, with request = limit."""
    resources = container.get("resources") or {}
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for name in sorted({*requests, *limits}):
        extended = "/" in name and not name.startswith("kubernetes.io/")
        for part, amounts in (("limits", limits), ("requests", requests)):
            if extended and name in amounts and quantity(amounts[name]) is None:
                yield invalid(f"{path}.{part}[{name}]", amounts[name], "must be an integer")
        if extended and name not in limits:
            yield required(f"{path}.limits", "Limit must be set for non overcommitable resources")
        elif extended and name in requests and quantity(requests[name]) != quantity(limits[name]):
            words = f"must be equal to {name} limit of {limits[name]}"
            yield invalid(f"{path}.requests", requests[name], words)
        elif name in requests and name in limits and _exceeds(requests[name], limits[name]):
            words = f"must be less than or equal to {name} limit of {limits[name]}"
            yield invalid(f"{path}.requests", requests[name], words)


def _exceeds(request: Any, limit: Any) -> bool:
    return amount(str(request)) > amount(str(limit))


def status_problems(old: Obj, new: Obj) -> Iterator[str]:
    """Yield the problems of a write to a pod's status."""
    status, before = new.get("status") or {}, old.get("status") or {}
    nominated = status.get("nominatedNodeName")
    if nominated and nominated != before.get("nominatedNodeName") and new["spec"].get("nodeName"):
        words = "may not be set on pods that are already bound to a node"
        yield forbidden("status.nominatedNodeName", words)
    if nominated and not SUBDOMAIN.fullmatch(nominated):
        yield invalid("status.nominatedNodeName", nominated, SUBDOMAIN_RULE)
    for at, address in enumerate(status.get("podIPs") or ()):
        try:
            ip_address(address.get("ip") or "")
        except ValueError:
            yield invalid(f"status.podIPs[{at}]", address.get("ip"), "must be a valid IP address")


def change_problems(old: Obj, new: Obj) -> Iterator[str]:
    """Yield the problems of an update. Only images, activeDeadlineSeconds, additional tolerations
    and the removal of scheduling gates are allowed.
    """
    if identical(old["spec"], new["spec"]):
        return
    tolerations = new["spec"].get("tolerations") or []
    if any(item not in tolerations for item in old["spec"].get("tolerations") or ()):
        words = "existing toleration can not be modified except its tolerationSeconds"
        yield forbidden("spec.tolerations", words)
    gates = old["spec"].get("schedulingGates") or ()
    for at, gate in enumerate(new["spec"].get("schedulingGates") or ()):
        if gate not in gates:
            words = f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'"
            yield forbidden(f"spec.schedulingGates[{at}].name", words)
    frozen_old, frozen_new = _frozen_part(old["spec"]), _frozen_part(new["spec"])
    if gates and _narrowed(old["spec"], new["spec"]):
        # While a pod has scheduling gates, its nodeSelector may be extended.
        frozen_old.pop("nodeSelector", None)
        frozen_new.pop("nodeSelector", None)
    if not identical(frozen_old, frozen_new):
        yield forbidden("spec", _CHANGE_WORDS)


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
