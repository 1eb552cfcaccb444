"""The objects of a measured cluster, as an API server sends them: metadata that nobody asked for
included.

What lists weigh and how long they take to decode is part of what is measured, so a pod here has
what a pod of a real StatefulSet has: owner, managed fields, defaulted spec, conditions.
"""

import itertools
from collections.abc import Mapping
from typing import Final

from extender.kube.api import Obj
from extender.model import names
from extender.model.ledger import Share, encode_ledger

NAMESPACE: Final = "knative-eventing"
TENANT: Final = "tenant"
NAME: Final = "dispatcher"
"""Of the pool and of its StatefulSet."""
POOL: Final = f"{NAMESPACE}/{NAME}"
ZONES: Final = 3
SLOTS_PER_POD: Final = 20
_TIME: Final = "2026-11-20T12:06:10Z"
_versions = itertools.count(1_000)


def next_version() -> str:
    """A resourceVersion newer than all before."""
    return str(next(_versions))


def pod_name(ordinal: int) -> str:
    """Of an adapter pod."""
    return f"{NAME}-{ordinal}"


def vpod_name(number: int) -> str:
    """Of a vpod; they sort by number."""
    return f"consumer-group-{number:06}"


def node_name(number: int) -> str:
    """Of a node."""
    return f"node-{number:05}.internal.example"


STATEFUL_SET_UID: Final = "s0000000"


def uid_of(prefix: str) -> str:
    """A whole UID."""
    return f"{prefix}-4f14-425d-b198-80df05ceb394"


def _metadata(name: str, uid: str, namespace: str = "", **more: object) -> Obj:
    fields = {"f:metadata": {"f:labels": {".": {}, "f:app": {}}}, "f:spec": {"f:replicas": {}}}
    manager = {"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1"}
    metadata: Obj = {
        "name": name,
        "uid": uid_of(uid),
        "resourceVersion": next_version(),
        "generation": 1,
        "creationTimestamp": _TIME,
        "managedFields": [{**manager, "time": _TIME, "fieldsType": "FieldsV1", "fieldsV1": fields}],
        **more,
    }
    if namespace:
        metadata["namespace"] = namespace
    return metadata


def _condition(kind: str, **more: object) -> Obj:
    return {"type": kind, "status": "True", "lastTransitionTime": _TIME, "message": "", **more}


def node(number: int) -> Obj:
    """A Ready node; neighbours are in different zones."""
    name = node_name(number)
    labels = {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "m6i.4xlarge",
        names.ZONE_LABEL: f"zone-{number % ZONES}",
    }
    room = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    kinds = ("MemoryPressure", "DiskPressure", "PIDPressure")
    conditions = [_condition(kind, status="False", reason="KubeletHasSufficient") for kind in kinds]
    return {
        "metadata": _metadata(name, f"n{number:07}", labels=labels),
        "spec": {"podCIDR": "10.0.0.0/24", "providerID": f"cloud:///{name}"},
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": [*conditions, _condition("Ready", reason="KubeletReady")],
            "nodeInfo": {"kubeletVersion": "v1.36.3", "osImage": "Linux", "architecture": "amd64"},
        },
    }


def pod(ordinal: int, node: str, ledger: Mapping[str, Share] | None = None) -> Obj:
    """An adapter pod, stamped by the webhook; bound and Ready if ``node``, else waiting for one."""
    name = pod_name(ordinal)
    labels = {
        "app": NAME,
        "apps.kubernetes.io/pod-index": str(ordinal),
        "controller-revision-hash": "dispatcher-7cf854f4bd",
        "statefulset.kubernetes.io/pod-name": name,
        names.POOL_LABEL: NAME,
    }
    owner = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "name": NAME,
        "uid": uid_of(STATEFUL_SET_UID),
        "controller": True,
    }
    spec = {
        "containers": [_container()],
        **_pod_defaults(name),
        **({"nodeName": node} if node else {}),
    }
    kinds = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    status = {
        "phase": "Running",
        "podIP": "10.0.0.7",
        "conditions": [_condition(kind) for kind in kinds],
    }
    annotations = {
        names.SLOTS_ANNOTATION: str(SLOTS_PER_POD),
        names.PLACEMENTS_ANNOTATION: encode_ledger(ledger or {}),
    }
    return {
        "metadata": _metadata(
            name,
            f"p{ordinal:07}",
            NAMESPACE,
            generateName=f"{NAME}-",
            labels=labels,
            annotations=annotations,
            ownerReferences=[owner],
        ),
        "spec": spec,
        "status": status if node else {"phase": "Pending", "qosClass": "BestEffort"},
    }


def _container() -> Obj:
    token = {
        "name": "kube-api-access",
        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
    }
    return {
        "name": NAME,
        "image": "registry.example/dispatcher:1",
        "env": [{"name": f"SETTING_{number}", "value": "value"} for number in range(6)],
        "resources": {},
        "volumeMounts": [token],
        "terminationMessagePath": "/dev/termination-log",
        "imagePullPolicy": "IfNotPresent",
    }


def _pod_defaults(name: str) -> Obj:
    taints = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    return {
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "hostname": name,
        "subdomain": NAME,
        "schedulerName": names.SCHEDULER_NAME,
        "tolerations": [
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            for key in taints
        ],
        "priority": 0,
    }


def vpod(
    number: int, vreplicas: int, weight: int = 1, placements: Mapping[str, int] | None = None
) -> Obj:
    """A VPod; with ``placements`` (pod name -> vreplicas) one that is placed and has been
    told so.
    """
    status: Obj = {}
    if placements:
        status = {
            "observedGeneration": 1,
            "placements": [
                {"podName": name, "vreplicas": count} for name, count in placements.items()
            ],
            "scheduledVReplicas": sum(placements.values()),
            "conditions": [_condition("Scheduled", reason="AllPlaced")],
        }
    return {
        "metadata": _metadata(vpod_name(number), f"v{number:07}", TENANT),
        "spec": {
            "poolRef": {"namespace": NAMESPACE, "name": NAME},
            "vreplicas": vreplicas,
            "slotsPerVReplica": weight,
        },
        "status": status,
    }


def pool(profile: str, **more: object) -> Obj:
    """The AdapterPool. ``more``: of its spec."""
    spec = {"statefulSet": NAME, "slotsPerPod": SLOTS_PER_POD, "profile": profile, **more}
    return {"metadata": _metadata(NAME, "a0000000", NAMESPACE), "spec": spec, "status": {}}


def stateful_set(replicas: int) -> Obj:
    """Its StatefulSet."""
    labels = {"app": NAME, names.POOL_LABEL: NAME}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [_container()]}}
    spec = {"replicas": replicas, "serviceName": NAME, "template": template}
    return {"metadata": _metadata(NAME, STATEFUL_SET_UID, NAMESPACE), "spec": spec}


def namespace(name: str) -> Obj:
    """A namespace."""
    return {"metadata": _metadata(name, "ns000000", labels={"kubernetes.io/metadata.name": name})}
