"""Nothing that a replica keeps outlives what it is kept for: whoever creates and deletes for weeks
must not fill its memory.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import pytest
import yaml

from extender.config.model import Mode
from extender.kube.api import (
    ADAPTERPOOLS,
    CRDS,
    NAMESPACES,
    NODES,
    PODS,
    STATEFULSETS,
    VPODS,
    Obj,
    WatchEvent,
    WatchEventType,
)
from extender.model import names
from extender.model.objects import AdapterPod, AdapterPool, Namespace, Node, StatefulSet, VPod
from extender.service.app import Service
from extender.service.watching.foreign_kind import ForeignKind
from tests.service.watching.test_sources import GROUPS, KNATIVE, PRESET
from tests.support.builders import NS, POOL, a_node, a_pod, a_pool, a_stateful_set, a_vpod
from tests.support.kept import larger
from tests.support.service import TENANT, World, until

pytestmark = pytest.mark.looptime

OBJECTS = 150
"""Of each kind that come and go through the API server, over all waves; ``FED`` are those that
caches alone are told of.
"""
WAVE = 25
FED = 1_000
FED_WAVE = 100
LEFT_MAX = 80
"""What a container may hold in the end: what there is of a handful of objects, and of fixed sets
such as labels' values.
"""
FORGOTTEN_AFTER_S = 900.0
"""Longer than all that is remembered for a time: refusals, series of events, decisions."""


class Wave:
    """One object of each kind for each of some numbers; none of the names comes again."""

    def __init__(self, world: World, numbers: range) -> None:
        self._cluster = world.cluster
        self._numbers = numbers

    async def create(self) -> None:
        """Kind by kind, what others refer to first: else each would make the service look at all
        others again.
        """
        create, numbers = self._cluster.create, self._numbers
        for i in numbers:
            await create(NAMESPACES, "", {"metadata": {"name": f"tenant-{i}"}})
        for i in numbers:
            await create(NODES, "", _node(f"made-{i}"))
        sets = [await create(STATEFULSETS, NS, _stateful_set(f"set-{i}")) for i in numbers]
        for i in numbers:
            await create(ADAPTERPOOLS, NS, _pool(f"pool-{i}", f"set-{i}"))
        await asyncio.sleep(1)
        for i, made in zip(numbers, sets, strict=True):
            await create(PODS, NS, _pod(made, f"pool-{i}", node=f"made-{i}"))
        for i in numbers:
            await create(VPODS, f"tenant-{i}", _vpod("of-a-pool", f"pool-{i}"))
            await create(VPODS, f"tenant-{i}", _vpod("of-none", f"none-{i}"))
            await create(GROUPS, f"tenant-{i}", _group("g"))

    async def delete(self) -> None:
        delete, numbers = self._cluster.delete, self._numbers
        for i in numbers:
            await delete(GROUPS, f"tenant-{i}", "g")
            await delete(VPODS, f"tenant-{i}", "of-a-pool")
            await delete(VPODS, f"tenant-{i}", "of-none")
        await asyncio.sleep(1)
        for i in numbers:
            # A node that goes before its pods, as a machine does.
            await delete(NODES, "", f"made-{i}")
            await delete(PODS, NS, f"set-{i}-0", grace_period_s=0)
        for i in numbers:
            await delete(ADAPTERPOOLS, NS, f"pool-{i}")
            await delete(STATEFULSETS, NS, f"set-{i}")
        for i in numbers:
            await self._delete_namespace(f"tenant-{i}")

    async def _delete_namespace(self, name: str) -> None:
        """As the namespace controller ends it once it is empty."""
        await self._cluster.delete(NAMESPACES, "", name)
        namespace = await self._cluster.get(NAMESPACES, "", name)
        namespace["spec"]["finalizers"] = []
        await self._cluster.update(NAMESPACES, "", name, namespace, subresource="finalize")


@asynccontextmanager
async def replicas(world: World) -> AsyncIterator[dict[str, Service]]:
    """A leader, a standby and a shadow of the same cluster."""
    async with AsyncExitStack() as stack:
        leader = await stack.enter_async_context(world.serving(elect=True, seed=1))
        await until(lambda: leader.leadership.acts(POOL))
        yield {
            "leader": leader,
            "standby": await stack.enter_async_context(world.serving(elect=True, seed=2)),
            "shadow": await stack.enter_async_context(world.serving(seed=3, mode=Mode.SHADOW)),
        }


async def churn(world: World) -> None:
    for start in range(0, OBJECTS, WAVE):
        wave = Wave(world, range(start, start + WAVE))
        await wave.create()
        await asyncio.sleep(5)
        await wave.delete()
        await asyncio.sleep(5)


async def a_world() -> World:
    world = await World.create(sources=[PRESET])
    await world.cluster.create(
        CRDS, "", yaml.safe_load((KNATIVE / "consumergroups.yaml").read_text())
    )
    await world.pods(0, 1, 2)
    return world


async def left(services: Mapping[str, Service]) -> dict[str, dict[str, int]]:
    """Role -> what is larger than a few objects make it, once all is forgotten that is remembered
    for a time.
    """
    await asyncio.sleep(FORGOTTEN_AFTER_S)
    return {role: larger(service, LEFT_MAX) for role, service in services.items()}


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_what_is_created_and_deleted_leaves_nothing_behind_on_leader_standby_and_shadow():
    world = await a_world()
    async with replicas(world) as services:
        tasks = len(asyncio.all_tasks())
        await churn(world)
        assert await left(services) == {role: {} for role in services}
        assert len(asyncio.all_tasks()) <= tasks + LEFT_MAX


class Fed:
    """One object of each kind for each of some numbers, as informers tell them; the API server
    knows none of them.
    """

    def __init__(self, numbers: range) -> None:
        self._numbers = numbers
        self._version = str(10**9 + numbers.start)

    def come(self, service: Service) -> None:
        caches = service.caches
        for i in self._numbers:
            caches.namespaces.update(self._namespace(i))
            caches.nodes.update(self._node(i))
            caches.stateful_sets.update(self._stateful_set(i))
            caches.pools.update(self._pool(i))
            caches.pods.update(self._pod(i))
            for vpod in self._vpods(i):
                caches.vpods.update(vpod)
            _kind(service).apply(WatchEvent(WatchEventType.ADDED, self._group(i)))

    def go(self, service: Service) -> None:
        caches = service.caches
        for i in self._numbers:
            _kind(service).apply(WatchEvent(WatchEventType.DELETED, self._group(i)))
            for vpod in self._vpods(i):
                caches.vpods.delete(vpod)
            # A node that goes before its pods, as a machine does.
            caches.nodes.delete(self._node(i))
            caches.pods.delete(self._pod(i))
            caches.pools.delete(self._pool(i))
            caches.stateful_sets.delete(self._stateful_set(i))
            caches.namespaces.delete(self._namespace(i))

    def _namespace(self, i: int) -> Namespace:
        return Namespace(name=f"tenant-{i}")

    def _node(self, i: int) -> Node:
        return a_node(f"made-{i}", f"zone-{i}", ready=True, slots=20)

    def _stateful_set(self, i: int) -> StatefulSet:
        return a_stateful_set(1, name=f"set-{i}", uid=f"set-{i}")

    def _pool(self, i: int) -> AdapterPool:
        return a_pool(name=f"pool-{i}", stateful_set=f"set-{i}", uid=f"pool-{i}")

    def _pod(self, i: int) -> AdapterPod:
        pod = a_pod(0, {}, node=f"made-{i}", uid=f"pod-{i}", resource_version=self._version)
        return replace(pod, name=f"set-{i}-0", pool=f"{NS}/pool-{i}", owner=f"set-{i}")

    def _vpods(self, i: int) -> list[VPod]:
        return [
            a_vpod(
                f"{pool}-{i}",
                pool=f"{NS}/{pool}-{i}",
                uid=f"{pool}-{i}",
                resource_version=self._version,
            )
            for pool in ("pool", "none")
        ]

    def _group(self, i: int) -> Obj:
        group = _group(f"g-{i}")
        group["metadata"] |= {
            "namespace": TENANT,
            "uid": f"g-{i}",
            "resourceVersion": self._version,
        }
        return group


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_thousands_of_objects_of_each_kind_leave_nothing_behind_on_any_replica():
    world = await a_world()
    async with replicas(world) as services:
        tasks = len(asyncio.all_tasks())
        for start in range(0, FED, FED_WAVE):
            wave = Fed(range(start, start + FED_WAVE))
            for service in services.values():
                wave.come(service)
            await asyncio.sleep(1)
            for service in services.values():
                wave.go(service)
            await asyncio.sleep(1)
        assert await left(services) == {role: {} for role in services}
        assert len(asyncio.all_tasks()) <= tasks + LEFT_MAX


def _kind(service: Service) -> ForeignKind:
    """The sink of the reflector of a foreign kind."""
    (running,) = service.informers.sources._running.values()
    return running.kind


def _node(name: str) -> Obj:
    status = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "allocatable": {names.SLOTS_RESOURCE: "20"},
    }
    return {
        "metadata": {"name": name, "labels": {names.ZONE_LABEL: f"zone-of-{name}"}},
        "status": status,
    }


def _stateful_set(name: str) -> Obj:
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels},
        "spec": {
            "containers": [{"name": "adapter", "image": "registry.example/adapter:1"}],
            "nodeSelector": {"for": name},
        },
    }
    selector = {"matchLabels": labels}
    spec = {"replicas": 1, "serviceName": name, "selector": selector, "template": template}
    return {"metadata": {"name": name}, "spec": spec}


def _pool(name: str, stateful_set: str) -> Obj:
    spec = {"statefulSet": stateful_set, "slotsPerPod": 20}
    return {
        "apiVersion": names.API_VERSION,
        "kind": "AdapterPool",
        "metadata": {"name": name},
        "spec": spec,
    }


def _pod(stateful_set: Obj, pool: str, *, node: str) -> Obj:
    name, uid = stateful_set["metadata"]["name"], stateful_set["metadata"]["uid"]
    owner = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "name": name,
        "uid": uid,
        "controller": True,
    }
    return {
        "metadata": {
            "name": f"{name}-0",
            "labels": {names.POOL_LABEL: pool},
            "annotations": {names.SLOTS_ANNOTATION: "20", names.PLACEMENTS_ANNOTATION: "{}"},
            "ownerReferences": [owner],
        },
        "spec": {
            "schedulerName": names.SCHEDULER_NAME,
            "containers": [{"name": "adapter", "image": "registry.example/adapter:1"}],
            "nodeName": node,
        },
    }


def _vpod(name: str, pool: str) -> Obj:
    spec = {"poolRef": {"namespace": NS, "name": pool}, "vreplicas": 1}
    return {
        "apiVersion": names.API_VERSION,
        "kind": "VPod",
        "metadata": {"name": name},
        "spec": spec,
    }


def _group(name: str) -> Obj:
    spec = {"template": {}, "replicas": 1}
    return {
        "apiVersion": GROUPS.api_version,
        "kind": GROUPS.kind,
        "metadata": {"name": name},
        "spec": spec,
    }
