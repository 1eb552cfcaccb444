"""A period's budget is what is left of it, also where a look has spent a part."""

import asyncio

import pytest

from extender.model.moves import Move, MoveReason
from extender.service.pools.pool_moves import PoolMoves
from tests.service.pools.test_evictor import PERIOD_S, Bench
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


async def test_a_move_that_was_not_made_is_spent_all_the_same_for_placing_may_finish_it():
    pool = PoolMoves()
    move = Move("tenant/a", "dispatcher-2", "dispatcher-0", 3, MoveReason.COMPACTION)
    pool.settle([move], [], {}, now=0.0)
    assert pool.spent == 3
    pool.begin_period(1.0)
    assert pool.spent == 0
