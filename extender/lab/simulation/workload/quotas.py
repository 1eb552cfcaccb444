"""What tenants may have of a pool with a tenancy: quotas come, change and go, and so does the
tenancy itself.
"""

from typing import Final

from extender.kube.api import ADAPTERPOOLS, VREPLICAQUOTAS, Obj
from extender.lab.simulation.workload.acts import Act, Scene
from extender.lab.simulation.world.draws import drawn_tenancy
from extender.lab.simulation.world.scale import NS, TENANTS
from extender.model.names import API_VERSION

QUOTAS: Final = ("quota", "more")
"""Names of quotas. Two may be for one pool: then the older one counts."""


class QuotaActs:
    """Acts with their weights."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.always = (
            Act("create quota", 1.0, self._create),
            Act("change quota", 1.5, self._change),
            Act("delete quota", 0.7, self._delete),
        )
        self.sometimes = (
            Act("change tenancy", 0.7, self._change_tenancy),
            Act("remove tenancy", 0.2, self._remove_tenancy),
        )

    async def _create(self) -> bool:
        pool = {"namespace": NS, "name": self._scene.pool_name()}
        name, namespace = self._scene.rng.choice(QUOTAS), self._scene.rng.choice(TENANTS)
        quota = {
            "apiVersion": API_VERSION,
            "kind": "VReplicaQuota",
            "metadata": {"name": name},
            "spec": {"poolRef": pool, **self._drawn()},
        }
        await self._scene.world.cluster.create(VREPLICAQUOTAS, namespace, quota)
        return True

    async def _change(self) -> bool:
        quota = self._scene.any(VREPLICAQUOTAS)
        return await self._scene.change(VREPLICAQUOTAS, quota, {"spec": self._drawn()})

    async def _delete(self) -> bool:
        return await self._scene.delete(VREPLICAQUOTAS)

    def _drawn(self) -> Obj:
        rng = self._scene.rng
        limit = rng.choice((None, 0, 3, 8, 15, 30))
        guarantee = rng.choice((None, 0, 2, 8))
        if limit is not None and guarantee is not None:
            guarantee = min(guarantee, limit)
        return {"limit": limit, "guarantee": guarantee}

    async def _set_tenancy(self, tenancy: Obj | None) -> bool:
        # A merge patch would keep the fields that the new value lacks.
        pool = self._scene.pool_name()
        await self._scene.merge(ADAPTERPOOLS, NS, pool, {"spec": {"tenancy": None}})
        if tenancy is not None:
            await self._scene.merge(ADAPTERPOOLS, NS, pool, {"spec": {"tenancy": tenancy}})
        return True

    async def _change_tenancy(self) -> bool:
        return await self._set_tenancy(drawn_tenancy(self._scene.rng))

    async def _remove_tenancy(self) -> bool:
        return await self._set_tenancy(None)
