"""What stands around the verbs: real caches, binder and state, filled from an embedded cluster, and
a stand-in for its API.

A pool under a hard zone rule, nodes that declare slots, bound pods with vreplicas, one pod that
waits to be bound.
"""

import asyncio
from typing import Final

from extender.kube.api import (
    NODES,
    PODS,
    ApiError,
    Binding,
    Conflict,
    NotFound,
    Obj,
    OutcomeUnknown,
    Resource,
)
from extender.model.objects import AdapterPod
from extender.service.binding.binder import AssumedPod, SchedulerVReplicaBinder
from extender.service.binding.pod_binder import PodBinder
from extender.service.binding.reactivator import REFUSED_PODS_MAX, Reactivator
from extender.service.binding.verbs import ExtenderVerbs
from tests.fuzz.findings import Broken
from tests.fuzz.target import Target
from tests.support.builders import NS
from tests.support.service import FaultApi, World, always

EVENTS_MAX: Final = 5_000
METRICS_BYTES_MAX: Final = 64 * 1024


class StandInApi(FaultApi):
    """Answers at once from the pods that there were at the start; Bindings succeed and fail in
    turn, and change nothing.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world.cluster)
        self.pods: dict[str, Obj] = {}
        self.nodes: set[str] = set()
        self._turn = 0

    async def load(self) -> None:
        """Take what the cluster has."""
        for pod in (await self.cluster.list_page(PODS)).items:
            self.pods[f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"] = pod
        self.nodes = {
            node["metadata"]["name"] for node in (await self.cluster.list_page(NODES)).items
        }

    async def get(
        self, resource: Resource, namespace: str, name: str, *, subresource: str = ""
    ) -> Obj:
        found = self.pods.get(f"{namespace}/{name}")
        if resource is not PODS or found is None:
            raise NotFound(404, "NotFound", f"{resource.plural} {name!r:.80} not found")
        return found

    async def bind(self, binding: Binding) -> None:
        pod = self.pods.get(f"{binding.namespace}/{binding.name}")
        if pod is None or pod["metadata"]["uid"] != binding.uid or binding.node not in self.nodes:
            raise Broken(f"a Binding for what does not exist: {binding}")
        self._turn += 1
        match self._turn % 8:
            case 0:
                raise Conflict(409, "Conflict", "the object has been modified")
            case 1:
                raise OutcomeUnknown(0, "Timeout", "no answer")
            case 2:
                raise ApiError(500, "InternalError", "etcdserver: leader changed")
            case _:
                pass


class _Binder(SchedulerVReplicaBinder):
    """Remembers what was assumed, so that a bind that succeeded can be taken back after it."""

    taken: list[AssumedPod]

    def assume(self, pod: AdapterPod, node: str) -> AssumedPod:
        assumed = super().assume(pod, node)
        self.taken.append(assumed)
        return assumed


class VerbTarget(Target):
    """What all verbs share: the scene, and the look at what is left behind."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    async def open(self) -> None:
        """See Target."""
        world = await World.create(node_slots=40, profile="ha")
        await world.vpod("a", 6, {0: 2, 1: 2, 2: 1})
        await world.vpod("heavy", 2, {1: 1}, slotsPerVReplica=3)
        await world.vpod("many", 500)
        await world.pod(1, {"tenant/a": 2, "tenant/heavy": 1}, node="node-0")
        await world.pod(2, {"tenant/a": 1}, node="node-1")
        await world.pod(0)
        await world.sync()
        self.world, self.caches = world, world.caches
        self.api = StandInApi(world)
        await self.api.load()
        loop = asyncio.get_running_loop()
        self.binder = _Binder(self.api, self.caches, clock=loop.time, leads=lambda _: True)
        self.binder.taken = []
        self.pod_binder = PodBinder(self.api, self.caches, self.binder, knows_past=always)
        self.reactivator = Reactivator(
            self.api, self.caches, metrics=world.metrics, leads=lambda _: True
        )
        self.recorder = world.recorder()
        self.verbs = ExtenderVerbs(
            self.caches,
            self.binder,
            self.pod_binder,
            reactivator=self.reactivator,
            recorder=self.recorder,
            metrics=world.metrics,
        )
        self.pending = await world.pod_object(0)
        self.node_objects = (await world.cluster.list_page(NODES)).items
        self.words = (
            "vreplica.dev/pool",
            "vreplica.dev/placements",
            "vreplica.dev/slots",
            "dispatcher",
            NS,
            *sorted(self.api.nodes),
        )
        self.make_seeds()
        self.digest = self.caches.state.digest()
        self.pools = set(self.caches.state.pools)

    def make_seeds(self) -> None:
        """Fill ``seeds``."""
        raise NotImplementedError

    async def check(self) -> None:
        """See Target."""
        if self.caches.state.digest() != self.digest:
            raise Broken("the state has changed")
        if set(self.caches.state.pools) != self.pools:
            raise Broken(
                f"the state knows {len(self.caches.state.pools)} pools, not {len(self.pools)}"
            )
        # The bounds of each are its own constants; here only that they hold.
        refused, entries = len(self.reactivator._refused), len(self.recorder._entries)
        if (
            refused > REFUSED_PODS_MAX
            or entries > EVENTS_MAX
            or len(self.binder._filter_results) > 10_000
        ):
            raise Broken(
                f"caches are not bounded: {refused} refused, {entries} events, "
                f"{len(self.binder._filter_results)} decisions"
            )
        if len(self.world.metrics.render()) > METRICS_BYTES_MAX:
            raise Broken("metrics have labels out of the input")
