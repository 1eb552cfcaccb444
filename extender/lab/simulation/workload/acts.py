"""``Act``: one kind of event. ``Scene``: what all acts use, the dice and the cluster."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from extender.kube.api import PODS, Obj, PatchType, Resource
from extender.lab.simulation.world.scale import NS
from extender.lab.simulation.world.world import World


@dataclass(frozen=True, slots=True)
class Act:
    """One kind of event. ``do`` returns whether it had an effect. ``weight`` is its frequency
    relative to the others.
    """

    name: str
    weight: float
    do: Callable[[], Awaitable[bool]]


class ActsOfPart(Protocol):
    """The acts of one of ``profile.PARTS``."""

    @property
    def always(self) -> Sequence[Act]:
        """Acts in every run that has the part."""
        ...

    @property
    def sometimes(self) -> Sequence[Act]:
        """Acts in some of these runs."""
        ...


class Scene:
    """A world and the dice of the current event. The workload's own writes have no faults."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = random.Random(0)
        """Replaced for each event, so that the draws of one event do not depend on the others."""

    def any(self, resource: Resource, among: Callable[[Obj], bool] = lambda _: True) -> Obj | None:
        """Return one of the objects for which ``among`` holds."""
        found = [obj for obj in self.world.stored(resource).values() if among(obj)]
        return self.rng.choice(found) if found else None

    def pod(self, among: Callable[[Obj], bool] = lambda _: True) -> Obj | None:
        """Return one of the pods that are not being deleted."""
        return self.any(
            PODS, lambda pod: not pod["metadata"].get("deletionTimestamp") and among(pod)
        )

    def pool_name(self) -> str:
        """Return one of the pools."""
        pools = self.world.scale.pool_names
        return pools[0] if len(pools) == 1 else self.rng.choice(pools)

    async def merge(
        self, resource: Resource, namespace: str, name: str, patch: Obj, subresource: str = ""
    ) -> None:
        """Send a merge patch. Raises ApiError."""
        await self.world.cluster.patch(
            resource, namespace, name, patch, patch_type=PatchType.MERGE, subresource=subresource
        )

    async def change(self, resource: Resource, obj: Obj | None, patch: Obj) -> bool:
        """Patch an object; return False if there is none. Raises ApiError."""
        if obj is None:
            return False
        metadata = obj["metadata"]
        await self.merge(resource, metadata["namespace"], metadata["name"], patch)
        return True

    async def delete(self, resource: Resource) -> bool:
        """Delete an object of a kind; return False if there is none. Raises ApiError."""
        obj = self.any(resource)
        if obj is None:
            return False
        metadata = obj["metadata"]
        await self.world.cluster.delete(resource, metadata["namespace"], metadata["name"])
        return True

    async def recreate(self, resource: Resource, obj: Obj, again: Obj) -> None:
        """Delete an object and create it again under its name, perhaps at once. Raises ApiError."""
        namespace, name = obj["metadata"]["namespace"], obj["metadata"]["name"]
        pause_s = self.rng.choice((0.0, 0.0, 0.01, 0.1, 1.0)) * self.rng.random()
        await self.world.cluster.delete(resource, namespace, name)
        await asyncio.sleep(pause_s)
        await self.world.cluster.create(resource, namespace, again)

    async def annotate(self, pod: Obj, annotations: dict[str, Any]) -> None:
        """Change a pod's annotations; None removes one."""
        await self.merge(
            PODS, NS, pod["metadata"]["name"], {"metadata": {"annotations": annotations}}
        )
