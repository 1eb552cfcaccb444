"""Tenants share a pool as its ``spec.tenancy`` and the VReplicaQuotas say, and vpods of a higher
priority come first.

While faults happen: no write of a status gives a tenant more than its limit, and vreplicas that are
taken away without a move were too many, or vpods of a higher priority want the slots. At rest: who
waits for want of quota is at its limit, or others want the pool's slots too; nobody is below its
guarantee while others borrow; and nobody waits for what less important ones have.

In the simulation a tenant is a namespace. A pool without ``spec.tenancy`` is one tenant.
"""

from collections.abc import Iterator
from math import inf

from extender.kube.api import Obj
from extender.lab.faults import ACTOR
from extender.lab.simulation.checkers.context import Checker, CheckerContext
from extender.lab.simulation.checkers.settled import EXCEEDED, PLACED, PREEMPTED
from extender.lab.simulation.world.facts import Pool, VPod


class TenancyChecker(Checker):
    """Checks statuses that the service writes, and all of them at rest."""

    def __init__(self, context: CheckerContext) -> None:
        super().__init__(context)
        self._stored.may_be_limited = self._may_be_limited
        self._quotas: dict[tuple[str, str], Obj] = {}
        """(Namespace, name) -> the stored object."""

    # -- what changes ------------------------------------------------------------------------------

    def quota_changed(self, before: Obj | None, after: Obj | None) -> None:
        """Record a VReplicaQuota. Decisions may still follow the quotas before."""
        for obj in (before, after):
            if obj is not None and (before is None or after is None or before != after):
                self._excuses.note(f"tenancy {obj['spec']['poolRef']['name']}")
        metadata = (after or before or {})["metadata"]
        key = (metadata["namespace"], metadata["name"])
        if after is None:
            self._quotas.pop(key, None)
        else:
            self._quotas[key] = after

    def pool_changed(self, before: Obj | None, after: Obj | None) -> None:
        """Record that a pool shares its slots in another way."""
        specs = [(obj or {}).get("spec") for obj in (before, after)]
        if specs[0] != specs[1]:
            self._excuses.note(f"tenancy {(after or before or {})['metadata']['name']}")

    # -- statuses ----------------------------------------------------------------------------------

    def check_limit(self, old: VPod, new: VPod) -> None:
        """Check that a status that publishes more keeps its tenant's limit."""
        pool = self._stored.pool_of(new)
        if new.total <= old.total or pool.tenancy is None or self._is_unsure(pool, new):
            return
        used, limit = self._used(pool, new.namespace), self._limit(pool, new.namespace)
        if used > limit:
            self._violated(
                f"tenancy: {ACTOR.get()} gave {new.key} more, and tenant {new.namespace} has "
                f"{used} of {limit} slots: {dict(old.placements)} became {dict(new.placements)}"
            )

    def may_lose(self, new: VPod) -> bool:
        """Return whether a status may take vreplicas away that the vpod still asks for."""
        pool = self._stored.pool_of(new)
        return self._excuses.holds(f"tenancy {pool.name}") or self._may_be_limited(new)

    def _may_be_limited(self, vpod: VPod) -> bool:
        """Return whether a vpod's tenant asks for more than it may have, or all tenants together
        for more than the pool can have; or whether others of a higher priority take its slots.
        """
        pool = self._stored.pool_of(vpod)
        if pool.preempts and self._others_come_first(pool, vpod):
            return True
        return pool.tenancy is not None and (
            self._asked(pool, vpod.namespace) > self._limit(pool, vpod.namespace)
            or self._is_contended(pool)
        )

    def _is_unsure(self, pool: Pool, vpod: VPod) -> bool:
        """Return whether something has changed lately that decides what a tenant may have, or what
        it has: a quota, a pool, or what somebody else has written into a status.
        """
        mine = [one for one in self._of(pool) if one.namespace == vpod.namespace]
        return self._excuses.holds(f"tenancy {pool.name}") or any(
            self._edited_records.was_edited(one.key)
            or self._excuses.holds(f"weight {one.key}")
            or self._excuses.holds(f"pool {one.key}")
            for one in mine
        )

    # -- at rest -----------------------------------------------------------------------------------

    def differences(self) -> Iterator[str]:
        """Describe what is not shared as it should be."""
        for pool in self._stored.pools.values():
            if pool.tenancy is not None and not pool.deleted:
                yield from self._pool_differences(pool)
            if pool.preempts and not pool.deleted:
                yield from self._order_differences(pool)

    def _order_differences(self, pool: Pool) -> Iterator[str]:
        """Describe who waits although less important ones have what it wants, and who waits behind
        nobody.
        """
        for vpod in self._of(pool):
            if vpod.condition not in (EXCEEDED, PREEMPTED):
                continue
            equals = [one for one in self._tenant_of(pool, vpod) if one is not vpod]
            lower = sum(one.total * one.weight for one in equals if one.priority < vpod.priority)
            if vpod.preempts and lower >= vpod.next_slots and not self._others_wait(pool, vpod):
                yield f"tenancy: {vpod.key} waits, and less important ones have {lower} slots"
            if vpod.condition == PREEMPTED and not any(
                one.priority > vpod.priority and max(one.total, one.wanted) for one in equals
            ):
                yield f"tenancy: {vpod.key} says that it is preempted, and nobody comes before it"

    def _pool_differences(self, pool: Pool) -> Iterator[str]:
        contended = self._is_contended(pool)
        for namespace in sorted({vpod.namespace for vpod in self._of(pool)}):
            used, limit = self._used(pool, namespace), self._limit(pool, namespace)
            if used > limit:
                yield f"tenancy: tenant {namespace} has {used} of {limit} slots of {pool.name}"
        for vpod in self._of(pool):
            if vpod.condition != EXCEEDED or self._others_wait(pool, vpod):
                continue
            used, limit = self._used(pool, vpod.namespace), self._limit(pool, vpod.namespace)
            if used + vpod.next_slots <= limit and not contended:
                yield (
                    f"tenancy: {vpod.key} waits for quota, and its tenant has {used} of {limit} "
                    f"slots of {pool.name}"
                )
            if self._is_short(pool, vpod):
                yield f"tenancy: {vpod.key} waits, and its tenant is below its guarantee"

    def _others_wait(self, pool: Pool, vpod: VPod) -> bool:
        """Return whether another vpod of the tenant waits for room. What its tenant may have is
        kept for it.
        """
        return any(
            one.condition not in (PLACED, EXCEEDED, PREEMPTED)
            for one in self._tenant_of(pool, vpod)
        )

    def _others_come_first(self, pool: Pool, vpod: VPod) -> bool:
        """Return whether a vpod of the tenant has a higher priority, or is not less important and
        the pool has no slots for all. Pods that may still come do not count. Nor do slots of less
        important ones, from which the vpod does not take (seed 610000692).
        """
        if any(one.priority > vpod.priority for one in self._tenant_of(pool, vpod)):
            return True
        asked = sum(
            max(pool.most(one), one.total) * one.weight
            for one in self._of(pool)
            if one.priority >= vpod.priority
        )
        if not vpod.preempts:
            others = (one for one in self._of(pool) if one.priority < vpod.priority)
            asked += sum(one.total * one.weight for one in others)
        return asked > self._stored.slots_there(pool)

    def _is_short(self, pool: Pool, vpod: VPod) -> bool:
        """Return whether a vpod waits within its tenant's guarantee. All guarantees together may be
        more than the pool has.
        """
        guaranteed = sum(
            self._guarantee(pool, namespace)
            for namespace in {one.namespace for one in self._of(pool)}
        )
        return guaranteed <= self._slots(pool) and self._used(
            pool, vpod.namespace
        ) + vpod.next_slots <= self._guarantee(pool, vpod.namespace)

    def _tenant_of(self, pool: Pool, vpod: VPod) -> list[VPod]:
        """Return the vpods of the tenant to which a vpod belongs, itself among them."""
        whole = pool.tenancy is None
        return [one for one in self._of(pool) if whole or one.namespace == vpod.namespace]

    def _of(self, pool: Pool) -> list[VPod]:
        return [vpod for vpod in self._stored.vpods.values() if vpod.pool == pool.name]

    def _used(self, pool: Pool, namespace: str) -> int:
        return sum(
            vpod.total * vpod.weight for vpod in self._of(pool) if vpod.namespace == namespace
        )

    def _asked(self, pool: Pool, namespace: str) -> int:
        return sum(
            max(pool.most(vpod), vpod.total) * vpod.weight
            for vpod in self._of(pool)
            if vpod.namespace == namespace
        )

    def _slots(self, pool: Pool) -> float:
        """Return how many slots the pool can have. One that preempts has lost its patience."""
        most = inf
        if pool.max_pods is not None:
            most = max(pool.max_pods, len(pool.ordinals)) * pool.slots
        return min(most, self._stored.slots_there(pool)) if pool.preempts else most

    def _is_contended(self, pool: Pool) -> bool:
        """Return whether tenants ask for more than the pool can have."""
        wanted = sum(
            min(self._asked(pool, namespace), self._limit(pool, namespace))
            for namespace in {vpod.namespace for vpod in self._of(pool)}
        )
        return wanted > self._slots(pool)

    def _quota(self, pool: Pool, namespace: str) -> Obj:
        """Return the spec of the quota that counts; empty if there is none."""
        found = [
            (obj["metadata"]["creationTimestamp"], name, obj["spec"])
            for (where, name), obj in self._quotas.items()
            if where == namespace and obj["spec"]["poolRef"]["name"] == pool.name
        ]
        return min(found, key=lambda item: item[:2])[2] if found else {}

    def _limit(self, pool: Pool, namespace: str) -> float:
        limit = self._quota(pool, namespace).get("limit")
        default = (pool.tenancy or {}).get("defaultLimit")
        return next((one for one in (limit, default) if one is not None), inf)

    def _guarantee(self, pool: Pool, namespace: str) -> int:
        guarantee = self._quota(pool, namespace).get("guarantee")
        default = (pool.tenancy or {}).get("defaultGuarantee", 0)
        most = min(self._asked(pool, namespace), self._limit(pool, namespace))
        return int(min(default if guarantee is None else guarantee, most))
