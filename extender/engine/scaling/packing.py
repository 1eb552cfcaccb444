"""``Packing``: what a pool's pods could still take, were all that waits placed now. Pure; for
sizing a pool.

A pod counts as it will be: one that is pending or has not been created yet counts as empty, one
that cannot take work not at all. What another vpod is giving up right now is free here already,
since it needs no new pod. What a vpod's vreplicas are to weigh more than its ledgers say is taken:
it will have that room, or keeps others from it while it may not be decided. Bytes of ledgers are
room as slots are (``LedgerRoom``): a pod that has no more of them for a vpod is full for it.

``ZonePacking`` keeps a hard zone rule on top (after each vreplica, no zone has more than
``max_skew`` of the vpod more than the emptiest zone): free slots in a zone that may not take the
next vreplica are no room. Where a pod to come will stand is not known, so it is taken to go where
it is missing; kube-scheduler and our prioritize work to that end.
"""

from dataclasses import dataclass

from extender.engine.placing.grow import round_robin
from extender.engine.pods.bits import bits
from extender.engine.pods.claims import PodClaims
from extender.engine.policy.spreading import ZoneSpread
from extender.engine.state.ledger_room import LedgerRoom
from extender.engine.state.pool_state import PoolState
from extender.model.objects import AdapterPool


class Packing:
    """Free slots by ordinal, from which ``add`` takes; ``added`` empty pods appended while
    something was left.

    ``added_max``: pods that may be appended.
    """

    def __init__(
        self, state: PoolState, pool: AdapterPool, ordinals: range, *, added_max: int
    ) -> None:
        self._ledgers = LedgerRoom(state)
        self._next = ordinals.stop
        self._slots = pool.slots_per_pod
        self._added_max = added_max
        self.added = 0
        self._free: dict[int, int] = {}
        left = to_replace(state)
        for ordinal in ordinals:
            pod = state.by_ordinal.get(ordinal)
            if pod is None:
                self._free[ordinal] = self._slots
            elif pod.schedulable or to_come(pod) or (pod.abandoned and pod.name not in left):
                self._free[ordinal] = pod.capacity - pod.placed - _heavier(pod)
        self._with_free: dict[int, int] = {}
        """Free slots -> bit set of the ordinals that have so many: a pod too full for a vreplica is
        not looked at for it.
        """
        for ordinal, slots in self._free.items():
            self._with_free[slots] = self._with_free.get(slots, 0) | 1 << ordinal

        self.barred = 0
        """Bit set of the ordinals that get nothing for now."""

    def leave(self, vpod_key: str, pod: PodClaims, vreplicas: int) -> None:
        """A vpod takes vreplicas off a pod that is not among ``ordinals``, to be added to one that
        is.
        """

    def add(self, vpod_key: str, missing: int, weight: int) -> int:
        """Pack ``missing`` vreplicas of ``weight`` slots; how many found no place, though pods were
        appended.
        """
        missing = self._fill(self._fitting(vpod_key, weight), vpod_key, missing, weight)
        # What is appended is all that has room by then: to ask all pods again for each would take
        # minutes for a large vpod.
        while missing and (ordinal := self._append()) is not None:
            missing = self._fill(1 << ordinal, vpod_key, missing, weight)
        return missing

    def _fill(self, ordinals: int, vpod_key: str, missing: int, weight: int) -> int:
        room = ordinals & self._fitting(vpod_key, weight)
        given, left = round_robin(room, 0, self._free.__getitem__, missing, weight)
        for ordinal, count in given.items():
            slots, bit = self._free[ordinal], 1 << ordinal
            self._with_free[slots] &= ~bit
            slots -= count * weight
            self._free[ordinal] = slots
            self._with_free[slots] = self._with_free.get(slots, 0) | bit
        self._ledgers.give(vpod_key, given)
        return left

    def _fitting(self, vpod_key: str, weight: int) -> int:
        """Bit set of the ordinals with room for one vreplica of ``weight`` slots of a vpod, in
        their ledgers too.
        """
        return self._ledgers.open_to(self._with_slots(weight), vpod_key)

    def _with_slots(self, weight: int) -> int:
        """Bit set of the ordinals with so many slots free."""
        fitting = 0
        for slots, ordinals in self._with_free.items():
            if slots >= weight:
                fitting |= ordinals
        return fitting & ~self.barred

    def _append(self) -> int | None:
        """The ordinal of one more pod; None where there may be none."""
        if self.added >= self._added_max:
            return None
        ordinal = self._next
        self._free[ordinal] = self._slots
        self._with_free[self._slots] = self._with_free.get(self._slots, 0) | 1 << ordinal
        self._next += 1
        self.added += 1
        return ordinal


def _heavier(pod: PodClaims) -> int:
    """Slots by which vreplicas that stay there weigh more by now than they do in its ledger."""
    if pod.held <= pod.placed:
        return 0  # nearly all of them, nearly always
    return sum(
        claim.status.vreplicas * (claim.status.weight - claim.ledger.weight)
        for claim in pod.claims.values()
        if claim.reserved is None
        and claim.status.weight > claim.ledger.weight
        and 0 < claim.status.vreplicas <= claim.ledger.vreplicas
    )


@dataclass(frozen=True, slots=True)
class ZoneRule:
    """A hard rule: none of ``zones`` may have over ``max_skew`` more of a vpod than another of
    them.
    """

    max_skew: int
    zones: tuple[str, ...]


def zone_rule(state: PoolState) -> ZoneRule | None:
    """The hard zone rule of the pool's profile, as it is for the zones of now; None where it cannot
    refuse anything.
    """
    skew = state.profile.hard_zone_skew
    if skew is None:
        return None
    count_empty = any(
        one.count_empty for one in state.profile.filters if isinstance(one, ZoneSpread)
    )
    # As placing counts them: those that can host the pool's pods, and those where it stands.
    zones = tuple(sorted({*state.hosting.nodes_in, *state.zones} if count_empty else state.zones))
    return ZoneRule(skew, zones) if len(zones) > 1 else None


class ZonePacking(Packing):
    """A packing under a hard zone rule."""

    def __init__(
        self,
        state: PoolState,
        pool: AdapterPool,
        ordinals: range,
        *,
        added_max: int,
        rule: ZoneRule,
    ) -> None:
        super().__init__(state, pool, ordinals, added_max=added_max)
        self._state = state
        self._max_skew = rule.max_skew
        self._zones = {zone: state.zones.get(zone, 0) for zone in rule.zones}
        known = 0
        for bit_set in self._zones.values():
            known |= bit_set
        self._to_come = [ordinal for ordinal in self._free if not known & 1 << ordinal]
        self._slots_left = {
            zone: sum(self._free[ordinal] for ordinal in bits(bit_set & self._with_slots(1)))
            for zone, bit_set in self._zones.items()
        }
        """No less than what fits: there may be too few on each pod."""
        self._counts: dict[str, dict[str, int]] = {}

    def leave(self, vpod_key: str, pod: PodClaims, vreplicas: int) -> None:
        """A vpod takes vreplicas off a pod: its zone has fewer."""
        counts = self._counts_of(vpod_key)
        _, zone = pod.where
        if zone in counts:
            counts[zone] -= vreplicas

    def add(self, vpod_key: str, missing: int, weight: int) -> int:
        """As ``Packing.add``, each vreplica in the emptiest zone that may and can take it."""
        counts = self._counts_of(vpod_key)
        missing -= self._rounds(vpod_key, counts, missing, weight)
        while missing:
            lowest = min(counts.values())
            zone = self._zone_for(vpod_key, counts, lowest, weight)
            if zone is None:
                if not self._grow(counts, missing, weight):
                    return missing
                continue
            missing -= self._give(vpod_key, zone, self._step(counts, zone, lowest, missing), weight)
            if counts[zone] > lowest:
                missing -= self._rounds(vpod_key, counts, missing, weight)
        return 0

    def _rounds(self, vpod_key: str, counts: dict[str, int], missing: int, weight: int) -> int:
        """While all zones are equal: as many to each as every one takes, at once; how many that
        were.
        """
        if len(set(counts.values())) > 1:
            return 0
        rounds = min(missing // len(counts), min(self._slots_left.values()) // weight)
        return (
            sum(self._give(vpod_key, zone, rounds, weight) for zone in counts) if rounds > 0 else 0
        )

    def _give(self, vpod_key: str, zone: str, vreplicas: int, weight: int) -> int:
        given = vreplicas - self._fill(self._zones[zone], vpod_key, vreplicas, weight)
        self._counts_of(vpod_key)[zone] += given
        self._slots_left[zone] -= given * weight
        return given

    def _counts_of(self, vpod_key: str) -> dict[str, int]:
        counts = self._counts.get(vpod_key)
        if counts is None:
            counts = self._counts[vpod_key] = dict.fromkeys(self._zones, 0)
            for name, claim in self._state.claims_of(vpod_key).items():
                _, zone = self._state.pods[name].where
                if zone in counts:
                    counts[zone] += claim.placed.vreplicas
        return counts

    def _zone_for(
        self, vpod_key: str, counts: dict[str, int], lowest: int, weight: int
    ) -> str | None:
        """Of the zones that may and can take one, the emptiest; of equals, the one with most slots
        left.
        """
        allowed = [zone for zone, count in counts.items() if count + 1 - lowest <= self._max_skew]
        allowed.sort(key=lambda zone: (counts[zone], -self._slots_left[zone]))
        fitting = self._fitting(vpod_key, weight) if allowed else 0
        return next((zone for zone in allowed if self._zones[zone] & fitting), None)

    def _step(self, counts: dict[str, int], zone: str, lowest: int, missing: int) -> int:
        """vreplicas for this zone before another is looked at: to be level with the next, or as far
        as it may go.
        """
        if counts[zone] > lowest:
            return min(missing, lowest + self._max_skew - counts[zone])
        others = min(count for name, count in counts.items() if name != zone)
        return min(missing, max(1, others - lowest))

    def _grow(self, counts: dict[str, int], missing: int, weight: int) -> bool:
        """Count pods to come, or else more, for the emptiest zone, which has no room; False if
        there are none.

        As many as its even share of what is missing will fill: it gets no less than that.
        """
        zone = min(counts, key=lambda name: (counts[name], name))
        pods = max(1, missing // len(counts) // max(1, self._slots // weight))
        grown = 0
        while grown < pods and (ordinal := self._next_to_come()) is not None:
            self._zones[zone] |= 1 << ordinal
            self._slots_left[zone] += self._free[ordinal]
            grown += 1
        return grown > 0

    def _next_to_come(self) -> int | None:
        for index, ordinal in enumerate(self._to_come):
            if self._free[ordinal] > 0:
                return self._to_come.pop(index)
        return self._append()


def to_come(pod: PodClaims) -> bool:
    """Whether the ordinal's pod is still to be bound: it will take work."""
    return not (pod.bound or pod.draining)


def to_replace(state: PoolState) -> frozenset[str]:
    """Pods whose load needs another place: those being drained or condemned, and those taken for
    lost, as far as others can work.

    One that is taken for lost and not bound counts as still to come: where there is no machine for
    it, there is none for a further one. Of those on nodes that are not Ready all are replaced,
    since a new pod goes to another node. Of those on nodes that are Ready one more is replaced than
    there are pods at work. Where adapters do not get Ready at all, that one extra pod shows it, and
    further ones would only be lost in their turn.
    """
    draining = [pod.name for pod in state.pods.values() if pod.draining or pod.condemned]
    if not state.abandoned:
        return frozenset(draining)
    lost = [pod for pod in state.members() if pod.abandoned and pod.bound and not pod.draining]
    with_node = [pod.name for pod in lost if pod.node is not None and not pod.node.ready]
    alone = [pod.name for pod in lost if pod.node is None or pod.node.ready]
    working = sum(1 for pod in state.members() if pod.bound and not pod.leaving)
    return frozenset({*draining, *with_node, *alone[: working + 1]})
