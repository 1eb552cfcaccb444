"""Pools with dimensions beside slots: what their pods have of them changes."""

from typing import Final

from extender.kube.api import ADAPTERPOOLS, Obj
from extender.lab.simulation.workload.acts import Act, Scene
from extender.lab.simulation.world.scale import NS

CPU: Final = (3, 16)
MEMORY: Final = (6, 30)
"""From the least to the most of a pod."""


class DimensionActs:
    """Acts with their weights. A pool that loses a dimension can place no vpod that takes some."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.always = (Act("change capacities", 0.7, self._change),)
        self.sometimes = (Act("remove a dimension", 0.2, self._remove),)

    async def _change(self) -> bool:
        rng = self._scene.rng
        return await self._set({"cpu": rng.randint(*CPU), "memory": rng.randint(*MEMORY)})

    async def _remove(self) -> bool:
        return await self._set({self._scene.rng.choice(("cpu", "memory")): None})

    async def _set(self, capacities: Obj) -> bool:
        pool = self._scene.pool_name()
        await self._scene.merge(ADAPTERPOOLS, NS, pool, {"spec": {"capacities": capacities}})
        return True
