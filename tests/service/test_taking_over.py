"""A new leader decides nothing before it knows what the one before it has written."""

import asyncio

import pytest

from tests.support.service import World, until

pytestmark = pytest.mark.looptime


async def holds_up(listed: str) -> None:
    """A vpod waits to be placed; the lease is free, and what is listed on taking over does not come for a second."""
    world = await World.create()
    await world.pods(0)
    await world.vpod("a", 2)
    lease = world.api.pause("get", "leases")
    async with world.serving(elect=True):
        await lease.reached.wait()
        pause = world.api.pause("list", listed)
        lease.go_on.set()
        await asyncio.sleep(1)
        assert pause.reached.is_set()
        assert world.api.writes() == []
        pause.go_on.set()

        async def placed() -> bool:
            return await world.published() == {0: 2}

        await until(placed)


async def test_a_new_leader_waits_until_it_knows_what_was_published_before():
    await holds_up("vpods")


async def test_a_new_leader_waits_until_the_watch_of_pods_is_not_behind():
    await holds_up("pods")
