"""Gauges that are read when they are scraped."""

import asyncio

import pytest

from tests.soak.measure import metric
from tests.support.service import World

pytestmark = pytest.mark.looptime


async def test_the_tasks_of_the_event_loop_are_counted_so_that_one_that_leaks_shows():
    world = await World.create()
    async with world.serving() as service:
        await asyncio.sleep(2)
        before = metric(service.metrics.render().decode(), "vreplica_scheduler_asyncio_tasks")
        leaked = [asyncio.create_task(asyncio.sleep(1000)) for _ in range(3)]
        after = metric(service.metrics.render().decode(), "vreplica_scheduler_asyncio_tasks")
        assert after == before + 3
        for task in leaked:
            task.cancel()
