"""Vpods begin and cease to limit how many of their vreplicas a pod gets."""

from extender.kube.api import VPODS
from extender.lab.simulation.workload.acts import Act, Scene


class PlacementActs:
    """Acts with their weights."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.always = (Act("change maxPerPod", 1.0, self._change),)
        self.sometimes = ()

    async def _change(self) -> bool:
        vpod = self._scene.any(VPODS)
        most = self._scene.rng.choice([None, 1, 1, 2, 3, 8])
        return await self._scene.change(VPODS, vpod, {"spec": {"placement": {"maxPerPod": most}}})
