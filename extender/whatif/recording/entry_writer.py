"""``EntryWriter``: a ``StateObserver`` that makes entries of changes. Also writes a whole state as
entries. Pure.

An entry is made when it is needed. Until then it is a few references to objects that never change.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from extender.engine.placing.plan import Decision
from extender.engine.state.cluster_state import ClusterState
from extender.engine.state.state_observer import Recorded
from extender.model.ledger import Share
from extender.model.moves import Move
from extender.whatif.recording.entries import (
    Abandon,
    Cause,
    Close,
    Entry,
    EntryContent,
    Expire,
    Forget,
    Put,
    Release,
    Reserve,
    decided,
    entry_of_change,
)

MakeEntry: TypeAlias = Callable[[float, int], Entry | None]
"""(epoch seconds, number) -> the entry; None if nothing that is recorded has changed."""


class EntryWriter:
    """Passes each change to ``keep``, in order."""

    def __init__(self, keep: Callable[[MakeEntry], None]) -> None:
        self._keep = keep

    def changed(self, old: Recorded | None, new: Recorded | None) -> None:
        """See StateObserver."""
        self._keep(lambda at, seq: entry_of_change(at, seq, old, new))

    def reserved(
        self, pool: str, owner: object, vpod: str, shares: Mapping[str, Share], expires_at: float
    ) -> None:
        """See StateObserver."""
        self._keep_content(Reserve(pool, vpod, _name_of(owner), dict(shares), expires_at))

    def released(self, pool: str, owner: object, vpod: str) -> None:
        """See StateObserver."""
        self._keep_content(Release(pool, vpod, _name_of(owner)))

    def expired(self, now: float) -> None:
        """See StateObserver."""
        self._keep_content(Expire(now))

    def forgotten(self, pods: Sequence[str]) -> None:
        """See StateObserver."""
        self._keep_content(Forget(tuple(pods)))

    def closed(self, pool: str, ordinals: int, in_doubt: int) -> None:
        """See StateObserver."""
        self._keep_content(Close(pool, ordinals, in_doubt))

    def abandoned(self, pool: str, pods: frozenset[str]) -> None:
        """See StateObserver."""
        self._keep_content(Abandon(pool, pods))

    def decided(self, cause: Cause, decision: Decision, asked: Sequence[Move] = ()) -> None:
        """The placer has decided, and will reserve this decision next. ``asked``: the moves that it
        carries out.
        """
        moves = tuple(asked)
        self._keep(lambda at, seq: Entry(at, seq, decided(cause, decision, moves)))

    def _keep_content(self, content: EntryContent) -> None:
        self._keep(lambda at, seq: Entry(at, seq, content))


def snapshot_of(state: ClusterState) -> Iterator[EntryContent]:
    """Everything that a decision on this state looks at, as entries that build it in an empty
    state.
    """
    yield from (Put(node) for node in state.nodes.values())
    yield from (Put(namespace) for namespace in state.namespaces.values())
    yield from (Put(stateful_set) for stateful_set in state.stateful_sets.values())
    pools = list(state.pools.values())
    yield from (Put(pool.adapter_pool) for pool in pools if pool.adapter_pool is not None)
    for quotas in state.quotas.values():
        yield from map(Put, quotas.values())
    for pool in pools:
        yield from (Put(pod.pod) for pod in pool.pods.values() if pod.pod is not None)
        yield from map(Put, pool.unowned_pods.values())
        yield from (Put(vpod) for vpod in pool.vpods.values())
        for vpod, claims in pool.claims_by_vpod.items():
            for name, claim in claims.items():
                if claim.reserved is not None:
                    shares = {name: claim.reserved}
                    yield Reserve(pool.key, vpod, _name_of(claim.owner), shares, claim.expires_at)
        if pool.closed:
            yield Close(pool.key, pool.closed, pool.in_doubt)
        if pool.abandoned:
            yield Abandon(pool.key, pool.abandoned)


def _name_of(owner: object) -> str:
    return ":".join(str(part) for part in owner) if isinstance(owner, tuple) else str(owner)
