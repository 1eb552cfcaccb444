"""Containers of adapter pods crash, some because of what they have just got, and people release the
vpods that are put into quarantine for that.
"""

from typing import Final

from extender.kube.api import ADAPTERPOOLS, PODS, VPODS, Obj
from extender.lab.clock import wall_clock
from extender.lab.simulation.workload.acts import Act, Scene
from extender.lab.simulation.world.draws import drawn_quarantine
from extender.lab.simulation.world.scale import NS
from extender.model.names import RELEASED_ANNOTATION
from extender.model.quarantine import QUARANTINED
from extender.model.timestamps import timestamp

POISON: Final = "tenant-a/v1"
"""A vpod whose pods crash more often than others."""


class CrashActs:
    """Acts with their weights."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.always = (
            Act("crash a pod that has got poison", 6.0, self._crash_poisoned),
            Act("crash a pod", 2.0, self._crash_any),
            Act("release a vpod", 1.0, self._release),
        )
        self.sometimes = (Act("change quarantine", 0.5, self._change_quarantine),)

    async def _crash_poisoned(self) -> bool:
        return await self._crash(self._scene.pod(_is_poisoned))

    async def _crash_any(self) -> bool:
        return await self._crash(self._scene.pod(lambda pod: bool(pod["spec"].get("nodeName"))))

    async def _crash(self, pod: Obj | None) -> bool:
        """The container ends with an error, and the kubelet starts it again."""
        if pod is None:
            return False
        known = (pod.get("status") or {}).get("containerStatuses") or [{}]
        container = {
            "name": "adapter",
            "restartCount": known[0].get("restartCount", 0) + 1,
            "state": {"running": {}},
            "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}},
        }
        name, patch = pod["metadata"]["name"], {"status": {"containerStatuses": [container]}}
        await self._scene.merge(PODS, NS, name, patch, "status")
        return True

    async def _release(self) -> bool:
        vpod = self._scene.any(VPODS, _is_quarantined)
        stamp = {"metadata": {"annotations": {RELEASED_ANNOTATION: timestamp(wall_clock())}}}
        return await self._scene.change(VPODS, vpod, stamp)

    async def _change_quarantine(self) -> bool:
        patch = {"spec": {"quarantine": None} | drawn_quarantine(self._scene.rng)}
        await self._scene.merge(ADAPTERPOOLS, NS, self._scene.pool_name(), patch)
        return True


def _is_poisoned(pod: Obj) -> bool:
    ledger = (pod["metadata"].get("annotations") or {}).get("vreplica.dev/placements", "")
    return bool(pod["spec"].get("nodeName")) and f'"{POISON}' in ledger


def _is_quarantined(vpod: Obj) -> bool:
    conditions = (vpod.get("status") or {}).get("conditions") or ()
    return any(one["type"] == QUARANTINED and one["status"] == "True" for one in conditions)
