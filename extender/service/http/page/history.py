"""``History``: slots of each pool over the last hour, so that a newly opened page shows the past.

It keeps the last ``SAMPLES_MAX`` samples of every pool, one each ``PERIOD_S``. If a pool's revision
has not changed, the last sample is copied. Of more than ``POOLS_MAX`` pools, the later ones by name
are left out. The history is in memory only: each replica has its own, and a restart begins anew.
"""

import asyncio
from array import array
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from extender.engine.state.cluster_state import ClusterState
from extender.engine.state.pool_state import PoolState
from extender.service.http.page.records import pending_slots, unserved_slots
from extender.service.pools.pool_status import pool_numbers

PERIOD_S: Final = 10.0
SAMPLES_MAX: Final = 360
POOLS_MAX: Final = 1_000
FIELDS: Final = (
    "slots",
    "usedSlots",
    "freeSlots",
    "pendingVReplicas",
    "pods",
    "pendingSlots",
    "closedSlots",
    "unservedSlots",
    "unservedVReplicas",
)
"""Of ``pool_numbers``, and the slots of pending and unserved vreplicas, in the order of a
sample.
"""


@dataclass(slots=True)
class _Samples:
    """The samples of one pool; the last one is of ``History.times[-1]``."""

    state: PoolState
    revision: tuple[int, int]
    values: "array[int]" = field(default_factory=lambda: array("q"))


class History:
    """Samples by pool. ``now``: epoch seconds."""

    def __init__(self, state: ClusterState, now: Callable[[], float]) -> None:
        self._state = state
        self._now = now
        self.times: deque[int] = deque(maxlen=SAMPLES_MAX)
        self._pools: dict[str, _Samples] = {}
        self._made: dict[str, dict[str, list[int]]] = {}
        """What ``of`` has returned since the last sample."""

    async def run(self, synced: Callable[[], Awaitable[object]]) -> None:
        """Sample each period, once the state is ``synced``, until cancelled."""
        await synced()
        while True:
            await self.sample()
            await asyncio.sleep(PERIOD_S)

    async def sample(self) -> None:
        """Sample each pool. Other tasks run between pools, but no reader sees a partial sample."""
        taken: dict[str, tuple[_Samples, list[int]]] = {}
        for key in sorted(self._state.pools)[:POOLS_MAX]:
            if (pool := self._state.pools.get(key)) is not None:
                taken[key] = self._look(self._pools.get(key), pool)
            await asyncio.sleep(0)
        for samples, row in taken.values():
            samples.values.extend(row)
            del samples.values[: max(0, len(samples.values) - SAMPLES_MAX * len(FIELDS))]
        self._pools = {key: samples for key, (samples, _) in taken.items()}
        self.times.append(int(self._now()))
        self._made.clear()

    def _look(self, known: _Samples | None, pool: PoolState) -> tuple[_Samples, list[int]]:
        samples = known if known is not None and known.state is pool else _Samples(pool, (-1, -1))
        revision = self._state.revision_of(pool)
        if samples.revision == revision:
            return samples, list(samples.values[-len(FIELDS) :])
        samples.revision = revision
        numbers = {
            **pool_numbers(pool),
            "pendingSlots": pending_slots(pool),
            "unservedSlots": unserved_slots(pool),
        }
        return samples, [numbers[name] for name in FIELDS]

    def of(self, pool: str) -> dict[str, list[int]]:
        """Time (epoch seconds) -> a value for each of ``FIELDS``, oldest first. Empty for an
        unknown pool.
        """
        made = self._made.get(pool)
        if made is None:
            made = self._made[pool] = self._make(pool)
        return made

    def _make(self, pool: str) -> dict[str, list[int]]:
        if (samples := self._pools.get(pool)) is None:
            return {}
        width, values = len(FIELDS), samples.values
        count = min(len(values) // width, len(self.times))
        times = list(self.times)[len(self.times) - count :]
        first = len(values) // width - count
        return {
            str(time): list(values[(first + row) * width : (first + row + 1) * width])
            for row, time in enumerate(times)
        }
