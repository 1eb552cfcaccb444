"""``PoolPods``: a pool's pods, and which of them may take new vreplicas.

Python ints are bit sets over ordinals. ``schedulable`` has the pods that may take new vreplicas.
``room`` has those of them that have a free slot and bytes in their ledger, and are not closed.
``closed`` has the ordinals that are being emptied or in doubt (``in_doubt``): they get nothing new,
and what they have stays until it is moved. ``zones`` and ``nodes`` divide ``schedulable`` by zone
and by node. The lowest ordinal is the lowest set bit. So the place of a vreplica is found by a few
operations on ints, without a loop over the pods.

``_refresh`` derives the bits after a change of a pod, a node or the pool, and ``_follow_room``
after a change of claims alone. ``revision`` grows with every change: what somebody has derived from
the pool is valid while ``revision`` stays the same.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from extender.engine.pods.bits import bits
from extender.engine.pods.bound_pods import BoundPods, Location
from extender.engine.pods.claims import PodClaims
from extender.engine.pods.tenant_room import TenantRoom
from extender.engine.pods.topology import Topology, Zones
from extender.engine.state.ordinal_history import HOLD_S
from extender.engine.state.state_observer import StateObserver
from extender.model.amounts import NO_AMOUNTS, Amounts
from extender.model.eviction import evicted_for
from extender.model.ledger import Share
from extender.model.objects import AdapterPod, AdapterPool, Node, StatefulSet, VPod, ordinal_of


class SlotCounts(NamedTuple):
    """Slots of a pool. ``used + free + closed == total``, or more if a ledger exceeds its pod's
    slots.

    ``closed`` (status.closedSlots): slots left on pods that take nothing new, for any reason. Such
    a pod is on a cordoned node, drained, not Ready for too long or closed, or it has a full ledger.
    (A closed ordinal is one that is being emptied or in doubt: ``PoolPods.closed``.)
    """

    total: int
    used: int
    free: int
    closed: int


class PoolPods:
    """The pods of the pool ``key``. Only ``PoolState`` extends it. ``adapter_pool`` and
    ``stateful_set`` are None until they are known.

    ``taken_by``: key of another pool that names the same StatefulSet and has it, "" if none. This
    pool then has no StatefulSet.
    """

    def __init__(self, key: str, topology: Topology | None = None) -> None:
        self.key, self.revision = key, 0
        self.observer: StateObserver | None = None
        self.topology = topology if topology is not None else Topology()
        self.adapter_pool: AdapterPool | None = None
        self.stateful_set: StatefulSet | None = None
        self.taken_by = ""
        self.pods: dict[str, PodClaims] = {}
        self.unowned_pods: dict[str, AdapterPod] = {}
        """By name, pods with the pool's label that are not its own (``ClusterState.pod_changed``).
        They count nowhere.
        """
        self.by_ordinal: dict[int, PodClaims] = {}
        self.schedulable = self.room = self.closed = self.in_doubt = self.down = 0
        """Bit sets of ordinals. ``in_doubt``: those of ``closed`` that nothing empties. They are
        closed only because an earlier scale-down may still be under way and remove them. ``down``:
        those whose pods are down (``PodClaims.down``).
        """
        self.tenant_room = TenantRoom()
        self.abandoned: frozenset[str] = frozenset()
        """Pods that were not Ready for longer than rescheduleAfterSeconds. What they have is placed
        elsewhere.
        """
        self.bound_pods = BoundPods()
        self._expected: dict[str, Location] = {}
        """Pod name -> where a bind that still waits would put it."""
        self.zones: dict[str, int] = {}
        """Zone -> bit set of the schedulable pods on its nodes; never 0."""
        self.nodes: dict[str, int] = {}
        """Node name -> bit set of the schedulable pods on it; never 0."""
        self.free_by_zone: dict[str, int] = {}
        """Zone -> free slots of the pods in ``room``."""
        self.unbound: dict[str, PodClaims] = {}
        """The pods that are not bound, and those whose last ledger is kept."""
        self._gone_since: dict[str, float] = {}
        """Pod name whose last ledger is kept -> when that was first noticed (s)."""

    # -- reading -----------------------------------------------------------------------------------

    @property
    def capacities(self) -> Amounts:
        """What each pod has beside slots."""
        return self.adapter_pool.capacities if self.adapter_pool is not None else NO_AMOUNTS

    @property
    def hosting(self) -> Zones:
        """The nodes that pods of its StatefulSet can run on, and their zones."""
        return self.topology.hosting(
            self.stateful_set.fit if self.stateful_set is not None else None
        )

    def is_member(self, pod: PodClaims) -> bool:
        """Whether the StatefulSet has that pod, by name and ordinal.

        The name counts, since a vpod whose poolRef has changed still publishes the names of its old
        pool's pods.
        """
        return (
            self.stateful_set is not None
            and pod.ordinal in self.stateful_set.ordinals
            and pod.name == f"{self.stateful_set.name}-{pod.ordinal}"
        )

    def counts(self, pod: AdapterPod) -> bool:
        """Whether the StatefulSet controls that pod. True while no StatefulSet is known: then
        nothing is placed, and what is there stays.
        """
        return self.stateful_set is None or pod.is_controlled_by(self.stateful_set)

    def members(self) -> Iterator[PodClaims]:
        """The StatefulSet's ordinals that have an entry here, ascending. Their pods need not exist
        yet.
        """
        if self.stateful_set is not None:
            for ordinal in self.stateful_set.ordinals:
                if (pod := self.by_ordinal.get(ordinal)) is not None:
                    yield pod

    def is_closed(self, pod: PodClaims) -> bool:
        """Whether the pod gets nothing new because it is being emptied, or because it is in doubt
        (``in_doubt``).
        """
        return pod.ordinal is not None and bool(self.closed >> pod.ordinal & 1)

    def is_in_doubt(self, pod: PodClaims) -> bool:
        """Whether the pod is closed only because an earlier scale-down may still remove it."""
        return self.is_closed(pod) and bool(self.in_doubt >> (pod.ordinal or 0) & 1)

    def ordinals_of(self, placed: Mapping[str, int]) -> int:
        """Bit set of the pods that have some of ``placed`` (pod name -> vreplicas)."""
        own = 0
        for name, count in placed.items():
            ordinal = self.pods[name].ordinal
            if count and ordinal is not None:
                own |= 1 << ordinal
        return own

    def schedulable_count(self) -> int:
        """Number of pods that may take new vreplicas."""
        return self.schedulable.bit_count()

    def free_of(self, ordinal: int) -> int:
        """Free slots of the pod with that ordinal."""
        pod = self.by_ordinal[ordinal]
        return pod.capacity - pod.held

    def free_for(self, vpod: VPod) -> Callable[[int], int]:
        """A function: an ordinal's free slots, as far as vreplicas of a vpod can use them.

        Beside ``free_of``, that is what the pod's dimensions and its ``max_per_pod`` allow.
        """
        weight, amounts, by_ordinal = vpod.weight, vpod.per_vreplica, self.by_ordinal
        if not amounts and not vpod.max_per_pod:
            return self.free_of

        def usable(ordinal: int) -> int:
            pod = by_ordinal[ordinal]
            claim = pod.claims.get(vpod.key)
            there = claim.decided.vreplicas if claim is not None else 0
            return vpod.slots_beside(there, pod.slots_for(weight, amounts, 0, ""))

        return usable

    def free_slots(self) -> int:
        """Free slots over all schedulable pods."""
        return sum(max(0, self.by_ordinal[ordinal].free) for ordinal in bits(self.room))

    def free_amounts(self) -> dict[str, int]:
        """Dimension of the pool -> what is free of it on the pods that have free slots."""
        held = [self.by_ordinal[ordinal].held_amounts for ordinal in bits(self.room)]
        return {
            name: sum(max(0, most - amounts.get(name, 0)) for amounts in held)
            for name, most in self.capacities
        }

    def slot_counts(self) -> SlotCounts:
        """Slots of the pods that are bound, and of those that will come back with what they hold.

        An unbound pod that the StatefulSet no longer has counts with as many slots as it holds.
        """
        total = used = free = closed = 0
        for pod in self.pods.values():
            if not (pod.bound or pod.held):
                continue
            slots = pod.capacity if pod.bound or self.is_member(pod) else pod.held
            left = max(0, slots - pod.held)
            total += slots
            used += pod.held
            free += left if pod.open else 0
            closed += 0 if pod.open else left
        return SlotCounts(total, used, free, closed)

    def overcommitted(self) -> list[PodClaims]:
        """Bound pods whose ledger takes more than they have (``PodClaims.ledger_excess``). None
        while the AdapterPool, which says what they have, is not known.
        """
        if self.adapter_pool is None:
            return []
        return [pod for pod in self.pods.values() if pod.bound and pod.ledger_excess]

    # -- the StatefulSet, and its closed and abandoned pods ----------------------------------------

    def set_pool(self, pool: AdapterPool | None, stateful_set: StatefulSet | None) -> None:
        """Take a new AdapterPool object, with its StatefulSet as known."""
        self.adapter_pool = pool
        self.set_stateful_set(stateful_set)

    def exchange_stateful_set(self, stateful_set: StatefulSet) -> None:
        """Take a StatefulSet object with the same name and ordinals as the one before."""
        self.stateful_set = stateful_set
        self.revision += 1

    def set_stateful_set(self, stateful_set: StatefulSet | None) -> None:
        """Take a StatefulSet object whose name or ordinals may differ."""
        self.stateful_set = stateful_set
        self.revision += 1
        self.by_ordinal = {}
        self.schedulable = self.room = self.down = 0
        self.tenant_room.clear()
        self.zones, self.nodes, self.free_by_zone = {}, {}, {}
        for pod in list(self.pods.values()):
            pod.location, pod.counted_free = ("", ""), 0
            self._index(pod)
            self._refresh(pod)
            self._forget_if_empty(pod)

    def set_closed(self, closed: int, *, in_doubt: int = 0) -> None:
        """Close these ordinals to new vreplicas, and open all others. ``in_doubt``: those of them
        that are not being emptied (see the attribute).
        """
        if self.observer is not None:
            self.observer.closed(self.key, closed, in_doubt)
        changed, self.closed = self.closed ^ closed, closed
        self.in_doubt = in_doubt & closed
        self.revision += 1
        for ordinal in bits(changed):
            if (pod := self.by_ordinal.get(ordinal)) is not None:
                self._refresh(pod)

    def set_abandoned(self, names: frozenset[str]) -> None:
        """Abandon these pods, and no others. They are not schedulable, and what they have is placed
        elsewhere.
        """
        if self.observer is not None:
            self.observer.abandoned(self.key, names)
        changed, self.abandoned = self.abandoned ^ names, names
        self.revision += 1
        for name in sorted(changed):
            if (pod := self.pods.get(name)) is not None:
                self._refresh(pod)

    # -- where pods are bound ----------------------------------------------------------------------

    @contextmanager
    def expecting(self, pod_name: str, node: Node) -> Iterator[None]:
        """Count the pod on that node in ``bound_pods`` while its bind waits before it can assume
        the pod. kube-scheduler asks about the next pods meanwhile. Without this it would put
        all of them into one zone.
        """
        self._expected[pod_name] = (node.name, node.zone)
        self._note_location(pod_name)
        try:
            yield
        finally:
            self._expected.pop(pod_name, None)
            self._note_location(pod_name)

    def _note_location(self, pod_name: str) -> None:
        pod = self.pods.get(pod_name)
        bound = pod.where if pod is not None and pod.bound else None
        self.bound_pods.note(pod_name, bound or self._expected.get(pod_name))

    # -- what an ordinal's previous pod carried ----------------------------------------------------

    def _note_unbound(self, pod: PodClaims) -> None:
        if pod.bound and not pod.last_ledger:
            self.unbound.pop(pod.name, None)
        else:
            self.unbound[pod.name] = pod

    def recall(
        self, pod_name: str, last_ledger: Mapping[str, Share], *, settled: bool, location: Location
    ) -> None:
        """Take over what another state remembers of an ordinal, before the ordinal's pod comes."""
        pod = self._pod(pod_name)
        pod.last_ledger, pod.last_ledger_settled = dict(last_ledger), settled
        pod.last_location = location
        self._note_unbound(pod)

    def forget_last_ledger(self, pod_name: str) -> None:
        """Forget what the ordinal's former pod was seen to carry."""
        if (pod := self.pods.get(pod_name)) is not None:
            pod.last_ledger = {}
            self._note_unbound(pod)
            self._forget_if_empty(pod)

    def _forget_gone(self, now: float) -> None:
        """Forget the last ledgers of ordinals that the StatefulSet has not had for a while.

        Not at once: our watch of StatefulSets may be behind that of pods, and the ordinal's next
        pod may be bound soon (I2). For ordinals that the StatefulSet has, the last ledger is
        kept for that bind, however late, and only marked as settled. So it is for an ordinal whose
        next pod is there already, since that watch may be behind for longer (seed 590003167).
        """
        held = [pod for pod in self.unbound.values() if pod.last_ledger]
        self._gone_since = {pod.name: self._gone_since.get(pod.name, now) for pod in held}
        for pod in held:
            if now - self._gone_since[pod.name] < HOLD_S:
                continue
            if self.is_member(pod) or pod.pod is not None:
                pod.last_ledger_settled = True
            else:
                self.forget_last_ledger(pod.name)

    # -- where bits are derived --------------------------------------------------------------------

    def _pod(self, name: str) -> PodClaims:
        pod = self.pods.get(name)
        if pod is None:
            pod = self.pods[name] = self.unbound[name] = PodClaims(name, ordinal_of(name))
            self._index(pod)
            self._refresh(pod)
        return pod

    def _index(self, pod: PodClaims) -> None:
        if (
            pod.ordinal is not None
            and self.stateful_set is not None
            and pod.name == f"{self.stateful_set.name}-{pod.ordinal}"
        ):
            self.by_ordinal[pod.ordinal] = pod
            self.tenant_room.mark(pod, pod.ordinal)

    def indexed_ordinal(self, pod: PodClaims) -> int | None:
        """The ordinal by which ``by_ordinal`` has the pod. None if its name is not that of the
        StatefulSet with an ordinal: the bit sets do not have such a pod.
        """
        ordinal = pod.ordinal
        return ordinal if ordinal is not None and self.by_ordinal.get(ordinal) is pod else None

    def _forget_if_empty(self, pod: PodClaims) -> None:
        if pod.pod is None and not pod.claims and not pod.last_ledger:
            self.pods.pop(pod.name, None)
            self.unbound.pop(pod.name, None)
            if (ordinal := self.indexed_ordinal(pod)) is not None:
                del self.by_ordinal[ordinal]
                self._set_bits(pod, ordinal, schedulable=False)
                self.down &= ~(1 << ordinal)

    def _refresh(self, pod: PodClaims) -> None:
        self.revision += 1
        pod.revision += 1
        slots = self.adapter_pool.slots_per_pod if self.adapter_pool is not None else 0
        if pod.pod is not None and (own := pod.pod.own_slots) is not None:
            slots = min(slots, own)
        pod.capacity = slots
        pod.capacities = self.capacities
        pod.abandoned = pod.name in self.abandoned
        pod.evicted = None
        if pod.pod is not None and self.adapter_pool is not None:
            pod.evicted = evicted_for(pod.pod, self.adapter_pool)
        pod.condemned = self.stateful_set is not None and pod.bound and not self.is_member(pod)
        ordinal = self.indexed_ordinal(pod)
        if ordinal is None:
            pod.schedulable = pod.open = False
            return
        self._note_down(pod)
        exists = self.stateful_set is not None and ordinal in self.stateful_set.ordinals
        pod.schedulable = exists and not pod.abandoned and not pod.why_unschedulable()
        self._set_bits(pod, ordinal, schedulable=pod.schedulable)

    def _note_down(self, pod: PodClaims) -> None:
        if (ordinal := self.indexed_ordinal(pod)) is not None:
            bit = 1 << ordinal
            self.down = self.down | bit if pod.down else self.down & ~bit

    def _follow_room(self, pod: PodClaims) -> None:
        """Update ``room`` after a change of the pod's claims alone."""
        self.revision += 1
        pod.revision += 1
        ordinal = pod.ordinal
        if ordinal is None or not pod.schedulable:
            return
        open_ = pod.has_room and not self.closed >> ordinal & 1
        if open_ is not pod.open:
            pod.open = open_
            self.room ^= 1 << ordinal
        self._count_free(pod)

    def _count_free(self, pod: PodClaims) -> None:
        """Update ``free_by_zone`` after the pod's claims, slots or openness have changed."""
        free = pod.capacity - pod.held if pod.open else 0
        if free != pod.counted_free:
            zone = pod.location[1]
            self.free_by_zone[zone] = self.free_by_zone.get(zone, 0) + free - pod.counted_free
            pod.counted_free = free

    def _set_bits(self, pod: PodClaims, ordinal: int, *, schedulable: bool) -> None:
        bit = 1 << ordinal
        open_ = pod.open = schedulable and pod.has_room and not self.closed & bit
        self.schedulable = self.schedulable | bit if schedulable else self.schedulable & ~bit
        self.room = self.room | bit if open_ else self.room & ~bit
        node = pod.node.name if schedulable and pod.node is not None else ""
        zone = pod.node.zone if schedulable and pod.node is not None else ""
        if (node, zone) != pod.location:
            if pod.counted_free:
                self.free_by_zone[pod.location[1]] -= pod.counted_free
                pod.counted_free = 0
            _move_bit(self.nodes, bit, pod.location[0], node)
            _move_bit(self.zones, bit, pod.location[1], zone)
            if pod.location[1] not in self.zones:
                self.free_by_zone.pop(pod.location[1], None)
            pod.location = (node, zone)
        self._count_free(pod)


def _move_bit(sets: dict[str, int], bit: int, old: str, new: str) -> None:
    """Move a bit from one named set to another; "" is none."""
    if old and (left := sets.get(old, 0) & ~bit):
        sets[old] = left
    else:
        sets.pop(old, None)
    if new:
        sets[new] = sets.get(new, 0) | bit
