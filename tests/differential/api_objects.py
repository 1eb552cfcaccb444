"""What generated operations write: objects of each kind, changes of them, and input that must be
refused.

Every entry is a merge patch: on an empty object for a create, on what is stored for an update.
``bad`` ones are those that a schema, a validation or the decoder refuses; a few of them are
accepted after all, which is then the same on both sides. All times are of the year 2020, so that
they can be told from those that a server sets.
"""

from dataclasses import dataclass
from typing import Any, Final

from extender.kube.api import Obj

WHEN: Final = "2020-01-02T03:04:05Z"
WHEN_EXACTLY: Final = "2020-01-02T03:04:05.000006Z"


@dataclass(frozen=True, slots=True)
class Shapes:
    """Of one kind."""

    base: Obj
    creates: tuple[Any, ...] = ({},)
    bad_creates: tuple[Any, ...] = ()
    changes: tuple[Any, ...] = ()
    bad_changes: tuple[Any, ...] = ()
    statuses: tuple[Any, ...] = ()
    bad_statuses: tuple[Any, ...] = ()
    json: tuple[list[Obj], ...] = ()
    fields: tuple[str, ...] = ("metadata.name!=a",)
    """Field selectors that a fresh object of ``base`` satisfies."""
    bad_fields: tuple[str, ...] = ("spec.nothing=1",)


def _condition(kind: str, status: str, **fields: str) -> Obj:
    return {"type": kind, "status": status, "lastTransitionTime": WHEN, **fields}


METADATA: Final[tuple[Any, ...]] = (
    {"labels": {"tier": "one"}},
    {"labels": {"tier": "two", "extra": ""}},
    {"labels": {"tier": None}},
    {"annotations": {"example.dev/a": "1"}},
    {"annotations": {"example.dev/a": "2", "b": ""}},
    {"annotations": {"example.dev/a": None}},
    {"annotations": None},
    {"labels": {}},
    {"finalizers": ["example.dev/hold"]},
    {"finalizers": ["example.dev/hold", "example.dev/other"]},
    {"finalizers": None},
    {"finalizers": []},
    {
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "$old-uid"}
        ]
    },
    {"ownerReferences": None},
    {"generation": 77},
    {"creationTimestamp": WHEN},
    {"deletionTimestamp": WHEN},
    {"deletionGracePeriodSeconds": 5},
    {"uid": "$uid"},
    {"resourceVersion": "$version"},
    {"managedFields": None},
)
BAD_METADATA: Final[tuple[Any, ...]] = (
    {"labels": {"not a key": "x"}},
    {"labels": {"tier": "not a value!"}},
    {"labels": {"tier": 5}},
    {"labels": "text"},
    {"annotations": {"example.dev/a": 1}},
    {"annotations": {"/": "x"}},
    {"annotations": {"a": "x" * 300_000}},
    {"finalizers": ["nogroup"]},
    {"finalizers": "text"},
    {"name": "another"},
    {"namespace": "another"},
    {"uid": "$old-uid"},
    {"uid": "11111111-1111-4111-8111-111111111111"},
    {"resourceVersion": "$old-version"},
    {"resourceVersion": "1"},
    {"resourceVersion": "abc"},
    {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o"}]},
)
JSON_PATCHES: Final[tuple[list[Obj], ...]] = (
    [
        {"op": "test", "path": "/metadata/resourceVersion", "value": "$version"},
        {"op": "add", "path": "/metadata/labels", "value": {"j": "1"}},
    ],
    [
        {"op": "test", "path": "/metadata/resourceVersion", "value": "$old-version"},
        {"op": "add", "path": "/metadata/labels", "value": {"j": "2"}},
    ],
    [
        {"op": "test", "path": "/metadata/uid", "value": "$uid"},
        {"op": "add", "path": "/metadata/annotations", "value": {"j": "1"}},
    ],
    [
        {"op": "test", "path": "/metadata/uid", "value": "$old-uid"},
        {"op": "add", "path": "/metadata/annotations", "value": {"j": "2"}},
    ],
    [
        {"op": "test", "path": "/metadata/annotations/example.dev~1a", "value": "1"},
        {"op": "replace", "path": "/metadata/annotations/example.dev~1a", "value": "3"},
    ],
    [
        {"op": "test", "path": "/metadata/annotations/example.dev~1a", "value": None},
        {"op": "add", "path": "/metadata/annotations/example.dev~1a", "value": "4"},
    ],
    [{"op": "test", "path": "/metadata/annotations", "value": None}],
    [
        {"op": "test", "path": "/metadata/finalizers/0", "value": "example.dev/hold"},
        {"op": "remove", "path": "/metadata/finalizers/0"},
    ],
    [{"op": "add", "path": "/metadata/annotations/new", "value": "x"}],
    [{"op": "add", "path": "/metadata/labels/tier", "value": "one"}],
    [{"op": "remove", "path": "/metadata/labels/tier"}],
    [{"op": "remove", "path": "/metadata/annotations"}],
    [{"op": "replace", "path": "/metadata/labels", "value": {"r": "1"}}],
    [{"op": "copy", "from": "/metadata/name", "path": "/metadata/labels/copied"}],
    [{"op": "move", "from": "/metadata/labels/tier", "path": "/metadata/labels/moved"}],
    [{"op": "add", "path": "/metadata/finalizers/-", "value": "example.dev/more"}],
    [
        {"op": "replace", "path": "/metadata/resourceVersion", "value": "$old-version"},
        {"op": "add", "path": "/metadata/labels", "value": {"j": "5"}},
    ],
    [{"op": "replace", "path": "/metadata/uid", "value": "$old-uid"}],
    [{"op": "replace", "path": "/metadata/name", "value": "another"}],
    [{"op": "replace", "path": "/kind", "value": "Another"}],
    [{"op": "shout", "path": "/metadata/labels"}],
    [{"op": "add", "path": "metadata", "value": 1}],
    [{"op": "add", "path": "/metadata/labels", "value": "text"}],
    [{"op": "add", "path": "/metadata/labels"}],
    [{"op": "replace", "path": "", "value": {"kind": "Nothing"}}],
    [],
)
"""For every kind."""

_CONTAINER: Final = {"name": "c", "image": "registry.example/a:1"}
_POD_SPEC: Final = {"containers": [_CONTAINER]}


def _with_resources(requests: Any, limits: Any) -> Obj:
    return {
        "spec": {
            "containers": [{**_CONTAINER, "resources": {"requests": requests, "limits": limits}}]
        }
    }


POD: Final = Shapes(
    base={"spec": _POD_SPEC},
    creates=(
        {},
        {},
        {"metadata": {"labels": {"tier": "one"}, "annotations": {"vreplica.dev/slots": "20"}}},
        {"spec": {"nodeName": "$namespace-a"}},
        {"spec": {"terminationGracePeriodSeconds": 100}},
        {"spec": {"terminationGracePeriodSeconds": 0}},
        {
            "spec": {
                "schedulerName": "vreplica-scheduler",
                "priorityClassName": "system-node-critical",
            }
        },
        {"spec": {"schedulingGates": [{"name": "example.dev/wait"}]}},
        {"spec": {"tolerations": [{"operator": "Exists"}], "nodeSelector": {"a": "b"}}},
        {
            "spec": {
                "tolerations": [
                    {
                        "key": "node.kubernetes.io/not-ready",
                        "operator": "Exists",
                        "effect": "NoExecute",
                    }
                ]
            }
        },
        {"spec": {"restartPolicy": "Never", "hostNetwork": True}},
        {"metadata": {"finalizers": ["example.dev/hold"]}},
        _with_resources({"cpu": "100m"}, {"memory": "1Gi"}),
        _with_resources({"cpu": "1", "memory": "1Gi"}, {"cpu": "1", "memory": "1Gi"}),
        _with_resources({}, {"vreplica.dev/slots": "20"}),
        {"status": {"phase": "Running"}},
    ),
    bad_creates=(
        {"spec": {"containers": []}},
        {"spec": {"containers": [{"name": "c"}]}},
        {"spec": {"containers": [{"name": "Not A Name", "image": "x"}]}},
        {"spec": {"containers": [_CONTAINER, _CONTAINER]}},
        {"spec": {"containers": "text"}},
        {"spec": {"nodeName": 5}},
        {"spec": {"nodeName": "Not A Name"}},
        {"spec": {"priorityClassName": "nobody"}},
        {"spec": {"priority": 5}},
        {"spec": {"restartPolicy": "Sometimes"}},
        {"spec": {"terminationGracePeriodSeconds": "soon"}},
        {"spec": {"terminationGracePeriodSeconds": -5}},
        {"spec": {"tolerations": [{"key": "a", "operator": "Near"}]}},
        {"spec": {"schedulingGates": [{"name": "example.dev/wait"}, {"name": "example.dev/wait"}]}},
        {"spec": {"nodeName": "$namespace-a", "schedulingGates": [{"name": "example.dev/wait"}]}},
        {"spec": {"nodeSelector": {"not a key": "b"}}},
        {"spec": None},
        {"metadata": {"name": "Not A Name"}},
        {"metadata": {"name": "-"}},
        {"metadata": {"name": "a" * 254}},
        {"kind": "Node"},
        {"apiVersion": "v2"},
        _with_resources({}, {"cpu": "lots"}),
        _with_resources({"vreplica.dev/slots": "20"}, {}),
        _with_resources({"vreplica.dev/slots": "20"}, {"vreplica.dev/slots": "21"}),
        _with_resources({"vreplica.dev/slots": "500m"}, {"vreplica.dev/slots": "500m"}),
        _with_resources({"cpu": "2"}, {"cpu": "1"}),
    ),
    changes=(
        {"spec": {"containers": [{"name": "c", "image": "registry.example/a:2"}]}},
        {"spec": {"activeDeadlineSeconds": 100}},
        {"spec": {"schedulingGates": None}},
        {"spec": {"tolerations": [{"operator": "Exists"}]}},
        {"status": {"phase": "Failed"}},
    ),
    bad_changes=(
        {"spec": {"nodeName": "$namespace-a"}},
        {"spec": {"nodeName": "$namespace-b"}},
        {"spec": {"nodeName": None}},
        {"spec": {"schedulerName": "another"}},
        {"spec": {"tolerations": None}},
        {"spec": {"schedulingGates": [{"name": "example.dev/new"}]}},
        {"spec": {"nodeSelector": {"c": "d"}}},
        {"spec": {"containers": [{"name": "d", "image": "registry.example/a:2"}]}},
        {"spec": {"terminationGracePeriodSeconds": 7}},
        {"spec": {"priority": 9}},
    ),
    statuses=(
        {"status": {"phase": "Running"}},
        {"status": {"phase": "Succeeded"}},
        {"status": {"phase": "Failed", "reason": "Evicted", "message": "m"}},
        {"status": {"conditions": [_condition("Ready", "True")]}},
        {
            "status": {
                "conditions": [
                    _condition("PodScheduled", "False", reason="Unschedulable", message="none")
                ]
            }
        },
        {"status": {"nominatedNodeName": "$namespace-a"}},
        {"status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}},
        {
            "metadata": {"labels": {"by": "status"}, "annotations": {"by": "status"}},
            "status": {"phase": "Running"},
        },
        {"metadata": {"finalizers": ["example.dev/status"]}},
        {"spec": {"nodeName": "$namespace-b"}, "status": {"phase": "Pending"}},
    ),
    bad_statuses=(
        {"status": {"conditions": "text"}},
        {"status": {"phase": 5}},
        {"status": {"nominatedNodeName": "Not A Name"}},
        {"status": {"podIPs": [{"ip": "nowhere"}]}},
    ),
    json=(
        [{"op": "replace", "path": "/spec/containers/0/image", "value": "registry.example/a:3"}],
        [{"op": "remove", "path": "/spec/schedulingGates/0"}],
        [
            {"op": "test", "path": "/spec/nodeName", "value": "$namespace-a"},
            {"op": "add", "path": "/metadata/annotations", "value": {"bound": "yes"}},
        ],
        [{"op": "add", "path": "/spec/nodeName", "value": "$namespace-a"}],
    ),
    fields=(
        "metadata.name!=a",
        "spec.nodeName=",
        "status.phase=Pending",
        "spec.nodeName!=$namespace-a,status.phase!=Running",
    ),
)

STATEFUL_SET: Final = Shapes(
    base={
        "spec": {
            "serviceName": "s",
            "selector": {"matchLabels": {"app": "s"}},
            "template": {"metadata": {"labels": {"app": "s"}}, "spec": _POD_SPEC},
        }
    },
    creates=(
        {},
        {},
        {"spec": {"replicas": 3, "podManagementPolicy": "Parallel"}},
        {"spec": {"replicas": 0, "ordinals": {"start": 2}}},
        {"spec": {"updateStrategy": {"type": "OnDelete"}}},
        {"metadata": {"labels": {"tier": "one"}, "finalizers": ["example.dev/hold"]}},
        {"status": {"replicas": 7}},
    ),
    bad_creates=(
        {"spec": {"replicas": -1}},
        {"spec": {"replicas": "three"}},
        {"spec": {"selector": None}},
        {"spec": {"selector": {"matchLabels": {"app": "other"}}}},
        {"spec": {"selector": {"matchLabels": None}}},
        {"spec": {"template": None}},
        {"spec": {"template": {"spec": {"containers": []}}}},
        {"spec": {"template": {"spec": {"restartPolicy": "Never"}}}},
        {"spec": {"podManagementPolicy": "Sometimes"}},
        {"spec": {"updateStrategy": {"type": "Never"}}},
        {"spec": {"ordinals": {"start": -1}}},
        {"spec": {"minReadySeconds": -1}},
        {"metadata": {"name": "Not A Name"}},
    ),
    changes=(
        {"spec": {"replicas": 5}},
        {"spec": {"replicas": 1}},
        {"spec": {"template": {"metadata": {"annotations": {"t": "1"}}}}},
        {"spec": {"minReadySeconds": 10}},
        {"spec": {"ordinals": {"start": 1}}},
        {"spec": {"revisionHistoryLimit": 3}},
        {"status": {"replicas": 9}},
    ),
    bad_changes=(
        {"spec": {"serviceName": "t"}},
        {"spec": {"podManagementPolicy": "Parallel", "replicas": 4}},
        {"spec": {"selector": {"matchLabels": {"app": "other"}}}},
        {"spec": {"replicas": -2}},
        {"spec": {"template": {"metadata": {"labels": {"app": "other"}}}}},
    ),
    statuses=(
        {"status": {"replicas": 2, "readyReplicas": 1}},
        {"status": {"replicas": 2, "currentRevision": "r", "observedGeneration": 1}},
        {"metadata": {"labels": {"by": "status"}}, "status": {"replicas": 1}},
        {"spec": {"replicas": 8}, "status": {"replicas": 3}},
    ),
    bad_statuses=(
        {"status": {"replicas": -1}},
        {"status": {"replicas": 1, "readyReplicas": 2}},
        {"status": {"replicas": "many"}},
    ),
    json=(
        [{"op": "replace", "path": "/spec/replicas", "value": 6}],
        [
            {"op": "test", "path": "/spec/replicas", "value": 1},
            {"op": "replace", "path": "/spec/replicas", "value": 2},
        ],
        [{"op": "remove", "path": "/spec/replicas"}],
    ),
)
SCALES: Final[tuple[Any, ...]] = (
    {"spec": {"replicas": 4}},
    {"spec": {"replicas": 0}},
    {"spec": {"replicas": 1}},
    {"metadata": {"resourceVersion": "$version"}, "spec": {"replicas": 7}},
    {"metadata": {"uid": "$uid"}, "spec": {"replicas": 6}},
    {"spec": {}},
)
BAD_SCALES: Final[tuple[Any, ...]] = (
    {"spec": {"replicas": -1}},
    {"spec": {"replicas": "many"}},
    {"spec": "text"},
    {"metadata": {"resourceVersion": "$old-version"}, "spec": {"replicas": 7}},
    {"metadata": {"uid": "$old-uid"}, "spec": {"replicas": 6}},
    {"metadata": {"name": "another"}, "spec": {"replicas": 6}},
    {"metadata": {"labels": {"a": "b"}}, "spec": {"replicas": 5}},
)
SCALE_JSON: Final[tuple[list[Obj], ...]] = (
    [{"op": "replace", "path": "/spec/replicas", "value": 3}],
    [
        {"op": "test", "path": "/spec/replicas", "value": 1},
        {"op": "replace", "path": "/spec/replicas", "value": 2},
    ],
    [
        {"op": "test", "path": "/metadata/resourceVersion", "value": "$version"},
        {"op": "replace", "path": "/spec/replicas", "value": 9},
    ],
    [{"op": "add", "path": "/spec/replicas", "value": "x"}],
)

NODE: Final = Shapes(
    base={},
    creates=(
        {},
        {"spec": {"unschedulable": True}},
        {"spec": {"taints": [{"key": "example.dev/t", "effect": "NoSchedule"}]}},
        {
            "metadata": {"labels": {"topology.kubernetes.io/zone": "z"}},
            "status": {"allocatable": {"cpu": "4", "pods": 10}},
        },
    ),
    bad_creates=(
        {"spec": {"taints": [{"key": "not a key", "effect": "NoSchedule"}]}},
        {"spec": {"taints": [{"key": "a", "effect": "Sometimes"}]}},
        {
            "spec": {
                "taints": [
                    {"key": "a", "effect": "NoSchedule"},
                    {"key": "a", "effect": "NoSchedule"},
                ]
            }
        },
        {"spec": {"unschedulable": "yes"}},
        {"status": {"allocatable": {"cpu": "lots"}}},
    ),
    changes=(
        {"spec": {"unschedulable": True}},
        {"spec": {"unschedulable": None}},
        {"spec": {"taints": [{"key": "example.dev/u", "effect": "NoExecute", "timeAdded": WHEN}]}},
        {"spec": {"taints": None}},
        {"spec": {"providerID": "example://1"}},
        {"status": {"capacity": {"cpu": "9"}}},
    ),
    bad_changes=(
        {"spec": {"providerID": "example://2"}},
        {"spec": {"taints": [{"key": "a", "effect": "Sometimes"}]}},
    ),
    statuses=(
        {"status": {"conditions": [_condition("Ready", "True", lastHeartbeatTime=WHEN)]}},
        {"status": {"conditions": [_condition("Ready", "Unknown", reason="NodeStatusUnknown")]}},
        {
            "status": {
                "capacity": {"cpu": "4"},
                "allocatable": {"cpu": "4", "vreplica.dev/slots": "40"},
            }
        },
        {"metadata": {"labels": {"by": "status"}}, "spec": {"unschedulable": True}},
    ),
    bad_statuses=({"status": {"capacity": {"cpu": "lots"}}}, {"status": {"conditions": {}}}),
    fields=("metadata.name!=a", "spec.unschedulable=false", "spec.unschedulable!=true"),
)
NAMESPACE: Final = Shapes(
    base={},
    creates=({}, {"metadata": {"labels": {"tier": "one"}}}),
    bad_creates=(
        {"metadata": {"labels": {"kubernetes.io/metadata.name": "other"}}},
        {"spec": {"finalizers": ["nogroup"]}},
    ),
    changes=(
        {"metadata": {"labels": {"kubernetes.io/metadata.name": "other"}}},
        {"spec": {"finalizers": None}},
    ),
    statuses=({"status": {"phase": "Terminating"}}, {"metadata": {"labels": {"by": "status"}}}),
    bad_statuses=({"status": {"phase": "Gone"}},),
    fields=("metadata.name!=a", "status.phase=Active"),
)
CONFIG_MAP: Final = Shapes(
    base={"data": {"k": "1"}},
    creates=({}, {"data": {"k": "2", "l": ""}}, {"immutable": True}, {"binaryData": {"b": "AAEC"}}),
    bad_creates=(
        {"data": {"k": 5}},
        {"data": {"not a key": "x"}},
        {"data": "text"},
        {"binaryData": {"k": "AAEC"}},
    ),
    changes=({"data": {"k": "3"}}, {"data": {"k": None}}, {"data": None}, {"immutable": True}),
    bad_changes=({"immutable": None}, {"data": {"k": ["list"]}}),
    json=(
        [
            {"op": "test", "path": "/data/k", "value": "1"},
            {"op": "replace", "path": "/data/k", "value": "2"},
        ],
    ),
)
LEASE: Final = Shapes(
    base={"spec": {"holderIdentity": "one"}},
    creates=(
        {},
        {
            "spec": {
                "leaseDurationSeconds": 15,
                "acquireTime": WHEN_EXACTLY,
                "renewTime": WHEN_EXACTLY,
                "leaseTransitions": 0,
            }
        },
        {"spec": None},
    ),
    bad_creates=(
        {"spec": {"leaseDurationSeconds": 0}},
        {"spec": {"leaseDurationSeconds": -1, "leaseTransitions": -1}},
        {"spec": {"leaseDurationSeconds": "long"}},
        {"spec": {"renewTime": "yesterday"}},
        {"spec": {"renewTime": WHEN}},
    ),
    changes=(
        {"spec": {"holderIdentity": "two", "leaseTransitions": 1}},
        {"spec": {"holderIdentity": None}},
        {"spec": {"holderIdentity": ""}},
        {"spec": {"renewTime": WHEN_EXACTLY}},
        {"spec": {"leaseDurationSeconds": 20}},
    ),
    bad_changes=({"spec": {"leaseDurationSeconds": -2}}, {"spec": {"leaseTransitions": -1}}),
)
EVENT: Final = Shapes(
    base={
        "eventTime": WHEN_EXACTLY,
        "reportingController": "vreplica.dev/scheduler",
        "reportingInstance": "i",
        "action": "Placing",
        "reason": "AllPlaced",
        "type": "Normal",
        "note": "n",
        "regarding": {"kind": "Pod", "namespace": "$namespace", "name": "a"},
    },
    creates=(
        {},
        {"type": "Warning", "note": ""},
        {"series": {"count": 2, "lastObservedTime": WHEN_EXACTLY}},
        {"note": "x" * 1024},
    ),
    bad_creates=(
        {"eventTime": None},
        {"type": "Loud"},
        {"note": "x" * 1025},
        {"reason": ""},
        {"reason": "x" * 129},
        {"action": None},
        {"reportingController": "not qualified/"},
        {"reportingInstance": None},
        {"regarding": {"namespace": "elsewhere"}},
        {"regarding": None},
    ),
    changes=(
        {"series": {"count": 3, "lastObservedTime": WHEN_EXACTLY}},
        {"series": {"count": 4, "lastObservedTime": WHEN_EXACTLY}},
    ),
    bad_changes=(
        {"note": "other"},
        {"reason": "Other"},
        {"eventTime": None},
        {"series": {"count": "x"}},
    ),
    fields=("metadata.name!=a", "reason=AllPlaced", "regarding.name=a,type=Normal"),
)
VPOD: Final = Shapes(
    base={"spec": {"poolRef": {"name": "p"}, "vreplicas": 3}},
    creates=(
        {},
        {},
        {"spec": {"slotsPerVReplica": 2, "vreplicas": 0}},
        {"spec": {"unknown": 1}},
        {"spec": {"perVReplica": {"cpu": 250, "memory-mib": 64}}},
        {"status": {"scheduledVReplicas": 3}},
    ),
    bad_creates=(
        {"spec": None},
        {"spec": {"vreplicas": -1}},
        {"spec": {"vreplicas": None}},
        {"spec": {"vreplicas": "3"}},
        {"spec": {"vreplicas": 1.5}},
        {"spec": {"vreplicas": 2**31}},
        {"spec": {"slotsPerVReplica": 0}},
        {"spec": {"slotsPerVReplica": None}},
        {"spec": {"perVReplica": {"cpu": 0}}},
        {"spec": {"perVReplica": {"cpu": "250m"}}},
        {"spec": {"perVReplica": {"CPU": 1}}},
        {"spec": {"perVReplica": {"slots": 1}}},
        {"spec": {"poolRef": None}},
        {"spec": {"poolRef": {"name": ""}}},
        {"spec": {"poolRef": {"namespace": "Not A Name"}}},
        {"spec": {"poolRef": "p"}},
        {"spec": []},
        {"metadata": {"name": "Not A Name"}},
        {"kind": "VPods"},
    ),
    changes=(
        {"spec": {"vreplicas": 5}},
        {"spec": {"vreplicas": 3}},
        {"spec": {"slotsPerVReplica": 3}},
        {"spec": {"slotsPerVReplica": None}},
        {"spec": {"poolRef": {"name": "q"}}},
        {"status": {"scheduledVReplicas": 9}},
        {"spec": {"unknown": 2}},
    ),
    bad_changes=(
        {"spec": {"vreplicas": -3}},
        {"spec": {"perVReplica": {"cpu": 500}}},
        {"spec": None},
        {"spec": {"poolRef": {"name": None}}},
    ),
    statuses=(
        {
            "status": {
                "scheduledVReplicas": 2,
                "placements": [{"podName": "d-0", "vreplicas": 2}],
                "observedGeneration": 1,
            }
        },
        {
            "status": {
                "conditions": [_condition("Scheduled", "True", reason="AllPlaced", message="")]
            }
        },
        {"status": {"placements": None}},
        {"status": None},
        {"metadata": {"labels": {"by": "status"}}, "status": {"scheduledVReplicas": 0}},
        {"spec": {"vreplicas": 9}, "status": {"scheduledVReplicas": 1}},
        {"status": {"unknown": True, "scheduledVReplicas": 4}},
    ),
    bad_statuses=(
        {
            "status": {
                "placements": [
                    {"podName": "d-0", "vreplicas": 1},
                    {"podName": "d-0", "vreplicas": 2},
                ]
            }
        },
        {"status": {"placements": [{"podName": "d-0", "vreplicas": 0}]}},
        {"status": {"placements": [{"vreplicas": 1}]}},
        {"status": {"conditions": [{"type": "Scheduled", "status": "Maybe"}]}},
        {
            "status": {
                "conditions": [_condition("Scheduled", "True", reason="not one word", message="")]
            }
        },
        {"status": {"scheduledVReplicas": -1}},
        {"status": "text"},
    ),
    json=(
        [{"op": "replace", "path": "/spec/vreplicas", "value": 8}],
        [
            {"op": "test", "path": "/spec/vreplicas", "value": 3},
            {"op": "replace", "path": "/spec/vreplicas", "value": 4},
        ],
        [{"op": "remove", "path": "/spec/vreplicas"}],
        [
            {"op": "test", "path": "/metadata/generation", "value": 1},
            {"op": "add", "path": "/spec/slotsPerVReplica", "value": 4},
        ],
    ),
)
ADAPTER_POOL: Final = Shapes(
    base={"spec": {"statefulSet": "s", "slotsPerPod": 20}},
    creates=(
        {},
        {"spec": {"minPods": 1, "maxPods": 5}},
        {"spec": {"rebalance": {"dryRun": True}, "namespaceSelector": {"matchLabels": {"a": "b"}}}},
        {"spec": {"rescheduleAfterSeconds": 60}},
        {"spec": {"capacities": {"cpu": 4000, "memory-mib": 8192}}},
        {"spec": {"sources": [{"preset": "knative-kafkasource"}]}},
        {"spec": {"rebalance": {"load": {"metric": "requests"}}}},
        {"spec": {"rebalance": {"load": {"metric": "requests", "target": 1.5}}}},
        {"spec": {"rebalance": {"load": {"metric": "requests", "target": 2}}}},
    ),
    bad_creates=(
        {"spec": {"statefulSet": ""}},
        {"spec": {"slotsPerPod": 0}},
        {"spec": {"capacities": {"cpu": 0}}},
        {"spec": {"capacities": {"cpu": 2**31}}},
        {"spec": {"capacities": {"-cpu": 1}}},
        {"spec": {"capacities": {"slots": 1}}},
        {"spec": {"capacities": dict.fromkeys("abcde", 1)}},
        {"spec": {"minPods": 6, "maxPods": 5}},
        {"spec": {"profile": "Not A Name"}},
        {"spec": {"rebalance": {"dryRun": "no"}}},
        {"spec": {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}},
        {"spec": {"sources": [{"preset": 5}]}},
        {"spec": {"slotsPerPod": None}},
        {"metadata": {"name": "a" * 64}},
        {"spec": {"rebalance": {"load": {}}}},
        {"spec": {"rebalance": {"load": {"metric": "a b"}}}},
        {"spec": {"rebalance": {"load": {"metric": "requests", "target": 1}}}},
        {"spec": {"rebalance": {"load": {"metric": "requests", "target": "1.2"}}}},
    ),
    changes=(
        {"spec": {"slotsPerPod": 10}},
        {"spec": {"capacities": {"cpu": 2000}}},
        {"spec": {"capacities": None}},
        {"spec": {"maxPods": 9}},
        {"spec": {"maxPods": None}},
        {"spec": {"rebalance": None}},
    ),
    bad_changes=(
        {"spec": {"slotsPerPod": -1}},
        {"spec": {"statefulSet": "other"}},
        {"spec": {"maxPods": "many"}},
    ),
    statuses=(
        {"status": {"pods": 2, "slots": 40, "usedSlots": 3, "freeSlots": 37}},
        {"status": {"conditions": [_condition("Ready", "True", reason="Ready", message="m")]}},
    ),
    bad_statuses=({"status": {"pods": -1}}, {"status": {"conditions": [{"type": "Ready"}]}}),
    json=([{"op": "replace", "path": "/spec/slotsPerPod", "value": 8}],),
)
SHAPES: Final = {
    "Pod": POD,
    "StatefulSet": STATEFUL_SET,
    "Node": NODE,
    "Namespace": NAMESPACE,
    "ConfigMap": CONFIG_MAP,
    "Lease": LEASE,
    "Event": EVENT,
    "VPod": VPOD,
    "AdapterPool": ADAPTER_POOL,
}
