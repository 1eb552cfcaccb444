"""``Claim`` and ``PodClaims``: what vpods hold of one adapter pod, with the sums kept up to date.

A claim is what one vpod has on one pod. It has three sides:

- ``ledger``: what the pod's annotation says. It counts once the pod is bound; before that, the
  annotation is advice.
- ``status``: what the vpod publishes. It outlives the pod, since the ordinal comes back and carries
  it again.
- ``reserved``: what a decision has given or taken and no write has confirmed yet, with its owner
  and its expiry.

Two values follow. What a claim *holds* is the largest of its three sides, so nobody gets room
before a shrink has reached the API server. What is *decided* is the reservation if there is one,
else the larger of ledger and status. Ledger and status differ after a crash between their writes,
and the larger one keeps vreplicas where they are (I4). Decisions start from what is decided.
(*Placed* and *placements* are about the status alone.) What a pod holds, and what is decided there,
are the sums over its claims.

*Weight* is slotsPerVReplica, and *amounts* are perVReplica. ``capacity`` is the pod's slots, and
``capacities`` has the other dimensions.

docs/architecture.md lists the words for a pod that takes nothing new, or should go.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from extender.model.amounts import (
    NO_AMOUNTS,
    SLOTS,
    Amounts,
    add_to,
    amounts_bytes,
    least_of,
    most_of,
    times,
)
from extender.model.ledger import Share
from extender.model.moves import MoveReason
from extender.model.names import KEY_BYTES_MAX, LEDGER_BYTES_MAX, TENANT_BYTES_MAX
from extender.model.objects import AdapterPod, Node

NOTHING: Final = Share(0, 1)
SHARE_BYTES_MAX: Final = len('"":[2147483647,2147483647],')
"""Bytes of a ledger's entry, without its key and amounts (``amounts_bytes``)."""
ENTRY_BYTES_MAX: Final = SHARE_BYTES_MAX + KEY_BYTES_MAX
"""Bytes of the longest entry of a vpod. The key of a VPod is so much shorter that four dimensions
have room, and ``named_amounts`` holds other vpods to it.
"""
ROOM_BYTES_MAX: Final = LEDGER_BYTES_MAX - ENTRY_BYTES_MAX
"""A ledger that may be longer than that has no room for one more vpod."""
TENANT_ROOM_BYTES_MAX: Final = TENANT_BYTES_MAX - ENTRY_BYTES_MAX
"""A namespace whose entries in a ledger may be longer than that gets no further one there."""


def entry_bytes(key: str, amounts: Amounts = NO_AMOUNTS) -> int:
    """The most bytes that a vpod's entry takes in a ledger."""
    return len(key) + SHARE_BYTES_MAX + amounts_bytes(amounts)


def tenant_of(key: str) -> str:
    """The tenant of a vpod: the namespace in its key."""
    return key.partition("/")[0]


class Claim:
    """What one vpod has on one pod. Mutable, but only ``PoolState`` changes it.

    ``decided``: the share that decisions start from. ``held_slots`` and ``held_amounts``: what no
    other vpod may take. ``derive`` computes them from the three sides at each change, since they
    are read much more often.
    """

    __slots__ = (
        "decided",
        "expires_at",
        "held_amounts",
        "held_slots",
        "ledger",
        "owner",
        "reserved",
        "status",
    )

    def __init__(
        self, reserved: Share | None = None, owner: object = None, expires_at: float = 0.0
    ) -> None:
        self.ledger: Share = NOTHING
        self.status: Share = NOTHING
        self.reserved = reserved
        self.owner = owner
        self.expires_at = expires_at
        # As ``derive``, for a claim with one side at most: most are made like that.
        self.decided: Share = NOTHING if reserved is None else reserved
        self.held_slots = self.decided.slots
        self.held_amounts: Amounts = NO_AMOUNTS
        if self.decided.amounts:
            self.held_amounts = times(self.decided.amounts, self.decided.vreplicas)

    def derive(self) -> None:
        """Compute ``decided`` and what is held, after one of the sides has changed."""
        ledger, status, reserved = self.ledger, self.status, self.reserved
        known = ledger if ledger.vreplicas >= status.vreplicas else status
        self.decided = known if reserved is None else reserved
        held = ledger.slots if ledger is status else max(ledger.slots, status.slots)
        self.held_slots = held if reserved is None else max(held, reserved.slots)
        if ledger.amounts or status.amounts or (reserved is not None and reserved.amounts):
            sides = (ledger, status) if reserved is None else (ledger, status, reserved)
            self.held_amounts = most_of(times(side.amounts, side.vreplicas) for side in sides)
        else:
            self.held_amounts = NO_AMOUNTS

    @property
    def empty(self) -> bool:
        """Whether all three sides are empty."""
        return self.reserved is None and not self.ledger.vreplicas and not self.status.vreplicas

    @property
    def published(self) -> int:
        """vreplicas in the vpod's status."""
        return self.status.vreplicas

    def is_confirmed_by(self, status: Share) -> bool:
        """Whether the vpod has published nothing here before, and now publishes what the ledger
        has. Then neither value changes.
        """
        return status == self.ledger and not self.status.vreplicas


def recorded(ledger: Share) -> Claim:
    """A new claim that only the ledger has. As ``derive``, for speed."""
    claim = Claim()
    claim.ledger = claim.decided = ledger
    claim.held_slots = ledger.slots
    if ledger.amounts:
        claim.held_amounts = times(ledger.amounts, ledger.vreplicas)
    return claim


ClaimChange = Callable[[Claim], None]


def recording(ledger: Share) -> ClaimChange:
    """The change that sets the ledger's share."""

    def change(claim: Claim) -> None:
        claim.ledger = ledger
        claim.derive()

    return change


def publishing(status: Share) -> ClaimChange:
    """The change that sets the status's share."""

    def change(claim: Claim) -> None:
        claim.status = status
        claim.derive()

    return change


def reserving(reserved: Share | None, owner: object, expires_at: float) -> ClaimChange:
    """The change that sets what is reserved until ``expires_at`` (s); None: nothing is."""

    def change(claim: Claim) -> None:
        claim.reserved, claim.owner, claim.expires_at = reserved, owner, expires_at
        claim.derive()

    return change


class PodClaims:
    """One ordinal of a pool: its pod (if it exists), its node, and all claims on it.

    ``held`` and ``decided`` are the sums of the claims, in slots; ``held_amounts`` and
    ``decided_amounts`` the same for each dimension of which something is taken. ``capacity`` is in
    slots, and ``capacities`` has the pool's dimensions. ``ledger_bytes`` is the greatest
    possible length of a ledger with all of them. ``last_ledger`` is what the ordinal's previous pod
    was last seen to carry. A bind must cover it, since our view of the statuses may be behind.
    ``last_location`` is the node and zone where it was last bound. It outlives the pod, but not a
    restart of this process.
    """

    __slots__ = (
        "abandoned",
        "capacities",
        "capacity",
        "claims",
        "condemned",
        "counted_free",
        "decided",
        "decided_amounts",
        "evicted",
        "excused",
        "held",
        "held_amounts",
        "last_ledger",
        "last_ledger_settled",
        "last_location",
        "ledger_bytes",
        "location",
        "name",
        "node",
        "open",
        "ordinal",
        "pod",
        "revision",
        "schedulable",
        "tenant_bytes",
        "unserved_shares",
        "waiting_shares",
    )

    def __init__(self, name: str, ordinal: int | None) -> None:
        self.name = name
        self.ordinal = ordinal
        self.pod: AdapterPod | None = None
        self.node: Node | None = None
        self.claims: dict[str, Claim] = {}
        self.last_ledger: dict[str, Share] = {}
        self.last_ledger_settled = False
        """All statuses that could rely on ``last_ledger`` have arrived. What they do not publish is
        nobody's.
        """
        self.last_location: tuple[str, str] = ("", "")
        self.revision = 0
        """Grows with every change of the claims, and of all that is derived from pod, node and
        pool.
        """
        self.held = 0
        self.decided = 0
        self.held_amounts: dict[str, int] = {}
        self.decided_amounts: dict[str, int] = {}
        self.ledger_bytes = 0
        self.tenant_bytes: dict[str, int] | None = None
        """``ledger_bytes`` by namespace if the pod is crowded (see ``TenantRoom``), else None."""
        self.capacity = 0
        self.capacities: Amounts = NO_AMOUNTS
        self.excused = False
        """It served until recently, so what it holds still counts as served (see
        ``availability``).
        """
        self.unserved_shares: Mapping[str, int] = {}
        """Vpod key -> vreplicas that its adapter has not begun to serve in time."""
        self.waiting_shares: frozenset[str] = frozenset()
        """The vpods among these that it may not serve yet, because another pod has not let go."""
        self.abandoned = False
        """It was not Ready for longer than rescheduleAfterSeconds."""
        self.condemned = False
        """It still runs, but its StatefulSet no longer has its ordinal. The StatefulSet controller,
        which calls such pods condemned, will delete it.
        """
        self.evicted: MoveReason | None = None
        """Why the pod is to go once its shares are handed over: somebody tries to evict it, a
        rollout replaces it, or it is to leave its node. None: it stays, or waits for its turn.
        """
        self.schedulable = False
        self.open = False
        """Whether it is schedulable, has room and is not closed."""
        self.location: tuple[str, str] = ("", "")
        """Node and zone under which the pool's bit sets have it; "" while it is not schedulable."""
        self.counted_free = 0
        """Its part of ``PoolState.free_by_zone``: its free slots while it is open, else 0."""

    def stand(self, pod: AdapterPod | None, node: Node | None) -> None:
        """Take the pod and its node as they are now; None if it does not exist or is not known.
        This also begins or ends the pod's excuse, and notes where it is bound.
        """
        served = self.serving
        self.pod, self.node = pod, node
        if self.serving:
            self.excused = False
        elif served:
            self.excused = True
        if node is not None and self.certainly_bound:
            self.last_location = (node.name, node.zone)

    @property
    def where(self) -> tuple[str, str]:
        """The node and zone where it is bound or assumed; else where it was last bound, since it
        should come back there.

        The zone is "" if the node is not known.
        """
        if self.pod is None or not self.bound:
            return self.last_location
        if self.node is not None:
            return (self.node.name, self.node.zone)
        return self.last_location if self.last_location[0] == self.pod.node else (self.pod.node, "")

    @property
    def free(self) -> int:
        """Slots that may be given away; negative on an overcommitted pod."""
        return self.capacity - self.held

    def slots_for(self, weight: int, amounts: Amounts, kept: int, key: str) -> int:
        """How many slots further vreplicas of the vpod ``key`` can use here, if it keeps ``kept``
        of them. Each takes ``weight`` slots and ``amounts``. What the vpod holds here counts as
        free. Negative if ``kept`` do not fit.
        """
        claim = self.claims.get(key)
        free = self.capacity - self.held + (claim.held_slots if claim is not None else 0)
        free -= kept * weight
        for _, amount, left in self._left_of(amounts, claim):
            free = min(free, (left // amount - kept) * weight)
        return free

    def lacks(self, amounts: Amounts, kept: int, key: str) -> str:
        """The first dimension that has too little for one vreplica beside ``kept`` ones of the vpod
        ``key``; "" if there is none.
        """
        for name, amount, left in self._left_of(amounts, self.claims.get(key)):
            if left < (kept + 1) * amount:
                return name
        return ""

    def _left_of(self, amounts: Amounts, claim: Claim | None) -> Iterator[tuple[str, int, int]]:
        """Yield (dimension, what one vreplica takes, what is left beside other claims) for each
        dimension that is asked for. A dimension that the pool does not have has nothing left: vpods
        that ask for it wait (``AdapterPool.misfit``).
        """
        if not amounts:
            return
        own = dict(claim.held_amounts) if claim is not None else {}
        capacities = dict(self.capacities)
        for name, amount in amounts:
            held = self.held_amounts.get(name, 0) - own.get(name, 0)
            yield name, amount, capacities.get(name, 0) - held

    @property
    def overcommitted(self) -> bool:
        """Whether more is held than the pod has, of slots or of another dimension."""
        return self.held > self.capacity or any(
            self.held_amounts.get(name, 0) > most for name, most in self.capacities
        )

    def dimensions(self) -> dict[str, dict[str, int]]:
        """Dimension -> what the pod has of it (``capacity``) and what is held (``used``)."""
        return {
            name: {"capacity": capacity, "used": self.held_amounts.get(name, 0)}
            for name, capacity in self.capacities
        }

    @property
    def written(self) -> int:
        """Slots of what ledgers and statuses have here, without what is only reserved."""
        return sum([max(claim.ledger.slots, claim.status.slots) for claim in self.claims.values()])

    def written_beside(self, key: str = "") -> dict[str, int]:
        """What is decided here for vpods other than ``key``, of ``SLOTS`` and each dimension, as
        far as a ledger or a status has it.

        What is only reserved is left out. A reservation pushes nobody out: if there is no room for
        it, its write fails (I4).
        """
        taken: dict[str, int] = {}
        for other, claim in self.claims.items():
            if other != key:
                known = most_of((claim.ledger.taken, claim.status.taken))
                add_to(taken, least_of(claim.decided.taken, known))
        return taken

    @property
    def ledger_excess(self) -> dict[str, tuple[int, int]]:
        """Where the ledger takes more than the pod has: ``SLOTS`` or dimension -> (what it takes,
        what the pod has).
        """
        if not self.overcommitted:  # the ledger takes no more than what is held
            return {}
        taken: dict[str, int] = {}
        for claim in self.claims.values():
            add_to(taken, claim.ledger.taken)
        has = {SLOTS: self.capacity, **dict(self.capacities)}
        return {
            name: (taken[name], most) for name, most in has.items() if taken.get(name, 0) > most
        }

    @property
    def has_room(self) -> bool:
        """Whether a vreplica of one slot has room here, in slots and in bytes of the ledger."""
        return self.capacity > self.held and not self.ledger_full

    @property
    def ledger_full(self) -> bool:
        """Whether the ledger has no bytes for one more entry, even if slots are free."""
        return self.ledger_bytes > ROOM_BYTES_MAX

    @property
    def out_of_bytes(self) -> bool:
        """Whether slots are free that nobody can take, because the ledger is full."""
        return self.ledger_full and self.capacity > self.held

    def bytes_by_tenant(self) -> dict[str, int]:
        """Namespace -> the most bytes that its entries take in the ledger."""
        if self.tenant_bytes is not None:
            return self.tenant_bytes
        found: dict[str, int] = {}
        for key, claim in self.claims.items():
            tenant = tenant_of(key)
            found[tenant] = found.get(tenant, 0) + entry_bytes(key, claim.held_amounts)
        return found

    @property
    def bound(self) -> bool:
        """Whether there is a pod that has a node, even by an assumed bind, and has not finished."""
        return self.pod is not None and bool(self.pod.node) and not self.pod.finished

    @property
    def certainly_bound(self) -> bool:
        """Whether the API server has said that the pod has a node, and it has not finished."""
        return self.bound and self.pod is not None and not self.pod.assumed

    @property
    def serving(self) -> bool:
        """Whether it does its work: Ready, not being deleted, and on a known node that is Ready."""
        pod, node = self.pod, self.node
        return (
            pod is not None
            and node is not None
            and pod.ready
            and node.ready
            and not (pod.deleting or pod.finished or pod.assumed)
        )

    @property
    def down(self) -> bool:
        """Whether what it holds counts as not served."""
        return not self.excused and not self.serving

    def unserved_of(self, key: str, published: int) -> int:
        """How many of the vreplicas that a vpod publishes here count as not served."""
        return published if self.down else min(published, self.unserved_shares.get(key, 0))

    def unserved(self) -> dict[str, int]:
        """Vpod key -> published vreplicas that count as not served, without zeros."""
        if not (self.down or self.unserved_shares):
            return {}
        return {
            key: count
            for key, claim in self.claims.items()
            if (count := self.unserved_of(key, claim.published))
        }

    @property
    def awaits_node(self) -> bool:
        """Whether a live pod waits for its node."""
        return (
            self.pod is not None
            and not self.pod.node
            and not self.pod.deleting
            and not self.pod.finished
        )

    @property
    def draining(self) -> bool:
        """Whether it is drained (a person has annotated it) or evicted (its turn has come)."""
        return self.evicted is not None or (self.pod is not None and self.pod.unschedulable)

    @property
    def leaving(self) -> bool:
        """Whether what it holds must go elsewhere: it is draining, abandoned or condemned."""
        # No call of ``why_leaving``, for speed: this runs for each share of a decision.
        return self.draining or self.abandoned or self.condemned

    @property
    def why_leaving(self) -> MoveReason | None:
        """Why what it holds must be placed elsewhere; None if it need not."""
        if self.condemned:
            return MoveReason.ORDINAL_GONE
        if self.draining:
            return self.evicted or MoveReason.DRAIN
        return MoveReason.RESCHEDULE if self.abandoned else None

    def why_unschedulable(self) -> str:
        """What the pod or its node has against new vreplicas, in a few words; "" if nothing. The
        pool may have more against them (``collector.why_unschedulable``).
        """
        pod = self.pod
        if pod is None:
            return "does not exist"
        # No loop, for speed: this runs for each pod of a pool, for each vpod that finds no room.
        if pod.finished:
            return "finished"
        if pod.deleting:
            return "being deleted"
        if not pod.node or pod.assumed:
            return "not bound"
        if self.draining:
            return _WHY_EVICTED.get(self.evicted, "marked unschedulable")
        return "ledger unreadable" if pod.ledger_error else _why_not_there(self.node)


_WHY_EVICTED: Final[Mapping[MoveReason | None, str]] = {
    MoveReason.EVICTED: "being evicted",
    MoveReason.ROLLOUT: "being replaced by a rollout",
    MoveReason.MAINTENANCE: "leaving its node",
}


def _why_not_there(node: Node | None) -> str:
    """Why its node keeps a pod from taking vreplicas, "" if it does not."""
    if node is None:
        return "node unknown"
    if node.cordoned:
        return "node cordoned"
    return "" if node.ready else "node not ready"
