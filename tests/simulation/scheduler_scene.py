"""A cluster with the embedded kube-scheduler in virtual time: a test names nodes, pods and what the
extender answers.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import orjson

from extender.config.kube_scheduler import ExtenderConfig, ManagedResource, SchedulerConfig
from extender.kube.api import EVENTS, NODES, PODS, AlreadyExists, Obj, PatchType, Resource
from extender.lab.apiserver.cluster import Cluster
from extender.lab.scheduler.extender_transport import TransportError
from extender.lab.scheduler.scheduler import Scheduler
from tests.support.tasks import at_work

EPOCH = 1_800_000_000.0
NS = "default"
PREFIX = "http://extender"
PRIORITY_CLASSES = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False
)


def node_object(
    name: str, *, cpu: str = "4", memory: str = "8Gi", pods: str = "110", **fields: Any
) -> Obj:
    labels = {"kubernetes.io/hostname": name, **fields.pop("labels", {})}
    allocatable = {"cpu": cpu, "memory": memory, "pods": pods, **fields.pop("allocatable", {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": fields,
        # Ready from the start: there is no node lifecycle controller here to take a new node's
        # taint away.
        "status": {
            "allocatable": allocatable,
            "capacity": allocatable,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod_object(
    name: str,
    *,
    cpu: str = "",
    memory: str = "",
    requests: Mapping[str, str] | None = None,
    **spec: Any,
) -> Obj:
    wanted = {
        **(requests or {}),
        **({"cpu": cpu} if cpu else {}),
        **({"memory": memory} if memory else {}),
    }
    resources: Obj = {"requests": wanted}
    if requests:
        resources["limits"] = dict(requests)
    metadata = {
        "name": name,
        "namespace": spec.pop("namespace", NS),
        "labels": spec.pop("labels", {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [{"name": "c", "image": "x", "resources": resources}], **spec},
    }


@dataclass
class FakeService:
    """An extender behind the transport: bytes in, bytes out. ``answers`` by verb; a test replaces
    them as it goes.
    """

    answers: dict[str, Callable[[Obj], Any]] = field(default_factory=dict)
    requests: list[tuple[str, Obj]] = field(default_factory=list)
    delay_s: float = 0.0

    async def __call__(self, url: str, body: bytes, timeout_s: float) -> tuple[int, bytes]:
        verb = url.rpartition("/")[2]
        args = orjson.loads(body)
        self.requests.append((verb, args))
        if self.delay_s >= timeout_s:
            await asyncio.sleep(timeout_s)
            raise TransportError("context deadline exceeded")
        await asyncio.sleep(self.delay_s)
        answer = self.answers[verb](args)
        if asyncio.iscoroutine(answer):
            answer = await answer
        return 200, orjson.dumps(answer)

    def calls(self, verb: str) -> list[Obj]:
        return [args for called, args in self.requests if called == verb]


def all_fit(args: Obj) -> Obj:
    return {"NodeNames": args["NodeNames"]}


def none_fit(reason: str) -> Callable[[Obj], Obj]:
    return lambda args: {"NodeNames": [], "FailedNodes": dict.fromkeys(args["NodeNames"], reason)}


def extender_config(*verbs: str, **fields: Any) -> ExtenderConfig:
    fields = {"url_prefix": PREFIX, "node_cache_capable": True, "weight": 1, **fields}
    return ExtenderConfig(**fields, **dict[str, Any]((f"{verb}_verb", verb) for verb in verbs))


SLOTS = ManagedResource("vreplica.dev/slots", ignored_by_scheduler=True)


class Scene:
    def __init__(self, *extenders: ExtenderConfig, seed: int = 1, **config: Any) -> None:
        self.config = SchedulerConfig(extenders=extenders, **config)
        self.rng = random.Random(seed)
        self.service = FakeService()
        self.cluster = Cluster(now=self.now, rng=self.rng)

    def now(self) -> float:
        return EPOCH + asyncio.get_running_loop().time()

    async def node(self, name: str, **fields: Any) -> None:
        await self.cluster.create(NODES, "", node_object(name, **fields))

    async def pod(
        self, name: str, *, priority: int = 0, never_preempts: bool = False, **fields: Any
    ) -> Obj:
        if priority:
            fields["priorityClassName"] = await self._priority_class(priority, never_preempts)
        return await self.cluster.create(
            PODS, fields.get("namespace", NS), pod_object(name, **fields)
        )

    async def _priority_class(self, value: int, never_preempts: bool) -> str:
        name = f"p{value}{'-never' if never_preempts else ''}"
        policy = "Never" if never_preempts else "PreemptLowerPriority"
        obj = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "preemptionPolicy": policy,
        }
        with suppress(AlreadyExists):
            await self.cluster.create(PRIORITY_CLASSES, "", obj)
        return name

    async def node_of(self, name: str) -> str:
        return str((await self.cluster.get(PODS, NS, name))["spec"].get("nodeName", ""))

    async def condition(self, name: str) -> Obj:
        pod = await self.cluster.get(PODS, NS, name)
        found = [c for c in pod["status"].get("conditions", ()) if c["type"] == "PodScheduled"]
        return found[0] if found else {}

    async def annotate(self, name: str, annotations: Mapping[str, str]) -> None:
        patch = {"metadata": {"annotations": dict(annotations)}}
        await self.cluster.patch(PODS, NS, name, patch, patch_type=PatchType.MERGE)

    async def notes(self, reason: str) -> list[str]:
        events = await self.cluster.list_page(EVENTS)
        return [event["note"] for event in events.items if event["reason"] == reason]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Scheduler]:
        scheduler = Scheduler(
            self.cluster, self.config, now=self.now, rng=self.rng, transport=self.service
        )
        async with at_work(scheduler.run()):
            yield scheduler
