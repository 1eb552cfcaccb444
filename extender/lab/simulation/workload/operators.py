"""Acts of operators: delete pods, cordon nodes, change pools, drain and upgrade adapters."""

from collections.abc import Callable
from random import Random
from typing import Any

from extender.kube.api import ADAPTERPOOLS, NODES, PODS, STATEFULSETS, Obj
from extender.lab.simulation.workload.acts import Act, Scene
from extender.lab.simulation.world.configuration import OWN_PROFILES
from extender.lab.simulation.world.draws import PROFILES, drawn_rebalance
from extender.lab.simulation.world.facts import MARKS
from extender.lab.simulation.world.scale import NS, SLOTS_FACTOR


class Operators:
    """``sometimes`` acts are for every kind of run, ``among_pools`` not for ``plain`` ones."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._versions = 0
        slots_factor = SLOTS_FACTOR if scene.world.scale.long_names else 1
        profiles = (*PROFILES, *OWN_PROFILES) if scene.world.scale.own_profiles else PROFILES
        self.sometimes = (
            Act("delete pod", 3, self._delete_pod),
            Act("cordon node", 0.7, self._cordon_node),
            Act("uncordon node", 0.7, self._uncordon_node),
            self._change("minPods", lambda rng: rng.randint(0, 4)),
            self._change("maxPods", lambda rng: rng.choice((None, 2, 4, 8, 12))),
            self._change("slotsPerPod", lambda rng: rng.randint(2, 12) * slots_factor),
            Act("mark pod", 1, self._mark_pod),
            Act("unmark pod", 1.2, self._unmark_pod),
        )
        self.among_pools = (
            self._change("minPodsPerVPod", lambda rng: rng.randint(0, 4)),
            self._change("rescheduleAfterSeconds", lambda rng: rng.choice((None, 0, 5, 30))),
            self._change("profile", lambda rng: rng.choice(profiles)),
            self._change("rebalance", drawn_rebalance),
            Act("upgrade adapters", 0.2, self._upgrade),
        )

    async def _delete_pod(self) -> bool:
        scene = self._scene
        pod = scene.pod()
        if pod is None:
            return False
        await scene.world.cluster.delete(PODS, NS, pod["metadata"]["name"])
        return True

    async def _respec_node(self, spec: Obj) -> bool:
        node = self._scene.any(NODES)
        if node is None:
            return False
        await self._scene.merge(NODES, "", node["metadata"]["name"], {"spec": spec})
        return True

    async def _cordon_node(self) -> bool:
        return await self._respec_node({"unschedulable": True})

    async def _uncordon_node(self) -> bool:
        return await self._respec_node({"unschedulable": None})

    def _change(self, field: str, drawn: Callable[[Random], Any]) -> Act:
        """The act that gives a pool a drawn value of that field of its spec."""

        async def change() -> bool:
            spec = {field: drawn(self._scene.rng)}
            await self._scene.merge(ADAPTERPOOLS, NS, self._scene.pool_name(), {"spec": spec})
            return True

        return Act(f"change {field}", 0.5, change)

    async def _mark_pod(self) -> bool:
        pod = self._scene.pod()
        if pod is None:
            return False
        await self._scene.annotate(pod, {self._scene.rng.choice(MARKS): "true"})
        return True

    async def _unmark_pod(self) -> bool:
        def is_marked(pod: Obj) -> bool:
            return any(mark in (pod["metadata"].get("annotations") or {}) for mark in MARKS)

        pod = self._scene.pod(is_marked)
        if pod is None:
            return False
        await self._scene.annotate(pod, dict.fromkeys(MARKS))
        return True

    async def _upgrade(self) -> bool:
        """Roll out a new version of the adapters. One pod after the other is replaced, from the
        highest ordinal down.
        """
        self._versions += 1
        await upgrade(self._scene, self._scene.pool_name(), str(self._versions))
        return True


async def upgrade(scene: Scene, pool: str, version: str) -> None:
    """Give the pool's StatefulSet a pod template of another version."""
    stateful_set = await scene.world.cluster.get(STATEFULSETS, NS, pool)
    annotations = stateful_set["spec"]["template"]["metadata"].setdefault("annotations", {})
    annotations["adapters/version"] = version
    await scene.world.cluster.update(STATEFULSETS, NS, pool, stateful_set)
