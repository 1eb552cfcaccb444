"""``Drains``: once everything is at rest, pods of pools that hand shares over are drained or
evicted, one after another, and their pools may grow. Then a pool whose rollouts are handed over is
rolled out. All adapters keep the contract then, so no share may be out of service (I7). At times
the leader is killed meanwhile.
"""

import asyncio
from typing import Final

from extender.kube.api import ADAPTERPOOLS, PODS, STATEFULSETS, Obj
from extender.lab.clock import wall_clock
from extender.lab.simulation.workload.acts import Scene
from extender.lab.simulation.workload.evictions import evict
from extender.lab.simulation.workload.operators import upgrade
from extender.lab.simulation.world.facts import MARKS, is_ready
from extender.lab.simulation.world.scale import NS, pool_of
from extender.model.decode import pod_from, pool_from
from extender.model.eviction import deadline_s, eviction_of
from extender.model.objects import object_key

PODS_DRAINED: Final = 3
KILL_SHARE: Final = 0.3
EVICTED_SHARE: Final = 0.5
EVICTION_TRIES: Final = 60
DRAINED_S: Final = 60.0
"""For a drain without a killed leader."""
SETTLED_S: Final = 5.0
ROLLED_OUT_PODS_MAX: Final = 8
"""Hours of a large pool would cost minutes."""
GIVEN_UP_S: Final = 360.0
"""For so long a rollout waits for a pod that somebody has tried to evict, and tries no more (seed
590004209).
"""
REPLACED_S: Final = 60.0
"""A rollout takes at most this time for each pod, beside the deadline of its hand-over (seed
93000022: without a surge, each pod of a full pool waits for that).
"""


class Drains:
    """See the module's docstring."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    async def run(self) -> None:
        """Drain pods, and call each drain off again."""
        world = self._scene.world
        rng = world.rng("drains")
        handing_over = {
            name
            for name, pool in zip(world.scale.pool_names, world.scale.pools, strict=True)
            if pool.get("handoff", {}).get("mode", "None") != "None"
        }
        for _ in range(PODS_DRAINED):
            pods = [
                name
                for (_, name), pod in world.stored(PODS).items()
                if pool_of(name) in handing_over and world.adapters.serves(name) and _stays(pod)
            ]
            if not pods:
                return
            name = rng.choice(pods)
            await self._scene.merge(ADAPTERPOOLS, NS, pool_of(name), {"spec": {"maxPods": None}})
            if rng.random() < EVICTED_SHARE:
                await self._evict(name)
                continue
            world.trace(f"calm: pod {name} is drained")
            await self._mark(name, "true")
            if rng.random() < KILL_SHARE:
                await self._kill_leader(pool_of(name), rng.random())
            await asyncio.sleep(DRAINED_S)
            await self._mark(name, None)
            await asyncio.sleep(SETTLED_S)

    async def roll_out(self) -> None:
        """Roll out a small pool whose rollouts are handed over, and wait for the end. A pool
        without a node for its surge may never end it.
        """
        world = self._scene.world
        rng = world.rng("rollout")
        pools = [
            name
            for name, pool in zip(world.scale.pool_names, world.scale.pools, strict=True)
            if "rollout" in pool
            and (NS, name) in world.stored(ADAPTERPOOLS)
            and len(self._pods_of(name)) <= ROLLED_OUT_PODS_MAX
        ]
        if not pools:
            return
        pool, kills = rng.choice(pools), rng.random() < KILL_SHARE
        world.trace(f"calm: pool {pool} is rolled out")
        await self._scene.merge(ADAPTERPOOLS, NS, pool, {"spec": {"maxPods": None}})
        await upgrade(self._scene, pool, "calm")
        if kills:
            await self._kill_leader(pool, rng.uniform(0.0, 30.0))
        limits = pool_from(world.stored(ADAPTERPOOLS)[NS, pool])
        pods = 1 + len(self._pods_of(pool))
        ends_at = wall_clock() + pods * (deadline_s(limits) + REPLACED_S)
        if any(eviction_of(pod_from(pod)) is not None for pod in self._pods_of(pool)):
            ends_at += GIVEN_UP_S
        while not is_rolled_out(world.stored(STATEFULSETS)[NS, pool]):
            if wall_clock() > ends_at:
                # It waits for a pod that no node takes, for example (seed 91000036).
                if all(map(is_ready, self._pods_of(pool))):
                    world.problems.append(f"{pool} is not rolled out in time")
                return
            await asyncio.sleep(SETTLED_S)

    def _pods_of(self, pool: str) -> list[Obj]:
        pods = self._scene.world.stored(PODS)
        return [pod for (_, name), pod in pods.items() if pool_of(name) == pool]

    async def _kill_leader(self, pool: str, after_s: float) -> None:
        """Kill the pool's leader, and start another replica."""
        await asyncio.sleep(after_s)
        world = self._scene.world
        for replica in world.replicas[:]:
            if replica.service.leadership.leads(object_key(NS, pool)):
                world.kill(replica)
                world.start_replica()

    async def _evict(self, name: str) -> None:
        """Evict a pod. If that is allowed before its deadline, its adapter must serve nothing.

        Somebody may have tried to evict it minutes before, and it is drained since then (seed
        73904549).
        """
        world = self._scene.world
        world.trace(f"calm: pod {name} is evicted")
        pool = pool_from(world.stored(ADAPTERPOOLS)[NS, pool_of(name)])
        known = eviction_of(pod_from(world.stored(PODS)[NS, name]))
        waited_s = wall_clock() - known.first_s if known is not None else 0.0
        after_s = await evict(self._scene, name, EVICTION_TRIES)
        allowed = after_s is not None and waited_s + after_s < deadline_s(pool)
        if allowed and world.adapters.serves(name):
            world.problems.append(f"I7: {name} is evicted after {after_s:.0f} s, and serves")
        await asyncio.sleep(SETTLED_S)

    async def _mark(self, name: str, value: str | None) -> None:
        if (NS, name) in self._scene.world.stored(PODS):
            patch = {"metadata": {"annotations": {MARKS[0]: value}}}
            await self._scene.merge(PODS, NS, name, patch)


def is_rolled_out(stateful_set: Obj) -> bool:
    """Whether all pods are Ready and of the newest revision."""
    status = stateful_set.get("status") or {}
    return bool(
        status.get("observedGeneration") == stateful_set["metadata"]["generation"]
        and status.get("updatedReplicas") == status.get("readyReplicas") == status.get("replicas")
    )


def _stays(pod: Obj) -> bool:
    """Whether nothing takes the pod away by itself. One that is not Ready hands nothing over."""
    annotations = pod["metadata"].get("annotations") or {}
    leaves = pod["metadata"].get("deletionTimestamp") or set(MARKS) & annotations.keys()
    return is_ready(pod) and not leaves
