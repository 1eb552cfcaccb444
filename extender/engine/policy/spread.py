"""``Spread``: where one vpod's vreplicas are, by pod, node and zone, while they are being decided.
``Candidate``: one pod in it.

Plugins see nothing else. As in Knative, ``pods``, ``nodes`` and ``zones`` count only vreplicas on
schedulable pods. Vreplicas on other pods (the node is cordoned or lost, the pod is restarting) are
counted in ``node_load`` and ``zone_load`` too. A pod without a node counts where it was last bound.
A zone that is down, and a pod that is created again, come back with everything that they had.

Some plugins also look at nodes and zones without a pod of the pool. Those count if the pool's pods
could run there (``node_fit``).

A spread is built from plain values, so a decision, a test and a recorded case make one in the same
way. It never changes the state.
"""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol, TypeVar

from extender.engine.pods.bits import bits
from extender.engine.pods.claims import PodClaims
from extender.engine.pods.pod_loads import PodLoads
from extender.engine.pods.topology import Topology, Zones
from extender.model.amounts import NO_AMOUNTS, Amounts
from extender.model.objects import StatefulSet

K = TypeVar("K", int, str)


class Candidate(NamedTuple):
    """A pod that may take or lose one vreplica. ``free``: slots. The counts are this vpod's
    vreplicas on schedulable pods.
    """

    name: str
    ordinal: int
    node: str
    zone: str
    free: int
    on_pod: int
    on_node: int
    in_zone: int


class Places(Protocol):
    """What a spread reads of a pool; ``PoolState`` is one."""

    @property
    def by_ordinal(self) -> Mapping[int, PodClaims]:
        """The pods of the StatefulSet."""

    @property
    def topology(self) -> Topology:
        """The nodes that take work."""

    @property
    def hosting(self) -> Zones:
        """The nodes that the pool's pods could run on."""

    @property
    def zones(self) -> Mapping[str, int]:
        """Zone -> bit set of the schedulable pods in it."""

    @property
    def nodes(self) -> Mapping[str, int]:
        """Node -> bit set of the schedulable pods on it."""

    @property
    def free_by_zone(self) -> Mapping[str, int]:
        """Zone -> free slots of the pods with room in it."""

    @property
    def schedulable(self) -> int:
        """Bit set of the pods that may take new vreplicas."""

    @property
    def room(self) -> int:
        """Bit set of the schedulable pods that have a free slot and are not closed."""

    @property
    def closed(self) -> int:
        """Bit set of the ordinals that get nothing new."""

    @property
    def load(self) -> PodLoads:
        """What is known of the pods' load."""

    @property
    def stateful_set(self) -> StatefulSet | None:
        """Says how many pods there should be."""


class Spread:
    """Where one vpod's vreplicas are. ``hold`` takes what is there; ``add`` and ``remove`` change
    one at a time.

    ``free``: an ordinal's free slots, beside what ``hold`` was told. ``weight``: slots of one
    vreplica. ``room``: the pods that may get more, if not all with room may; None for all of those.
    ``key``, ``amounts``: of the vpod, and what one vreplica takes of the pool's dimensions.
    """

    __slots__ = (
        "_able_nodes",
        "_able_zones",
        "_free",
        "_given",
        "_least",
        "_overfull",
        "_places",
        "amounts",
        "away_nodes",
        "away_pods",
        "away_zones",
        "by_count",
        "by_ordinal",
        "closed",
        "key",
        "node_bits",
        "nodes",
        "own",
        "pods",
        "replicas",
        "room",
        "schedulable",
        "topology",
        "weight",
        "zone_bits",
        "zones",
    )

    def __init__(
        self,
        places: Places,
        free: Callable[[int], int],
        weight: int = 1,
        room: int | None = None,
        *,
        key: str = "",
        amounts: Amounts = NO_AMOUNTS,
    ) -> None:
        self.by_ordinal = places.by_ordinal
        self.topology = places.topology
        self.zone_bits = places.zones
        """Zone -> bit set of the pool's schedulable pods in it."""
        self.node_bits = places.nodes
        """Node -> bit set of the pool's schedulable pods on it."""
        self.schedulable = places.schedulable
        self.room = places.room if room is None else room
        """Bit set of the pods that may get more. ``add`` and ``remove`` update it."""
        self.closed = places.closed
        self.replicas = places.stateful_set.replicas if places.stateful_set is not None else 0
        """Pods that the StatefulSet wants."""
        self.weight = weight
        self.key = key
        self.amounts = amounts
        self.pods: dict[int, int] = {}
        """Ordinal -> vreplicas. Like ``nodes`` and ``zones``, it has schedulable pods only, and no
        zeros except those given to ``hold``.
        """
        self.nodes: dict[str, int] = {}
        self.zones: dict[str, int] = {}
        self.away_pods: dict[str, int] = {}
        """Pod name -> vreplicas, for pods that are not schedulable."""
        self.away_nodes: dict[str, int] = {}
        """Node -> vreplicas on its pods that are not schedulable."""
        self.away_zones: dict[str, int] = {}
        self.by_count: dict[int, int] = {}
        """Number of vreplicas -> bit set of the pods that have this number; may have empty sets."""
        self.own = 0
        """Bit set of the pods that have some."""
        self._places = places
        self._able_nodes: Collection[str] | None = None
        self._able_zones: Collection[str] | None = None
        self._free = free
        self._given: dict[int, int] = {}
        self._overfull: int | None = None
        self._least: dict[bool, int] = {}

    # -- changes -----------------------------------------------------------------------------------

    def narrow(self, room: int) -> None:
        """Only these pods (bit set) may get more from now on."""
        self.room = room
        self._overfull = None

    def hold(self, pod: PodClaims, count: int) -> None:
        """Count ``count`` vreplicas that are on a pod. ``free`` includes them already."""
        ordinal = pod.ordinal
        if ordinal is not None and self.schedulable >> ordinal & 1:
            self._count(ordinal, count)
            if self.room >> ordinal & 1 and self._free(ordinal) <= 0:
                self.room &= ~(1 << ordinal)
        else:
            self._count_away(pod, count)

    def add(self, ordinal: int) -> None:
        """Give one vreplica to a schedulable pod."""
        self._count(ordinal, 1)
        given = self._given[ordinal] = self._given.get(ordinal, 0) + 1
        if self._free(ordinal) <= given * self.weight:
            self.room &= ~(1 << ordinal)

    def remove(self, pod: PodClaims) -> None:
        """Take away one vreplica that ``hold`` or ``add`` put on a pod."""
        ordinal = pod.ordinal
        if ordinal is None or not self.schedulable >> ordinal & 1:
            self._count_away(pod, -1)
            return
        self._count(ordinal, -1)
        self._given[ordinal] = self._given.get(ordinal, 0) - 1
        bit = 1 << ordinal
        self._overfull = None
        if not self.closed & bit and self.free_of(ordinal) > 0:
            self.room |= bit

    def _count_away(self, pod: PodClaims, count: int) -> None:
        self._least.clear()
        _change(self.away_pods, pod.name, count)
        node, zone = pod.where
        if node:
            _change(self.away_nodes, node, count)
        if zone:
            _change(self.away_zones, zone, count)

    def _count(self, ordinal: int, count: int) -> None:
        self._least.clear()
        node, zone = self.by_ordinal[ordinal].location
        _change(self.nodes, node, count)
        _change(self.zones, zone, count)
        before = self.pods.get(ordinal, 0)
        _change(self.pods, ordinal, count)
        after = before + count
        bit = 1 << ordinal
        if before:
            self.by_count[before] ^= bit
        if after:
            self.by_count[after] = self.by_count.get(after, 0) | bit
        if bool(before) != bool(after):
            self.own ^= bit

    # -- reading -----------------------------------------------------------------------------------

    def free_of(self, ordinal: int) -> int:
        """Free slots of a pod after ``add`` and ``remove``; negative if it is overcommitted."""
        return self._free(ordinal) - self._given.get(ordinal, 0) * self.weight

    def used(self, ordinal: int, dimension: str, more: int = 0) -> tuple[int, int]:
        """What all vpods take of a dimension on a pod, with ``more`` of these vreplicas, and what
        the pod has. Of slots, if the pool does not have that dimension.
        """
        pod, mine = self.by_ordinal[ordinal], self.pods.get(ordinal, 0) + more
        own = pod.claims.get(self.key)
        for name, most in pod.capacities:
            if name == dimension:
                held = pod.held_amounts.get(name, 0)
                held -= dict(own.held_amounts).get(name, 0) if own is not None else 0
                return held + mine * dict(self.amounts).get(name, 0), most
        held = pod.held - (own.held_slots if own is not None else 0)
        return held + mine * self.weight, pod.capacity

    def fits(self, ordinal: int) -> bool:
        """Whether one more vreplica fits."""
        return self._free(ordinal) - self._given.get(ordinal, 0) * self.weight >= self.weight

    def load_of(self, ordinal: int) -> float:
        """The expected load of a pod after ``add`` and ``remove``, in means of the pods. It is 0 if
        no load is known.
        """
        held = self.by_ordinal[ordinal].held + self._given.get(ordinal, 0) * self.weight
        return self._places.load.expected(ordinal, held)

    def free_in(self, zone: str) -> int:
        """Free slots of the zone's pods with room, after ``add`` and ``remove``."""
        by_ordinal = self.by_ordinal
        given = sum(
            [
                count
                for ordinal, count in self._given.items()
                if by_ordinal[ordinal].location[1] == zone
            ]
        )
        return self._places.free_by_zone.get(zone, 0) - given * self.weight

    def candidate(self, ordinal: int) -> Candidate:
        """A schedulable pod, as plugins see it."""
        pod = self.by_ordinal[ordinal]
        node, zone = pod.location
        given = self._given.get(ordinal, 0)
        # Candidate(...) without matching names to fields: decisions spend most of their time here.
        return tuple.__new__(
            Candidate,
            (
                pod.name,
                ordinal,
                node,
                zone,
                self._free(ordinal) - given * self.weight,
                self.pods.get(ordinal, 0),
                self.nodes.get(node, 0),
                self.zones.get(zone, 0),
            ),
        )

    def candidate_of(self, pod: PodClaims) -> Candidate:
        """Any pod, even one that is not schedulable. Node and zone are "" if its node
        is not known.
        """
        if pod.ordinal is not None and self.schedulable >> pod.ordinal & 1:
            return self.candidate(pod.ordinal)
        node, zone = (pod.node.name, pod.node.zone) if pod.node is not None else ("", "")
        ordinal = -1 if pod.ordinal is None else pod.ordinal
        on_pod = self.away_pods.get(pod.name, 0)
        return Candidate(
            pod.name,
            ordinal,
            node,
            zone,
            0,
            on_pod,
            self.nodes.get(node, 0),
            self.zones.get(zone, 0),
        )

    def node_load(self, node: str) -> int:
        """vreplicas on a node, including those on pods that are not schedulable."""
        away = self.away_nodes
        return self.nodes.get(node, 0) + away.get(node, 0) if away else self.nodes.get(node, 0)

    def zone_load(self, zone: str) -> int:
        """vreplicas in a zone, including those on pods that are not schedulable."""
        away = self.away_zones
        return self.zones.get(zone, 0) + away.get(zone, 0) if away else self.zones.get(zone, 0)

    def least_zone_load(self, *, count_empty: bool) -> int:
        """The smallest ``zone_load`` of ``able_zones``; without ``count_empty``, only of zones that
        have a schedulable pod of the pool.
        """
        least = self._least.get(count_empty)
        if least is None:
            zones = self.able_zones if count_empty else self.zone_bits
            least = self._least[count_empty] = min(
                [self.zone_load(zone) for zone in zones], default=0
            )
        return least

    @property
    def able_nodes(self) -> Collection[str]:
        """Nodes that take work and that the pool's pods could run on, and nodes that have
        schedulable pods of it.
        """
        if self._able_nodes is None:
            self._able_nodes = _with(self._places.hosting.zone_of, self.node_bits)
        return self._able_nodes

    @property
    def able_zones(self) -> Collection[str]:
        """The zones of such nodes."""
        if self._able_zones is None:
            self._able_zones = _with(self._places.hosting.nodes_in, self.zone_bits)
        return self._able_zones

    def empty_with_room(self, ordinal: int) -> int:
        """How many pods other than ``ordinal`` have none of these vreplicas and could take one."""
        return (self.room & ~self.own & ~(1 << ordinal)).bit_count()

    def overfull(self) -> int:
        """How many pods without these vreplicas are overcommitted by others. The first call looks
        at every full pod.
        """
        if self._overfull is None:
            full = self.schedulable & ~self.room & ~self.closed
            self._overfull = sum(
                1 << ordinal for ordinal in bits(full) if self.free_of(ordinal) < 0
            )
        return (self._overfull & ~self.own).bit_count()


def _with(places: Mapping[str, object], others: Mapping[str, object]) -> Collection[str]:
    """The names in either mapping."""
    return places if others.keys() <= places.keys() else places.keys() | others.keys()


def _change(counts: dict[K, int], key: K, change: int) -> None:
    """Change a count. One that falls to 0 is forgotten."""
    count = counts.get(key, 0) + change
    if count or change == 0:
        counts[key] = count
    else:
        del counts[key]
