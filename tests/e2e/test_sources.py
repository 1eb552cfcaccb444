"""Foreign kinds on an API server: placed, grown, shrunk, gone, with their statuses in their own
shape; and callers.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from extender.kube.api import (
    ADAPTERPOOLS,
    CRDS,
    EVENTS,
    ApiError,
    ListOptions,
    NotFound,
    Obj,
    PatchType,
    Resource,
)
from extender.model.decode import pod_from
from extender.model.ledger import ledger_slots
from extender.model.names import CONDITION_PREFIX
from extender.scheduling_api import (
    CallersVPod,
    GetTotalVReplicas,
    HttpScheduler,
    InsufficientSlots,
    NotScheduled,
    Placement,
)
from tests.e2e.backend import Backend
from tests.e2e.objects import MANIFESTS
from tests.e2e.scenario import POOL, SLOTS_PER_POD, System
from tests.e2e.waiting import NotYet, eventually

KNATIVE = Path(__file__).parents[1] / "contract" / "knative"
GROUPS = Resource(
    "internal.kafka.eventing.knative.dev", "v1alpha1", "consumergroups", "ConsumerGroup"
)
KAFKA = Resource("sources.knative.dev", "v1beta1", "kafkasources", "KafkaSource")
PRESETS: Mapping[Resource, str] = {GROUPS: "knative-consumergroup", KAFKA: "knative-kafkasource"}
THEIRS: Mapping[str, Any] = {
    "observedGeneration": 1,
    "conditions": [{"type": "Ready", "status": "Unknown", "reason": "Theirs"}],
    "subscriberUri": "http://subscriber.example",
}


@asynccontextmanager
async def knative(system: System) -> AsyncIterator[None]:
    """Knative's definitions and our rights to them; they are gone after the scenario, as other
    scenarios expect.
    """
    await system.backend.apply([MANIFESTS / "components" / "knative"])
    definitions = await system.backend.apply(
        [KNATIVE / "consumergroups.yaml", KNATIVE / "kafkasources.yaml"]
    )
    try:
        yield
    finally:
        for definition in definitions:
            await system.backend.api.delete(CRDS, "", definition["metadata"]["name"])
            await eventually(partial(_gone, system, definition), 20.0, "the definition is gone")


async def _gone(system: System, definition: Obj) -> bool:
    try:
        await system.backend.api.get(CRDS, "", definition["metadata"]["name"])
    except NotFound:
        return True
    raise NotYet("still there")


async def create(
    system: System, resource: Resource, namespace: str, name: str, **spec: Any
) -> None:
    obj = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }
    await system.backend.api.create(resource, namespace, obj)
    await system.backend.api.patch(
        resource,
        namespace,
        name,
        {"status": dict(THEIRS)},
        patch_type=PatchType.MERGE,
        subresource="status",
    )


async def change(
    system: System, resource: Resource, namespace: str, name: str, **spec: Any
) -> None:
    await system.backend.api.patch(
        resource, namespace, name, {"spec": spec}, patch_type=PatchType.MERGE
    )


async def status_with(
    system: System, resource: Resource, namespace: str, name: str, vreplicas: int
) -> Obj:
    """The status, once its placements are so many vreplicas and the ledgers say the same."""

    async def look() -> Obj:
        status: Obj = (await system.backend.api.get(resource, namespace, name)).get("status", {})
        published = {item["podName"]: item["vreplicas"] for item in status.get("placements", [])}
        held = await ledgers(system, f"{namespace}/{name}@{resource.kind.lower()}.{resource.group}")
        if sum(published.values()) != vreplicas or held != published:
            raise NotYet(f"published {published}, in the ledgers {held}")
        return status

    return await eventually(look, 45.0, f"{namespace}/{name} has {vreplicas}")


def theirs(status: Obj) -> Obj:
    """What the kind's own controller has in the status."""
    others = [c for c in status["conditions"] if not c["type"].startswith(CONDITION_PREFIX)]
    return {**{key: status[key] for key in THEIRS}, "conditions": others}


def ours(status: Obj) -> dict[str, tuple[str, str]]:
    """Type without its prefix -> (status, reason) of the service's own conditions."""
    return {
        item["type"].removeprefix(CONDITION_PREFIX): (item["status"], item["reason"])
        for item in status["conditions"]
        if item["type"].startswith(CONDITION_PREFIX)
    }


async def event_about(
    system: System, resource: Resource, namespace: str, name: str, reason: str
) -> None:
    """Returns when the object has an event with that reason, under its own UID."""
    uid = (await system.backend.api.get(resource, namespace, name))["metadata"]["uid"]

    async def look() -> bool:
        page = await system.backend.api.list_page(EVENTS, ListOptions(namespace=namespace))
        found = [
            (event["reason"], event["regarding"].get("uid"), event["regarding"].get("kind"))
            for event in page.items
        ]
        if (reason, uid, resource.kind) not in found:
            raise NotYet(str(found))
        return True

    await eventually(look, 20.0, f"an event {reason} on {namespace}/{name}")


async def ledgers(system: System, key: str) -> dict[str, int]:
    adapters = [pod_from(obj) for obj in await system.adapters()]
    assert all(ledger_slots(adapter.ledger) <= SLOTS_PER_POD for adapter in adapters)
    return {a.name: a.ledger[key].vreplicas for a in adapters if key in a.ledger}


async def pool_condition(system: System, kind: str, status: str, reason: str) -> None:
    """Returns when the pool's condition has that status and reason."""

    async def look() -> bool:
        pool = await system.backend.api.get(ADAPTERPOOLS, system.namespace, POOL)
        for item in pool.get("status", {}).get("conditions", []):
            if (item["type"], item["status"], item["reason"]) == (kind, status, reason):
                return True
        raise NotYet(str(pool.get("status")))

    await eventually(look, 30.0, f"{kind} is {status}, {reason}")


@pytest.mark.parametrize(
    ("resource", "count", "field"),
    [
        pytest.param(GROUPS, "replicas", None, id="ConsumerGroup"),
        pytest.param(KAFKA, "consumers", "consumers", id="KafkaSource"),
    ],
)
async def test_an_object_of_a_foreign_kind_is_placed_grows_shrinks_and_goes(
    backend: Backend, tmp_path: Path, resource: Resource, count: str, field: str | None
):
    async with System(backend, tmp_path) as system, knative(system):
        await backend.add_nodes(3)
        await system.pool(sources=[{"preset": PRESETS[resource]}])
        tenant = await backend.namespace("tenant")
        await create(system, resource, tenant, "a", **{count: 8})
        status = await status_with(system, resource, tenant, "a", 8)
        assert theirs(status) == THEIRS
        assert set(status) == {*THEIRS, "placements", *([field] if field else [])}
        assert ours(status)["Scheduled"] == ("True", "AllPlaced")
        await event_about(system, resource, tenant, "a", "Scheduled")
        assert field is None or status[field] == 8
        await change(system, resource, tenant, "a", **{count: 45})
        status = await status_with(system, resource, tenant, "a", 45)
        assert len(status["placements"]) == 3
        await change(system, resource, tenant, "a", **{count: 5})
        await status_with(system, resource, tenant, "a", 5)
        await backend.api.delete(resource, tenant, "a")
        key = f"{tenant}/a@{resource.kind.lower()}.{resource.group}"

        async def released() -> bool:
            if held := await ledgers(system, key):
                raise NotYet(str(held))
            return True

        await eventually(released, 30.0, "its slots are free")


async def test_a_kind_whose_definition_comes_late_keeps_nobody_waiting(
    backend: Backend, tmp_path: Path
):
    async with System(backend, tmp_path) as system:
        await backend.add_nodes(3)
        await backend.apply([MANIFESTS / "components" / "knative"])
        await system.pool(sources=[{"preset": "knative-consumergroup"}])
        await system.vpods(3, 5)
        await system.settled(pods=1)
        await pool_condition(system, "SourceUnavailable", "True", "NotServed")
        async with knative(system):
            tenant = await backend.namespace("tenant")
            await create(system, GROUPS, tenant, "a", replicas=8)
            await status_with(system, GROUPS, tenant, "a", 8)
            await pool_condition(system, "SourceUnavailable", "False", "AllWatched")
        await pool_condition(system, "SourceUnavailable", "True", "NotServed")


async def test_a_service_that_is_killed_moves_nothing_of_a_foreign_kind(
    backend: Backend, tmp_path: Path
):
    async with System(backend, tmp_path) as system, knative(system):
        await backend.add_nodes(3)
        await system.pool(sources=[{"preset": "knative-consumergroup"}])
        tenant = await backend.namespace("tenant")
        await asyncio.gather(
            *(create(system, GROUPS, tenant, f"g-{i}", replicas=7) for i in range(6))
        )
        before = [
            (await status_with(system, GROUPS, tenant, f"g-{i}", 7))["placements"] for i in range(6)
        ]
        await system.restart()
        await system.service.leads()
        await change(system, GROUPS, tenant, "g-0", replicas=9)
        await status_with(system, GROUPS, tenant, "g-0", 9)
        after = [await status_with(system, GROUPS, tenant, f"g-{i}", 7) for i in range(1, 6)]
        assert [status["placements"] for status in after] == before[1:]
        assert [theirs(status) for status in after] == [THEIRS] * 5
        assert not [status for status in after if "Moved" in ours(status)]


async def test_a_caller_is_placed_and_its_share_outlives_the_service(
    backend: Backend, tmp_path: Path
):
    async with System(backend, tmp_path) as system:
        await backend.add_nodes(3)
        namespace = await system.pool()
        tenant = await backend.namespace("tenant")
        key = f"{tenant}/a@broker.x.dev"
        async with HttpScheduler([system.service_url], pool=f"{namespace}/{POOL}") as scheduler:
            published = await scheduled(scheduler, tenant, 25, [])
            assert GetTotalVReplicas(published) == 25
            assert await ledgers(system, key) == dict(published)
            await system.restart()
            await system.service.leads()
            await system.vpods(2, 10)
            await system_is_full(system)
            assert await ledgers(system, key) == dict(published)
            assert await scheduled(scheduler, tenant, 25, published) == published
            assert await scheduler.schedule(a_callers(tenant, 25, published, deleted=True)) == []
            assert await ledgers(system, key) == {}


async def scheduled(
    scheduler: HttpScheduler, tenant: str, vreplicas: int, published: list[Placement]
) -> list[Placement]:
    """As a controller does: publish what has a place, and ask again until all has."""

    async def ask() -> list[Placement]:
        nonlocal published
        try:
            published = await scheduler.schedule(a_callers(tenant, vreplicas, published))
        except InsufficientSlots as error:
            published = error.placements
            raise NotYet(str(error)) from error
        except NotScheduled as error:
            raise NotYet(str(error)) from error  # whoever is about to lead says so
        return published

    return await eventually(ask, 45.0, f"{vreplicas} are placed")


def a_callers(
    tenant: str, vreplicas: int, published: list[Placement], **fields: Any
) -> CallersVPod:
    return CallersVPod(
        namespace=tenant,
        name="a",
        kind="Broker",
        group="x.dev",
        vreplicas=vreplicas,
        placements=published,
        **fields,
    )


async def system_is_full(system: System) -> None:
    """All VPods are placed, beside what callers have."""

    async def look() -> bool:
        vpods = await system.all_vpods()
        if any(sum(vpod.placements.values()) != vpod.vreplicas for vpod in vpods.values()):
            raise NotYet(str({key: dict(vpod.placements) for key, vpod in vpods.items()}))
        return True

    await eventually(look, 45.0, "all VPods are placed")


async def test_a_source_that_cannot_be_right_is_refused(backend: Backend, tmp_path: Path):
    async with System(backend, tmp_path) as system:
        paths = {"vreplicas": "spec.n", "placements": "status.placements"}
        place = {"group": "x.dev", "version": "v1", "resource": "xs", "kind": "X"}
        rows: list[tuple[Obj, str]] = [
            ({"preset": "kafka"}, "known are knative-consumergroup, knative-kafkasource"),
            ({"preset": "knative-kafkasource", "kind": "X"}, "a preset says all of them"),
            ({**place}, "a resource needs group, version, kind and paths"),
            (
                {**place, "group": "vreplica.dev", "paths": paths},
                "vreplica.dev has no foreign kinds",
            ),
            ({**place, "paths": {**paths, "placements": "spec.p"}}, "must be below status"),
        ]
        for source, message in rows:
            with pytest.raises(ApiError, match=message):
                await system.pool(sources=[source])
