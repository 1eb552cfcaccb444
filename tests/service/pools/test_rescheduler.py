"""Pods that stay away are given up in time, and taken back when they are Ready again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from extender.kube.events import EventRecorder
from extender.model.timestamps import timestamp
from extender.service.pools.rescheduler import Rescheduler
from extender.service.watching.caches import Caches
from tests.support.builders import POOL, a_node, a_pod, a_pool, a_stateful_set, a_vpod
from tests.support.service import wall
from tests.support.tasks import at_work

pytestmark = pytest.mark.looptime


class Bench:
    """A pool of three pods, all Ready, with a vpod on each."""

    def __init__(self, after_s: int | None = 60) -> None:
        self.caches = Caches()
        self.activated: list[tuple[float, str]] = []
        self.events: list[tuple[str, str, str]] = []
        self._version = 0
        self.caches.nodes.update(a_node())
        self.caches.stateful_sets.update(a_stateful_set(3))
        self.caches.pools.update(a_pool(reschedule_after_s=after_s))
        for ordinal in range(3):
            self.pod(ordinal)
        self.caches.vpods.update(a_vpod("a", 3, {0: 1, 1: 1, 2: 1}, resource_version="1"))
        self.rescheduler = Rescheduler(
            self.caches, activate=self.activate, recorder=cast("EventRecorder", self)
        )

    def event(self, regarding, *, reason, note, cause="", related=None) -> None:
        self.events.append((reason, regarding.name, note))

    def activate(self, pool: str) -> None:
        assert pool == POOL
        abandoned = self.caches.state.pool(pool).abandoned
        self.activated.append((self.now(), ",".join(sorted(abandoned))))

    def now(self) -> float:
        return round(asyncio.get_running_loop().time())

    def pod(self, ordinal: int, *, ready: bool = True, **fields) -> None:
        self._version += 1
        version = str(self._version)
        self.caches.pods.update(a_pod(ordinal, {}, ready=ready, resource_version=version, **fields))

    def lose(self, ordinal: int) -> None:
        pod = self.caches.pods.get(f"{POOL.partition('/')[0]}/dispatcher-{ordinal}")
        assert pod is not None
        self.caches.pods.delete(pod)

    @asynccontextmanager
    async def running(self, *, leading: bool = True) -> AsyncIterator[None]:
        rescheduler = self.rescheduler
        async with at_work(rescheduler.run() if leading else rescheduler.watch()):
            await asyncio.sleep(0)
            yield


async def test_a_pod_that_is_gone_is_given_up_after_its_time_and_told():
    bench = Bench()
    async with bench.running():
        await asyncio.sleep(10)
        bench.lose(1)
        await asyncio.sleep(59)
        assert bench.activated == []
        await asyncio.sleep(2)
        assert bench.caches.state.pool(POOL).abandoned == {"dispatcher-1"}
    assert bench.activated == [(70, "dispatcher-1")]
    assert bench.events == [
        (
            "PodsAbandoned",
            "dispatcher",
            "not Ready for 60 s, what they hold is placed elsewhere: dispatcher-1",
        )
    ]


async def test_a_pod_that_is_back_in_time_is_never_given_up():
    bench = Bench()
    async with bench.running():
        bench.lose(1)
        await asyncio.sleep(55)
        bench.pod(1, uid="new")
        await asyncio.sleep(500)
    assert bench.activated == []


async def test_a_pod_that_comes_back_later_is_taken_back_at_once():
    bench = Bench()
    async with bench.running():
        bench.lose(1)
        await asyncio.sleep(100)
        bench.pod(1, uid="new")
        await asyncio.sleep(1)
        assert bench.caches.state.pool(POOL).abandoned == frozenset()
    assert bench.activated == [(60, "dispatcher-1"), (100, "")]


async def test_every_pod_on_a_node_that_cannot_be_reached_is_given_up():
    bench = Bench()
    async with bench.running():
        bench.caches.nodes.update(a_node(ready=False))
        await asyncio.sleep(61)
    assert bench.activated == [(60, "dispatcher-0,dispatcher-1,dispatcher-2")]


async def test_a_pool_that_does_not_ask_for_it_gives_up_nothing():
    bench = Bench(after_s=None)
    async with bench.running():
        bench.lose(1)
        bench.caches.nodes.update(a_node(ready=False))
        await asyncio.sleep(1e6)
    assert bench.activated == []


async def test_the_setting_counts_from_when_it_is_made_and_takes_back_when_it_is_taken_away():
    bench = Bench(after_s=None)
    async with bench.running():
        bench.pod(1, ready=False)
        await asyncio.sleep(200)
        bench.caches.pools.update(a_pool(reschedule_after_s=150))
        await asyncio.sleep(1)
        bench.caches.pools.update(a_pool(reschedule_after_s=None))
        await asyncio.sleep(1)
    assert bench.activated == [(200, "dispatcher-1"), (201, "")]


async def test_pods_of_a_node_whose_clock_is_ten_minutes_behind_are_not_given_up_early():
    bench = Bench()
    async with bench.running():
        await asyncio.sleep(5)
        bench.pod(2, ready=False, ready_since=timestamp(wall() - 600))
        await asyncio.sleep(59)
        assert bench.activated == []
        await asyncio.sleep(2)
    assert bench.activated == [(65, "dispatcher-2")]


async def test_a_standby_that_takes_over_goes_on_from_what_it_has_seen():
    bench = Bench()
    async with bench.running(leading=False):
        bench.lose(2)
        await asyncio.sleep(40)
        bench.lose(1)
        await asyncio.sleep(10)
    async with bench.running():
        await asyncio.sleep(60)
    assert bench.activated == [(60, "dispatcher-2"), (100, "dispatcher-1,dispatcher-2")]


async def test_a_standby_gives_up_nothing():
    bench = Bench()
    async with bench.running(leading=False):
        bench.lose(2)
        await asyncio.sleep(500)
    assert (bench.activated, bench.caches.state.pool(POOL).abandoned) == ([], frozenset())


async def test_who_has_led_in_between_does_not_make_anybody_begin_anew():
    bench = Bench()
    async with bench.running():
        bench.lose(2)
        await asyncio.sleep(30)
    async with bench.running(leading=False):
        await asyncio.sleep(20)
    async with bench.running():
        await asyncio.sleep(20)
    assert bench.activated == [(60, "dispatcher-2")]


async def test_who_no_longer_leads_gives_up_nothing():
    bench = Bench()
    bench.lose(2)
    async with bench.running():
        await asyncio.sleep(61)
        assert bench.caches.state.pool(POOL).abandoned == {"dispatcher-2"}
    assert bench.caches.state.pool(POOL).abandoned == frozenset()


async def test_an_ordinal_that_is_removed_is_forgotten():
    bench = Bench()
    bench.lose(2)
    async with bench.running():
        await asyncio.sleep(61)
        bench.caches.stateful_sets.update(a_stateful_set(2))
        await asyncio.sleep(1)
    assert bench.activated == [(60, "dispatcher-2"), (61, "")]


async def test_many_pods_are_named_by_a_few():
    bench = Bench()
    bench.caches.stateful_sets.update(a_stateful_set(30))
    for ordinal in range(30):
        bench.pod(ordinal, ready=False)
    async with bench.running():
        await asyncio.sleep(61)
    ((_, _, note),) = bench.events
    assert note.count("dispatcher-") == 10
    assert note.endswith(", ...")
