"""Every name that users, manifests and the API server share with this project. They are fixed
(DESIGN 2).
"""

from typing import Final

GROUP: Final = "vreplica.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
CONFIG_API_VERSION: Final = "config.vreplica.dev/v1alpha1"
CONFIG_KIND: Final = "VReplicaSchedulerConfiguration"

SCHEDULER_NAME: Final = "vreplica-scheduler"
DEFAULT_SCHEDULER_NAME: Final = "default-scheduler"
SCHEDULER_NAMES: Final = frozenset({SCHEDULER_NAME, DEFAULT_SCHEDULER_NAME})
"""The schedulers whose pods are bound here by default: our own profile's and, for a kube-scheduler
with a Policy file, the default one.
"""
UNSCHEDULABLE_TAINT: Final = "node.kubernetes.io/unschedulable"
OUT_OF_SERVICE_TAINT: Final = "node.kubernetes.io/out-of-service"
COMPONENT: Final = "vreplica-scheduler"
"""reportingController of our events, and the fieldManager of our writes."""

NAME_CHARS_MAX: Final = 253
"""Kubernetes' limit for the name of an object."""
DEFAULT_NAMESPACE: Final = "default"
"""The namespace that kubectl uses if nothing names another one."""

POOL_LABEL: Final = "vreplica.dev/pool"
"""Label of an adapter pod: the name of its AdapterPool, in the pod's own namespace."""
SLOTS_ANNOTATION: Final = "vreplica.dev/slots"
PLACEMENTS_ANNOTATION: Final = "vreplica.dev/placements"
"""The ledger: what an adapter pod carries. Only this project writes it."""
ASSIGNMENT_ANNOTATION: Final = "vreplica.dev/assignment"
"""On an adapter pod: what the adapter is told (``model.assignment``). Only this project writes it.
"""
ACKNOWLEDGED_ANNOTATION: Final = "vreplica.dev/acknowledged"
"""On an adapter pod: what the adapter has said of it. Only this project writes it."""
EVICTING_ANNOTATION: Final = "vreplica.dev/evicting"
"""On an adapter pod: somebody tries to evict it (``model.eviction``). The webhook writes it, and
the service removes it.
"""
EVICTION_WEBHOOK_NAME: Final = "evictions.vreplica.dev"
"""The webhook that evictions of adapter pods wait for, as the chart registers it. The API server
names it in a refusal.
"""
UNSCHEDULABLE_ANNOTATION: Final = "vreplica.dev/unschedulable"
RELEASED_ANNOTATION: Final = "vreplica.dev/released-at"
"""On a VPod: when a person has released it from its quarantine (RFC 3339)."""
ALLOW_DELETION_ANNOTATION: Final = "vreplica.dev/allow-deletion"
"""On an AdapterPool: allows its deletion although VPods use it."""
KNATIVE_UNSCHEDULABLE_ANNOTATION: Final = "eventing.knative.dev/unschedulable"
REVISION_LABEL: Final = "controller-revision-hash"
"""The StatefulSet controller's label of its pods: the revision of the template."""
RETRY_ANNOTATION: Final = "vreplica.dev/retry"
"""Patched on a refused pending pod, so that kube-scheduler tries the pod again at once."""
SLOTS_RESOURCE: Final = "vreplica.dev/slots"
"""Extended resource. kube-scheduler's ``managedResources`` selects adapter pods by it."""

PREEMPT_NEVER: Final = "Never"
"""The preemptionPolicy of who waits for free room."""
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
UNKNOWN_ZONE: Final = "unknown"
"""Zone of a node without the zone label, as in Knative."""
UNREACHABLE_TAINT: Final = "node.kubernetes.io/unreachable"
NOT_READY_TAINT: Final = "node.kubernetes.io/not-ready"

CONDITION_PREFIX: Final = "vreplica.dev/"
"""Before the types of the conditions that we write to objects of foreign kinds. Their own
controllers have types such as Scheduled, too (Knative's KafkaSource has).
"""

LEASE_NAME: Final = "vreplica-scheduler"
OWN_NAMESPACE: Final = "vreplica-system"
"""The namespace of the service, the webhook and the Lease in our manifests."""
BUCKETS_ANNOTATION: Final = "vreplica.dev/buckets"
"""On the Lease: the number of buckets that all replicas use. Absent: one."""
PREFERRED_HOLDER_ANNOTATION: Final = "vreplica.dev/preferred-holder"
"""On a bucket's Lease: the replica that asks for it."""

KEY_BYTES_MAX: Final = 63 + 1 + 253 + 1 + 253 + 64
"""The longest key of a vpod: namespace, name, and kind and group of a foreign kind."""
LEDGER_BYTES_MAX: Final = 128 * 1024
TENANT_BYTES_MAX: Final = LEDGER_BYTES_MAX // 2
"""The part of a ledger that the vpods of one namespace may use."""
ASSIGNMENT_BYTES_MAX: Final = 96 * 1024
ACKNOWLEDGED_BYTES_MAX: Final = 24 * 1024
"""Kubernetes allows 256 KiB for all annotations of an object. The three limits leave 8 KiB of it.
"""
