"""Values that the API server fills in: the defaults of built-in kinds, and mutating admission
plugins.

The plugins here are DefaultTolerationSeconds, Priority and TaintNodesByCondition. They run before
the webhooks, so a webhook sees a pod's tolerations and priority.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from extender.kube.api import (
    CRDS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    PODS,
    STATEFULSETS,
    VALIDATING_WEBHOOKS,
    Forbidden,
    Obj,
    Resource,
)
from extender.lab.apiserver import encoding
from extender.lab.apiserver.registry import DEPLOYMENTS
from extender.lab.apiserver.statuses import forbidden
from extender.model.names import DEFAULT_SCHEDULER_NAME, NOT_READY_TAINT, UNREACHABLE_TAINT

TOLERATION_S: Final = 300
SYSTEM_PRIORITIES: Final[Mapping[str, int]] = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}
PriorityClassOf = Callable[[str], Obj | None]
"""Name -> PriorityClass; "" -> the global default."""


def pod_spec_defaults(spec: Obj) -> None:
    """Apply SetDefaults_PodSpec and the defaults of containers."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    if not spec.get("schedulerName"):
        spec["schedulerName"] = DEFAULT_SCHEDULER_NAME
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        _container_defaults(container)


def _container_defaults(container: Obj) -> None:
    image = str(container.get("image", ""))
    tag = image.rpartition("/")[2].partition(":")[2]
    container.setdefault("resources", {})
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("imagePullPolicy", "Always" if tag in ("", "latest") else "IfNotPresent")
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")


def _pod(obj: Obj) -> None:
    """Apply SetDefaults_Pod: the defaults that pods have, but not pod templates."""
    spec = obj.setdefault("spec", {})
    pod_spec_defaults(spec)
    spec.setdefault("enableServiceLinks", True)
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        resources = container["resources"]
        for name, amount in (resources.get("limits") or {}).items():
            resources.setdefault("requests", {}).setdefault(name, amount)


def _stateful_set(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    spec.setdefault("podManagementPolicy", "OrderedReady")
    strategy = spec.setdefault("updateStrategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("partition", 0)
        rolling.setdefault("maxUnavailable", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault(
        "persistentVolumeClaimRetentionPolicy", {"whenDeleted": "Retain", "whenScaled": "Retain"}
    )
    _template(spec)


def _deployment(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)
    _template(spec)


def _template(spec: Obj) -> None:
    template = spec.setdefault("template", {})
    template.setdefault("metadata", {})
    pod_spec_defaults(template.setdefault("spec", {}))


def _namespace(obj: Obj) -> None:
    name = obj["metadata"].get("name")
    if name:
        obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = name
    # Only a new namespace gets the finalizer. Its later removal lets the namespace go.
    if "uid" not in obj["metadata"]:
        obj.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])


def _node(obj: Obj) -> None:
    # The API server writes these fields even when empty, and clients index them.
    obj.setdefault("spec", {})
    obj.setdefault("status", {})


def _definition(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("conversion", {"strategy": "None"})
    names = spec.setdefault("names", {})
    if kind := names.get("kind"):
        names.setdefault("singular", kind.lower())
        names.setdefault("listKind", f"{kind}List")


def _webhooks(obj: Obj) -> None:
    for webhook in obj.get("webhooks") or ():
        webhook.setdefault("failurePolicy", "Fail")
        webhook.setdefault("matchPolicy", "Equivalent")
        webhook.setdefault("namespaceSelector", {})
        webhook.setdefault("objectSelector", {})
        webhook.setdefault("timeoutSeconds", 10)
        if obj.get("kind") == MUTATING_WEBHOOKS.kind:
            webhook.setdefault("reinvocationPolicy", "Never")
        for rule in webhook.get("rules") or ():
            rule.setdefault("scope", "*")
        service = (webhook.get("clientConfig") or {}).get("service")
        if service is not None:
            service.setdefault("port", 443)


_DEFAULTS: Final[Mapping[Resource, Callable[[Obj], None]]] = {
    PODS: _pod,
    STATEFULSETS: _stateful_set,
    DEPLOYMENTS: _deployment,
    NAMESPACES: _namespace,
    NODES: _node,
    CRDS: _definition,
    MUTATING_WEBHOOKS: _webhooks,
    VALIDATING_WEBHOOKS: _webhooks,
}


def apply(resource: Resource, obj: Obj) -> None:
    """Apply the defaults of a built-in kind, then the form in which its Go type is stored. In
    place.
    """
    if (default := _DEFAULTS.get(resource)) is not None:
        default(obj)
    encoding.as_stored(resource, obj)


def taint_until_ready(node: Obj) -> None:
    """TaintNodesByCondition: taint a new node until the node lifecycle controller has seen it
    Ready.

    Schedulers rely on the removal of that taint. kube-scheduler's own hint for an added node also
    compares resources that only an extender counts. So an added node does not wake a pod that
    requests such a resource and was refused for want of cpu, but the change of the taint does.

    A node that is created with a Ready condition gets no taint: tests do so without a controller
    that would remove the taint.
    """
    conditions = node["status"].get("conditions") or ()
    taints = node["spec"].get("taints") or []
    if any(item.get("type") == "Ready" for item in conditions) or any(
        item.get("key") == NOT_READY_TAINT for item in taints
    ):
        return
    node["spec"]["taints"] = [*taints, {"key": NOT_READY_TAINT, "effect": "NoSchedule"}]


def default_tolerations(pod: Obj) -> None:
    """DefaultTolerationSeconds: add tolerations of 300 s for not-ready and unreachable nodes,
    unless the pod has its own.
    """
    tolerations = pod["spec"].get("tolerations") or []
    for taint in (NOT_READY_TAINT, UNREACHABLE_TAINT):
        if not any(_tolerates_no_execute(toleration, taint) for toleration in tolerations):
            tolerations.append(
                {
                    "key": taint,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": TOLERATION_S,
                }
            )
    pod["spec"]["tolerations"] = tolerations


def _tolerates_no_execute(toleration: Mapping[str, Any], taint: str) -> bool:
    return toleration.get("key") in (taint, None, "") and toleration.get("effect") in (
        "NoExecute",
        None,
        "",
    )


def resolve_priority(pod: Obj, priority_class: PriorityClassOf) -> None:
    """Priority admission: set spec.priority and preemptionPolicy from the class. Raises Forbidden
    for an unknown class.
    """
    spec = pod["spec"]
    name = spec.get("priorityClassName") or ""
    if name in SYSTEM_PRIORITIES:
        value, policy = SYSTEM_PRIORITIES[name], "PreemptLowerPriority"
    else:
        found = priority_class(name)
        if found is None and name:
            raise _no_class(pod, name)
        value = int((found or {}).get("value", 0))
        policy = str((found or {}).get("preemptionPolicy") or "PreemptLowerPriority")
        if found is not None:
            spec["priorityClassName"] = found["metadata"]["name"]
    if spec.get("priority") not in (None, value):
        computed = (
            f"priority admission controller computed {value} from the given PriorityClass name"
        )
        why = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; "
            f"{computed}"
        )
        raise forbidden(PODS, _called(pod), why)
    spec["priority"] = value
    spec.setdefault("preemptionPolicy", policy)


def _called(pod: Obj) -> str:
    """Return the pod's name, or its generateName."""
    metadata = pod["metadata"]
    return str(metadata.get("name") or metadata.get("generateName") or "")


def _no_class(pod: Obj, name: str) -> Forbidden:
    why = f"no PriorityClass with name {name} was found"
    return forbidden(PODS, _called(pod), why)
