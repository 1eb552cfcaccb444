"""``UnservedShares``: the shares that adapters are told to serve and do not serve, although their
pods are Ready. Runs on every replica.

An adapter of a pool with ``spec.handoff`` acknowledges what it is told. Until it has acknowledged a
share, or while it calls the share busy, it does not serve it. That is usual for a moment. After
``prepareTimeoutSeconds`` it counts: the state is told (``PoolState.set_unserved_shares``), so the
statuses of vpods and pool say it, as of a pod that is not Ready. In ``Overlap``, a share that its
former pod still serves is served.

An acknowledgement names no share that is served, only those that are busy, and it may be of an
older assignment. So each share is noted with the generation in which this replica has first seen
what it is told now: this generation's acknowledgement, or a later one, tells about it. Until then,
and while it is busy, as many vreplicas are served as were before. What a replica sees at its start
counts as acknowledged, unless the adapter calls it busy.

An adapter that has never acknowledged does not know the contract. Its pod serves while it is Ready.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from extender.engine.pods.claims import PodClaims
from extender.engine.state.pool_state import PoolState
from extender.model.assignment import Acknowledged, AssignedShare, Assignment, ShareState
from extender.model.indexes import indexes_from
from extender.model.objects import AdapterPod
from extender.service.placing.handover_view import HandOverViews
from extender.service.watching.caches import Caches

LOOK_PERIOD_S: Final = 1.0


class _Share(NamedTuple):
    """What an adapter is told of a share since ``generation``. ``before``: the vreplicas that it
    served until then.
    """

    state: ShareState
    vreplicas: int
    indexes: str
    generation: int
    before: int

    def is_told_by(self, share: AssignedShare) -> bool:
        """Whether an adapter is told the same now."""
        now = share.state, share.vreplicas, share.indexes
        return (self.state, self.vreplicas, self.indexes) == now

    def kept_in(self, share: AssignedShare, served: int) -> int:
        """How many of ``served`` vreplicas go on with what is told now."""
        if not (self.indexes and share.indexes):
            return served
        return min(served, (indexes_from(self.indexes) & indexes_from(share.indexes)).bit_count())


@dataclass(slots=True)
class _PodShares:
    """What the adapter of one pod is told, by vpod, and has said. ``to_serve``: how many shares are
    told ``Serve``. ``said``: None if it has never said anything.
    """

    generation: int
    told: dict[str, _Share]
    to_serve: int
    said: Acknowledged | None
    unserved_since: dict[str, float] = field(default_factory=dict)
    """By vpod of which vreplicas are published here and not served."""
    seen: tuple[PodClaims | None, int] = (None, -1)
    """The pod's claims and their revision, when ``unserved_since`` was made."""

    def served(self, vpod: str) -> int:
        """How many vreplicas the adapter serves, as far as it has said so."""
        share = self.told.get(vpod)
        if share is None or self.said is None:
            return 0
        done = self.said.generation >= share.generation and not self._is_busy(vpod, self.said)
        if not done:
            return min(share.before, share.vreplicas)
        return _to_serve(share)

    def _is_busy(self, vpod: str, said: Acknowledged) -> bool:
        if said.all_busy:  # the names did not fit: perhaps those of drains only
            return said.serving < self.to_serve
        return said.is_busy(vpod)

    def unserved(self, vpod: str, published: int) -> int:
        """How many of the vreplicas that a vpod publishes here are not served."""
        return max(0, published - self.served(vpod)) if self.said is not None else 0

    def waiting(self, vpods: Iterable[str]) -> Iterator[str]:
        """Those of ``vpods`` of which the adapter is only told to get ready, or to serve fewer."""
        for vpod in vpods:
            share = self.told.get(vpod)
            if share is not None and self.served(vpod) >= _to_serve(share):
                yield vpod


def _to_serve(share: _Share) -> int:
    return share.vreplicas if share.state is ShareState.SERVE else 0


class UnservedShares:
    """``on_change``: called with a pool and the name of a pod of which other shares count as not
    served. ``clock``: seconds.
    """

    def __init__(
        self,
        caches: Caches,
        views: HandOverViews,
        *,
        on_change: Callable[[str, str], None],
        clock: Callable[[], float],
    ) -> None:
        self._state = caches.state
        self._views = views
        self._on_change = on_change
        self._clock = clock
        self._pods: dict[str, dict[str, _PodShares]] = {}
        """By pool and pod name; only pods that have an assignment."""
        self._unserved: Counter[str] = Counter()
        """Pool -> vreplicas, at the last look."""
        caches.pods.add_event_handler(self._pod_changed)

    def vreplicas(self, pool: str) -> int:
        """How many vreplicas of a pool are published on pods that are Ready, and served nowhere."""
        return self._unserved[pool]

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(LOOK_PERIOD_S)
            self.look()

    def look(self) -> None:
        """See what has not been served for too long, and what is served again."""
        now = self._clock()
        self._unserved.clear()
        for key, pods in self._pods.items():
            pool = self._state.pools.get(key)
            if pool is None:
                continue
            unserved = Counter[str]()
            for name, shares in pods.items():
                claims = pool.pods.get(name)
                seen = claims, claims.revision if claims is not None else 0
                if shares.seen != seen:
                    shares.seen = seen
                    _note_unserved(claims, shares, now)
                for vpod in shares.unserved_since:
                    unserved[vpod] += _unserved_on(pool, name, shares, vpod)
            left = {
                vpod: more
                for vpod, count in unserved.items()
                if (more := count - self._on_former_pods(pool, vpod)) > 0
            }
            self._unserved[key] = sum(left.values())
            for name, shares in pods.items():
                self._tell(pool, name, _overdue(pool, name, shares, left, now))

    def _on_former_pods(self, pool: PoolState, vpod: str) -> int:
        """How many vreplicas are still served on pods that do not publish them any more."""
        pods = self._pods[pool.key]
        return sum(
            min(claim.ledger.vreplicas, pods[name].served(vpod)) - claim.published
            for name, claim in pool.claims_of(vpod).items()
            if claim.ledger.vreplicas > claim.published
            and pool.pods[name].serving
            and name in pods
            and pods[name].served(vpod) > claim.published
        )

    def _tell(self, pool: PoolState, name: str, shares: Mapping[str, int]) -> None:
        known, told = pool.pods.get(name), self._pods.get(pool.key, {}).get(name)
        waiting = frozenset(told.waiting(shares)) if told is not None else frozenset()
        if known is None or (known.unserved_shares, known.waiting_shares) == (shares, waiting):
            return
        pool.set_unserved_shares(name, shares, waiting)
        self._on_change(pool.key, name)

    def _pod_changed(self, old: AdapterPod | None, new: AdapterPod | None) -> None:
        if old is not None and (new is None or (old.uid, old.pool) != (new.uid, new.pool)):
            self._forget(old)
            old = None
        if new is None or (old is not None and _words(old) == _words(new)):
            return
        adapter = self._views.adapter(new)
        if adapter.assignment is None:
            self._forget(new)
            return
        pods = self._pods.setdefault(new.pool, {})
        pods[new.name] = _as_told(adapter.assignment, adapter.acknowledged, pods.get(new.name))

    def _forget(self, pod: AdapterPod) -> None:
        pods = self._pods.get(pod.pool, {})
        if pods.pop(pod.name, None) is None:
            return
        if not pods:
            del self._pods[pod.pool]
        if (pool := self._state.pools.get(pod.pool)) is not None:
            self._tell(pool, pod.name, {})


def _words(pod: AdapterPod) -> tuple[str | None, str | None]:
    return pod.assignment_text, pod.acknowledged_text


def _as_told(
    assignment: Assignment, said: Acknowledged | None, before: _PodShares | None
) -> _PodShares:
    """What an adapter is told now, each share with the generation since which it is told."""
    told: dict[str, _Share] = {}
    is_new = before is not None and before.generation != assignment.generation
    for vpod, share in assignment.shares.items():
        known = before.told.get(vpod) if before is not None else None
        since, served = 0, 0
        if before is not None:
            since, served = assignment.generation, before.served(vpod)
        if known is not None and known.is_told_by(share):
            # It may be busy with something else of the same share, such as ``of``.
            told[vpod] = known._replace(before=served) if is_new else known
            continue
        if known is not None:
            served = known.kept_in(share, served)
        told[vpod] = _Share(share.state, share.vreplicas, share.indexes, since, served)
    to_serve = sum(share.state is ShareState.SERVE for share in told.values())
    unserved_since = before.unserved_since if before is not None else {}
    return _PodShares(assignment.generation, told, to_serve, said, unserved_since)


def _note_unserved(known: PodClaims | None, shares: _PodShares, now: float) -> None:
    """Note since when each vpod has vreplicas that are published on a pod that is Ready, and not
    served.
    """
    before = shares.unserved_since
    shares.unserved_since = {}
    if known is None or not known.serving:
        return  # then nothing on it is served, and the state knows it
    for vpod, claim in known.claims.items():
        if claim.published and shares.unserved(vpod, claim.published):
            shares.unserved_since[vpod] = before.get(vpod, now)


def _unserved_on(pool: PoolState, name: str, shares: _PodShares, vpod: str) -> int:
    return shares.unserved(vpod, pool.pods[name].claims[vpod].published)


def _overdue(
    pool: PoolState, name: str, shares: _PodShares, left: Mapping[str, int], now: float
) -> dict[str, int]:
    """The vreplicas (by vpod) that have not been served on a pod for too long, of those that nobody
    serves (``left``).
    """
    handoff = pool.adapter_pool.handoff if pool.adapter_pool is not None else None
    if handoff is None:
        return {}
    return {
        vpod: min(left[vpod], _unserved_on(pool, name, shares, vpod))
        for vpod, since in shares.unserved_since.items()
        if vpod in left and now - since >= handoff.prepare_timeout_s
    }
