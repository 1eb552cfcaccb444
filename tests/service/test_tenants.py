"""A pool is for the namespaces that its namespaceSelector selects; who is no longer selected keeps
what stands, and gets no more.
"""

import asyncio
import re
from collections.abc import Mapping
from typing import Any, Final

import orjson
import pytest

from extender.kube.api import ADAPTERPOOLS, NAMESPACES, PODS, STATEFULSETS, VPODS, Obj, PatchType
from extender.model.bucket import WHOLE
from extender.model.names import API_VERSION
from extender.model.objects import LabelSelector, Namespace, VPod
from extender.model.reasons import ConflictReason
from extender.service.http.schedule import vpod_of_request
from extender.service.placing.activation import Activation
from extender.service.placing.queue import VPodQueues
from extender.service.watching.caches import Caches
from tests.service.watching import test_sources as sources
from tests.support import builders
from tests.support.builders import NS, POOL, a_vpod
from tests.support.service import TENANT, World, until

pytestmark = pytest.mark.looptime

PAID: Final = {"matchLabels": {"tier": "paid"}}


async def label(world: World, tier: str | None, namespace: str = TENANT) -> None:
    patch: Obj = {"metadata": {"labels": {"tier": tier}}}
    await world.cluster.patch(NAMESPACES, "", namespace, patch, patch_type=PatchType.MERGE)


async def a_world(**spec: Any) -> World:
    world = await World.create(namespaceSelector=PAID, **spec)
    await world.pods(0, 1, 2)
    return world


async def test_who_is_not_selected_gets_nothing_and_is_told_why():
    world = await a_world()
    await world.vpod("a", 90)
    async with world.serving():
        await until(world.condition, ("False", "TenantNotAllowed"), timeout_s=5)
        await asyncio.sleep(120)
        assert await world.published() == {}
        assert [await world.ledger(ordinal) for ordinal in (0, 1, 2)] == [{}, {}, {}]
        assert await world.replicas() <= 3, "a pool does not grow for who may not use it"
        (event,) = await world.events("FailedScheduling")
        assert "TenantNotAllowed" in event["note"]


async def test_a_label_that_comes_places_and_one_that_goes_takes_nothing_away():
    world = await a_world()
    await world.vpod("a", 6)
    async with world.serving() as service:
        await until(world.condition, ("False", "TenantNotAllowed"), timeout_s=5)
        await label(world, "paid")
        await until(world.condition, ("True", "AllPlaced"), timeout_s=5)
        before = await world.published()
        await label(world, None)
        await asyncio.sleep(90)
        assert await world.published() == before, "I4: no needless move"
        await world.set_vreplicas("a", 9)
        await until(world.condition, ("False", "TenantNotAllowed"), timeout_s=5)
        assert await world.published() == before
        await world.set_vreplicas("a", 4)
        await until(world.placed, 4, timeout_s=5)
        assert await world.condition() == ("True", "AllPlaced")
        await world.set_vreplicas("a", 5)
        await until(world.condition, ("False", "TenantNotAllowed"), timeout_s=5)
        await label(world, "paid")
        await until(world.placed, 5, timeout_s=5)
        repairs = re.findall(
            r'repairs_total\{kind="\w+"\} (\S+)', service.metrics.render().decode()
        )
        assert set(repairs) == {"0.0"}


async def test_what_stands_comes_back_with_its_pod_also_where_it_is_no_longer_selected():
    world = await World.create(namespaceSelector=PAID)
    await world.pod(0, {"tenant/a": 3}, node="node-0")
    await world.vpod("a", 3, {0: 3})
    async with world.serving() as service, world.adapters(service):
        await asyncio.sleep(2)
        await world.remove_pod(0)
        await until(lambda: is_back(world), timeout_s=10)
        await asyncio.sleep(5)
        assert await world.ledger(0) == {"tenant/a": 3}
        assert await world.published() == {0: 3}
    # Nor does a new leader, who has seen no other label, take it for a mistake.
    async with world.serving():
        await asyncio.sleep(90)
        assert await world.published() == {0: 3}


async def test_a_selector_that_changes_is_as_a_label_that_changes():
    world = await a_world()
    await world.vpod("a", 6)
    async with world.serving():
        await until(world.condition, ("False", "TenantNotAllowed"), timeout_s=5)
        await select(world, {})
        await until(world.placed, 6, timeout_s=5)
        await select(world, {"matchLabels": {"tier": "gold"}})
        await world.vpod("b", 2)
        await asyncio.sleep(5)
        assert await world.published("a")
        assert await world.condition("b") == ("False", "TenantNotAllowed")
        assert await world.published("b") == {}


async def test_a_vpod_that_names_a_pool_it_may_not_use_loses_what_it_had_in_its_own():
    """Its own doing: nothing of the old pool is held for it, and nothing of the new one is given to
    it.
    """
    world = await World.create()
    await world.pods(0, 1, 2)
    await world.cluster.create(ADAPTERPOOLS, NS, a_pool("closed", PAID))
    workload = await world.cluster.get(STATEFULSETS, NS, "dispatcher")
    await world.cluster.create(
        STATEFULSETS, NS, {"metadata": {"name": "closed"}, "spec": workload["spec"]}
    )
    await world.vpod("a", 6)
    async with world.serving():
        await until(world.condition, ("True", "AllPlaced"), timeout_s=5)
        ref = {"spec": {"poolRef": {"namespace": NS, "name": "closed"}}}
        await world.cluster.patch(VPODS, TENANT, "a", ref, patch_type=PatchType.MERGE)
        await asyncio.sleep(30)
        assert await world.condition() == ("False", "TenantNotAllowed")
        assert [await world.ledger(ordinal) for ordinal in (0, 1, 2)] == [{}, {}, {}]
        assert await world.published() == {}


async def test_objects_of_foreign_kinds_keep_what_they_have_and_get_no_more_when_a_label_goes():
    world = await sources.a_world(sources=[sources.PRESET], namespaceSelector=PAID)
    await world.pods(0, 1, 2)
    await label(world, "paid")
    await sources.group(world, replicas=3)
    async with world.serving():
        await sources.placed_is(world, 3)
        await label(world, None)
        await asyncio.sleep(90)
        assert await sources.placed(world) == 3
        assert await sources.keys(world) == {sources.KEY}
        await sources.want(world, 9)
        await asyncio.sleep(30)
        assert await sources.placed(world) == 3
        await label(world, "paid")
        await sources.placed_is(world, 9)


async def test_a_caller_that_is_no_longer_selected_is_answered_with_what_it_has_and_the_reason():
    world = await a_world()
    await label(world, "paid")
    async with world.serving() as service:
        await asyncio.sleep(1)
        decision = await service.placer.schedule(a_callers_vpod(3))
        assert decision.pending == 0
        await label(world, None)
        await asyncio.sleep(1)
        again = await service.placer.schedule(a_callers_vpod(8, decision.target))
        assert (dict(again.target), again.pending) == (dict(decision.target), 5)
        assert again.explanation.reason is ConflictReason.TENANT_NOT_ALLOWED


def a_callers_vpod(vreplicas: int, placements: Mapping[str, int] | None = None) -> VPod:
    vpod = {
        "namespace": TENANT,
        "name": "x",
        "kind": "Broker",
        "group": "x.dev",
        "vreplicas": vreplicas,
    }
    listed = [{"podName": name, "vreplicas": count} for name, count in (placements or {}).items()]
    body = {"vpod": {**vpod, "placements": listed}, "pool": {"namespace": NS, "name": "dispatcher"}}
    return vpod_of_request(orjson.dumps(body))


def a_pool(name: str, selector: Obj) -> Obj:
    return {
        "apiVersion": API_VERSION,
        "kind": "AdapterPool",
        "metadata": {"name": name},
        "spec": {"statefulSet": name, "slotsPerPod": 20, "namespaceSelector": selector},
    }


async def select(world: World, selector: Obj) -> None:
    await world.cluster.patch(
        ADAPTERPOOLS,
        NS,
        "dispatcher",
        [{"op": "replace", "path": "/spec/namespaceSelector", "value": selector}],
        patch_type=PatchType.JSON,
    )


async def is_back(world: World) -> bool:
    pods = (await world.cluster.list_page(PODS)).items
    return any(p["metadata"]["name"] == "dispatcher-0" and p["spec"].get("nodeName") for p in pods)


@pytest.mark.parametrize(
    ("name", "labels", "comes"),
    [
        pytest.param("unrelated", {"tier": "paid"}, False, id="of a namespace without vpods"),
        pytest.param(
            TENANT, {"tier": "free", "city": "Ulm"}, False, id="that the pool does not look at"
        ),
        pytest.param(TENANT, {"tier": "paid"}, True, id="by which the pool selects it"),
    ],
)
async def test_what_waits_is_decided_again_for_labels_that_matter_to_it(
    name: str, labels: dict[str, str], comes: bool
):
    caches = Caches()
    queues = VPodQueues(asyncio.get_running_loop().time, rank=lambda _pool, _key: (0, 1))
    queues.begin(WHOLE)
    Activation(caches, queues)
    caches.namespaces.update(Namespace(name=TENANT, labels={"tier": "free"}))
    caches.pools.update(
        builders.a_pool(namespace_selector=LabelSelector(match_labels={"tier": "paid"}))
    )
    caches.vpods.update(a_vpod("a", 2))
    queue = queues.of(POOL)
    assert await queue.pop_batch(1) == [f"{TENANT}/a"]
    queue.park(f"{TENANT}/a")
    caches.namespaces.update(Namespace(name=name, labels=labels))
    assert queue.sizes["active"] == int(comes)
