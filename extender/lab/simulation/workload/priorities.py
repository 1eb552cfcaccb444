"""Who is more important: classes come and go, VPods name one or none, and pools begin and cease to
preempt.
"""

from collections.abc import Mapping
from typing import Final

from extender.kube.api import ADAPTERPOOLS, PRIORITYCLASSES, VPODS, Obj
from extender.lab.simulation.workload.acts import Act, Scene
from extender.lab.simulation.world.draws import drawn_preemption
from extender.lab.simulation.world.scale import NS

CLASSES: Final[Mapping[str, Obj]] = {
    "low": {"value": -10},
    "high": {"value": 1000},
    "higher": {"value": 2000},
    "patient": {"value": 5000, "preemptionPolicy": "Never"},
}
"""Name -> the fields of a PriorityClass. They cannot be changed."""


class PriorityActs:
    """Acts with their weights."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.always = (
            Act("create priority class", 1.5, self._create),
            Act("change priority", 3.0, self._change),
        )
        self.sometimes = (
            Act("delete priority class", 0.3, self._delete),
            Act("change preemption", 0.5, self._change_preemption),
        )

    async def _create(self) -> bool:
        stored = {obj["metadata"]["name"] for obj in self._classes()}
        missing = [name for name in CLASSES if name not in stored]
        if not missing:
            return False
        name = self._scene.rng.choice(missing)
        obj = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            **CLASSES[name],
        }
        await self._scene.world.cluster.create(PRIORITYCLASSES, "", obj)
        return True

    async def _delete(self) -> bool:
        obj = self._scene.any(PRIORITYCLASSES)
        if obj is None:
            return False
        await self._scene.world.cluster.delete(PRIORITYCLASSES, "", obj["metadata"]["name"])
        return True

    async def _change(self) -> bool:
        vpod = self._scene.any(VPODS)
        names = [None, *(obj["metadata"]["name"] for obj in self._classes())]
        patch = {"spec": {"priorityClassName": self._scene.rng.choice(names)}}
        return await self._scene.change(VPODS, vpod, patch)

    async def _change_preemption(self) -> bool:
        new = drawn_preemption(self._scene.rng)
        patch = {"spec": {"preemption": None} | new}
        await self._scene.merge(ADAPTERPOOLS, NS, self._scene.pool_name(), patch)
        return True

    def _classes(self) -> list[Obj]:
        return list(self._scene.world.stored(PRIORITYCLASSES).values())
