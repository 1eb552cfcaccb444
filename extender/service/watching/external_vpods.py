"""``Callers``: the vpods whose callers keep their status themselves and ask ``POST /v1/schedule``,
as the leader remembers them.

Nobody watches what they publish. So what a caller has asked with and was answered counts as
published until it asks again; what it has not asked about since we lead is known by the ledgers
alone, and kept as it stands there. When another leads, all of it is forgotten: they ask that one,
and a pod that we bind must not bring back what it has taken away.

One that has given all back is remembered, too, until no bound pod holds any of it and no pod is
still to be bound that may bring some back, of whichever pool: what the last pod of an ordinal held
is carried by any replica that has seen it, and we may not be one of those.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Final

from extender.engine.state.external_vpods import may_exist_unseen
from extender.engine.state.pool_state import PoolState
from extender.model.bucket import Bucket
from extender.model.objects import VPod
from extender.service.watching.caches import Caches

GIVEN_BACK_MAX: Final = 10_000
"""While a pod is never bound; the oldest are forgotten."""


class ExternalVPods:
    """By vpod key. What they ask for is in the state of ``caches`` while it is remembered here."""

    def __init__(
        self, caches: Caches, *, forgotten: Callable[[str], None] = lambda _key: None
    ) -> None:
        """``forgotten``: told the key of a vpod that is not remembered any longer."""
        self._state = caches.state
        self._forgotten = forgotten
        self._vpods: dict[str, VPod] = {}
        self._given_back: dict[str, None] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._vpods

    def __iter__(self) -> Iterator[VPod]:
        return iter(self._vpods.values())

    def __len__(self) -> int:
        return len(self._vpods)

    def get(self, key: str) -> VPod | None:
        """What a caller has asked for."""
        return self._vpods.get(key)

    def ask(self, vpod: VPod) -> VPod | None:
        """A caller asks for that; what it has asked for before."""
        known = self._vpods.get(vpod.key)
        self._vpods[vpod.key] = vpod
        self._state.vpod_changed(known, vpod)
        return known

    def note_answer(self, vpod: VPod, covered: Mapping[str, int]) -> None:
        """It publishes what it has asked with, and from now on what it is answered: both have to
        stay covered (I2).
        """
        if self._vpods.get(vpod.key) is vpod:
            names = {*vpod.placements, *covered}
            published = {
                name: max(vpod.placements.get(name, 0), covered.get(name, 0)) for name in names
            }
            answered = self._vpods[vpod.key] = replace(vpod, placements=published)
            self._state.vpod_changed(vpod, answered)
        # Else another has led meanwhile, or is about to: ledgers speak for the caller until it asks
        # again.
        if vpod.key in self._vpods:
            self._given_back.pop(vpod.key, None)
            if not vpod.vreplicas:
                self._given_back[vpod.key] = None
        self.forget_given_back()

    def forget_given_back(self) -> None:
        """Those that have given all back, of which no pool holds anything nor may get it with a pod
        that is still to be bound.

        Any pool: a caller may have changed its own, and left something with a pod of the former one
        that was away.
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
            self._state.vpod_changed(self._vpods.pop(key), None)
            self._forgotten(key)

    def _is_held(self, key: str) -> bool:
        return any(pool.claims_of(key) for pool in self._state.pools.values())

    def others_holding(self, vpod: VPod) -> list[str]:
        """Keys of the pools besides its own that hold some of a caller's vpod."""
        return [
            key
            for key, pool in self._state.pools.items()
            if key != vpod.pool and pool.claims_of(vpod.key)
        ]

    def forget(self, bucket: Bucket) -> None:
        """What they have asked of us before another led says nothing any more: ledgers do, until
        they ask again.
        """
        for vpod in [vpod for vpod in self if bucket.has(vpod.pool)]:
            del self._vpods[vpod.key]
            self._given_back.pop(vpod.key, None)
            self._state.vpod_changed(vpod, None)
            self._forgotten(vpod.key)

    def speak_by_ledgers(self, pool_key: str, key: str) -> bool:
        """Whether a ledger's key belongs to a caller that has not asked since we lead: it is kept
        as it stands.
        """
        pool = self._state.pool(pool_key)
        return key not in pool.vpods and key not in self._vpods and may_exist_unseen(pool, key)


def _awaits_pods(pool: PoolState) -> bool:
    """Whether any of its ordinals has no bound pod."""
    ordinals = pool.stateful_set.ordinals if pool.stateful_set is not None else ()
    bound = (pool.by_ordinal.get(ordinal) for ordinal in ordinals)
    return any(state is None or not state.bound for state in bound)
