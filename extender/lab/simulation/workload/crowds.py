"""Many vpods with names of the maximum length. Their entries fill ledgers while slots are free, for
the same tenant and for others.
"""

from typing import Final

from extender.kube.api import VPODS
from extender.lab.simulation.workload.acts import Act, Scene
from extender.lab.simulation.world.objects import vpod_object
from extender.lab.simulation.world.scale import CROWD, TENANTS

CROWD_VPODS: Final = 240
"""In one crowd. 225 such vpods are a tenant's share of one ledger."""
CROWDED_AT: Final = 300
"""With this many vpods, no more crowds come."""


class Crowds:
    """Acts with their weights: ``always`` in every run with long names, ``sometimes`` in some."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._came = 0
        self.always = (Act("crowd comes", 1.5, self._come), Act("crowd goes", 1, self._go))
        self.sometimes = (Act("part of a crowd goes", 1, self._go_in_part),)

    async def _come(self) -> bool:
        """Create a crowd in one tenant and one pool."""
        scene = self._scene
        if len(scene.world.stored(VPODS)) >= CROWDED_AT:
            return False
        tenant, pool = scene.rng.choice(TENANTS), scene.pool_name()
        for _ in range(CROWD_VPODS):
            self._came += 1
            vpod = vpod_object(scene.world.scale.vpod_name(f"{CROWD}{self._came}"), 1, 1, pool)
            await scene.world.cluster.create(VPODS, tenant, vpod)
        return True

    async def _go(self) -> bool:
        return await self._leave(1.0)

    async def _go_in_part(self) -> bool:
        return await self._leave(self._scene.rng.uniform(0.1, 0.9))

    async def _leave(self, share: float) -> bool:
        scene = self._scene
        there = [key for key in scene.world.stored(VPODS) if key[1].startswith(CROWD)]
        for namespace, name in there:
            if scene.rng.random() < share:
                await scene.world.cluster.delete(VPODS, namespace, name)
        return bool(there)
