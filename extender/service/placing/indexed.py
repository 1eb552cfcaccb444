"""``IndexedShares``: which indexes of a vpod a pod is told, in pools with ``handoff.identity:
Indexed``. ``engine.placing.indexes`` has the rules.

Every replica follows what the pods are told. A pod that is gone is remembered with its indexes
until its ordinal is back and is told anew: they come back with it. If all replicas start anew while
several pods are gone, these may get each other's indexes.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from extender.engine.placing.handover import Adapter
from extender.engine.placing.indexes import indexes_at_rest, told_next
from extender.engine.pods.claims import Claim
from extender.engine.state.pool_state import PoolState
from extender.model.assignment import (
    AssignedShare,
    Assignment,
    ShareInstruction,
    ShareState,
    decode_assignment,
)
from extender.model.indexes import indexes_from
from extender.model.objects import AdapterPod, AdapterPool, VPod, placement_order
from extender.service.watching.caches import Caches


class _Told(NamedTuple):
    """What a pod is told of a vpod."""

    indexes: int
    epoch: int
    state: ShareState


_NOTHING: Final = _Told(0, 0, ShareState.SERVE)
_ORDER: Final = {state: rank for rank, state in enumerate(("Serve", "Drain", "Prepare"))}
"""Of pods that are told the same index: whose it stays, if it moves no more. Of two that serve, it
stays with the lower epoch. That pod was told of it first, and the other one perhaps does not serve
it yet.
"""


class IndexedShares:
    """``adapter_of`` reads a pod's annotations. ``request_assignment`` has the assignments of a
    vpod's pods made anew.
    """

    def __init__(
        self,
        caches: Caches,
        *,
        adapter_of: Callable[[AdapterPod], Adapter],
        request_assignment: Callable[[str, str], None],
    ) -> None:
        self._caches = caches
        self._adapter_of = adapter_of
        self._request_assignment = request_assignment
        self._asked: dict[str, Assignment] = {}
        """UID of a pod -> the assignment that is being written."""
        self._gone: dict[str, dict[str, dict[str, AssignedShare]]] = {}
        """Pool -> pod name -> what the ordinal's last pod was told of vpods that still name it,
        until the next one is told anything.
        """
        self._seen: dict[str, Mapping[str, AssignedShare]] = {}
        """UID of a pod -> what it was told when it was last looked at."""
        caches.pools.add_event_handler(self._pool_changed)
        caches.pods.add_event_handler(self._pod_changed)
        caches.vpods.add_event_handler(self._vpod_changed)

    # -- what is told ------------------------------------------------------------------------------

    def numbered(
        self,
        pod: AdapterPod,
        vpod: str,
        current: AssignedShare | None,
        instruction: ShareInstruction,
    ) -> ShareInstruction:
        """``instruction`` with the indexes that go with it. ``current``: what it is told now."""
        state = self._caches.state.pools.get(pod.pool)
        if state is None or not self._is_indexed(pod.pool):
            return instruction
        told = dict(self._told(state, vpod))
        at_rest = _at_rest(state, vpod, told)
        before = indexes_from(current.indexes) if current is not None else 0
        count = pod.ledger[vpod].vreplicas if vpod in pod.ledger else 0
        indexes = told_next(before, at_rest.get(pod.name, 0), count)
        if not indexes and current is not None and not current.indexes:
            return instruction  # the pool has got indexes meanwhile; this share leaves without any
        # An index may come back before it has left: its pod needs a greater epoch than the other.
        back = before & at_rest.get(pod.name, 0)
        epochs = (
            one.epoch for name, one in told.items() if name != pod.name and one.indexes & back
        )
        return instruction._replace(
            vreplicas=indexes.bit_count(),
            indexes=indexes,
            epoch_over=max(epochs, default=0) if instruction.state is not ShareState.DRAIN else 0,
            of=max(one.bit_length() for one in (indexes, *at_rest.values())),
        )

    def asked(self, pod: AdapterPod, assignment: Assignment) -> None:
        """``assignment`` is about to be written. It counts as told until it is ``answered``."""
        if self._is_indexed(pod.pool):
            self._asked[pod.uid] = assignment

    def answered(self, pod: AdapterPod) -> None:
        """The write is over. If it has been stored, the caches have it."""
        self._asked.pop(pod.uid, None)

    def told(self, pool: str, vpod: str) -> Mapping[str, int]:
        """Pod name -> the indexes that it is told; empty in a pool without indexes."""
        state = self._caches.state.pools.get(pool)
        if state is None or not self._is_indexed(pool):
            return {}
        return {name: one.indexes for name, one in self._told(state, vpod)}

    def behind(self, state: PoolState, vpod: str) -> list[str]:
        """Names of the pods that are not told of all their indexes yet."""
        if not self._is_indexed(state.key):
            return []
        at_rest = _at_rest(state, vpod, dict(self._told(state, vpod)))
        stored = dict(self._told(state, vpod, asked=False))
        return [
            name
            for name, indexes in at_rest.items()
            if indexes & ~stored.get(name, _NOTHING).indexes
        ]

    def taking_over(self, state: PoolState, vpod: str) -> frozenset[str]:
        """Names of the pods that get, or keep, an index which another pod is told, too. A pod may
        get one without more vreplicas than before, for another index (seed 590001285).
        """
        if not self._is_indexed(state.key):
            return frozenset()
        told = dict(self._told(state, vpod))
        return frozenset(
            name
            for name, indexes in _at_rest(state, vpod, told).items()
            if any(one.indexes & indexes for other, one in told.items() if other != name)
        )

    def _is_indexed(self, pool: str) -> bool:
        known = self._caches.pools.get(pool)
        return known is not None and known.is_indexed

    def _told(
        self, state: PoolState, vpod: str, *, asked: bool = True
    ) -> Iterator[tuple[str, _Told]]:
        """What each pod is told of a vpod, by name. ``asked``: also what is being written."""
        for name in state.claims_of(vpod):
            share = self._shares(state, name, asked=asked).get(vpod)
            if share is not None:
                yield name, _Told(indexes_from(share.indexes), share.epoch, share.state)

    def _shares(self, state: PoolState, name: str, *, asked: bool) -> Mapping[str, AssignedShare]:
        pod = state.pods[name].pod
        if pod is not None:
            told = self._asked.get(pod.uid) if asked else None
            told = told or self._adapter_of(pod).assignment
            if told is not None:
                return told.shares
        return self._gone.get(state.key, {}).get(name, {})

    # -- what is seen ------------------------------------------------------------------------------

    def _pool_changed(self, _old: AdapterPool | None, _new: AdapterPool | None) -> None:
        for pool in [pool for pool in self._gone if not self._is_indexed(pool)]:
            del self._gone[pool]

    def _pod_changed(self, old: AdapterPod | None, new: AdapterPod | None) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            self._pod_gone(old)
            old = None
        if new is None:
            return
        if not self._is_indexed(new.pool):
            self._seen.pop(new.uid, None)
            return
        told = self._adapter_of(new).assignment
        if told is None or (old is not None and old.assignment_text == new.assignment_text):
            return
        self._gone.get(new.pool, {}).pop(new.name, None)
        if (state := self._caches.state.pools.get(new.pool)) is None:
            return
        before = self._seen.get(new.uid, {})
        self._seen[new.uid] = told.shares
        for vpod, share in told.shares.items():
            if vpod in before and before[vpod].indexes == share.indexes:
                continue
            indexes = indexes_from(share.indexes)
            others = (one for name, one in self._told(state, vpod) if name != new.name)
            if any(one.indexes & indexes for one in others):
                self._request_assignment(new.pool, vpod)

    def _pod_gone(self, pod: AdapterPod) -> None:
        self._seen.pop(pod.uid, None)
        told = decode_assignment(pod.assignment_text, pod.uid)
        state = self._caches.state.pools.get(pod.pool)
        if told is None or state is None or not self._is_indexed(pod.pool):
            return
        self._gone.setdefault(pod.pool, {})[pod.name] = {
            vpod: share
            for vpod, share in told.shares.items()
            if (claim := state.claims_of(vpod).get(pod.name)) is not None and claim.published
        }

    def _vpod_changed(self, old: VPod | None, new: VPod | None) -> None:
        """Forget what is not where it was: other pods may have its indexes since."""
        for vpod in (old, new):
            if vpod is None or (gone := self._gone.get(vpod.pool)) is None:
                continue
            kept = new.placements if new is not None and new.pool == vpod.pool else {}
            for name, shares in list(gone.items()):
                if name not in kept:
                    shares.pop(vpod.key, None)
                if not shares:
                    del gone[name]


def _at_rest(state: PoolState, vpod: str, told: Mapping[str, _Told]) -> dict[str, int]:
    known = state.vpods.get(vpod)
    first = sorted(
        told, key=lambda name: (_ORDER[told[name].state], told[name].epoch, placement_order(name))
    )
    return indexes_at_rest(
        {name: told[name].indexes for name in first},
        {name: _placed(claim) for name, claim in state.claims_of(vpod).items()},
        known.asked if known is not None else 0,
    )


def _placed(claim: Claim) -> int:
    """What a decision has placed. What only a ledger has is left over from one that was lost: it
    gets no index before the vpod is decided anew.
    """
    return claim.reserved.vreplicas if claim.reserved is not None else claim.published
