"""``Watcher``: every version of every VPod and adapter pod, and the invariants over the whole of
that history.

Theory of operation. A scenario's end says little about its middle, so the watcher follows both
kinds from before the scenario's first object and keeps each version that the API server stored.
Resource versions of one API server are one sequence over all kinds; replaying both kinds in that
order gives each state that ever was, and each is checked against DESIGN 3: I1 (never
overcommitted), I2 (published means covered), I4 (a published placement leaves its pod only as its
vpod wants fewer, or for a reason that the same write records and the scenario expects), and that no
StatefulSet is made smaller over what stands on it. A watch that had to be started anew from a list
would have a gap, so ``Expired`` is an error and not handled.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from extender.kube.api import (
    PODS,
    STATEFULSETS,
    VPODS,
    Api,
    ListOptions,
    Obj,
    Resource,
    WatchEventType,
)
from extender.model.decode import pod_from, vpod_from
from extender.model.ledger import ledger_slots
from extender.model.moves import MoveReason
from extender.model.names import POOL_LABEL
from extender.model.objects import AdapterPod, Condition, VPod
from extender.model.timestamps import epoch_s
from tests.e2e.waiting import NotYet, eventually

CAUGHT_UP_TIMEOUT_S: Final = 10.0
MOVED: Final = "Moved"
WRITE_S: Final = 11.0
_FOLLOWED: Final = (
    (PODS, ListOptions(label_selector=POOL_LABEL)),
    (VPODS, ListOptions()),
    (STATEFULSETS, ListOptions()),
)


@dataclass(frozen=True, slots=True)
class Version:
    """One stored version: ``gone`` when it is that of the deletion. ``seen_at``: epoch seconds."""

    number: int
    resource: Resource
    object: Obj
    gone: bool
    seen_at: float = 0.0

    @property
    def key(self) -> str:
        """``namespace/name``."""
        metadata = self.object["metadata"]
        return f"{metadata['namespace']}/{metadata['name']}"

    def __str__(self) -> str:
        return (
            f"{self.resource.kind} {self.key}{' (deleted)' if self.gone else ''} at version "
            f"{self.number}"
        )


@dataclass(frozen=True, slots=True)
class SeenMove:
    """More vreplicas of one vpod left pods in one write than it had given up."""

    vpod: str
    left: Mapping[str, int]
    """Pod name -> vreplicas that left it."""
    given_up: int
    reason: str
    """As the same write records it, "" where it does not."""


@dataclass
class _World:
    """What stood on the API server at one moment of the history."""

    pods: dict[str, AdapterPod] = field(default_factory=dict)
    ordinals: dict[str, range] = field(default_factory=dict)
    """StatefulSet -> its ordinals."""
    vpods: dict[str, VPod] = field(default_factory=dict)
    wanted: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    """vpod UID -> generation -> spec.vreplicas."""

    def copy(self) -> "_World":
        """To go on from without changing this one."""
        wanted = defaultdict(dict, {uid: dict(known) for uid, known in self.wanted.items()})
        return _World(dict(self.pods), dict(self.ordinals), dict(self.vpods), wanted)


NOT_ADMITTED: Final = {"QuotaExceeded", "Preempted"}
"""Reasons why a vpod has less than it asks for although there is room."""


class Watcher:
    """Follows VPods, adapter pods, StatefulSets from ``start`` to ``stop``. ``slots_per_pod``: of
    pools that ``slots_of`` does not name.
    """

    def __init__(self, api: Api, *, slots_per_pod: int, watch_timeout_s: float = 300.0) -> None:
        self._api = api
        self._slots = slots_per_pod
        self.slots_of: dict[str, int] = {}
        """Slots of a pod by the name of its pool, where it is another number."""
        self._watch_timeout_s = watch_timeout_s
        self._forgotten = _World()
        self._forgotten_to = self._mark = 0
        self._tasks: list[asyncio.Task[None]] = []
        self.versions: list[Version] = []
        self.news = asyncio.Event()
        """Set at each version, for whoever waits for what makes versions; it is theirs to clear."""
        self.may_lack_ledger = False
        """A scenario without webhook says so: a pod that was never stamped is not yet held to I2.
        """
        self.others_shrink = False
        """A scenario in which somebody else takes pods away says so: they may hold vreplicas."""
        self.may_move: frozenset[MoveReason] = frozenset()
        """The reasons for which this scenario lets vreplicas move; with any other, or none, a move
        is a breach.
        """

    async def start(self) -> None:
        """Lists and follows."""
        for resource, options in _FOLLOWED:
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

    async def moves(self) -> list[SeenMove]:
        """All moves so far, oldest first, of what is stored now."""
        await self.catch_up()
        seen: list[SeenMove] = []
        world = _World()
        for version in self.of(VPODS):
            old, new = _take_vpod(world, version)
            if (
                new is not None
                and (move := _moved(old, new, world.wanted[new.uid], version.seen_at)) is not None
            ):
                seen.append(move)
        return seen

    async def check(self) -> None:
        """Waits for the watches to have caught up and checks I1, I2, I4; AssertionError with each
        breach.
        """
        breaches = await self.breaches()
        assert not breaches, f"{len(breaches)} breaches, the first: " + "\n".join(breaches[:10])

    async def breaches(self) -> list[str]:
        """Each breach so far, which begins with what it is of ("I1: ..."); for a scenario that
        brings some about.
        """
        await self.catch_up()
        return list(self._breaches(self._forgotten.copy(), self.versions))

    async def forget(self) -> None:
        """What has been so far is not checked any more, only what follows from what stands now."""
        await self.catch_up()
        for _ in self._breaches(self._forgotten, self.versions):
            pass
        self._forgotten_to = self._mark = max(
            (version.number for version in self.versions), default=0
        )
        self.versions.clear()

    async def check_and_forget(self) -> int:
        """As ``check``, of what was there at the call before this one, which is then forgotten; how
        many versions that was.

        For histories that are too long to keep. The calls must be so far apart that no watch lags
        behind for as long.
        """
        await self.catch_up()
        old = [version for version in self.versions if version.number <= self._mark]
        self.versions = [version for version in self.versions if version.number > self._mark]
        self._forgotten_to = self._mark
        self._mark = max((version.number for version in self.versions), default=self._mark)
        breaches = list(self._breaches(self._forgotten, old))
        assert not breaches, f"{len(breaches)} breaches, the first: " + "\n".join(breaches[:10])
        return len(old)

    async def _follow(self, resource: Resource, options: ListOptions, version: str) -> None:
        while True:
            async for event in self._api.watch(
                resource, options, resource_version=version, timeout_s=self._watch_timeout_s
            ):
                version = str(event.object["metadata"]["resourceVersion"])
                if event.type is not WatchEventType.BOOKMARK:
                    self._record(resource, event.object, gone=event.type is WatchEventType.DELETED)

    def _record(self, resource: Resource, obj: Obj, *, gone: bool) -> None:
        version = Version(int(obj["metadata"]["resourceVersion"]), resource, obj, gone, time.time())
        if version.number <= self._forgotten_to:
            raise RuntimeError(f"{version} came after what followed it had been checked")
        self.versions.append(version)
        self.news.set()

    async def catch_up(self) -> None:
        """Returns when all that is stored now is among the versions. Raises TimeoutError."""
        await eventually(
            self._caught_up, CAUGHT_UP_TIMEOUT_S, "the watcher has seen what is stored"
        )

    async def _caught_up(self) -> bool:
        for task in self._tasks:
            if task.done():
                task.result()
        seen = {(version.resource.kind, version.key, version.number) for version in self.versions}
        for resource, options in _FOLLOWED:
            for obj in (await self._api.list_page(resource, options, limit=0)).items:
                metadata = obj["metadata"]
                key = f"{metadata['namespace']}/{metadata['name']}"
                number = int(metadata["resourceVersion"])
                if number > self._forgotten_to and (resource.kind, key, number) not in seen:
                    raise NotYet(f"not seen: {resource.kind} {key}")
        return True

    def _breaches(self, world: _World, versions: Iterable[Version]) -> Iterable[str]:
        changed = {
            PODS: self._pod_changed,
            VPODS: self._vpod_changed,
            STATEFULSETS: self._stateful_set_changed,
        }
        for version in sorted(versions, key=lambda version: version.number):
            yield from changed[version.resource](world, version)

    def _pod_changed(self, world: _World, version: Version) -> Iterable[str]:
        if version.gone:
            world.pods.pop(version.key, None)
            return
        pod = world.pods[version.key] = pod_from(version.object)
        taken = ledger_slots(pod.ledger)
        slots = self.slots_of.get(pod.pool.rpartition("/")[2], self._slots)
        if taken > slots:
            yield f"I1: {version} has a ledger of {taken} slots over {slots}"
        for vpod in world.vpods.values():
            yield from self._uncovered(world, vpod, version)

    def _vpod_changed(self, world: _World, version: Version) -> Iterable[str]:
        old, new = _take_vpod(world, version)
        if new is None:
            return
        move = _moved(old, new, world.wanted[new.uid], version.seen_at)
        if move is not None and move.reason not in self.may_move:
            before = dict(old.placements) if old is not None else {}
            yield (
                f"I4: {version} moved {sum(move.left.values())} vreplicas where {move.given_up} "
                f"were given up, "
                f"reason {move.reason or 'not recorded'}: {before} to {dict(new.placements)}, "
                f"{_condition(old, MOVED)} to {_condition(new, MOVED)}"
            )
        yield from self._uncovered(world, new, version)

    def _stateful_set_changed(self, world: _World, version: Version) -> Iterable[str]:
        if version.gone:
            world.ordinals.pop(version.key, None)
            return
        spec = version.object["spec"]
        start = int(spec.get("ordinals", {}).get("start", 0))
        before = world.ordinals.get(version.key, range(0))
        now = world.ordinals[version.key] = range(start, start + int(spec["replicas"]))
        for ordinal in set(before) - set(now) if not self.others_shrink else ():
            yield from _stranded(world, version, ordinal)

    def _uncovered(self, world: _World, vpod: VPod, version: Version) -> Iterable[str]:
        namespace = vpod.pool.partition("/")[0]
        for name, count in vpod.placements.items():
            pod = world.pods.get(f"{namespace}/{name}")
            if pod is None or not pod.node or (self.may_lack_ledger and pod.ledger_text is None):
                continue
            share = pod.ledger.get(vpod.key)
            if share is None or share.vreplicas < count:
                yield (
                    f"I2: after {version}, {vpod.key} publishes {count} on {name}, whose ledger "
                    f"has {share}"
                )


def _take_vpod(world: _World, version: Version) -> tuple[VPod | None, VPod | None]:
    """Takes a version of a VPod: (the one before of the same UID, the new one; None where there is
    none).
    """
    if version.gone:
        world.vpods.pop(version.key, None)
        return None, None
    new = vpod_from(version.object)
    old = world.vpods.get(new.key)
    world.vpods[new.key] = new
    world.wanted[new.uid][new.generation] = new.vreplicas
    return (old if old is not None and old.uid == new.uid else None), new


def _moved(
    old: VPod | None, new: VPod, wanted: Mapping[int, int], seen_at: float
) -> SeenMove | None:
    """What left pods beyond what the vpod gave up in any generation that this status may be
    about.
    """
    if old is None:
        return None
    left = {
        name: count - new.placements.get(name, 0)
        for name, count in old.placements.items()
        if count > new.placements.get(name, 0)
    }
    since = [count for generation, count in wanted.items() if generation >= old.observed_generation]
    given_up = max(0, sum(old.placements.values()) - min([*since, new.vreplicas]))
    if any(one.type == "Scheduled" and one.reason in NOT_ADMITTED for one in new.conditions):
        # Its tenant may not have them any more, or more important vpods come first, and the same
        # write says so. A move is none of that.
        lost = sum(old.placements.values()) - sum(new.placements.values())
        given_up = max(given_up, lost)
    if sum(left.values()) <= given_up:
        return None
    return SeenMove(new.key, left, given_up, _recorded_reason(old, new, left, given_up, seen_at))


def _recorded_reason(
    old: VPod, new: VPod, left: Mapping[str, int], given_up: int, seen_at: float
) -> str:
    """The reason of a Moved condition that is of this write and names the pods that were left; ""
    where there is none.
    """
    told = _condition(new, MOVED)
    if told is None or told.status != "True":
        return ""
    # Times are whole seconds: two moves may be told in the same words within one. No write is under
    # way for longer.
    if (
        told == _condition(old, MOVED)
        and abs(seen_at - epoch_s(told.last_transition_time, -1e18)) > WRITE_S
    ):
        return ""
    unnamed = sum(count for name, count in left.items() if f"from {name} " not in told.message)
    return told.reason if unnamed <= given_up else ""


def _condition(vpod: VPod | None, kind: str) -> Condition | None:
    conditions = vpod.conditions if vpod is not None else ()
    return next((entry for entry in conditions if entry.type == kind), None)


def _stranded(world: _World, version: Version, ordinal: int) -> Iterable[str]:
    """What is published on, or in the ledger of, a pod whose ordinal is taken away."""
    namespace, _, name = version.key.partition("/")
    pod_name = f"{name}-{ordinal}"
    for vpod in world.vpods.values():
        if vpod.pool.partition("/")[0] == namespace and vpod.placements.get(pod_name):
            yield (
                f"I4: {version} takes {pod_name} away, where {vpod.key} publishes "
                f"{vpod.placements[pod_name]}"
            )
    pod = world.pods.get(f"{namespace}/{pod_name}")
    if pod is not None and pod.node and pod.ledger:
        yield f"I4: {version} takes {pod_name} away, whose ledger has {sorted(pod.ledger)}"
