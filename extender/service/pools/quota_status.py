"""``QuotaStatusWriter``: the leader's loop that writes the statuses of VReplicaQuotas.

It compares what each tenant has with what the quota's status says, and writes what differs. What a
tenant has changes all the time, so a pass writes at most ``WRITES_MAX`` statuses. Each pass begins
where the one before has ended, so every quota has its turn.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from extender.engine.state.cluster_state import ClusterState
from extender.engine.state.pool_state import PoolState
from extender.engine.state.tenancy import TenantUse
from extender.kube.api import VREPLICAQUOTAS, ApiError, PatchType
from extender.kube.fence import PoolApi
from extender.model.bucket import WHOLE, Bucket
from extender.model.counted import EXACT_MAX, counted
from extender.model.tenancy import QuotaStatus, VReplicaQuota
from extender.model.timestamps import timestamp
from extender.service.watching.caches import Caches

log: Final = logging.getLogger(__name__)

PERIOD_S: Final = 1.0
WRITES_MAX: Final = 20
"""Statuses written in one pass."""
ACTIVE: Final = "Active"
COUNTS: Final = "Counts"


@dataclass(frozen=True, slots=True)
class _Told:
    """What a quota's status should say, with the message of its condition."""

    status: QuotaStatus
    message: str


class QuotaStatusWriter:
    """Writes statuses that have changed, until cancelled."""

    def __init__(self, caches: Caches, *, fenced: PoolApi, now: Callable[[], float]) -> None:
        self._caches = caches
        self._fenced = fenced
        self._now = now
        self._last: dict[Bucket, str] = {}
        """Bucket -> key of the quota whose status was written last."""

    async def run(self, bucket: Bucket = WHOLE) -> None:
        """Compare the quotas of the bucket's pools each period."""
        while True:
            for quota, told in self._outdated(bucket):
                self._last[bucket] = quota.key
                await self._write(quota, told)
            await asyncio.sleep(PERIOD_S)

    def _outdated(self, bucket: Bucket) -> list[tuple[VReplicaQuota, _Told]]:
        last = self._last.get(bucket, "")
        quotas = sorted(
            (quota for quota in self._caches.quotas.list() if bucket.has(quota.pool)),
            key=lambda quota: (quota.key <= last, quota.key),
        )
        pools = {one.pool for one in quotas}
        state = self._caches.state
        uses = {key: _uses(state.pools.get(key)) for key in pools}
        counting = {key: _counting(state, key) for key in pools}
        found = []
        for quota in quotas:
            told = quota_status(state, quota, uses[quota.pool], counting[quota.pool])
            if told.status != quota.status:
                found.append((quota, told))
                if len(found) == WRITES_MAX:
                    break
        return found

    async def _write(self, quota: VReplicaQuota, told: _Told) -> None:
        status = told.status
        is_active = status.reason == COUNTS
        was_active = quota.status is not None and quota.status.reason == COUNTS
        since = quota.active_since if is_active is was_active else ""
        patch = {
            "metadata": {"uid": quota.uid, "resourceVersion": quota.resource_version},
            "status": {
                "observedGeneration": status.observed_generation,
                "tenant": status.tenant,
                "askedSlots": status.asked,
                "usedSlots": status.used,
                "waitingSlots": status.waiting,
                "conditions": [
                    {
                        "type": ACTIVE,
                        "status": "True" if is_active else "False",
                        "reason": status.reason,
                        "message": told.message,
                        "observedGeneration": quota.generation,
                        "lastTransitionTime": since or timestamp(self._now()),
                    }
                ],
            },
        }
        try:
            await self._fenced(quota.pool).patch(
                VREPLICAQUOTAS,
                quota.namespace,
                quota.name,
                patch,
                patch_type=PatchType.MERGE,
                subresource="status",
            )
        except ApiError as error:
            # The next pass compares again.
            log.info("status of quota %s was not written: %s", quota.key, error)


def _uses(pool: PoolState | None) -> Mapping[str, TenantUse]:
    """What each tenant of a pool has; empty if the pool has no tenancy."""
    return {use.tenant: use for use in pool.tenant_uses()} if pool is not None else {}


def _counting(state: ClusterState, pool_key: str) -> Mapping[str, VReplicaQuota]:
    """Tenant -> the quota that counts for it in a pool; empty if the pool has no tenancy."""
    pool = state.pools.get(pool_key)
    known = pool.adapter_pool if pool is not None else None
    return state.quotas_of(known, known.tenancy) if known is not None and known.tenancy else {}


def quota_status(
    state: ClusterState,
    quota: VReplicaQuota,
    uses: Mapping[str, TenantUse],
    counting: Mapping[str, VReplicaQuota],
) -> _Told:
    """What a quota's status should say. ``uses``, ``counting``: by tenant of its pool."""
    pool = state.pools.get(quota.pool)
    if pool is None or pool.adapter_pool is None:
        return _inactive(quota, "PoolNotFound", f"AdapterPool {quota.pool} does not exist")
    tenancy = pool.adapter_pool.tenancy
    if tenancy is None:
        note = f"AdapterPool {quota.pool} has no spec.tenancy, so nobody is limited"
        return _inactive(quota, "PoolWithoutTenancy", note)
    tenant = state.tenant_of(tenancy, quota.namespace)
    counts = counting.get(tenant)
    if counts is not None and counts.key != quota.key:
        note = f"VReplicaQuota {counts.key} is for the same tenant and pool, and is older"
        return _inactive(quota, "OlderQuotaCounts", note, tenant)
    use = uses.get(tenant)
    counts_of = (use.asked, use.used, use.waiting) if use is not None else (0, 0, 0)
    # Three vpods may ask for more slots than the API server stores.
    asked, used, waiting = (min(count, EXACT_MAX) for count in counts_of)
    status = QuotaStatus(quota.generation, tenant, asked, used, waiting, COUNTS)
    return _Told(status, f"the tenant uses {counted(used, 'slot')} and waits for {waiting} more")


def _inactive(quota: VReplicaQuota, reason: str, message: str, tenant: str = "") -> _Told:
    return _Told(QuotaStatus(quota.generation, tenant, reason=reason), message)
