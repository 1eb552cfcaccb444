"""Two installations in one cluster, both active, each with namespaces of its own
(``pools.namespaces``): each places its own pools, and leaves the other's alone.
"""

import asyncio

import orjson
import pytest

from extender.kube.api import EVENTS, PODS, Obj
from extender.service.app import Service
from extender.service.http.schedule import ScheduleRefused
from tests.support.builders import NS
from tests.support.service import World, a_world, bind_args, filter_args, until

pytestmark = pytest.mark.looptime

OTHERS = "others"


async def two_pools() -> tuple[World, World]:
    """Two pools of one name and two bound pods each, and a vpod for each."""
    ours = await a_world(0, 1, replicas=2)
    theirs = await ours.beside(OTHERS, 0, 1)
    await ours.vpod("ours", 8)
    await theirs.vpod("theirs", 6)
    return ours, theirs


async def about(world: World, name: str) -> list[Obj]:
    """The events about an object of that name."""
    page = await world.cluster.list_page(EVENTS)
    return [event for event in page.items if event["regarding"]["name"] == name]


async def test_each_places_its_own_pools_and_writes_nothing_of_the_others():
    ours, theirs = await two_pools()
    async with (
        ours.serving(pool_namespaces=[NS]),
        theirs.serving(pool_namespaces=[OTHERS], seed=2),
    ):
        await until(lambda: ours.placed("ours"), 8, timeout_s=5)
        await until(lambda: theirs.placed("theirs"), 6, timeout_s=5)
        await asyncio.sleep(120)
        assert sum((await ours.ledger(0)).values()) + sum((await ours.ledger(1)).values()) == 8
        assert sum((await theirs.ledger(0)).values()) + sum((await theirs.ledger(1)).values()) == 6
    assert written(ours) == ({NS}, {"ours"})
    assert written(theirs) == ({OTHERS}, {"theirs"})
    assert not await ours.events("ForeignWrite")
    assert not await ours.events("LedgerDiffers")


def written(world: World) -> tuple[set[str], set[str]]:
    """What it has written: the namespaces of all but vpods, and the names of vpods."""
    calls = world.api.writes()
    vpods = {call.name for call in calls if call.what == "vpods/status"}
    return {call.namespace for call in calls if call.what != "vpods/status"}, vpods


async def test_a_vpod_of_anothers_pool_has_neither_status_nor_event_of_ours():
    ours, theirs = await two_pools()
    async with ours.serving(pool_namespaces=[NS]) as service:
        await until(lambda: ours.placed("ours"), 8, timeout_s=5)
        await asyncio.sleep(120)
        assert not await theirs.status("theirs")
        assert not await about(ours, "theirs")
        assert list(service.caches.state.pools) == [f"{NS}/dispatcher"]


async def test_a_pool_that_no_namespace_of_ours_has_is_told_of_where_we_serve():
    ours, _ = await two_pools()
    await ours.vpod("astray", 1, poolRef={"namespace": NS, "name": "nowhere"})
    await ours.vpod("elsewhere", 1, poolRef={"namespace": OTHERS, "name": "nowhere"})
    async with ours.serving(pool_namespaces=[NS]):
        await until(lambda: ours.placed("ours"), 8, timeout_s=5)
        await asyncio.sleep(30)
        assert await ours.condition("astray") == ("False", "PoolNotFound")
        assert not await ours.status("elsewhere")


async def test_a_vpod_may_change_to_a_pool_of_the_other_installation():
    ours, theirs = await two_pools()
    async with (
        ours.serving(pool_namespaces=[NS]),
        theirs.serving(pool_namespaces=[OTHERS], seed=2),
    ):
        await until(lambda: ours.placed("ours"), 8, timeout_s=5)
        await ours.point("ours", at=OTHERS)

        async def moved() -> bool:
            there = [(await theirs.ledger(ordinal)).get("tenant/ours", 0) for ordinal in (0, 1)]
            return sum(there) == 8

        async def freed() -> bool:
            return not {**await ours.ledger(0), **await ours.ledger(1)}

        await until(moved, timeout_s=5)
        await until(freed, timeout_s=5)
        await asyncio.sleep(60)
        assert await ours.condition("ours") == ("True", "AllPlaced")


async def test_a_namespace_is_handed_over_without_a_move():
    ours, theirs = await two_pools()
    async with ours.serving(pool_namespaces=[NS]):
        await until(lambda: ours.placed("ours"), 8, timeout_s=5)
    before = await ours.published("ours"), await ours.ledger(0), await ours.ledger(1)
    writes = len(ours.api.writes())
    async with theirs.serving(pool_namespaces=[NS, OTHERS], seed=2):
        await until(lambda: theirs.placed("theirs"), 6, timeout_s=5)
        await asyncio.sleep(20)
    assert (await ours.published("ours"), await ours.ledger(0), await ours.ledger(1)) == before
    assert len(ours.api.writes()) == writes
    assert not await ours.events("Moved")


async def a_pending_pod(theirs: World, service: Service) -> Obj:
    await theirs.pod(2)
    await service.informers.catch_up()
    return await theirs.pod_object(2)


async def test_a_pod_of_anothers_pool_fits_no_node_and_is_not_bound():
    ours, theirs = await two_pools()
    async with ours.serving(pool_namespaces=[NS]) as service:
        pod = await a_pending_pod(theirs, service)
        reply = orjson.loads(service.verbs.filter(filter_args(pod, ["node-0", "node-1"]))[0])
        assert reply["NodeNames"] == []
        assert reply["FailedAndUnresolvableNodes"] == dict.fromkeys(
            ["node-0", "node-1"], "PoolNotServed"
        )
        bound = orjson.loads((await service.verbs.bind(bind_args(pod, "node-0")))[0])
        assert bound["Error"].startswith("PoolNotServed: pools.namespaces")
        assert "nodeName" not in (await theirs.pod_object(2))["spec"]
        assert service.caches.pods.get(f"{OTHERS}/dispatcher-2") is None
        await asyncio.sleep(5)
        assert [event["reason"] for event in await about(ours, "dispatcher-2")] == ["FailedBinding"]


async def test_a_controller_that_asks_for_anothers_pool_is_sent_there():
    ours, _ = await two_pools()
    request = {
        "vpod": {"namespace": "tenant", "name": "a", "vreplicas": 1},
        "pool": {"namespace": OTHERS, "name": "dispatcher"},
    }
    async with ours.serving(pool_namespaces=[NS]) as service:
        with pytest.raises(ScheduleRefused, match="not served here") as refused:
            await service.schedule_verb().schedule(orjson.dumps(request))
        assert refused.value.status == 404


async def test_two_installations_that_serve_one_pool_report_each_others_writes():
    ours, theirs = await two_pools()
    async with ours.serving(), theirs.serving(pool_namespaces=[OTHERS], seed=2):
        await until(lambda: theirs.placed("theirs"), 6, timeout_s=5)
        await theirs.set_vreplicas("theirs", 12)
        await until(lambda: theirs.placed("theirs"), 12, timeout_s=5)
        await asyncio.sleep(30)
        (told, *_) = await ours.events("ForeignWrite")
        assert told["regarding"]["namespace"] == OTHERS
        assert "no other installation serves this pool (pools.namespaces)" in told["note"]


async def test_pods_that_no_pool_has_are_bound_wherever_they_are():
    ours, _ = await two_pools()
    web = {
        "metadata": {"name": "web"},
        "spec": {
            "schedulerName": "vreplica-scheduler",
            "containers": [{"name": "c", "image": "i:1"}],
        },
    }
    async with ours.serving(pool_namespaces=[NS]) as service:
        made = await ours.cluster.create(PODS, OTHERS, web)
        assert await service.verbs.bind(bind_args(made, "node-0")) == (b'{"Error":""}', "Success")
