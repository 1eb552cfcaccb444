"""Knative's package ``scheduler/statefulset`` for Python callers: a ``Scheduler`` that is given the
controller's ``VPodLister`` and ``Evictor``, and calls them.

::

    config = Config(
        urls=["http://127.0.0.1:10261"],
        stateful_set_namespace="knative-eventing",
        stateful_set_name="kafka-broker-dispatcher",
        kind="ConsumerGroup",
        group="internal.kafka.eventing.knative.dev",
        vpod_lister=list_consumer_groups,
        evictor=evict,
    )
    async with New(config) as scheduler:
        scheduler.promote()                     # this replica of the controller leads
        placements = await scheduler.schedule(group)

``schedule`` asks the service, as ``HttpScheduler`` does. Beside it, while the controller leads, a
loop looks at all listed vpods, once in ``refresh_period_s`` and when ``autoscale`` is called
(``resync``):

- Each listed vpod is scheduled. So the pool is sized for all of them, also for those whose
  reconciler has not come to them yet. After a restart of the service, the leader knows again what
  each of them publishes.
- What a vpod publishes on a pod that it is to leave (the pod is drained, or its ordinal is going or
  gone) is given to the ``Evictor``. The evictor removes the placement from the status, and the
  reconciler, which sees the change, calls ``schedule`` and publishes the new place. The slots there
  are reserved already.
- If the answer differs from the status in another way, ``enqueue`` is called with the vpod's key.
- A vpod of the configured kind that the pool knows and that two successive lists lack is gone: all
  that it has is released.

Knative's state, autoscaler and reservations are the service's: the ledgers of the adapter pods.
``state`` and ``reserved`` read them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Set as AbstractSet
from contextlib import suppress
from types import MappingProxyType
from typing import Final, Self
from weakref import WeakValueDictionary

from extender.model.placements import Placement
from extender.model.resource_versions import parse_version
from extender.scheduling_api.config import Config, ConfigMismatch, compare
from extender.scheduling_api.http_scheduler import HttpScheduler
from extender.scheduling_api.scheduler import InsufficientSlots, SchedulingError, StaleVPod
from extender.scheduling_api.state import State, known_vpods, read_state
from extender.scheduling_api.vpods import (
    AnyVPod,
    CallersVPod,
    NamespacedName,
    key_of,
    plain,
    source_of,
)

__all__ = ["Config", "ConfigMismatch", "New", "ResyncFailed", "State", "StatefulSetScheduler"]

log: Final = logging.getLogger(__name__)

CALLS_MAX: Final = 16
"""Calls of one resync under way at once; the service takes 256 from all its callers."""
FAILURES_SHOWN_MAX: Final = 10


class ResyncFailed(SchedulingError):
    """A part of a resync failed; the others are done. The loop repeats it after the retry period.
    ``failures``: what failed, by vpod; "" for the list of vpods itself.
    """

    def __init__(self, failures: Mapping[str, BaseException], retry_after_s: float) -> None:
        shown = list(failures.items())[:FAILURES_SHOWN_MAX]
        more = f"; and {len(failures) - len(shown)} more" if len(failures) > len(shown) else ""
        why = "; ".join(f"{key or 'the VPodLister'}: {error!r:.200}" for key, error in shown)
        super().__init__(f"{why}{more}", retry_after_s)
        self.failures = MappingProxyType(dict(failures))


def _ignore(_key: NamespacedName) -> None:
    pass


class StatefulSetScheduler:
    """A ``Scheduler`` with a controller's lister and evictor. Use it as an async context manager,
    or ``close`` it. The loop runs from ``promote`` to ``demote``.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._http = HttpScheduler(
            config.urls,
            pool=f"{config.stateful_set_namespace}/{config.pool or config.stateful_set_name}",
            kind=config.kind,
            group=config.group,
            tls=config.tls,
            ca_file=config.ca_file,
            token_file=config.token_file,
        )
        self._source = source_of(config.kind, config.group)
        self._enqueue: Callable[[NamespacedName], object] = _ignore
        self._wake = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None
        """While the controller leads."""
        self._loops: set[asyncio.Task[None]] = set()
        """That and those that are being cancelled."""
        self._locks: WeakValueDictionary[NamespacedName, asyncio.Lock] = WeakValueDictionary()
        """One per vpod: calls for the same vpod must not overlap."""
        self._known: set[NamespacedName] = set()
        """Scheduled here, and not released yet."""
        self._missing: set[NamespacedName] = set()
        """Not in the last list, and not scheduled since."""
        self._differences: list[str] = []
        """Between the configuration and the pool, as of the last resync."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the loop and close the connections."""
        self.demote()
        if self._loops:
            await asyncio.wait(self._loops)
        await self._http.close()

    # -- Scheduler ---------------------------------------------------------------------------------

    async def schedule(self, vpod: AnyVPod) -> list[Placement]:
        """See ``Scheduler``. Raises StaleVPod also where the ``VPodLister`` has a newer version of
        the object, as Knative up to 1.16 refuses it.
        """
        facts = self._plain(vpod)
        if facts.resource_version:
            self._refuse_stale(facts)
        return await self._schedule(facts)

    Schedule = schedule

    def _refuse_stale(self, facts: CallersVPod) -> None:
        vpods = self._config.vpod_lister()
        listed = next((self._plain(item) for item in vpods if key_of(item) == facts.key), None)
        if listed is not None and _is_older(facts, listed):
            raise StaleVPod(
                f"vpod {facts.key}: resourceVersion {facts.resource_version} is older than the "
                f"listed {listed.resource_version}",
                self._config.retry_period_s,
            )

    async def _schedule(self, vpod: CallersVPod) -> list[Placement]:
        async with self._locks.setdefault(vpod.key, asyncio.Lock()):
            self._missing.discard(vpod.key)
            self._known.add(vpod.key)
            placements = await self._http.schedule(vpod)
            if vpod.deleted:
                self._known.discard(vpod.key)
            return placements

    async def state(self) -> State:
        """The pool as the service has it, and the listed vpods (Knative's
        ``StateAccessor.State``).
        """
        pool = await self._http.describe()
        return read_state(pool, self._source, map(self._plain, self._config.vpod_lister()))

    async def reserved(self) -> dict[NamespacedName, dict[str, int]]:
        """Vpod -> pod name -> vreplicas that the ledgers hold for it, for the vpods of the
        configured kind (Knative's ``Reserved``).
        """
        state = read_state(await self._http.describe(), self._source, ())
        return {key: dict(counts) for key, counts in state.reserved.items()}

    Reserved = reserved

    # -- LeaderAware, Autoscaler -------------------------------------------------------------------

    def promote(self, enqueue: Callable[[NamespacedName], object] = _ignore) -> None:
        """Look at the listed vpods from now on: this replica of the controller leads.

        ``enqueue`` is called with the key of a vpod whose status should be scheduled and published
        again.
        """
        self.demote()
        self._enqueue = enqueue
        self._loop = asyncio.create_task(self._run(), name="scheduler resync")
        self._loops.add(self._loop)
        self._loop.add_done_callback(self._loops.discard)

    def demote(self) -> None:
        """Look at none any more: this replica of the controller no longer leads. A look that is
        under way is cancelled, also in the evictor.
        """
        self._enqueue = _ignore
        self._missing.clear()
        if self._loop is not None:
            self._loop.cancel()
            self._loop = None

    def autoscale(self) -> None:
        """Look at all vpods now, if this replica of the controller leads. The service itself
        resizes the pool for each that finds no place.
        """
        self._wake.set()

    Promote, Demote, Autoscale = promote, demote, autoscale

    async def _run(self) -> None:
        while True:
            wait_s = self._config.refresh_period_s
            self._wake.clear()
            try:
                await self.resync()
            except SchedulingError as error:
                log.warning("resync with the vpod lister: %s", error)
                if error.retry_after_s is not None:
                    wait_s = min(wait_s, max(error.retry_after_s, self._config.retry_period_s))
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()

    # -- resync ------------------------------------------------------------------------------------

    async def resync(self) -> None:
        """Look at all listed vpods once. Raises ResyncFailed, ConfigMismatch, NotScheduled,
        RequestRefused.
        """
        pool = await self._http.describe()
        differences = compare(self._config, pool)
        if differences != self._differences:
            for difference in differences:
                log.warning("%s", difference)
        self._differences = differences
        try:
            vpods = self._config.vpod_lister()
            listed = {facts.key: (facts, vpod) for vpod in vpods for facts in [self._plain(vpod)]}
        except Exception as error:
            raise ResyncFailed({"": error}, self._config.retry_period_s) from error
        failures: dict[str, BaseException] = {}
        looks = (
            self._guarded(str(facts.key), self._look_at(facts, vpod), failures)
            for facts, vpod in listed.values()
            if not facts.deleted
        )
        await _each(looks, CALLS_MAX)
        releases = (
            self._guarded(str(key), self._release(key), failures)
            for key in self._gone(known_vpods(pool, self._source), listed.keys())
        )
        await _each(releases, CALLS_MAX)
        if failures:
            raise ResyncFailed(failures, self._config.retry_period_s)

    async def _guarded(
        self, key: str, work: Awaitable[None], failures: dict[str, BaseException]
    ) -> None:
        """One vpod's failure does not stop the others."""
        try:
            await work
        except StaleVPod:
            log.debug("vpod %s: the list lags behind", key)
        except Exception as error:  # noqa: BLE001 - also what the caller's evictor raises
            failures[key] = error

    async def _look_at(self, facts: CallersVPod, vpod: AnyVPod) -> None:
        try:
            kept = {item.pod_name: item.vreplicas for item in await self._schedule(facts)}
        except InsufficientSlots as error:
            kept = {item.pod_name: item.vreplicas for item in error.placements}
        published = [item for item in facts.placements if item.vreplicas]
        leaving = [item for item in published if item.pod_name not in kept]
        if leaving and self._config.evictor is not None:
            for placement in reversed(leaving):
                await self._config.evictor(self._pod(placement.pod_name), vpod, placement)
        elif kept != {item.pod_name: item.vreplicas for item in published}:
            self._enqueue(facts.key)

    def _gone(
        self, known: set[NamespacedName], listed: AbstractSet[NamespacedName]
    ) -> list[NamespacedName]:
        """Vpods that neither this list nor the one before has."""
        missing = (self._known | known) - listed
        gone = missing & self._missing
        self._missing = missing - gone
        return sorted(gone)

    async def _release(self, key: NamespacedName) -> None:
        """Release a vpod, unless another pool knows it: it may have gone there, and a release is
        for all that it has.
        """
        gone = CallersVPod(namespace=key.namespace, name=key.name, vreplicas=0, deleted=True)
        if await self._http.is_only_here(gone):
            log.info("vpod %s is no longer listed: all that it has is released", key)
            await self._schedule(self._plain(gone))
        else:
            self._known.discard(key)

    # -- helpers -----------------------------------------------------------------------------------

    def _pod(self, name: str) -> object:
        pod_lister = self._config.pod_lister
        return pod_lister(name) if pod_lister is not None else None

    def _plain(self, vpod: AnyVPod) -> CallersVPod:
        return plain(vpod, kind=self._config.kind, group=self._config.group)


def New(config: Config) -> StatefulSetScheduler:  # noqa: N802  # Knative's name
    """Return a scheduler (Knative's ``statefulset.New``)."""
    return StatefulSetScheduler(config)


def _is_older(vpod: CallersVPod, listed: CallersVPod) -> bool:
    here, there = parse_version(vpod.resource_version), parse_version(listed.resource_version)
    return here is not None and there is not None and here < there


async def _each(work: Iterator[Awaitable[None]], at_once: int) -> None:
    """Await all of ``work``, at most ``at_once`` at a time."""

    async def some() -> None:
        for item in work:
            await item

    async with asyncio.TaskGroup() as tasks:
        for _ in range(at_once):
            tasks.create_task(some())
