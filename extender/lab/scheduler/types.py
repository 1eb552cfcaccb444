"""kube-scheduler's view of pods and nodes, and the statuses that its plugins return.

``PodInfo`` is one version of a pod, parsed once and never changed. ``NodeInfo`` is a node with the
pods that run on it or are assumed to. It updates its sums as pods come and go. A cycle works on
clones (see ``cache``).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from itertools import count
from typing import Final

from extender.kube.api import Obj
from extender.lab.scheduler.node_affinity import RequiredNodeAffinity
from extender.lab.scheduler.quantities import Resources, pod_requests, resource_list, resources_of
from extender.lab.scheduler.taints import Taint, Toleration
from extender.model.objects import LabelSelector, object_key
from extender.model.reading import Json, mapping, mappings, selector_from, sequence, text

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
MAX_NODE_SCORE: Final = 100
"""The framework's MaxNodeScore."""


class Code(IntEnum):
    """The framework's status codes that occur here, in the order of kube-scheduler."""

    SUCCESS = 0
    ERROR = 1
    UNSCHEDULABLE = 2
    UNSCHEDULABLE_AND_UNRESOLVABLE = 3

    @property
    def label(self) -> str:
        """kube-scheduler's spelling, such as ``UnschedulableAndUnresolvable``."""
        return "".join(
            word.capitalize() if word != "AND" else "And" for word in self.name.split("_")
        )


@dataclass(frozen=True, slots=True)
class Status:
    """A plugin's answer other than success; ``plugin`` is "" for an extender. Success is None, like
    nil in kube-scheduler.
    """

    code: Code
    reasons: tuple[str, ...] = ()
    plugin: str = ""

    @property
    def message(self) -> str:
        """The reasons, joined as in kube-scheduler."""
        return ", ".join(self.reasons)

    @property
    def rejected(self) -> bool:
        """Whether the pod does not fit, as opposed to an error."""
        return self.code in {Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE}


def unresolvable(*reasons: str) -> Status:
    """Return the refusal of a node on which preemption could not help either."""
    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reasons)


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """A PodAffinityTerm. A selector that is None matches no pod, or no namespace."""

    namespaces: frozenset[str]
    namespace_selector: LabelSelector | None
    selector: LabelSelector | None
    topology_key: str
    weight: int = 0

    def matches(self, pod: "PodInfo", namespace_labels: Mapping[str, str]) -> bool:
        """Return whether the term matches a pod in a namespace with these labels."""
        if pod.namespace not in self.namespaces and (
            self.namespace_selector is None or not self.namespace_selector.matches(namespace_labels)
        ):
            return False
        return self.selector is not None and self.selector.matches(pod.labels)


@dataclass(frozen=True, slots=True)
class PodClaim:
    """A claim that a pod uses. ``ephemeral``: it is made for the pod, named POD-VOLUME."""

    name: str
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port that a pod takes on its node. ``ip`` 0.0.0.0 means all addresses."""

    ip: str
    protocol: str
    port: int


ALL_ADDRESSES: Final = "0.0.0.0"


def optional_selector(raw: object) -> LabelSelector | None:
    """Parse a LabelSelector field. An absent one is None, which selects nothing."""
    return selector_from(raw) if isinstance(raw, Mapping) else None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PodInfo:
    """One version of a pod, with its scheduling fields parsed. ``obj`` never changes."""

    obj: Obj
    namespace: str
    name: str
    uid: str
    resource_version: str
    labels: Mapping[str, str]
    node_name: str
    nominated_node: str
    scheduler_name: str
    priority: int
    preemption_policy: str
    deleting: bool
    start_time: str
    requests: Resources
    non_zero: Resources
    """The requests that count on the pod's node, with the defaults that scoring assumes."""
    scored: Resources
    """As ``non_zero`` without spec.resources. NodeResourcesFit scores a pending pod by it (1.36
    does not set the feature gate there).
    """
    tolerations: tuple[Toleration, ...]
    node_affinity: RequiredNodeAffinity
    host_ports: tuple[HostPort, ...]
    volume_claims: tuple[PodClaim, ...]
    """The PersistentVolumeClaims, in the order of spec.volumes."""
    required_affinity: tuple[AffinityTerm, ...]
    required_anti_affinity: tuple[AffinityTerm, ...]
    preferred_affinity: tuple[AffinityTerm, ...]
    preferred_anti_affinity: tuple[AffinityTerm, ...]
    scheduling_gates: tuple[str, ...]

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return object_key(self.namespace, self.name)

    @property
    def claims(self) -> tuple[str, ...]:
        """Names of the claims without ephemeral ones, which only some plugins look at."""
        return tuple(claim.name for claim in self.volume_claims if not claim.ephemeral)

    @property
    def has_affinity(self) -> bool:
        """Whether the pod has any inter-pod affinity or anti-affinity term."""
        return bool(
            self.required_affinity
            or self.required_anti_affinity
            or self.preferred_affinity
            or self.preferred_anti_affinity
        )


def _terms(pod: Json, kind: str, when: str, namespace: str) -> tuple[AffinityTerm, ...]:
    terms = []
    for raw in mappings(
        pod, "spec", "affinity", kind, f"{when}DuringSchedulingIgnoredDuringExecution"
    ):
        weight = raw.get("weight")
        term = mapping(raw, "podAffinityTerm") if when == "preferred" else raw
        names = frozenset(str(item) for item in sequence(term, "namespaces"))
        namespace_selector = optional_selector(term.get("namespaceSelector"))
        if not names and namespace_selector is None:
            names = frozenset({namespace})
        terms.append(
            AffinityTerm(
                namespaces=names,
                namespace_selector=namespace_selector,
                selector=optional_selector(term.get("labelSelector")),
                topology_key=text(term, "topologyKey"),
                weight=weight if isinstance(weight, int) else 0,
            )
        )
    return tuple(terms)


def _host_ports(pod: Json) -> tuple[HostPort, ...]:
    containers = [
        *(
            c
            for c in mappings(pod, "spec", "initContainers")
            if text(c, "restartPolicy") == "Always"
        ),
        *mappings(pod, "spec", "containers"),
    ]
    return tuple(
        HostPort(text(port, "hostIP") or ALL_ADDRESSES, text(port, "protocol") or "TCP", number)
        for container in containers
        for port in mappings(container, "ports")
        if isinstance(number := port.get("hostPort"), int) and number > 0
    )


def ephemeral_claim_name(pod: Json, volume: Json) -> str:
    """Return the name of the claim of a pod's ephemeral volume (VolumeClaimName)."""
    return f"{text(pod, 'metadata', 'name')}-{text(volume, 'name')}"


def _claims(pod: Json) -> tuple[PodClaim, ...]:
    found = []
    for volume in mappings(pod, "spec", "volumes"):
        if volume.get("persistentVolumeClaim"):
            found.append(PodClaim(text(volume, "persistentVolumeClaim", "claimName")))
        elif volume.get("ephemeral") is not None:
            found.append(PodClaim(ephemeral_claim_name(pod, volume), ephemeral=True))
    return tuple(found)


def labels_of(obj: Json) -> Mapping[str, str]:
    """Return metadata.labels."""
    return {k: v for k, v in mapping(obj, "metadata", "labels").items() if isinstance(v, str)}


def pod_info(obj: Obj) -> PodInfo:
    """Parse a pod."""
    metadata = mapping(obj, "metadata")
    namespace = text(metadata, "namespace")
    priority = mapping(obj, "spec").get("priority")
    non_zero = resources_of(pod_requests(obj, non_zero=True))
    without_its_own = (
        resources_of(pod_requests(obj, non_zero=True, pod_level=False))
        if mapping(obj, "spec", "resources")
        else non_zero
    )
    return PodInfo(
        obj=obj,
        namespace=namespace,
        name=text(metadata, "name"),
        uid=text(metadata, "uid"),
        resource_version=text(metadata, "resourceVersion"),
        labels=labels_of(obj),
        node_name=text(obj, "spec", "nodeName"),
        nominated_node=text(obj, "status", "nominatedNodeName"),
        scheduler_name=text(obj, "spec", "schedulerName"),
        priority=priority if isinstance(priority, int) else 0,
        preemption_policy=text(obj, "spec", "preemptionPolicy"),
        deleting=bool(metadata.get("deletionTimestamp")),
        start_time=text(obj, "status", "startTime"),
        requests=resources_of(pod_requests(obj)),
        non_zero=non_zero,
        scored=without_its_own,
        tolerations=tuple(
            Toleration(text(t, "key"), text(t, "operator"), text(t, "value"), text(t, "effect"))
            for t in mappings(obj, "spec", "tolerations")
        ),
        node_affinity=RequiredNodeAffinity.of_pod(obj),
        host_ports=_host_ports(obj),
        volume_claims=_claims(obj),
        required_affinity=_terms(obj, "podAffinity", "required", namespace),
        required_anti_affinity=_terms(obj, "podAntiAffinity", "required", namespace),
        preferred_affinity=_terms(obj, "podAffinity", "preferred", namespace),
        preferred_anti_affinity=_terms(obj, "podAntiAffinity", "preferred", namespace),
        scheduling_gates=tuple(
            text(gate, "name") for gate in mappings(obj, "spec", "schedulingGates")
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeView:
    """One version of a node, parsed. ``images`` is image name -> size in bytes."""

    obj: Obj
    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    unschedulable: bool
    allocatable: Resources
    images: Mapping[str, int]

    @property
    def zone_key(self) -> str:
        """Region and zone as one text (GetZoneKey); "" if the node has neither label."""
        zone = self.labels.get("failure-domain.beta.kubernetes.io/zone")
        region = self.labels.get("failure-domain.beta.kubernetes.io/region")
        zone = self.labels.get("topology.kubernetes.io/zone", "") if zone is None else zone
        region = self.labels.get("topology.kubernetes.io/region", "") if region is None else region
        return f"{region}:\x00:{zone}" if region or zone else ""


def node_view(obj: Obj) -> NodeView:
    """Parse a node."""
    images: dict[str, int] = {}
    for image in mappings(obj, "status", "images"):
        size = image.get("sizeBytes")
        for name in sequence(image, "names"):
            images.setdefault(str(name), size if isinstance(size, int) else 0)
    return NodeView(
        obj=obj,
        name=text(obj, "metadata", "name"),
        labels=labels_of(obj),
        taints=tuple(
            Taint(text(t, "key"), text(t, "value"), text(t, "effect"))
            for t in mappings(obj, "spec", "taints")
        ),
        unschedulable=mapping(obj, "spec").get("unschedulable") is True,
        allocatable=resources_of(resource_list(mapping(obj, "status", "allocatable"))),
        images=images,
    )


_EMPTY_NODE: Final = node_view({})
_generations: Final = count(1)


class NodeInfo:
    """A node and its pods. If the node is unknown or gone, ``present`` is False."""

    __slots__ = (
        "ephemeral_storage",
        "generation",
        "memory",
        "milli_cpu",
        "non_zero_memory",
        "non_zero_milli_cpu",
        "pods",
        "pods_with_affinity",
        "pods_with_required_anti_affinity",
        "ports",
        "present",
        "scalar",
        "view",
    )

    def __init__(self, view: NodeView | None = None) -> None:
        self.view = view or _EMPTY_NODE
        self.present = view is not None
        self.pods: dict[str, PodInfo] = {}
        self.pods_with_affinity: dict[str, PodInfo] = {}
        self.pods_with_required_anti_affinity: dict[str, PodInfo] = {}
        self.milli_cpu = 0
        self.memory = 0
        self.ephemeral_storage = 0
        self.scalar: dict[str, int] = {}
        self.non_zero_milli_cpu = 0
        self.non_zero_memory = 0
        self.ports: dict[HostPort, int] = {}
        self.generation = next(_generations)

    @property
    def name(self) -> str:
        """The node's name."""
        return self.view.name

    def set_view(self, view: NodeView | None) -> None:
        """Set a new version of the node object; None: the node is gone."""
        self.view = view or _EMPTY_NODE
        self.present = view is not None
        self.generation = next(_generations)

    def add_pod(self, pod: PodInfo) -> None:
        """Add a pod."""
        self.pods[pod.uid] = pod
        if pod.has_affinity:
            self.pods_with_affinity[pod.uid] = pod
        if pod.required_anti_affinity:
            self.pods_with_required_anti_affinity[pod.uid] = pod
        self._count(pod, 1)

    def remove_pod(self, pod: PodInfo) -> None:
        """Remove a pod. Raises KeyError if it is not here."""
        known = self.pods.pop(pod.uid)
        self.pods_with_affinity.pop(pod.uid, None)
        self.pods_with_required_anti_affinity.pop(pod.uid, None)
        self._count(known, -1)

    def _count(self, pod: PodInfo, sign: int) -> None:
        requests = pod.requests
        self.milli_cpu += sign * requests.milli_cpu
        self.memory += sign * requests.memory
        self.ephemeral_storage += sign * requests.ephemeral_storage
        for name, amount in requests.scalar.items():
            self.scalar[name] = self.scalar.get(name, 0) + sign * amount
        self.non_zero_milli_cpu += sign * pod.non_zero.milli_cpu
        self.non_zero_memory += sign * pod.non_zero.memory
        for port in pod.host_ports:
            held = self.ports.get(port, 0) + sign
            if held > 0:
                self.ports[port] = held
            else:
                self.ports.pop(port, None)
        self.generation = next(_generations)

    def clone(self) -> "NodeInfo":
        """Return a copy that can be changed independently. Pods and the node object are shared."""
        copy = NodeInfo.__new__(NodeInfo)
        copy.view, copy.present, copy.generation = self.view, self.present, self.generation
        copy.pods = dict(self.pods)
        copy.pods_with_affinity = dict(self.pods_with_affinity)
        copy.pods_with_required_anti_affinity = dict(self.pods_with_required_anti_affinity)
        copy.milli_cpu, copy.memory = self.milli_cpu, self.memory
        copy.ephemeral_storage, copy.scalar = self.ephemeral_storage, dict(self.scalar)
        copy.non_zero_milli_cpu, copy.non_zero_memory = (
            self.non_zero_milli_cpu,
            self.non_zero_memory,
        )
        copy.ports = dict(self.ports)
        return copy
