"""Hand-over of shares from adapter to adapter (``spec.handoff``): what a move waits for, and what
each adapter is told meanwhile. Pure. This is ``mode: Overlap``; ``holders`` has what is different
with ``mode: Exclusive``, and ``indexes`` which vreplicas a pod has. ``service.placing.handovers``,
``exclusive`` and ``indexed`` are what the leader remembers of each.

A move of a vpod's vreplicas from pod A to pod B goes through what is stored, so the next leader can
tell how far it has come:

.. code-block:: text

    written                  A is told   B is told   the next write waits
    B's ledger               Serve       Prepare     until B is prepared
    the vpod's status: B     Serve       Serve       until B serves
    A's assignment           Drain       Serve       until A has let go, or its deadline
    A's ledger

So somebody serves at every moment. ``withheld`` says what the status waits for, ``unserving`` what
A's ``Drain`` waits for, and ``retains`` what A's ledger waits for. What a vpod gives up because it
shrinks or goes is drained in the same way.

An adapter that loses a share is waited for only if it acknowledges: one that has never done so does
not know the contract (docs/adapters.md). A pod that does not serve has nothing to hand over. Their
shares go at once. A new adapter is waited for anyway, until the time-out: it cannot have said
anything yet.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from extender.engine.pods.claims import PodClaims
from extender.engine.state.pool_state import PoolState
from extender.model.assignment import (
    Acknowledged,
    AssignedShare,
    Assignment,
    ShareInstruction,
    ShareState,
)
from extender.model.eviction import VOLUNTARY_DISRUPTIONS
from extender.model.moves import MoveReason
from extender.model.timestamps import epoch_s


class Adapter(NamedTuple):
    """What a pod's adapter is told, and what it has said of that."""

    assignment: Assignment | None = None
    acknowledged: Acknowledged | None = None
    left_out: frozenset[str] = frozenset()
    """The vpods for which the assignment has no room (``AssignmentTooLarge``)."""

    def share_of(self, vpod: str) -> AssignedShare | None:
        """The vpod's share here."""
        return self.assignment.shares.get(vpod) if self.assignment is not None else None

    def is_left_out(self, vpod: str) -> bool:
        """Whether the adapter cannot be told of the vpod. It is not waited for."""
        return vpod in self.left_out

    def has_done(self, vpod: str) -> bool:
        """Whether the adapter has done what the newest assignment asks for this vpod."""
        said = self._newest()
        return said is not None and not said.is_busy(vpod)

    def is_busy(self, vpod: str) -> bool:
        """Whether the adapter has said that it has not done that yet."""
        said = self._newest()
        return said is not None and said.is_busy(vpod)

    def _newest(self) -> Acknowledged | None:
        """The acknowledgement, if it is of the newest assignment."""
        told, said = self.assignment, self.acknowledged
        current = told is not None and said is not None and said.generation == told.generation
        return said if current else None

    @property
    def needs_lease(self) -> bool:
        """Whether its pool is exclusive."""
        return self.assignment is not None and self.assignment.lease_s > 0

    def knows_newest(self) -> bool:
        """Whether the adapter has acknowledged the newest assignment."""
        return self._newest() is not None

    def is_prepared(self, vpod: str, vreplicas: int) -> bool:
        """Whether it is ready to serve so many vreplicas of the vpod, or serves them. With a lease,
        one that serves some is told of more only once it may serve them.
        """
        told = self.share_of(vpod)
        if told is None or told.state is ShareState.DRAIN or not self.has_done(vpod):
            return False
        limited_by_lease = self.needs_lease and told.state is ShareState.SERVE
        return limited_by_lease or told.vreplicas >= vreplicas

    def serves(self, vpod: str) -> bool:
        """Whether it serves the vpod, as it has said of its newest assignment."""
        told = self.share_of(vpod)
        return told is not None and told.state is ShareState.SERVE and self.has_done(vpod)

    def may_serve(self, vpod: str) -> bool:
        """Whether it may serve the vpod: it was told to, and has not let go. What is busy may be
        served with fewer vreplicas than it is told now.
        """
        told = self.share_of(vpod)
        if told is None or self.acknowledged is None or told.state is ShareState.PREPARE:
            return False
        return told.state is ShareState.SERVE or not self.has_done(vpod)


Adapters = Callable[[str], Adapter]
"""Pod name -> its adapter."""


def still_served_on_old_pods(
    pool: PoolState, vpod: str, target: Mapping[str, int], adapters: Adapters
) -> dict[str, int]:
    """Pod name -> vreplicas that are published and served there, and that ``target`` has not."""
    return {
        name: claim.published - target.get(name, 0)
        for name, claim in pool.claims_of(vpod).items()
        if claim.published > target.get(name, 0)
        and pool.pods[name].serving
        and adapters(name).may_serve(vpod)
    }


def withheld(
    pool: PoolState, vpod: str, target: Mapping[str, int], adapters: Adapters
) -> dict[str, int]:
    """Pod name -> vreplicas of ``target`` that may not be published yet, because as many leave pods
    that serve them, and an adapter that gets some is not prepared.

    All of them wait for the last one, so a vpod moves once.
    """
    gone = sum(still_served_on_old_pods(pool, vpod, target, adapters).values())
    if not gone:
        return {}
    claims = pool.claims_of(vpod)
    more = {
        name: count - claims[name].published
        for name, count in target.items()
        if count > claims[name].published
    }
    unready = [
        name for name in more if not _may_take(pool.pods[name], adapters, vpod, target[name])
    ]
    if not unready:
        return {}
    held: dict[str, int] = {}
    for name in (*unready, *(name for name in more if name not in unready)):
        if gone > 0:
            held[name] = min(more[name], gone)
            gone -= held[name]
    return held


def unprepared(
    pool: PoolState, vpod: str, target: Mapping[str, int], adapters: Adapters
) -> list[str]:
    """Names of the pods whose adapters ``withheld`` waits for."""
    held = withheld(pool, vpod, target, adapters)
    return [name for name in held if not _may_take(pool.pods[name], adapters, vpod, target[name])]


def _may_take(pod: PodClaims, adapters: Adapters, vpod: str, vreplicas: int) -> bool:
    """Whether a pod can take over. One that is not Ready cannot, whatever its adapter has said."""
    adapter = adapters(pod.name)
    return pod.serving and (adapter.is_prepared(vpod, vreplicas) or adapter.is_left_out(vpod))


def unserving(pool: PoolState, vpod: str, adapters: Adapters) -> list[str]:
    """Names of the pods that the vpod publishes and that do not serve it, except for those without
    the contract. It is taken over once there are none.
    """
    return [
        name
        for name in published_on(pool, vpod)
        if not pool.pods[name].serving or _does_not_serve(adapters(name), vpod)
    ]


def _does_not_serve(adapter: Adapter, vpod: str) -> bool:
    """Whether an adapter that knows the contract does not serve a vpod that it can be told of."""
    knows = adapter.acknowledged is not None
    return knows and not (adapter.serves(vpod) or adapter.is_left_out(vpod))


def routable(pool: PoolState, vpod: str, adapters: Adapters) -> dict[str, int]:
    """Pod name -> vreplicas, for those who send work to the vpod's adapters.

    It is what the vpod publishes. But while a pod that it publishes does not serve it yet, and one
    that gives vreplicas up still does, the latter is named instead.
    """
    claims = pool.claims_of(vpod)
    published = {name: claims[name].published for name in published_on(pool, vpod)}
    late = unserving(pool, vpod, adapters)
    if not late:
        return published
    former = {
        name: claim.published or claim.ledger.vreplicas
        for name, claim in claims.items()
        if claim.ledger.vreplicas > claim.published and _serves_on(pool.pods[name], vpod, adapters)
    }
    if not former:
        return published
    return {name: count for name, count in published.items() if name not in late} | former


def _serves_on(pod: PodClaims, vpod: str, adapters: Adapters) -> bool:
    """Whether the pod was told to serve the vpod, not to let it go, and has not said that it does
    not serve it.
    """
    adapter = adapters(pod.name)
    told = adapter.share_of(vpod)
    serves = told is not None and told.state is ShareState.SERVE and not adapter.is_busy(vpod)
    return serves and _is_waited_for(pod, adapters)


def _is_waited_for(pod: PodClaims, adapters: Adapters) -> bool:
    return pod.serving and adapters(pod.name).acknowledged is not None


def retains_some(pod: PodClaims, vpod: str, adapters: Adapters) -> bool:
    """Whether the pod's ledger has to keep vreplicas that are no longer published, until other pods
    serve them. The vpod still publishes some on this pod. An adapter that is busy with the vpod may
    serve them all the same.
    """
    return _is_waited_for(pod, adapters) and adapters(pod.name).may_serve(vpod)


def retains(pod: PodClaims, vpod: str, adapters: Adapters, now: float) -> bool:
    """Whether the pod's ledger has to keep a share that is published no more: its adapter has not
    let go, and its deadline has not come. ``now``: epoch seconds.
    """
    adapter = adapters(pod.name)
    told = adapter.share_of(vpod)
    if told is None or not _is_waited_for(pod, adapters) or not adapter.may_serve(vpod):
        return False
    return told.state is ShareState.SERVE or now < epoch_s(told.deadline, 0.0)


def unreleased(pool: PoolState, vpod: str, adapters: Adapters, now: float) -> dict[str, float]:
    """Pod name -> seconds that are left, for the pods that were told to drain the vpod and have not
    let go. ``now``: epoch seconds.
    """
    return {
        name: epoch_s(told.deadline, now) - now
        for name in pool.claims_of(vpod)
        if (told := adapters(name).share_of(vpod)) is not None
        and told.state is ShareState.DRAIN
        and retains(pool.pods[name], vpod, adapters, now)
    }


def instruction(
    pool: PoolState,
    vpod: str,
    name: str,
    current: AssignedShare | None,
    *,
    preparing: bool,
    drain: Callable[[], ShareInstruction | None],
) -> ShareInstruction:
    """What the pod ``name`` is told of a share in its ledger. ``current``: what it is told now.

    ``preparing``: True while the vpod's status waits for adapters to get ready, unless this pod's
    adapter may still serve what it is to let go. ``drain``: what to tell a pod that the share
    leaves; None if nobody else has taken over yet.
    """
    claim = pool.claims_of(vpod).get(name)
    if claim is None or claim.published:
        return ShareInstruction()
    # A share may come back before the ledger has lost it: the adapter prepares it anew.
    comes_back = (
        current is not None
        and current.state is ShareState.DRAIN
        and preparing
        and claim.decided.vreplicas > 0
    )
    if current is None or current.state is ShareState.PREPARE or comes_back:
        if not preparing and current is None and not _lacks_others(pool, vpod):
            return ShareInstruction()
        return ShareInstruction(ShareState.PREPARE, next(published_on(pool, vpod), ""))
    if current.state is ShareState.DRAIN:
        return ShareInstruction(current.state, current.peer, current.deadline, current.intent)
    if claim.decided.vreplicas:
        return ShareInstruction()  # its status follows
    return drain() or ShareInstruction()


def _lacks_others(pool: PoolState, key: str) -> bool:
    """Whether a vpod publishes nothing, because ledgers lack some of what it needs together."""
    vpod, claims = pool.vpods.get(key), pool.claims_of(key).values()
    if vpod is None or vpod.least <= 1 or any(claim.published for claim in claims):
        return False
    return sum(claim.ledger.vreplicas for claim in claims) < vpod.least


def published_on(pool: PoolState, vpod: str) -> Iterator[str]:
    """Names of the pods where the vpod is published."""
    return (name for name, claim in pool.claims_of(vpod).items() if claim.published)


def intent_of(reason: MoveReason | None, *, exists: bool) -> str:
    """Why a share leaves a pod, for its adapter. ``reason``: of the move, None if it shrinks."""
    if not exists:
        return "Removed"
    if reason is None:
        return "Scale"
    if reason in VOLUNTARY_DISRUPTIONS:
        return str(reason)
    away = {MoveReason.DRAIN, MoveReason.ORDINAL_GONE, MoveReason.RESCHEDULE}
    return "Drain" if reason in away else "Rebalance"
