"""``PoolTenancy``: how many vreplicas of each vpod a pool admits, so that its tenants share its
slots as ``spec.tenancy`` and VReplicaQuotas say, and vpods of a higher priority come first.

What is placed is at most what is admitted, so the placer needs no rules about tenants. If fewer are
admitted than are placed, the placer takes the rest away, as if the vpod asked for less.

1. What a vpod *uses* is what it publishes, or what is decided for it if that is more. What adapters
   still drain no longer counts.
2. A tenant may use as many slots as its limit allows. If all tenants together ask for more than the
   pool can have, it may use its fair share (``fair_shares``).
3. Inside a tenant, what is used stays admitted. The rest of what the tenant may use goes to its
   vpods by priority, and by age among equals. If the tenant uses too much, those of the lowest
   priority lose first, and among equals the youngest. In a pool with ``spec.preemption``, a vpod
   that wants more takes it from vpods of a lower priority in the same way. A pool without
   ``spec.tenancy`` is one tenant for this.
4. A share may end within a heavy vreplica. The slots that are left over in this way are lent, one
   vreplica at a time, to those who have least for their weight.

So what is admitted follows from what the state has, and all replicas come to the same result. It is
computed when somebody reads the state after a change (``settle``), for the tenants that the change
concerns. A decision alone changes nothing: it stays within what was admitted.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from extender.engine.state.admission import Admitted, Wanted, admitted_within
from extender.engine.state.fair_shares import TenantDemand, fair_shares
from extender.engine.state.preemption_budget import PreemptionBudget
from extender.engine.state.tenant import ABOVE_ALL_PRIORITIES, UNLIMITED, Tenant
from extender.model.counted import counted
from extender.model.objects import AdapterPool, VPod
from extender.model.reasons import ConflictReason
from extender.model.tenancy import NotAdmitted, Tenancy, VReplicaQuota


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
        self._tenant_of: dict[str, Tenant] = {}
        self._tenants: dict[str, Tenant] = {}
        self._quotas: Mapping[str, VReplicaQuota] = {}
        self._touched: dict[str, bool] = {}
        """Keys of the vpods that have changed since ``settle``."""
        self._changed: dict[str, Tenant] = {}
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
        self._may_preempt: frozenset[str] | None = None
        """Keys of the vpods that may take slots from others; None: all."""
        self.budget = PreemptionBudget()
        self._taken_for: dict[str, int] = {}
        """vpod key -> slots that were taken for it, until it has them."""
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
            self._taken_for.pop(key, None)
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
        preemption = pool.preemption
        self.budget.set_limit(preemption.slots_per_period if preemption is not None else None)
        self._regroups = self._dirty = True

    def resize(self, slots: int | None) -> None:
        """The slots that the pool can have; None: as many as are needed."""
        if slots != self._slots:
            before = self._most_pods
            self._slots, self._shares = slots, None
            self._dirty = True
            if self._most_pods != before and any(v.max_per_pod for v in self._asked.values()):
                self._regroups = True

    @property
    def _most_pods(self) -> int | None:
        """The pods of which that many slots can be; None if there may be any number."""
        return None if self._slots is None else -(-self._slots // self._pool.slots_per_pod)

    def let_preempt(self, keys: frozenset[str] | None) -> None:
        """Only these vpods may take slots from others; None: all may, in a pool that preempts."""
        if keys != self._may_preempt:
            self._may_preempt = keys
            self._look_again()

    def renew_budget(self, now: float) -> None:
        """More slots may be taken if a period is over. ``now``: seconds, of any clock."""
        if self.budget.renew(now, self._pool.scale_down_period_s, self._asked):
            self._look_again()

    def recall_budget(self, budget: PreemptionBudget) -> None:
        """Take over what another state remembers."""
        self.budget = budget.copy()
        self._look_again()

    def lift_budget(self) -> None:
        """Let any number of slots be taken, as if enough periods had passed."""
        self.budget.set_limit(None)
        self._look_again()

    def _look_again(self) -> None:
        self._changed |= self._tenants
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

    def waiting(self) -> dict[str, NotAdmitted]:
        """Key of each vpod that asks for more than is admitted -> what is not. Right once
        ``settle`` has nothing to do.
        """
        return {
            key: left_out for key, left_out in self._not_admitted.items() if left_out.vreplicas > 0
        }

    def beneficiaries(self, waiting: Iterable[str]) -> list[str]:
        """Those of these vpods that could take slots from vpods of a lower priority."""
        lowest = {
            name: min(
                [one.priority for one in tenant.wanted.values() if one.used],
                default=ABOVE_ALL_PRIORITIES,
            )
            for name, tenant in self._tenants.items()
        }
        found = []
        for key in waiting:
            tenant = self._tenant_of.get(key)
            if tenant is not None:
                wanted = tenant.wanted[key]
                if wanted.preempts and wanted.priority > lowest[tenant.name]:
                    found.append(key)
        return found

    def end_taking(self, key: str) -> int:
        """How many slots were taken for a vpod that has got a place since this was asked last."""
        return self._taken_for.pop(key, 0)

    def asked(self) -> list[VPod]:
        """All vpods, with what their tenants ask for."""
        return list(self._asked.values())

    def tenant_of(self, namespace: str) -> str:
        """The tenant of a namespace."""
        return self._surroundings.tenant_of(self._tenancy, namespace)

    def uses(self) -> list[TenantUse]:
        """What each tenant has, by name. Right once ``settle`` has nothing to do. A decision counts
        as used once its write is seen.
        """
        return [self._use_of(self._tenants[name]) for name in sorted(self._tenants)]

    def _use_of(self, tenant: Tenant) -> TenantUse:
        guaranteed = min(tenant.guarantee, tenant.limit) - tenant.slots_used
        return TenantUse(
            tenant=tenant.name,
            vpods=len(tenant.vpods),
            asked=tenant.slots_asked,
            admitted=tenant.slots_admitted,
            used=tenant.slots_used,
            guarantee=tenant.guarantee,
            limit=None if tenant.limit == UNLIMITED else tenant.limit,
            share=tenant.allowance if self._is_shared else None,
            is_below_guarantee=guaranteed > 0 and self._could_use(tenant, guaranteed),
        )

    def _could_use(self, tenant: Tenant, slots: int) -> bool:
        """Whether a vreplica of the tenant that could be placed waits, and fits in ``slots``."""
        return any(
            (known := tenant.wanted[key]).used < min(vpod.vreplicas, known.now)
            and vpod.weight * max(1, vpod.least - known.used) <= slots
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

    def _decide(self) -> list[Tenant]:
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
        # To whom slots are lent depends on what tenants use, and so on decisions that they follow.
        is_lent = not self._tenancy.is_whole and any(one.lent for one in tenants)
        if not changed and self._shares is not None and not is_lent:
            return []
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
        left = slots - sum([one.slots_admitted + one.kept for one in tenants])
        return list((concerned | self._lend(left)).values())

    def _admit(self, tenant: Tenant, allowance: int) -> None:
        """Decide what each vpod of a tenant gets of ``allowance`` slots."""
        tenant.allowance, tenant.lent = allowance, False
        if tenant.demand_raised + tenant.surplus <= allowance:
            tenant.admitted, tenant.waiting = None, []
            tenant.slots_admitted, tenant.kept = tenant.demand, 0
            self.budget.forget(tenant.vpods)
            for key in self._taken_for.keys() & tenant.vpods.keys():
                del self._taken_for[key]
            return
        keys = tenant.in_order()
        wanted, used = [tenant.wanted[key] for key in keys], [self._used(key) for key in keys]
        preempts = self._pool.preemption is not None
        if preempts and self._may_preempt is not None:
            wanted = [
                one if key in self._may_preempt else one._replace(preempts=False)
                for key, one in zip(keys, wanted, strict=True)
            ]
        gets = admitted_within(
            allowance,
            wanted,
            used,
            preempts=preempts,
            is_shared=self._is_shared,
            may_take=self.budget.may_take(keys, wanted, used),
        )
        self._follow_taking(keys, wanted, used, gets)
        counts, tenant.kept = gets.vreplicas, gets.kept
        tenant.admitted = dict(zip(keys, counts, strict=True))
        tenant.slots_admitted = sum(
            [count * one.weight for count, one in zip(counts, wanted, strict=True)]
        )
        rows = zip(keys, wanted, used, counts, strict=True)
        waiting = [
            # What would be taken away is lent again first, unless a higher priority goes before.
            (-one.priority * preempts, have <= count, place, key)
            for place, (key, one, have, count) in enumerate(rows)
            if count < one.now
        ]
        tenant.waiting = [key for *_, key in sorted(waiting)]

    def _follow_taking(
        self, keys: Sequence[str], wanted: Sequence[Wanted], used: Sequence[int], gets: Admitted
    ) -> None:
        self.budget.take(keys, wanted, used, gets)
        self.budget.is_spent |= gets.is_limited
        for key, slots in zip(keys, gets.takes, strict=True):
            if slots:
                self._taken_for[key] = max(slots, self._taken_for.get(key, 0))

    def _lend(self, left: int) -> dict[str, Tenant]:
        """Lend ``left`` slots, which no share can use. Return the tenants that get some."""
        borrowers: dict[str, Tenant] = {}
        heap = [(one.lending_order, one.name) for one in self._tenants.values() if one.waiting]
        heapq.heapify(heap)
        while heap and left > 0:
            tenant = self._tenants[heapq.heappop(heap)[1]]
            most = min(left, tenant.limit - tenant.slots_admitted)
            if lent := tenant.lend(most, one=bool(heap)):
                left -= lent
                borrowers[tenant.name] = tenant
                heapq.heappush(heap, (tenant.lending_order, tenant.name))
        return borrowers

    def _compare(self, tenant: Tenant) -> list[str]:
        """Note what is not admitted of a tenant's vpods. Return the keys for which that differs."""
        known = self._not_admitted
        if tenant.admitted is None:
            return [key for key in tenant.vpods if known.pop(key, None) is not None]
        why, changed = self._why(tenant), []
        room = tenant.limit - tenant.slots_admitted
        # Vpods of a higher priority than this have nothing.
        highest = max(
            (tenant.wanted[key].priority for key, count in tenant.admitted.items() if count),
            default=-ABOVE_ALL_PRIORITIES,
        )
        for key, admitted in tenant.admitted.items():
            wanted, now = tenant.wanted[key], None
            to_raise = (wanted.raised - admitted) * wanted.weight
            if admitted >= wanted.now and to_raise <= room:
                room -= to_raise
            else:
                # What is admitted may be more than the vpod asks for, and less than minPodsPerVPod
                # would raise it to. The pool grows for the rest only as far as the limit allows.
                missing = tenant.vpods[key].vreplicas - admitted
                within_limit = min(max(0, wanted.raised - admitted), room // wanted.weight)
                if admitted + within_limit < wanted.least:
                    within_limit = 0  # pods for less than it needs together would stay empty
                room -= within_limit * wanted.weight
                now = NotAdmitted(missing, within_limit, *why[wanted.priority < highest])
            if now != known.get(key):
                changed.append(key)
                if now is None:
                    del known[key]
                else:
                    known[key] = now
        return changed

    def _why(self, tenant: Tenant) -> Sequence[tuple[str, ConflictReason]]:
        """Why vpods of a tenant wait: those of its highest priority, and the others."""
        slots = counted(self._slots or 0, "slot")
        if self._tenancy.is_whole:
            equal = (f"all of the pool's {slots} are used", ConflictReason.INSUFFICIENT_SLOTS)
            lower = f"vpods of a higher priority come first in the pool's {slots}"
            return equal, (lower, ConflictReason.PREEMPTED)
        if tenant.allowance < tenant.limit:
            may = (
                f"tenant {tenant.name} may use {tenant.slots_admitted} of the pool's {slots}, "
                f"because others want them too"
            )
        else:
            may = f"the limit of tenant {tenant.name} is {counted(tenant.limit, 'slot')}"
        lower = f"its vpods of a higher priority come first, and {may}"
        return (may, ConflictReason.QUOTA_EXCEEDED), (lower, ConflictReason.PREEMPTED)

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
        before = self._tenant_of.get(key)
        now = self._tenant_in(vpod.namespace) if vpod is not None else None
        if now is not None and before is now and vpod is not None and self._follows(now, vpod):
            return
        self._tenant_of.pop(key, None)
        if before is not None and before is not now:
            self._count(before, key, None)
        if now is not None:
            self._count(now, key, vpod)

    def _follows(self, tenant: Tenant, new: VPod) -> bool:
        """Whether a vpod asks for the same as before, and only uses more of what is admitted of it.
        Then nothing has to be decided anew, and it is counted here.
        """
        key, old = new.key, tenant.vpods.get(new.key)
        if tenant.admitted is None or old is None or old.created_at != new.created_at:
            return False
        # Who takes from whom depends on what is used, unless all may take and nothing is leaving.
        if self._pool.preemption is not None and (
            tenant.surplus
            or tenant.patient
            or self._may_preempt is not None
            or self.budget.limit is not None
        ):
            return False
        was, now = tenant.wanted[key], self._wants(new, self._used(key))
        if was._replace(used=now.used) != now or old.vreplicas != new.vreplicas:
            return False
        if not was.used <= now.used <= tenant.admitted[key]:
            return False
        tenant.set(key, new, now)
        return True

    def _tenant_in(self, namespace: str) -> Tenant:
        name = self.tenant_of(namespace)
        tenant = self._tenants.get(name)
        if tenant is None:
            quota, tenancy = self._quotas.get(name), self._tenancy
            tenant = self._tenants[name] = Tenant(
                name,
                tenancy.guarantee_of(quota),
                tenancy.limit_of(quota),
                tenancy.weights.get(name, 1),
            )
        return tenant

    def _count(self, tenant: Tenant, key: str, new: VPod | None) -> None:
        """Count a vpod of a tenant as ``new``; None: no longer."""
        before = tenant.capped_demand if tenant.vpods else None
        tenant.set(key, new, self._wants(new, self._used(key)) if new is not None else None)
        if new is not None:
            self._tenant_of[key] = tenant
        if tenant.capped_demand != before:
            self._demand += tenant.capped_demand - (before or 0)
            self._shares = None
        if tenant.vpods:
            self._changed[tenant.name] = tenant
        else:
            del self._tenants[tenant.name]
            self._changed.pop(tenant.name, None)

    def _wants(self, vpod: VPod, used: int) -> Wanted:
        """What a vpod wants. One that can get no more wants what it has."""
        wants = max(vpod.vreplicas, self._raised_to) if vpod.vreplicas else 0
        raised = max(wants, self._pool.min_pods_per_vpod) if wants else 0
        may_grow = (
            not vpod.deleting
            and self._pool.could_hold(vpod)
            and (used > 0 or not self._pool.misfit_together(vpod))
            and not vpod.quarantined
            and self._surroundings.allows(self._pool, vpod.namespace)
        )
        if not may_grow:
            wants = raised = min(wants, used)
        if vpod.max_per_pod and self._most_pods is not None:
            # Slots beyond that would be kept, or taken from others, for nothing.
            most = max(used, vpod.max_per_pod * self._most_pods)
            wants, raised = min(wants, most), min(raised, most)
        # One that needs more together than before keeps what it has.
        least = min(vpod.least, wants, used or wants)
        return Wanted(wants, raised, used, vpod.weight, vpod.priority, vpod.preempts, least)
