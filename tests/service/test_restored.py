"""etcd is restored from a backup: nothing of the time before it is built on, and a process that
begins anew puts all right.
"""

import asyncio

import pytest

from extender.kube.api import VPODS
from extender.lab.apiserver.store import Snapshot
from extender.model.errors import HistoryReplaced
from extender.service.app import Service
from tests.support.builders import POOL
from tests.support.service import TENANT, World, a_world, until

pytestmark = pytest.mark.looptime

BUMP = 1_000_000


def replaced(error: BaseException | None) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(replaced(inner) for inner in error.exceptions)
    return isinstance(error, HistoryReplaced)


async def published(world: World, **wanted: int) -> None:
    async def look() -> bool:
        return {name: await world.placed(name) for name in wanted} == wanted

    await until(look)


async def a_world_with_a_backup() -> tuple[World, Service, "asyncio.Task[None]", Snapshot]:
    """A service that leads, ``a`` and ``b`` placed at the backup; since then ``a`` has grown, ``b``
    is gone, ``c`` came.
    """
    world = await a_world(0, 1, 2)
    service = world.service(elect=True)
    task = asyncio.create_task(service.run())
    await world.vpod("a", 3)
    await world.vpod("b", 3)
    await published(world, a=3, b=3)
    backup = world.cluster.snapshot()
    await world.set_vreplicas("a", 9)
    await world.vpod("c", 6)
    await published(world, a=9, c=6)
    await world.cluster.delete(VPODS, TENANT, "b")
    await asyncio.sleep(5)
    return world, service, task, backup


@pytest.mark.parametrize(
    "bump", [0, BUMP], ids=["versions are given out again", "versions go on above"]
)
async def test_a_service_ends_when_the_api_server_is_restored_and_the_next_one_puts_all_right(
    bump: int,
):
    world, _, task, backup = await a_world_with_a_backup()
    world.cluster.restore(backup, bump=bump)
    await world.set_vreplicas("b", 5)
    await asyncio.wait({task}, timeout=30)
    assert task.done(), "it goes on with what it knows of the other history"
    assert replaced(task.exception())
    async with world.serving(elect=True, seed=2) as next_one:
        await published(world, a=3, b=5)
        await until(lambda: _settled(next_one))
        await world.check()
        held = [await world.ledger(ordinal) for ordinal in range(3)]
        assert sum(sum(ledger.values()) for ledger in held) == 8


async def _settled(service: Service) -> bool:
    pool = service.caches.state.pools[POOL]
    return not pool.vpods_with_pending and service.caches.state.digest() != {}


async def test_a_standby_ends_as_soon_as_it_sees_the_lease_as_it_was():
    world, _, task, backup = await a_world_with_a_backup()
    standby = asyncio.create_task(world.service(elect=True, seed=2).run())
    await asyncio.sleep(5)
    world.cluster.restore(backup)
    await asyncio.wait({standby}, timeout=10)
    assert standby.done()
    assert replaced(standby.exception())
    await asyncio.wait({task}, timeout=30)


async def test_without_an_election_it_ends_with_the_next_bookmark_or_list():
    world = await a_world(0, 1, 2)
    backup = world.cluster.snapshot()
    task = asyncio.create_task(world.service().run())
    await world.vpod("a", 3)
    await published(world, a=3)
    world.cluster.restore(backup)
    await asyncio.wait({task}, timeout=400)
    assert task.done()
    assert replaced(task.exception())
