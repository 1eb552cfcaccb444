"""The leader is killed with SIGKILL at chosen moments of placing, binding, moving and scaling down:
all settles, nothing is lost.

Theory of operation. Two replicas run; whoever leads is killed and started again, so leadership goes
from one to the other. The moment is drawn by a seed: after so many versions that the API server has
stored since the activity began (the watcher counts), or after so many milliseconds. What could have
been left half done at each of the service's own steps is the simulation's to enumerate; this is the
sample of it on real processes. ``VREPLICA_E2E_SEED`` repeats a run's draws, though not its timing.
"""

import asyncio
import logging
import os
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import pytest

from extender.kube.api import NotFound
from extender.model.moves import MoveReason
from tests.e2e.backend import Backend
from tests.e2e.operations import emptied, mark_unschedulable, remove_vpods
from tests.e2e.replicas import Pair
from tests.e2e.scenario import QUICK_ELECTION
from tests.e2e.waiting import NotYet, eventually

log: Final = logging.getLogger(__name__)

KILLS_OF_EACH: Final = 3
VERSIONS_MAX: Final = 16
"""What one round writes is about so much: statuses, ledgers, binds, scale."""
DELAY_MAX_S: Final = 1.2
SEED: Final = int(os.environ.get("VREPLICA_E2E_SEED", "0")) or random.SystemRandom().randrange(
    1, 1_000_000
)


class Rounds:
    """The four activities, each of which leaves the pool ready for any other."""

    def __init__(self, pair: Pair, tenant: str, rng: random.Random) -> None:
        self._pair = pair
        self._tenant = tenant
        self._rng = rng
        self._made = 0
        self._draining = ""
        self.kinds: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "placing": self._place,
            "binding": self._bind,
            "moving": self._move,
            "scaling down": self._scale_down,
        }

    async def _place(self) -> None:
        """Vpods change their minds, by little."""
        names = await self._names()
        for name in self._rng.sample(names, min(len(names), 6)):
            await self._pair.want(self._tenant, name, self._rng.randrange(4, 13))

    async def _bind(self) -> None:
        """More than there is room for: the pool grows by pods that come with their vreplicas."""
        self._made += 1
        await self._pair.vpods(8, 8, tenant=self._tenant, prefix=f"made{self._made}")

    async def _move(self) -> None:
        """A pod is drained."""
        adapters = await self._pair.adapters()
        self._draining = str(self._rng.choice(adapters[:3])["metadata"]["name"])
        await mark_unschedulable(self._pair, self._draining)

    async def _scale_down(self) -> None:
        """So many go that fewer pods are enough: the last ones are emptied and removed."""
        names = await self._names()
        await remove_vpods(self._pair, self._tenant, self._rng.sample(names, len(names) * 2 // 3))

    async def _names(self) -> list[str]:
        return sorted(
            v.name for v in (await self._pair.all_vpods()).values() if v.namespace == self._tenant
        )

    async def finish(self) -> None:
        """What has been begun comes to its end. Raises TimeoutError."""
        await self._pair.settled()
        if self._draining:
            await emptied(self._pair, [self._draining])
            try:
                await mark_unschedulable(self._pair, self._draining, unschedulable=False)
            except NotFound:
                log.info("%s was the last one, and is gone", self._draining)
            self._draining = ""


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("backend_name", ["real"])
async def test_the_leader_is_killed_twelve_times_and_nothing_is_overcommitted_lost_or_moved(
    backend: Backend, tmp_path: Path
):
    log.info("VREPLICA_E2E_SEED=%d", SEED)  # in the report of a failure
    rng = random.Random(SEED)
    async with Pair(backend, tmp_path, election=QUICK_ELECTION) as pair:
        pair.watcher.may_move = frozenset({MoveReason.DRAIN, MoveReason.COMPACTION})
        await backend.add_nodes(6)
        await pair.pool(scaleDownPeriodSeconds=2)
        rounds = Rounds(pair, await pair.vpods(10, 8), rng)
        await pair.settled(pods=4)
        kinds = list(rounds.kinds) * KILLS_OF_EACH
        rng.shuffle(kinds)
        in_flight = Counter[str]()
        for kind in kinds:
            leader, _ = await pair.leader()
            written = len(pair.watcher.versions)
            activity = asyncio.create_task(rounds.kinds[kind]())
            await _moment(pair, rng, written)
            at = len(pair.watcher.versions) - written
            assert leader.process is not None
            await leader.process.kill()
            # Started again at once, as a Deployment does; the other one need not wait for it.
            starting = asyncio.create_task(pair.start(leader))
            await activity
            await rounds.finish()
            await starting
            after = len(pair.watcher.versions) - written - at
            in_flight[kind] += after > 0
            log.info("%s: killed after %d versions, %d came after that", kind, at, after)
        assert sum(in_flight.values()) >= len(kinds) // 2, (
            f"most kills came too late to matter: {in_flight}"
        )


async def _moment(pair: Pair, rng: random.Random, written: int) -> None:
    """Returns at a moment in the middle of what has just begun."""
    if rng.random() < 0.5:
        await asyncio.sleep(rng.uniform(0.0, DELAY_MAX_S))
        return
    wanted = written + rng.randrange(1, VERSIONS_MAX)

    async def look() -> bool:
        if len(pair.watcher.versions) < wanted:
            raise NotYet(f"{len(pair.watcher.versions)} of {wanted} versions")
        return True

    try:
        await eventually(look, DELAY_MAX_S * 2, "in the middle", interval_s=0.002)
    except TimeoutError:
        log.info("it came to fewer versions than that")
