"""``Facts``: the records of one stream, kept up to date by comparison, and what of them has
changed.

A stream sends all records once, and then those that differ. No part reports changes to it:
reservations, ledgers, statuses and nodes change in many places, and one forgotten report would make
the page wrong. Instead ``look`` compares all records with those sent before. This is cheap, because
a pool's revision says whether anything may have changed, and a pod's revision whether its record
may have (``records``). A pool with 1,000 pods and 2,000 vpods takes a few milliseconds, for any
number of listeners. The work is done in slices, between which the event loop runs other tasks. A
change in between raises the revision, so the next look finds it.

Each section maps keys to records. News are the records that are new or different, with None for one
that is gone: a JSON merge patch (RFC 7396) of one level, in which each record is replaced as a
whole.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Set as AbstractSet
from functools import partial
from typing import Final

from extender.engine.state.cluster_state import ClusterState
from extender.engine.state.pool_state import PoolState
from extender.model.objects import Node, placement_order
from extender.service.http.page.history import History
from extender.service.http.page.records import (
    Record,
    namespace_records,
    node_record,
    pod_record,
    pod_sign,
    pool_record,
    tenancy_record,
    tenant_record,
    vpod_record,
)
from extender.whatif.tenants import TENANTS_LISTED_MAX, tenants_of

POOLS_MAX: Final = 1_000
PODS_MAX: Final = 5_000
VPODS_MAX: Final = 10_000
SLICE_ITEMS: Final = 200
"""Pods examined without a pause; of vpods, five times as many."""
SLICE_POOLS: Final = 10
"""Pools examined without a pause: one pool's counts take as long as some hundred pods."""
TENANCY_SECTIONS: Final = ("tenancy", "tenants", "namespaces")
"""Of pools with ``spec.tenancy`` only."""

_UNKNOWN: Final = object()
News = dict[str, dict[str, object]]
"""Section -> key -> its record; None for one that is gone."""
Own = Callable[[str], Record]
"""Pool key -> what this replica knows of its leader."""


class Section:
    """Records by key, and those that have changed since ``take``."""

    def __init__(self) -> None:
        self.records: dict[str, object] = {}
        self.signs: dict[str, object] = {}
        self._news: dict[str, object] = {}

    def has(self, key: str, sign: object) -> bool:
        """Whether the record of ``key`` was made under this sign."""
        known = self.signs.get(key, _UNKNOWN)
        return known is sign or known == sign

    def put(self, key: str, sign: object, make: Callable[[], object]) -> None:
        """Set the record of ``key``, made only if its sign has changed."""
        if self.has(key, sign):
            return
        self.signs[key] = sign
        record = make()
        if self.records.get(key) != record:
            self.records[key] = self._news[key] = record

    def keep(self, keys: Iterable[str]) -> None:
        """Remove the records of all other keys."""
        known = keys if isinstance(keys, AbstractSet) else set(keys)
        for key in self.records.keys() - known:
            del self.records[key], self.signs[key]
            self._news[key] = None

    def take(self) -> dict[str, object]:
        """Return what has changed since the last call, by key."""
        news, self._news = self._news, {}
        return news


class Facts:
    """The facts of one stream: the service, all pools in short, and ``pool`` (a key) in full; ""
    for none.
    """

    def __init__(
        self,
        state: ClusterState,
        pool: str,
        *,
        history: History,
        service: Callable[[], Record],
        own: Own,
    ) -> None:
        self.pool = pool
        self._state = state
        self._history = history
        self._service = service
        self._own = own
        self._sections = {
            name: Section()
            for name in (
                *("service", "pools", "pods", "vpods", "nodes", "history", "notListed"),
                *TENANCY_SECTIONS,
            )
        }
        self._revision: tuple[object, ...] | None = None
        self._samples: object = None

    def all(self) -> News:
        """Every record, as last sent."""
        return {
            name: section.records
            for name, section in self._sections.items()
            if section.records or name not in TENANCY_SECTIONS
        }

    async def look(self) -> News:
        """Return what has changed since the last call, without empty sections."""
        self._put("service", {"": self._service()})
        await self._look_at_pools()
        self._look_at_history()
        pool = self._state.pools.get(self.pool)
        known = (pool, *self._state.revision_of(pool), pool.load) if pool is not None else ()
        if known != self._revision:
            self._revision = known
            await self._look_into(pool)
        news = {name: section.take() for name, section in self._sections.items()}
        return {name: changed for name, changed in news.items() if changed}

    def _put(self, name: str, records: Mapping[str, object]) -> None:
        section = self._sections[name]
        for key, record in records.items():
            section.put(key, record, partial(_same, record))
        section.keep(records.keys())

    async def _look_at_pools(self) -> None:
        section, state = self._sections["pools"], self._state
        # The state keeps a pool that is gone for a while, for what its pods held.
        there = sorted(
            key for key, pool in state.pools.items() if pool.adapter_pool is not None or pool.vpods
        )
        keys = there[:POOLS_MAX]
        for count, key in enumerate(keys, 1):
            if (pool := state.pools.get(key)) is not None:
                _ = pool.vpods  # Deciding what is admitted may change the revision.
                own = self._own(key)
                sign = (pool, *state.revision_of(pool), pool.load, own)
                section.put(key, sign, partial(_pool_with_leader, pool, own))
            if count % SLICE_POOLS == 0:
                await asyncio.sleep(0)
        section.keep(keys)
        self._put("notListed", {**self._not_listed(), "pools": max(0, len(there) - POOLS_MAX)})

    def _not_listed(self) -> dict[str, int]:
        pool = self._state.pools.get(self.pool)
        if pool is None:
            return {"pods": 0, "vpods": 0}
        return {
            "pods": max(0, len(pool.pods) - PODS_MAX),
            "vpods": max(0, len(pool.vpods) - VPODS_MAX),
        }

    def _look_at_history(self) -> None:
        samples = self._history.of(self.pool)
        if samples is not self._samples:
            self._samples = samples
            self._put("history", samples)

    async def _look_into(self, pool: PoolState | None) -> None:
        if pool is None:
            for name in ("pods", "nodes", "vpods", *TENANCY_SECTIONS):
                self._sections[name].keep(())
            return
        await self._look_at_pods(pool)
        await self._look_at_vpods(pool)
        await asyncio.sleep(0)
        self._look_at_tenants(pool)

    async def _look_at_pods(self, pool: PoolState) -> None:
        pods, nodes = self._sections["pods"], self._sections["nodes"]
        there: dict[str, None] = {}
        under: dict[str, Node] = {}
        for count, name in enumerate(_first(pool.pods, PODS_MAX), 1):
            pod = pool.pods.get(name)
            if pod is not None and (pod.pod is not None or pod.claims):
                there[name] = None
                pods.put(name, pod_sign(pool, pod), partial(pod_record, pool, pod))
                if pod.pod is not None and pod.node is not None:
                    under[pod.node.name] = pod.node
            if count % SLICE_ITEMS == 0:
                await asyncio.sleep(0)
        for name, node in under.items():
            nodes.put(name, node, partial(node_record, node))
        pods.keep(there.keys())
        nodes.keep(under.keys())

    async def _look_at_vpods(self, pool: PoolState) -> None:
        section = self._sections["vpods"]
        keys = list(pool.vpods) if len(pool.vpods) <= VPODS_MAX else sorted(pool.vpods)[:VPODS_MAX]
        signs = section.signs
        for count, key in enumerate(keys, 1):
            vpod = pool.vpods.get(key)
            if vpod is not None and signs.get(key) is not vpod:
                section.put(key, vpod, partial(vpod_record, vpod))
            if count % (SLICE_ITEMS * 5) == 0:
                await asyncio.sleep(0)
        section.keep(pool.vpods.keys() & keys)

    def _look_at_tenants(self, pool: PoolState) -> None:
        """All tenants are counted at once, and then those that wait for most are told."""
        tenancy = pool.tenancy
        if tenancy is None or not pool.has_tenants:
            for name in TENANCY_SECTIONS:
                self._sections[name].keep(())
            return
        uses = tenants_of(pool)
        self._put("tenancy", {"": tenancy_record(uses)})
        listed = uses[:TENANTS_LISTED_MAX]
        self._put("tenants", {use.tenant: tenant_record(use) for use in listed})
        there, told = pool.vpods, self._sections["vpods"].records
        namespaces = {there[key].namespace for key in told if key in there}
        self._put("namespaces", namespace_records(tenancy, namespaces))


def _first(names: Iterable[str], most: int) -> list[str]:
    """The first ``most`` names, by ordinal if there are more."""
    found = list(names)
    return found if len(found) <= most else sorted(found, key=placement_order)[:most]


def _same(record: object) -> object:
    return record


def _pool_with_leader(pool: PoolState, own: Record) -> Record:
    return {**pool_record(pool), **own}
