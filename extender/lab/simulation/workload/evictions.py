"""``Evictions``: somebody evicts adapter pods, as kubectl drain does (the part ``handoff``).

In pools that hand shares over, the webhook refuses an eviction until the pod carries nothing, and
the eviction is tried again. Other pods go at once.
"""

import asyncio
from typing import Final

from extender.kube.api import PODS, NotFound, Obj, TooManyRequests
from extender.lab.simulation.workload.acts import Act, Scene
from extender.lab.simulation.world.facts import EVICTING
from extender.lab.simulation.world.scale import NS

RETRY_S: Final = 5.0
TRIES_AGAIN: Final = 0.7
"""Probability that an eviction is tried again rather than another one begun."""


class EvictionActs:
    """One attempt an event. Many are never tried again."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.always = (Act("evict pod", 1.5, self._evict),)
        self.sometimes: tuple[Act, ...] = ()

    async def _evict(self) -> bool:
        again = self._scene.rng.random() < TRIES_AGAIN
        pod = (self._scene.pod(_is_evicting) if again else None) or self._scene.pod()
        if pod is None:
            return False
        try:
            await self._scene.world.cluster.evict(NS, pod["metadata"]["name"])
        except TooManyRequests as error:
            self._scene.world.trace(f"    {error}")
        return True


async def evict(scene: Scene, name: str, tries: int) -> float | None:
    """Try until the pod goes. Return after how many seconds the API server has taken the eviction;
    None if it never does, or the pod goes by itself.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    uid = scene.world.stored(PODS)[NS, name]["metadata"]["uid"]
    for _ in range(tries):
        pod = scene.world.stored(PODS).get((NS, name))
        if pod is None or pod["metadata"]["uid"] != uid:
            return None
        try:
            await scene.world.cluster.evict(NS, name)
        except TooManyRequests:
            await asyncio.sleep(RETRY_S)
        except NotFound:
            return None
        else:
            return loop.time() - began
    return None


def _is_evicting(pod: Obj) -> bool:
    return EVICTING in (pod["metadata"].get("annotations") or {})
