"""Rollouts in a ``World``: a StatefulSet with OnDelete, and a stand-in for its controller and for
the kubelets.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from extender.kube.api import PODS, STATEFULSETS, NotFound, Obj, PatchType
from tests.support.adapters import Adapters
from tests.support.builders import NS
from tests.support.service import World
from tests.support.tasks import at_work

LOOK_S = 0.05
REVISION_LABEL = "controller-revision-hash"


class Controller:
    """Makes the pods of the newest revision, each with its adapter. ``broken``: the revisions whose
    pods never get Ready. ``deleted``: names of the pods that have gone, in order.
    """

    def __init__(self, world: World, known: Adapters) -> None:
        self._world = world
        self._known = known
        self._adapters: dict[str, asyncio.Task[None]] = {}
        self.revision = "r1"
        self.broken: set[str] = set()
        self.deleted: list[str] = []
        self.down_most = 0
        """How many pods were missing or not Ready at once, since ``roll_out``."""

    def roll_out(self, revision: str) -> None:
        self.revision, self.down_most = revision, 0

    async def run(self) -> None:
        try:
            while True:
                await self._sync()
                await asyncio.sleep(LOOK_S)
        finally:
            for task in self._adapters.values():
                task.cancel()
            await asyncio.gather(*self._adapters.values(), return_exceptions=True)

    async def _sync(self) -> None:
        stateful_set = await self._world.cluster.get(STATEFULSETS, NS, "dispatcher")
        generation = stateful_set["metadata"]["generation"]
        status = {"observedGeneration": generation, "updateRevision": self.revision, "replicas": 0}
        stored = stateful_set.get("status", {})
        if any(stored.get(name) != value for name, value in status.items()):
            await self._world.patch_status(STATEFULSETS, NS, "dispatcher", **status)
        pods = {p["metadata"]["name"]: p for p in (await self._world.cluster.list_page(PODS)).items}
        wanted = range(stateful_set["spec"]["replicas"])
        for name, pod in pods.items():
            surplus = int(name.rpartition("-")[2]) not in wanted
            if surplus or "deletionTimestamp" in pod["metadata"]:
                await self._end(name)
        for ordinal in wanted:
            if f"dispatcher-{ordinal}" not in pods:
                await self._make(ordinal)
        down = [i for i in wanted if not _is_ready(pods.get(f"dispatcher-{i}"))]
        self.down_most = max(self.down_most, len(down))

    async def _make(self, ordinal: int) -> None:
        name, revision = f"dispatcher-{ordinal}", self.revision
        await self._world.pod(ordinal, {}, node=f"node-{ordinal % 3}")
        labels = {"metadata": {"labels": {REVISION_LABEL: revision}}}
        await self._world.cluster.patch(PODS, NS, name, labels, patch_type=PatchType.MERGE)
        if revision not in self.broken:
            self._adapters[name] = asyncio.create_task(self._known.run(ordinal))

    async def _end(self, name: str) -> None:
        ordinal = int(name.rpartition("-")[2])
        if (task := self._adapters.pop(name, None)) is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._known.ends(ordinal)
        await self._world.remove_pod(ordinal)
        self.deleted.append(name)


def _is_ready(pod: Obj | None) -> bool:
    conditions = pod["status"].get("conditions", []) if pod is not None else []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


async def with_strategy(world: World, strategy: str = "OnDelete") -> None:
    await world.patch_stateful_set(updateStrategy={"type": strategy, "rollingUpdate": None})


@asynccontextmanager
async def controlled(world: World, **options) -> AsyncIterator[tuple[Controller, Adapters]]:
    """The controller at work, and the adapters of the pods that it makes."""
    known = Adapters(world, **options)
    controller = Controller(world, known)
    async with at_work(controller.run()):
        yield controller, known


async def revisions(world: World) -> dict[int, str]:
    """Ordinal -> revision of its pod."""
    found = (await world.cluster.list_page(PODS)).items
    return {
        int(pod["metadata"]["name"].rpartition("-")[2]): pod["metadata"]["labels"][REVISION_LABEL]
        for pod in found
        if "deletionTimestamp" not in pod["metadata"]
        and REVISION_LABEL in pod["metadata"]["labels"]
    }


async def annotation(world: World, ordinal: int, name: str) -> str | None:
    """An annotation of a pod, None if it or the pod is absent."""
    with suppress(NotFound):
        return await world.annotation(ordinal, name)
    return None
