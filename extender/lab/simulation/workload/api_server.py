"""What becomes of the API server itself: events that it refuses, and etcd restored from a
backup.
"""

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
"""As etcd's documentation has it for ``--bump-revision``, or enough of it."""
BACKUP_AGE_MAX_S: Final = 20.0
DOWN_S: Final = 16.0
"""API servers are down for a restore for longer than a Lease, and any request, lasts."""
UP_MAX_S: Final = 1.5
VERSIONS_SEEN_MIN: Final = 20
"""Of a history that goes back: more are not written before a replica reads its Lease, which would
pass the version that it knows.
"""


class ApiServerActs:
    """``acts`` by kind of ``ACT_KINDS``. ``on_restored``: called once etcd has been restored."""

    def __init__(self, scene: Scene, on_restored: Callable[[], None]) -> None:
        self._scene = scene
        self._on_restored = on_restored
        self.acts: dict[str, Callable[[], Awaitable[bool]]] = {
            "eventsRefused": self._refuse_events,
            "etcdRestored": self._restore,
        }

    async def _refuse_events(self) -> bool:
        """By a namespace's quota or webhook, or for want of a role: nothing but these events is
        lost.
        """
        rng, faults = self._scene.rng, self._scene.world.faults
        namespace = rng.choice(("", NS, *TENANTS, *TENANTS))
        lasts_s = rng.uniform(EVENTS_REFUSED_MAX_S / 10, EVENTS_REFUSED_MAX_S)
        faults.refuse_events(namespace, lasts_s, forbidden=rng.random() < 0.3)
        return True

    async def _restore(self) -> bool:
        """A backup is made, life goes on, all API servers are stopped, and come back with what the
        backup has.
        """
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
        """What is not in the backup, or is there and nowhere else."""
        scene = self._scene
        if scene.rng.random() < 0.7:
            spec = {"vreplicas": scene.rng.choice((0, 1, 2, 4, 8, 12))}
            await scene.change(VPODS, scene.any(VPODS), {"spec": spec})
        elif (pod := scene.pod()) is not None:
            await scene.world.cluster.delete(PODS, NS, pod["metadata"]["name"])


def _will_see(replica: Replica, backup: Snapshot, bump: int) -> bool:
    """Whether its Lease tells a replica that etcd was restored. Any other is restarted with the API
    servers.

    docs/reliability.md tells of those that nothing tells of it: they have seen no Lease that is
    newer than the backup, or versions pass what they have seen before they look.
    """
    needed = backup.version + (0 if bump else VERSIONS_SEEN_MIN)
    runs = not (replica.rival or replica.paused or replica.api.crashed or replica.task.done())
    return runs and min(replica.lease_versions, default=0) > needed
