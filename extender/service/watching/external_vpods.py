"""``ExternalVPods``: the vpods of callers of ``POST /v1/schedule``, who keep the status themselves,
as the leader remembers them.

Nobody watches what callers publish. So the placements in a caller's request and in the reply count
as published until it asks again. For a caller that has not asked this leader yet, the ledgers alone
say what it has, and they are kept as they are. When another replica leads, everything is forgotten:
callers then ask that one, and a pod that this replica binds must not bring back what the other has
taken away.

A vpod that has given everything back is remembered too, until no bound pod of any pool holds any of
it and no ordinal waits for a pod that may bring some back. Another replica may bind such a pod, and
give it what the ordinal's last pod held.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Final

from extender.engine.state.external_vpods import may_exist_unseen
from extender.engine.state.pool_state import PoolState
from extender.model.bucket import Bucket
from extender.model.errors import VReplicaError
from extender.model.objects import VPod
from extender.model.resource_versions import parse_version
from extender.service.watching.caches import Caches

GIVEN_BACK_MAX: Final = 10_000
"""While a pod may come back (``_awaits_pods``). Beyond this, the oldest are forgotten."""


class StaleVPod(VReplicaError):
    """A request has an older version of its object than the request before."""


class ExternalVPods:
    """Vpods of callers, by key. While remembered here, each is in the state of ``caches`` too."""

    def __init__(
        self, caches: Caches, *, forgotten: Callable[[str], None] = lambda _key: None
    ) -> None:
        """``forgotten``: called with the key of each vpod that is forgotten."""
        self._state = caches.state
        self._forgotten = forgotten
        self.on_changed: Callable[[VPod | None, VPod | None], None] = lambda _old, _new: None
        """Called after each change, as handlers of the cache of vpods are."""
        self._vpods: dict[str, VPod] = {}
        self._given_back: dict[str, None] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._vpods

    def __iter__(self) -> Iterator[VPod]:
        return iter(self._vpods.values())

    def __len__(self) -> int:
        return len(self._vpods)

    def _changed(self, old: VPod | None, new: VPod | None) -> None:
        self._state.vpod_changed(old, new)
        self.on_changed(old, new)

    def get(self, key: str) -> VPod | None:
        """The vpod as its caller last asked, with what counts as published."""
        return self._vpods.get(key)

    def ask(self, vpod: VPod) -> VPod | None:
        """Remember a caller's request. Return the one before.

        Raises StaleVPod if that one had a newer version of the object. Requests without a version
        are not compared.
        """
        known = self._vpods.get(vpod.key)
        if known is not None and _is_older(vpod, known):
            raise StaleVPod(
                f"vpod {vpod.key} was scheduled with resourceVersion {known.resource_version}, and "
                f"{vpod.resource_version} is older: read the object again"
            )
        self._vpods[vpod.key] = vpod
        self._changed(known, vpod)
        return known

    def note_answer(self, vpod: VPod, covered: Mapping[str, int]) -> None:
        """The caller publishes what it asked with, and soon what it was answered: both must stay
        covered (I2).
        """
        if self._vpods.get(vpod.key) is vpod:
            names = {*vpod.placements, *covered}
            published = {
                name: max(vpod.placements.get(name, 0), covered.get(name, 0)) for name in names
            }
            answered = self._vpods[vpod.key] = replace(vpod, placements=published)
            self._changed(vpod, answered)
        # Otherwise another replica has led meanwhile: the ledgers say what the caller has until it
        # asks again.
        if vpod.key in self._vpods:
            self._given_back.pop(vpod.key, None)
            if not vpod.vreplicas:
                self._given_back[vpod.key] = None
        self.forget_given_back()

    def forget_given_back(self) -> None:
        """Forget vpods that have given everything back, unless a pool holds some of it or may get
        some with a pod that is still to be bound.

        All pools count: a caller may have changed its pool, and left something on an absent pod of
        the former one.
        """
        if not self._given_back:
            return
        kept = (
            GIVEN_BACK_MAX if any(_awaits_pods(pool) for pool in self._state.pools.values()) else 0
        )
        too_many = len(self._given_back) - kept
        if too_many <= 0:
            return
        gone = (key for key in self._given_back if not self._is_held(key))
        for key in list(islice(gone, too_many)):
            del self._given_back[key]
            self._changed(self._vpods.pop(key), None)
            self._forgotten(key)

    def _is_held(self, key: str) -> bool:
        return any(pool.claims_of(key) for pool in self._state.pools.values())

    def others_holding(self, vpod: VPod) -> list[str]:
        """Keys of the other pools that hold some of a caller's vpod."""
        return [
            key
            for key, pool in self._state.pools.items()
            if key != vpod.pool and pool.claims_of(vpod.key)
        ]

    def forget(self, bucket: Bucket) -> None:
        """Another replica has led the bucket: forget the requests. The ledgers say what callers
        have until they ask again.
        """
        for vpod in [vpod for vpod in self if bucket.has(vpod.pool)]:
            del self._vpods[vpod.key]
            self._given_back.pop(vpod.key, None)
            self._changed(vpod, None)
            self._forgotten(vpod.key)

    def may_belong_to_unknown_caller(self, pool_key: str, key: str) -> bool:
        """Whether the vpod of a ledger's key may belong to a caller that has not asked this leader
        yet. Then the ledger is kept as it is.
        """
        pool = self._state.pool(pool_key)
        return key not in pool.vpods and key not in self._vpods and may_exist_unseen(pool, key)


def _is_older(vpod: VPod, known: VPod) -> bool:
    here, there = parse_version(vpod.resource_version), parse_version(known.resource_version)
    return here is not None and there is not None and here < there


def _awaits_pods(pool: PoolState) -> bool:
    """Whether an ordinal of the pool has no bound pod, or one that the pool no longer has could
    come back with what its last pod held.
    """
    ordinals = pool.stateful_set.ordinals if pool.stateful_set is not None else ()
    bound = (pool.by_ordinal.get(ordinal) for ordinal in ordinals)
    return any(state is None or not state.bound for state in bound) or any(
        state.last_ledger for state in pool.unbound.values()
    )
