"""The descheduler evicts one pod after the other, as the API server allows."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from extender.kube.api import Api, TooManyRequests
from extender.kube.events import EventRecorder
from extender.model.node_fit import NodeFit, Taint
from extender.model.timestamps import timestamp
from extender.service.pools.descheduler import Descheduler
from extender.service.watching.caches import Caches
from extender.telemetry.metrics import Metrics
from tests.support.builders import a_node, a_pod, a_pool, a_stateful_set
from tests.support.service import EPOCH_S, lost, wall

pytestmark = pytest.mark.looptime

TAINTS = (Taint("dedicated", "batch", "NoSchedule"),)
PERIOD_S = 100


class Bench:
    """Two pods on a tainted node, a free node, and an API that answers ``error`` to evictions."""

    def __init__(self, **pool) -> None:
        self.caches = Caches()
        self.error: Exception | None = None
        self.evicted: list[tuple[int, str]] = []
        """(Loop time, pod)."""
        self.events: list[tuple[str, str]] = []
        self.caches.nodes.update(a_node(taints=TAINTS))
        self.caches.nodes.update(a_node("node-1"))
        self.caches.stateful_sets.update(a_stateful_set(2))
        fields: dict[str, Any] = {
            "descheduling": ("NodeTaints",),
            "scale_down_period_s": PERIOD_S,
            **pool,
        }
        self.caches.pools.update(a_pool(**fields))
        for ordinal in range(2):
            self.pod(ordinal, "1")
        self.descheduler = Descheduler(
            self.caches,
            fenced=lambda _pool: cast("Api", self),
            recorder=cast("EventRecorder", self),
            metrics=Metrics(),
            now=wall,
        )

    def pod(self, ordinal: int, version: str, **fields) -> None:
        old = timestamp(EPOCH_S - 7200)
        usual: dict[str, Any] = {
            "ready": True,
            "created_at": old,
            "fit": NodeFit(),
            "resource_version": version,
        }
        self.caches.pods.update(a_pod(ordinal, {}, **{**usual, **fields}))

    async def evict(self, _namespace: str, name: str, *, preconditions) -> None:
        self.evicted.append((round(asyncio.get_running_loop().time()), name))
        assert preconditions.uid
        assert preconditions.resource_version
        if self.error is not None:
            raise self.error

    def event(self, regarding, *, reason, note, cause="", related=None) -> None:
        self.events.append((reason, regarding.name))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.descheduler.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled(), task.exception()


async def test_pods_are_evicted_one_at_a_time_after_the_last_is_back():
    bench = Bench()
    async with bench.running():
        await asyncio.sleep(PERIOD_S + 5)
        assert bench.evicted == [(100, "dispatcher-1")]
        bench.pod(1, "2", ready=False)
        await asyncio.sleep(3 * PERIOD_S)
        assert len(bench.evicted) == 1
        bench.pod(1, "3", uid="new", node="node-1")
        await asyncio.sleep(20)
    assert [name for _, name in bench.evicted] == ["dispatcher-1", "dispatcher-0"]
    assert bench.events == [("Descheduled", "dispatcher-1"), ("Descheduled", "dispatcher-0")]


async def test_without_opting_in_nothing_is_evicted():
    bench = Bench(descheduling=())
    async with bench.running():
        await asyncio.sleep(5 * PERIOD_S)
    assert bench.evicted == []


async def test_a_budget_that_refuses_is_asked_again_after_longer_and_longer():
    bench = Bench()
    bench.error = TooManyRequests(429, "TooManyRequests", "budget b", retry_after_s=10.0)
    async with bench.running():
        await asyncio.sleep(PERIOD_S + 75)
    assert [at for at, _ in bench.evicted] == [100, 110, 130, 170]
    assert bench.events[0] == ("DeschedulingRefused", "dispatcher")


async def test_an_eviction_without_an_answer_counts_as_made():
    bench = Bench()
    bench.error = lost("evict")
    async with bench.running():
        await asyncio.sleep(2 * PERIOD_S - 5)
    assert bench.evicted == [(100, "dispatcher-1")]
    assert bench.events == []
