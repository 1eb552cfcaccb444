"""How a new adapter pod is stamped: a pure function to RFC 6902 operations.

    label vreplica.dev/pool?  --no-->  nothing at all
        | yes
    spec.schedulerName           ours, if it is empty or the default one. "Ours" may be configured
                                 to be the default one, for a cluster whose own kube-scheduler
                                 calls the extender (one with a Policy file has no other name)
    annotation .../slots         the pool's slotsPerPod, only with a known pool
    annotation .../placements    "{}": the bind writes the real ledger. Absent on a pod that is
                                 created with a node name: the service treats that pod as bound by
                                 another scheduler, and gives it its ledger
    annotations .../assignment, .../acknowledged, .../evicting
                                 removed: they are another pod's, in a template copied from it
    resource vreplica.dev/slots  with ``Stamp.slots_resource``: "0" on the first container (the
                                 pod's slots with ``slots_counted``). Without it: removed

A kube-scheduler of our own asks the extender about every pod that names it. A shared one asks only
about pods with a resource that ``managedResources`` lists, and looks only at the resource's name.
So the quantity is 0. Then kube-scheduler, its queueing hints and node autoscalers see a pod that
asks for nothing that a node has to offer. Slots are counted by the annotation. If every node
declares slots, kube-scheduler can count them too (``Stamp.slots_counted``).

The answer contains nothing of a tenant's: anybody who reaches the port can make up a review and
read the answer.

A stamped pod needs no further operation. ``reinvocationPolicy: IfNeeded`` depends on this, and so
does a pod template that was copied from a stamped pod. What a client wrote into our annotations is
never used, only replaced or removed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from extender.model import names
from extender.model.objects import AdapterPool, object_key
from extender.model.quantity import quantity
from extender.model.reading import Json, mapping, sequence, text
from webhook.caches import WebhookCaches
from webhook.priority import with_priority
from webhook.review import ALLOWED, AdmissionRequest, PatchOp, Verdict

NO_PLACEMENTS_TEXT: Final = "{}"
_OF_THE_POD_BEFORE: Final = (
    names.ASSIGNMENT_ANNOTATION,
    names.ACKNOWLEDGED_ANNOTATION,
    names.EVICTING_ANNOTATION,
)
"""Annotations that only the service writes, once the pod is there. A template that was copied from
a pod has that pod's.
"""
_REPLACED_SCHEDULERS: Final = frozenset({"", names.DEFAULT_SCHEDULER_NAME})


@dataclass(frozen=True, slots=True)
class Stamp:
    """How adapter pods are sent through the extender."""

    scheduler_name: str = names.SCHEDULER_NAME
    """The profile of the kube-scheduler that calls the extender."""
    slots_resource: bool = False
    """Give them ``vreplica.dev/slots``, for a kube-scheduler that manages it
    (``managedResources``).
    """
    slots_counted: bool = False
    """With ``slots_resource``: request the pod's slots, not 0. kube-scheduler counts what nodes
    declare.
    """


DEFAULT_STAMP: Final = Stamp()


def stamp(
    request: AdmissionRequest, view: WebhookCaches, options: Stamp = DEFAULT_STAMP
) -> Verdict:
    """Return the verdict of ``/mutate``. An adapter pod is always allowed, with a patch at its
    creation; see ``webhook.priority`` for VPods.
    """
    if (request.group, request.resource, request.subresource) == (names.GROUP, "vpods", ""):
        return with_priority(request, view)
    pod = request.object
    if pod is None or (request.group, request.resource, request.subresource) != ("", "pods", ""):
        return ALLOWED
    pool_name = pool_name_of(pod)
    if request.operation != "CREATE" or pool_name is None:
        return ALLOWED
    pool = view.pool(object_key(request.namespace or text(pod, "metadata", "namespace"), pool_name))
    return mutate(pod, pool, options)


def pool_name_of(pod: Json) -> str | None:
    """Return the pool that a pod's label names ("" for an empty label); None if the pod is no
    adapter.
    """
    labels = mapping(pod, "metadata", "labels")
    return text(labels, names.POOL_LABEL) if names.POOL_LABEL in labels else None


def mutate(pod: Json, pool: AdapterPool | None, options: Stamp = DEFAULT_STAMP) -> Verdict:
    """Return how to change ``pod`` (v1 Pod as JSON). Pure; never raises.

    ``pool`` is the pool that its label names, None if no such pool is known.
    """
    pool_name = pool_name_of(pod)
    if pool_name is None:
        return ALLOWED
    warnings: list[str] = []
    if pool is None:
        warnings.append(
            f"AdapterPool {pool_name!r} is not known (label {names.POOL_LABEL}): the pod will not "
            f"be scheduled "
            "until it exists in the pod's namespace"
        )
    slots = None if pool is None else str(pool.slots_per_pod)
    on_a_node = bool(text(mapping(pod, "spec"), "nodeName"))
    annotations = {
        names.SLOTS_ANNOTATION: slots,
        names.PLACEMENTS_ANNOTATION: None if on_a_node else NO_PLACEMENTS_TEXT,
        **dict.fromkeys(_OF_THE_POD_BEFORE),
    }
    return Verdict(
        patch=(
            *_scheduler_ops(pod, options.scheduler_name),
            *_annotation_ops(pod, annotations),
            *_resource_ops(pod, _request(slots, options)),
        ),
        warnings=tuple(warnings),
    )


def _scheduler_ops(pod: Json, wanted: str) -> list[PatchOp]:
    spec = pod.get("spec")
    present = text(mapping(pod, "spec"), "schedulerName")
    if not isinstance(spec, Mapping) or present not in _REPLACED_SCHEDULERS or present == wanted:
        return []
    return [_add("/spec/schedulerName", wanted)]


def _annotation_ops(pod: Json, wanted: Mapping[str, str | None]) -> list[PatchOp]:
    """Operations that make the annotations as ``wanted``; None means absent."""
    present = mapping(pod, "metadata").get("annotations")
    if not isinstance(present, Mapping):
        return [
            _add(
                "/metadata/annotations",
                {key: value for key, value in wanted.items() if value is not None},
            )
        ]
    ops: list[PatchOp] = []
    for key, value in wanted.items():
        path = f"/metadata/annotations/{_escaped(key)}"
        if value is None:
            if key in present:
                ops.append({"op": "remove", "path": path})
        elif present.get(key) != value:
            ops.append(_add(path, value))
    return ops


def _request(slots: str | None, options: Stamp) -> str | None:
    """Return how many slots a pod requests; None if it must not name them."""
    if not options.slots_resource:
        return None
    return slots if options.slots_counted and slots is not None else "0"


def _resource_ops(pod: Json, request: str | None) -> list[PatchOp]:
    """Put ``request`` on the first container and remove it from all others. With None, remove it
    from all.
    """
    ops: list[PatchOp] = []
    for kind in ("containers", "initContainers"):
        for index, container in enumerate(sequence(pod, "spec", kind)):
            if not isinstance(container, Mapping):
                continue
            path = f"/spec/{kind}/{index}/resources"
            if request is not None and kind == "containers" and index == 0:
                ops += _request_ops(container, path, request)
            else:
                ops += _remove_resource_ops(container, path)
    return ops


def _request_ops(container: Json, path: str, request: str) -> list[PatchOp]:
    resources = container.get("resources")
    amount = {names.SLOTS_RESOURCE: request}
    if not isinstance(resources, Mapping):
        return [_add(path, {"limits": amount, "requests": amount})]
    ops: list[PatchOp] = []
    for part in ("limits", "requests"):
        present = resources.get(part)
        if not isinstance(present, Mapping):
            ops.append(_add(f"{path}/{part}", amount))
        elif quantity(present.get(names.SLOTS_RESOURCE)) != int(request):
            ops.append(_add(f"{path}/{part}/{_escaped(names.SLOTS_RESOURCE)}", request))
    return ops


def _remove_resource_ops(container: Json, path: str) -> list[PatchOp]:
    return [
        {"op": "remove", "path": f"{path}/{part}/{_escaped(names.SLOTS_RESOURCE)}"}
        for part in ("limits", "requests")
        if names.SLOTS_RESOURCE in mapping(container, "resources", part)
    ]


def _add(path: str, value: object) -> PatchOp:
    """Set a value, whatever the pod has: ``add`` replaces an existing value and needs only the
    parent.
    """
    return {"op": "add", "path": path, "value": value}


def _escaped(key: str) -> str:
    """A key as one token of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")
