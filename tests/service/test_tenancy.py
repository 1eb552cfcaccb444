"""Tenants share a pool by ``spec.tenancy``: who asks for too much waits, and is told why."""

import asyncio
import re
from functools import partial
from typing import Any, Final

import pytest

from extender.kube.api import CRDS, NAMESPACES, VPODS, VREPLICAQUOTAS, Obj, PatchType
from extender.model.bucket import Bucket
from extender.model.counted import EXACT_MAX
from extender.model.names import API_VERSION
from extender.model.objects import VPod
from extender.model.reasons import ConflictReason
from extender.model.tenancy import VReplicaQuota
from extender.service.pools.quota_status import PERIOD_S, WRITES_MAX, QuotaStatusWriter
from extender.service.watching.caches import Caches
from tests.support.builders import NS, POOL
from tests.support.service import World, until, wall
from tests.support.tasks import at_work

pytestmark = pytest.mark.looptime

MANY: Final = 2**31 - 1


async def a_world(*tenants: str, **tenancy: Any) -> World:
    """Three pods of 20 slots, and no more to come."""
    world = await World.create(maxPods=3, tenancy=tenancy)
    await world.pods(0, 1, 2)
    for name in tenants:
        await world.cluster.create(NAMESPACES, "", {"metadata": {"name": name}})
    return world


async def set_quota(
    world: World, namespace: str, *, name: str = "quota", pool: str = "dispatcher", **spec: int
) -> None:
    quota = {
        "apiVersion": API_VERSION,
        "kind": "VReplicaQuota",
        "metadata": {"name": name},
        "spec": {"poolRef": {"namespace": NS, "name": pool}, **spec},
    }
    await world.cluster.create(VREPLICAQUOTAS, namespace, quota)


async def status_of(world: World, namespace: str, name: str = "quota") -> Obj:
    stored = await world.cluster.get(VREPLICAQUOTAS, namespace, name)
    return dict(stored.get("status", {}))


async def ask_for(world: World, tenant: str, vreplicas: int, **spec: Any) -> None:
    """The vpod that is named like its tenant asks for so many."""
    await world.vpod(tenant, vreplicas, namespace=tenant, **spec)


async def placed(world: World, tenant: str) -> int:
    return await count_of(world, tenant, tenant)


async def scheduled(world: World, tenant: str) -> Obj:
    """The condition Scheduled of a tenant's vpod."""
    stored = await world.cluster.get(VPODS, tenant, tenant)
    conditions = stored.get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == "Scheduled"), {})


async def reason(world: World, tenant: str) -> str:
    return str((await scheduled(world, tenant)).get("reason", ""))


async def count_of(world: World, namespace: str, name: str) -> int:
    """The vreplicas that a vpod publishes."""
    stored = await world.cluster.get(VPODS, namespace, name)
    return int(stored.get("status", {}).get("scheduledVReplicas", 0))


def active(status: Obj) -> tuple[str, str]:
    """Status and reason of a quota's condition."""
    [condition] = status["conditions"]
    return condition["status"], condition["reason"]


async def test_a_greedy_tenant_gets_its_limit_and_is_told_so():
    world = await a_world("greedy", defaultLimit=12)
    await ask_for(world, "greedy", MANY)
    async with world.serving() as service:
        await until(partial(reason, world, "greedy"), "QuotaExceeded", timeout_s=5)
        waiting = re.findall(
            r'unschedulable_vpods\{reason="QuotaExceeded"\} (\S+)',
            service.metrics.render().decode(),
        )
        assert waiting == ["1.0"]
        assert await placed(world, "greedy") == 12
        message = (await scheduled(world, "greedy"))["message"]
        assert message.endswith("(QuotaExceeded): the limit of tenant greedy is 12 slots")
        [event] = await world.events("FailedScheduling")
        assert "QuotaExceeded" in event["note"]
        await asyncio.sleep(120)
        assert await world.replicas() == 1, "the pool has the size of what is admitted"


async def test_late_tenants_get_their_share_of_what_a_greedy_one_has_taken():
    late = [f"late-{number}" for number in range(5)]
    world = await a_world("greedy", *late)
    await ask_for(world, "greedy", MANY)
    async with world.serving():
        await until(partial(placed, world, "greedy"), 60, timeout_s=5)
        for name in late:
            await ask_for(world, name, 2)
        for name in late:
            await until(partial(placed, world, name), 2, timeout_s=5)
        assert await placed(world, "greedy") == 50
        message = (await scheduled(world, "greedy"))["message"]
        assert "tenant greedy may use 50 of the pool's 60 slots" in message


async def test_a_guarantee_is_kept_against_who_was_there_first():
    world = await a_world("first", "second")
    await set_quota(world, "second", guarantee=40)
    await ask_for(world, "first", 60)
    async with world.serving():
        await until(partial(placed, world, "first"), 60, timeout_s=5)
        await ask_for(world, "second", 60)
        await until(partial(placed, world, "second"), 50, timeout_s=5)
        assert await placed(world, "first") == 10


async def test_a_quota_that_changes_or_goes_is_followed():
    world = await a_world("tenant-a", defaultLimit=5)
    await ask_for(world, "tenant-a", 30)
    async with world.serving():
        await until(partial(placed, world, "tenant-a"), 5, timeout_s=5)
        await set_quota(world, "tenant-a", limit=20)
        await until(partial(placed, world, "tenant-a"), 20, timeout_s=5)
        patch: Obj = {"spec": {"limit": 8}}
        await world.cluster.patch(
            VREPLICAQUOTAS, "tenant-a", "quota", patch, patch_type=PatchType.MERGE
        )
        await until(partial(placed, world, "tenant-a"), 8, timeout_s=5)
        await world.cluster.delete(VREPLICAQUOTAS, "tenant-a", "quota")
        await until(partial(placed, world, "tenant-a"), 5, timeout_s=5)


async def test_a_vpod_that_goes_makes_room_for_those_of_its_tenant_and_of_others():
    world = await a_world("tenant-a", "tenant-b", defaultLimit=40)
    await world.vpod("old", 40, namespace="tenant-a")
    async with world.serving():
        await until(partial(count_of, world, "tenant-a", "old"), 40, timeout_s=5)
        await world.vpod("next", 40, namespace="tenant-a")
        await ask_for(world, "tenant-b", 40)
        await until(partial(placed, world, "tenant-b"), 30, timeout_s=5)
        await world.cluster.delete(VPODS, "tenant-a", "old")
        await until(partial(count_of, world, "tenant-a", "next"), 30, timeout_s=5)


async def test_namespaces_of_one_team_share_its_limit():
    world = await a_world(defaultLimit=10, tenantLabel="team")
    for name, team in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        await world.cluster.create(
            NAMESPACES, "", {"metadata": {"name": name, "labels": {"team": team}}}
        )
        await ask_for(world, name, 8)
    async with world.serving():
        await until(partial(placed, world, "b1"), 8, timeout_s=5)
        await until(partial(placed, world, "a1"), 8, timeout_s=5)
        await until(partial(placed, world, "a2"), 2, timeout_s=5)
        patch: Obj = {"metadata": {"labels": {"team": "c"}}}
        await world.cluster.patch(NAMESPACES, "", "a2", patch, patch_type=PatchType.MERGE)
        await until(partial(placed, world, "a2"), 8, timeout_s=5)


async def test_the_status_of_a_quota_says_what_its_tenant_has():
    world = await a_world("tenant-a")
    await set_quota(world, "tenant-a", limit=12)
    await ask_for(world, "tenant-a", 10, slotsPerVReplica=2)
    async with world.serving():
        await until(partial(placed, world, "tenant-a"), 6, timeout_s=5)
        await asyncio.sleep(3)
        status = await status_of(world, "tenant-a")
        assert {name: status[name] for name in ("askedSlots", "usedSlots", "waitingSlots")} == {
            "askedSlots": 20,
            "usedSlots": 12,
            "waitingSlots": 8,
        }
        assert (status["tenant"], active(status)) == ("tenant-a", ("True", "Counts"))
        since = status["conditions"][0]["lastTransitionTime"]
        written = (await world.cluster.get(VREPLICAQUOTAS, "tenant-a", "quota"))["metadata"]
        await asyncio.sleep(10)
        await world.cluster.patch(
            VPODS, "tenant-a", "tenant-a", {"spec": {"vreplicas": 3}}, patch_type=PatchType.MERGE
        )
        await asyncio.sleep(3)
        status = await status_of(world, "tenant-a")
        assert (status["usedSlots"], status["waitingSlots"]) == (6, 0)
        assert status["conditions"][0]["lastTransitionTime"] == since
        now = (await world.cluster.get(VREPLICAQUOTAS, "tenant-a", "quota"))["metadata"]
        assert now["resourceVersion"] != written["resourceVersion"]
        await asyncio.sleep(30)
        last = (await world.cluster.get(VREPLICAQUOTAS, "tenant-a", "quota"))["metadata"]
        assert last["resourceVersion"] == now["resourceVersion"], "nothing to write"


async def test_a_tenant_may_ask_for_more_slots_than_its_quota_can_say():
    world = await a_world("tenant-a")
    await set_quota(world, "tenant-a", limit=12)
    for number in range(3):
        await world.vpod(f"huge-{number}", MANY, namespace="tenant-a", slotsPerVReplica=MANY)
    async with world.serving():
        await asyncio.sleep(5)
        status = await status_of(world, "tenant-a")
        assert (status["askedSlots"], status["waitingSlots"]) == (EXACT_MAX, EXACT_MAX)


@pytest.mark.parametrize(
    ("tenancy", "pool", "why"),
    [
        pytest.param({}, "dispatcher", "OlderQuotaCounts", id="two for one tenant"),
        pytest.param(None, "dispatcher", "PoolWithoutTenancy", id="no tenancy"),
        pytest.param({}, "other", "PoolNotFound", id="no pool"),
    ],
)
async def test_a_quota_that_does_not_count_says_why(tenancy, pool, why):
    world = await World.create(**({} if tenancy is None else {"tenancy": tenancy}))
    await world.pods(0)
    await world.cluster.create(NAMESPACES, "", {"metadata": {"name": "tenant-a"}})
    await set_quota(world, "tenant-a", name="first", limit=3)
    await asyncio.sleep(5)
    await set_quota(world, "tenant-a", pool=pool, limit=12)
    await ask_for(world, "tenant-a", 10)
    async with world.serving():
        await asyncio.sleep(5)
        assert active(await status_of(world, "tenant-a")) == ("False", why)
        expected = 10 if tenancy is None else 3
        assert await placed(world, "tenant-a") == expected


async def test_what_a_caller_asks_for_is_limited_too():
    world = await a_world("tenant-a", defaultLimit=7)
    async with world.serving() as service:
        await until(service.leading, timeout_s=5)
        decision = await service.placer.schedule(
            VPod(namespace="tenant-a", name="stream", source="s.x.dev", pool=POOL, vreplicas=20)
        )
        assert (decision.scheduled, decision.pending) == (7, 13)
        assert decision.explanation.told_reason is ConflictReason.QUOTA_EXCEEDED


async def test_a_cluster_with_the_kinds_of_an_earlier_version_is_served():
    world = await a_world("tenant-a", defaultLimit=7)
    await world.cluster.delete(CRDS, "", "vreplicaquotas.vreplica.dev")
    await ask_for(world, "tenant-a", 10)
    async with world.serving():
        await until(partial(placed, world, "tenant-a"), 7, timeout_s=5)


async def a_full_pool_that_preempts(**preemption: int) -> World:
    """Three pods of 20 slots, all used by the vpod "low"."""
    world = await World.create(
        maxPods=3, preemption={"patienceSeconds": 0, **preemption}, scaleDownPeriodSeconds=10
    )
    await world.pods(0, 1, 2)
    for name in ("low", "high"):
        await world.cluster.create(NAMESPACES, "", {"metadata": {"name": name}})
    await ask_for(world, "low", 60)
    return world


async def test_both_sides_of_a_preemption_get_an_event():
    world = await a_full_pool_that_preempts()
    async with world.serving() as service:
        await until(partial(placed, world, "low"), 60, timeout_s=5)
        await ask_for(world, "high", 6, priority=1000)
        await until(partial(placed, world, "high"), 6, timeout_s=5)
        await asyncio.sleep(1)
        notes = {
            event["regarding"]["name"]: event["note"] for event in await world.events("Preempted")
        }
        assert notes == {
            "high": "6 slots are taken from vpods of a lower priority",
            "low": "6 vreplicas are taken: vpods of a higher priority come first in the pool's "
            "60 slots",
        }
        assert "preempted_vreplicas_total 6.0" in service.metrics.render().decode()


async def test_a_pool_with_slots_per_period_takes_no_more_in_a_period():
    world = await a_full_pool_that_preempts(slotsPerPeriod=4)
    async with world.serving():
        await until(partial(placed, world, "low"), 60, timeout_s=5)
        await asyncio.sleep(30)
        await ask_for(world, "high", 10, priority=1000)
        seen = []
        for _ in range(40):
            await asyncio.sleep(1)
            seen.append((await placed(world, "low"), await placed(world, "high")))
        assert list(dict.fromkeys(seen)) == [(56, 4), (52, 8), (50, 10)]
        first = [seen.index(pair) for pair in ((52, 8), (50, 10))]
        assert first[1] - first[0] == 10, first
        assert await reason(world, "low") == "Preempted"


async def test_what_a_quota_takes_is_no_preemption():
    world = await a_world("tenant-a")
    await set_quota(world, "tenant-a", limit=20)
    await world.vpod("high", 5, namespace="tenant-a", priority=1000)
    await ask_for(world, "tenant-a", 15)
    async with world.serving() as service:
        await until(partial(placed, world, "tenant-a"), 15, timeout_s=10)
        limit: Obj = {"spec": {"limit": 10}}
        await world.cluster.patch(
            VREPLICAQUOTAS, "tenant-a", "quota", limit, patch_type=PatchType.MERGE
        )
        await until(partial(placed, world, "tenant-a"), 5, timeout_s=30)
        await asyncio.sleep(1)
        assert await world.events("Preempted") == []
        assert "preempted_vreplicas_total 0.0" in service.metrics.render().decode()


async def test_quotas_of_one_bucket_get_their_turns_whatever_another_bucket_writes():
    world, caches = World(), Caches()
    writer = QuotaStatusWriter(caches, fenced=lambda _pool: world.api, now=wall)
    buckets = Bucket(0, 2), Bucket(1, 2)
    many, single = (
        next(pool for number in range(99) if bucket.has(pool := f"{NS}/pool-{number}"))
        for bucket in buckets
    )
    pools = {f"a-{number:02}": many for number in range(2 * WRITES_MAX)} | {"z": single}
    for namespace, pool in pools.items():
        caches.quotas.update(VReplicaQuota(namespace=namespace, name="quota", pool=pool))
    # No write ever changes the caches, so each quota is outdated again in the next period.
    async with at_work(*(writer.run(bucket) for bucket in buckets)):
        await asyncio.sleep(1.5 * PERIOD_S)
    written = [
        call.namespace for call in world.api.calls if call.is_a("patch", "vreplicaquotas/status")
    ]
    assert set(written) == pools.keys()
