"""Pools of random shape for the policy tests: zones, nodes, pods with other tenants' load, nodes
that take no work.
"""

from dataclasses import dataclass, field

from hypothesis import strategies as st

from extender.engine.policy.availability import AvailabilityNodePriority, AvailabilityZonePriority
from extender.engine.policy.even_pod_spread import EvenPodSpread
from extender.engine.policy.framework import ScorePlugin, Weighted
from extender.engine.policy.ordinals import LowestOrdinalPriority
from extender.engine.policy.profile import Profile, Ties
from extender.engine.policy.resources import NoMaxResourceCount, PodFitsResources
from extender.engine.policy.spreading import NodeSpread, PodSpread, ZoneSpread
from extender.engine.state.pool_state import PoolState
from extender.model.node_fit import NodeFit, Taint
from tests.support.builders import Scene, a_node


@dataclass
class Shape:
    """A pool and what one vpod (``tenant/a``) has in it: ordinal -> vreplicas, in its pods'
    ledgers.
    """

    zones: list[int]
    """Nodes of each zone."""
    slots: int
    nodes: list[int]
    """Node of each pod."""
    others: list[int]
    """Slots that others have on each pod; may be over ``slots``."""
    own: list[int]
    """vreplicas of ``tenant/a`` on each pod."""
    cordoned: set[int] = field(default_factory=set)
    unready: set[int] = field(default_factory=set)
    marked: set[int] = field(default_factory=set)
    """Pods annotated as unschedulable."""
    gone: set[int] = field(default_factory=set)
    """Pods that have been deleted and will come back."""
    dedicated: set[int] = field(default_factory=set)
    """Nodes with a taint that the pool's pods do not tolerate."""
    closed: int = 0
    weight: int = 1

    def scene(self) -> Scene:
        scene = Scene(replicas=len(self.nodes), slots=self.slots).stateful_set(
            len(self.nodes), fit=NodeFit()
        )
        scene.state.node_changed(a_node(), None)
        names = [
            f"n{zone}-{index}" for zone, count in enumerate(self.zones) for index in range(count)
        ]
        for index, name in enumerate(names):
            scene.node(
                a_node(
                    name,
                    f"z{name[1 : name.index('-')]}",
                    cordoned=index in self.cordoned,
                    ready=index not in self.unready,
                    taints=(Taint("gpu", "", "NoSchedule"),) if index in self.dedicated else (),
                )
            )
        for ordinal, node in enumerate(self.nodes):
            ledger = {"tenant/other": self.others[ordinal], "tenant/a": self.own[ordinal]}
            scene.pod(
                ordinal,
                {key: count for key, count in ledger.items() if count},
                node=names[node % len(names)],
                unschedulable=ordinal in self.marked,
            )
        for ordinal in self.gone:
            scene.no_pod(ordinal)
        scene.pool.set_closed(self.closed)
        return scene

    def kept(self) -> dict[str, int]:
        return {f"dispatcher-{ordinal}": count for ordinal, count in enumerate(self.own) if count}


@st.composite
def shapes(draw, *, pods_max: int = 8) -> Shape:
    zones = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    slots = draw(st.integers(1, 6))
    pods = draw(st.integers(1, pods_max))

    def column(values: st.SearchStrategy[int]) -> list[int]:
        drawn: list[int] = draw(st.lists(values, min_size=pods, max_size=pods))
        return drawn

    few = st.sets(st.integers(0, sum(zones) - 1), max_size=2)
    return Shape(
        zones=zones,
        slots=slots,
        nodes=column(st.integers(0, sum(zones) - 1)),
        others=column(st.sampled_from([0, 0, 0, 1, 2, slots, slots + 1])),
        own=column(st.sampled_from([0, 0, 0, 1, 2, 4])),
        cordoned=draw(few),
        unready=draw(few),
        marked=draw(st.sets(st.integers(0, pods - 1), max_size=2)),
        gone=draw(st.sets(st.integers(0, pods - 1), max_size=1)),
        dedicated=draw(few),
        closed=draw(st.sampled_from([0, 0, 1, 0b101])),
        weight=draw(st.sampled_from([1, 1, 2])),
    )


FILTERS = (
    PodFitsResources(),
    NoMaxResourceCount(2),
    NoMaxResourceCount(4),
    EvenPodSpread(1),
    EvenPodSpread(3),
    ZoneSpread(1),
    ZoneSpread(2, count_empty=False),
    NodeSpread(1),
    NodeSpread(2, count_empty=True),
    PodSpread(2),
)
SCORES = (
    ZoneSpread(),
    NodeSpread(),
    PodSpread(),
    LowestOrdinalPriority(),
    EvenPodSpread(2),
    AvailabilityNodePriority(),
    AvailabilityZonePriority(),
)


def profiles(*, ties: tuple[Ties, ...] = (Ties.LOWEST_ORDINAL,)) -> st.SearchStrategy[Profile]:
    """Any mixture of the built-in plugins."""
    weighted = st.builds(Weighted, st.sampled_from(SCORES), st.sampled_from([1, 2, 10, 100]))
    return st.builds(
        Profile,
        name=st.just("drawn"),
        filters=st.lists(st.sampled_from(FILTERS), max_size=2).map(tuple),
        scores=st.lists(weighted, max_size=3).map(tuple),
        ties=st.sampled_from(ties),
    )


@st.composite
def spreading_profiles(draw: st.DrawFn) -> Profile:
    """What only spreads: over nodes, and perhaps over zones and pods, with a hard zone rule or
    without.
    """
    weights = st.sampled_from([1, 2, 10, 100])
    scores: list[Weighted[ScorePlugin]] = [Weighted(NodeSpread(), draw(weights))]
    scores += [
        Weighted(one, draw(weights)) for one in (ZoneSpread(), PodSpread()) if draw(st.booleans())
    ]
    rules = [(), (ZoneSpread(1),), (ZoneSpread(2),), (ZoneSpread(1, count_empty=False),)]
    return Profile(
        name="drawn",
        filters=draw(st.sampled_from(rules)),
        scores=tuple(draw(st.permutations(scores))),
        ties=draw(st.sampled_from([Ties.LOWEST_ORDINAL, Ties.MOST_FREE_ZONE])),
    )


def by_zone(pool: PoolState, placed: dict[str, int]) -> dict[str, int]:
    """vreplicas by zone, of pods whose node is known."""
    found: dict[str, int] = {}
    for name, count in placed.items():
        node = pool.pods[name].node
        if node is not None:
            found[node.zone] = found.get(node.zone, 0) + count
    return found
