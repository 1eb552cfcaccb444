"""Gauges of tenants, in pools with ``spec.tenancy``: what each of them uses, waits for and borrows.

A replica reports the tenants of the pools that it leads. So a sum over all replicas is right.

A tenant's name is a label value, and a series costs memory for weeks. So of each pool only the
``TENANTS_NAMED_MAX`` tenants that use most have series of their own, and of all pools together
``NAMES_MAX``. The others are added up as ``<other>``. A caller of ``POST /v1/schedule`` may make up
a namespace. So only tenants of namespaces that exist are named.

Counting looks at every tenant and every namespace. All gauges share one count, which serves for
``PERIOD_S``.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from extender.engine.state.cluster_state import ClusterState
from extender.engine.state.pool_state import PoolState
from extender.engine.state.tenancy import TenantUse
from extender.service.http.pool_gauges import POOL, PoolGauges
from extender.telemetry.exposition import OTHER, Family, Kind, Label
from extender.telemetry.metrics import Metrics

TENANTS_NAMED_MAX: Final = 20
NAMES_MAX: Final = 1_000
PERIOD_S: Final = 5.0
OTHERS: Final = "<other>"
"""Label of the tenants that are not named. No namespace and no value of a label has such
characters.
"""
_TENANT: Final = Label(
    "tenant",
    description=f"the {TENANTS_NAMED_MAX} tenants of a pool that use most, {NAMES_MAX:,} of all "
    f"pools at the most; the others together are `{OTHERS}`",
)


class TenantSlots(NamedTuple):
    """Slots of one tenant, or of several together. ``limit``: None if there is none."""

    used: int
    waiting: int
    borrowed: int
    guarantee: int
    limit: int | None


@dataclass(frozen=True, slots=True)
class TenantNumbers:
    """One count of the tenants of all pools. Pools with the same label are added up."""

    slots: Mapping[tuple[str, str], TenantSlots] = field(default_factory=dict)
    """By the labels of pool and tenant."""
    tenants: Mapping[str, int] = field(default_factory=dict)
    """How many tenants there are, by the label of the pool."""
    below_guarantee: Mapping[str, int] = field(default_factory=dict)
    """How many of them have less than their guarantee and could use more of it."""


class TenantGauges:
    """Counts the tenants of the pools that this replica leads. ``clock``: seconds."""

    def __init__(
        self, state: ClusterState, leads: Callable[[str], bool], clock: Callable[[], float]
    ) -> None:
        self._state = state
        self._leads = leads
        self._clock = clock
        self._pools = PoolGauges(state)
        self._counted_at: float | None = None
        self._numbers = TenantNumbers()

    def read(self) -> TenantNumbers:
        """The last count, if it is not older than ``PERIOD_S``, or a new one."""
        now = self._clock()
        if self._counted_at is None or now - self._counted_at >= PERIOD_S:
            self._counted_at, self._numbers = now, self._count()
        return self._numbers

    def _count(self) -> TenantNumbers:
        slots: dict[tuple[str, str], TenantSlots] = {}
        tenants: dict[str, int] = {}
        below: dict[str, int] = {}
        names_left = NAMES_MAX
        for label, pool in self._pools.labelled():
            if not pool.has_tenants or not self._leads(pool.key):
                continue
            uses = pool.tenant_uses()
            tenants[label] = tenants.get(label, 0) + len(uses)
            missed = sum(use.is_below_guarantee for use in uses)
            below[label] = below.get(label, 0) + missed
            # Two pools that share a label may have tenants of the same name.
            most = min(TENANTS_NAMED_MAX, names_left) if label != OTHER else 0
            named = self._named(pool, uses, most)
            names_left -= len(named)
            slots |= {(label, use.tenant): _slots_of(use) for use in named.values()}
            if others := [use for use in uses if use.tenant not in named]:
                before = slots.get((label, OTHERS))
                slots[label, OTHERS] = _together(others, before)
        return TenantNumbers(slots, tenants, below)

    def _named(self, pool: PoolState, uses: Iterable[TenantUse], most: int) -> dict[str, TenantUse]:
        """The tenants that have series of their own, by name."""
        known = self._names(pool)
        largest = heapq.nsmallest(
            most,
            (use for use in uses if use.tenant in known),
            key=lambda use: (-use.used, use.tenant),
        )
        return {use.tenant: use for use in largest}

    def _names(self, pool: PoolState) -> set[str]:
        """The tenants of a pool whose namespaces exist."""
        tenancy = pool.tenancy
        if tenancy is None:
            return set()
        namespaces = {vpod.namespace for vpod in pool.vpods.values()}
        return {tenancy.tenant_of(name) for name in namespaces & self._state.namespaces.keys()}


def _slots_of(use: TenantUse) -> TenantSlots:
    return TenantSlots(use.used, use.waiting, use.borrowed, use.guarantee, use.limit)


def _together(uses: Iterable[TenantUse], before: TenantSlots | None) -> TenantSlots:
    """The sums over several tenants and ``before``. They have no limit together."""
    rows = [_slots_of(use) for use in uses]
    if before is not None:
        rows.append(before)
    return TenantSlots(
        used=sum(row.used for row in rows),
        waiting=sum(row.waiting for row in rows),
        borrowed=sum(row.borrowed for row in rows),
        guarantee=sum(row.guarantee for row in rows),
        limit=None,
    )


def add_tenant_gauges(
    metrics: Metrics,
    state: ClusterState,
    leads: Callable[[str], bool],
    clock: Callable[[], float],
) -> None:
    """Declare the gauges."""
    gauges = TenantGauges(state, leads, clock)

    def by_tenant(
        name: str, documentation: str, amount: Callable[[TenantSlots], int | None]
    ) -> None:
        metrics.read(
            Family(
                name=f"tenant_{name}_slots",
                kind=Kind.GAUGE,
                documentation=f"{documentation}, of the pools with `tenancy` that this replica "
                "leads",
                labels=(POOL, _TENANT),
            ),
            lambda: {
                key: float(value)
                for key, slots in gauges.read().slots.items()
                if (value := amount(slots)) is not None
            },
        )

    by_tenant("used", "Slots that a tenant uses", lambda slots: slots.used)
    by_tenant(
        "waiting",
        "Slots that a tenant asks for and does not use, by quota or for want of room",
        lambda slots: slots.waiting,
    )
    by_tenant(
        "borrowed", "Slots that a tenant uses beyond its guarantee", lambda slots: slots.borrowed
    )
    by_tenant(
        "guarantee",
        "Slots that a tenant gets if it asks for them",
        lambda slots: slots.guarantee,
    )
    by_tenant(
        "limit",
        f"Slots that a tenant gets at most; absent without a limit, and for `{OTHERS}`",
        lambda slots: slots.limit,
    )
    metrics.gauge(
        "pool_tenants",
        "Tenants with vpods in a pool with `tenancy`, of the pools that this replica leads",
        POOL,
        lambda: {label: float(count) for label, count in gauges.read().tenants.items()},
    )
    metrics.gauge(
        "pool_tenants_below_guarantee",
        "Tenants that use less than their guarantee and wait for vreplicas that it has room for, "
        "of the pools that this replica leads",
        POOL,
        lambda: {label: float(count) for label, count in gauges.read().below_guarantee.items()},
    )
