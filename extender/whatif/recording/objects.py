"""Objects in a recording: Kubernetes' own form, with only the fields that decisions look at. Pure.

``put_of`` is the inverse of ``decode``: the result decodes to the same value, except for what
no decision looks at (resourceVersions, conditions, kube-scheduler's refusal of a pod, and how a pod
requests its slots). Nothing else of an object is recorded: no environment, no command, no
annotation of others. Secrets are never read.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from extender.engine.state.state_observer import Recorded
from extender.model import decode, names
from extender.model.decode_tenancy import quota_from
from extender.model.errors import LedgerTooLarge
from extender.model.ledger import encode_ledger
from extender.model.node_fit import NodeFit, NodeRequirement
from extender.model.objects import (
    AdapterPod,
    AdapterPool,
    LabelSelector,
    Namespace,
    Node,
    Rollout,
    Scaling,
    SelectorRequirement,
    StatefulSet,
    VPod,
    split_key,
)
from extender.model.reading import Json, mapping, text
from extender.model.tenancy import VReplicaQuota

Manifest = dict[str, object]

_DELETED: Final = "1970-01-01T00:00:00Z"
"""Decisions do not look at the time of deletion."""


_READERS: Final[Mapping[str, Callable[[Json], Recorded]]] = {
    "Node": decode.node_from,
    "Namespace": decode.namespace_from,
    "StatefulSet": decode.stateful_set_from,
    "AdapterPool": decode.pool_from,
    "Pod": decode.pod_from,
    "VReplicaQuota": quota_from,
    "VPod": decode.vpod_from,
}
KINDS: Final = tuple(_READERS)
"""In the order in which a snapshot has them."""


def kind_of(obj: Recorded) -> str:
    """The kind under which the object is recorded."""
    return "Pod" if isinstance(obj, AdapterPod) else type(obj).__name__


def put_of(obj: Recorded) -> Manifest:
    """The object as it is recorded: ``put`` has its manifest. Beside it stands what a manifest
    cannot say: that a pod's node is not confirmed yet, and the kind and group of a vpod.
    """
    put: Manifest
    beside: Manifest = {}
    match obj:
        case AdapterPod():
            put, beside = _pod(obj), {"assumed": True} if obj.assumed else {}
        case AdapterPool():
            put = _pool(obj)
        case Namespace():
            metadata = _metadata("", obj.name, obj.uid, labels=obj.labels)
            put = {"kind": "Namespace", "metadata": metadata}
        case Node():
            put = _node(obj)
        case StatefulSet():
            put = _stateful_set(obj)
        case VReplicaQuota():
            put = _quota(obj)
        case VPod():
            put, beside = _vpod(obj), {"source": obj.source} if obj.source else {}
    return {"put": put, **beside}


def object_from(put: Json) -> Recorded:
    """Read what ``put_of`` has written. Raises InvalidObject; ValueError for another kind."""
    manifest = mapping(put, "put")
    read = _READERS.get(text(manifest, "kind"))
    if read is None:
        raise ValueError("not a kind that is recorded")
    obj = read(manifest)
    match obj:
        case AdapterPod():
            # No placing looks at what the pod requires of its node, so that is not recorded.
            return replace(obj, assumed=put.get("assumed") is True, fit=None)
        case VPod():
            return replace(obj, source=text(put, "source"))
        case _:
            return obj


def _metadata(
    namespace: str,
    name: str,
    uid: str,
    *,
    generation: int = 0,
    labels: Mapping[str, str] | None = None,
    deleting: bool = False,
) -> Manifest:
    metadata: Manifest = {"namespace": namespace} if namespace else {}
    metadata["name"] = name
    metadata |= {"uid": uid} if uid else {}
    metadata |= {"generation": generation} if generation else {}
    metadata |= {"labels": dict(labels)} if labels else {}
    metadata |= {"deletionTimestamp": _DELETED} if deleting else {}
    return metadata


def _pod(pod: AdapterPod) -> Manifest:
    metadata = _metadata(
        pod.namespace,
        pod.name,
        pod.uid,
        labels={names.POOL_LABEL: split_key(pod.pool)[1]},
        deleting=pod.deleting,
    )
    annotations = {names.SLOTS_ANNOTATION: str(pod.slots)} if pod.slots is not None else {}
    if (ledger := _ledger_text(pod)) is not None:
        annotations[names.PLACEMENTS_ANNOTATION] = ledger
    annotations |= {names.UNSCHEDULABLE_ANNOTATION: "true"} if pod.unschedulable else {}
    if pod.evicting_text is not None:
        annotations[names.EVICTING_ANNOTATION] = pod.evicting_text
    if pod.lease_expired and pod.acknowledged_text is not None:
        annotations[names.ACKNOWLEDGED_ANNOTATION] = pod.acknowledged_text
    if annotations:
        metadata["annotations"] = annotations
    if pod.owner or pod.owner_uid:
        owner = {"kind": "StatefulSet", "name": pod.owner, "controller": True}
        metadata["ownerReferences"] = [owner | ({"uid": pod.owner_uid} if pod.owner_uid else {})]
    spec: Manifest = {"nodeName": pod.node} if pod.node else {}
    spec |= {"schedulerName": pod.scheduler_name} if pod.scheduler_name else {}
    spec |= {"priority": pod.priority} if pod.priority else {}
    is_ready = pod.ready or pod.lease_expired
    ready: Manifest = {"type": "Ready", "status": "True" if is_ready else "False"}
    ready |= {"lastTransitionTime": pod.ready_since} if pod.ready_since else {}
    status: Manifest = {"conditions": [ready]} if is_ready or pod.ready_since else {}
    status |= {"phase": "Failed"} if pod.finished else {}
    return {"kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def _ledger_text(pod: AdapterPod) -> str | None:
    """The ledger that counts. During a bind, this is the one that the bind carries; the annotation
    is older.
    """
    if pod.ledger_error or (pod.ledger_text is None and not pod.ledger):
        return pod.ledger_text
    try:
        return encode_ledger(pod.ledger)
    except LedgerTooLarge:
        return pod.ledger_text


def _node(node: Node) -> Manifest:
    labels = dict(node.labels)
    if node.zone != names.UNKNOWN_ZONE:
        labels[names.ZONE_LABEL] = node.zone
    spec: Manifest = {"unschedulable": True} if node.cordoned else {}
    if node.taints:
        spec["taints"] = [{"key": t.key, "value": t.value, "effect": t.effect} for t in node.taints]
    status: Manifest = {
        "conditions": [{"type": "Ready", "status": "True" if node.ready else "False"}]
    }
    if node.slots is not None:
        status["allocatable"] = {names.SLOTS_RESOURCE: str(node.slots)}
    return {
        "kind": "Node",
        "metadata": _metadata("", node.name, node.uid, labels=labels),
        "spec": spec,
        "status": status,
    }


def _stateful_set(stateful_set: StatefulSet) -> Manifest:
    spec: Manifest = {"replicas": stateful_set.replicas}
    if stateful_set.ordinals_start:
        spec["ordinals"] = {"start": stateful_set.ordinals_start}
    template: Manifest = {}
    if stateful_set.template_pool:
        template["metadata"] = {"labels": {names.POOL_LABEL: stateful_set.template_pool}}
    if stateful_set.fit is not None:
        template["spec"] = _pod_spec(stateful_set.fit)
    if template:
        spec["template"] = template
    metadata = _metadata(
        stateful_set.namespace, stateful_set.name, stateful_set.uid, deleting=stateful_set.deleting
    )
    return {"kind": "StatefulSet", "metadata": metadata, "spec": spec}


def _pod_spec(fit: NodeFit) -> Manifest:
    spec: Manifest = {}
    if fit.tolerations:
        spec["tolerations"] = [
            {"key": t.key, "operator": t.operator, "value": t.value, "effect": t.effect}
            for t in fit.tolerations
        ]
    if fit.selector:
        spec["nodeSelector"] = dict(fit.selector)
    if fit.terms is not None:
        required = {"nodeSelectorTerms": [_term(term) for term in fit.terms]}
        spec["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
        }
    return spec


def _term(term: tuple[NodeRequirement, ...]) -> Manifest:
    return {
        "matchExpressions": [_requirement(one) for one in term if not one.is_field],
        "matchFields": [_requirement(one) for one in term if one.is_field],
    }


def _requirement(one: NodeRequirement | SelectorRequirement) -> Manifest:
    return {"key": one.key, "operator": one.operator, "values": list(one.values)}


def _pool(pool: AdapterPool) -> Manifest:
    spec: Manifest = {
        "statefulSet": pool.stateful_set,
        "slotsPerPod": pool.slots_per_pod,
        "minPods": pool.min_pods,
        "minPodsPerVPod": pool.min_pods_per_vpod,
        "scaleDownPeriodSeconds": pool.scale_down_period_s,
        "rescheduleAfterSeconds": pool.reschedule_after_s,
        "rebalance": {
            "movesPerPeriod": pool.moves_per_period,
            "cooldownSeconds": pool.move_cooldown_s,
            "dryRun": pool.move_dry_run,
            "makeRoomBeforeGrowing": pool.make_room_before_growing,
            **(
                {"load": {"metric": pool.load.metric, "target": pool.load.target}}
                if pool.load is not None
                else {}
            ),
        },
        "profile": pool.profile,
    }
    spec |= {"maxPods": pool.max_pods} if pool.max_pods is not None else {}
    spec |= {"loadSource": pool.load_source} if pool.load_source else {}
    if (handoff := pool.handoff) is not None:
        spec["handoff"] = {
            "mode": str(handoff.mode),
            "prepareTimeoutSeconds": handoff.prepare_timeout_s,
            "drainTimeoutSeconds": handoff.drain_timeout_s,
        }
    if pool.rollout != Rollout():
        rollout = pool.rollout
        spec["rollout"] = {"strategy": str(rollout.strategy), "surge": rollout.surge}
    if pool.scaling != Scaling():
        announced = pool.scaling.announced_replicas
        spec["scaling"] = {
            "mode": str(pool.scaling.mode),
            **({"announcedReplicas": announced} if announced is not None else {}),
        }
    spec |= {"capacities": dict(pool.capacities)} if pool.capacities else {}
    if selector := _selector(pool.namespace_selector):
        spec["namespaceSelector"] = selector
    if (tenancy := pool.tenancy) is not None:
        spec["tenancy"] = {
            "defaultGuarantee": tenancy.default_guarantee,
            **(
                {"defaultLimit": tenancy.default_limit} if tenancy.default_limit is not None else {}
            ),
            "weights": dict(tenancy.weights),
            **({"tenantLabel": tenancy.tenant_label} if tenancy.tenant_label else {}),
        }
    if (preemption := pool.preemption) is not None:
        slots = preemption.slots_per_period
        spec["preemption"] = {
            "patienceSeconds": preemption.patience_s,
            **({"slotsPerPeriod": slots} if slots is not None else {}),
        }
    metadata = _metadata(
        pool.namespace, pool.name, pool.uid, generation=pool.generation, deleting=pool.deleting
    )
    metadata |= {"creationTimestamp": pool.created_at} if pool.created_at else {}
    return {"kind": "AdapterPool", "metadata": metadata, "spec": spec}


def _quota(quota: VReplicaQuota) -> Manifest:
    namespace, name = split_key(quota.pool)
    spec: Manifest = {"poolRef": {"namespace": namespace, "name": name}}
    spec |= {"guarantee": quota.guarantee} if quota.guarantee is not None else {}
    spec |= {"limit": quota.limit} if quota.limit is not None else {}
    metadata = _metadata(quota.namespace, quota.name, quota.uid, generation=quota.generation)
    metadata |= {"creationTimestamp": quota.created_at} if quota.created_at else {}
    return {"kind": "VReplicaQuota", "metadata": metadata, "spec": spec}


def _selector(selector: LabelSelector) -> Manifest:
    written: Manifest = {}
    if selector.match_labels:
        written["matchLabels"] = dict(selector.match_labels)
    if selector.match_expressions:
        written["matchExpressions"] = [_requirement(one) for one in selector.match_expressions]
    return written


def _vpod(vpod: VPod) -> Manifest:
    namespace, name = split_key(vpod.pool)
    metadata = _metadata(
        vpod.namespace, vpod.name, vpod.uid, generation=vpod.generation, deleting=vpod.deleting
    )
    spec: Manifest = {
        "poolRef": {"namespace": namespace, "name": name},
        "vreplicas": vpod.asked,
    }
    spec |= {"slotsPerVReplica": vpod.weight} if vpod.weight != 1 else {}
    spec |= {"perVReplica": dict(vpod.per_vreplica)} if vpod.per_vreplica else {}
    spec |= {"priority": vpod.priority} if vpod.priority else {}
    spec |= {"minAvailable": vpod.min_available} if vpod.min_available else {}
    spec |= {"placement": {"maxPerPod": vpod.max_per_pod}} if vpod.max_per_pod else {}
    spec |= {} if vpod.preempts else {"preemptionPolicy": names.PREEMPT_NEVER}
    placements = [{"podName": pod, "vreplicas": count} for pod, count in vpod.placements.items()]
    status: Manifest = {"placements": placements} if placements else {}
    status |= {"observedGeneration": vpod.observed_generation} if vpod.observed_generation else {}
    metadata |= {"creationTimestamp": vpod.created_at} if vpod.created_at else {}
    return {"kind": "VPod", "metadata": metadata, "spec": spec, "status": status}
