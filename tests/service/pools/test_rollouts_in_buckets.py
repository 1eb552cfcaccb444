"""A replica that leads several buckets runs the loop of ``Rollouts`` once for each."""

import asyncio
from dataclasses import dataclass, field
from typing import cast

import pytest

from extender.kube.api import Api
from extender.kube.events import EventRecorder
from extender.model.bucket import Bucket
from extender.model.objects import Handoff, HandoffMode, Rollout, RolloutStrategy
from extender.service.placing.placer import ScaleTrigger
from extender.service.pools.evictions import EvictionMarks
from extender.service.pools.rollouts import Rollouts
from extender.service.watching.caches import Caches
from extender.telemetry.metrics import Metrics
from tests.support.builders import a_node, a_pod, a_pool, a_stateful_set
from tests.support.service import wall

pytestmark = pytest.mark.looptime

EVICTION_S = 1.0


@dataclass
class SlowEvictions:
    """An API whose evictions take ``EVICTION_S``."""

    evicted: list[tuple[int, str]] = field(default_factory=list)
    """(Loop time, pod), when each was sent."""

    async def evict(self, _namespace: str, name: str, **_: object) -> None:
        self.evicted.append((round(asyncio.get_running_loop().time()), name))
        await asyncio.sleep(EVICTION_S)

    def event(self, *_: object, **__: object) -> None:
        """As of an EventRecorder."""


def two_old_pods_that_are_not_ready() -> Caches:
    caches = Caches()
    caches.nodes.update(a_node())
    caches.stateful_sets.update(a_stateful_set(2, update_revision="new", updates_from=None))
    handed_over = Rollout(strategy=RolloutStrategy.HANDED_OVER)
    caches.pools.update(a_pool(handoff=Handoff(mode=HandoffMode.OVERLAP), rollout=handed_over))
    for ordinal in range(2):
        caches.pods.update(a_pod(ordinal, {}, revision="old", resource_version="1"))
    return caches


async def test_a_change_during_a_look_is_not_lost_to_the_loop_of_another_bucket():
    """Found by review: all buckets shared one event, and each loop cleared it."""
    caches, api = two_old_pods_that_are_not_ready(), SlowEvictions()
    rollouts = Rollouts(
        caches,
        cast("ScaleTrigger", None),
        fenced=lambda _pool: cast("Api", api),
        recorder=cast("EventRecorder", api),
        metrics=Metrics(),
        now=wall,
        marks=EvictionMarks(caches, asyncio.get_running_loop().time),
    )
    loops = [asyncio.create_task(rollouts.run(Bucket(index, 2))) for index in range(2)]
    try:
        await asyncio.sleep(EVICTION_S / 2)
        assert api.evicted == [(0, "dispatcher-1")]
        new = a_pod(1, {}, uid="new", revision="new", resource_version="2", ready=True)
        caches.pods.update(new)
        await asyncio.sleep(EVICTION_S)
        assert api.evicted == [(0, "dispatcher-1"), (1, "dispatcher-0")]
    finally:
        for loop in loops:
            loop.cancel()
        await asyncio.wait(loops)
