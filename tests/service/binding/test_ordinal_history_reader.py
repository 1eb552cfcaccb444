"""A pod whose ordinal's past is not known here is not bound here (I2)."""

import asyncio
from dataclasses import replace

import pytest

from extender.engine.state.ordinal_history import HOLD_S, OrdinalHistory
from extender.model.ledger import Share
from extender.model.objects import AdapterPod
from extender.service.binding.ordinal_history_reader import SEEN_TIMEOUT_S, OrdinalHistoryReader
from extender.service.watching.caches import Caches
from tests.support.builders import NS, POOL, a_pool, a_stateful_set

pytestmark = pytest.mark.looptime

POD = AdapterPod(
    namespace=NS,
    name="dispatcher-0",
    ordinal=0,
    uid="first",
    resource_version="5",
    pool=POOL,
    owner="dispatcher",
)
NEXT = replace(POD, uid="next", resource_version="9")


class Setting:
    """What ``OrdinalHistoryReader`` stands on. ``listed`` counts the lists of vpods."""

    def __init__(self, *, never_led_by_others: bool = False) -> None:
        self.caches = Caches()
        self.ordinal_history = OrdinalHistory(asyncio.get_running_loop().time)
        self.listed = 0
        self.ordinal_history_reader = OrdinalHistoryReader(
            self.caches,
            self.ordinal_history,
            relist_all_vpods=self._list,
            never_led_by_others=lambda _: never_led_by_others,
        )

    async def _list(self) -> None:
        await asyncio.sleep(0.1)
        self.listed += 1

    def list_pods(self, *pods: AdapterPod) -> None:
        self.ordinal_history.listed(pods)
        self.caches.pods.replace(list(pods), "7")

    async def knows(self, pod: AdapterPod) -> bool:
        return await self.ordinal_history_reader.known(pod)


async def test_after_a_list_the_past_of_a_pod_that_waits_is_unknown():
    setting = Setting()
    setting.list_pods(POD)
    assert not await setting.knows(POD)


async def test_a_pod_that_the_list_has_bound_is_succeeded_by_one_whose_past_is_known():
    setting = Setting()
    setting.list_pods(replace(POD, node="node-1"))
    setting.caches.pods.delete(replace(POD, node="node-1", resource_version="8"))
    setting.caches.pods.add(NEXT)
    assert await setting.knows(NEXT)


async def test_once_what_was_under_way_has_arrived_and_vpods_are_listed_all_pasts_are_known():
    setting = Setting()
    setting.list_pods(POD)
    await asyncio.sleep(HOLD_S - 1.0)
    assert not await setting.knows(POD)
    await asyncio.sleep(1.0)
    assert await setting.knows(POD)
    setting.caches.pods.add(replace(POD, name="dispatcher-1", ordinal=1))
    assert await setting.knows(replace(POD, name="dispatcher-1", ordinal=1))
    assert setting.listed == 1


async def test_binds_that_wait_at_once_list_vpods_once():
    setting = Setting()
    other = replace(POD, name="dispatcher-1", ordinal=1, uid="other")
    setting.list_pods(POD, other)
    await asyncio.sleep(HOLD_S)
    assert all(await asyncio.gather(setting.knows(POD), setting.knows(other)))
    assert setting.listed == 1


async def test_a_ledger_from_before_the_gap_is_not_what_the_next_pod_brings_back():
    setting = Setting()
    setting.caches.stateful_sets.update(a_stateful_set())
    setting.caches.pools.update(a_pool())
    setting.list_pods(replace(POD, node="node-1", ledger={"tenant/a": Share(3)}))
    setting.list_pods(NEXT)
    ordinal = setting.caches.state.pool(POD.pool).pods[POD.name]
    assert ordinal.last_ledger == {"tenant/a": Share(3)}, "it counts while nobody knows better"
    await asyncio.sleep(HOLD_S)
    assert await setting.knows(NEXT)
    assert ordinal.last_ledger == {}


async def test_pods_listed_while_vpods_are_listed_begin_a_new_gap():
    setting = Setting()
    setting.list_pods(POD)
    await asyncio.sleep(HOLD_S)
    known = asyncio.create_task(setting.knows(POD))
    await asyncio.sleep(0.05)
    setting.list_pods(replace(POD, uid="unseen"))
    assert not await known


async def test_a_pod_that_waited_before_the_list_and_still_does_keeps_its_past():
    setting = Setting()
    setting.list_pods()
    await asyncio.sleep(HOLD_S)
    setting.caches.pods.add(POD)
    assert await setting.knows(POD)
    setting.list_pods(POD)
    assert await setting.knows(POD)
    setting.list_pods(NEXT)
    assert not await setting.knows(NEXT)


async def test_a_pod_that_the_watch_has_not_told_of_is_waited_for_a_moment():
    setting = Setting()
    setting.list_pods(replace(POD, node="node-1"))
    waiting = asyncio.create_task(setting.knows(NEXT))
    await asyncio.sleep(0.3)
    setting.caches.pods.delete(replace(POD, node="node-1", resource_version="8"))
    setting.caches.pods.add(NEXT)
    assert await waiting


async def test_a_pod_that_the_watch_does_not_tell_of_is_refused():
    setting = Setting()
    setting.list_pods(replace(POD, node="node-1"))
    began = asyncio.get_running_loop().time()
    assert not await setting.knows(NEXT)
    assert asyncio.get_running_loop().time() - began == pytest.approx(SEEN_TIMEOUT_S, abs=0.01)


async def test_who_founded_the_lease_knows_that_nobody_has_sent_anything():
    setting = Setting(never_led_by_others=True)
    setting.list_pods(POD)
    assert await setting.knows(POD)
