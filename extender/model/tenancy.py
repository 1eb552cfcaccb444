"""Tenancy: what tells how the tenants of a pool share its slots. Preemption: when vpods of a higher
priority take slots from others.

A pool with ``spec.tenancy`` admits of each vpod as many vreplicas as its tenant may have. A pool
with ``spec.preemption`` admits the vpods of the highest priority first. What is not admitted waits,
with the reason ``QuotaExceeded`` or ``Preempted``. ``engine.state.tenancy`` decides how many.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from extender.model.reasons import ConflictReason

PATIENCE_S: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenancy:
    """``spec.tenancy`` of a pool. A tenant is a namespace, or all namespaces that have one value of
    the label ``tenant_label``.
    """

    default_guarantee: int = 0
    """Slots that a tenant without a VReplicaQuota always gets if it asks for them."""
    default_limit: int | None = None
    """Slots that such a tenant gets at most; None: no limit."""
    weights: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Tenant -> its part of what is not guaranteed, in relation to the parts of others. A tenant
    that is absent here has 1.
    """
    tenant_label: str = ""
    """"" if each namespace is a tenant."""
    is_whole: bool = False
    """Whether all namespaces together are one tenant: the pool has no ``spec.tenancy``."""

    def tenant_of(self, namespace: str, labels: Mapping[str, str]) -> str:
        """The tenant of a namespace with these labels. A namespace without ``tenant_label`` is a
        tenant of its own, whose name no value of a label can be.
        """
        if self.is_whole or not self.tenant_label:
            return "" if self.is_whole else namespace
        return labels.get(self.tenant_label) or f"namespace/{namespace}"

    def guarantee_of(self, quota: "VReplicaQuota | None") -> int:
        """The slots that a tenant always gets if it asks for them. ``quota``: the one that counts
        for it; None: it has none.
        """
        if quota is None or quota.guarantee is None:
            return self.default_guarantee
        return quota.guarantee

    def limit_of(self, quota: "VReplicaQuota | None") -> int | None:
        """The slots that a tenant gets at most; None: no limit."""
        if quota is None or quota.limit is None:
            return self.default_limit
        return quota.limit


WHOLE_POOL: Final = Tenancy(is_whole=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """``spec.preemption`` of a pool."""

    patience_s: int = PATIENCE_S
    """So long vpods of a higher priority wait for pods that may still come."""
    slots_per_period: int | None = None
    """Slots that they take at most in one scaleDownPeriodSeconds; None: any number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VReplicaQuota:
    """What one tenant is guaranteed of a pool, and what it gets at most, in slots. The tenant is
    that of the object's namespace. None: the pool's default.
    """

    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    created_at: str = ""
    pool: str
    """Key of the AdapterPool."""
    guarantee: int | None = None
    limit: int | None = None
    status: "QuotaStatus | None" = None
    """What is stored; None if it has no status yet."""
    active_since: str = ""
    """When the status of its condition Active last changed; "" without one."""

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def precedence(self) -> tuple[str, str]:
        """Of two quotas of one tenant for one pool, the one with the lower value counts: the older
        one.
        """
        return (self.created_at, self.key)


def counting_quotas(
    quotas: Iterable[VReplicaQuota], tenant_of: Callable[[str], str]
) -> dict[str, VReplicaQuota]:
    """Tenant -> the quota that counts for it: the oldest. ``quotas``: all of one pool.
    ``tenant_of``: namespace -> tenant.
    """
    found: dict[str, VReplicaQuota] = {}
    for quota in sorted(quotas, key=lambda quota: quota.precedence, reverse=True):
        found[tenant_of(quota.namespace)] = quota
    return found


class QuotaStatus(NamedTuple):
    """The status of a VReplicaQuota. Counts are slots of its tenant in its pool."""

    observed_generation: int = 0
    tenant: str = ""
    asked: int = 0
    used: int = 0
    waiting: int = 0
    """Asked for and not used."""
    reason: str = ""
    """Why the quota counts, or why not: the reason of its condition Active."""


class NotAdmitted(NamedTuple):
    """Vreplicas that a vpod asks for and that its pool's tenancy does not admit."""

    vreplicas: int
    """Negative if minPodsPerVPod raises the vpod beyond what it asks for, and not all of that is
    admitted.
    """
    within_limit: int
    """Those of them that the tenant's limit allows, and to which minPodsPerVPod would raise the
    vpod. The pool grows for them where it can.
    """
    why: str
    """What its tenant may have, as text for people."""
    reason: ConflictReason = ConflictReason.QUOTA_EXCEEDED
