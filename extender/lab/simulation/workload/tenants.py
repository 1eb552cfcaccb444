"""Acts of tenants: vpods come, grow, shrink, move to another pool and go."""

from typing import Final

from extender.kube.api import VPODS, Obj
from extender.lab.simulation.workload.acts import Act, Scene
from extender.lab.simulation.world.objects import vpod_object
from extender.lab.simulation.world.scale import CROWD, NS, TENANTS

VPODS_MAX: Final = 12


class Tenants:
    """Acts with their weights: ``always`` in every run, the others in some."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._vpods = 0
        self.always = (Act("create vpod", 6, self.create), Act("resize vpod", 8, self._resize))
        self.sometimes = (
            Act("delete vpod", 2, self._delete),
            Act("recreate vpod", 1, self._recreate),
            Act("reweigh vpod", 1, self._reweigh),
        )
        self.among_pools = (
            Act("move vpod to a pool", 1, self._move),
            Act("shrink all", 0.3, self._shrink_all),
        )

    async def create(self) -> bool:
        """Create a vpod, unless there are many."""
        scene = self._scene
        if (
            sum(1 for _, name in scene.world.stored(VPODS) if not name.startswith(CROWD))
            >= VPODS_MAX
        ):
            return False
        self._vpods += 1
        weight = scene.rng.choice((1, 1, 1, 2, 3))
        name = scene.world.scale.vpod_name(f"v{self._vpods}")
        vpod = vpod_object(
            name,
            scene.rng.randint(1, 12),
            weight,
            scene.pool_name(),
            dimensions=scene.world.scale.dimensions,
            limits=scene.world.scale.limits,
        )
        await scene.world.cluster.create(VPODS, scene.rng.choice(TENANTS), vpod)
        return True

    async def _respec(self, vpod: Obj | None, spec: Obj) -> bool:
        return await self._scene.change(VPODS, vpod, {"spec": spec})

    async def _resize(self) -> bool:
        vpod = self._scene.any(VPODS)
        return await self._respec(vpod, {"vreplicas": self._scene.rng.choice((0, 1, 2, 4, 8, 12))})

    async def _reweigh(self) -> bool:
        return await self._respec(
            self._scene.any(VPODS), {"slotsPerVReplica": self._scene.rng.randint(1, 4)}
        )

    async def _delete(self) -> bool:
        return await self._scene.delete(VPODS)

    async def _recreate(self) -> bool:
        scene, vpod = self._scene, self._scene.any(VPODS)
        if vpod is None:
            return False
        again = vpod_object(
            vpod["metadata"]["name"],
            scene.rng.randint(1, 8),
            pool=scene.pool_name(),
            dimensions=scene.world.scale.dimensions,
            limits=scene.world.scale.limits,
        )
        await scene.recreate(VPODS, vpod, again)
        return True

    async def _move(self) -> bool:
        """Move a vpod to a random pool, perhaps its present one."""
        ref = {"namespace": NS, "name": self._scene.pool_name()}
        return await self._respec(self._scene.any(VPODS), {"poolRef": ref})

    async def _shrink_all(self) -> bool:
        """Shrink all vpods to almost nothing, as at night, so that most pods could go."""
        vpods = list(self._scene.world.stored(VPODS).values())
        for vpod in vpods:
            await self._respec(vpod, {"vreplicas": self._scene.rng.choice((0, 1, 1))})
        return bool(vpods)
