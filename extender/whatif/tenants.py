"""Tenants of a pool in answers: what each of them has, who has borrowed most, and what would help
one whose vpod waits for quota. Pure.
"""

import heapq
from collections.abc import Iterable
from typing import Final

from extender.engine.state.pool_state import PoolState
from extender.engine.state.tenancy import TenantUse
from extender.model.counted import EXACT_MAX
from extender.model.objects import VPod
from extender.model.reasons import ConflictReason

TENANTS_LISTED_MAX: Final = 50
BORROWERS_NAMED_MAX: Final = 3


def tenants_of(pool: PoolState) -> list[TenantUse]:
    """What each tenant of a pool has; [] if the pool has no tenancy. Those that wait for most come
    first.
    """
    return sorted(pool.tenant_uses(), key=lambda use: (-use.waiting, -use.used, use.tenant))


def tenant_row(pool: str, use: TenantUse) -> dict[str, object]:
    """One tenant, in slots."""
    return {
        "pool": pool,
        "tenant": use.tenant,
        "vpods": use.vpods,
        "askedSlots": min(use.asked, EXACT_MAX),
        "usedSlots": use.used,
        "borrowedSlots": use.borrowed,
        "waitingSlots": min(use.waiting, EXACT_MAX),
        "guarantee": use.guarantee,
        "limit": use.limit,
        "share": use.share,
    }


def most_borrowed(uses: Iterable[TenantUse]) -> list[dict[str, object]]:
    """The tenants that have most beyond their guarantees, with how much that is."""
    borrowers = (use for use in uses if use.borrowed)
    most = heapq.nlargest(BORROWERS_NAMED_MAX, borrowers, key=lambda use: use.borrowed)
    return [{"tenant": use.tenant, "borrowedSlots": use.borrowed} for use in most]


def quota_answer(pool: PoolState, vpod: VPod) -> dict[str, object] | None:
    """What ``explain`` says of a vpod's tenant; None if its pool has no tenancy. ``borrowers``:
    other tenants that have most beyond their guarantees. ``helps``: the smallest change that has
    all of the vpod admitted; "" if nothing is left out.
    """
    uses = tenants_of(pool)
    if pool.tenancy is None:
        return None
    name = pool.tenancy.tenant_of(vpod.namespace)
    mine = next((use for use in uses if use.tenant == name), None)
    if mine is None:
        return None
    return {
        **tenant_row(pool.key, mine),
        "notAdmitted": vpod.asked - vpod.vreplicas,
        "borrowers": most_borrowed(use for use in uses if use is not mine),
        "helps": _what_helps(pool, vpod, mine),
    }


def _what_helps(pool: PoolState, vpod: VPod, mine: TenantUse) -> str:
    missing = (vpod.asked - vpod.vreplicas) * vpod.weight
    if missing <= 0:
        return ""
    changes = []
    wanted = mine.admitted + missing
    if mine.limit is not None and wanted > mine.limit:
        changes.append(f"a limit of {wanted} slots for tenant {mine.tenant} (it is {mine.limit})")
    if vpod.not_admitted is not None and vpod.not_admitted.reason is ConflictReason.PREEMPTED:
        changes.append("a priority as high as that of the vpods that come first")
    known = pool.adapter_pool
    if mine.share is not None and known is not None and known.max_pods is not None:
        more = -(-missing // known.slots_per_pod)
        changes.append(
            f"maxPods {known.max_pods + more} of AdapterPool {pool.key} (it is {known.max_pods}), "
            f"or a guarantee of {wanted} slots"
        )
    return ", and ".join(changes)
