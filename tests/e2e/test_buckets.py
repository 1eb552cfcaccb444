"""Two replicas share pools, in four buckets with a Lease each; one of them is killed, and nothing
moves.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from extender.model.bucket import bucket_of
from tests.e2e.backend import Backend
from tests.e2e.objects import MANIFESTS
from tests.e2e.operations import ledgers, published
from tests.e2e.replica import Replica
from tests.e2e.replicas import Pair
from tests.e2e.scenario import QUICK_ELECTION
from tests.e2e.waiting import NotYet, eventually

log: Final = logging.getLogger(__name__)

BUCKETS: Final = 4
ELECTION: Final = {**QUICK_ELECTION, "buckets": BUCKETS}
SHARED_WITHIN_S: Final = 60.0


async def led(replica: Replica) -> set[int]:
    """The buckets that it leads."""
    leases: list[dict[str, Any]] = (await replica.state())["leases"]
    return {index for index, lease in enumerate(leases) if lease["leading"]}


def shared(*replicas: Replica) -> Callable[[], Awaitable[list[set[int]]]]:
    async def look() -> list[set[int]]:
        shares = [await led(replica) for replica in replicas]
        if sum(map(len, shares)) != BUCKETS or {len(share) for share in shares} != {
            BUCKETS // len(replicas)
        }:
            raise NotYet(f"shared as {shares}")
        return shares

    return look


def one_pool_a_bucket(namespace: str) -> list[str]:
    names = {
        bucket_of(f"{namespace}/pool-{number}", BUCKETS): f"pool-{number}" for number in range(60)
    }
    return [names[index] for index in range(BUCKETS)]


@pytest.mark.parametrize("backend_name", ["real"])
async def test_two_replicas_share_four_pools_and_one_takes_over_all_when_the_other_is_killed(
    backend: Backend, tmp_path: Path
):
    async with Pair(backend, tmp_path, election=ELECTION) as pair:
        await backend.apply([MANIFESTS / "components" / "buckets"])
        await backend.add_nodes(6)
        pair.namespace = await backend.namespace("adapters")
        pools = one_pool_a_bucket(pair.namespace)
        for pool in pools:
            await pair.pool(pool)
        tenants = [await pair.vpods(2, 6, pool=pool, prefix=pool) for pool in pools]
        before, standing = ledgers(await pair.settled()), published(pair)
        # Until the component was applied, the other buckets' Leases were refused.
        pair.forget_audit()
        assert len(standing) == 2 * BUCKETS
        shares = await eventually(
            shared(pair.service, pair.second), SHARED_WITHIN_S, "both lead two buckets"
        )
        log.info("shared as %s", shares)
        assert ledgers(await pair.settled()) == before
        # Each of them places in its own pools.
        for pool, tenant in zip(pools, tenants, strict=True):
            await pair.want(tenant, f"{pool}-0", 9)
        before = ledgers(await pair.settled())
        standing = published(pair)
        assert pair.second.process is not None
        await pair.second.process.kill()
        pair.serve_by(pair.service)
        killed = asyncio.get_running_loop().time()
        await eventually(shared(pair.service), 20.0, "the other one leads all")
        log.info("taken over after %.1f s", asyncio.get_running_loop().time() - killed)
        assert ledgers(await pair.settled()) == before
        assert published(pair) == standing
        for pool, tenant in zip(pools, tenants, strict=True):
            await pair.want(tenant, f"{pool}-1", 7)
        await pair.settled()
