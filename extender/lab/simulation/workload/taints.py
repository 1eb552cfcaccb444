"""Nodes get a taint that their pods do not tolerate: while the faults happen, and once when they
are over.

The second is for the part ``descheduling``. While the faults happen, a pool is seldom whole for
long enough to evict anything. So once everything has settled, one node gets the taint, or is
cordoned, and stays so until its pods have left. A pool may leave a pod there only if its condition
PodsMisplaced says so with a reason of ``STAYS``, or if one of its pods never became Ready: the
other nodes have no room for it, or its probe fails beyond the end of the faults. That excuses no
pod that is not Ready itself, because such a pod goes first. To a replica whose clock is behind
(clockJump), pods are too young for up to an hour more.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from extender.kube.api import ADAPTERPOOLS, NODES, PODS, Obj
from extender.lab.simulation.workload.acts import Scene
from extender.lab.simulation.world.facts import is_ready
from extender.model.decode import pool_from
from extender.model.eviction import deadline_s
from extender.model.names import POOL_LABEL
from extender.model.reading import condition_in, mapping, sequence, text
from extender.node.descheduling import PODS_MISPLACED, NotEvicted
from extender.service.pools.descheduler import LOOK_S

TAINTED_MAX_S: Final = 120.0
TAINT: Final = {"key": "example.dev/maintenance", "effect": "NoSchedule"}
STAYS: Final = frozenset[str]({NotEvicted.NO_OTHER_NODE, NotEvicted.POD_DRAINED})
POD_LEAVES_S: Final = 60.0
"""The most seconds that one pod may take, in addition to its pool's period."""


class _Staying(NamedTuple):
    """A pod that should leave its node. ``blocks_itself``: it is not Ready, and its pool waits for
    pods to be Ready.
    """

    pool: str
    line: str
    blocks_itself: bool


Soon = Callable[[float, Callable[[], Awaitable[object]]], None]
"""Does something after a delay in seconds, unless the faults are over before."""


class Taints:
    """Adds our taint to nodes and removes it."""

    def __init__(self, scene: Scene, soon: Soon) -> None:
        self._scene = scene
        self._soon = soon

    async def taint(self) -> bool:
        """Taint a node for up to ``TAINTED_MAX_S``."""
        names = [name for _, name in self._scene.world.stored(NODES)]
        if not names:
            return False
        name = self._scene.rng.choice(names)
        await self._set(name, there=True)
        after_s = self._scene.rng.uniform(0.0, TAINTED_MAX_S)
        self._soon(after_s, lambda: self._set(name, there=False))
        return True

    async def clear(self) -> None:
        """Remove all our taints."""
        for _, name in list(self._scene.world.stored(NODES)):
            await self._set(name, there=False)

    async def pods_leave(self) -> list[str]:
        """Taint or cordon a node with adapter pods until they have left. Return those that stay
        without a reason.
        """
        world = self._scene.world
        nodes = {node for pod in world.stored(PODS).values() if (node := _adapter_node(pod))}
        if not nodes:
            return []
        name = world.rng("descheduling").choice(sorted(nodes))
        close = world.rng("maintenance").choice((self._set, self._cordon))
        world.trace(f"calm: node {name} is {'tainted' if close == self._set else 'cordoned'}")
        await close(name, there=True)
        staying = await self._wait(name)
        await close(name, there=False)
        return staying

    async def _wait(self, node: str) -> list[str]:
        clock = asyncio.get_running_loop().time
        pools = list(self._scene.world.stored(ADAPTERPOOLS).values())
        period_s = max(pool["spec"].get("scaleDownPeriodSeconds", 100) for pool in pools)
        pods = sum(_adapter_node(pod) == node for pod in self._scene.world.stored(PODS).values())
        # A pod that hands over is refused until its deadline at most, at doubling distances.
        decoded = [pool_from(pool) for pool in pools]
        handed_over_s = max(2 * deadline_s(pool) if pool.hands_over else 0 for pool in decoded)
        end = clock() + (1 + pods) * (period_s + handed_over_s + POD_LEAVES_S)
        # Conditions are of the last look, which may have been before the taint.
        await asyncio.sleep(2 * LOOK_S)
        while staying := self._staying(node):
            if clock() > end:
                broken = self._pools_not_ready()
                return [
                    f"not descheduled: {one.line}"
                    for one in staying
                    if one.pool not in broken or one.blocks_itself
                ]
            await asyncio.sleep(LOOK_S)
        return []

    def _staying(self, node: str) -> list[_Staying]:
        """The pods on the node that should leave."""
        world, found = self._scene.world, list[_Staying]()
        pools = world.stored(ADAPTERPOOLS)
        behind = any(replica.clock_ahead_s < 0 for replica in world.replicas)
        stays = STAYS | {NotEvicted.POD_TOO_YOUNG} if behind else STAYS
        for (namespace, name), pod in world.stored(PODS).items():
            if _adapter_node(pod) != node:
                continue
            of_pool = text(pod, "metadata", "labels", POOL_LABEL)
            pool = pools.get((namespace, of_pool), {})
            reason = text(condition_in(pool, PODS_MISPLACED), "reason")
            if sequence(pool, "spec", "descheduling", "reasons") and reason not in stays:
                line = f"{name} is still on node {node}, PodsMisplaced is {reason!r}"
                itself = reason == NotEvicted.PODS_NOT_READY and not is_ready(pod)
                found.append(_Staying(of_pool, line, itself))
        return found

    def _pools_not_ready(self) -> set[str]:
        """The pools of which a pod is not Ready."""
        return {
            text(pod, "metadata", "labels", POOL_LABEL)
            for pod in self._scene.world.stored(PODS).values()
            if not is_ready(pod)
        }

    async def _cordon(self, name: str, *, there: bool) -> None:
        spec = {"unschedulable": True if there else None}
        await self._scene.merge(NODES, "", name, {"spec": spec})

    async def _set(self, name: str, *, there: bool) -> None:
        """Add or remove our taint, and leave those of others."""
        node = self._scene.world.stored(NODES).get(("", name))
        taints = (node or {}).get("spec", {}).get("taints") or []
        others = [taint for taint in taints if taint["key"] != TAINT["key"]]
        if node is None or (taints == others and not there):
            return
        version = {"resourceVersion": node["metadata"]["resourceVersion"]}
        spec = {"taints": [*others, TAINT] if there else others}
        await self._scene.merge(NODES, "", name, {"metadata": version, "spec": spec})


def _adapter_node(pod: Obj) -> str:
    """The node of an adapter pod, "" for any other pod."""
    labels = mapping(pod, "metadata", "labels")
    return text(pod, "spec", "nodeName") if POOL_LABEL in labels else ""
