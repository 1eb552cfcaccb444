"""``PoolState``: one pool's part of the state. Changes update it by differences; no decision
rebuilds it.

Two Python ints are bit sets over ordinals. ``schedulable`` has the pods that may take new
vreplicas. ``room`` has those of them that have a free slot and bytes in their ledger, and are not
closed. ``closed`` has the ordinals that are being emptied or in doubt: they get nothing new, and
what they have stays until it is moved. ``shares`` has, by tenant, the pods on which that tenant
gets no further ledger entry. ``zones`` and ``nodes`` divide ``schedulable`` by zone and by node.
The lowest ordinal is the lowest set bit, so finding the place of a vreplica takes a few machine
operations, however many pods there are.

``_refresh`` derives the bits after a change of a pod, a node or the pool, and ``_follow_room``
after a change of claims alone. Only ``_claim`` and ``_add_claim`` change the sums of a pod's
claims. ``revision`` grows with every change: what somebody has derived from the pool is valid while
``revision`` stays the same.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from extender.engine.pods.bits import bits
from extender.engine.pods.bound_pods import BoundPods, Location
from extender.engine.pods.claims import (
    NOTHING,
    SHARE_BYTES_MAX,
    TENANT_ROOM_BYTES_MAX,
    Claim,
    PodClaims,
    publishing,
    recorded,
    recording,
    reserving,
    tenant_of,
)
from extender.engine.pods.ledger_shares import LedgerShares
from extender.engine.pods.pod_loads import NO_LOADS
from extender.engine.pods.topology import Topology, Zones
from extender.engine.policy.profile import DEFAULT_PROFILE, Profile, Ties
from extender.engine.state.ordinal_history import HOLD_S
from extender.engine.state.state_observer import StateObserver
from extender.model.amounts import NO_AMOUNTS, Amounts, add_to, amounts_bytes, times
from extender.model.ledger import EMPTY_LEDGER, Ledger, Share, share_of
from extender.model.objects import (
    AdapterPod,
    AdapterPool,
    Node,
    StatefulSet,
    VPod,
    ordinal_of,
    placement_order,
)


class SlotCounts(NamedTuple):
    """Slots of a pool. ``used + free + closed == total``, or more if a ledger exceeds its pod's
    slots.

    ``closed`` (status.closedSlots): slots left on pods that take nothing new, for any reason. Such
    a pod is on a cordoned node, drained, not Ready for too long or being emptied, or it has a full
    ledger. (A closed pod or ordinal is only one that is being emptied: ``PoolState.closed``.)
    """

    total: int
    used: int
    free: int
    closed: int


class PoolState:
    """State of the pool ``key``. ``adapter_pool`` and ``stateful_set`` are None until they are
    known.

    ``taken_by``: key of another pool that names the same StatefulSet and has it, "" if none. This
    pool then has no StatefulSet.
    """

    load = NO_LOADS
    """Set by who leads the pool. It is no part of ``revision``: only new placements look at it."""
    asked = 0
    """How often what vpods ask for has changed. Where they are placed is no part of it."""

    def __init__(self, key: str, topology: Topology | None = None) -> None:
        self.key, self.revision = key, 0
        self.observer: StateObserver | None = None
        self.topology = topology if topology is not None else Topology()
        self.profile: Profile = DEFAULT_PROFILE
        self.adapter_pool: AdapterPool | None = None
        self.stateful_set: StatefulSet | None = None
        self.taken_by = ""
        self.pods: dict[str, PodClaims] = {}
        self.unowned_pods: dict[str, AdapterPod] = {}
        """By name, pods with the pool's label that are not its own (``ClusterState.pod_changed``).
        They count nowhere.
        """
        self.by_ordinal: dict[int, PodClaims] = {}
        self.vpods: dict[str, VPod] = {}
        self.placements: dict[str, dict[str, Claim]] = {}
        """vpod key -> pod name -> its claim there, the same object as in ``PodClaims.claims``."""
        self.unplaced: dict[str, None] = {}
        """vpods with fewer vreplicas placed than wanted, in the order in which that was noticed."""
        self.unserved: dict[str, int] = {}
        """vpod key -> vreplicas that it publishes on pods that are down (see ``availability``);
        never 0.
        """
        self.schedulable = self.room = self.closed = self.in_doubt = self.down = 0
        """Bit sets of ordinals. ``in_doubt``: those of ``closed`` that nothing empties. They are
        closed only because an earlier scale-down may still be under way and remove them. ``down``:
        those whose pods are down (``PodClaims.down``).
        """
        self.shares = LedgerShares()
        self.abandoned: frozenset[str] = frozenset()
        """Pods that were not Ready for longer than rescheduleAfterSeconds. What they have is placed
        elsewhere.
        """
        self.next_start_ordinal = 0
        """Where ties of the next decision start, with ``Ties.ROUND_ROBIN``."""
        self.watched_sources: frozenset[str] = frozenset()
        """Foreign kinds of which ``vpods`` has all objects. Any other vpod of these
        kinds is gone.
        """
        self.bound_pods = BoundPods()
        self._expected: dict[str, Location] = {}
        """Pod name -> where a bind that still waits would put it."""
        self.zones: dict[str, int] = {}
        """Zone -> bit set of the schedulable pods on its nodes; never 0."""
        self.nodes: dict[str, int] = {}
        """Node name -> bit set of the schedulable pods on it; never 0."""
        self.free_by_zone: dict[str, int] = {}
        """Zone -> free slots of the pods in ``room``. The sum is kept by differences."""
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
    def forgettable(self) -> bool:
        """Whether nothing refers to this pool any more."""
        return self.adapter_pool is None and not self.pods and not self.vpods

    @property
    def hosting(self) -> Zones:
        """The nodes that pods of its StatefulSet can run on, and their zones."""
        return self.topology.hosting(
            self.stateful_set.fit if self.stateful_set is not None else None
        )

    def claims_of(self, vpod_key: str) -> Mapping[str, Claim]:
        """Pod name -> claim of one vpod, in no order."""
        return self.placements.get(vpod_key, {})

    def placed_of(self, vpod_key: str) -> dict[str, int]:
        """Pod name -> vreplicas that decisions start from, by ordinal, without zeros."""
        claims = self.placements.get(vpod_key)
        if claims is None:
            return {}
        return {
            name: count
            for name in sorted(claims, key=placement_order)
            if (count := claims[name].placed.vreplicas)
        }

    def placed_vreplicas(self, vpod_key: str) -> int:
        """The number of a vpod's vreplicas that are placed."""
        return sum([claim.placed.vreplicas for claim in self.claims_of(vpod_key).values()])

    def is_member(self, state: PodClaims) -> bool:
        """Whether the StatefulSet has that pod, by name and ordinal.

        The name counts, since a vpod whose poolRef has changed still publishes the names of its old
        pool's pods.
        """
        return (
            self.stateful_set is not None
            and state.ordinal in self.stateful_set.ordinals
            and state.name == f"{self.stateful_set.name}-{state.ordinal}"
        )

    def counts(self, pod: AdapterPod) -> bool:
        """Whether the StatefulSet controls that pod. True while none is known: then nothing is
        placed, and what is there stays.
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

    def entries_of(self, vpod_key: str) -> int:
        """Bit set of the pods whose ledgers have an entry of the vpod, or will have one soon."""
        own = 0
        for name in self.placements.get(vpod_key, ()):
            ordinal = self.pods[name].ordinal
            if ordinal is not None and self.by_ordinal.get(ordinal) is self.pods[name]:
                own |= 1 << ordinal
        return own

    def room_for(self, vpod_key: str) -> int:
        """``room`` without the pods on which the vpod's namespace has used up its share of the
        ledger. Pods that have an entry of the vpod stay.
        """
        return self.open_to(self.room, vpod_key) if self.shares.spent else self.room

    def open_to(self, ordinals: int, vpod_key: str) -> int:
        """``ordinals`` without the pods that ``room_for`` leaves out."""
        spent = self.shares.spent.get(tenant_of(vpod_key), 0) & ordinals
        return ordinals & ~(spent & ~self.entries_of(vpod_key)) if spent else ordinals

    def schedulable_count(self) -> int:
        """Number of pods that may take new vreplicas."""
        return self.schedulable.bit_count()

    def free_of(self, ordinal: int) -> int:
        """Free slots of the pod with that ordinal."""
        pod = self.by_ordinal[ordinal]
        return pod.capacity - pod.held

    def free_for(self, vpod: VPod) -> Callable[[int], int]:
        """A function: an ordinal's free slots, as far as vreplicas of a vpod can use them.

        Beside ``free_of``, that is what the pod's dimensions allow.
        """
        weight, amounts, by_ordinal = vpod.weight, vpod.per_vreplica, self.by_ordinal
        if not amounts:
            return self.free_of
        return lambda ordinal: by_ordinal[ordinal].slots_for(weight, amounts, 0, "")

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

    # -- changes from the API server ---------------------------------------------------------------

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
        self.shares.clear()
        self.zones, self.nodes, self.free_by_zone = {}, {}, {}
        for pod in list(self.pods.values()):
            pod.location, pod.counted_free = ("", ""), 0
            self._index(pod)
            self._refresh(pod)
            self._forget_if_empty(pod)
        for key in {**self.vpods, **self.placements}:
            self._refresh_vpod(key)

    def set_profile(self, profile: Profile) -> None:
        """Place by this profile from now on."""
        self.profile = profile
        self.revision += 1

    def keep_waiting(self, keys: Iterable[str]) -> None:
        """Sort ``unplaced``: these keys first, in their order, then the others as they are."""
        unplaced = self.unplaced
        ordered = dict.fromkeys(key for key in keys if key in unplaced)
        if list(ordered) != list(unplaced):
            self.unplaced = ordered | unplaced

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
            if (state := self.by_ordinal.get(ordinal)) is not None:
                self._refresh(state)

    def set_abandoned(self, names: frozenset[str]) -> None:
        """Abandon these pods, and no others. They are not schedulable, and what they have is placed
        elsewhere.
        """
        if self.observer is not None:
            self.observer.abandoned(self.key, names)
        changed, self.abandoned = self.abandoned ^ names, names
        self.revision += 1
        for name in sorted(changed):
            if (state := self.pods.get(name)) is not None:
                self._refresh(state)

    def pod_changed(
        self, old: AdapterPod | None, new: AdapterPod | None, node: Node | None
    ) -> None:
        """A pod came, changed or went. An unbound pod's annotation is advice and claims nothing."""
        name = (new or old or _neither()).name
        state = self._pod(name)
        if old is not None and old.node and old.ledger and (new is None or new.uid != old.uid):
            state.last_ledger, state.last_ledger_old = dict(old.ledger), False
        if new is not None and new.node and not new.assumed:
            state.last_ledger = {}
        self._stand(state, new, node)
        self._note_unbound(state)
        self._set_ledger(
            state, new.ledger if new is not None and new.node and not new.finished else EMPTY_LEDGER
        )
        self._refresh(state)
        self._forget_if_empty(state)

    @contextmanager
    def expecting(self, pod_name: str, node: Node) -> Iterator[None]:
        """Count the pod on that node in ``bound_pods`` while its bind waits before it can assume
        the pod. kube-scheduler asks about the next pod meanwhile, and would put all of them into
        one zone.
        """
        self._expected[pod_name] = (node.name, node.zone)
        self._note_location(pod_name)
        try:
            yield
        finally:
            self._expected.pop(pod_name, None)
            self._note_location(pod_name)

    def _note_location(self, pod_name: str) -> None:
        state = self.pods.get(pod_name)
        bound = state.where if state is not None and state.bound else None
        self.bound_pods.note(pod_name, bound or self._expected.get(pod_name))

    def _note_unbound(self, state: PodClaims) -> None:
        if state.bound and not state.last_ledger:
            self.unbound.pop(state.name, None)
        else:
            self.unbound[state.name] = state

    def forget_last_ledger(self, pod_name: str) -> None:
        """Forget what the ordinal's former pod was seen to carry."""
        if (state := self.pods.get(pod_name)) is not None:
            state.last_ledger = {}
            self._note_unbound(state)
            self._forget_if_empty(state)

    def recall(
        self, pod_name: str, last_ledger: Mapping[str, Share], *, old: bool, location: Location
    ) -> None:
        """Take over what another state remembers of an ordinal, before the ordinal's pod comes."""
        state = self._pod(pod_name)
        state.last_ledger, state.last_ledger_old = dict(last_ledger), old
        state.last_location = location
        self._note_unbound(state)

    def node_changed(self, pod_name: str, node: Node | None) -> None:
        """The node under a pod changed."""
        if (state := self.pods.get(pod_name)) is not None:
            self._stand(state, state.pod, node)
            self._refresh(state)

    def end_excuse(self, pod_name: str) -> None:
        """That pod has been away for too long: what it holds counts as not served from now on."""
        state = self.pods.get(pod_name)
        if state is not None and state.excused:
            state.excused = False
            self._note_down(state)
            self.revision += 1
            state.revision += 1
            self._refresh_served(state)

    def _stand(self, state: PodClaims, pod: AdapterPod | None, node: Node | None) -> None:
        down = state.down
        state.stand(pod, node)
        self._note_location(state.name)
        if state.down is not down:
            self._refresh_served(state)

    def _note_down(self, state: PodClaims) -> None:
        ordinal = state.ordinal
        if ordinal is not None and self.by_ordinal.get(ordinal) is state:
            bit = 1 << ordinal
            self.down = self.down | bit if state.down else self.down & ~bit

    def _refresh_served(self, state: PodClaims) -> None:
        for key, claim in state.claims.items():
            if claim.published:
                self._count_unserved(key)

    def _count_unserved(self, key: str) -> None:
        """Count what a vpod publishes on pods that are down."""
        unserved = 0
        if key in self.vpods:
            pods = self.pods
            for name, claim in self.claims_of(key).items():
                if claim.status.vreplicas and pods[name].down:
                    unserved += claim.status.vreplicas
        if unserved:
            self.unserved[key] = unserved
        else:
            self.unserved.pop(key, None)

    def vpod_changed(self, old: VPod | None, new: VPod | None) -> None:
        """A vpod came, changed or went. What its status publishes is claimed."""
        key = (new or old or _neither_vpod()).key
        self.asked += _asks(self.vpods.get(key)) != _asks(new)
        if new is None:
            # Keep what its ordinals were last seen to carry. A new vpod of the same name may
            # publish it already, unseen by us, and a bind must cover that (I2). If a bind carries
            # too much, that is corrected at once.
            self.vpods.pop(key, None)
        else:
            self.vpods[key] = new
        published = new.placements if new is not None else {}
        weight = new.weight if new is not None else 1
        amounts = new.per_vreplica if new is not None else NO_AMOUNTS
        claims = self.claims_of(key)
        for name in {**claims, **published}:
            count = published.get(name, 0)
            share = share_of(count, weight, amounts) if count else NOTHING
            known = claims.get(name)
            if share == (known.status if known is not None else NOTHING):
                continue
            if known is not None and known.is_confirmed_by(share):
                known.status = share
            else:
                self._claim(key, name, publishing(share))
        if old is None or new is None or old.placements != new.placements:
            self._count_unserved(key)
        self._refresh_vpod(key)

    # -- reservations ------------------------------------------------------------------------------

    def reserve(
        self, owner: object, vpod_key: str, shares: Mapping[str, Share], *, expires_at: float
    ) -> None:
        """Reserve a decision's share for each pod, until it is released or ``expires_at`` (s) has
        passed. A share smaller than the present one takes vreplicas away.
        """
        if self.observer is not None:
            self.observer.reserved(self.key, owner, vpod_key, shares, expires_at)
        if self.profile.ties is Ties.ROUND_ROBIN:
            self._take_turns(vpod_key, shares)
        pods = self.pods
        for name, share in shares.items():
            state = pods.get(name) or self._pod(name)
            if vpod_key in state.claims:
                self._claim(vpod_key, name, reserving(share, owner, expires_at))
                continue
            # Most claims that are decided are new. Of the pod, only its room depends on them.
            self._add_claim(vpod_key, state, Claim(share, owner, expires_at))
            if state.open:
                if not state.has_room:
                    self._follow_room(state)
                else:
                    self._count_free(state)
        self._refresh_vpod(vpod_key)

    def _take_turns(self, vpod_key: str, shares: Mapping[str, Share]) -> None:
        """The next decision's ties start after the last pod that this one gives something, counted
        around from where this one started.
        """
        claims = self.claims_of(vpod_key)
        given = [
            ordinal
            for name, share in shares.items()
            if (ordinal := ordinal_of(name)) is not None
            and share.vreplicas > (claims[name].placed.vreplicas if name in claims else 0)
        ]
        if given:
            around = [ordinal for ordinal in given if ordinal < self.next_start_ordinal]
            self.next_start_ordinal = max(around or given) + 1

    def release(self, owner: object, vpod_key: str) -> None:
        """Release exactly the reservations of ``owner``. Later ones of another owner stay."""
        if self.observer is not None:
            self.observer.released(self.key, owner, vpod_key)
        claims = self.placements.get(vpod_key, {})
        nothing = reserving(None, None, 0.0)
        for name in list(claims):
            claim = claims.get(name)
            if claim is not None and claim.reserved is not None and claim.owner == owner:
                self._claim(vpod_key, name, nothing)
        self._refresh_vpod(vpod_key)

    def owners(self) -> list[tuple[object, str]]:
        """The (owner, vpod key) of all reservations, each once."""
        found = (
            (claim.owner, key)
            for key, claims in self.placements.items()
            for claim in claims.values()
            if claim.reserved is not None
        )
        return list(dict.fromkeys(found))

    def expire(self, now: float) -> list[str]:
        """Drop reservations that no write confirmed in time, and return the keys of their vpods.
        Also forget the last ledgers of ordinals that are gone.
        """
        self._forget_gone(now)
        stale = [
            (key, name)
            for key, claims in self.placements.items()
            for name, claim in claims.items()
            if claim.reserved is not None and claim.expires_at <= now
        ]
        for key, name in stale:
            self._claim(key, name, reserving(None, None, 0.0))
            self._refresh_vpod(key)
        return sorted({key for key, _ in stale})

    def _forget_gone(self, now: float) -> None:
        """Forget the last ledgers of ordinals that the StatefulSet has not had for a while.

        Not at once: our watch of StatefulSets may be behind that of pods, and the ordinal's next
        pod may be bound soon (I2). For ordinals that the StatefulSet has, the last ledger is
        kept for that bind, however late, and only marked as old.
        """
        held = [state for state in self.unbound.values() if state.last_ledger]
        self._gone_since = {state.name: self._gone_since.get(state.name, now) for state in held}
        for state in held:
            if now - self._gone_since[state.name] < HOLD_S:
                continue
            if self.is_member(state):
                state.last_ledger_old = True
            else:
                self.forget_last_ledger(state.name)

    # -- where sums and bits are derived -----------------------------------------------------------

    def _pod(self, name: str) -> PodClaims:
        state = self.pods.get(name)
        if state is None:
            state = self.pods[name] = self.unbound[name] = PodClaims(name, ordinal_of(name))
            self._index(state)
            self._refresh(state)
        return state

    def _index(self, state: PodClaims) -> None:
        if (
            state.ordinal is not None
            and self.stateful_set is not None
            and state.name == f"{self.stateful_set.name}-{state.ordinal}"
        ):
            self.by_ordinal[state.ordinal] = state
            self.shares.mark(state, state.ordinal)

    def _forget_if_empty(self, state: PodClaims) -> None:
        if state.pod is None and not state.claims and not state.last_ledger:
            self.pods.pop(state.name, None)
            self.unbound.pop(state.name, None)
            if state.ordinal is not None and self.by_ordinal.get(state.ordinal) is state:
                del self.by_ordinal[state.ordinal]
                self._set_bits(state, state.ordinal, schedulable=False)
                self.down &= ~(1 << state.ordinal)

    def _set_ledger(self, state: PodClaims, ledger: Ledger) -> None:
        """Record what a pod's annotation says. The caller must refresh the pod afterwards."""
        for key, claim in list(state.claims.items()):
            share = ledger.get(key, NOTHING)
            if share != claim.ledger and self._claim(key, state.name, recording(share)):
                self._refresh_vpod(key)
        claims, vpods = state.claims, self.vpods
        for key, share in ledger.items():
            if key not in claims and share.vreplicas:
                # A first list brings many new claims. Only the pod's sums depend on such a claim.
                self._add_claim(key, state, recorded(share))
                if key in vpods:
                    self._refresh_vpod(key)

    def _claim(self, key: str, pod_name: str, change: Callable[[Claim], None]) -> bool:
        """Change a claim, and the sums of its pod. Return whether what is placed has changed."""
        state = self.pods.get(pod_name) or self._pod(pod_name)
        claim = state.claims.get(key) or self._add_claim(key, state, Claim())
        held, placed, amounts = claim.held_slots, claim.placed, claim.held_amounts
        change(claim)
        state.held += claim.held_slots - held
        if amounts or claim.held_amounts or placed.amounts:
            self._follow_amounts(key, state, claim, amounts, placed)
        moved = claim.placed != placed
        if moved:
            state.placed += claim.placed.slots - placed.slots
        if claim.empty:
            self._drop_claim(key, state)
        self._follow_room(state)
        if state.pod is None:
            self._forget_if_empty(state)
        return moved

    def _add_claim(self, key: str, state: PodClaims, claim: Claim) -> Claim:
        """Add a claim that has at most one side, so it holds just what it places."""
        state.claims[key] = claim
        state.revision += 1
        state.held += claim.held_slots
        state.placed += claim.held_slots
        size = len(key) + SHARE_BYTES_MAX
        if claim.held_amounts:
            add_to(state.held_amounts, claim.held_amounts)
            add_to(state.placed_amounts, claim.held_amounts)
            size += amounts_bytes(claim.held_amounts)
        state.ledger_bytes += size
        if state.ledger_bytes > TENANT_ROOM_BYTES_MAX:
            self._follow_shares(state, key, size)
        claims = self.placements.get(key)
        if claims is None:
            self.placements[key] = {state.name: claim}
        else:
            claims[state.name] = claim
        return claim

    def _follow_amounts(
        self, key: str, state: PodClaims, claim: Claim, held: Amounts, placed: Share
    ) -> None:
        """Keep the sums of the dimensions. ``held``, ``placed``: of the claim before its change."""
        add_to(state.held_amounts, held, -1)
        add_to(state.held_amounts, claim.held_amounts)
        add_to(state.placed_amounts, times(placed.amounts, placed.vreplicas), -1)
        add_to(state.placed_amounts, times(claim.placed.amounts, claim.placed.vreplicas))
        if longer := amounts_bytes(claim.held_amounts) - amounts_bytes(held):
            was_crowded = state.ledger_bytes > TENANT_ROOM_BYTES_MAX
            state.ledger_bytes += longer
            if was_crowded or state.ledger_bytes > TENANT_ROOM_BYTES_MAX:
                self._follow_shares(state, key, longer)

    def _drop_claim(self, key: str, state: PodClaims) -> None:
        del state.claims[key]
        was_crowded = state.ledger_bytes > TENANT_ROOM_BYTES_MAX
        state.ledger_bytes -= len(key) + SHARE_BYTES_MAX
        if was_crowded:
            self._follow_shares(state, key, -len(key) - SHARE_BYTES_MAX)
        claims = self.placements[key]
        del claims[state.name]
        if not claims:
            del self.placements[key]

    def _follow_shares(self, state: PodClaims, key: str, change: int) -> None:
        """A ledger that is crowded (see ``LedgerShares``), or was, has got an entry of ``change``
        bytes, or lost it if negative.
        """
        ordinal = state.ordinal
        found = ordinal is not None and self.by_ordinal.get(ordinal) is state
        self.shares.entry_changed(state, ordinal if found else None, key, change)

    def _refresh(self, state: PodClaims) -> None:
        self.revision += 1
        state.revision += 1
        slots = self.adapter_pool.slots_per_pod if self.adapter_pool is not None else 0
        if state.pod is not None and (own := state.pod.own_slots) is not None:
            slots = min(slots, own)
        state.capacity = slots
        state.capacities = self.capacities
        state.abandoned = state.name in self.abandoned
        state.condemned = (
            self.stateful_set is not None and state.bound and not self.is_member(state)
        )
        ordinal = state.ordinal
        if ordinal is None or self.by_ordinal.get(ordinal) is not state:
            state.schedulable = state.open = False
            return
        self._note_down(state)
        # Only pods with the StatefulSet's name are found by ordinal.
        exists = self.stateful_set is not None and ordinal in self.stateful_set.ordinals
        state.schedulable = exists and not state.abandoned and not state.why_unschedulable()
        self._set_bits(state, ordinal, schedulable=state.schedulable)

    def _follow_room(self, state: PodClaims) -> None:
        """Update ``room`` after a change of the pod's claims alone."""
        self.revision += 1
        state.revision += 1
        ordinal = state.ordinal
        if ordinal is None or not state.schedulable:
            return
        open_ = state.has_room and not self.closed >> ordinal & 1
        if open_ is not state.open:
            state.open = open_
            self.room ^= 1 << ordinal
        self._count_free(state)

    def _count_free(self, state: PodClaims) -> None:
        """Update ``free_by_zone`` after the pod's claims, slots or openness have changed."""
        free = state.capacity - state.held if state.open else 0
        if free != state.counted_free:
            zone = state.location[1]
            self.free_by_zone[zone] = self.free_by_zone.get(zone, 0) + free - state.counted_free
            state.counted_free = free

    def _set_bits(self, state: PodClaims, ordinal: int, *, schedulable: bool) -> None:
        bit = 1 << ordinal
        open_ = state.open = schedulable and state.has_room and not self.closed & bit
        self.schedulable = self.schedulable | bit if schedulable else self.schedulable & ~bit
        self.room = self.room | bit if open_ else self.room & ~bit
        node = state.node.name if schedulable and state.node is not None else ""
        zone = state.node.zone if schedulable and state.node is not None else ""
        if (node, zone) != state.location:
            if state.counted_free:
                self.free_by_zone[state.location[1]] -= state.counted_free
                state.counted_free = 0
            _move_bit(self.nodes, bit, state.location[0], node)
            _move_bit(self.zones, bit, state.location[1], zone)
            if state.location[1] not in self.zones:
                self.free_by_zone.pop(state.location[1], None)
            state.location = (node, zone)
        self._count_free(state)

    def _refresh_vpod(self, key: str) -> None:
        self.revision += 1
        vpod = self.vpods.get(key)
        if vpod is not None and not vpod.deleting and self.placed_vreplicas(key) < vpod.vreplicas:
            self.unplaced.setdefault(key)
        else:
            self.unplaced.pop(key, None)


def _move_bit(sets: dict[str, int], bit: int, old: str, new: str) -> None:
    """Move a bit from one named set to another; "" is none."""
    if old and (left := sets.get(old, 0) & ~bit):
        sets[old] = left
    else:
        sets.pop(old, None)
    if new:
        sets[new] = sets.get(new, 0) | bit


def _neither() -> AdapterPod:
    raise ValueError("a change needs an old or a new pod")


def _asks(vpod: VPod | None) -> tuple[object, ...]:
    """What a vpod asks for; nothing if there is none, or if it wants none. A caller that wants none
    comes and goes with each of its requests.
    """
    if vpod is None or not vpod.vreplicas:
        return ()
    return (vpod.uid, vpod.vreplicas, vpod.weight, vpod.per_vreplica)


def _neither_vpod() -> VPod:
    raise ValueError("a change needs an old or a new vpod")
