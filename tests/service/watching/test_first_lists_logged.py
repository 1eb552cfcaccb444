"""The log says how far the first lists are, while they take long."""

import asyncio
import logging
import random

import pytest

from extender.engine.state.ordinal_history import OrdinalHistory
from extender.kube.api import ListPage, Resource
from extender.service.watching.caches import Caches
from extender.service.watching.first_lists import log_first_lists
from extender.service.watching.informers import Informers
from tests.support.service import World


@pytest.mark.looptime
async def test_each_few_seconds_a_line_says_of_each_kind_how_far_it_is(
    caplog: pytest.LogCaptureFixture,
):
    world = await World.create()
    for name in "abcde":
        await world.vpod(name, 1)

    class Slow:
        """Lists vpods in pages of two, and takes four seconds for each."""

        def __getattr__(self, name: str):
            return getattr(world.cluster, name)

        async def list_page(self, resource: Resource, *arguments, **options) -> ListPage:
            if resource.plural != "vpods":
                return await world.cluster.list_page(resource, *arguments, **options)
            await asyncio.sleep(4.0)
            page = await world.cluster.list_page(resource, *arguments, **{**options, "limit": 2})
            left = 5 - 2 * self.pages - len(page.items)
            self.pages += 1
            return ListPage(page.items, page.resource_version, page.continue_token, left or None)

        pages = 0

    caches = Caches()
    ordinal_history = OrdinalHistory(asyncio.get_running_loop().time)
    informers = Informers(Slow(), caches, rng=random.Random(1), ordinal_history=ordinal_history)
    watching = asyncio.create_task(informers.run())
    with caplog.at_level(logging.INFO, logger="extender.service.watching.first_lists"):
        await log_first_lists(informers)
    watching.cancel()
    await asyncio.wait({watching})
    told = [
        record.message
        for record in caplog.records
        if record.name == "extender.service.watching.first_lists"
    ]
    assert len(told) == 3
    assert "synced 2 of ~5 vpods" in told[0]
    assert "synced 4 of ~5 vpods" in told[1]
    assert "pods are synced" in told[1]
    assert told[2].startswith("all is listed: ")


@pytest.mark.looptime
async def test_who_waits_no_longer_leaves_nothing_behind():
    world = await World.create()

    class Stuck:
        def __getattr__(self, name: str):
            return getattr(world.cluster, name)

        async def list_page(self, *_arguments, **_options) -> ListPage:
            await asyncio.get_running_loop().create_future()
            raise AssertionError

    informers = Informers(
        Stuck(),
        Caches(),
        rng=random.Random(1),
        ordinal_history=OrdinalHistory(asyncio.get_running_loop().time),
    )
    waiting = asyncio.create_task(log_first_lists(informers))
    await asyncio.sleep(12.0)
    waiting.cancel()
    await asyncio.wait({waiting})
    assert waiting.cancelled()
    assert asyncio.all_tasks() == {asyncio.current_task()}
