"""The running service on the embedded cluster: ``FaultApi`` breaks its calls, ``World`` builds the
objects around it.

A test of one part fills its caches by ``World.sync``, kind by kind, so that it alone says which
cache lags behind. A test of the whole service runs it with its own reflectors and loops, in virtual
time, and stops it again: ``World.serving``.
"""

import asyncio
import random
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from inspect import isawaitable
from pathlib import Path
from typing import Any, TypeVar

import orjson
import yaml

from extender.config.model import (
    AdaptersConfig,
    Config,
    LeaderElectionConfig,
    Mode,
    ScheduleConfig,
    ServerConfig,
)
from extender.engine.state.availability import Availability, AvailableReason, Unserved
from extender.kube.api import (
    ADAPTERPOOLS,
    CRDS,
    EVENTS,
    EVERYWHERE,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    STATEFULSETS,
    VPODS,
    ListOptions,
    Obj,
    OutcomeUnknown,
    PatchType,
    Resource,
)
from extender.kube.events import EventRecorder
from extender.kube.forwarding import ApiCall, ForwardingApi
from extender.kube.sink import Sink
from extender.lab.apiserver.cluster import Cluster
from extender.model import decode, names
from extender.model.ledger import Share, decode_ledger, encode_ledger
from extender.model.names import LEASE_NAME
from extender.model.objects import AdapterPod, VPod
from extender.model.timestamps import timestamp
from extender.service.app import Service
from extender.service.binding.binder import SchedulerVReplicaBinder
from extender.service.binding.pod_binder import PodBinder
from extender.service.placing.committer import Committer, Lists
from extender.service.placing.decision_history import DecisionHistory
from extender.service.placing.placer import Reporting
from extender.service.placing.vpod_events import VPodEvents
from extender.service.watching.caches import Caches
from extender.service.watching.informers import CacheSink
from extender.service.watching.sources import StatusWrite
from extender.telemetry.metrics import Metrics
from tests.kube.fakes import give_list
from tests.support.builders import NS
from tests.support.tasks import at_work

EPOCH_S = 1_800_000_000.0
TENANT = "tenant"
_CRD_DIR = Path(__file__).parents[2] / "manifests" / "crds"
_READ_VERBS = frozenset({"get", "list", "watch"})
_ANYTHING_TRUE = object()


T = TypeVar("T")


async def always(_pod: AdapterPod) -> bool:
    """What an ordinal's former pods held is known."""
    return True


@dataclass
class Call:
    """One call of the API: ``verb`` is the method's name, ``what`` the plural, with
    ``/subresource`` if any.
    """

    verb: str
    what: str
    name: str = ""
    namespace: str = ""

    def is_a(self, verb: str, what: str, name: str = "") -> bool:
        return (self.verb, self.what) == (verb, what) and name in {"", self.name}


@dataclass
class Fault:
    """What happens to the next calls of one sort. ``before``/``after``: raised instead of, or
    after, the effect.
    """

    verb: str
    what: str
    name: str = ""
    before: Exception | None = None
    after: Exception | None = None
    times: int = 1
    then: Callable[[], Awaitable[object]] | None = None
    """Awaited right before the call goes on: what somebody else does at that moment."""
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    pause: bool = False


def lost(verb: str = "") -> OutcomeUnknown:
    return OutcomeUnknown(0, "Timeout", f"no answer {verb}".strip())


class FaultApi(ForwardingApi):
    """An ``Api`` before the cluster's: counts all calls, and breaks those that a ``Fault``
    names.
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.cluster = cluster
        self.calls: list[Call] = []
        self.faults: list[Fault] = []
        self.served: Callable[[Call], None] = lambda _call: None
        """Told after every call that had its effect."""
        self.dead = False
        """As for a process that was killed: no call has an effect or an answer any more."""

    def fail(self, verb: str, what: str, **fields) -> Fault:
        fault = Fault(verb, what, **fields)
        self.faults.append(fault)
        return fault

    def pause(self, verb: str, what: str, name: str = "", **fields) -> Fault:
        """Stop the next such call before its effect; ``reached`` when it is there, ``go_on`` lets
        it pass.
        """
        return self.fail(verb, what, name=name, pause=True, **fields)

    def count(self, verb: str, what: str, name: str = "") -> int:
        return sum(1 for call in self.calls if call.is_a(verb, what, name))

    def writes(self) -> list[Call]:
        """All but reads, leases and events."""
        return [
            c
            for c in self.calls
            if c.verb not in _READ_VERBS and c.what not in {"leases", "events"}
        ]

    async def _forward(self, api_call: ApiCall, send: Callable[[], Coroutine[Any, Any, T]]) -> T:
        call = Call(api_call.verb, api_call.collection, api_call.name, api_call.namespace)
        if self.dead:
            await asyncio.Event().wait()
        self.calls.append(call)
        fault = next(
            (f for f in self.faults if call.is_a(f.verb, f.what, f.name) and f.times), None
        )
        if fault is not None:
            fault.times -= 1
            fault.reached.set()
            if fault.pause:
                await fault.go_on.wait()
            if fault.then is not None:
                await fault.then()
            if fault.before is not None:
                raise fault.before
        reply = await send()
        self.served(call)
        if fault is not None and fault.after is not None:
            raise fault.after
        return reply

    def watch(self, resource: Resource, options: ListOptions = EVERYWHERE, **more):
        self.calls.append(Call("watch", resource.plural))
        return self.cluster.watch(resource, options, **more)


@cache
def _definitions() -> bytes:
    return orjson.dumps(
        [
            yaml.safe_load((_CRD_DIR / name).read_text())
            for name in ("adapterpools.yaml", "vpods.yaml", "vreplicaquotas.yaml")
        ]
    )


def wall() -> float:
    """Epoch seconds that go with the loop's time."""
    return EPOCH_S + asyncio.get_running_loop().time()


class NoLists:
    """Nobody lists again: watches are never silent."""

    async def list_again(self, _source: str) -> bool:
        return True

    def request_pods(self) -> None:
        pass


def no_foreign_kind(vpod: VPod, *_: object) -> StatusWrite | None:
    raise LookupError(f"vpod {vpod.key} is of a kind that nobody writes the status of")


class Led:
    """All pools, for as long as ``World.leads`` says so, and since ever."""

    def __init__(self, world: "World") -> None:
        self._world = world

    def leads(self, _pool: str) -> bool:
        return self._world.leads

    def leads_since(self, _pool: str) -> float:
        return float("-inf")

    def no_predecessor_writes(self, _pool: str) -> bool:
        return self._world.no_predecessor_writes


class World:
    """A cluster with the CRDs, one pool ``dispatcher`` of ``replicas`` pods to be, and nodes in
    their own zones.
    """

    def __init__(self, cluster: Cluster | None = None, namespace: str = NS) -> None:
        self.cluster = cluster or Cluster(now=wall, rng=random.Random(1))
        self.namespace = namespace
        """Of the pool."""
        self.api = FaultApi(self.cluster)
        self.caches = Caches()
        self.leads = self.no_predecessor_writes = True
        self.metrics = Metrics()

    @classmethod
    async def create(
        cls,
        *,
        replicas: int = 3,
        slots: int = 20,
        nodes: int = 3,
        node_slots: int | None = None,
        **pool_spec,
    ) -> "World":
        world = cls()
        for definition in orjson.loads(_definitions()):
            await world.cluster.create(CRDS, "", definition)
        for namespace in (NS, TENANT, "vreplica-system"):
            await world.cluster.create(NAMESPACES, "", {"metadata": {"name": namespace}})
        await world.cluster.create(LEASES, "vreplica-system", {"metadata": {"name": LEASE_NAME}})
        for index in range(nodes):
            await world.node(f"node-{index}", slots=node_slots)
        await world.stateful_set(replicas)
        await world.pool(slots, **pool_spec)
        return world

    async def beside(self, namespace: str, *ordinals: int) -> "World":
        """Another pool ``dispatcher`` in a namespace of the same cluster, with these pods. Its
        ``api`` counts its own calls.
        """
        other = World(self.cluster, namespace)
        await self.cluster.create(NAMESPACES, "", {"metadata": {"name": namespace}})
        await other.stateful_set(len(ordinals))
        await other.pool()
        await other.pods(*ordinals)
        return other

    # -- objects -----------------------------------------------------------------------------------

    async def node(self, name: str, *, slots: int | None = None) -> None:
        status: Obj = {"conditions": [{"type": "Ready", "status": "True"}]}
        if slots is not None:
            status["allocatable"] = {names.SLOTS_RESOURCE: str(slots)}
            status["capacity"] = {names.SLOTS_RESOURCE: str(slots)}
        labels = {names.ZONE_LABEL: f"z{name[-1]}"}
        await self.cluster.create(
            NODES, "", {"metadata": {"name": name, "labels": labels}, "status": status}
        )

    async def stateful_set(self, replicas: int) -> None:
        labels = {"app": "dispatcher", names.POOL_LABEL: "dispatcher"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [_CONTAINER]}}
        spec = {
            "replicas": replicas,
            "serviceName": "dispatcher",
            "selector": {"matchLabels": {"app": "dispatcher"}},
            "template": template,
        }
        await self.cluster.create(
            STATEFULSETS, self.namespace, {"metadata": {"name": "dispatcher"}, "spec": spec}
        )

    async def pool(self, slots: int = 20, *, name: str = "dispatcher", **spec) -> None:
        spec = {"statefulSet": "dispatcher", "slotsPerPod": slots, **spec}
        await self.cluster.create(ADAPTERPOOLS, self.namespace, _custom("AdapterPool", name, spec))

    async def vpod(
        self,
        name: str = "a",
        vreplicas: int = 1,
        placements: Mapping[int, int] | None = None,
        *,
        namespace: str = TENANT,
        **spec,
    ) -> None:
        """A vpod, which publishes ``placements`` (ordinal -> vreplicas) as a scheduled one."""
        spec = {
            "poolRef": {"namespace": self.namespace, "name": "dispatcher"},
            "vreplicas": vreplicas,
            **spec,
        }
        obj = await self.cluster.create(VPODS, namespace, _custom("VPod", name, spec))
        if placements is not None:
            obj["status"] = _status(vreplicas, placements)
            await self.cluster.update(VPODS, namespace, name, obj, subresource="status")

    async def patch_pool(self, **spec: object) -> None:
        await self.cluster.patch(
            ADAPTERPOOLS, self.namespace, "dispatcher", {"spec": spec}, patch_type=PatchType.MERGE
        )

    async def patch_stateful_set(self, **spec: object) -> None:
        await self.cluster.patch(
            STATEFULSETS, self.namespace, "dispatcher", {"spec": spec}, patch_type=PatchType.MERGE
        )

    async def patch_status(
        self, resource: Resource, namespace: str, name: str, **status: object
    ) -> None:
        """As somebody else than the service writes it."""
        await self.cluster.patch(
            resource,
            namespace,
            name,
            {"status": status},
            patch_type=PatchType.MERGE,
            subresource="status",
        )

    async def ready(self, ordinal: int, *, ready: bool = True) -> None:
        """The kubelet says that the pod is Ready, or is not."""
        condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": timestamp(wall())}
        name = f"dispatcher-{ordinal}"
        await self.patch_status(PODS, self.namespace, name, conditions=[condition])

    async def point(self, name: str, *, at: str) -> None:
        """Have a vpod name the pool of another namespace."""
        pool = {"spec": {"poolRef": {"namespace": at, "name": "dispatcher"}}}
        await self.cluster.patch(VPODS, TENANT, name, pool, patch_type=PatchType.MERGE)

    async def set_vreplicas(self, name: str, vreplicas: int) -> None:
        await self.cluster.patch(
            VPODS, TENANT, name, {"spec": {"vreplicas": vreplicas}}, patch_type=PatchType.MERGE
        )

    async def pod(
        self,
        ordinal: int,
        ledger: Mapping[str, int | Share] | None = None,
        *,
        node: str = "",
        slots: int | None = 20,
        annotations: Mapping[str, str] | None = None,
        **spec,
    ) -> str:
        """An adapter pod, bound where ``node`` is given, as the webhook and our bind leave it; its
        UID.
        """
        stamped = dict(annotations or {})
        if slots is not None:
            stamped[names.SLOTS_ANNOTATION] = str(slots)
        if ledger is not None:
            shares = {k: v if isinstance(v, Share) else Share(v) for k, v in ledger.items()}
            stamped[names.PLACEMENTS_ANNOTATION] = encode_ledger(shares)
        owner = await self.cluster.get(STATEFULSETS, self.namespace, "dispatcher")
        metadata = {
            "name": f"dispatcher-{ordinal}",
            "labels": {"app": "dispatcher", names.POOL_LABEL: "dispatcher"},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "StatefulSet",
                    "name": "dispatcher",
                    "uid": owner["metadata"]["uid"],
                    "controller": True,
                }
            ],
        }
        if stamped:
            metadata["annotations"] = stamped
        spec = {"schedulerName": names.SCHEDULER_NAME, "containers": [_CONTAINER], **spec}
        if node:
            spec["nodeName"] = node
        made = await self.cluster.create(PODS, self.namespace, {"metadata": metadata, "spec": spec})
        return str(made["metadata"]["uid"])

    async def pods(self, *ordinals: int) -> None:
        """Bound pods with empty ledgers, on the nodes in turn."""
        for ordinal in ordinals:
            await self.pod(ordinal, {}, node=f"node-{ordinal % 3}")

    async def remove_pod(self, ordinal: int) -> None:
        await self.cluster.delete(PODS, self.namespace, f"dispatcher-{ordinal}", grace_period_s=0)

    async def edit_ledger(self, ordinal: int, ledger: Mapping[str, int] | str) -> None:
        text = (
            ledger
            if isinstance(ledger, str)
            else encode_ledger({k: Share(v) for k, v in ledger.items()})
        )
        await self.annotate(ordinal, **{names.PLACEMENTS_ANNOTATION: text})

    async def annotate(self, ordinal: int, **annotations: str | None) -> None:
        await self.cluster.patch(
            PODS,
            self.namespace,
            f"dispatcher-{ordinal}",
            {"metadata": {"annotations": annotations}},
            patch_type=PatchType.MERGE,
        )

    # -- what stands there -------------------------------------------------------------------------

    async def pod_object(self, ordinal: int) -> Obj:
        return await self.cluster.get(PODS, self.namespace, f"dispatcher-{ordinal}")

    async def uid(self, ordinal: int) -> str:
        return str((await self.pod_object(ordinal))["metadata"]["uid"])

    async def annotation(self, ordinal: int, name: str) -> str | None:
        metadata = (await self.pod_object(ordinal))["metadata"]
        found: str | None = metadata.get("annotations", {}).get(name)
        return found

    async def ledger(self, ordinal: int) -> dict[str, int]:
        text = await self.annotation(ordinal, names.PLACEMENTS_ANNOTATION)
        return {key: share.vreplicas for key, share in decode_ledger(text).items()}

    async def node_of(self, ordinal: int) -> str:
        return str((await self.pod_object(ordinal))["spec"].get("nodeName", ""))

    async def status(self, name: str = "a") -> Obj:
        return dict((await self.cluster.get(VPODS, TENANT, name)).get("status", {}))

    async def published(self, name: str = "a") -> dict[int, int]:
        """Ordinal -> vreplicas in a vpod's status."""
        placements = (await self.status(name)).get("placements", [])
        return {int(p["podName"].rpartition("-")[2]): p["vreplicas"] for p in placements}

    async def placed(self, name: str = "a") -> int:
        """The vreplicas in a vpod's status."""
        return sum((await self.published(name)).values())

    async def conditions(self, name: str = "a") -> dict[str, Obj]:
        """Of a vpod, by type."""
        return _conditions(await self.status(name))

    async def condition(self, name: str = "a") -> tuple[str, str]:
        """Status and reason of a vpod's condition Scheduled."""
        return _said(await self.conditions(name), "Scheduled")

    async def pool_status(self, pool: str = "dispatcher") -> Obj:
        return dict((await self.cluster.get(ADAPTERPOOLS, self.namespace, pool)).get("status", {}))

    async def pool_condition(self, kind: str, pool: str = "dispatcher") -> tuple[str, str]:
        """Status and reason."""
        return _said(_conditions(await self.pool_status(pool)), kind)

    async def pool_message(self, kind: str, pool: str = "dispatcher") -> str:
        """Of a condition; "" if there is none."""
        return str(_conditions(await self.pool_status(pool)).get(kind, {}).get("message", ""))

    async def replicas(self) -> int:
        return int(
            (await self.cluster.get(STATEFULSETS, self.namespace, "dispatcher"))["spec"]["replicas"]
        )

    async def lease_holder(self) -> str:
        lease = await self.cluster.get(LEASES, "vreplica-system", "vreplica-scheduler")
        return str(lease["spec"].get("holderIdentity") or "")

    async def events(self, reason: str) -> list[Obj]:
        page = await self.cluster.list_page(EVENTS)
        return [event for event in page.items if event["reason"] == reason]

    async def check(self) -> None:
        """I1, and I2 for what is bound; I3 for what can be placed is the test's own business."""
        pods = {
            (pod["metadata"]["namespace"], pod["metadata"]["name"]): pod
            for pod in (await self.cluster.list_page(PODS)).items
        }
        ledgers = {}
        for key, pod in pods.items():
            annotations = pod["metadata"].get("annotations", {})
            ledger = decode_ledger(annotations.get(names.PLACEMENTS_ANNOTATION))
            slots = int(annotations.get(names.SLOTS_ANNOTATION, 20))
            taken = sum(share.slots for share in ledger.values())
            assert taken <= slots, f"{key} is overcommitted: {ledger}"
            ledgers[key] = ledger
        for vpod in (await self.cluster.list_page(VPODS)).items:
            namespace = vpod["metadata"]["namespace"]
            name = f"{namespace}/{vpod['metadata']['name']}"
            for placement in vpod.get("status", {}).get("placements", []):
                key = vpod["spec"]["poolRef"].get("namespace", namespace), placement["podName"]
                if key in pods and pods[key]["spec"].get("nodeName"):
                    share = ledgers[key].get(name, Share(0))
                    assert share.vreplicas >= placement["vreplicas"], (
                        f"{name} is not covered on {key}"
                    )

    # -- parts of the service, with caches that this test fills ------------------------------------

    async def sync(self, *kinds: str) -> None:
        """Bring caches up to the cluster: the named plurals, or all."""
        sinks: dict[Resource, Sink] = {
            NODES: CacheSink(decode.node_from, self.caches.nodes),
            NAMESPACES: CacheSink(decode.namespace_from, self.caches.namespaces),
            STATEFULSETS: CacheSink(decode.stateful_set_from, self.caches.stateful_sets),
            ADAPTERPOOLS: CacheSink(decode.pool_from, self.caches.pools),
            PODS: CacheSink(decode.pod_from, self.caches.pods),
            VPODS: CacheSink(decode.vpod_from, self.caches.vpods),
        }
        for resource, sink in sinks.items():
            if not kinds or resource.plural in kinds:
                # As the service watches them.
                selector = names.POOL_LABEL if resource is PODS else ""
                options = ListOptions(label_selector=selector)
                page = await self.cluster.list_page(resource, options, limit=10_000)
                give_list(sink, page.items, page.resource_version)

    def digest(self) -> dict[str, object]:
        return self.caches.state.digest()

    def binder(self, *, narrow_to: int = 0, seen_within_s: float = 0.0) -> SchedulerVReplicaBinder:
        """By default its binds do not wait for the watch: ``sync`` stands for that."""
        return SchedulerVReplicaBinder(
            self.api,
            self.caches,
            clock=asyncio.get_running_loop().time,
            leads=lambda _: self.leads,
            narrow_to=narrow_to,
            seen_within_s=seen_within_s,
        )

    def pod_binder(self) -> PodBinder:
        return PodBinder(self.api, self.caches, self.binder(), knows_past=always)

    def committer(self, lists: Lists | None = None) -> Committer:
        clock = asyncio.get_running_loop().time
        return Committer(
            self.api,
            self.caches,
            clock=clock,
            now=wall,
            leadership=self.leadership(),
            lists=lists or NoLists(),
            write_foreign_status=no_foreign_kind,
            vpod_events=VPodEvents(self.recorder(), self.metrics),
            metrics=self.metrics,
        )

    def leadership(self) -> "Led":
        return Led(self)

    def reporting(self, recorder: EventRecorder | None = None) -> Reporting:
        vpod_events = VPodEvents(recorder or self.recorder(), self.metrics)
        return Reporting(vpod_events, DecisionHistory("test", wall), self.metrics)

    def recorder(self) -> EventRecorder:
        return EventRecorder(self.api, reporting_instance="test", now=wall)

    # -- the whole service -------------------------------------------------------------------------

    def service(
        self,
        *,
        elect: bool = False,
        seed: int = 1,
        serve: bool = False,
        mode: Mode = Mode.ACTIVE,
        schedule: ScheduleConfig | None = None,
        adapters: AdaptersConfig | None = None,
        pool_namespaces: Collection[str] = (),
        load_sources: Sequence[Mapping[str, object]] = (),
        **server,
    ) -> Service:
        config = Config(
            pool_namespaces=frozenset(pool_namespaces),
            load_sources=tuple(load_sources),
            schedule=schedule or ScheduleConfig(),
            adapters=adapters or AdaptersConfig(),
            server=ServerConfig(port=0, **server),
            leader_election=LeaderElectionConfig(leader_elect=elect),
            mode=mode,
        )
        return Service(self.api, config, now=wall, rng=random.Random(seed), serve=serve)

    @asynccontextmanager
    async def serving(self, *, checked: bool = True, **options) -> AsyncIterator[Service]:
        """The whole service, synced and at work, stopped as by SIGTERM at the end. Then ``check``:
        ``checked`` is False where a test itself sees to it that I1 or I2 does not hold.
        """
        service = self.service(**options)
        async with at_work(service.run()):
            async with asyncio.timeout(5):
                await service.informers.wait_synced()
            yield service
        if checked:
            await self.check()

    @asynccontextmanager
    async def adapters(self, service: Service, *, slots: int = 20) -> AsyncIterator[None]:
        """Stand-ins for the StatefulSet controller and kube-scheduler: pods come, and are bound
        through our verbs.
        """

        async def work() -> None:
            while True:
                known = {
                    pod["metadata"]["name"]: pod
                    for pod in (await self.cluster.list_page(PODS)).items
                }
                for ordinal in range(await self.replicas()):
                    if f"dispatcher-{ordinal}" not in known:
                        await self.pod(ordinal, slots=slots)
                for pod in known.values():
                    if not pod["spec"].get("nodeName"):
                        await schedule(service, pod, ["node-0", "node-1", "node-2"])
                await asyncio.sleep(0.05)

        async with at_work(work()):
            yield


async def a_world(*ordinals: int, **pool) -> World:
    """A world with these pods of its pool."""
    world = await World.create(**pool)
    await world.pods(*ordinals)
    return world


async def schedule(service: Service, pod: Obj, nodes: list[str]) -> str:
    """One attempt of kube-scheduler's: filter, then bind to the first node that passes; the error,
    "" if bound.
    """
    reply = orjson.loads(service.verbs.filter(filter_args(pod, nodes))[0])
    if not reply["NodeNames"]:
        return ", ".join(
            sorted({*reply["FailedNodes"].values(), *reply["FailedAndUnresolvableNodes"].values()})
        )
    bound = orjson.loads((await service.verbs.bind(bind_args(pod, reply["NodeNames"][0])))[0])
    return str(bound["Error"])


_CONTAINER: Obj = {"name": "adapter", "image": "registry.example/adapter:1"}


def _custom(kind: str, name: str, spec: Obj) -> Obj:
    return {"apiVersion": names.API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _conditions(status: Obj) -> dict[str, Obj]:
    return {condition["type"]: condition for condition in status.get("conditions", [])}


def _said(conditions: Mapping[str, Obj], kind: str) -> tuple[str, str]:
    """(status, reason); empty texts if there is no such condition."""
    condition = conditions.get(kind, {})
    return condition.get("status", ""), condition.get("reason", "")


def _status(vreplicas: int, placements: Mapping[int, int]) -> Obj:
    placed = sum(placements.values())
    done = placed == vreplicas
    return {
        "observedGeneration": 1,
        "placements": [
            {"podName": f"dispatcher-{o}", "vreplicas": n} for o, n in placements.items()
        ],
        "scheduledVReplicas": placed,
        "readyVReplicas": 0,  # no pod of this world is Ready unless a test says so
        "conditions": [
            {
                "type": "Available",
                "status": "False" if vreplicas else "True",
                "reason": "PodNotReady" if placed else "NotAllPlaced" if vreplicas else "AllReady",
                "message": _unserved(vreplicas, placements).message(),
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            },
            {
                "type": "Scheduled",
                "status": str(done),
                "reason": "AllPlaced" if done else "InsufficientSlots",
                "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            },
        ],
    }


def _unserved(vreplicas: int, placements: Mapping[int, int]) -> Availability:
    """As it is while the pods are there and not Ready."""
    by_count = sorted((-count, ordinal) for ordinal, count in placements.items() if count)
    pods = (
        Unserved(
            f"dispatcher-{ordinal}", -count, AvailableReason.POD_NOT_READY, "the pod is not Ready"
        )
        for count, ordinal in by_count
    )
    return Availability(vreplicas, sum(placements.values()), tuple(pods))


def filter_args(pod: Obj, nodes: Iterable[str] | list[Obj], *, full: bool = False) -> bytes:
    key = "Nodes" if full else "NodeNames"
    return orjson.dumps({"Pod": pod, key: {"items": list(nodes)} if full else list(nodes)})


def bind_args(pod: Obj, node: str, **changed) -> bytes:
    metadata = pod["metadata"]
    args = {
        "PodName": metadata["name"],
        "PodNamespace": metadata["namespace"],
        "PodUID": metadata["uid"],
        "Node": node,
    }
    return orjson.dumps(args | changed)


async def until(
    read: Callable[[], object], wanted: object = _ANYTHING_TRUE, *, timeout_s: float = 60.0
) -> None:
    """Wait until ``read`` gives ``wanted``, or anything true. It may be asynchronous, and is called
    every 10 to 100 ms of the loop's time.
    """
    period_s = min(max(0.01, timeout_s / 500), 0.1)
    found: object = None
    for _ in range(int(timeout_s / period_s)):
        found = read()
        if isawaitable(found):
            found = await found
        if found == wanted or (found and wanted is _ANYTHING_TRUE):
            return
        await asyncio.sleep(period_s)
    raise TimeoutError(f"it is still {found!r} after {timeout_s} s")
