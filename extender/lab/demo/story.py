"""The steps of the demonstration, and what is counted meanwhile.

``Census`` watches vpods and adapter pods through the API, as any client could, and counts only what
is published. A vreplica counts as moved if it left a pod although its vpod still wants as many.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from extender.engine.state.availability import why_unserved
from extender.kube.api import (
    ADAPTERPOOLS,
    NODES,
    PODS,
    STATEFULSETS,
    VPODS,
    Api,
    ListOptions,
    Obj,
    PatchType,
    TooManyRequests,
)
from extender.lab.demo.adapters import DemoAdapters
from extender.lab.demo.local import HEARTBEAT_ANNOTATION, LocalSystem, create_namespace
from extender.lab.embedded import node_object, stateful_set_object
from extender.lab.informer import Informer
from extender.model.assignment import awaits_acknowledgement
from extender.model.counted import counted, counted_are
from extender.model.decode import node_from, pod_from, vpod_from
from extender.model.ledger import ledger_slots
from extender.model.names import API_VERSION, POOL_LABEL
from extender.model.objects import AdapterPod, Node, VPod

POOL_NAMESPACE: Final = "knative-eventing"
POOL: Final = "dispatcher"
SLOTS: Final = 20
ZONES: Final = 3
NODES_COUNT: Final = 6
TENANTS: Final = ("team-a", "team-b", "team-c", "team-d")
VPODS_COUNT: Final = 40
VREPLICAS: Final = 8
GROWN_VREPLICAS: Final = 30
DELETED: Final = f"{POOL}-3"
EVICTED: Final = f"{POOL}-5"
EVICT_AGAIN_S: Final = 0.2
FAILED: Final = "node-4"
STEP_TIMEOUT_S: Final = 30.0
POLL_S: Final = 0.02

Tell = Callable[[str], None]


@dataclass(slots=True)
class Census:
    """What is published, and what has moved. Run ``follow`` in a task."""

    vpods: dict[str, VPod] = field(default_factory=dict)
    pods: dict[str, AdapterPod] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    moved: int = 0
    overcommitted: set[str] = field(default_factory=set)
    """Keys of pods whose ledger has ever exceeded their slots."""

    async def follow(self, api: Api) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for informer, handle in (
                (Informer(api, VPODS), self._vpod),
                (Informer(api, PODS, ListOptions(label_selector=POOL_LABEL)), self._pod),
                (Informer(api, NODES), self._node),
            ):
                informer.on_change(handle)
                tasks.create_task(informer.run())

    @property
    def wanted(self) -> int:
        """The vreplicas that all vpods want."""
        return sum(vpod.vreplicas for vpod in self.vpods.values())

    @property
    def placed(self) -> int:
        """The vreplicas that are published."""
        return sum(sum(vpod.placements.values()) for vpod in self.vpods.values())

    def placed_on(self, *pods: str) -> int:
        """Return the vreplicas that are published on these pods."""
        return sum(vpod.placements.get(pod, 0) for vpod in self.vpods.values() for pod in pods)

    @property
    def unserved(self) -> dict[str, int]:
        """Reason -> published vreplicas that their pods do not serve; the largest number first."""
        found = Counter[str]()
        for vpod in self.vpods.values():
            namespace = vpod.pool.partition("/")[0]
            for name, count in vpod.placements.items():
                if why := self._why_unserved(self.pods.get(f"{namespace}/{name}")):
                    found[why] += count
        return dict(found.most_common())

    def _why_unserved(self, pod: AdapterPod | None) -> str:
        return why_unserved(pod, self.nodes.get(pod.node) if pod is not None else None)

    def is_settled(self, pod: AdapterPod) -> bool:
        """Return whether the pod is bound and serves, or is on a failed node."""
        node = self.nodes.get(pod.node)
        return (
            node is not None
            and not pod.deleting
            and (not node.ready or not self._why_unserved(pod))
        )

    @property
    def settled(self) -> bool:
        """Whether everything is placed, statuses are current, and every pod has settled and covers
        what is published on it.
        """
        return (
            all(
                sum(vpod.placements.values()) == vpod.vreplicas
                and vpod.observed_generation == vpod.generation
                for vpod in self.vpods.values()
            )
            and all(map(self.is_settled, self.pods.values()))
            and self._covered()
        )

    def _covered(self) -> bool:
        by_name = {pod.name: pod for pod in self.pods.values()}
        return all(
            name in by_name
            and (share := by_name[name].ledger.get(key)) is not None
            and share.vreplicas == count
            for key, vpod in self.vpods.items()
            for name, count in vpod.placements.items()
        )

    def _vpod(self, before: Obj | None, after: Obj | None) -> None:
        old = self.vpods.pop(vpod_from(before).key) if before is not None else None
        if after is None:
            return
        vpod = vpod_from(after)
        self.vpods[vpod.key] = vpod
        if old is not None:
            left = sum(
                max(0, count - vpod.placements.get(name, 0))
                for name, count in old.placements.items()
            )
            unwanted = max(0, sum(old.placements.values()) - vpod.vreplicas)
            self.moved += max(0, left - unwanted)

    def _node(self, before: Obj | None, after: Obj | None) -> None:
        if before is not None:
            del self.nodes[node_from(before).name]
        if after is not None:
            node = node_from(after)
            self.nodes[node.name] = node

    def _pod(self, before: Obj | None, after: Obj | None) -> None:
        if before is not None:
            del self.pods[pod_from(before).key]
        if after is not None:
            pod = pod_from(after)
            self.pods[pod.key] = pod
            if pod.slots is not None and ledger_slots(pod.ledger) > pod.slots:
                self.overcommitted.add(pod.key)


class Story:
    """Plays the story step by step. Each step waits until everything has settled again.
    ``adapters``: those that run in the pods; None: nobody works, and nothing is handed over.
    """

    def __init__(
        self,
        system: LocalSystem,
        census: Census,
        tell: Tell,
        adapters: DemoAdapters | None = None,
    ) -> None:
        self._system = system
        self._api: Api = system.local.cluster
        self._census = census
        self._tell = tell
        self._adapters = adapters
        self.handed_over = 0
        """vreplicas that have moved off the evicted pod."""
        self.pause_s = 0.0
        """For how long at most nobody worked for a vpod meanwhile."""
        self._started = time.monotonic()
        self.settled_s = 0.0
        """Seconds from the start of the story until everything settled for the last time."""

    async def play(self) -> None:
        """Play all steps. Raises TimeoutError if a step does not settle."""
        await self._step(
            f"{ZONES} zones, {NODES_COUNT} nodes, an empty pool",
            self._create_pool,
            lambda: f"{len(self._census.pods)} pods, for nothing asks for any",
        )
        await self._step(
            f"{counted(VPODS_COUNT, 'vpod')} of {len(TENANTS)} tenants want "
            f"{counted(VREPLICAS, 'vreplica')} each",
            self._create_vpods,
            lambda: (
                f"{counted(len(self._census.pods), 'pod')}, {self._census.placed} of "
                f"{self._census.wanted} placed"
            ),
        )
        had = self._census.placed_on(DELETED)
        await self._step(
            f"pod {DELETED} is deleted",
            self._delete_pod,
            lambda: f"{self._census.placed_on(DELETED)} of {counted_are(had, 'vreplica')} back",
        )
        if self._adapters is not None:
            await self._step(
                f"pod {EVICTED} is evicted, as by kubectl drain",
                partial(self._evict, self._adapters),
                self._how_handed_over,
            )
        await self._step(f"node {FAILED} fails", self._fail_node, self._kept_there)
        before = self._census.placed_on(*self._pods_there())
        await self._step(
            f"vpod team-a/orders-0 grows to {counted(GROWN_VREPLICAS, 'vreplica')}",
            self._grow,
            lambda: (
                f"{self._census.placed} placed, "
                f"{self._census.placed_on(*self._pods_there()) - before} more on {FAILED}"
            ),
        )

    def _pods_there(self) -> list[str]:
        return [pod.name for pod in self._census.pods.values() if pod.node == FAILED]

    def _kept_there(self) -> str:
        pods = self._pods_there()
        return (
            f"its {counted(len(pods), 'pod')} keep "
            f"{counted(self._census.placed_on(*pods), 'vreplica')}"
        )

    async def _step(
        self, what: str, do: Callable[[], Awaitable[None]], shown: Callable[[], str]
    ) -> None:
        started = time.monotonic()
        self._tell(f"{what} ...")
        moved = self._census.moved
        await do()
        async with asyncio.timeout(STEP_TIMEOUT_S):
            while not self._census.settled:
                self._system.local.check()
                await asyncio.sleep(POLL_S)
        now = time.monotonic()
        self.settled_s = now - self._started
        moved, over = self._census.moved - moved, len(self._census.overcommitted)
        self._tell(
            f"  {now - started:.2f} s: {shown()}; {moved or 'nothing'} moved, {over or 'nothing'} "
            f"overcommitted"
        )
        for why, count in self._census.unserved.items():
            self._tell(f"          nobody serves {counted(count, 'vreplica')}: {why}")

    async def add_nodes(self) -> None:
        """Create the nodes."""
        for index in range(NODES_COUNT):
            await self._api.create(
                NODES, "", node_object(f"node-{index}", f"zone-{'abc'[index % ZONES]}")
            )
        await self._until(lambda: len(self._census.nodes) == NODES_COUNT)

    async def _create_pool(self) -> None:
        await self.add_nodes()
        for namespace in (POOL_NAMESPACE, *TENANTS):
            await create_namespace(self._api, namespace)
        handoff = {"handoff": {"mode": "Overlap"}} if self._adapters is not None else {}
        stateful_set = stateful_set_object(POOL, namespace=POOL_NAMESPACE, replicas=0, pool=POOL)
        await self._api.create(STATEFULSETS, POOL_NAMESPACE, stateful_set)
        await self._api.create(
            ADAPTERPOOLS,
            POOL_NAMESPACE,
            {
                "apiVersion": API_VERSION,
                "kind": "AdapterPool",
                "metadata": {"name": POOL, "namespace": POOL_NAMESPACE},
                "spec": {"statefulSet": POOL, "slotsPerPod": SLOTS, **handoff},
            },
        )

    async def _create_vpods(self) -> None:
        for index in range(VPODS_COUNT):
            tenant = TENANTS[index % len(TENANTS)]
            vpod = {
                "apiVersion": API_VERSION,
                "kind": "VPod",
                "metadata": {"name": f"orders-{index // len(TENANTS)}", "namespace": tenant},
                "spec": {
                    "poolRef": {"namespace": POOL_NAMESPACE, "name": POOL},
                    "vreplicas": VREPLICAS,
                },
            }
            await self._api.create(VPODS, tenant, vpod)
        await self._until(lambda: len(self._census.vpods) == VPODS_COUNT)

    async def _delete_pod(self) -> None:
        key = f"{POOL_NAMESPACE}/{DELETED}"
        uid = self._census.pods[key].uid
        await self._api.delete(PODS, POOL_NAMESPACE, DELETED)
        await self._until(lambda: key in self._census.pods and self._census.pods[key].uid != uid)

    async def _evict(self, adapters: DemoAdapters) -> None:
        """Evict a pod until that succeeds, once all adapters serve."""
        key = f"{POOL_NAMESPACE}/{EVICTED}"
        await self._until(lambda: all(map(self._serves, self._census.pods.values())))
        uid, moved = self._census.pods[key].uid, self._census.moved
        adapters.work.count_anew()
        while True:
            try:
                await self._system.local.cluster.evict(POOL_NAMESPACE, EVICTED)
            except TooManyRequests:
                await asyncio.sleep(EVICT_AGAIN_S)
            else:
                break
        self.handed_over = self._census.moved - moved
        self.pause_s = adapters.work.longest_pause_s
        await self._until(lambda: key in self._census.pods and self._census.pods[key].uid != uid)

    @staticmethod
    def _serves(pod: AdapterPod) -> bool:
        """Return whether its adapter has acknowledged all that it is told."""
        return not awaits_acknowledgement(pod.assignment_text, pod.acknowledged_text)

    def _how_handed_over(self) -> str:
        return f"handed over, {self.pause_s:.2f} s idle at most"

    async def _fail_node(self) -> None:
        if self._adapters is not None:
            for name in self._pods_there():
                self._adapters.kill(self._census.pods[f"{POOL_NAMESPACE}/{name}"].uid)
        patch = {"metadata": {"annotations": {HEARTBEAT_ANNOTATION: "stopped"}}}
        await self._api.patch(NODES, "", FAILED, patch, patch_type=PatchType.MERGE)
        await self._until(
            lambda: not self._takes_work(FAILED) and not self._census.nodes[FAILED].ready
        )

    def _takes_work(self, name: str) -> bool:
        node = self._system.running.caches.nodes.get(name)
        return node is not None and node.takes_work

    async def _grow(self) -> None:
        patch = {"spec": {"vreplicas": GROWN_VREPLICAS}}
        await self._api.patch(VPODS, "team-a", "orders-0", patch, patch_type=PatchType.MERGE)
        await self._until(
            lambda: self._census.vpods["team-a/orders-0"].vreplicas == GROWN_VREPLICAS
        )

    async def _until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(STEP_TIMEOUT_S):
            while not done():
                self._system.local.check()
                await asyncio.sleep(POLL_S)
