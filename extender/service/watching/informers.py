"""``Informers``: the reflectors that fill the caches, one per kind, and when the caches can be
relied on.

The order of the first lists matters. When an ordinal's pod is created again, the bind gives it what
vpods publish on that ordinal. A list of vpods that is older than the list of pods would lack a
placement that was published between the two. So pods are listed first; and when their watch has a
gap (a relist), vpods are listed again. Between two lists, the watch of pods shows every ledger that
an ordinal had, which is kept for its next pod.

With ``pools.namespaces`` the reflectors still watch the whole cluster, and the sinks drop what
belongs to other pools. DESIGN 7 says why.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Generic, Protocol, TypeVar

from extender.engine.cache.caches import VPodAssumeCache
from extender.engine.state.ordinal_history import OrdinalHistory
from extender.kube.api import (
    ADAPTERPOOLS,
    EVERYWHERE,
    NAMESPACES,
    NODES,
    PODS,
    STATEFULSETS,
    VPODS,
    VREPLICAQUOTAS,
    Api,
    ApiError,
    ListOptions,
    Obj,
    Resource,
    WatchEvent,
    WatchEventType,
)
from extender.kube.reflector import DEFAULTS, Reflector, ReflectorSettings
from extender.kube.sink import DecodedListing
from extender.kube.troubles import Troubles
from extender.model import decode
from extender.model.decode_tenancy import quota_from
from extender.model.errors import InvalidObject
from extender.model.names import POOL_LABEL
from extender.model.objects import VPod
from extender.model.reading import key_of, mapping, text
from extender.model.resource_versions import parse_version
from extender.service.watching.caches import Caches
from extender.service.watching.sources import ForeignSources

REACH_TIMEOUT_S: Final = 2.0
REACH_PERIOD_S: Final = 0.02
log: Final = logging.getLogger(__name__)

T = TypeVar("T")


class Cache(Protocol[T]):
    """What all caches have in common."""

    def get(self, key: str) -> T | None:
        """The object under a key."""
        ...

    def confirm(self, key: str, uid: str, resource_version: str) -> bool:
        """Whether an event of that version brings nothing new."""
        ...

    def update(self, obj: T) -> None:
        """An object came or changed."""
        ...

    def delete(self, obj: T) -> None:
        """An object went."""
        ...

    def replacing(self, objects: list[T], resource_version: str) -> Iterator[None]:
        """Replace all objects by a list of that version, in slices between which other tasks may
        run.
        """
        ...


class CacheSink(Generic[T]):
    """Decodes a reflector's objects into a cache. If an object cannot be read, the cache keeps what
    it had of it. An object that ``keeps`` refuses is deleted from the cache.

    The first list is taken in slices, because nothing relies on the cache before that. Later lists
    are taken without a pause: decisions are made meanwhile, and must not see some pods from before
    the list and some from after.
    """

    def __init__(
        self,
        decode_object: Callable[[Obj], T],
        cache: Cache[T],
        *,
        keeps: Callable[[Obj], bool] = lambda _obj: True,
        on_listed: Callable[[list[T]], None] = lambda _objects: None,
        on_replaced: Callable[[], None] = lambda: None,
    ) -> None:
        self._decode = decode_object
        self._cache = cache
        self._keeps = keeps
        self._on_listed = on_listed
        self._on_replaced = on_replaced
        self._listed = False
        """Whether a list is in the cache."""

    def listing(self) -> DecodedListing[T]:
        """See sink.Sink."""
        return DecodedListing(self._decode, self._take, self._keeps)

    def _take(self, decoded: list[T], unread: list[str], resource_version: str) -> Iterator[None]:
        decoded += [known for key in unread if (known := self._cache.get(key)) is not None]
        self._on_listed(decoded)
        slices = self._cache.replacing(decoded, resource_version)
        for _ in slices:
            if not self._listed:
                yield
        self._listed = True
        self._on_replaced()

    def apply(self, event: WatchEvent) -> None:
        """See sink.Sink. Raises InvalidObject, which the reflector reports."""
        if not self._keeps(event.object):
            if (known := self._cache.get(key_of(event.object))) is not None:
                self._cache.delete(known)
        elif event.type is WatchEventType.DELETED:
            self._cache.delete(self._last_of(event.object))
        elif not self._is_known(event.object):
            self._cache.update(self._decode(event.object))

    def _is_known(self, obj: Obj) -> bool:
        metadata = mapping(obj, "metadata")
        uid, version = text(metadata, "uid"), text(metadata, "resourceVersion")
        return self._cache.confirm(key_of(obj), uid, version)

    def _last_of(self, gone: Obj) -> T:
        """A deleted object. If its last form cannot be read, what is known of it."""
        try:
            return self._decode(gone)
        except InvalidObject:
            known = self._cache.get(key_of(gone))
            if known is None:
                raise
            return known


class CatchUpRounds:
    """Counts the rounds of ``catch_up``; ``turn`` allows one at a time."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.begun = 0
        self.done = 0
        """Number of the last round that has ended."""


class OwnVPods:
    """The cache of vpods for the reflector of VPods: its lists say nothing about foreign kinds."""

    def __init__(self, cache: VPodAssumeCache) -> None:
        self._cache = cache
        self.get = cache.get
        self.confirm = cache.confirm
        self.update = cache.update
        self.delete = cache.delete

    def replacing(self, objects: list[VPod], resource_version: str) -> Iterator[None]:
        """Replace all VPods by a list of that version. Vpods of foreign kinds stay."""
        foreign = [vpod for vpod in self._cache.list() if vpod.source]
        return self._cache.replacing([*objects, *foreign], resource_version)


class Informers:
    """All reflectors of the service. ``run`` them in one task. ``wait_synced`` returns once every
    first list is in.

    A foreign kind that cannot be listed counts as listed: it must not keep the service from
    working.
    """

    def __init__(
        self, api: Api, caches: Caches, *, rng: random.Random, ordinal_history: OrdinalHistory
    ) -> None:
        troubles = Troubles()

        def reflector(
            resource: Resource,
            sink: CacheSink[T],
            options: ListOptions = EVERYWHERE,
            settings: ReflectorSettings = DEFAULTS,
        ) -> Reflector:
            made = Reflector(api, resource, sink, rng=rng, options=options, settings=settings)
            made.troubles = troubles
            return made

        def serves(obj: Obj) -> bool:
            return caches.serves(text(obj, "metadata", "namespace"))

        def serves_pool_of(vpod: Obj) -> bool:
            return caches.serves(decode.pool_namespace_of(vpod))

        self._serves = serves
        self._vpods = reflector(
            VPODS, CacheSink(decode.vpod_from, OwnVPods(caches.vpods), keeps=serves_pool_of)
        )
        self._pods = reflector(
            PODS,
            CacheSink(
                decode.pod_from,
                caches.pods,
                keeps=serves,
                on_listed=ordinal_history.listed,
                on_replaced=self._pods_listed,
            ),
            ListOptions(label_selector=POOL_LABEL),
        )
        self._others = [
            reflector(NODES, CacheSink(decode.node_from, caches.nodes)),
            reflector(NAMESPACES, CacheSink(decode.namespace_from, caches.namespaces)),
            reflector(
                STATEFULSETS,
                CacheSink(decode.stateful_set_from, caches.stateful_sets, keeps=serves),
            ),
            reflector(ADAPTERPOOLS, CacheSink(decode.pool_from, caches.pools, keeps=serves)),
            # A cluster may have the CRDs of an earlier version.
            reflector(
                VREPLICAQUOTAS,
                CacheSink(quota_from, caches.quotas, keeps=serves_pool_of),
                settings=ReflectorSettings(may_be_absent=True),
            ),
        ]
        self._caches = caches
        self._rounds = CatchUpRounds()
        self.sources = ForeignSources(api, caches, rng=rng)

    @property
    def reflectors(self) -> list[Reflector]:
        """All reflectors, without those of foreign kinds."""
        return [self._pods, self._vpods, *self._others]

    @property
    def first_version(self) -> str:
        """The resourceVersion of the first list."""
        return self._pods.first_version

    @property
    def pods_seen_version(self) -> int:
        """The newest resourceVersion up to which all changes of pods have been seen."""
        return parse_version(self._pods.last_sync_version) or 0

    def vpods_seen_version(self, source: str) -> int:
        """The newest resourceVersion up to which all changes of a source's vpods ("": VPods) have
        been seen. 0 if the kind is not watched.
        """
        if source:
            return self.sources.seen_version(source)
        return parse_version(self._vpods.last_sync_version) or 0

    def not_synced(self) -> list[str]:
        """Plurals of the kinds that are not listed yet."""
        missing = [r.resource.plural for r in self.reflectors if not r.is_synced]
        return missing if missing or self.sources.settled.is_set() else ["foreign sources"]

    def problems(self) -> list[str]:
        """Why kinds are not listed yet, a line for each that has failed."""
        return [reflector.problem for reflector in self.reflectors if reflector.problem]

    async def wait_synced(self) -> None:
        """Wait until every kind has been listed."""
        await self._wait_listed()
        await self.sources.settled.wait()

    async def _wait_listed(self) -> None:
        for reflector in self.reflectors:
            await reflector.synced.wait()

    async def catch_up(self) -> None:
        """Wait until the caches have all ledgers and statuses written before the call. A watch
        alone may lag, or retry after errors, for minutes.

        Calls that come during one round share the next: with many buckets, each makes a call.
        """
        wanted = self._rounds.begun + 1
        async with self._rounds.turn:
            if self._rounds.done >= wanted:
                return
            self._rounds.begun += 1
            await self._reach_pods()
            await self.relist_all_vpods()
            self._rounds.done = self._rounds.begun

    async def relist_own_vpods(self) -> None:
        """Wait until a list of VPods that begins after the call is in the cache."""
        await self._vpods.relist()

    def request_pods(self) -> None:
        """Request a list of pods, and of vpods after it, without waiting."""
        self._pods.request_relist()

    async def list_again(self, source: str) -> bool:
        """List a source's vpods again ("": VPods). Return whether a list that began after the call
        is in the cache.
        """
        if source:
            return await self.sources.list_again(source)
        await self.relist_own_vpods()
        return True

    async def relist_all_vpods(self) -> None:
        """Wait until lists of all vpods that begin after the call are in the cache; foreign kinds
        only as far as they answer in time.
        """
        await self.relist_own_vpods()
        await self.sources.catch_up()

    async def _reach_pods(self) -> None:
        """Wait until the watch has shown all pods of a read. A list is only the fallback, because
        it skips what happened before it.
        """
        try:
            async with asyncio.timeout(REACH_TIMEOUT_S):
                objects, version = await self._pods.read()
                wanted = {
                    key_of(obj): obj["metadata"]["resourceVersion"]
                    for obj in objects
                    if self._serves(obj) and _is_readable(obj)
                }
                while not self._has_reached(wanted, version):  # noqa: ASYNC110 - ends within milliseconds, or in a list
                    await asyncio.sleep(REACH_PERIOD_S)
        except (TimeoutError, ApiError) as error:
            log.info("the watch of pods is behind, listing them: %s", error)
            await self._pods.relist()

    def _has_reached(self, versions: Mapping[str, str], version: str) -> bool:
        """Whether the cache of pods is at least as new as a list of that version. ``versions``:
        those of the listed pods, by key.
        """
        known = {pod.key: pod.resource_version for pod in self._caches.pods.list()}
        return all(_is_reached(known.get(key), at) for key, at in versions.items()) and all(
            key in versions or not _is_reached(version, at) for key, at in known.items()
        )

    async def run(self) -> None:
        """List and watch everything until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pods.run(), name="reflector pods")
            for reflector in self._others:
                tasks.create_task(reflector.run(), name=f"reflector {reflector.resource.plural}")
            await self._pods.synced.wait()
            tasks.create_task(self._vpods.run(), name="reflector vpods")
            # An object's pool depends on pools and namespaces, and its placements on pods.
            await self._wait_listed()
            tasks.create_task(self.sources.run(), name="foreign sources")

    def _pods_listed(self) -> None:
        if self._vpods.is_synced:
            self._vpods.request_relist()


def _is_readable(pod: Obj) -> bool:
    """Whether the pod can be decoded."""
    try:
        decode.pod_from(pod)
    except InvalidObject:
        return False
    return True


def _is_reached(version: str | None, wanted: str) -> bool:
    """Whether a version is at least the wanted one."""
    here, there = parse_version(version or ""), parse_version(wanted)
    return here is not None and there is not None and here >= there
