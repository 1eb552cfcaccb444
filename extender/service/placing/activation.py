"""``Activation``: decides which events bring which vpods back into the queue, like kube-scheduler's
queueing hints.

A change of what a vpod asks for or publishes queues that vpod. A change of a pod queues the vpods
on it that must leave, or whose ledger and status differ. A change of the AdapterPool, or of the
StatefulSet's ordinals, queues all vpods of the pool. Any event that may give room activates all
parked vpods of the pool.
"""

from dataclasses import replace

from extender.engine.pods.topology import same_for_placing
from extender.engine.state.pool_state import PoolState
from extender.model.bucket import Bucket
from extender.model.eviction import eviction_of
from extender.model.moves import MoveReason
from extender.model.objects import (
    AdapterPod,
    AdapterPool,
    Namespace,
    Node,
    StatefulSet,
    VPod,
    has_same_pods,
)
from extender.model.tenancy import VReplicaQuota
from extender.service.placing.queue import VPodQueues
from extender.service.watching.caches import Caches


class Activation:
    """Listens to the caches and feeds the queues of the pools that this replica leads."""

    def __init__(self, caches: Caches, queues: VPodQueues) -> None:
        self._caches = caches
        self._queues = queues
        self._minimum: dict[str, int] = {}
        """Pool -> minPodsPerVPod, or its schedulable pods if these are fewer, when its vpods were
        last queued for that.
        """
        caches.vpods.add_event_handler(self.vpod_changed)
        caches.pods.add_event_handler(self.pod_changed)
        caches.nodes.add_event_handler(self.node_changed)
        caches.pools.add_event_handler(self.pool_changed)
        caches.stateful_sets.add_event_handler(self.stateful_set_changed)
        caches.namespaces.add_event_handler(self.namespace_changed)
        caches.quotas.add_event_handler(self.quota_changed)
        caches.state.on_admitted = self.admitted

    @property
    def raised_pools(self) -> int:
        """Number of pools with vpods that minPodsPerVPod may have raised."""
        return len(self._minimum)

    def vpod_changed(self, old: VPod | None, new: VPod | None) -> None:
        """A vpod came, changed, went, or moved to another pool."""
        if (
            old is not None
            and (new is None or new.pool != old.pool)
            and self._queues.leads(old.pool)
        ):
            self._queues.of(old.pool).forget(old.key)
            left = self._caches.state.pools.get(old.pool)
            if left is not None and (left.claims_of(old.key) or left.tenancy is not None):
                self._queues.add(old.pool, old.key)
            self._queues.activate(old.pool)
        if new is None or not self._queues.leads(new.pool):
            return
        if old is None or not _only_status(old, new):
            self._queues.add(new.pool, new.key)
        elif old.placements != new.placements:
            self._queues.of(new.pool).diverged(new.key)
            if sum(new.placements.values()) < sum(old.placements.values()):
                self._look_at_admitted(new.pool)

    def pod_changed(self, old: AdapterPod | None, new: AdapterPod | None) -> None:
        """An adapter pod came, was bound, changed in a way that matters for placing, or went."""
        pod = new or old
        if pod is None or (old is not None and new is not None and _pods_alike(old, new)):
            return
        pool = self._caches.state.pools.get(pod.pool)
        if pool is None or not self._queues.leads(pod.pool):
            return
        queue = self._queues.of(pod.pool)
        known = pool.pods.get(pod.name)
        if known is not None:
            leaving = known.draining or not pool.is_member(known)
            counts = known.certainly_bound
            for key, claim in known.claims.items():
                if leaving or key not in pool.vpods:
                    queue.add(key)
                elif counts and claim.ledger != claim.status:
                    queue.diverged(key)
        queue.activate()
        self._raise_targets(pool)
        self._look_at_admitted(pod.pool)

    def _raise_targets(self, pool: PoolState) -> None:
        """If more or fewer pods count for minPodsPerVPod than last time, queue the vpods whose
        target it raises, even those that have all they asked for.
        """
        minimum = pool.adapter_pool.min_pods_per_vpod if pool.adapter_pool is not None else 0
        count = min(minimum, pool.schedulable_count())
        if count == self._minimum.get(pool.key, 0):
            return
        if count:
            self._minimum[pool.key] = count
        else:
            del self._minimum[pool.key]
        least = 1 if pool.profile.rules.zero_means_none else 0
        for key, vpod in pool.vpods.items():
            if least <= vpod.vreplicas < minimum:
                self._queues.add(pool.key, key)

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        """A node came, went, changed whether it takes work, or may run other pods than before.

        Filters may count nodes and zones that have no pod of the pool, so any pool with filters may
        have new room.
        """
        if old is not None and new is not None and same_for_placing(old, new):
            return
        name = new.name if new is not None else old.name if old is not None else ""
        state = self._caches.state
        here = {pod.pool for pod in state.pods_on_node.get(name, {}).values()}
        for pool in list(state.pools.values()):
            if not self._queues.leads(pool.key):
                continue
            if pool.key in here or pool.profile.filters:
                self._queues.activate(pool.key)
            if pool.key in here:
                self._raise_targets(pool)

    def pool_changed(self, old: AdapterPool | None, new: AdapterPool | None) -> None:
        """A pool came, changed or went: decide all its vpods again. A write of its status alone is
        ignored.

        The vpods of other pools that name its StatefulSet are decided too, because another pool may
        now be the one that uses it.
        """
        if (
            old is not None
            and new is not None
            and replace(old, resource_version=new.resource_version) == new
        ):
            return
        pool = new or old
        if pool is None:
            return
        if new is None:
            self._minimum.pop(pool.key, None)
        index = self._caches.state.stateful_set_index
        for key in sorted({pool.key, *index.naming_the_same(old, new)}):
            if self._queues.leads(key):
                self.add_all(key)

    def stateful_set_changed(self, old: StatefulSet | None, new: StatefulSet | None) -> None:
        """If ordinals came or went, decide all vpods. If only the nodes that its pods may use
        changed, give waiting vpods another chance.
        """
        same_pods = has_same_pods(old, new)
        if same_pods and old is not None and new is not None and old.fit == new.fit:
            return
        changed = new or old
        for pool in self._caches.pools.list():
            if changed is None or pool.stateful_set_key != changed.key:
                continue
            if same_pods:
                self._queues.activate(pool.key)
            else:
                self.add_all(pool.key)

    def namespace_changed(self, old: Namespace | None, new: Namespace | None) -> None:
        """A tenant's labels changed: pools may select it, or no longer.

        Vpods that have all they want are decided too. While the pool did not select their namespace
        they stayed as they were, so a drain or a raised minPodsPerVPod waits for this decision.
        """
        before, after = (
            namespace.labels if namespace is not None else {} for namespace in (old, new)
        )
        if before == after:
            return
        changed = new or old
        for key in list(self._caches.state.pools):
            self._look_at_admitted(key)
        for key, pool in self._caches.state.pools.items():
            selector = (
                pool.adapter_pool.namespace_selector if pool.adapter_pool is not None else None
            )
            if (
                selector is None
                or changed is None
                or selector.matches(before) == selector.matches(after)
            ):
                continue
            if not self._queues.leads(key):
                continue
            for vpod in pool.vpods.values():
                if vpod.namespace == changed.name:
                    self._queues.add(key, vpod.key)

    def quota_changed(self, old: VReplicaQuota | None, new: VReplicaQuota | None) -> None:
        """A quota came, changed or went. ``admitted`` queues the vpods of which its pool admits
        more or less now.
        """
        for pool in dict.fromkeys(quota.pool for quota in (old, new) if quota is not None):
            self._look_at_admitted(pool)

    def admitted(self, pool: str, vpod: str) -> None:
        """A pool admits more or fewer vreplicas of a vpod than before."""
        if self._queues.leads(pool):
            self._queues.add(pool, vpod)

    def _look_at_admitted(self, pool: str) -> None:
        """Have a pool decide what it admits now. Otherwise it does so only when somebody reads its
        vpods.
        """
        state = self._caches.state.pools.get(pool)
        if state is not None and self._queues.leads(pool):
            state.settle()

    def add_all(self, pool: str) -> None:
        """Queue every vpod of a pool, and every other key that has a claim there."""
        state = self._caches.state.pools.get(pool)
        if state is not None and self._queues.leads(pool):
            for key in sorted({*state.vpods, *state.claims_by_vpod}):
                self._queues.add(pool, key)

    def forget(self, bucket: Bucket) -> None:
        """Forget pools of a bucket that this replica no longer leads."""
        self._minimum = {
            pool: count for pool, count in self._minimum.items() if not bucket.has(pool)
        }


def _only_status(old: VPod, new: VPod) -> bool:
    """Whether the change may be this service's own status write: at most the status differs, and it
    is about the present generation. The generation covers fields that are not compared here.
    """
    return (
        old.uid,
        old.vreplicas,
        old.weight,
        old.per_vreplica,
        old.pool,
        old.deleting,
        old.quarantined,
        old.generation,
    ) == (
        new.uid,
        new.vreplicas,
        new.weight,
        new.per_vreplica,
        new.pool,
        new.deleting,
        new.quarantined,
        new.generation,
    ) and new.observed_generation == new.generation


def _eviction(pod: AdapterPod) -> tuple[MoveReason, bool] | None:
    """Why the pod is to go, and whether it has its turn."""
    eviction = eviction_of(pod)
    return None if eviction is None else (eviction.reason, eviction.turn_s is not None)


def _pods_alike(old: AdapterPod, new: AdapterPod) -> bool:
    """Whether two versions of a pod are the same for placing."""
    return (
        (
            old.uid,
            old.pool,
            old.node,
            old.assumed,
            old.unschedulable,
            _eviction(old),
            old.deleting,
            old.finished,
            old.slots,
            old.owner,
            old.owner_uid,
        )
        == (
            new.uid,
            new.pool,
            new.node,
            new.assumed,
            new.unschedulable,
            _eviction(new),
            new.deleting,
            new.finished,
            new.slots,
            new.owner,
            new.owner_uid,
        )
        and old.ledger == new.ledger
        and old.ledger_error == new.ledger_error
    )
