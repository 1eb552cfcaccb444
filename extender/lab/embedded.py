"""The embedded cluster: an API server and controllers as tasks, and builders of objects for demos
and tests.

    async with EmbeddedCluster(Cluster(now=..., rng=...)) as embedded:
        await embedded.cluster.create(NODES, "", node_object("n1", "z1"))

Controllers run as Kubernetes' own users, so admission sees who writes. ``controller_api`` can put a
wrapper, such as a fault injector, between the controllers and the API server.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Protocol, Self

from extender.kube.api import NODES, PODS, STATEFULSETS, Api, Obj
from extender.lab.apiserver.cluster import Cluster
from extender.lab.apiserver.registry import (
    PERSISTENTVOLUMECLAIMS,
    PERSISTENTVOLUMES,
    STORAGECLASSES,
)
from extender.lab.apiserver.strategy import rfc3339
from extender.lab.controllers.admission import Admission
from extender.lab.controllers.ephemeral_volumes import EphemeralVolumeController
from extender.lab.controllers.garbage import GarbageCollector, NamespaceController
from extender.lab.controllers.kubelet import (
    DelayOf,
    Heartbeats,
    Kubelet,
    NodeRegistrar,
    PodDelays,
    ready_condition,
)
from extender.lab.controllers.node_lifecycle import (
    NodeLifecycleController,
    PodGarbageCollector,
    TaintEvictionController,
)
from extender.lab.controllers.stateful_set import StatefulSetController
from extender.lab.controllers.volumes import PersistentVolumeController
from extender.lab.informer import Informer
from extender.model.names import (
    EVICTION_WEBHOOK_NAME,
    OWN_NAMESPACE,
    POOL_LABEL,
    SCHEDULER_NAME,
    SLOTS_RESOURCE,
    ZONE_LABEL,
)

CONTROLLER_MANAGER: Final = "system:kube-controller-manager"
EVICTION_WEBHOOK: Final[Obj] = {
    "metadata": {"name": SCHEDULER_NAME},
    "webhooks": [
        {
            "name": EVICTION_WEBHOOK_NAME,
            "clientConfig": {
                "service": {
                    "namespace": OWN_NAMESPACE,
                    "name": "vreplica-webhook",
                    "path": "/evict",
                }
            },
            "rules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "resources": ["pods/eviction"],
                    "operations": ["CREATE"],
                }
            ],
            "failurePolicy": "Ignore",
            "sideEffects": "NoneOnDryRun",
            "timeoutSeconds": 5,
            "admissionReviewVersions": ["v1"],
        }
    ],
}
"""What the chart registers where adapters are served. The shipped base manifests do not have it."""
_SYSTEM: Final = ("system:masters", "system:authenticated")


class _Runs(Protocol):
    async def run(self) -> None: ...


def _as_it_is(api: Api, _component: str) -> Api:
    return api


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """Delays of the controllers, in seconds. The delays of a kubelet are functions of the pod."""

    pod_start_delay_s: DelayOf = lambda _: 0.5
    pod_stop_delay_s: DelayOf = lambda _: 0.5
    node_monitor_grace_s: float = 40.0
    """A node that is silent for this long becomes Unknown (kube-controller-manager's
    ``--node-monitor-grace-period``).
    """
    volumes: bool = False
    """Whether claims are bound to volumes, volumes provisioned, and the claims of ephemeral volumes
    made.
    """
    orphan_grace_s: float = 40.0
    """PodGC removes the pods of a deleted node after this time (its quarantine)."""
    controller_api: Callable[[Api, str], Api] = _as_it_is
    """(api, component) -> the api for this component. Components are "kube-controller-manager" and
    "kubelet".
    """


class EmbeddedCluster:
    """A ``Cluster`` and its controllers, which run between ``__aenter__`` and ``__aexit__``."""

    def __init__(self, cluster: Cluster, settings: ControllerSettings | None = None) -> None:
        self.cluster = cluster
        self.heartbeats = Heartbeats()
        self.clock_ahead_s: dict[str, float] = {}
        """Node -> seconds by which its clock is ahead of the API server's; 0 if missing."""
        self._settings = settings or ControllerSettings()
        self._stack = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        self._kubelet: Kubelet | None = None
        self._admission: Admission | None = None
        self._informers: list[Informer] = []

    async def __aenter__(self) -> Self:
        group = await self._stack.enter_async_context(asyncio.TaskGroup())
        for part in self._parts():
            self._tasks.append(group.create_task(part.run(), name=type(part).__name__))
        for informer in self._informers:
            await informer.synced.wait()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()
        if isinstance(error, asyncio.CancelledError):
            # The TaskGroup itself may have cancelled the body, because a task failed.
            await self._stack.__aexit__(kind, error, trace)
        else:
            # An error of the body propagates as it is, not inside an ExceptionGroup.
            await self._stack.aclose()

    async def run(self) -> None:
        """Run everything until cancelled."""
        async with self:
            await asyncio.get_running_loop().create_future()

    def fail_node(self, name: str) -> None:
        """Cut the node's power: no heartbeats, and no pod starts or ends on the node."""
        self.heartbeats.stop(name)

    def recover_node(self, name: str) -> None:
        """Bring the node back, with the pods that it had."""
        self.heartbeats.resume(name)

    def begin_anew(self) -> None:
        """Restart all controllers, as after the restore of the API server from a backup."""
        for informer in self._informers:
            informer.begin_anew()

    def node_time(self, name: str) -> float:
        """Return the time of a node's clock, in epoch seconds."""
        return self.cluster.server.now() + self.clock_ahead_s.get(name, 0.0)

    def set_ready(self, namespace: str, name: str, *, ready: bool) -> None:
        """Set the result of a running pod's readiness probe. Raises KeyError if it is unknown."""
        if self._kubelet is None:
            raise KeyError((namespace, name))
        self._kubelet.set_ready(namespace, name, ready=ready)

    def refuse_next(self, namespace: str, name: str) -> None:
        """Let a kubelet refuse the next pod of this name. Before the cluster runs, nothing."""
        if self._admission is not None:
            self._admission.refuse_next(namespace, name)

    def _parts(self) -> list[_Runs]:
        settings, server, now = self._settings, self.cluster.server, self.cluster.server.now
        manager = settings.controller_api(
            self.cluster.as_user(CONTROLLER_MANAGER, _SYSTEM), "kube-controller-manager"
        )
        node_user = settings.controller_api(
            self.cluster.as_user("system:node:all", ("system:nodes", "system:authenticated")),
            "kubelet",
        )
        pods, nodes, sets = (
            Informer(manager, PODS),
            Informer(manager, NODES),
            Informer(manager, STATEFULSETS),
        )
        self._informers = [pods, nodes, sets]
        volumes = self._volume_parts(manager, nodes, pods) if settings.volumes else []
        self._admission = Admission(nodes)
        self._kubelet = Kubelet(
            node_user,
            pods,
            self.heartbeats,
            self._admission,
            clock=self.node_time,
            delays=PodDelays(settings.pod_start_delay_s, settings.pod_stop_delay_s),
        )
        return [
            StatefulSetController(manager, sets, pods),
            self._kubelet,
            NodeRegistrar(node_user, nodes, self.heartbeats, clock=self.node_time),
            NodeLifecycleController(
                manager,
                nodes,
                pods,
                self.heartbeats,
                now=now,
                grace_s=settings.node_monitor_grace_s,
            ),
            TaintEvictionController(manager, nodes, pods, now=now),
            PodGarbageCollector(manager, nodes, pods, orphan_grace_s=settings.orphan_grace_s),
            GarbageCollector(manager, server),
            NamespaceController(manager, server),
            *volumes,
            *self._informers,
        ]

    def _volume_parts(self, manager: Api, nodes: Informer, pods: Informer) -> list[_Runs]:
        volumes, claims, classes = (
            Informer(manager, resource)
            for resource in (PERSISTENTVOLUMES, PERSISTENTVOLUMECLAIMS, STORAGECLASSES)
        )
        self._informers += [volumes, claims, classes]
        return [
            PersistentVolumeController(manager, volumes, claims, classes, nodes),
            EphemeralVolumeController(manager, pods, claims),
        ]


def node_object(
    name: str,
    zone: str,
    *,
    cpu: str = "8",
    memory: str = "32Gi",
    slots: int | None = None,
    labels: Mapping[str, str] | None = None,
) -> Obj:
    """Return a Ready node. ``slots`` is its allocatable ``vreplica.dev/slots``, if any."""
    capacity = {"cpu": cpu, "memory": memory, "pods": "110", "ephemeral-storage": "100Gi"}
    if slots is not None:
        capacity[SLOTS_RESOURCE] = str(slots)
    own = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", ZONE_LABEL: zone}
    ready = ready_condition("True", "KubeletReady", "kubelet is posting ready status", rfc3339(0.0))
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": name, "labels": {**own, **(labels or {})}},
        "spec": {},
        "status": {
            "capacity": dict(capacity),
            "allocatable": dict(capacity),
            "conditions": [ready],
            "nodeInfo": {"kubeletVersion": "v1.37.0-embedded", "operatingSystem": "linux"},
        },
    }


def stateful_set_object(
    name: str,
    *,
    namespace: str = "default",
    replicas: int = 0,
    pool: str | None = None,
    start: int = 0,
    pod_spec: Mapping[str, Any] | None = None,
) -> Obj:
    """Return a StatefulSet with one small container and Parallel pod management.

    ``pool`` puts the label ``vreplica.dev/pool`` on its pods; "" means the StatefulSet's own name.
    ``pod_spec`` is merged over the template's spec.
    """
    labels = {"app": name}
    if pool is not None:
        labels[POOL_LABEL] = pool or name
    container = {
        "name": "adapter",
        "image": "registry.example/adapter:1",
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
    }
    spec: Obj = {
        "replicas": replicas,
        "serviceName": name,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {"app": name}},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [container], **(pod_spec or {})},
        },
    }
    if start:
        spec["ordinals"] = {"start": start}
    metadata = {"name": name, "namespace": namespace}
    return {"kind": "StatefulSet", "apiVersion": "apps/v1", "metadata": metadata, "spec": spec}
