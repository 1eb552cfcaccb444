"""``Packing``: what a pool's pods could still take if everything that waits were placed now. Pure;
for sizing a pool.

A pod counts as it will be. One that is pending or has not been created yet counts as empty, and one
that cannot take work does not count. Room that another vpod is giving up counts as free, since it
needs no new pod. If a vpod's vreplicas become heavier than its ledgers say, the difference counts
as taken: the vpod will have that room, or keeps others from it while it cannot be decided. Bytes of
ledgers are room, as slots are (``LedgerRoom``): a pod without bytes for a vpod is full for it. So
are the pool's dimensions (``DimensionRoom``).

``ZonePacking`` adds a hard zone rule: after each vreplica, no zone has more than ``max_skew`` of
the vpod more than the emptiest zone. Free slots in a zone that may not take the next vreplica are
no room. Nobody knows in which zone a coming pod will be. It is assumed to go where it is missing,
since kube-scheduler and our prioritize work towards that.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from extender.engine.placing.grow import round_robin
from extender.engine.pods.bits import bits
from extender.engine.pods.claims import PodClaims
from extender.engine.policy.spreading import ZoneSpread
from extender.engine.scaling.rollout import stays_without_surge
from extender.engine.state.dimension_room import DimensionRoom, beside_placed
from extender.engine.state.ledger_room import LedgerRoom
from extender.engine.state.pool_state import PoolState
from extender.model.amounts import NO_AMOUNTS, Amounts
from extender.model.objects import AdapterPool

_ALL: Final = -1
"""Bit set of all ordinals."""


class Packing:
    """Free slots by ordinal, from which ``add`` takes. ``added``: the empty pods that were appended
    because something was left.

    ``added_max``: how many pods may be appended. ``going``: pods whose load is placed elsewhere
    beside those of ``to_replace``.
    """

    def __init__(
        self,
        state: PoolState,
        pool: AdapterPool,
        ordinals: range,
        *,
        added_max: int,
        going: frozenset[str] = frozenset(),
    ) -> None:
        self._ledgers = LedgerRoom(state)
        empty = dict(pool.capacities)

        def left_of(ordinal: int) -> dict[str, int]:
            pod = state.by_ordinal.get(ordinal)
            return empty if pod is None else beside_placed(pod)

        self._dimensions = DimensionRoom(left_of)
        self._state = state
        self._amounts: Amounts = NO_AMOUNTS
        """What one vreplica takes of the vpod that is being added."""
        self._most = 0
        """The most vreplicas of that vpod on a pod (``VPod.max_per_pod``); 0: any number."""
        self._on_pods: dict[str, dict[int, int]] = {}
        """Vpod key -> ordinal -> its vreplicas there, of vpods with such a limit."""
        self._at_most: dict[str, int] = {}
        """Vpod key -> bit set of the ordinals that may get no more of it."""
        self._ordinals = ordinals
        self._next = ordinals.stop
        self._slots = pool.slots_per_pod
        self._added_max = added_max
        self.added = 0
        self._free: dict[int, int] = {}
        self.going = going
        self._left = to_replace(state) | going
        self.above = frozenset(
            pod.name
            for ordinal, pod in state.by_ordinal.items()
            if ordinal >= ordinals.stop and pod.name not in self._left and pod.claims
        )
        """Pods that carry something, without which the pool is planned."""
        for ordinal in ordinals:
            pod = state.by_ordinal.get(ordinal)
            if pod is None:
                self._free[ordinal] = self._slots
            elif pod.name not in self._left and (
                pod.schedulable or pod.abandoned or will_be_bound(pod)
            ):
                self._free[ordinal] = pod.capacity - pod.decided - _heavier(pod)
        self._with_free: dict[int, int] = {}
        """Free slots -> bit set of the ordinals that have this number. So ``add`` skips pods that
        are too full for a vreplica.
        """
        for ordinal, slots in self._free.items():
            self._with_free[slots] = self._with_free.get(slots, 0) | 1 << ordinal

        self.barred = 0
        """Bit set of the ordinals that get nothing for now."""

    def leave(self, vpod_key: str, pod: PodClaims, vreplicas: int) -> None:
        """A vpod takes vreplicas off a pod outside ``ordinals``, which ``add`` then gives to one
        inside.
        """

    def add(
        self,
        vpod_key: str,
        missing: int,
        weight: int,
        amounts: Amounts = NO_AMOUNTS,
        most: int = 0,
    ) -> int:
        """Pack ``missing`` vreplicas of ``weight`` slots and ``amounts``, at most ``most`` on a pod
        (0: any number), and append pods if needed. Return how many found no place.
        """
        self._amounts, self._most = amounts, most
        missing = self._fill(_ALL, vpod_key, missing, weight)
        # Only appended pods have room from here on. Asking all pods again for each would take
        # minutes for a large vpod.
        while missing and (ordinal := self._append()) is not None:
            missing = self._fill(1 << ordinal, vpod_key, missing, weight)
        return missing

    def _fill(self, ordinals: int, vpod_key: str, missing: int, weight: int) -> int:
        room = self._fitting(vpod_key, weight, ordinals)
        limited = self._amounts or self._most
        free = self._usable(vpod_key, weight) if limited else self._free.__getitem__
        given, left = round_robin(room, 0, free, missing, weight)
        self._dimensions.give(self._amounts, given)
        for ordinal, count in given.items():
            slots, bit = self._free[ordinal], 1 << ordinal
            if others := self._with_free[slots] & ~bit:
                self._with_free[slots] = others
            else:
                del self._with_free[slots]
            slots -= count * weight
            self._free[ordinal] = slots
            self._with_free[slots] = self._with_free.get(slots, 0) | bit
            if self._most:
                there = self._there(vpod_key)
                there[ordinal] = there.get(ordinal, 0) + count
                if there[ordinal] >= self._most:
                    self._at_most[vpod_key] |= bit
        self._ledgers.give(vpod_key, given)
        return left

    def _fitting(self, vpod_key: str, weight: int, among: int = _ALL) -> int:
        """Those of the ordinals ``among`` (bit set) with room for one vreplica of ``weight`` slots
        of a vpod, in slots, in the pool's dimensions and in bytes.
        """
        fitting = self._ledgers.open_to(among & self._with_slots(weight), vpod_key)
        if self._most:
            self._there(vpod_key)
            fitting &= ~self._at_most[vpod_key]
        if not self._amounts:
            return fitting
        usable = self._usable(vpod_key, weight)
        return sum(1 << ordinal for ordinal in bits(fitting) if usable(ordinal) >= weight)

    def _usable(self, vpod_key: str, weight: int) -> Callable[[int], int]:
        """A function: the free slots of an ordinal that the vpod being added can use."""
        free, usable, amounts = self._free, self._dimensions.usable, self._amounts
        if not self._most:
            return lambda ordinal: usable(ordinal, free[ordinal], weight, amounts)
        most, there = self._most, self._there(vpod_key)

        def limited(ordinal: int) -> int:
            left = max(0, most - there.get(ordinal, 0)) * weight
            return usable(ordinal, min(free[ordinal], left), weight, amounts)

        return limited

    def _there(self, vpod_key: str) -> dict[int, int]:
        """Ordinal -> vreplicas of a vpod on the pods that keep their load."""
        there = self._on_pods.get(vpod_key)
        if there is None:
            there = self._on_pods[vpod_key] = {
                ordinal: claim.decided.vreplicas
                for name, claim in self._state.claims_of(vpod_key).items()
                if name not in self._left
                and (ordinal := self._state.pods[name].ordinal) is not None
                and ordinal in self._ordinals  # a pod that is appended is empty
            }
            self._at_most[vpod_key] = sum(
                1 << ordinal for ordinal, count in there.items() if count >= self._most
            )
        return there

    def _with_slots(self, weight: int) -> int:
        """Bit set of the ordinals that have ``weight`` slots free and are not barred."""
        fitting = 0
        for slots, ordinals in self._with_free.items():
            if slots >= weight:
                fitting |= ordinals
        return fitting & ~self.barred

    def _append(self) -> int | None:
        """The ordinal of one more pod; None if no more may be appended."""
        if self.added >= self._added_max:
            return None
        ordinal = self._next
        self._free[ordinal] = self._slots
        self._with_free[self._slots] = self._with_free.get(self._slots, 0) | 1 << ordinal
        self._next += 1
        self.added += 1
        return ordinal


def _heavier(pod: PodClaims) -> int:
    """Slots by which vreplicas that stay on the pod are heavier than in its ledger."""
    if pod.held <= pod.decided:
        return 0  # as on almost every pod
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
    """The hard zone rule of the pool's profile, for the present zones; None if it cannot refuse
    anything.
    """
    skew = state.profile.hard_zone_skew
    if skew is None:
        return None
    count_empty = any(
        one.count_empty for one in state.profile.filters if isinstance(one, ZoneSpread)
    )
    # As placing counts zones: those that can host the pool's pods, and those where the pods are.
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
        going: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(state, pool, ordinals, added_max=added_max, going=going)
        self._max_skew = rule.max_skew
        self._zones = {zone: state.zones.get(zone, 0) for zone in rule.zones}
        known = 0
        for bit_set in self._zones.values():
            known |= bit_set
        self._unbound = [ordinal for ordinal in self._free if not known & 1 << ordinal]
        self._slots_left = {
            zone: sum(self._free[ordinal] for ordinal in bits(bit_set & self._with_slots(1)))
            for zone, bit_set in self._zones.items()
        }
        """An upper limit of what fits, since each pod may have too few."""
        self._counts: dict[str, dict[str, int]] = {}

    def leave(self, vpod_key: str, pod: PodClaims, vreplicas: int) -> None:
        """A vpod takes vreplicas off a pod, so the pod's zone has fewer."""
        counts = self._counts_of(vpod_key)
        _, zone = pod.where
        if zone in counts:
            counts[zone] -= vreplicas

    def add(
        self,
        vpod_key: str,
        missing: int,
        weight: int,
        amounts: Amounts = NO_AMOUNTS,
        most: int = 0,
    ) -> int:
        """As ``Packing.add``, but each vreplica goes to the emptiest zone that may and
        can take it.
        """
        self._amounts, self._most = amounts, most
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
        """While all zones are equal, give each as many as every zone can take, at once. Return how
        many that were in all.
        """
        if len(set(counts.values())) > 1:
            return 0
        rounds = min(missing // len(counts), min(self._slots_left.values()) // weight)
        if self._most and rounds > 0:
            rounds = min(self._room_in(zone, vpod_key, weight, rounds) for zone in counts)
        return (
            sum(self._give(vpod_key, zone, rounds, weight) for zone in counts) if rounds > 0 else 0
        )

    def _room_in(self, zone: str, vpod_key: str, weight: int, enough: int) -> int:
        """How many vreplicas of the vpod that is being added a zone can take, up to ``enough``."""
        usable, room = self._usable(vpod_key, weight), 0
        for ordinal in bits(self._fitting(vpod_key, weight, self._zones[zone])):
            room += usable(ordinal) // weight
            if room >= enough:
                return enough
        return room

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
                if name in self._left:
                    continue  # what is there is among what is added
                _, zone = self._state.pods[name].where
                if zone in counts:
                    counts[zone] += claim.decided.vreplicas
        return counts

    def _zone_for(
        self, vpod_key: str, counts: dict[str, int], lowest: int, weight: int
    ) -> str | None:
        """The emptiest zone that may and can take one. Of equal ones, the one with most
        slots left.
        """
        allowed = [zone for zone, count in counts.items() if count + 1 - lowest <= self._max_skew]
        allowed.sort(key=lambda zone: (counts[zone], -self._slots_left[zone]))
        fitting = self._fitting(vpod_key, weight) if allowed else 0
        return next((zone for zone in allowed if self._zones[zone] & fitting), None)

    def _step(self, counts: dict[str, int], zone: str, lowest: int, missing: int) -> int:
        """vreplicas to give to this zone before another is looked at: until it is level with the
        next, or at the rule's limit.
        """
        if counts[zone] > lowest:
            return min(missing, lowest + self._max_skew - counts[zone])
        others = min(count for name, count in counts.items() if name != zone)
        return min(missing, max(1, others - lowest))

    def _grow(self, counts: dict[str, int], missing: int, weight: int) -> bool:
        """Add pods to come, or else appended ones, to the emptiest zone, which has no room. False
        if there are none.

        It adds as many as the zone's even share of ``missing`` fills: the zone gets no less than
        that.
        """
        zone = min(counts, key=lambda name: (counts[name], name))
        on_a_pod = max(1, self._slots // weight)
        if self._most:
            on_a_pod = min(on_a_pod, self._most)
        pods = max(1, missing // len(counts) // on_a_pod)
        grown = 0
        while grown < pods and (ordinal := self._next_unbound()) is not None:
            self._stand(ordinal, zone)
            grown += 1
        return grown > 0

    def stand_evenly(self) -> None:
        """Let each pod to come stand in the zone with the fewest pods."""
        pods = {
            zone: sum(1 for ordinal in self._free if bit_set >> ordinal & 1)
            for zone, bit_set in self._zones.items()
        }
        for ordinal in self._unbound:
            zone = min(pods, key=lambda name: (pods[name], name))
            pods[zone] += 1
            self._stand(ordinal, zone)
        self._unbound = []

    def _stand(self, ordinal: int, zone: str) -> None:
        self._zones[zone] |= 1 << ordinal
        self._slots_left[zone] += self._free[ordinal]

    def _next_unbound(self) -> int | None:
        for index, ordinal in enumerate(self._unbound):
            if self._free[ordinal] > 0:
                return self._unbound.pop(index)
        return self._append()


def will_be_bound(pod: PodClaims) -> bool:
    """Whether the ordinal's pod is still to be bound and will then take work. While its binding is
    under way, it takes none yet. One that terminates on a node that is Ready is soon made anew.
    """
    return not (pod.draining or (pod.certainly_bound and not _restarts(pod)))


def _restarts(known: PodClaims) -> bool:
    pod, node = known.pod, known.node
    terminates = pod is not None and pod.deleting and node is not None and node.ready
    return terminates and not (known.abandoned or known.condemned)


def to_replace(state: PoolState) -> frozenset[str]:
    """Pods whose load needs another place: drained and condemned ones, and abandoned ones as far as
    others can work.

    An abandoned pod that is not bound counts as still to come: if there is no machine for it, there
    is none for another pod. Abandoned pods on nodes that are not Ready are all replaced, since a
    new pod goes to another node. Of those on Ready nodes, one more is replaced than there are pods
    that serve. If adapters do not become Ready at all, that one extra pod shows it, and further
    pods would only fail, too.
    """
    draining = [
        pod.name
        for pod in state.pods.values()
        if (pod.draining or pod.condemned) and not stays_without_surge(state, pod)
    ]
    if not state.abandoned:
        return frozenset(draining)
    abandoned = [
        pod for pod in state.members() if pod.abandoned and pod.certainly_bound and not pod.draining
    ]
    with_node = [pod.name for pod in abandoned if pod.node is not None and not pod.node.ready]
    alone = [pod.name for pod in abandoned if pod.node is None or pod.node.ready]
    serving = sum(1 for pod in state.members() if pod.serving and not pod.leaving)
    return frozenset({*draining, *with_node, *alone[: serving + 1]})
