"""The collector while the first lists come in, and afterwards."""

import asyncio
import gc
from collections.abc import Iterator

import pytest

from extender.service.garbage import LOADING, freeze_when_loaded


@pytest.fixture(autouse=True)
def as_before() -> Iterator[tuple[int, int, int]]:
    thresholds = gc.get_threshold()
    yield thresholds
    gc.unfreeze()
    gc.set_threshold(*thresholds)


async def test_it_collects_seldom_until_all_is_loaded_and_never_what_is_there_by_then(as_before):
    frozen = gc.get_freeze_count()
    loaded = asyncio.Event()
    sparing = asyncio.create_task(freeze_when_loaded(loaded.wait()))
    await asyncio.sleep(0)
    assert gc.get_threshold() == LOADING
    loaded.set()
    await sparing
    assert gc.get_threshold() == as_before
    assert gc.get_freeze_count() > frozen


async def test_a_service_that_ends_before_leaves_the_collector_as_it_was(as_before):
    frozen = gc.get_freeze_count()
    sparing = asyncio.create_task(freeze_when_loaded(asyncio.Event().wait()))
    await asyncio.sleep(0)
    sparing.cancel()
    await asyncio.wait({sparing})
    assert gc.get_threshold() == as_before
    assert gc.get_freeze_count() == frozen
