"""Faults of the API server itself: it refuses events, or etcd is restored from a backup."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from extender.kube.api import PODS, VPODS
from extender.lab.apiserver.store import Snapshot
from extender.lab.simulation.workload.acts import Scene
from extender.lab.simulation.world.replica import Replica
from extender.lab.simulation.world.scale import NS, TENANTS

EVENTS_REFUSED_MAX_S: Final = 60.0
BUMP: Final = 1_000_000
"""As etcd's documentation proposes for ``--bump-revision``, or enough."""
BACKUP_AGE_MAX_S: Final = 20.0
DOWN_S: Final = 16.0
"""For a restore, the API servers are down for longer than any Lease or request lasts."""
UP_MAX_S: Final = 1.5
VERSIONS_SEEN_MIN: Final = 20
"""Without a bump, versions begin again at the backup's. A replica notices this only while they are
below the version that it has seen. So it must have seen this many versions after the backup; fewer
are written before it reads its Lease.
"""


class ApiServerActs:
    """``acts`` by kind of ``ACT_KINDS``. ``on_restored`` is called after a restore of etcd."""

    def __init__(self, scene: Scene, on_restored: Callable[[], None]) -> None:
        self._scene = scene
        self._on_restored = on_restored
        self.acts: dict[str, Callable[[], Awaitable[bool]]] = {
            "eventsRefused": self._refuse_events,
            "etcdRestored": self._restore,
        }

    async def _refuse_events(self) -> bool:
        """Refuse events, as a quota, webhook or missing role does. Only these are lost."""
        rng, faults = self._scene.rng, self._scene.world.faults
        namespace = rng.choice(("", NS, *TENANTS, *TENANTS))
        lasts_s = rng.uniform(EVENTS_REFUSED_MAX_S / 10, EVENTS_REFUSED_MAX_S)
        faults.refuse_events(namespace, lasts_s, forbidden=rng.random() < 0.3)
        return True

    async def _restore(self) -> bool:
        """Make a backup, change objects, stop all API servers, and restart with the backup."""
        rng, world = self._scene.rng, self._scene.world
        backup, bump = world.cluster.snapshot(), rng.choice((0, BUMP))
        for _ in range(rng.randint(1, 6)):
            await self._change_something()
        await asyncio.sleep(rng.uniform(BACKUP_AGE_MAX_S / 4, BACKUP_AGE_MAX_S))
        up_s = rng.uniform(0.0, UP_MAX_S)
        self._cut_off(DOWN_S + up_s)
        await asyncio.sleep(DOWN_S)
        world.restore(backup, bump=bump)
        self._on_restored()
        self._cut_off(up_s)
        for replica in list(world.replicas):
            if not _will_see(replica, backup, bump):
                world.kill(replica)
                if not replica.rival:
                    world.start_replica()
        await asyncio.sleep(up_s)
        return True

    def _cut_off(self, lasts_s: float) -> None:
        for replica in self._scene.world.replicas:
            self._scene.world.faults.cut_off(replica.name, lasts_s)

    async def _change_something(self) -> None:
        """Change something that the backup does not have, or delete something that it has."""
        scene = self._scene
        if scene.rng.random() < 0.7:
            spec = {"vreplicas": scene.rng.choice((0, 1, 2, 4, 8, 12))}
            await scene.change(VPODS, scene.any(VPODS), {"spec": spec})
        elif (pod := scene.pod()) is not None:
            await scene.world.cluster.delete(PODS, NS, pod["metadata"]["name"])


def _will_see(replica: Replica, backup: Snapshot, bump: int) -> bool:
    """Return whether a replica's Lease tells it that etcd was restored. Other replicas are
    restarted with the API servers.

    docs/reliability.md describes the cases in which a replica does not notice a restore: it has
    seen no Lease newer than the backup, or the versions pass what it has seen before it looks.
    """
    needed = backup.version + (0 if bump else VERSIONS_SEEN_MIN)
    runs = not (replica.rival or replica.paused or replica.api.crashed or replica.task.done())
    return runs and min(replica.lease_versions, default=0) > needed
