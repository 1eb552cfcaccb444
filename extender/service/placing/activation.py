"""``Activation``: which events bring which vpods back to be decided (kube-scheduler's queueing
hints).

An event about a vpod activates that vpod; an event that may give room activates all parked vpods of
the pool.
"""

from dataclasses import replace

from extender.engine.pods.topology import same_for_placing
from extender.engine.state.pool_state import PoolState
from extender.model.bucket import Bucket
from extender.model.objects import AdapterPod, AdapterPool, Namespace, Node, StatefulSet, VPod
from extender.service.placing.queue import VPodQueues
from extender.service.watching.caches import Caches


class Activation:
    """Listens to the caches and feeds the queues of the pools that are led here; of others nothing
    is looked at.
    """

    def __init__(self, caches: Caches, queues: VPodQueues) -> None:
        self._caches = caches
        self._queues = queues
        self._schedulable: dict[str, int] = {}
        """Pool -> number of schedulable pods when minPodsPerVPod was last applied to all of its
        vpods.
        """
        caches.vpods.add_event_handler(self.vpod_changed)
        caches.pods.add_event_handler(self.pod_changed)
        caches.nodes.add_event_handler(self.node_changed)
        caches.pools.add_event_handler(self.pool_changed)
        caches.stateful_sets.add_event_handler(self.stateful_set_changed)
        caches.namespaces.add_event_handler(self.namespace_changed)

    def __len__(self) -> int:
        """Pools with vpods that minPodsPerVPod may have raised."""
        return len(self._schedulable)

    def vpod_changed(self, old: VPod | None, new: VPod | None) -> None:
        """A vpod came, changed, went, or moved to another pool."""
        if (
            old is not None
            and (new is None or new.pool != old.pool)
            and self._queues.serves(old.pool)
        ):
            self._queues.of(old.pool).forget(old.key)
            left = self._caches.state.pools.get(old.pool)
            if left is not None and left.claims_of(old.key):
                self._queues.of(old.pool).add(old.key)
            self._queues.of(old.pool).activate()
        if new is None or not self._queues.serves(new.pool):
            return
        if old is None or not _only_status(old, new):
            self._queues.of(new.pool).add(new.key)
        elif old.placements != new.placements:
            self._queues.of(new.pool).diverged(new.key)

    def pod_changed(self, old: AdapterPod | None, new: AdapterPod | None) -> None:
        """An adapter pod came, was bound, changed its ledger or its marks, or went."""
        pod = new or old
        if pod is None or (old is not None and new is not None and _same_for_placing(old, new)):
            return
        pool = self._caches.state.pools.get(pod.pool)
        if pool is None or not self._queues.serves(pod.pool):
            return
        queue = self._queues.of(pod.pool)
        state = pool.pods.get(pod.name)
        if state is not None:
            leaving = state.draining or not pool.is_member(state)
            counts = state.bound and not pod.assumed
            for key, claim in state.claims.items():
                if leaving or key not in pool.vpods:
                    queue.add(key)
                elif counts and claim.ledger != claim.status:
                    queue.diverged(key)
        queue.activate()
        self._raise_targets(pool)

    def _raise_targets(self, pool: PoolState) -> None:
        """More pods, or fewer: targets that minPodsPerVPod raises are others now, also of vpods
        that have all they asked for.
        """
        minimum = pool.adapter_pool.min_pods_per_vpod if pool.adapter_pool is not None else 0
        count = min(minimum, pool.schedulable_count())
        if count == self._schedulable.get(pool.key, 0):
            return
        if count:
            self._schedulable[pool.key] = count
        else:
            del self._schedulable[pool.key]
        for key, vpod in pool.vpods.items():
            if 0 < vpod.vreplicas < minimum:
                self._queues.of(pool.key).add(key)

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        """A node came, went, began or ceased to take work, or lets other pods stand on it.

        Filters may count nodes and zones without a pod of the pool: one less there, and more may go
        elsewhere.
        """
        if old is not None and new is not None and same_for_placing(old, new):
            return
        name = new.name if new is not None else old.name if old is not None else ""
        state = self._caches.state
        here = {pod.pool for pod in state.pods_on_node.get(name, {}).values()}
        for pool in list(state.pools.values()):
            if not self._queues.serves(pool.key):
                continue
            if pool.key in here or pool.profile.filters:
                self._queues.of(pool.key).activate()
            if pool.key in here:
                self._raise_targets(pool)

    def pool_changed(self, old: AdapterPool | None, new: AdapterPool | None) -> None:
        """A pool came, changed or went: all of its vpods are decided again. Its status we write
        ourselves.

        And those of others that name its StatefulSet: which of them has it may be another one now.
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
            self._schedulable.pop(pool.key, None)
        for key in sorted({pool.key, *self._caches.state.naming(old, new)}):
            if self._queues.serves(key):
                self.add_all(key)

    def stateful_set_changed(self, old: StatefulSet | None, new: StatefulSet | None) -> None:
        """Ordinals came or went; or its pods may stand on other nodes, which is another chance for
        what waits.
        """
        same_ordinals = (
            old is not None
            and new is not None
            and (old.ordinals, old.template_pool) == (new.ordinals, new.template_pool)
        )
        if same_ordinals and old is not None and new is not None and old.fit == new.fit:
            return
        changed = new or old
        for pool in self._caches.pools.list():
            if changed is None or pool.stateful_set_key != changed.key:
                continue
            if same_ordinals:
                self._queues.of(pool.key).activate()
            else:
                self.add_all(pool.key)

    def namespace_changed(self, old: Namespace | None, new: Namespace | None) -> None:
        """A tenant's labels changed: pools may select it now, or no more.

        Also what has all it wants is decided then: what the pool has asked of it meanwhile waits
        for that.
        """
        before, after = (
            namespace.labels if namespace is not None else {} for namespace in (old, new)
        )
        if before == after:
            return
        changed = new or old
        for queue in self._queues.values():
            queue.activate()
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
            if not self._queues.serves(key):
                continue
            for vpod in pool.vpods.values():
                if vpod.namespace == changed.name:
                    self._queues.of(key).add(vpod.key)

    def add_all(self, pool: str) -> None:
        """Decide every vpod of a pool again, and every key in its ledgers."""
        state = self._caches.state.pools.get(pool)
        if state is not None and self._queues.serves(pool):
            for key in sorted({*state.vpods, *state.placements}):
                self._queues.of(pool).add(key)

    def forget(self, bucket: Bucket) -> None:
        """Its pools are not led here any longer."""
        self._schedulable = {
            pool: count for pool, count in self._schedulable.items() if not bucket.has(pool)
        }


def _only_status(old: VPod, new: VPod) -> bool:
    """Whether a change may be our own status write, or nothing that a decision looks at but what is
    published.
    """
    return (old.uid, old.vreplicas, old.weight, old.pool, old.deleting, old.generation) == (
        new.uid,
        new.vreplicas,
        new.weight,
        new.pool,
        new.deleting,
        new.generation,
    ) and new.observed_generation == new.generation


def _same_for_placing(old: AdapterPod, new: AdapterPod) -> bool:
    return (
        (
            old.uid,
            old.pool,
            old.node,
            old.assumed,
            old.unschedulable,
            old.deleting,
            old.finished,
            old.slots,
        )
        == (
            new.uid,
            new.pool,
            new.node,
            new.assumed,
            new.unschedulable,
            new.deleting,
            new.finished,
            new.slots,
        )
        and old.ledger == new.ledger
        and old.ledger_error == new.ledger_error
    )
