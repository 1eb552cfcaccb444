"""Vpods begin and cease to need several vreplicas together."""

from extender.kube.api import VPODS
from extender.lab.simulation.workload.acts import Act, Scene


class GangActs:
    """Acts with their weights."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.always = (Act("change minAvailable", 4.0, self._change),)
        self.sometimes = ()

    async def _change(self) -> bool:
        vpod = self._scene.any(VPODS)
        wanted = vpod["spec"]["vreplicas"] if vpod is not None else 0
        least = self._scene.rng.choice([None, 1, 2, -(-wanted // 2), wanted, 2 * wanted + 1])
        return await self._scene.change(VPODS, vpod, {"spec": {"minAvailable": least}})
