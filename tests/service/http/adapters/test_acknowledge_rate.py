"""How soon a hand-over goes on after what it waits for: an adapter may acknowledge often enough."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from vreplica_adapter import Share

from extender.model.names import UNSCHEDULABLE_ANNOTATION
from tests.service.http.adapters.in_process import adapter_of
from tests.support.service import a_world, until

pytestmark = pytest.mark.looptime
SHARES = 12
APART_S = 0.25


async def test_each_of_many_shares_is_served_soon_after_it_is_prepared():
    """Their callbacks end one after the other, so there is something new to say all the time."""
    world = await a_world(
        0, replicas=2, handoff={"mode": "Overlap"}, minPods=2, rescheduleAfterSeconds=None
    )
    await world.ready(0)
    clock = asyncio.get_running_loop().time
    prepared_at: dict[str, float] = {}
    waited_s: dict[str, float] = {}

    async def prepare(share: Share) -> None:
        await asyncio.sleep(APART_S * (int(share.name) + 1))
        prepared_at[share.key] = clock()

    async def serve(share: Share) -> None:
        waited_s[share.key] = clock() - prepared_at[share.key]

    async def at_once(_share: Share) -> None:
        pass

    async with world.serving() as service, AsyncExitStack() as opened:
        verb = service.acknowledge_verb(service.load_verb())
        one, _ = await adapter_of(world, service, verb, 0, on_serve=at_once, on_drain=at_once)
        await opened.enter_async_context(one)
        for number in range(SHARES):
            await world.vpod(str(number), 1)

        async def all_served() -> bool:
            serving = [share for share in one.shares.values() if share.still_mine(share.epoch)]
            return len(serving) == SHARES

        await until(all_served)
        await world.pods(1)
        await world.ready(1)
        two, connection = await adapter_of(
            world, service, verb, 1, on_prepare=prepare, on_serve=serve
        )
        await opened.enter_async_context(two)
        await asyncio.sleep(1)
        await world.annotate(0, **{UNSCHEDULABLE_ANNOTATION: "true"})

        await until(lambda: world.ledger(0), {})
        assert len(waited_s) == SHARES
        assert max(waited_s.values()) < 0.5
        assert connection.statuses[429] == 0
