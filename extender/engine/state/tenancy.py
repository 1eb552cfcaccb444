"""``PoolTenancy``: how many vreplicas of each vpod a pool admits, so that its tenants share its
slots as ``spec.tenancy`` and VReplicaQuotas say.

What is placed is at most what is admitted, so the placer needs no rules about tenants. If fewer are
admitted than are placed, the placer takes the rest away, as if the vpod asked for less.

1. What a vpod *uses* is what it publishes, or what is decided for it if that is more. What adapters
   still drain no longer counts.
2. A tenant may use as many slots as its limit allows. If all tenants together ask for more than the
   pool can have, it may use its fair share (``fair_shares``).
3. Inside a tenant, what is used stays admitted. The rest of what the tenant may use goes to its
   vpods by age. If the tenant uses too much, the youngest vpods lose first.
4. A share may end within a heavy vreplica. The slots that are left over in this way are lent, one
   vreplica at a time, to those who have least for their weight.

So what is admitted follows from what the state has, and all replicas come to the same result. It is
computed when somebody reads the state after a change (``settle``), for the tenants that the change
concerns. A decision alone changes nothing: it stays within what was admitted.
"""

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Protocol

from extender.engine.state.fair_shares import TenantDemand, fair_shares
from extender.model.counted import counted
from extender.model.objects import AdapterPool, VPod
from extender.model.tenancy import NotAdmitted, Tenancy, VReplicaQuota

UNLIMITED: Final = 1 << 62
"""More slots than any pool has."""
_LAST: Final = "~"
"""Sorts after every creation time."""


class Surroundings(Protocol):
    """What a pool's tenancy asks about the rest of the cluster."""

    def tenant_of(self, tenancy: Tenancy, namespace: str) -> str:
        """The tenant of a namespace."""
        ...

    def quotas_of(self, pool: AdapterPool, tenancy: Tenancy) -> Mapping[str, VReplicaQuota]:
        """Tenant -> the quota that counts for it in that pool."""
        ...

    def allows(self, pool: AdapterPool, namespace: str) -> bool:
        """Whether the pool may be used from a namespace."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantUse:
    """One tenant of a pool, in slots. ``limit``, ``share``: None if there is none."""

    tenant: str
    vpods: int
    asked: int
    admitted: int
    used: int
    guarantee: int
    limit: int | None
    share: int | None
    is_below_guarantee: bool
    """Whether a vreplica waits that fits in what is left of the guarantee."""

    @property
    def borrowed(self) -> int:
        """What it uses beyond its guarantee."""
        return max(0, self.used - self.guarantee)

    @property
    def waiting(self) -> int:
        """What it asks for and does not use."""
        return max(0, self.asked - self.used)


class _Wanted(NamedTuple):
    """vreplicas of one vpod."""

    now: int
    """What it wants. minPodsPerVPod raises it to the pods that there are."""
    raised: int
    """What it would want if there were minPodsPerVPod pods."""
    used: int
    """What it used when it last changed."""


class _Tenant:
    """The vpods of one tenant, as they ask."""

    __slots__ = (
        "admitted",
        "allowance",
        "demand",
        "demand_raised",
        "guarantee",
        "lent",
        "limit",
        "name",
        "slots_admitted",
        "slots_used",
        "surplus",
        "vpods",
        "waiting",
        "wanted",
        "weight",
    )

    def __init__(self, name: str, guarantee: int, limit: int | None, weight: int) -> None:
        self.name = name
        self.guarantee = guarantee
        self.limit = UNLIMITED if limit is None else limit
        self.weight = weight
        self.vpods: dict[str, VPod] = {}
        self.wanted: dict[str, _Wanted] = {}
        self.demand = self.demand_raised = self.slots_used = self.surplus = 0
        """Slots: what its vpods want now, what they would want with enough pods, what they use, and
        what of that they no longer want.
        """
        self.allowance = UNLIMITED
        """Slots that it may use: its limit, or its fair share if that is less."""
        self.admitted: dict[str, int] | None = None
        """vpod key -> vreplicas, by age. None: all that is wanted."""
        self.slots_admitted = 0
        self.waiting: list[VPod] = []
        """Vpods that are not admitted wholly, in the order in which they are lent something."""
        self.lent = False

    @property
    def capped_demand(self) -> int:
        """What it wants within its limit."""
        return min(self.demand, self.limit)


class PoolTenancy:
    """One pool's tenants. ``used``: how many vreplicas a vpod uses (see 1 above). ``pods``: how
    many pods take vreplicas.
    """

    def __init__(
        self,
        pool: AdapterPool,
        tenancy: Tenancy,
        surroundings: Surroundings,
        used: Callable[[str], int],
        pods: Callable[[], int],
    ) -> None:
        self._pool = pool
        self._pods = pods
        self._tenancy = tenancy
        self._surroundings = surroundings
        self._used = used
        self._asked: dict[str, VPod] = {}
        self._not_admitted: dict[str, NotAdmitted] = {}
        self._tenant_of: dict[str, _Tenant] = {}
        self._tenants: dict[str, _Tenant] = {}
        self._quotas: Mapping[str, VReplicaQuota] = {}
        self._touched: dict[str, bool] = {}
        """Keys of the vpods that have changed since ``settle``."""
        self._changed: dict[str, _Tenant] = {}
        """The tenants that ``settle`` must look at."""
        self._demand = 0
        """The sum of what the tenants want within their limits."""
        self._is_shared = False
        """Whether fair shares limit anybody."""
        self._shares: dict[str, int] | None = None
        """Tenant -> its fair share; None if somebody asks for more or less than before."""
        self._slots: int | None = None
        self._raised_to = 0
        """The least that a vpod with vreplicas wants: minPodsPerVPod, or the pods that there are if
        these are fewer.
        """
        self._regroups = True
        self._dirty = False

    @property
    def is_dirty(self) -> bool:
        """Whether ``settle`` may have something to do."""
        least = self._pool.min_pods_per_vpod
        return self._dirty or (least > 0 and min(least, self._pods()) != self._raised_to)

    # -- changes -----------------------------------------------------------------------------------

    def vpod_changed(self, key: str, new: VPod | None) -> VPod | None:
        """A vpod came, changed or went. Return it with what was admitted before the change."""
        if new is None:
            self._asked.pop(key, None)
            self._not_admitted.pop(key, None)
        else:
            self._asked[key] = new
        self.touch(key)
        return new if new is None else self.admitted(new)

    def touch(self, key: str) -> None:
        """What a vpod uses may have changed."""
        self._touched[key] = self._dirty = True

    def regroup(self, pool: AdapterPool, tenancy: Tenancy) -> None:
        """The pool, a quota or a label of a namespace has changed: count all vpods again."""
        self._pool, self._tenancy = pool, tenancy
        self._regroups = self._dirty = True

    def resize(self, slots: int | None) -> None:
        """The slots that the pool can have; None: as many as are needed."""
        if slots != self._slots:
            self._slots, self._shares = slots, None
            self._dirty = True

    # -- reading -----------------------------------------------------------------------------------

    def admitted(self, vpod: VPod) -> VPod:
        """A vpod as its tenant asks, with what is admitted of it."""
        left_out = self._not_admitted.get(vpod.key)
        if left_out is None:
            return vpod
        return replace(
            vpod, vreplicas=max(0, vpod.vreplicas - left_out.vreplicas), not_admitted=left_out
        )

    def over_quota(self) -> list[str]:
        """Keys of the vpods that ask for more than is admitted. Right once ``settle`` has nothing
        to do.
        """
        return [key for key, left_out in self._not_admitted.items() if left_out.vreplicas > 0]

    def asked(self) -> list[VPod]:
        """All vpods, with what their tenants ask for."""
        return list(self._asked.values())

    def tenant_of(self, namespace: str) -> str:
        """The tenant of a namespace."""
        return self._surroundings.tenant_of(self._tenancy, namespace)

    def uses(self) -> list[TenantUse]:
        """What each tenant has, by name. Right once ``settle`` has nothing to do."""
        return [self._use_of(self._tenants[name]) for name in sorted(self._tenants)]

    def _use_of(self, tenant: _Tenant) -> TenantUse:
        used = sum([self._used(key) * vpod.weight for key, vpod in tenant.vpods.items()])
        guaranteed = min(tenant.guarantee, tenant.limit) - used
        return TenantUse(
            tenant=tenant.name,
            vpods=len(tenant.vpods),
            asked=sum([vpod.vreplicas * vpod.weight for vpod in tenant.vpods.values()]),
            admitted=tenant.slots_admitted,
            used=used,
            guarantee=tenant.guarantee,
            limit=None if tenant.limit == UNLIMITED else tenant.limit,
            share=tenant.allowance if self._is_shared else None,
            is_below_guarantee=guaranteed > 0 and self._could_use(tenant, guaranteed),
        )

    def _could_use(self, tenant: _Tenant, slots: int) -> bool:
        """Whether a vreplica of the tenant that could be placed waits, and fits in ``slots``."""
        return any(
            vpod.weight <= slots and self._used(key) < min(vpod.vreplicas, tenant.wanted[key].now)
            for key, vpod in tenant.vpods.items()
        )

    # -- deciding ----------------------------------------------------------------------------------

    def settle(self) -> list[VPod]:
        """Decide what is admitted, as far as changes require it. Return the vpods for which that
        differs, with what is admitted of them.
        """
        self._dirty = False
        raised_to = min(self._pool.min_pods_per_vpod, self._pods())
        if self._regroups or raised_to != self._raised_to:
            self._raised_to = raised_to
            self._count_all()
        else:
            for key in self._touched:
                self._count_again(key)
        self._touched = {}
        return [
            self.admitted(tenant.vpods[key])
            for tenant in self._decide()
            for key in self._compare(tenant)
        ]

    def _decide(self) -> list[_Tenant]:
        """Decide what tenants may use, and what each of their vpods gets. Return the tenants that
        were looked at.
        """
        slots, was_shared, changed = self._slots, self._is_shared, self._changed
        self._is_shared = slots is not None and self._demand > slots
        self._changed = {}
        if slots is None or not self._is_shared:
            concerned = self._tenants if was_shared else changed
            for tenant in concerned.values():
                self._admit(tenant, tenant.limit)
            return list(concerned.values())
        tenants = self._tenants.values()
        if self._shares is None:
            demands = [
                TenantDemand(one.name, one.capped_demand, one.guarantee, one.weight)
                for one in tenants
            ]
            self._shares = fair_shares(demands, slots)
        shares = self._shares
        concerned = {
            one.name: one
            for one in tenants
            if one.name in changed or one.lent or one.allowance != shares[one.name]
        }
        for tenant in concerned.values():
            self._admit(tenant, shares[tenant.name])
        left = slots - sum([one.slots_admitted for one in tenants])
        return list((concerned | self._lend(left)).values())

    def _admit(self, tenant: _Tenant, allowance: int) -> None:
        """Decide what each vpod of a tenant gets of ``allowance`` slots."""
        tenant.allowance, tenant.lent = allowance, False
        if tenant.demand_raised + tenant.surplus <= allowance:
            tenant.admitted, tenant.waiting = None, []
            tenant.slots_admitted = tenant.demand
            return
        used = {key: self._used(key) for key in tenant.vpods}
        ordered = sorted(tenant.vpods.values(), key=_age)
        admitted = {vpod.key: min(used[vpod.key], tenant.wanted[vpod.key].now) for vpod in ordered}
        left = allowance - sum([used[vpod.key] * vpod.weight for vpod in ordered])
        # What its vpods no longer want leaves in any case. So nothing else has to go for that.
        excess = sum([admitted[vpod.key] * vpod.weight for vpod in ordered]) - allowance
        for vpod in reversed(ordered):
            if excess <= 0:
                break
            cut = min(admitted[vpod.key], -(-excess // vpod.weight))
            admitted[vpod.key] -= cut
            excess -= cut * vpod.weight
            left += cut * vpod.weight
        for vpod in ordered:
            if left <= 0:
                break
            count = min(tenant.wanted[vpod.key].now - admitted[vpod.key], left // vpod.weight)
            admitted[vpod.key] += count
            left -= count * vpod.weight
        tenant.admitted = admitted
        tenant.slots_admitted = sum([admitted[vpod.key] * vpod.weight for vpod in ordered])
        waiting = [vpod for vpod in ordered if admitted[vpod.key] < tenant.wanted[vpod.key].now]
        # What would be taken away is lent again first.
        tenant.waiting = sorted(waiting, key=lambda vpod: used[vpod.key] <= admitted[vpod.key])

    def _lend(self, left: int) -> dict[str, _Tenant]:
        """Lend ``left`` slots, which no share can use. Return the tenants that get some."""
        borrowers: dict[str, _Tenant] = {}
        heap = [(_lending_order(one), one.name) for one in self._tenants.values() if one.waiting]
        heapq.heapify(heap)
        while heap and left > 0:
            tenant = self._tenants[heapq.heappop(heap)[1]]
            weight = _lend_one(tenant, min(left, tenant.limit - tenant.slots_admitted))
            if weight:
                left -= weight
                borrowers[tenant.name] = tenant
                heapq.heappush(heap, (_lending_order(tenant), tenant.name))
        return borrowers

    def _compare(self, tenant: _Tenant) -> list[str]:
        """Note what is not admitted of a tenant's vpods. Return the keys for which that differs."""
        known = self._not_admitted
        if tenant.admitted is None:
            return [key for key in tenant.vpods if known.pop(key, None) is not None]
        why, changed = self._why(tenant), []
        room = tenant.limit - tenant.slots_admitted
        for key in tenant.admitted:
            vpod, wanted = tenant.vpods[key], tenant.wanted[key]
            admitted, now = tenant.admitted[key], None
            to_raise = (wanted.raised - admitted) * vpod.weight
            if admitted >= wanted.now and to_raise <= room:
                room -= to_raise
            else:
                # What is admitted may be more than the vpod asks for, and less than minPodsPerVPod
                # would raise it to. Then the pool must not grow for the rest.
                missing = vpod.vreplicas - admitted
                within_limit = min(max(0, missing), room // vpod.weight)
                room -= within_limit * vpod.weight
                now = NotAdmitted(missing, within_limit, why)
            if now != known.get(key):
                changed.append(key)
                if now is None:
                    del known[key]
                else:
                    known[key] = now
        return changed

    def _why(self, tenant: _Tenant) -> str:
        if tenant.allowance < tenant.limit:
            return (
                f"tenant {tenant.name} may use {tenant.slots_admitted} of the pool's "
                f"{counted(self._slots or 0, 'slot')}, because others want them too"
            )
        return f"the limit of tenant {tenant.name} is {counted(tenant.limit, 'slot')}"

    # -- counting ----------------------------------------------------------------------------------

    def _count_all(self) -> None:
        """Group the vpods by tenant, with their quotas."""
        self._regroups = False
        self._tenant_of, self._tenants, self._changed, self._demand = {}, {}, {}, 0
        self._quotas = self._surroundings.quotas_of(self._pool, self._tenancy)
        for key, vpod in self._asked.items():
            self._count(self._tenant_in(vpod.namespace), key, vpod)

    def _count_again(self, key: str) -> None:
        vpod = self._asked.get(key)
        before = self._tenant_of.pop(key, None)
        now = self._tenant_in(vpod.namespace) if vpod is not None else None
        if before is not None and before is not now:
            self._count(before, key, None)
        if now is not None:
            self._count(now, key, vpod)

    def _tenant_in(self, namespace: str) -> _Tenant:
        name = self.tenant_of(namespace)
        tenant = self._tenants.get(name)
        if tenant is None:
            quota, tenancy = self._quotas.get(name), self._tenancy
            tenant = self._tenants[name] = _Tenant(
                name,
                tenancy.guarantee_of(quota),
                tenancy.limit_of(quota),
                tenancy.weights.get(name, 1),
            )
        return tenant

    def _count(self, tenant: _Tenant, key: str, new: VPod | None) -> None:
        """Count a vpod of a tenant as ``new``; None: no longer."""
        before = tenant.capped_demand if tenant.vpods else None
        old = tenant.vpods.pop(key, None)
        if old is not None:
            _add(tenant, old, tenant.wanted.pop(key), -1)
        if new is not None:
            wanted = self._wants(new, self._used(key))
            tenant.vpods[key], tenant.wanted[key] = new, wanted
            self._tenant_of[key] = tenant
            _add(tenant, new, wanted, 1)
        if tenant.capped_demand != before:
            self._demand += tenant.capped_demand - (before or 0)
            self._shares = None
        if tenant.vpods:
            self._changed[tenant.name] = tenant
        else:
            del self._tenants[tenant.name]
            self._changed.pop(tenant.name, None)

    def _wants(self, vpod: VPod, used: int) -> _Wanted:
        """What a vpod wants. One that can get no more wants what it has."""
        wants = max(vpod.vreplicas, self._raised_to) if vpod.vreplicas else 0
        raised = max(wants, self._pool.min_pods_per_vpod) if wants else 0
        may_grow = (
            not vpod.deleting
            and self._pool.could_hold(vpod)
            and self._surroundings.allows(self._pool, vpod.namespace)
        )
        if not may_grow:
            wants = raised = min(wants, used)
        return _Wanted(wants, raised, used)


def _add(tenant: _Tenant, vpod: VPod, wanted: _Wanted, times: int) -> None:
    weight = vpod.weight * times
    tenant.demand += wanted.now * weight
    tenant.demand_raised += wanted.raised * weight
    tenant.slots_used += wanted.used * weight
    tenant.surplus += max(0, wanted.used - wanted.now) * weight


def _age(vpod: VPod) -> tuple[str, str]:
    return (vpod.created_at or _LAST, vpod.key)


def _lending_order(tenant: _Tenant) -> tuple[bool, float]:
    """Who has borrowed already keeps it. Then come those who have least for their weight."""
    borrowed = max(0, tenant.slots_admitted - tenant.guarantee)
    return (tenant.slots_used <= tenant.slots_admitted, borrowed / tenant.weight)


def _lend_one(tenant: _Tenant, most: int) -> int:
    """Admit one more vreplica of at most so many slots. Return its slots, 0 if there is none."""
    admitted = tenant.admitted
    if admitted is None:
        return 0
    for index, vpod in enumerate(tenant.waiting):
        if vpod.weight <= most:
            admitted[vpod.key] += 1
            tenant.slots_admitted += vpod.weight
            tenant.lent = True
            if admitted[vpod.key] >= tenant.wanted[vpod.key].now:
                del tenant.waiting[index]
            return vpod.weight
    return 0
