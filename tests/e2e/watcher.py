"""``Watcher``: every version of every VPod and adapter pod, and the invariants over the whole of that history.

Theory of operation. A scenario's end says little about its middle, so the watcher follows both kinds from before the scenario's
first object and keeps each version that the API server stored. Resource versions of one API server are one sequence over all
kinds; replaying both kinds in that order gives each state that ever was, and each is checked against DESIGN 3: I1 (never
overcommitted), I2 (published means covered), I4 (a published placement leaves its pod only as its vpod wants fewer).
A watch that had to be started anew from a list would have a gap, so ``Expired`` is an error and not handled.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from extender.core.decode import pod_from, vpod_from
from extender.core.ledger import decode_ledger, ledger_slots
from extender.core.model import VPod
from extender.core.names import POOL_LABEL
from extender.kube.api import PODS, VPODS, Api, ListOptions, Obj, Resource, WatchEventType
from tests.e2e.waiting import NotYet, eventually

CAUGHT_UP_TIMEOUT_S: Final = 10.0
_PODS: Final = ListOptions(label_selector=POOL_LABEL)
_VPODS: Final = ListOptions()


@dataclass(frozen=True, slots=True)
class Version:
    """One stored version: ``gone`` when it is that of the deletion."""

    number: int
    resource: Resource
    object: Obj
    gone: bool

    @property
    def key(self) -> str:
        """``namespace/name``."""
        metadata = self.object["metadata"]
        return f"{metadata['namespace']}/{metadata['name']}"

    def __str__(self) -> str:
        return f"{self.resource.kind} {self.key}{' (deleted)' if self.gone else ''} at version {self.number}"


@dataclass
class _World:
    """What stood on the API server at one moment of the history."""

    pods: dict[str, Obj] = field(default_factory=dict)
    vpods: dict[str, VPod] = field(default_factory=dict)
    wanted: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    """vpod UID -> generation -> spec.vreplicas."""


class Watcher:
    """Follows all VPods and adapter pods from ``start`` to ``stop``. ``slots_per_pod``: of all pools of the scenario."""

    def __init__(self, api: Api, *, slots_per_pod: int) -> None:
        self._api = api
        self._slots = slots_per_pod
        self._tasks: list[asyncio.Task[None]] = []
        self.versions: list[Version] = []
        self.may_lack_ledger = False
        """A scenario without webhook says so: a pod that was never stamped is not yet held to I2."""

    async def start(self) -> None:
        """Lists and follows."""
        for resource, options in ((PODS, _PODS), (VPODS, _VPODS)):
            page = await self._api.list_page(resource, options)
            for obj in page.items:
                self._record(resource, obj, gone=False)
            follow = self._follow(resource, options, page.resource_version)
            self._tasks.append(asyncio.create_task(follow, name=f"watcher {resource.plural}"))

    async def stop(self) -> None:
        """Ends without a check."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def of(self, resource: Resource, key: str = "") -> list[Version]:
        """The recorded versions of a kind, or of one object, oldest first."""
        return [
            version
            for version in sorted(self.versions, key=lambda version: version.number)
            if version.resource == resource and key in {"", version.key}
        ]

    async def check(self) -> None:
        """Waits for the watches to have caught up and checks I1, I2, I4; AssertionError with each breach."""
        await eventually(self._caught_up, CAUGHT_UP_TIMEOUT_S, "the watcher has seen what is stored")
        breaches = list(self._breaches())
        assert not breaches, f"{len(breaches)} breaches, the first: " + "\n".join(breaches[:10])

    async def _follow(self, resource: Resource, options: ListOptions, version: str) -> None:
        while True:
            async for event in self._api.watch(resource, options, resource_version=version):
                version = str(event.object["metadata"]["resourceVersion"])
                if event.type is not WatchEventType.BOOKMARK:
                    self._record(resource, event.object, gone=event.type is WatchEventType.DELETED)

    def _record(self, resource: Resource, obj: Obj, *, gone: bool) -> None:
        self.versions.append(Version(int(obj["metadata"]["resourceVersion"]), resource, obj, gone))

    async def _caught_up(self) -> bool:
        for task in self._tasks:
            if task.done():
                task.result()
        seen = {(version.resource.kind, version.key, version.number) for version in self.versions}
        for resource, options in ((PODS, _PODS), (VPODS, _VPODS)):
            for obj in (await self._api.list_page(resource, options, limit=0)).items:
                metadata = obj["metadata"]
                key = f"{metadata['namespace']}/{metadata['name']}"
                if (resource.kind, key, int(metadata["resourceVersion"])) not in seen:
                    raise NotYet(f"not seen: {resource.kind} {key}")
        return True

    def _breaches(self) -> Iterable[str]:
        world = _World()
        for version in sorted(self.versions, key=lambda version: version.number):
            if version.resource == PODS:
                yield from self._pod_changed(world, version)
            else:
                yield from self._vpod_changed(world, version)

    def _pod_changed(self, world: _World, version: Version) -> Iterable[str]:
        if version.gone:
            world.pods.pop(version.key, None)
            return
        world.pods[version.key] = version.object
        taken = ledger_slots(pod_from(version.object).ledger)
        if taken > self._slots:
            yield f"I1: {version} has a ledger of {taken} slots over {self._slots}"
        for vpod in world.vpods.values():
            yield from self._uncovered(world, vpod, version)

    def _vpod_changed(self, world: _World, version: Version) -> Iterable[str]:
        if version.gone:
            world.vpods.pop(version.key, None)
            return
        new = vpod_from(version.object)
        old = world.vpods.get(new.key)
        world.vpods[new.key] = new
        world.wanted[new.uid][new.generation] = new.vreplicas
        if old is not None and old.uid == new.uid:
            yield from _moved(old, new, world.wanted[new.uid], version)
        yield from self._uncovered(world, new, version)

    def _uncovered(self, world: _World, vpod: VPod, version: Version) -> Iterable[str]:
        namespace = vpod.pool.partition("/")[0]
        for name, count in vpod.placements.items():
            obj = world.pods.get(f"{namespace}/{name}")
            if obj is None or not obj["spec"].get("nodeName"):
                continue
            pod = pod_from(obj)
            if self.may_lack_ledger and pod.ledger_text is None:
                continue
            share = decode_ledger(pod.ledger_text).get(vpod.key)
            if share is None or share.vreplicas < count:
                yield f"I2: after {version}, {vpod.key} publishes {count} on {name}, whose ledger has {share}"


def _moved(old: VPod, new: VPod, wanted: Mapping[int, int], version: Version) -> Iterable[str]:
    """I4: what left pods is at most what the vpod gave up in any generation that this status may be about."""
    left = sum(max(0, count - new.placements.get(name, 0)) for name, count in old.placements.items())
    if not left:
        return
    since = [count for generation, count in wanted.items() if generation >= old.observed_generation]
    allowed = max(0, sum(old.placements.values()) - min([*since, new.vreplicas]))
    if left > allowed:
        yield (
            f"I4: {version} moved {left} vreplicas where {allowed} were given up: "
            f"{dict(old.placements)} to {dict(new.placements)}"
        )
