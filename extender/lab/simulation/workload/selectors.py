"""Which tenants may use a pool: labels of namespaces and selectors of pools change."""

from extender.kube.api import ADAPTERPOOLS, NAMESPACES
from extender.lab.simulation.workload.acts import Act, Scene
from extender.lab.simulation.world.draws import GOLD, drawn_labels
from extender.lab.simulation.world.scale import NS, TENANTS


class SelectorActs:
    """Acts with their weights: ``always`` if pools select namespaces, ``sometimes`` in some
    runs.
    """

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.always = (Act("label namespace", 1.5, self._label),)
        self.sometimes = (Act("change namespaceSelector", 1.5, self._change_selector),)

    async def _label(self) -> bool:
        labels = {**dict.fromkeys(GOLD), **drawn_labels(self._scene.rng)}
        namespace = self._scene.rng.choice(TENANTS)
        await self._scene.merge(NAMESPACES, "", namespace, {"metadata": {"labels": labels}})
        return True

    async def _change_selector(self) -> bool:
        selector = {"matchLabels": self._scene.rng.choice((None, GOLD))}
        pool = self._scene.pool_name()
        await self._scene.merge(ADAPTERPOOLS, NS, pool, {"spec": {"namespaceSelector": selector}})
        return True
