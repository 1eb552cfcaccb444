"""Acts of the owners of Streams: like vpods, Streams come, grow, shrink, change pools and go."""

from typing import Final

from extender.kube.api import Obj
from extender.lab.simulation.workload.acts import Act, Scene
from extender.lab.simulation.world.scale import TENANTS
from extender.lab.simulation.world.streams import (
    LABEL,
    STREAMS,
    stream_object,
    with_own_condition,
)

STREAMS_MAX: Final = 6


class StreamActs:
    """Acts with their weights: ``always`` in every run with Streams, ``sometimes`` in some."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._streams = 0
        self.always = (Act("create stream", 5, self._create), Act("resize stream", 5, self._resize))
        self.sometimes = (
            Act("delete stream", 1.5, self._delete),
            Act("recreate stream", 1, self._recreate),
            Act("reweigh stream", 0.7, self._reweigh),
            Act("move stream to a pool", 0.7, self._move),
        )

    async def _create(self) -> bool:
        scene, rng = self._scene, self._scene.rng
        if len(scene.world.stored(STREAMS)) >= STREAMS_MAX:
            return False
        self._streams += 1
        weight = rng.choice((1, 1, 1, 2, 3))
        stream = stream_object(
            f"s{self._streams}",
            rng.randint(1, 10),
            weight,
            scene.pool_name(),
            dimensions=scene.world.scale.dimensions,
        )
        namespace = rng.choice(TENANTS)
        await scene.world.cluster.create(STREAMS, namespace, stream)
        await self._own_controller(namespace, stream["metadata"]["name"])
        return True

    async def _change(self, patch: Obj) -> bool:
        return await self._scene.change(STREAMS, self._scene.any(STREAMS), patch)

    async def _own_controller(self, namespace: str, name: str) -> None:
        """The kind's own controller, which the service must not disturb, sets its condition."""
        stream = await self._scene.world.cluster.get(STREAMS, namespace, name)
        await self._scene.merge(STREAMS, namespace, name, with_own_condition(stream), "status")

    async def _resize(self) -> bool:
        stream = self._scene.any(STREAMS)
        if stream is None:
            return False
        parallelism = self._scene.rng.choice((0, 1, 2, 4, 8, 12))
        await self._scene.change(STREAMS, stream, {"spec": {"parallelism": parallelism}})
        metadata = stream["metadata"]
        await self._own_controller(metadata["namespace"], metadata["name"])
        return True

    async def _reweigh(self) -> bool:
        return await self._change({"spec": {"weight": self._scene.rng.randint(1, 4)}})

    async def _move(self) -> bool:
        """Move a Stream to a random pool, perhaps its present one."""
        return await self._change({"metadata": {"labels": {LABEL: self._scene.pool_name()}}})

    async def _delete(self) -> bool:
        return await self._scene.delete(STREAMS)

    async def _recreate(self) -> bool:
        scene, stream = self._scene, self._scene.any(STREAMS)
        if stream is None:
            return False
        again = stream_object(
            stream["metadata"]["name"],
            scene.rng.randint(1, 8),
            1,
            scene.pool_name(),
            dimensions=scene.world.scale.dimensions,
        )
        await scene.recreate(STREAMS, stream, again)
        return True
