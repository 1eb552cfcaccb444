"""What the API server fills in on its own: defaults of the built-in kinds, and three admission
plugins.

The plugins are DefaultTolerationSeconds, Priority and the resolution of namespaces' own label; they
run before the webhooks, so a webhook sees a pod with its tolerations and its priority.
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
    """SetDefaults_PodSpec, and those of its containers."""
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
    """What is defaulted in pods and not in the templates of pods: SetDefaults_Pod."""
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
    if (
        "uid" not in obj["metadata"]
    ):  # only when new: their removal is how a namespace's end is allowed
        obj.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])


def _node(obj: Obj) -> None:
    # The server writes these out although they are empty, and clients index them.
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


_DEFAULTS: Final[Mapping[tuple[str, str], Callable[[Obj], None]]] = {
    (resource.group, resource.plural): default
    for resource, default in (
        (PODS, _pod),
        (STATEFULSETS, _stateful_set),
        (DEPLOYMENTS, _deployment),
        (NAMESPACES, _namespace),
        (NODES, _node),
        (CRDS, _definition),
        (MUTATING_WEBHOOKS, _webhooks),
        (VALIDATING_WEBHOOKS, _webhooks),
    )
}


def apply(key: tuple[str, str], obj: Obj) -> None:
    """Defaults of a built-in kind by its group and plural, and the form in which its type is
    stored; in place.
    """
    if (default := _DEFAULTS.get(key)) is not None:
        default(obj)
    encoding.as_stored(key, obj)


def taint_until_ready(node: Obj) -> None:
    """TaintNodesByCondition: a node takes no pods until node lifecycle has seen it Ready.

    Schedulers rely on the end of that taint: kube-scheduler's own hint on an added node does not
    leave out the resources that only an extender counts, so a pod with such a request, refused for
    want of cpu, is woken by the taint's change and not by the node. A node that is created with its
    Ready condition is left alone here: a test's, where no controller would take the taint away.
    """
    conditions = node["status"].get("conditions") or ()
    taints = node["spec"].get("taints") or []
    if any(item.get("type") == "Ready" for item in conditions) or any(
        item.get("key") == NOT_READY_TAINT for item in taints
    ):
        return
    node["spec"]["taints"] = [*taints, {"key": NOT_READY_TAINT, "effect": "NoSchedule"}]


def default_tolerations(pod: Obj) -> None:
    """DefaultTolerationSeconds: pods stay 300 s on a node that is not ready or unreachable, unless
    they say.
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
    """Priority admission: spec.priority and preemptionPolicy from the class. Raises Forbidden for
    an unknown one.
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
    """Its name, or what its name will begin with."""
    metadata = pod["metadata"]
    return str(metadata.get("name") or metadata.get("generateName") or "")


def _no_class(pod: Obj, name: str) -> Forbidden:
    why = f"no PriorityClass with name {name} was found"
    return forbidden(PODS, _called(pod), why)
