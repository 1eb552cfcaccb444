"""Generated clusters for the scheduler comparison: a seed is a cluster, the same on every machine.

Theory of operation. A ``SchedulerCase`` is a list of API objects by the part that they play: what
is looked up (volumes, claims, classes, Services, ReplicaSets), nodes, the pods that run on them,
and the pods that wait. Few label keys and few values are drawn, so that selectors meet pods and
nodes often; nodes are small, so that resources run out. Everything that is drawn is valid for
kube-apiserver: an object that it refuses ends the run. Namespaces are the same for all cases
(``NAMESPACE_LABELS``): deleting them needs controllers.

What the embedded scheduler does not look at is not drawn: ResourceClaims, declared node features
and pod groups, ReplicationControllers as owners from which default spreading comes, and pods that
are being resized in place.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from extender.kube.api import Obj
from extender.lab.scheduler.types import HOSTNAME_LABEL, pod_info
from extender.model.names import ZONE_LABEL
from tests.differential.scheduler_csi import CSI_CLASSES
from tests.differential.scheduler_terms import Terms
from tests.differential.scheduler_volumes import LOCAL, WAITING, VolumeDraw

REGION_LABEL: Final = "topology.kubernetes.io/region"
NAMESPACE_LABELS: Final[Mapping[str, Mapping[str, str]]] = {
    "default": {},
    "team-a": {"team": "a"},
    "team-b": {"team": "b", "env": "prod"},
}
NAMESPACES: Final = tuple(NAMESPACE_LABELS)
ZONES: Final = ("z0", "z1", "z2")
GPU: Final = "example.com/gpu"
IMAGES: Final = {
    "registry.invalid/app:1": 700 * 2**20,
    "registry.invalid/app:latest": 300 * 2**20,
    "registry.invalid/tool:2": 40 * 2**20,
    "registry.invalid/base:3": 2100 * 2**20,
}
IMAGE_REFERENCES: Final = (*IMAGES, "registry.invalid/app", "registry.invalid/none:1", "plain")
PORTS: Final = (7000, 7001)


@dataclass(frozen=True, slots=True)
class SchedulerCase:
    """One cluster. ``terminating``: running pods (namespace/name) that are being deleted when the
    others are scheduled.
    """

    name: str
    lookups: tuple[Obj, ...]
    nodes: tuple[Obj, ...]
    running: tuple[Obj, ...]
    terminating: frozenset[str]
    pending: tuple[Obj, ...]

    def with_part(self, part: str, objects: tuple[Obj, ...]) -> "SchedulerCase":
        """The same with other ``lookups``, ``nodes``, ``running`` or ``pending``."""
        changed: dict[str, Any] = {part: objects}
        return replace(self, **changed)

    def only_pending(self, key: str) -> "SchedulerCase":
        """The same with one pending pod."""
        return replace(self, pending=tuple(pod for pod in self.pending if pod_key(pod) == key))


def pod_key(pod: Obj) -> str:
    """namespace/name."""
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def waits_for_first_consumer(case: SchedulerCase, pod: Obj) -> bool:
    """Whether the pod names a claim that gets its volume on the node that the pod goes to."""
    waiting = {
        pod_key(claim)
        for claim in case.lookups
        if claim["kind"] == "PersistentVolumeClaim"
        and claim["spec"].get("storageClassName") in {LOCAL, WAITING, *CSI_CLASSES}
        and not claim["spec"].get("volumeName")
    }
    namespace = pod["metadata"]["namespace"]
    return any(
        claim.ephemeral or f"{namespace}/{claim.name}" in waiting
        for claim in pod_info(pod).volume_claims
    )


def unscored_pods(case: SchedulerCase) -> frozenset[str]:
    """The pods whose scores kube-scheduler is not asked for."""
    return frozenset(pod_key(pod) for pod in case.pending if waits_for_first_consumer(case, pod))


def scheduler_case(seed: int) -> SchedulerCase:
    """The cluster of a seed."""
    return _Draw(seed).case()


class _Draw:
    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._rng = random.Random(f"scheduler case {seed}")
        self._terms = Terms(self._rng)
        self._volumes = VolumeDraw(
            self._rng,
            random.Random(f"local volumes {seed}"),
            random.Random(f"CSI volumes {seed}"),
        )

    def case(self) -> SchedulerCase:
        rng = self._rng
        nodes = [self._node(index) for index in range(rng.randint(4, 12))]
        names = [node["metadata"]["name"] for node in nodes]
        self._volumes.draw(names)
        for node in nodes:
            node["metadata"]["labels"] |= self._volumes.node_labels()
        owners = self._owners()
        running = [self._running(index, names) for index in range(rng.randint(5, 18))]
        pending = [self._pending(index, names) for index in range(rng.randint(3, 6))]
        terminating = frozenset(pod_key(pod) for pod in running if rng.random() < 0.15)
        return SchedulerCase(
            f"seed {self._seed}",
            (*self._volumes.objects(), *owners, _RUNTIME_CLASS),
            tuple(nodes),
            tuple(running),
            terminating,
            tuple(pending),
        )

    def _maybe(self, probability: float) -> bool:
        return self._rng.random() < probability

    def _node(self, index: int) -> Obj:
        rng, name = self._rng, f"node-{index:02d}"
        labels: dict[str, str] = {}
        if not self._maybe(0.04):
            labels[HOSTNAME_LABEL] = name
        if not self._maybe(0.1):
            labels[ZONE_LABEL] = rng.choice(ZONES)
            if self._maybe(0.5):
                labels[REGION_LABEL] = rng.choice(("r0", "r1"))
        if self._maybe(0.7):
            labels["disk"] = rng.choice(("ssd", "hdd"))
        if self._maybe(0.5):
            labels["size"] = rng.choice(("1", "2", "10", "03", "big"))
        room = {
            "cpu": rng.choice(("1500m", "4", "8", "16")),
            "memory": rng.choice(("2Gi", "7900Mi", "16G", "32Gi")),
            "ephemeral-storage": rng.choice(("10Gi", "100Gi")),
            "pods": rng.choice(("110", "110", "110", "3")),
        }
        if self._maybe(0.3):
            room[GPU] = rng.choice(("1", "4"))
        if self._maybe(0.03):
            del room["memory"]
        spec: Obj = {}
        if self._maybe(0.1):
            spec["unschedulable"] = True
        if taints := self._terms.taints():
            spec["taints"] = taints
        status = {"capacity": room, "allocatable": room, "images": self._images()}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": spec,
            "status": status,
        }

    def _images(self) -> list[Obj]:
        return [
            {"names": [image, f"{image.partition(':')[0]}@sha256:{'0' * 64}"], "sizeBytes": size}
            for image, size in IMAGES.items()
            if self._maybe(0.35)
        ]

    def _owners(self) -> list[Obj]:
        services = [self._service(index) for index in range(self._rng.randint(0, 2))]
        self._owned_in = {namespace for namespace in NAMESPACES if self._maybe(0.4)}
        sets = [
            _replica_set(namespace, self._terms.labels() or {"app": "db"})
            for namespace in NAMESPACES
            if namespace in self._owned_in
        ]
        return [*services, *sets]

    def _service(self, index: int) -> Obj:
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": f"service-{index}", "namespace": self._rng.choice(NAMESPACES)},
            "spec": {"clusterIP": "None", "selector": self._terms.labels() or {"app": "web"}},
        }

    # Pods

    def _running(self, index: int, nodes: Sequence[str]) -> Obj:
        self._terms.hard = self._maybe(0.7)
        pod = self._pod(f"running-{index:02d}")
        pod["spec"]["nodeName"] = self._rng.choice(nodes)
        if self._maybe(0.3):
            pod["spec"]["affinity"] = self._terms.pod_affinities()
        return pod

    def _pending(self, index: int, nodes: Sequence[str]) -> Obj:
        self._terms.hard = self._maybe(0.4)
        pod = self._pod(f"pending-{index:02d}")
        spec = pod["spec"]
        affinity: Obj = {}
        if self._maybe(0.35):
            affinity["nodeAffinity"] = self._terms.node_affinity(nodes)
        if self._maybe(0.45):
            affinity |= self._terms.pod_affinities()
        if self._maybe(0.08) and (labels := pod["metadata"]["labels"]):
            affinity |= self._terms.affinity_to_its_own(labels)
        if affinity:
            spec["affinity"] = affinity
        if self._terms.hard and self._maybe(0.3):
            spec["nodeSelector"] = self._terms.node_labels()
        if self._maybe(0.5) and (constraints := self._terms.spread(pod["metadata"]["labels"])):
            spec["topologySpreadConstraints"] = constraints
        return pod

    def _pod(self, name: str) -> Obj:
        namespace = self._rng.choice((NAMESPACES[0], NAMESPACES[0], *NAMESPACES))
        metadata: Obj = {"name": name, "namespace": namespace, "labels": self._terms.labels()}
        if namespace in self._owned_in and self._maybe(0.5):
            metadata["ownerReferences"] = [_OWNED]
        spec: Obj = {
            "terminationGracePeriodSeconds": 30,
            "containers": [self._container(f"c{i}") for i in range(self._rng.choice((1, 1, 1, 2)))],
        }
        if self._maybe(0.2):
            count = self._rng.randint(1, 2)
            spec["initContainers"] = [self._init_container(f"i{index}") for index in range(count)]
        self._extras(spec)
        if self._maybe(0.2):
            self._host_port(spec)
        if self._maybe(0.7) and (tolerations := self._terms.tolerations()):
            spec["tolerations"] = tolerations
        draw = self._volumes.of_pod if self._maybe(0.3) else self._volumes.of_pod_without
        served = self._volumes.of_csi(namespace, running=name.startswith("running"))
        volumes = [*draw(namespace), *self._volumes.disk(), *served]
        if volumes:
            spec["volumes"] = [*spec.get("volumes", ()), *volumes]
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def _extras(self, spec: Obj) -> None:
        """What few pods have: overhead, requests of the pod itself, an image as a volume."""
        if self._maybe(0.06):
            spec["runtimeClassName"] = _RUNTIME_CLASS["metadata"]["name"]
        # They must not be less than those of the containers.
        if self._maybe(0.1) and len(spec["containers"]) == 1 and "initContainers" not in spec:
            spec["resources"] = {"requests": {"cpu": "2", "memory": "5Gi"}}
        if self._maybe(0.06):
            image = self._rng.choice(IMAGE_REFERENCES)
            spec["volumes"] = [{"name": "image", "image": {"reference": image}}]

    def _host_port(self, spec: Obj) -> None:
        number = self._rng.choice(PORTS)
        port: dict[str, Any] = {"containerPort": number}
        if self._maybe(0.15):
            spec["hostNetwork"] = True
        else:
            port["hostPort"] = number
            if self._maybe(0.4):
                port["hostIP"] = self._rng.choice(("127.0.0.1", "10.1.1.1"))
        if self._maybe(0.2):
            port["protocol"] = "UDP"
        spec["containers"][0]["ports"] = [port]

    def _container(self, name: str) -> Obj:
        return {
            "name": name,
            "image": self._rng.choice(IMAGE_REFERENCES),
            "resources": self._resources(),
        }

    def _init_container(self, name: str) -> Obj:
        container = self._container(name)
        if self._maybe(0.4):
            container["resources"] = {"requests": {"cpu": "2500m", "memory": "3Gi"}}
        if self._maybe(0.5):
            container["restartPolicy"] = "Always"
            if self._maybe(0.3):
                container["ports"] = [{"containerPort": 90, "hostPort": self._rng.choice(PORTS)}]
        return container

    def _resources(self) -> Obj:
        rng = self._rng
        requests: dict[str, Any] = {}
        if self._maybe(0.7):
            requests["cpu"] = rng.choice(("100m", "333m", "1", "1500m", "0"))
        if self._maybe(0.7):
            requests["memory"] = rng.choice(("64Mi", "700M", "1Gi", "3Gi", "1073741824500m"))
        if self._maybe(0.1):
            requests["ephemeral-storage"] = rng.choice(("1Gi", "20Gi"))
        found: Obj = {"requests": requests}
        if self._maybe(0.1):
            requests[GPU] = "1"
            found["limits"] = {GPU: "1"}
        return found


_SET_UID: Final = "11111111-2222-3333-4444-555555555555"
_OWNED: Final[Obj] = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "name": "set",
    "uid": _SET_UID,
    "controller": True,
}


_RUNTIME_CLASS: Final[Obj] = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "heavy"},
    "handler": "heavy",
    "overhead": {"podFixed": {"cpu": "250m", "memory": "120Mi"}},
}


def _replica_set(namespace: str, labels: Mapping[str, str]) -> Obj:
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "c", "image": "x"}]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "set", "namespace": namespace},
        "spec": {"replicas": 0, "selector": {"matchLabels": dict(labels)}, "template": template},
    }
