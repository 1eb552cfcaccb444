"""Objects of a watch: decoders of every kind that is watched, with the caches and the state that
take what they give; the Lease.

An object from the API server is valid by its kind's schema, but its annotations, labels and a
foreign kind's fields are whatever a tenant wrote, and an older or later API may have other fields.
Promises: InvalidObject or a value; the value can be stored, shown, and taken out again without a
trace.
"""

import asyncio
import random
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from extender.kube.api import (
    ADAPTERPOOLS,
    EVERYWHERE,
    NAMESPACES,
    NODES,
    PODS,
    STATEFULSETS,
    VPODS,
    ListOptions,
    NotFound,
    Obj,
    Resource,
    WatchEvent,
    WatchEventType,
)
from extender.kube.leader import LeaderElector
from extender.kube.lease import LeaseConfig
from extender.model.decode import (
    namespace_from,
    node_from,
    pod_from,
    pool_from,
    stateful_set_from,
    vpod_from,
)
from extender.model.errors import InvalidObject
from extender.model.foreign_kinds import PRESETS
from extender.model.objects import Source, SourcePaths
from extender.model.reading import COUNT_MAX
from extender.model.translate import PlacementTranslator
from extender.service.http.describe import state_steps
from extender.service.watching.informers import CacheSink
from tests.fuzz.findings import Broken, outcome_of
from tests.fuzz.target import Target
from tests.support.builders import NS, nothing_decided
from tests.support.service import FaultApi, World
from tests.support.steps import result_of

SHOWN_ONE_IN: Final = 8
_DECODERS: Final[Mapping[str, tuple[Resource, Callable[[Obj], Any]]]] = {
    "pod": (PODS, pod_from),
    "node": (NODES, node_from),
    "namespace": (NAMESPACES, namespace_from),
    "stateful-set": (STATEFULSETS, stateful_set_from),
    "pool": (ADAPTERPOOLS, pool_from),
    "vpod": (VPODS, vpod_from),
}
NEVER_REFUSED: Final = frozenset({"pod", "node", "namespace"})
"""Kinds whose decoders document no error."""
KINDS: Final = tuple(_DECODERS)


class ObjectTarget(Target):
    """One kind: an object comes by the watch, is stored, shown, and goes."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.name = kind
        self.resource, self.decode = _DECODERS[kind]

    async def open(self) -> None:
        """See Target."""
        world = await World.create(node_slots=40, profile="ha")
        await world.vpod("a", 6, {0: 2, 1: 2, 2: 1})
        await world.vpod("heavy", 2, {1: 1}, slotsPerVReplica=3)
        await world.pod(1, {"tenant/a": 2, "tenant/heavy": 1}, node="node-0")
        await world.pod(2, {"tenant/a": 1}, node="node-1")
        await world.pod(0)
        await world.sync()
        self.caches = world.caches
        listed = (await world.cluster.list_page(self.resource)).items
        self.originals = {self.decode(obj).key: obj for obj in listed}
        cache: Any = {
            "pod": self.caches.pods,
            "node": self.caches.nodes,
            "namespace": self.caches.namespaces,
            "stateful-set": self.caches.stateful_sets,
            "pool": self.caches.pools,
            "vpod": self.caches.vpods,
        }[self.name]
        self.cache = cache
        self.sink: CacheSink[Any] = CacheSink(self.decode, cache)
        self.seeds = [orjson.dumps(obj) for obj in (*listed[:3], *_EXTRA.get(self.name, ()))]
        self.words = (
            "vreplica.dev/unschedulable",
            "eventing.knative.dev/unschedulable",
            "deletionTimestamp",
            "tenant/a",
            "node-0",
            "9999",
            "vreplica.dev/placements",
            "vreplica.dev/slots",
            "status.placements",
            "knative-consumergroup",
        )
        self.version = 10_000_000
        self.digest = self.caches.state.digest()

    async def run(self, data: bytes) -> str:
        """See Target."""
        try:
            obj = orjson.loads(data)
        except orjson.JSONDecodeError:
            return "no JSON"
        if not isinstance(obj, dict) or not isinstance(obj.get("metadata"), dict):
            return "no object"  # the reflector takes none of these
        # A watch never goes back: every event has a later version than the one before.
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        try:
            value = self.decode(obj)
        except InvalidObject as error:
            if self.name in NEVER_REFUSED:
                raise
            return outcome_of(error)
        try:
            self.sink.apply(WatchEvent(WatchEventType.ADDED, obj))
            if zlib.crc32(data) % SHOWN_ONE_IN == 0:
                orjson.dumps(result_of(state_steps(self.caches.state, nothing_decided)))
        finally:
            self.sink.apply(WatchEvent(WatchEventType.DELETED, obj))
            original = self.originals.get(value.key)
            if original is not None:
                self.version += 1
                original["metadata"]["resourceVersion"] = str(self.version)
                self.sink.apply(WatchEvent(WatchEventType.ADDED, original))
        return f"read {self._shape(value)}"

    def _shape(self, value: Any) -> str:
        """Which fields are not what they are by default."""
        return "".join(
            "1" if field_value else "0"
            for field_value in (getattr(value, name) for name in value.__slots__)
        )

    async def check(self) -> None:
        """See Target."""
        if self.caches.state.digest() != self.digest:
            raise Broken("the state has changed")
        if len(self.cache.list()) != len(self.originals):
            raise Broken(f"{len(self.cache.list())} objects are left, not {len(self.originals)}")


class ForeignTarget(Target):
    """Objects of foreign kinds, read by a preset or by paths: the first byte of the input's
    checksum says which.
    """

    name = "foreign"

    async def open(self) -> None:
        """See Target."""
        paths = SourcePaths(
            vreplicas=("spec", "a", "b"),
            placements=("status", "p"),
            pod_name="pod",
            count="n",
            slots_per_vreplica=("spec", "w"),
        )
        own = Source(group="x.dev", versions=("v1",), resource="things", kind="Thing", paths=paths)
        self.translators = [PlacementTranslator(source) for source in (*PRESETS.values(), own)]
        placements = [
            {"podName": "dispatcher-0", "vreplicas": 3},
            {"podName": "dispatcher-1", "vreplicas": 1},
        ]
        metadata = {
            "namespace": "tenant",
            "name": "g",
            "uid": "u",
            "resourceVersion": "7",
            "generation": 2,
            "labels": {"a": "b"},
        }
        self.seeds = [
            orjson.dumps(
                {
                    "metadata": metadata,
                    "spec": {"replicas": 4},
                    "status": {"placements": placements, "replicas": 3},
                }
            ),
            orjson.dumps(
                {
                    "metadata": metadata,
                    "spec": {"consumers": 9},
                    "status": {"maxAllowedVReplicas": 5, "consumers": 4, "placements": placements},
                }
            ),
            orjson.dumps(
                {
                    "metadata": metadata,
                    "spec": {"a": {"b": 3}, "w": 2},
                    "status": {"p": [{"pod": "dispatcher-0", "n": 3}]},
                }
            ),
        ]

    async def run(self, data: bytes) -> str:
        """See Target."""
        try:
            obj = orjson.loads(data)
        except orjson.JSONDecodeError:
            return "no JSON"
        if not isinstance(obj, dict):
            return "no object"
        outcome = []
        for translator in self.translators:
            try:
                vpod = translator.to_vpod(obj, "ns/pool")
            except InvalidObject as error:
                outcome.append(outcome_of(error)[:40])
                continue
            if not 0 <= vpod.vreplicas <= COUNT_MAX or not 1 <= vpod.weight <= COUNT_MAX:
                raise Broken(f"{vpod}"[:300])
            orjson.dumps(translator.status_of(vpod, {"dispatcher-0": 1}))
            unchanged = translator.status_of(vpod, vpod.placements)
            if unchanged is not None and vpod.scheduled_vreplicas == sum(vpod.placements.values()):
                raise Broken("what is published already would be written again")
            outcome.append(
                f"read {min(vpod.vreplicas, 1)}{min(len(vpod.placements), 2)}{int(vpod.deleting)}"
            )
        return " | ".join(outcome)


class _LeaseApi(FaultApi):
    """Has one Lease, and takes every write that an API server would take."""

    lease: Obj | None = None

    async def get(
        self, resource: Resource, namespace: str, name: str, *, subresource: str = ""
    ) -> Obj:
        if self.lease is None:
            raise NotFound(404, "NotFound", "no lease")
        return self.lease

    async def create(self, resource: Resource, namespace: str, obj: Obj) -> Obj:
        return _written(obj)

    async def update(
        self, resource: Resource, namespace: str, name: str, obj: Obj, *, subresource: str = ""
    ) -> Obj:
        return _written(obj)

    async def list_page(
        self, resource: Resource, options: ListOptions = EVERYWHERE, **more: Any
    ) -> Any:
        raise NotImplementedError


def _written(obj: Obj) -> Obj:
    spec = orjson.loads(orjson.dumps(obj))["spec"]
    for field, least in (("leaseDurationSeconds", 1), ("leaseTransitions", 0)):
        value = spec.get(field)
        if value is not None and (type(value) is not int or not least <= value <= COUNT_MAX):
            raise Broken(f"the API server refuses spec.{field}: {value!r:.60}")
    return obj


class LeaseTarget(Target):
    """The Lease as somebody else has left it: one try of the elector, which must not break and must
    be able to take it.
    """

    name = "lease"

    async def open(self) -> None:
        """See Target."""
        world = World()
        self.api = _LeaseApi(world.cluster)
        spec = {
            "holderIdentity": "",
            "leaseDurationSeconds": 1,
            "leaseTransitions": 3,
            "renewTime": "2026-01-01T00:00:00.000000Z",
            "acquireTime": "2026-01-01T00:00:00.000000Z",
        }
        metadata = {
            "namespace": NS,
            "name": "vreplica-scheduler",
            "resourceVersion": "7",
            "uid": "u",
        }
        self.seeds = [
            orjson.dumps({"metadata": metadata, "spec": spec}),
            orjson.dumps(
                {
                    "metadata": metadata,
                    "spec": {**spec, "holderIdentity": "other", "leaseDurationSeconds": 15},
                }
            ),
            orjson.dumps({"metadata": metadata, "spec": {**spec, "holderIdentity": "we"}}),
            orjson.dumps({"metadata": metadata}),
        ]
        self.words = ("we", "strategy", "preferredHolder")

    async def run(self, data: bytes) -> str:
        """See Target."""
        try:
            lease = orjson.loads(data)
        except orjson.JSONDecodeError:
            return "no JSON"
        if not isinstance(lease, dict) or not _is_possible(lease):
            return "no Lease"
        self.api.lease = lease
        config = LeaseConfig(namespace=NS)
        elector = LeaderElector(
            self.api,
            config,
            identity="we",
            now=asyncio.get_running_loop().time,
            rng=random.Random(1),
        )
        first = await elector._try()
        # The same record, long after: whoever holds it has gone.
        elector.seen._seen_at -= 10.0**10
        second = await elector._try()
        return f"tries {first.name} {second.name} {elector.leader_identity == 'we'}"


def _is_possible(lease: dict[str, Any]) -> bool:
    """Whether the API server can have sent it: the kind's schema is strict, in types, depth and the
    range of numbers.

    The greatest number of transitions is left out: nobody can count beyond it, client-go's elector
    included.
    """
    spec = lease.get("spec", {})
    if not isinstance(lease.get("metadata"), dict) or not isinstance(spec, dict):
        return False
    try:
        orjson.dumps(lease)
    except orjson.JSONEncodeError:
        return False
    numbers = [spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")]
    if numbers[1] == COUNT_MAX:
        return False
    texts = [spec.get(name) for name in ("holderIdentity", "renewTime", "acquireTime")]
    return all(
        value is None or (type(value) is int and 0 <= value <= COUNT_MAX) for value in numbers
    ) and all(value is None or isinstance(value, str) for value in texts)


_TAINT: Final = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "value": "x"}
_EXTRA: Final[Mapping[str, tuple[Obj, ...]]] = {
    "node": (
        {
            "metadata": {"name": "node-7", "labels": {"topology.kubernetes.io/zone": "z1"}},
            "spec": {"unschedulable": True, "taints": [_TAINT, {**_TAINT, "key": "a"}]},
            "status": {
                "conditions": [{"type": "Ready", "status": "Unknown"}],
                "allocatable": {"vreplica.dev/slots": "1k"},
            },
        },
    ),
    "stateful-set": (
        {
            "metadata": {"namespace": NS, "name": "dispatcher"},
            "spec": {
                "replicas": 5,
                "ordinals": {"start": 3},
                "template": {
                    "spec": {
                        "nodeSelector": {"a": "b"},
                        "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}],
                        "affinity": {
                            "nodeAffinity": {
                                "requiredDuringSchedulingIgnoredDuringExecution": {
                                    "nodeSelectorTerms": [
                                        {
                                            "matchExpressions": [
                                                {"key": "a", "operator": "Gt", "values": ["5"]}
                                            ],
                                            "matchFields": [
                                                {
                                                    "key": "metadata.name",
                                                    "operator": "In",
                                                    "values": ["n"],
                                                }
                                            ],
                                        }
                                    ]
                                }
                            }
                        },
                    }
                },
            },
        },
    ),
    "pool": (
        {
            "metadata": {"namespace": NS, "name": "dispatcher", "generation": 2},
            "spec": {
                "statefulSet": "dispatcher",
                "slotsPerPod": 20,
                "minPods": 1,
                "minPodsPerVPod": 2,
                "maxPods": 10,
                "profile": "spread",
                "rescheduleAfterSeconds": 60,
                "rebalance": {"movesPerPeriod": 1, "cooldownSeconds": 2, "dryRun": True},
                "namespaceSelector": {
                    "matchLabels": {"a": "b"},
                    "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}],
                },
                "sources": [
                    {"preset": "knative-kafkasource", "labelSelector": {"matchLabels": {"a": "b"}}},
                    {
                        "group": "x.dev",
                        "version": "v1",
                        "resource": "r",
                        "kind": "K",
                        "writeStatus": False,
                        "paths": {
                            "vreplicas": "spec.n",
                            "placements": "status.p",
                            "scheduledVReplicas": "status.n",
                        },
                    },
                ],
            },
        },
    ),
}
