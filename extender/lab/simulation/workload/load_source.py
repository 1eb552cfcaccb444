"""Pools that take their load from a Prometheus: what they name changes."""

from typing import Final

from extender.kube.api import ADAPTERPOOLS
from extender.lab.simulation.workload.acts import Act, Scene
from extender.lab.simulation.world.scale import LOAD_SOURCE, NS

NAMED: Final = (LOAD_SOURCE, LOAD_SOURCE, LOAD_SOURCE, "no-such-source", None)


class LoadSourceActs:
    """Acts with their weights. A pool without a source takes reports."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.always = (Act("change loadSource", 1, self._change),)
        self.sometimes: tuple[Act, ...] = ()

    async def _change(self) -> bool:
        scene = self._scene
        spec = {"loadSource": scene.rng.choice(NAMED)}
        await scene.merge(ADAPTERPOOLS, NS, scene.pool_name(), {"spec": spec})
        return True
