"""The binding subresource of pods: it sets the node and the annotations in one write, once.

As in kube-apiserver's ``assignPod``, the pod must not be bound or being deleted. The Binding's uid
and resourceVersion are preconditions. Its annotations overwrite the pod's, and PodScheduled becomes
True. The node need not exist. The pod's generation does not change.
"""

from dataclasses import replace
from typing import Any

from extender.kube.api import PODS, Binding, Conflict, Obj
from extender.lab.apiserver.statuses import bad_request, conflict, precondition_failed
from extender.lab.apiserver.store import Entry
from extender.lab.apiserver.strategy import rfc3339


def own(binding: Binding) -> Binding:
    """Return the binding with a copy of its annotations, which the caller cannot change."""
    return replace(binding, annotations=dict(binding.annotations))


def from_object(obj: Any, *, namespace: str = "", name: str = "") -> Binding:
    """Decode a v1 Binding. Raises ApiError 400."""
    try:
        metadata, target = obj.get("metadata") or {}, obj["target"]
        return Binding(
            namespace=str(metadata.get("namespace") or namespace),
            name=str(metadata.get("name") or name),
            node=str(target["name"]),
            uid=str(metadata.get("uid") or ""),
            resource_version=str(metadata.get("resourceVersion") or ""),
            annotations=dict(metadata.get("annotations") or {}),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as problem:
        raise bad_request("the object provided is not a Binding with a target") from problem


def bound(entry: Entry, binding: Binding, now_s: float) -> Obj:
    """Return the bound pod as it will be stored. Raises Conflict."""
    pod = entry.copy()
    metadata = pod["metadata"]
    if binding.uid and binding.uid != entry.uid:
        raise precondition_failed(PODS, entry.key, "UID", binding.uid, entry.uid)
    if binding.resource_version and binding.resource_version != str(entry.version):
        found = str(entry.version)
        raise precondition_failed(
            PODS, entry.key, "ResourceVersion", binding.resource_version, found
        )
    if metadata.get("deletionTimestamp"):
        raise _refused(
            binding, f"pod {binding.name} is being deleted, cannot be assigned to a host"
        )
    if node := pod["spec"].get("nodeName"):
        raise _refused(binding, f'pod {binding.name} is already assigned to node "{node}"')
    if pod["spec"].get("schedulingGates"):
        raise _refused(binding, f"pod {binding.name} has non-empty .spec.schedulingGates")
    pod["spec"]["nodeName"] = binding.node
    if binding.annotations:
        metadata.setdefault("annotations", {}).update(binding.annotations)
    pod.setdefault("status", {}).pop("nominatedNodeName", None)
    _set_scheduled(pod, rfc3339(now_s))
    return pod


def _set_scheduled(pod: Obj, when: str) -> None:
    conditions = pod.setdefault("status", {}).setdefault("conditions", [])
    kept = [condition for condition in conditions if condition.get("type") != "PodScheduled"]
    scheduled = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": when,
    }
    pod["status"]["conditions"] = [*kept, scheduled]


def _refused(binding: Binding, why: str) -> Conflict:
    refused = conflict(PODS, binding.name, why)
    message = refused.message.replace('on pods "', 'on pods/binding "', 1)
    return Conflict(refused.status, refused.reason, message)
