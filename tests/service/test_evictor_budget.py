"""A period's budget is what is left of it, also where a look has spent a part."""

import asyncio

import pytest

from tests.service.test_evictor import PERIOD_S, Bench
from tests.support.builders import POOL, a_vpod

pytestmark = pytest.mark.looptime


async def test_what_one_look_has_spent_the_next_one_has_not():
    bench = Bench().fill({"a": {2: 3}}, moves_per_period=5, move_cooldown_s=0)
    async with bench.running():
        await asyncio.sleep(PERIOD_S + 1)
        bench.vpod(a_vpod("b", 9, {2: 9}))
        bench.evictor.trigger(POOL)
        await asyncio.sleep(1)
    assert [count for _, count in bench.moved()] == [3, 2]
