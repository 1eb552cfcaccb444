"""A new leader decides nothing before it knows what the one before it has written."""

import asyncio

import orjson
import pytest

from extender.kube.api import PatchType
from extender.service.app import Service
from extender.service.http.schedule import ScheduleRefused
from tests.service.http.test_schedule import a_request
from tests.service.watching.test_sources import GROUP_KEY, GROUPS, PRESET, define, group
from tests.support.service import TENANT, a_world, until

pytestmark = pytest.mark.looptime


async def holds_up(listed: str) -> None:
    """A vpod waits to be placed; the lease is free, and what is listed on taking over does not come
    for a second.
    """
    world = await a_world(0)
    await world.vpod("a", 2)
    lease = world.api.pause("get", "leases")
    async with world.serving(elect=True):
        await lease.reached.wait()
        pause = world.api.pause("list", listed)
        lease.go_on.set()
        async with asyncio.timeout(10):
            await pause.reached.wait()
        await asyncio.sleep(1)
        assert world.api.writes() == []
        pause.go_on.set()
        await until(world.published, {0: 2})


async def test_a_new_leader_waits_until_it_knows_what_was_published_before():
    await holds_up("vpods")


async def test_a_new_leader_waits_until_the_watch_of_pods_is_not_behind():
    await holds_up("pods")


async def test_a_new_leader_answers_no_caller_before_it_knows_what_was_written_before():
    """It would decide by old ledgers, and forget what it was asked and answered as soon as its
    loops begin (seed 240001134).
    """
    world = await a_world(0)
    lease = world.api.pause("get", "leases")
    async with world.serving(elect=True) as service:
        await lease.reached.wait()
        pause = world.api.pause("list", "vpods")
        lease.go_on.set()
        async with asyncio.timeout(10):
            await pause.reached.wait()
        assert service.leadership.leading()
        body = orjson.dumps(a_request(vreplicas=2))
        with pytest.raises(ScheduleRefused, match="is about to lead") as refused:
            await service.schedule_verb().schedule(body)
        assert (refused.value.status, refused.value.retry_after_s) == (503, 1)
        pause.go_on.set()

        async def answered() -> bool:
            try:
                answer, _ = await service.schedule_verb().schedule(body)
            except ScheduleRefused:
                return False
            return bool(orjson.loads(answer)["placements"])

        await until(answered)
        assert len(service.placer.external_vpods) == 1


async def test_after_a_takeover_fewer_of_a_watched_object_are_held_although_its_caller_asks_again():
    """For 15 s nothing is lowered. Afterwards the caller's requests, which name no version of the
    object, held up the placer for ever.
    """
    world = await a_world(0, sources=[{**PRESET, "writeStatus": False}], maxPods=1, replicas=1)
    await define(world)
    await group(world, "g", 9)
    key = f"{TENANT}/g@{GROUP_KEY}"
    published: dict[str, int] = {}

    async def ask(service: Service, vreplicas: int) -> None:
        listed = [{"podName": name, "vreplicas": count} for name, count in published.items()]
        request = a_request(
            name="g",
            kind="ConsumerGroup",
            group=GROUPS.group,
            vreplicas=vreplicas,
            placements=listed,
        )
        try:
            answer, _ = await service.schedule_verb().schedule(orjson.dumps(request))
        except ScheduleRefused:
            return
        placements = orjson.loads(answer)["placements"]
        found = {item["podName"]: item["vreplicas"] for item in placements}
        if found != published:
            published.clear()
            published.update(found)
            await world.patch_status(GROUPS, TENANT, "g", placements=placements)

    for vreplicas, seed in ((9, 1), (2, 2)):
        spec = {"spec": {"replicas": vreplicas}}
        async with world.serving(elect=True, seed=seed) as service:
            for _ in range(60):
                if vreplicas == 9 or service.leading():
                    await world.cluster.patch(GROUPS, TENANT, "g", spec, patch_type=PatchType.MERGE)
                    await ask(service, vreplicas)
                await asyncio.sleep(1)
        assert published == {"dispatcher-0": vreplicas}
        assert await world.ledger(0) == {key: vreplicas}
