"""``ExternalVPods``: the vpods of callers of ``POST /v1/schedule``, who keep the status themselves,
as the leader remembers them.

Nobody watches what callers publish. So the placements in a caller's request and in the reply count
as published until it asks again. For a caller that has not asked this leader yet, the ledgers alone
say what it has, and they are kept as they are. When another replica leads, everything is forgotten:
callers then ask that one, and a pod that this replica binds must not bring back what the other has
taken away.

An object that a source with ``writeStatus: false`` shows may be asked about too. Then the newer of
the two, the request or the object, says what it wants. What it publishes is the larger of both: the
object may have changed after the answer and before its caller published it. Once the object shows
just what was answered, only that counts. ``ExternalVPods`` alone passes vpods on to the state, so
that neither undoes the other.

A vpod that has given everything back is remembered too, until no bound pod of any pool holds any of
it and no ordinal waits for a pod that may bring some back. Another replica may bind such a pod, and
give it what the ordinal's last pod held.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Final

from extender.engine.cache.caches import VPodAssumeCache
from extender.engine.state.cluster_state import ClusterState
from extender.engine.state.external_vpods import may_exist_unseen
from extender.engine.state.pool_state import PoolState
from extender.model.bucket import Bucket
from extender.model.errors import VReplicaError
from extender.model.foreign_kinds import is_caller_kept
from extender.model.objects import VPod
from extender.model.resource_versions import parse_version

GIVEN_BACK_MAX: Final = 10_000
"""While a pod may come back (``_awaits_pods``). Beyond this, the oldest are forgotten."""


class StaleVPod(VReplicaError):
    """A request has an older version of its object than the request before."""


class ExternalVPods:
    """Vpods of callers, by key. While remembered here, each is in ``state`` too. The vpods of
    ``watched`` are passed on to it.
    """

    def __init__(self, state: ClusterState, watched: VPodAssumeCache) -> None:
        self._state = state
        self._watched = watched
        self.on_forgotten: Callable[[str], None] = lambda _key: None
        """Called with the key of each vpod that is forgotten."""
        self.on_changed: Callable[[VPod | None, VPod | None], None] = lambda _old, _new: None
        """Called after each change, as handlers of the cache of vpods are."""
        self._vpods: dict[str, VPod] = {}
        self._answers: dict[str, Mapping[str, int]] = {}
        """Pod name -> vreplicas, as the caller was last answered."""
        self._given_back: dict[str, None] = {}
        watched.add_event_handler(self._watched_changed)

    def __contains__(self, key: str) -> bool:
        return key in self._vpods

    def __iter__(self) -> Iterator[VPod]:
        return iter(self._vpods.values())

    def __len__(self) -> int:
        return len(self._vpods)

    def _watched_changed(self, old: VPod | None, new: VPod | None) -> None:
        known = new or old
        asked = self._vpods.get(known.key) if known is not None else None
        if asked is None:
            self._state.vpod_changed(old, new)
            return
        if new is None:
            pool = self._state.pools.get(asked.pool)
            if not is_caller_kept(pool.adapter_pool if pool is not None else None, asked.key):
                self._drop(asked.key)
            # Otherwise the pool no longer declares the kind. Its caller keeps the object.
        elif new.placements == self._answers.get(new.key):
            asked = self._vpods[new.key] = replace(asked, placements=new.placements)
        self._count(asked.key, [vpod.pool for vpod in (old, new, asked) if vpod is not None], new)

    def _changed(self, old: VPod | None, new: VPod | None) -> None:
        known = new or old
        if known is not None:
            self._count(known.key, [vpod.pool for vpod in (old, new) if vpod is not None], new)

    def _count(self, key: str, pools: Iterable[str], newest: VPod | None) -> None:
        """Bring the state of these pools up to date. ``newest``: what has changed."""
        for name in dict.fromkeys(pools):
            pool = self._state.pools.get(name)
            before = pool.vpods.get(key) if pool is not None else None
            there = [
                vpod
                for vpod in (newest, self._watched.latest(key), self._vpods.get(key))
                if vpod is not None and vpod.pool == name
            ]
            after = _publishing_all(there) if there else None
            self._state.vpod_changed(before, after)
            self.on_changed(before, after)

    def _drop(self, key: str) -> None:
        del self._vpods[key]
        self._answers.pop(key, None)
        self._given_back.pop(key, None)
        self.on_forgotten(key)

    def as_watched(self, key: str) -> VPod | None:
        """A caller's vpod as the object that is watched says, and with what counts as published.
        None if it is not watched in the pool for which its caller asks.
        """
        watched, asked = self._watched.latest(key), self._vpods.get(key)
        if watched is None or asked is None or watched.pool != asked.pool:
            return None
        return _publishing_all([watched, asked])

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
        self._answers.pop(vpod.key, None)
        self._given_back.pop(vpod.key, None)
        self._changed(known, vpod)
        return known

    def note_answer(self, vpod: VPod, covered: Mapping[str, int]) -> None:
        """The caller publishes what it asked with, and soon what it was answered: both must stay
        covered (I2).
        """
        if self._vpods.get(vpod.key) is vpod:
            self._answers[vpod.key] = covered
            answered = _publishing_all([vpod, replace(vpod, placements=covered)])
            self._vpods[vpod.key] = answered
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
            self._forget(key)

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
            self._forget(vpod.key)

    def _forget(self, key: str) -> None:
        asked = self._vpods[key]
        self._drop(key)
        self._changed(asked, None)

    def may_belong_to_unknown_caller(self, pool_key: str, key: str) -> bool:
        """Whether the vpod of a ledger's key may belong to a caller that has not asked this leader
        yet. Then the ledger is kept as it is.
        """
        pool = self._state.pool(pool_key)
        return key not in pool.vpods and key not in self._vpods and may_exist_unseen(pool, key)


def _publishing_all(forms: list[VPod]) -> VPod:
    """Return the first form of a vpod, with the most that any of them publishes on each pod."""
    published: dict[str, int] = {}
    for form in forms:
        for name, count in form.placements.items():
            published[name] = max(count, published.get(name, 0))
    first = forms[0]
    return first if first.placements == published else replace(first, placements=published)


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
