"""Availability: which of a vpod's vreplicas are served, and why the others are not. Pure.

A vreplica is *placed* once a status names its pod. It is *served* while that pod is Ready, not
being deleted, and on a node that is Ready (``PodClaims.serving``). A pod that restarts is
``excused`` for ``EXCUSED_S``: its vreplicas count as served, so a restart changes no status. A pod
that has not served yet is not excused. A pod that is neither serving nor excused is *down*.

In a pool with ``spec.handoff``, an adapter says what it serves. What it does not serve in time,
although its pod is Ready, is in ``PodClaims.unserved_shares`` (``service.pools.unserved_shares``).

``PoolState.unserved`` has, by vpod, the vreplicas that are published and not served. Every change
of a pod, a node, a status or such a share updates it. ``availability_of`` counts again for the
placements of one vpod, and gives the reason.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from extender.engine.pods.claims import PodClaims
from extender.model.counted import counted_are
from extender.model.event_reasons import EventReason
from extender.model.objects import AdapterPod, Condition, Node, VPod, placement_order

if TYPE_CHECKING:
    from extender.engine.state.pool_state import PoolState

AVAILABLE: Final = "Available"
"""Type of the condition."""
EXCUSED_S: Final = 10.0
"""Seconds for which the vreplicas of a pod that has served and is away still count as served."""
NAMED_PODS_MAX: Final = 5
"""Pods named in a condition's message."""
BLAME_CHARS_MAX: Final = 900
"""Length of the part of a message that names pods. With the counts before it, the message fits into
the 1,024 bytes that are stored.
"""


class AvailableReason(StrEnum):
    """``reason`` of the condition Available: that of the vpod's worst pod, in this order."""

    NODE_LOST = "NodeLost"
    """The pod's node is not Ready, unreachable, or gone."""
    POD_TERMINATING = "PodTerminating"
    POD_NOT_READY = "PodNotReady"
    """The pod is not Ready, or does not exist."""
    LEASE_EXPIRED = "LeaseExpired"
    """The pod is Ready, and its adapter does not renew its lease (``pools.adapter_leases``)."""
    ADAPTER_NOT_SERVING = "AdapterNotServing"
    """The pod is Ready, and its adapter has not begun to serve the vpod in time."""
    WAITING_FOR_HAND_OVER = "WaitingForHandOver"
    """The pod is Ready, and its adapter may not serve the vpod before another pod has let go."""
    NOT_ALL_PLACED = "NotAllPlaced"
    """All placed vreplicas are served, but not all wanted ones are placed. The condition Scheduled
    says why.
    """
    ALL_READY = "AllReady"


UNSERVED_REASONS: Final = (
    AvailableReason.NODE_LOST,
    AvailableReason.POD_TERMINATING,
    AvailableReason.POD_NOT_READY,
    AvailableReason.LEASE_EXPIRED,
    AvailableReason.ADAPTER_NOT_SERVING,
    AvailableReason.WAITING_FOR_HAND_OVER,
)
"""The reasons why placed vreplicas are not served, the worst first."""
_COUNTED: Final = re.compile(r"(\d{1,10}) of ")
"""The beginning of ``Availability.message``, with the vreplicas that are served."""
_RANK: Final[Mapping[str, int]] = {reason: rank for rank, reason in enumerate(UNSERVED_REASONS)}


@dataclass(frozen=True, slots=True)
class Unserved:
    """A pod that does not serve the ``vreplicas`` placed on it. ``why``: the reason in words."""

    pod_name: str
    vreplicas: int
    reason: AvailableReason
    why: str


@dataclass(frozen=True, slots=True)
class Availability:
    """Availability of a vpod or a pool. Counts are vreplicas. ``unserved`` has the pods with the
    most of them first.
    """

    wanted: int
    placed: int
    unserved: tuple[Unserved, ...] = ()

    @property
    def ready(self) -> int:
        """vreplicas that are placed and served."""
        return self.placed - sum(item.vreplicas for item in self.unserved)

    @property
    def reason(self) -> AvailableReason:
        """The condition's reason."""
        if self.unserved:
            return min((item.reason for item in self.unserved), key=_RANK.__getitem__)
        return (
            AvailableReason.NOT_ALL_PLACED
            if self.placed < self.wanted
            else AvailableReason.ALL_READY
        )

    @property
    def holds(self) -> bool:
        """Whether all wanted vreplicas are served."""
        return self.ready >= self.wanted and not self.unserved

    def message(self) -> str:
        """How many vreplicas are served, and which pods do not serve theirs."""
        if not self.wanted and not self.placed:
            return "no vreplicas are wanted"
        if self.holds:
            return f"{self.ready} of {counted_are(self.wanted, 'vreplica')} on pods that are Ready"
        text = f"{min(self.ready, self.wanted)} of {counted_are(self.wanted, 'vreplica')} served"
        if not self.unserved:
            left = max(0, self.wanted - self.placed)
            return f"{text}: {left} {'is' if left == 1 else 'are'} not placed"
        return f"{text}; {self.blame()}"

    def blame(self) -> str:
        """The end of the message: which pods do not serve theirs, and why; "" if all do."""
        if not self.unserved:
            return ""
        parts = [
            f"{item.vreplicas} on {item.pod_name} ({item.why})"
            for item in self.unserved[:NAMED_PODS_MAX]
        ]
        while len(named := ", ".join(parts)) > BLAME_CHARS_MAX:
            parts.pop()
        more = len(self.unserved) - len(parts)
        return f"nobody serves {named}" + (f", and those on {more} pods more" if more else "")

    def condition(self) -> Condition:
        """The condition Available, without its time."""
        return Condition(
            AVAILABLE, "True" if self.holds else "False", str(self.reason), self.message()
        )


def availability_of(
    pool: "PoolState", vpod: str, placements: Mapping[str, int], wanted: int
) -> Availability:
    """Availability of a vpod of the pool that publishes ``placements`` (pod name -> vreplicas)."""
    unserved = (
        (name, known.unserved_of(vpod, count) if known is not None else count, known)
        for name, count in placements.items()
        if count and ((known := pool.pods.get(name)) is None or known.unserved_of(vpod, count))
    )
    return Availability(
        wanted,
        sum(placements.values()),
        _ordered(unserved_on(known, name, count, {vpod}) for name, count, known in unserved),
    )


def pool_availability(pool: "PoolState") -> Availability:
    """Availability of all vpods of the pool together."""
    published, unserved = 0, []
    for known in pool.pods.values():
        on_it = sum(claim.published for key, claim in known.claims.items() if key in pool.vpods)
        published += on_it
        not_served = {key: count for key, count in known.unserved().items() if key in pool.vpods}
        if count := sum(not_served.values()):
            unserved.append(unserved_on(known, known.name, count, not_served.keys()))
    pending = sum(
        pool.vpods[key].vreplicas - pool.decided_vreplicas(key) for key in pool.vpods_with_pending
    )
    return Availability(published + max(0, pending), published, _ordered(unserved))


def would_end_service(source: PodClaims, target: PodClaims) -> bool:
    """Whether vreplicas that are served on ``source`` would not be served on ``target``."""
    return target.down and not source.down


def is_outdated(pool: "PoolState", vpod: VPod) -> bool:
    """Whether a vpod's status is wrong about readiness. A foreign kind's status mentions it only in
    our conditions. If another writer has dropped all of these, they are not written again until
    the next decision: it would drop them again.
    """
    if vpod.source and vpod.conditions_json is None:
        return False
    if vpod.ready_vreplicas is None and not vpod.conditions:
        return False  # one that has no status yet gets it when it is placed
    now = availability_of(pool, vpod.key, vpod.placements, 0)
    told = condition_of(vpod)
    if vpod.source and told is not None and not (told.reason and told.message):
        return False  # the kind's schema drops these fields: another write would not help
    if told is None or (not vpod.source and vpod.ready_vreplicas != now.ready):
        return True
    if not now.unserved:
        return told.reason in UNSERVED_REASONS
    # The same counts may be on other pods. How many are wanted is not known here, so compare the
    # end of the message.
    return told.reason != now.reason or not told.message.endswith(f"; {now.blame()}")


@dataclass(frozen=True, slots=True)
class Served:
    """What a stored status says of its vreplicas. ``reason``: of its condition Available; "" for
    none.
    """

    reason: str
    ready: int
    unserved: int
    """vreplicas that are placed and not served."""


def served_of(vpod: VPod) -> Served | None:
    """What the vpod's stored status says; None if it has no condition Available.

    A foreign kind's status has no field for the vreplicas that are served. For one of its objects,
    the number is that at the beginning of the condition's message.
    """
    told = condition_of(vpod)
    if told is None:
        return None
    placed, ready = sum(vpod.placements.values()), vpod.ready_vreplicas
    if ready is None:
        counted = _COUNTED.match(told.message) if vpod.source else None
        ready = min(int(counted[1]), placed) if counted is not None else 0
    return Served(told.reason, ready, placed - ready)


def told_change(before: Served, after: Served) -> EventReason | None:
    """The event for a change from one status to another: vreplicas are lost, or all are served
    again. None if there is nothing to report.

    Vreplicas are lost if fewer are served and more are not, or if the reason gets worse. So nothing
    is lost when new vreplicas have only begun to start, or fewer are wanted.
    """
    was, now = _RANK.get(before.reason), _RANK.get(after.reason)
    if not before.reason or not after.reason:
        return None
    if now is None:
        return EventReason.AVAILABLE if was is not None else None
    fewer = after.ready < before.ready and after.unserved > before.unserved
    worse = was is not None and now < was
    return EventReason.UNAVAILABLE if fewer or worse else None


def condition_of(vpod: VPod) -> Condition | None:
    """The stored condition Available."""
    return next((item for item in vpod.conditions if item.type == AVAILABLE), None)


def unserved_on(
    known: PodClaims | None, name: str, vreplicas: int, vpods: Collection[str] = ()
) -> Unserved:
    """Describe a pod that has that many vreplicas, of ``vpods``, and does not serve them."""
    pod = known.pod if known is not None else None
    if known is None or pod is None or pod.finished or not pod.node:
        why = "the pod has finished" if pod is not None and pod.finished else "the pod is not there"
        waits = pod is not None and not pod.finished
        return Unserved(
            name,
            vreplicas,
            AvailableReason.POD_NOT_READY,
            "the pod waits for a node" if waits else why,
        )
    if known.node is None or not known.node.ready:
        lost = "is gone" if known.node is None else "is not Ready"
        return Unserved(name, vreplicas, AvailableReason.NODE_LOST, f"node {pod.node} {lost}")
    if pod.deleting:
        return Unserved(name, vreplicas, AvailableReason.POD_TERMINATING, "the pod is terminating")
    if pod.lease_expired:
        reason, why = AvailableReason.LEASE_EXPIRED, "the adapter's lease has run out"
    elif not pod.ready:
        reason, why = AvailableReason.POD_NOT_READY, "the pod is not Ready"
    elif vpods and known.waiting_shares.issuperset(vpods):
        reason = AvailableReason.WAITING_FOR_HAND_OVER
        why = "its adapter waits until another pod has let them go"
    else:
        reason, why = AvailableReason.ADAPTER_NOT_SERVING, "its adapter does not serve them"
    return Unserved(name, vreplicas, reason, why)


def why_unserved(pod: AdapterPod | None, node: Node | None) -> str:
    """Why nobody serves what is placed on a pod, "" if it serves. None: there is no such pod, or
    its node is gone.
    """
    state = PodClaims("", None)
    state.stand(pod, node)
    return "" if state.serving else unserved_on(state, "", 0).why


def _ordered(items: Iterable[Unserved]) -> tuple[Unserved, ...]:
    return tuple(sorted(items, key=lambda item: (-item.vreplicas, placement_order(item.pod_name))))
