"""``Snapshot``: what decisions about some pools look at, at one moment. A ``ClusterState`` can be
made from it at any time, in any thread or process.

Objects are frozen, so a snapshot only copies references. The event loop takes it between two
requests. The state made from it decides as the original does. The caller may change it freely:
nobody else sees it.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from extender.engine.pods.pod_loads import PodLoads
from extender.engine.policy.profile import Profile
from extender.engine.state.cluster_state import ClusterState
from extender.engine.state.patience import Patience
from extender.engine.state.pool_state import PoolState
from extender.engine.state.preemption_budget import PreemptionBudget
from extender.engine.state.state_observer import Recorded
from extender.model.errors import VReplicaError
from extender.model.ledger import Share
from extender.model.objects import AdapterPod, VPod
from extender.whatif.trial import object_changed

PODS_MAX: Final = 20_000
VPODS_MAX: Final = 50_000
"""Limits over all pools of a snapshot: some 20 ms of copying."""


class SnapshotTooLarge(VReplicaError):
    """The pools are too large to be copied without a pause of the event loop."""


class Reservation(NamedTuple):
    """What a decision has added to or taken from a pod, before a write confirms it."""

    vpod: str
    pod_name: str
    share: Share
    owner: object
    expires_at: float


class Remains(NamedTuple):
    """What is known of an ordinal apart from its pod: the ledger of its last pod, and where that
    stood.
    """

    pod_name: str
    last_ledger: Mapping[str, Share]
    last_ledger_settled: bool
    last_location: tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSnapshot:
    """One pool with everything of its own. ``closed`` is a bit set of ordinals, as in
    ``PoolState``.
    """

    key: str
    profile: Profile
    objects: tuple[AdapterPod | VPod, ...]
    reservations: tuple[Reservation, ...]
    remains: tuple[Remains, ...]
    closed: int
    in_doubt: int
    abandoned: frozenset[str]
    excused: frozenset[str]
    unserved_shares: Mapping[str, tuple[Mapping[str, int], frozenset[str]]]
    """By pod name: ``unserved_shares`` and ``waiting_shares`` of ``PodClaims``."""
    watched_sources: frozenset[str]
    next_start_ordinal: int
    load: PodLoads
    patience: Patience
    preemption_budget: PreemptionBudget | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Some pools in full. ``objects`` are those of no pool, and what affects these pools: all
    AdapterPools, and pods of other pools on nodes that declare slots.
    """

    profiles: Mapping[str, Profile]
    objects: tuple[Recorded, ...]
    full: tuple[PoolSnapshot, ...]

    @classmethod
    def of(cls, state: ClusterState, pools: Collection[str], *, bounded: bool = True) -> "Snapshot":
        """Take a snapshot. ``pools``: keys of the pools to take in full. ``bounded``: a caller
        waits, so large pools are refused. Raises SnapshotTooLarge.
        """
        found = [state.pools[key] for key in sorted(set(pools)) if key in state.pools]
        if bounded:
            _refuse_too_large(found)
        return cls(
            profiles=state.profiles,
            objects=(
                *state.nodes.values(),
                *state.namespaces.values(),
                *state.stateful_sets.values(),
                *(pool.adapter_pool for pool in state.pools.values() if pool.adapter_pool),
                *(quota for quotas in state.quotas.values() for quota in quotas.values()),
                *_neighbours(state, pools),
            ),
            full=tuple(_taken(pool) for pool in found),
        )

    def state(self) -> ClusterState:
        """Make a new state, equal to the original as far as these pools are concerned."""
        state = ClusterState(self.profiles)
        for obj in self.objects:
            object_changed(state, None, obj)
        for taken in self.full:
            _restore(state, taken)
        return state


def _refuse_too_large(pools: Collection[PoolState]) -> None:
    pods, vpods = sum(len(pool.pods) for pool in pools), sum(len(pool.vpods) for pool in pools)
    for what, count, most in (("adapter pods", pods, PODS_MAX), ("vpods", vpods, VPODS_MAX)):
        if count > most:
            raise SnapshotTooLarge(
                f"{count} {what} are more than the {most} that are looked at at once: ask about "
                f"one pool, "
                "or read the cluster with the command line (without --server)"
            )


def _neighbours(state: ClusterState, pools: Collection[str]) -> Iterator[AdapterPod]:
    """Pods of other pools on nodes that declare slots."""
    for name, pods in state.pods_on_node.items():
        node = state.nodes.get(name)
        if node is not None and node.slots is not None:
            yield from (pod for pod in pods.values() if pod.pool not in pools)


def _taken(pool: PoolState) -> PoolSnapshot:
    return PoolSnapshot(
        key=pool.key,
        profile=pool.profile,
        objects=(
            *(known.pod for known in pool.pods.values() if known.pod is not None),
            *pool.unowned_pods.values(),
            *pool.vpods.values(),
        ),
        reservations=tuple(
            Reservation(key, name, claim.reserved, claim.owner, claim.expires_at)
            for key, claims in pool.claims_by_vpod.items()
            for name, claim in claims.items()
            if claim.reserved is not None
        ),
        remains=tuple(
            Remains(name, dict(state.last_ledger), state.last_ledger_settled, state.last_location)
            for name, state in pool.unbound.items()
            if state.last_ledger or state.last_location != ("", "")
        ),
        closed=pool.closed,
        in_doubt=pool.in_doubt,
        abandoned=pool.abandoned,
        excused=frozenset(name for name, known in pool.pods.items() if known.excused),
        unserved_shares={
            name: (known.unserved_shares, known.waiting_shares)
            for name, known in pool.pods.items()
            if known.unserved_shares
        },
        watched_sources=pool.watched_sources,
        next_start_ordinal=pool.next_start_ordinal,
        load=pool.load,
        patience=pool.patience.copy(),
        preemption_budget=budget.copy() if (budget := pool.preemption_budget) else None,
    )


def _restore(state: ClusterState, taken: PoolSnapshot) -> None:
    pool = state.pool(taken.key)
    pool.set_profile(taken.profile)
    pool.watched_sources = taken.watched_sources
    for remains in taken.remains:
        pool.recall(
            remains.pod_name,
            remains.last_ledger,
            settled=remains.last_ledger_settled,
            location=remains.last_location,
        )
    for obj in taken.objects:
        object_changed(state, None, obj)
    for one in taken.reservations:
        pool.reserve(one.owner, one.vpod, {one.pod_name: one.share}, expires_at=one.expires_at)
    pool.set_closed(taken.closed, in_doubt=taken.in_doubt)
    pool.set_abandoned(taken.abandoned)
    for name in taken.excused:
        pool.excuse(name)
    for name, (shares, waiting) in taken.unserved_shares.items():
        pool.set_unserved_shares(name, shares, waiting)
    pool.next_start_ordinal = taken.next_start_ordinal
    pool.load = taken.load
    pool.recall_preemption(taken.patience, taken.preemption_budget)
