"""A controller of callers' vpods, as Knative's tests have it (``pkg/scheduler/testing``):
``SampleVPod``, the ``VPodClient`` that creates, lists and evicts, and its reconciler.
"""

# ruff: noqa: N802  # Knative's names
import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from extender.model.placements import Placement
from extender.scheduling_api import InsufficientSlots, NamespacedName, NotScheduled, Scheduler
from extender.scheduling_api.statefulset import Config, New, StatefulSetScheduler
from tests.support.builders import NS
from tests.support.service import World, until

STATEFUL_SET = "dispatcher"
SOURCE = "placeable.duck.knative.dev"
"""How the keys of these vpods end in ledgers."""


def placed(counts: Mapping[int, int]) -> list[Placement]:
    """Ordinal -> vreplicas, as placements."""
    return [Placement(f"{STATEFUL_SET}-{ordinal}", count) for ordinal, count in counts.items()]


def by_ordinal(placements: Sequence[Placement]) -> dict[int, int]:
    """Placements as ordinal -> vreplicas."""
    return {int(item.pod_name.rpartition("-")[2]): item.vreplicas for item in placements}


@dataclass(frozen=True)
class SampleVPod:
    """A vpod that has Knative's five getters, and nothing else that a scheduler reads."""

    key: NamespacedName
    wanted: int
    published: tuple[Placement, ...] = ()
    version: str = "12345"
    deletion_timestamp: str | None = None

    def GetKey(self) -> NamespacedName:
        return self.key

    def GetVReplicas(self) -> int:
        return self.wanted

    def GetPlacements(self) -> Sequence[Placement] | None:
        return self.published or None

    def GetResourceVersion(self) -> str:
        return self.version

    def GetDeletionTimestamp(self) -> str | None:
        return self.deletion_timestamp


@dataclass
class VPodClient:
    """The controller's cache of its objects, and the writer of their statuses."""

    vpods: dict[NamespacedName, SampleVPod] = field(default_factory=dict)
    lists: int = 0
    evicted: list[tuple[object, NamespacedName, Placement]] = field(default_factory=list)
    changed: asyncio.Queue[NamespacedName] = field(default_factory=asyncio.Queue)
    """Keys whose status was written: what a watch would bring to the reconciler."""

    def create(
        self, namespace: str, name: str, vreplicas: int, counts: Mapping[int, int]
    ) -> SampleVPod:
        vpod = SampleVPod(NamespacedName(namespace, name), vreplicas, tuple(placed(counts)))
        self.vpods[vpod.key] = vpod
        return vpod

    def list(self) -> Sequence[SampleVPod]:
        """The ``VPodLister``."""
        self.lists += 1
        return [*self.vpods.values()]

    def publish(self, key: NamespacedName, placements: Sequence[Placement]) -> SampleVPod:
        """Write a status: the object gets another version."""
        old = self.vpods[key]
        version = str(int(old.version) + 1)
        new = replace(old, published=tuple(placements), version=version)
        self.vpods[key] = new
        self.changed.put_nowait(key)
        return new

    async def evict(self, pod: object, vpod: SampleVPod, from_: Placement) -> None:
        """The ``Evictor``, as Knative's ConsumerGroup has it: take the pod's placement out of the
        status.
        """
        self.evicted.append((pod, vpod.GetKey(), from_))
        left = [item for item in self.vpods[vpod.key].published if item.pod_name != from_.pod_name]
        self.publish(vpod.key, left)


async def reconcile(client: VPodClient, scheduler: Scheduler) -> None:
    """The controller's reconciler, until cancelled: schedule what has changed, and publish the
    answer.
    """
    while True:
        key = await client.changed.get()
        vpod = client.vpods.get(key)
        if vpod is None:
            continue
        try:
            placements = await scheduler.schedule(vpod)
        except InsufficientSlots as error:
            placements = error.placements
        except NotScheduled:
            client.changed.put_nowait(key)
            await asyncio.sleep(0.01)
            continue
        if tuple(placements) != client.vpods[key].published:
            client.publish(key, placements)


def a_config(url: str, client: VPodClient, **fields: Any) -> Config:
    """Of the pool of a ``World``. Nothing happens by itself for an hour."""
    defaults: dict[str, Any] = {
        "stateful_set_name": STATEFUL_SET,
        "vpod_lister": client.list,
        "evictor": client.evict,
        "refresh_period_s": 3600.0,
    }
    return Config(urls=[url], stateful_set_namespace=NS, **{**defaults, **fields})


@asynccontextmanager
async def a_scheduler(
    world: World, client: VPodClient, *, checked: bool = True, **config: Any
) -> AsyncIterator[StatefulSetScheduler]:
    """A scheduler of the world's pool, and the whole service that it asks. ``checked``: see
    ``World.serving``.
    """
    async with world.serving(serve=True, checked=checked) as service:
        await until(service.leading, timeout_s=5)
        async with New(a_config(service.server.url, client, **config)) as scheduler:
            yield scheduler


@asynccontextmanager
async def controller(client: VPodClient, scheduler: StatefulSetScheduler) -> AsyncIterator[None]:
    """A controller that leads: it reconciles what changes and what the scheduler enqueues."""
    task = asyncio.create_task(reconcile(client, scheduler))
    scheduler.Promote(client.changed.put_nowait)
    try:
        yield
    finally:
        scheduler.Demote()
        task.cancel()
        await asyncio.wait({task})
