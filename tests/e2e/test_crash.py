"""The service is killed, or ends, at any moment: what it leaves is settled by the next one, and
nothing moves.
"""

import asyncio
import logging
import os
import random
from pathlib import Path

import pytest

from tests.e2e.backend import Backend
from tests.e2e.scenario import QUICK_ELECTION, SLOTS_PER_POD, Setup, System
from tests.e2e.waiting import NotYet, eventually

log = logging.getLogger(__name__)

KILLS = 4
VPODS_COUNT = 30
SEED = int(os.environ.get("VREPLICA_E2E_SEED", "0")) or random.SystemRandom().randrange(
    1, 1_000_000
)


@pytest.mark.long
async def test_killed_while_binding_again_and_again_it_settles_without_a_move(
    backend: Backend, tmp_path: Path
):
    log.info("VREPLICA_E2E_SEED=%d", SEED)  # in the report of a failure
    rng = random.Random(SEED)
    async with System(backend, tmp_path, Setup(election=QUICK_ELECTION)) as system:
        await backend.add_nodes(6)
        await system.pool()
        tenant = await backend.namespace("tenant")
        for kill in range(KILLS):
            # The pool grows by several pods, and some of the vpods that are there change.
            count = VPODS_COUNT // KILLS
            # Counted now: all that this round needs may be bound before its last change is made.
            before = system.binds()
            await system.vpods(count, 8, tenant=tenant, prefix=f"round{kill}")
            for _ in range(3):
                name = f"round{rng.randrange(kill + 1)}-{rng.randrange(count)}"
                await system.want(tenant, name, rng.randrange(4, 13))
            if kill % 2:
                await asyncio.sleep(rng.uniform(0.0, 1.2))
            else:
                await bound(system, before + rng.randrange(1, 3))
            assert system.service.process is not None
            await system.service.process.kill()
            await system.start(system.service)
            await asyncio.sleep(rng.uniform(0.0, 2.0))
        adapters = await system.settled()
        wanted = sum(vpod.vreplicas for vpod in (await system.all_vpods()).values())
        assert len(adapters) >= -(-wanted // SLOTS_PER_POD)


async def bound(system: System, binds: int) -> None:
    """Returns at the moment when so many pods have been bound: others are being bound."""

    async def look() -> bool:
        if system.binds() < binds:
            raise NotYet(f"{system.binds()} of {binds} binds")
        return True

    await eventually(look, 30.0, "in the middle of binding", interval_s=0.005)


# On the real control plane this is part of test_high_availability.py, where the audit log shows
# every write.
@pytest.mark.parametrize("backend_name", ["embedded"])
async def test_a_leader_that_was_frozen_past_its_lease_writes_nothing_when_it_wakes(
    backend: Backend, tmp_path: Path
):
    async with System(backend, tmp_path, Setup(election=QUICK_ELECTION)) as system:
        await backend.add_nodes(3)
        await system.pool()
        tenant = await system.vpods(5, 8)
        await system.settled(pods=2)
        second = await system.replica()
        await system.start(second)
        frozen = system.service
        assert frozen.process is not None
        frozen.process.pause()
        await second.leads(timeout_s=15.0)
        await system.want(tenant, "source-0", 5)
        await system.want(tenant, "source-1", 12)
        frozen.process.resume()

        async def follows() -> bool:
            return not (await frozen.state())["leading"]

        await eventually(follows, 10.0, "the old leader follows")
        await system.settled()
