"""The workloads of all benches: so many adapter pods, and twice as many vpods that take 16 of every
20 slots.

The reference workload is that of the Go original's benchmark: vpods of 8 vreplicas, pods of 20
slots. Half as many nodes as adapter pods, in three zones; neighbouring ordinals are in different
zones.

``with weights`` gives three kinds of vpods in turn, of 6, 6 and 12 slots, which makes 8 on average
too. Each has a multiple of 3 vreplicas, because a profile that holds three zones even has to find
room in each of them.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, TypeVar

import orjson

from extender.engine.policy.profiles import BUILT_IN_PROFILES
from extender.engine.state.cluster_state import ClusterState
from extender.kube.api import Obj
from extender.model import decode
from extender.model.ledger import Share, encode_ledger
from extender.model.objects import AdapterPod, AdapterPool, Namespace, Node, StatefulSet, VPod
from extender.service.watching.caches import Caches
from extender.service.watching.informers import CacheSink
from tests.bench import objects
from tests.kube.fakes import give_list

T = TypeVar("T")

VPODS_PER_POD: Final = 2
SLOTS_PER_VPOD: Final = 8
"""On average."""
PROFILES: Final = tuple(BUILT_IN_PROFILES)

Kind = tuple[int, int]
"""vreplicas of a vpod, and the slots of each."""
REFERENCE: Final[tuple[Kind, ...]] = ((8, 1),)
WEIGHTS: Final[tuple[Kind, ...]] = ((6, 1), (3, 2), (3, 4))


def node_count(pods: int) -> int:
    """Nodes of a cluster with so many adapter pods."""
    return max(objects.ZONES, pods // 2)


def even_placements(number: int, pods: int) -> dict[str, int]:
    """Where a vpod of 8 vreplicas stands in a cluster that is already placed: eight pods, each of
    which gets 16 of them.
    """
    first = number * SLOTS_PER_VPOD
    taken = sorted((first + place) % pods for place in range(SLOTS_PER_VPOD))
    return {objects.pod_name(ordinal): 1 for ordinal in taken}


def even_ledger(ordinal: int, pods: int) -> dict[str, Share]:
    """What a pod carries in such a cluster, which has at least 8 pods."""
    rounds = range(VPODS_PER_POD * SLOTS_PER_VPOD)
    numbers = [(ordinal + done * pods) // SLOTS_PER_VPOD for done in rounds]
    return {f"{objects.TENANT}/{objects.vpod_name(number)}": Share(1) for number in numbers}


@dataclass(frozen=True)
class RawCluster:
    """A whole cluster as JSON documents, one list a kind."""

    nodes: list[Obj]
    namespaces: list[Obj]
    stateful_sets: list[Obj]
    pools: list[Obj]
    pods: list[Obj]
    vpods: list[Obj]

    def lists(self) -> dict[str, bytes]:
        """Kind -> a list as an API server sends it."""
        metadata = {"resourceVersion": objects.next_version()}
        return {
            kind: orjson.dumps({"metadata": metadata, "items": items})
            for kind, items in vars(self).items()
        }


def raw_cluster(pods: int, kinds: tuple[Kind, ...] = REFERENCE, *, placed: int = 0) -> RawCluster:
    """Objects of a cluster of which the first ``placed`` vpods stand somewhere already (reference
    workload only).
    """
    nodes, total = node_count(pods), pods * VPODS_PER_POD
    ledgers = [
        _of_first(even_ledger(ordinal, pods), placed) if placed else {} for ordinal in range(pods)
    ]
    vpods = []
    for number in range(total):
        vreplicas, weight = kinds[number % len(kinds)]
        placements = even_placements(number, pods) if number < placed else None
        vpods.append(objects.vpod(number, vreplicas, weight, placements))
    return RawCluster(
        nodes=[objects.node(number) for number in range(nodes)],
        namespaces=[objects.namespace(name) for name in (objects.NAMESPACE, objects.TENANT)],
        stateful_sets=[objects.stateful_set(pods)],
        pools=[objects.pool("default")],
        pods=[
            objects.pod(ordinal, objects.node_name(ordinal % nodes), ledgers[ordinal])
            for ordinal in range(pods)
        ],
        vpods=vpods,
    )


def _of_first(ledger: dict[str, Share], placed: int) -> dict[str, Share]:
    end = f"{objects.TENANT}/{objects.vpod_name(placed)}"
    return {key: share for key, share in ledger.items() if key < end}


@dataclass(frozen=True)
class Cluster:
    """The same as decoded values. What is made of it shares them: they never change."""

    nodes: tuple[Node, ...]
    namespaces: tuple[Namespace, ...]
    stateful_sets: tuple[StatefulSet, ...]
    pools: tuple[AdapterPool, ...]
    pods: tuple[AdapterPod, ...]
    vpods: tuple[VPod, ...]

    @classmethod
    def of(cls, raw: RawCluster) -> "Cluster":
        """Through the decoders of the service."""
        return cls(
            nodes=tuple(map(decode.node_from, raw.nodes)),
            namespaces=tuple(map(decode.namespace_from, raw.namespaces)),
            stateful_sets=tuple(map(decode.stateful_set_from, raw.stateful_sets)),
            pools=tuple(map(decode.pool_from, raw.pools)),
            pods=tuple(map(decode.pod_from, raw.pods)),
            vpods=tuple(map(decode.vpod_from, raw.vpods)),
        )

    def by(self, profile: str) -> "Cluster":
        """The same cluster, placed by another profile."""
        return replace(self, pools=tuple(replace(pool, profile=profile) for pool in self.pools))

    @cached_property
    def vpod_keys(self) -> tuple[str, ...]:
        """In the order in which they come."""
        return tuple(vpod.key for vpod in self.vpods)

    def settled(self, targets: Mapping[str, Mapping[str, int]]) -> "Cluster":
        """The objects once these decisions (vpod key -> pod name -> vreplicas) are written and
        seen.
        """
        ledgers: dict[str, dict[str, Share]] = {}
        for vpod in self.vpods:
            for name, count in targets.get(vpod.key, {}).items():
                ledgers.setdefault(name, {})[vpod.key] = Share(count, vpod.weight)
        return replace(
            self,
            pods=tuple(_carrying(pod, ledgers.get(pod.name, {})) for pod in self.pods),
            vpods=tuple(
                _published(vpod, targets[vpod.key]) if vpod.key in targets else vpod
                for vpod in self.vpods
            ),
        )


def _carrying(pod: AdapterPod, ledger: Mapping[str, Share]) -> AdapterPod:
    version = objects.next_version()
    return replace(pod, ledger=ledger, ledger_text=encode_ledger(ledger), resource_version=version)


def _published(vpod: VPod, placements: Mapping[str, int]) -> VPod:
    return replace(
        vpod,
        placements=placements,
        scheduled_vreplicas=sum(placements.values()),
        observed_generation=vpod.generation,
        resource_version=objects.next_version(),
    )


def filled_caches(cluster: Cluster) -> Caches:
    """The service's caches with these objects in the order in which the informers list them: pods
    before vpods.
    """
    caches = Caches()
    version = objects.next_version()
    caches.nodes.replace([*cluster.nodes], version)
    caches.namespaces.replace([*cluster.namespaces], version)
    caches.stateful_sets.replace([*cluster.stateful_sets], version)
    caches.pools.replace([*cluster.pools], version)
    caches.pods.replace(cluster.pods, version)
    caches.vpods.replace(cluster.vpods, version)
    return caches


def caches_from_lists(lists: Mapping[str, bytes]) -> Caches:
    """The same from JSON lists, each through the sink that its reflector has."""
    caches = Caches()

    def items(kind: str) -> tuple[list[Obj], str]:
        body = orjson.loads(lists[kind])
        return body["items"], body["metadata"]["resourceVersion"]

    give_list(CacheSink(decode.node_from, caches.nodes), *items("nodes"))
    give_list(CacheSink(decode.namespace_from, caches.namespaces), *items("namespaces"))
    give_list(CacheSink(decode.stateful_set_from, caches.stateful_sets), *items("stateful_sets"))
    give_list(CacheSink(decode.pool_from, caches.pools), *items("pools"))
    give_list(CacheSink(decode.pod_from, caches.pods), *items("pods"))
    give_list(CacheSink(decode.vpod_from, caches.vpods), *items("vpods"))
    return caches


def rebuilt_state(cluster: Cluster) -> ClusterState:
    """A ``ClusterState`` of these objects, as one that keeps nothing between two decisions has to
    make it each time.
    """
    state = ClusterState()
    _tell(cluster.nodes, state.node_changed)
    _tell(cluster.namespaces, state.namespace_changed)
    _tell(cluster.stateful_sets, state.stateful_set_changed)
    _tell(cluster.pools, state.adapter_pool_changed)
    _tell(cluster.pods, state.pod_changed)
    _tell(cluster.vpods, state.vpod_changed)
    return state


def _tell(those: Iterable[T], changed: Callable[[T | None, T | None], None]) -> None:
    for one in those:
        changed(None, one)
