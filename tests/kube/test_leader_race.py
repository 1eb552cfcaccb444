"""Two candidates that write the Lease at the same moment, on the embedded cluster."""

import asyncio
import random

import pytest

from extender.kube.leader import LeaderElector
from extender.kube.lease import LeaseConfig
from tests.support.service import World, wall

pytestmark = pytest.mark.looptime

SYSTEM = "vreplica-system"


async def for_ever() -> None:
    await asyncio.Event().wait()


async def test_of_two_that_see_the_lease_free_at_once_one_gets_it():
    world = await World.create()
    config = LeaseConfig(namespace=SYSTEM)
    electors = [
        LeaderElector(world.api, config, identity=name, now=wall, rng=random.Random(1))
        for name in ("a", "b")
    ]
    pauses = [world.api.pause("update", "leases") for _ in electors]
    tasks = [asyncio.create_task(elector.run(for_ever)) for elector in electors]
    for pause in pauses:
        await pause.reached.wait()
    for pause in pauses:
        pause.go_on.set()
    await asyncio.sleep(0.5)
    assert sorted(elector.is_leader for elector in electors) == [False, True]
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
