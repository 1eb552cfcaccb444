"""Edits that nobody should make by hand: of scales, ordinals, ledgers and statuses; and a pod bound
by another scheduler, or a StatefulSet that two pools name.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import orjson

from extender.kube.api import ADAPTERPOOLS, NODES, STATEFULSETS, VPODS, Binding, Obj
from extender.lab.simulation.workload.acts import Scene
from extender.lab.simulation.world.facts import PLACEMENTS, SLOTS
from extender.lab.simulation.world.scale import NS, TENANTS, second_name

FIRST_GONE_MAX_S: Final = 20.0
STARTS: Final = (0, 0, 1, 2, 5)
ENDS_SLOWLY_MAX_S: Final = 20.0
PODS_MAX: Final = 12
"""The limit of the replicas that somebody else sets."""


class Edits:
    """``acts`` by kind of ``ACT_KINDS``."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.acts: dict[str, Callable[[], Awaitable[bool]]] = {
            "replicasEdited": self._edit_replicas,
            "ledgerEdited": self._edit_ledger,
            "statusEdited": self._edit_status,
            "boundElsewhere": self._bind_elsewhere,
            "secondPool": self._second_pool,
            "ordinalsMoved": self._move_ordinals,
        }

    async def _edit_replicas(self) -> bool:
        pool, cluster = self._scene.pool_name(), self._scene.world.cluster
        scale = await cluster.get(STATEFULSETS, NS, pool, subresource="scale")
        replicas = max(0, scale["spec"].get("replicas", 0) + self._scene.rng.choice((-2, -1, 1, 2)))
        scale["spec"]["replicas"] = min(replicas, PODS_MAX)
        await cluster.update(STATEFULSETS, NS, pool, scale, subresource="scale")
        return True

    async def _edit_ledger(self) -> bool:
        pod = self._scene.pod(lambda pod: bool(pod["spec"].get("nodeName")))
        if pod is None:
            return False
        text = (pod["metadata"].get("annotations") or {}).get(PLACEMENTS)
        edit = self._scene.rng.choice(("garbage", "gone", "both gone", "less", "more", "ghost"))
        if edit in ("less", "more", "ghost"):
            text = self._edited(edit, text)
        values: dict[str, dict[str, str | None]] = {
            "garbage": {PLACEMENTS: "{oops"},
            "gone": {PLACEMENTS: None},
            "both gone": {PLACEMENTS: None, SLOTS: None},
        }
        await self._scene.annotate(pod, values.get(edit, {PLACEMENTS: text}))
        return True

    def _edited(self, edit: str, text: str | None) -> str:
        rng = self._scene.rng
        try:
            ledger: dict[str, Any] = orjson.loads(text or "{}")
        except orjson.JSONDecodeError:
            ledger = {}
        if edit == "ghost" or not ledger:
            ledger[f"{TENANTS[0]}/ghost"] = rng.randint(1, 3)
        elif edit == "less":
            del ledger[rng.choice(sorted(ledger))]
        else:
            ledger[rng.choice(sorted(ledger))] = rng.randint(1, 15)
        return orjson.dumps(ledger, option=orjson.OPT_SORT_KEYS).decode()

    async def _edit_status(self) -> bool:
        scene = self._scene
        if (vpod := scene.any(VPODS)) is None:
            return False
        placements = [dict(item) for item in (vpod.get("status") or {}).get("placements") or ()]
        if placements and scene.rng.random() < 0.7:
            item = scene.rng.choice(placements)
            item["vreplicas"] = scene.rng.randint(1, 6)
            if scene.rng.random() < 0.3:
                placements.remove(item)
        else:
            name = f"{scene.pool_name()}-{scene.rng.randint(0, 15)}"
            placements.append({"podName": name, "vreplicas": 1})
        unique = {item["podName"]: item for item in placements}
        metadata = vpod["metadata"]
        patch: Obj = {"status": {"placements": list(unique.values())}}
        await scene.merge(VPODS, metadata["namespace"], metadata["name"], patch, "status")
        return True

    async def _second_pool(self) -> bool:
        """Create or delete a second AdapterPool of a StatefulSet, or delete and recreate the first
        one. Nothing may be lost by it.
        """
        world, rng = self._scene.world, self._scene.rng
        pool = self._scene.pool_name()
        second, pools = second_name(pool), world.stored(ADAPTERPOOLS)
        if (NS, second) not in pools:
            spec = {
                "slotsPerPod": rng.randint(2, 12),
                "minPods": rng.randint(0, 4),
                "scaleDownPeriodSeconds": 2,
            }
            obj: Obj = {"metadata": {"name": second}, "spec": {"statefulSet": pool, **spec}}
            await world.cluster.create(ADAPTERPOOLS, NS, obj)
        elif rng.random() < 0.5 or (NS, pool) not in pools:
            await world.cluster.delete(ADAPTERPOOLS, NS, second)
        else:
            again: Obj = {"metadata": {"name": pool}, "spec": pools[NS, pool]["spec"]}
            await world.cluster.delete(ADAPTERPOOLS, NS, pool)
            await asyncio.sleep(rng.uniform(0.0, FIRST_GONE_MAX_S))
            await world.cluster.create(ADAPTERPOOLS, NS, again)
        return True

    async def _move_ordinals(self) -> bool:
        """Move the range of ordinals. Pods outside of the new range are deleted, and end at once or
        slowly. What they hold waits there for room.
        """
        rng, world = self._scene.rng, self._scene.world
        pool = self._scene.pool_name()
        spec = world.stored(STATEFULSETS)[NS, pool]["spec"]
        before = (spec.get("ordinals") or {}).get("start", 0)
        start = rng.choice([start for start in STARTS if start != before])
        world.ends_slowly_s[pool] = rng.choice((0.0, ENDS_SLOWLY_MAX_S)) * rng.random()
        await self._scene.merge(STATEFULSETS, NS, pool, {"spec": {"ordinals": {"start": start}}})
        return True

    async def _bind_elsewhere(self) -> bool:
        """Let another scheduler bind a pod that waits for the service's one."""
        pod = self._scene.pod(lambda pod: not pod["spec"].get("nodeName"))
        node = self._scene.any(NODES)
        if pod is None or node is None:
            return False
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        await self._scene.world.cluster.bind(Binding(NS, name, node["metadata"]["name"], uid=uid))
        return True
