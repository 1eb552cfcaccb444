"""What if a new tenant asked a pool with ``spec.tenancy`` for so many slots: what it would get, and
who would give back how many.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from extender.engine.state.cluster_state import ClusterState
from extender.engine.state.tenancy import TenantUse
from extender.model.counted import EXACT_MAX, counted, first_of
from extender.model.errors import InvalidObject
from extender.model.objects import AdapterPool, Namespace, VPod
from extender.model.tenancy import Tenancy
from extender.whatif.lift import labels_selected
from extender.whatif.sides import Compared
from extender.whatif.tenants import TENANTS_LISTED_MAX
from extender.whatif.trial import Trial

VPOD: Final = "what-if"
"""Name of the vpod by which a new tenant asks."""
TENANTS_NAMED_MAX: Final = 5
"""Tenants that a note names."""
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class NewTenant:
    """A tenant that has no vpods in ``pool`` (its key) and asks for ``slots``, one a vreplica."""

    name: str
    pool: str
    slots: int


class Arrival(NamedTuple):
    """The objects by which a new tenant comes. ``namespace`` may exist already."""

    namespace: Namespace
    vpod: VPod


def arrivals(state: ClusterState, tenants: Sequence[NewTenant]) -> list[Arrival]:
    """The objects by which the tenants come. Raises InvalidObject."""
    return [_arrival(state, tenant, number) for number, tenant in enumerate(tenants)]


def add(trial: Trial, arrival: Arrival) -> None:
    """Let the tenant come."""
    if arrival.namespace.name not in trial.state.namespaces:
        trial.exchange(None, arrival.namespace)
    trial.exchange(None, arrival.vpod)


def _arrival(state: ClusterState, tenant: NewTenant, number: int) -> Arrival:
    pool = state.pool(tenant.pool)
    known = pool.adapter_pool
    if known is None or known.tenancy is None:
        raise _refused(
            number, f"AdapterPool {tenant.pool} has no spec.tenancy: ask with addVPods instead"
        )
    if any(use.tenant == tenant.name for use in pool.tenant_uses()):
        raise _refused(
            number,
            f"tenant {tenant.name} has vpods in AdapterPool {tenant.pool} already: ask with "
            "addVPods, in one of its namespaces",
        )
    namespace = _namespace(state, known, known.tenancy, tenant, number)
    vpod = VPod(
        namespace=namespace.name,
        name=VPOD,
        pool=tenant.pool,
        generation=1,
        vreplicas=tenant.slots,
        weight=1,
    )
    return Arrival(namespace, vpod)


def _namespace(
    state: ClusterState, pool: AdapterPool, tenancy: Tenancy, tenant: NewTenant, number: int
) -> Namespace:
    """A namespace of the tenant: one that exists, if possible one that the pool selects. Otherwise
    a new one that the pool selects.
    """
    selector = pool.namespace_selector
    existing = [
        one
        for one in state.namespaces.values()
        if tenancy.tenant_of(one.name, one.labels) == tenant.name
    ]
    if existing:
        return min(existing, key=lambda one: (not selector.matches(one.labels), one.name))
    own = {tenancy.tenant_label: tenant.name} if tenancy.tenant_label else {}
    labels = labels_selected(selector, own)
    name = tenant.name if not own else f"{VPOD}-tenant-{number}"
    if not _NAMESPACE.fullmatch(name):
        raise _refused(
            number, f"tenants of AdapterPool {pool.key} are namespaces, and {name} cannot be one"
        )
    if labels is None or tenancy.tenant_of(name, labels) != tenant.name:
        raise _refused(
            number, f"AdapterPool {pool.key} selects no namespace of tenant {tenant.name}"
        )
    return Namespace(name=name, labels=labels)


def _refused(number: int, why: str) -> InvalidObject:
    return InvalidObject("plan", f"addTenants[{number}]", why)


# -- the answer ------------------------------------------------------------------------------------


def tenant_rows(pool: Compared) -> dict[str, object]:
    """The tenants that the change touches, in a pool's row in ``/v1/plan``. New ones come first,
    then those that give back most. Nothing if the pool has no tenancy.
    """
    if not pool.alone.tenants and not pool.after.tenants:
        return {}
    changed = _changed(pool)
    return {
        "tenants": [_row(pool, name) for name in changed[:TENANTS_LISTED_MAX]],
        "tenantsNotListed": max(0, len(changed) - TENANTS_LISTED_MAX),
    }


def _changed(pool: Compared) -> list[str]:
    """The names of the tenants that use, or wait for, more or less with the change."""
    alone, after = pool.alone.tenants, pool.after.tenants
    names = [
        name
        for name in {*alone, *after}
        if name not in alone
        or name not in after
        or (alone[name].used, alone[name].waiting) != (after[name].used, after[name].waiting)
    ]
    return sorted(names, key=lambda name: (name in alone, -_given_back(pool, name), name))


def _given_back(pool: Compared, name: str) -> int:
    """Slots that a tenant uses less with the change."""
    return _used(pool.alone.tenants.get(name)) - _used(pool.after.tenants.get(name))


def _used(use: TenantUse | None) -> int:
    return use.used if use is not None else 0


def _row(pool: Compared, name: str) -> dict[str, object]:
    alone, after = pool.alone.tenants.get(name), pool.after.tenants.get(name)
    known = after or alone
    return {
        "tenant": name,
        "new": alone is None,
        "usedBefore": _used(pool.today.tenants.get(name)),
        "usedSettled": _used(alone),
        "usedAfter": _used(after),
        "askedAfter": min(after.asked, EXACT_MAX) if after is not None else 0,
        "waitingAfter": min(after.waiting, EXACT_MAX) if after is not None else 0,
        "guarantee": known.guarantee if known is not None else 0,
        "limit": known.limit if known is not None else None,
        "share": after.share if after is not None else None,
    }


def tenant_notes(pool: Compared, new: Collection[NewTenant]) -> Iterator[str]:
    """What new tenants would get, who would give back how many slots, and whether the pool would
    grow, in sentences.
    """
    mine = [tenant for tenant in new if tenant.pool == pool.key]
    if not mine:
        return
    for tenant in mine:
        use = pool.after.tenants[tenant.name]
        bounds = [f"its limit is {use.limit}"] if use.limit is not None else []
        bounds += [f"its fair share is {use.share}"] if use.share is not None else []
        because = f" ({', '.join(bounds)})" if use.waiting and bounds else ""
        yield (
            f"pool {pool.key}: tenant {tenant.name} would use {use.used} of the "
            f"{counted(tenant.slots, 'slot')} that it asks for{because}"
        )
    names = [name for name in _changed(pool) if _given_back(pool, name) > 0]
    if names:
        slots = sum(_given_back(pool, name) for name in names)
        told = [f"{name} ({_given_back(pool, name)})" for name in names]
        yield (
            f"pool {pool.key}: {counted(slots, 'slot')} would be given back by "
            f"{first_of(told, TENANTS_NAMED_MAX)}"
        )
    else:
        yield f"pool {pool.key}: no tenant would give anything back"
    if pool.after.pods > pool.alone.pods:
        yield (
            f"pool {pool.key} would grow from {pool.alone.pods} to "
            f"{counted(pool.after.pods, 'pod')}"
        )
