"""``ClusterState``: everything that decisions look at, over all pools. Each change updates it by
the difference.

The change handlers of the caches feed it (``old``, ``new``: None for an object that does not
exist), and so do reservations. A state rebuilt from the same objects equals the updated one. Tests
compare their ``digest``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from extender.engine.pods.claims import PodClaims
from extender.engine.pods.node_index import NodeIndex
from extender.engine.pods.topology import Topology
from extender.engine.policy.profile import DEFAULT_PROFILE, Profile
from extender.engine.policy.profiles import BUILT_IN_PROFILES
from extender.engine.state.pool_state import PoolState
from extender.engine.state.state_observer import StateObserver
from extender.engine.state.stateful_set_index import StatefulSetIndex
from extender.model.ledger import Share
from extender.model.objects import (
    AdapterPod,
    AdapterPool,
    Namespace,
    Node,
    StatefulSet,
    VPod,
    object_key,
)
from extender.model.tenancy import Tenancy, VReplicaQuota, counting_quotas

ALLOWED_MAX: Final = 100_000
"""Cached answers to whether a pool selects a namespace."""


class ClusterState:
    """All pools, nodes and namespaces. Not thread-safe; never awaits, so a decision sees one
    moment.

    ``profiles``: by name, what AdapterPool.spec.profile may ask for. A pool with an unknown profile
    is placed by the default one, and its Ready condition says so.
    """

    def __init__(self, profiles: Mapping[str, Profile] = BUILT_IN_PROFILES) -> None:
        self.profiles = profiles
        self.topology = Topology()
        self.pools: dict[str, PoolState] = {}
        self.nodes: dict[str, Node] = {}
        self.namespaces: dict[str, Namespace] = {}
        self.stateful_sets: dict[str, StatefulSet] = {}
        self.quotas: dict[str, dict[str, VReplicaQuota]] = {}
        """Pool key -> its quotas by key."""
        self.on_admitted: Callable[[str, str], None] = _ignore
        """Called with the keys of a pool and of a vpod of which more or fewer vreplicas are
        admitted than before.
        """
        self.pods_on_node: dict[str, dict[str, AdapterPod]] = {}
        """Node name -> pod key -> pod, for all adapter pods that are bound or assumed there."""
        self.node_index = NodeIndex(self.nodes, self.pods_on_node)
        self.stateful_set_index = StatefulSetIndex(self.stateful_sets)
        self._allowed: dict[tuple[str, str, int, str], bool] = {}
        """(Pool key, UID, generation, namespace) -> whether the pool selects the namespace."""
        self.observer: StateObserver | None = None
        """Told of every change (see ``observed_by``)."""
        self._surroundings = 0
        """Grows with every change of nodes and namespaces."""

    def observed_by(self, observer: StateObserver | None) -> None:
        """Tell only ``observer`` of every change from now on; None: nobody."""
        self.observer = observer
        for pool in self.pools.values():
            pool.observer = observer

    def revision_of(self, pool: PoolState) -> tuple[int, int]:
        """Revisions that change with everything that decisions about the pool look at."""
        return (pool.revision, self._surroundings)

    def pool(self, key: str) -> PoolState:
        """The state of a pool, created on first use."""
        state = self.pools.get(key)
        if state is None:
            state = self.pools[key] = PoolState(key, self.topology)
            state.observer = self.observer
            state.on_admitted = self._tell_admitted
        return state

    def _forget(self, key: str) -> None:
        state = self.pools.get(key)
        if state is not None and state.forgettable:
            del self.pools[key]

    # -- changes -----------------------------------------------------------------------------------

    def adapter_pool_changed(self, old: AdapterPool | None, new: AdapterPool | None) -> None:
        """An AdapterPool came, changed or went."""
        if self.observer is not None:
            self.observer.changed(old, new)
        if (
            old is not None
            and new is not None
            and replace(old, resource_version=new.resource_version) == new
        ):
            self.pool(new.key).adapter_pool = new  # a write of its status: nothing to derive anew
            return
        self._allowed.clear()
        if old is not None:
            self.stateful_set_index.remove_pool(old)
            self._share_out(old.stateful_set_key)
        if new is not None:
            self.stateful_set_index.add_pool(new)
            state = self.pool(new.key)
            state.set_profile(self.profiles.get(new.profile, DEFAULT_PROFILE))
            state.set_pool(new, state.stateful_set)
            state.set_tenancy(self)
            self._share_out(new.stateful_set_key)
            # A pod that was stamped before its pool was known has no number of slots of its own. So
            # it now takes slotsPerPod slots of its node.
            self.node_index.pods_changed(pod.where[0] for pod in state.pods.values())
        elif old is not None:
            state = self.pool(old.key)
            self.node_index.pods_changed(pod.where[0] for pod in state.pods.values())
            state.set_pool(None, None)
            state.set_tenancy(self)
            state.taken_by = ""
            # A pool of the name that comes again has none of its foreign objects at first.
            state.watched_sources = frozenset()
            self._count_anew(state, known=True)
            self._forget(old.key)

    def _share_out(self, key: str) -> None:
        """Give a StatefulSet to one of the pools that name it. The others have none."""
        stateful_set = self.stateful_sets.get(key)
        owner = self.stateful_set_index.owner_of(key)
        for name in sorted(self.stateful_set_index.pools_naming(key)):
            state, own = self.pools[name], stateful_set if name == owner else None
            taken_by = "" if name == owner else owner
            if state.stateful_set is own and state.taken_by == taken_by:
                continue
            state.taken_by = taken_by
            known = state.stateful_set
            if (
                known is not None
                and own is not None
                and (known.name, known.ordinals) == (own.name, own.ordinals)
            ):
                state.exchange_stateful_set(own)
            else:
                state.set_stateful_set(own)
            if known is None or own is None or (known.name, known.uid) != (own.name, own.uid):
                self._count_anew(state, known=known is not None)

    def stateful_set_changed(self, old: StatefulSet | None, new: StatefulSet | None) -> None:
        """A StatefulSet came, changed or went.

        Only its ordinals, its UID, what its pod template requires of nodes, and the pool that the
        template names matter here.
        """
        if self.observer is not None:
            self.observer.changed(old, new)
        key = new.key if new is not None else old.key if old is not None else ""
        if new is None:
            self.stateful_sets.pop(key, None)
        else:
            self.stateful_sets[key] = new
        self._share_out(key)
        if old is None or new is None or old.uid != new.uid:
            # A pool that names another StatefulSet may have pods of this one. The pools that name
            # this one have been counted by ``_share_out``.
            index = self.stateful_set_index
            running_in = {pod.pool for pod in index.pods_of(key).values()}
            for name in sorted(running_in - index.pools_naming(key).keys()):
                self._count_anew(self.pool(name), known=old is not None)
        if old is not None and old.fit is not None and (new is None or new.fit != old.fit):
            self.topology.forget(old.fit)

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        """A node came, changed or went."""
        name = new.name if new is not None else old.name if old is not None else ""
        known = self.nodes.get(name)
        if (
            known is not None
            and new is not None
            and replace(known, resource_version=new.resource_version) == new
        ):
            self.nodes[name] = new  # a heartbeat: nothing to derive anew
            return
        if self.observer is not None:
            self.observer.changed(known, new)
        self._surroundings += 1
        self.topology.node_changed(known, new)
        self.node_index.node_changed(known, new)
        if new is None:
            self.nodes.pop(name, None)
        else:
            self.nodes[name] = new
        for pod in self.pods_on_node.get(name, {}).values():
            self.pool(pod.pool).node_changed(pod.name, new)

    def namespace_changed(self, old: Namespace | None, new: Namespace | None) -> None:
        """A namespace came, changed its labels or went."""
        if self.observer is not None:
            self.observer.changed(old, new)
        self._surroundings += 1
        self._allowed.clear()
        if new is not None:
            self.namespaces[new.name] = new
        elif old is not None:
            self.namespaces.pop(old.name, None)
        before, after = (one.labels if one is not None else {} for one in (old, new))
        for pool in self.pools.values():
            known = pool.adapter_pool
            if known is not None and known.is_shared_anew(before, after):
                pool.set_tenancy(self)

    def quota_changed(self, old: VReplicaQuota | None, new: VReplicaQuota | None) -> None:
        """A VReplicaQuota came, changed or went."""
        if self.observer is not None:
            self.observer.changed(old, new)
        if old is not None:
            self.quotas.get(old.pool, {}).pop(old.key, None)
        if new is not None:
            self.quotas.setdefault(new.pool, {})[new.key] = new
        for key in {quota.pool for quota in (old, new) if quota is not None}:
            if not self.quotas.get(key):
                self.quotas.pop(key, None)
            if (pool := self.pools.get(key)) is not None:
                pool.set_tenancy(self)

    def pod_changed(self, old: AdapterPod | None, new: AdapterPod | None) -> None:
        """An adapter pod came, changed or went. It is among the pool's ``unowned_pods``, and counts
        nowhere, while ``_is_a_pod_of`` is false.
        """
        if self.observer is not None:
            self.observer.changed(old, new)
        self.stateful_set_index.pod_changed(old, new)
        if old is not None and self.pool(old.pool).unowned_pods.pop(old.name, None) is not None:
            self._forget(old.pool)
            old = None
        if new is not None and not self._is_a_pod_of(self.pool(new.pool), new):
            self.pool(new.pool).unowned_pods[new.name] = new
            new = None
        if old is not None or new is not None:
            self._take_pod(old, new)

    def _count_anew(self, pool: PoolState, *, known: bool) -> None:
        """The pool has another StatefulSet, or one with another UID: count again which pods are its
        own.

        ``known``: whether a StatefulSet was known before. If not, nobody had checked whose the pods
        are, and the last ledgers of those that are not its own are forgotten.
        """
        for pod in [pod for pod in pool.unowned_pods.values() if self._is_a_pod_of(pool, pod)]:
            del pool.unowned_pods[pod.name]
            self._take_pod(None, pod)
        known_pods = [there.pod for there in pool.pods.values() if there.pod is not None]
        for pod in [pod for pod in known_pods if not self._is_a_pod_of(pool, pod)]:
            self._take_pod(pod, None)
            if not known:
                pool.forget_last_ledger(pod.name)
            pool.unowned_pods[pod.name] = pod

    def _is_a_pod_of(self, pool: PoolState, pod: AdapterPod) -> bool:
        """Whether the pod belongs to the pool: the pool's StatefulSet controls it, or a StatefulSet
        of the namespace with another name, which the pool may have named before.

        What the pods of a former StatefulSet hold stays until there is room, and they get nothing
        new.
        """
        if pool.counts(pod):
            return True
        former = self.stateful_sets.get(object_key(pod.namespace, pod.owner)) if pod.owner else None
        return (
            former is not None
            and pool.stateful_set is not None
            and former.name != pool.stateful_set.name
            and pod.is_controlled_by(former)
        )

    def _take_pod(self, old: AdapterPod | None, new: AdapterPod | None) -> None:
        self.node_index.pods_changed(pod.node for pod in (old, new) if pod is not None and pod.node)
        if old is not None and old.node:
            there = self.pods_on_node.get(old.node, {})
            there.pop(old.key, None)
            if not there:
                self.pods_on_node.pop(old.node, None)
        if new is not None and new.node:
            self.pods_on_node.setdefault(new.node, {})[new.key] = new
        if old is not None and (new is None or new.pool != old.pool):
            self.pool(old.pool).pod_changed(old, None, None)
            self._forget(old.pool)
            old = None
        if new is not None:
            self.pool(new.pool).pod_changed(old, new, self.nodes.get(new.node))

    def forget_last_ledgers(self, pod_keys: Iterable[str]) -> None:
        """Forget what these pods' former incarnations were seen to carry (see
        ``ordinal_history``).
        """
        if self.observer is not None:
            pod_keys = list(pod_keys)
            self.observer.forgotten(pod_keys)
        for key in pod_keys:
            namespace, _, name = key.partition("/")
            for pool_key, pool in self.pools.items():
                if pool_key.partition("/")[0] == namespace:
                    pool.forget_last_ledger(name)

    def vpod_changed(self, old: VPod | None, new: VPod | None) -> None:
        """A vpod came, changed or went. If it names another pool, it leaves its old one."""
        if self.observer is not None:
            self.observer.changed(old, new)
        if old is not None and (new is None or new.pool != old.pool):
            self.pool(old.pool).vpod_changed(old, None)
            self._forget(old.pool)
            old = None
        if new is not None:
            self.pool(new.pool).vpod_changed(old, new)

    # -- reservations ------------------------------------------------------------------------------

    def reserve(
        self,
        owner: object,
        pool: str,
        vpod_key: str,
        shares: Mapping[str, Share],
        *,
        expires_at: float,
    ) -> None:
        """Reserve a decision's shares (pod name -> share) until they are released or ``expires_at``
        (s, the caller's clock) has passed.
        """
        self.pool(pool).reserve(owner, vpod_key, shares, expires_at=expires_at)

    def release(self, owner: object, pool: str, vpod_key: str) -> None:
        """Release what ``owner`` reserved for a vpod."""
        state = self.pool(pool)
        state.release(owner, vpod_key)
        state.reconsider(vpod_key)

    def expire(self, now: float) -> list[tuple[str, str]]:
        """Drop expired reservations; return the (pool, vpod) keys that lost one."""
        if self.observer is not None:
            self.observer.expired(now)
        lost = []
        for key, pool in list(self.pools.items()):
            lost += [(key, vpod) for vpod in pool.expire(now)]
            self._forget(key)
        return lost

    # -- reading -----------------------------------------------------------------------------------

    def counts(self, pod: AdapterPod) -> bool:
        """Whether a pod with a pool's label belongs to the pool, as far as its StatefulSet is
        known. One of the pool's former StatefulSet does: what it holds is still taken from it.
        """
        pool = self.pools.get(pod.pool)
        return pool is None or self._is_a_pod_of(pool, pod)

    def allows(self, pool: AdapterPool, namespace: str) -> bool:
        """Whether the pool's namespaceSelector selects a namespace. An unknown one has
        no labels.
        """
        key = (pool.key, pool.uid, pool.generation, namespace)
        allowed = self._allowed.get(key)
        if allowed is None:
            known = self.namespaces.get(namespace)
            labels = known.labels if known is not None else {}
            if len(self._allowed) >= ALLOWED_MAX:
                self._allowed.clear()
            allowed = self._allowed[key] = pool.namespace_selector.matches(labels)
        return allowed

    def tenant_of(self, tenancy: Tenancy, namespace: str) -> str:
        """The tenant of a namespace. An unknown one has no labels."""
        known = self.namespaces.get(namespace)
        return tenancy.tenant_of(namespace, known.labels if known is not None else {})

    def quotas_of(self, pool: AdapterPool, tenancy: Tenancy) -> dict[str, VReplicaQuota]:
        """Tenant -> the quota that counts for it in a pool; none in a pool without tenants."""
        if tenancy.is_whole:
            return {}
        return counting_quotas(
            self.quotas.get(pool.key, {}).values(), partial(self.tenant_of, tenancy)
        )

    def _tell_admitted(self, pool: str, vpod: str) -> None:
        self.on_admitted(pool, vpod)

    def selects(self, pool_key: str, vpod: VPod) -> bool:
        """Whether a vpod may get places in that pool: it is not in quarantine, and the pool selects
        its namespace. True while the pool is not known.
        """
        state = self.pools.get(pool_key)
        if state is None or state.adapter_pool is None:
            return True
        return not vpod.quarantined and self.allows(state.adapter_pool, vpod.namespace)

    def placements_from_former_pool(self, pool_key: str, pod_name: str) -> dict[str, Share]:
        """Vpod key -> share that vpods which have changed to another pool still publish on a pod of
        this one (I2).
        """
        return {
            vpod: claim.status
            for pool, state in self.elsewhere(pool_key, pod_name)
            if not pool.is_member(state)
            for vpod, claim in state.claims.items()
            if claim.published
        }

    def elsewhere(self, pool_key: str, pod_name: str) -> Iterator[tuple[PoolState, PodClaims]]:
        """The namespace's other pools that have an entry for a pod of that name, and the entry."""
        namespace = pool_key.partition("/")[0]
        for key, pool in self.pools.items():
            if (
                key != pool_key
                and key.startswith(f"{namespace}/")
                and (state := pool.pods.get(pod_name))
            ):
                yield pool, state

    def digest(self) -> dict[str, object]:
        """All derived values in plain form. The same inputs give the same digest, in whatever order
        they came.
        """
        return {
            key: {
                "schedulable": pool.schedulable,
                "room": pool.room,
                "crowded": pool.tenant_room.crowded,
                "spent": dict(sorted(pool.tenant_room.spent.items())),
                "zones": dict(sorted(pool.zones.items())),
                "free by zone": {
                    zone: free for zone, free in sorted(pool.free_by_zone.items()) if free
                },
                "nodes": dict(sorted(pool.nodes.items())),
                "hosting": dict(sorted(pool.hosting.zone_of.items())),
                "hosting zones": dict(sorted(pool.hosting.known_in.items())),
                "unplaced": sorted(pool.vpods_with_pending),
                "pods": {
                    name: (
                        pod.held,
                        pod.decided,
                        pod.capacity,
                        pod.schedulable,
                        sorted(pod.held_amounts.items()),
                        sorted(pod.decided_amounts.items()),
                    )
                    for name, pod in sorted(pool.pods.items())
                    if pod.pod is not None or pod.claims
                },
                "placed": {vpod: pool.decided_of(vpod) for vpod in sorted(pool.claims_by_vpod)},
                "taken by": pool.taken_by,
            }
            for key, pool in sorted(self.pools.items())
            if pool.adapter_pool is not None
            or pool.vpods
            or any(pod.pod or pod.claims for pod in pool.pods.values())
        }


def _ignore(_pool: str, _vpod: str) -> None:
    pass
