"""``Claim`` and ``PodClaims``: what vpods hold of one adapter pod, kept so that adding up is never
needed.

A claim is what one vpod has on one pod, seen from three sides:

- ``ledger``: what the pod's annotation says (only once the pod is bound: before, the annotation is
  advice);
- ``status``: what the vpod publishes. It outlives the pod: the ordinal comes back and carries it
  again;
- ``reserved``: what a decision has given or taken and no write has confirmed yet, by whom and until
  when.

Two sums follow. A pod *holds* the largest of the three, so room is never promised before a shrink
has reached the API server. What is *placed* is the reservation where there is one, else the larger
of ledger and status: a crash between the two writes leaves them apart, and taking the larger one is
what keeps vreplicas where they are (I4).
"""

from collections.abc import Callable
from typing import Final

from extender.model.ledger import Share
from extender.model.names import LEDGER_BYTES_MAX, TENANT_BYTES_MAX
from extender.model.objects import AdapterPod, Node

NOTHING: Final = Share(0, 1)
SHARE_BYTES_MAX: Final = len('"":[2147483647,2147483647],')
"""Of a ledger's entry, without its key."""
ENTRY_BYTES_MAX: Final = SHARE_BYTES_MAX + 63 + 1 + 253 + 1 + 253 + 64
"""Of any vpod's entry: namespace, name, and group and kind of a foreign one."""
ROOM_BYTES_MAX: Final = LEDGER_BYTES_MAX - ENTRY_BYTES_MAX
"""A ledger that may become longer than that has no room for one more vpod."""
TENANT_ROOM_BYTES_MAX: Final = TENANT_BYTES_MAX - ENTRY_BYTES_MAX
"""A namespace whose entries may become longer than that gets no further one there."""


def entry_bytes(key: str) -> int:
    """The most that a vpod's entry takes of a ledger, in bytes."""
    return len(key) + SHARE_BYTES_MAX


def tenant_of(key: str) -> str:
    """The namespace of a vpod's key."""
    return key.partition("/")[0]


class Claim:
    """What one vpod has on one pod. Mutable; changed only through ``PoolState``.

    ``placed``: the share that decisions start from; ``held_slots``: slots that nobody else may
    take. Both are derived from the three sides by ``derive``, once a change: they are read many
    times as often.
    """

    __slots__ = ("expires_at", "held_slots", "ledger", "owner", "placed", "reserved", "status")

    def __init__(
        self, reserved: Share | None = None, owner: object = None, expires_at: float = 0.0
    ) -> None:
        self.ledger: Share = NOTHING
        self.status: Share = NOTHING
        self.reserved = reserved
        self.owner = owner
        self.expires_at = expires_at
        self.placed: Share = NOTHING if reserved is None else reserved
        self.held_slots = 0 if reserved is None else reserved.vreplicas * reserved.weight

    def derive(self) -> None:
        """One of the sides has changed."""
        ledger, status, reserved = self.ledger, self.status, self.reserved
        known = ledger if ledger.vreplicas >= status.vreplicas else status
        self.placed = known if reserved is None else reserved
        held = ledger.slots if ledger is status else max(ledger.slots, status.slots)
        self.held_slots = held if reserved is None else max(held, reserved.slots)

    @property
    def empty(self) -> bool:
        """Whether there is nothing left to remember."""
        return self.reserved is None and not self.ledger.vreplicas and not self.status.vreplicas

    @property
    def published(self) -> int:
        """vreplicas in the vpod's status."""
        return self.status.vreplicas

    def is_confirmed_by(self, status: Share) -> bool:
        """Whether ``status``, the first that is known here, says what the ledger does: then neither
        sum changes.
        """
        return status == self.ledger and not self.status.vreplicas


def recorded(ledger: Share) -> Claim:
    """A new claim of which only the ledger speaks."""
    claim = Claim()
    claim.ledger = claim.placed = ledger
    claim.held_slots = ledger.slots
    return claim


ClaimChange = Callable[[Claim], None]


def recording(ledger: Share) -> ClaimChange:
    """The ledger says this."""

    def change(claim: Claim) -> None:
        claim.ledger = ledger
        claim.derive()

    return change


def publishing(status: Share) -> ClaimChange:
    """The status says this."""

    def change(claim: Claim) -> None:
        claim.status = status
        claim.derive()

    return change


def reserving(reserved: Share | None, owner: object, expires_at: float) -> ClaimChange:
    """A decision says this, until ``expires_at`` (s); None: no decision says anything any more."""

    def change(claim: Claim) -> None:
        claim.reserved, claim.owner, claim.expires_at = reserved, owner, expires_at
        claim.derive()

    return change


class PodClaims:
    """One ordinal of a pool: its pod (if it exists), its node, and all claims on it.

    ``held`` and ``placed`` are slots, the sums of the claims; ``ledger_bytes`` is the most that a
    ledger of all of them can be long. ``last_ledger`` is what the previous incarnation of this
    ordinal was last seen to carry: a bind must cover it even where our view of the statuses lags
    behind. ``last_place`` is where the ordinal last stood, node and zone; it outlives the pod, not
    a restart of this process.
    """

    __slots__ = (
        "abandoned",
        "capacity",
        "claims",
        "condemned",
        "excused",
        "held",
        "last_ledger",
        "last_ledger_old",
        "last_place",
        "ledger_bytes",
        "name",
        "node",
        "open",
        "ordinal",
        "place",
        "placed",
        "pod",
        "revision",
        "schedulable",
        "tenant_bytes",
    )

    def __init__(self, name: str, ordinal: int | None) -> None:
        self.name = name
        self.ordinal = ordinal
        self.pod: AdapterPod | None = None
        self.node: Node | None = None
        self.claims: dict[str, Claim] = {}
        self.last_ledger: dict[str, Share] = {}
        self.last_ledger_old = False
        """Whether all has arrived by now that could have relied on it: what is not published any
        more is nobody's.
        """
        self.last_place: tuple[str, str] = ("", "")
        self.revision = 0
        """Grows with every change of the claims, and of all that is derived from pod, node and
        pool.
        """
        self.held = 0
        self.placed = 0
        self.ledger_bytes = 0
        self.tenant_bytes: dict[str, int] | None = None
        """``ledger_bytes`` by namespace, of a pod that is crowded (see ``LedgerShares``); None on
        all others.
        """
        self.capacity = 0
        self.excused = False
        """Whether it has served until lately: what it holds counts as served for a while (see
        ``availability``).
        """
        self.abandoned = False
        """Not Ready for longer than rescheduleAfterSeconds."""
        self.condemned = False
        """It still runs, and its StatefulSet has its ordinal no longer (that controller's word): it
        is to be deleted.
        """
        self.schedulable = False
        self.open = False
        """Whether it is among those with room."""
        self.place: tuple[str, str] = ("", "")
        """Node and zone under which the pool's bit sets have it; "" while it is not schedulable."""

    def stand(self, pod: AdapterPod | None, node: Node | None) -> None:
        """Take the pod as it now is and the node under it; None for one that is not there or not
        known.
        """
        served = self.serving
        self.pod, self.node = pod, node
        if self.serving:
            self.excused = False
        elif served:
            self.excused = True
        if node is not None and self.bound and pod is not None and not pod.assumed:
            self.last_place = (node.name, node.zone)

    @property
    def where(self) -> tuple[str, str]:
        """Node and zone: where it stands or is assumed; else where it last stood, for it is to come
        back there.

        The zone is "" where it is not known, as the node is.
        """
        if self.pod is None or not self.bound:
            return self.last_place
        if self.node is not None:
            return (self.node.name, self.node.zone)
        return self.last_place if self.last_place[0] == self.pod.node else (self.pod.node, "")

    @property
    def free(self) -> int:
        """Slots that may be given away; negative on an overcommitted pod."""
        return self.capacity - self.held

    @property
    def has_room(self) -> bool:
        """Whether a vreplica of one slot could be added: in slots, and in bytes of its ledger."""
        return self.capacity > self.held and not self.ledger_full

    @property
    def ledger_full(self) -> bool:
        """Whether the ledger has no bytes for one more entry, however many slots are free."""
        return self.ledger_bytes > ROOM_BYTES_MAX

    @property
    def out_of_bytes(self) -> bool:
        """Whether slots are free that nobody can take: the ledger is full before the pod is."""
        return self.ledger_full and self.capacity > self.held

    def bytes_by_tenant(self) -> dict[str, int]:
        """Namespace -> the most that its entries in the ledger can take, in bytes."""
        if self.tenant_bytes is not None:
            return self.tenant_bytes
        found: dict[str, int] = {}
        for key in self.claims:
            tenant = tenant_of(key)
            found[tenant] = found.get(tenant, 0) + entry_bytes(key)
        return found

    @property
    def bound(self) -> bool:
        """Whether a live pod stands on a node."""
        return self.pod is not None and bool(self.pod.node) and not self.pod.finished

    @property
    def serving(self) -> bool:
        """Whether it does its work: Ready, not being deleted, on a node that is known and Ready."""
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
        """Whether what it holds counts as served by nobody."""
        return not self.excused and not self.serving

    @property
    def pending(self) -> bool:
        """Whether a live pod waits for its node."""
        return (
            self.pod is not None
            and not self.pod.node
            and not self.pod.deleting
            and not self.pod.finished
        )

    @property
    def draining(self) -> bool:
        """Whether a person has annotated the pod as unschedulable: that is how a pod is drained."""
        return self.pod is not None and self.pod.unschedulable

    @property
    def leaving(self) -> bool:
        """Whether what it holds is to be placed elsewhere: it is drained, taken for lost, or
        condemned.
        """
        return self.draining or self.abandoned or self.condemned

    def why_unschedulable(self) -> str:
        """In a few words, why the pod takes no new vreplicas; "" if it does."""
        pod = self.pod
        if pod is None:
            return "does not exist"
        # One after the other: asked for each pod of a pool, for each vpod that finds no room.
        if pod.finished:
            return "finished"
        if pod.deleting:
            return "being deleted"
        if not pod.node or pod.assumed:
            return "not bound"
        if pod.unschedulable:
            return "marked unschedulable"
        return "ledger unreadable" if pod.ledger_error else _why_not_there(self.node)


def _why_not_there(node: Node | None) -> str:
    """What of its node keeps a pod from taking vreplicas."""
    if node is None:
        return "node unknown"
    if node.cordoned:
        return "node cordoned"
    return "" if node.ready else "node not ready"
